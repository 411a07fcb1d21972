"""Ranks that torchrun started, over torch's own engine: gloo between processors, NCCL between GPUs.

Sums go through collectives, which every rank must reach within the time limit. What the first rank does alone, or all
do in turn, may take long, so ranks wait for it at the store that torchrun keeps, without a limit: if one dies, torchrun
ends the others.
"""

from __future__ import annotations

import itertools
import json
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypeVar, final

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import PrefixStore, Store  # type: ignore[attr-defined]  # it comes from compiled code
from torch.distributed.rendezvous import rendezvous

from sightline.batch import Batch
from sightline.errors import OtherRankError, SightlineError
from sightline.launch import Launch
from sightline.losses import AttentionLoss
from sightline.training import parallel
from sightline.training.averages import Losses, losses_of
from sightline.training.interrupts import Stop
from sightline.training.ranks import Clock, Spread, whole

T = TypeVar("T")
# A process may train more than once, and the store forgets nothing.
_meetings = itertools.count()
WAIT = timedelta(seconds=1)
SHORTEST_PAUSE, LONGEST_PAUSE = 0.001, 0.5  # seconds
TOLD = "told"
LOST = (
    "another rank has died or did not answer in time: torchrun tells which one and, if it is known, why; "
    "the last checkpoint is whole, go on from it with --resume"
)


@final
class Group:
    """One of `size` ranks. See `ranks.Ranks` for what each method promises."""

    def __init__(self, launch: Launch, kind: str, device: torch.device, store: Store) -> None:
        self.rank, self.size, self.first, self.device = launch.rank, launch.size, launch.rank == 0, device
        self._kind, self._store = kind, store
        self._turn = 0 if self.first else 1 if launch.local_rank == 0 else 2
        self._calls = 0  # that answers wait for: the same on all ranks, so it names their messages
        self._clock: Clock = lambda: 0.0
        self._now = 0.0
        self._stop: Stop | None = None
        self._pending: list[Tensor] = []

    @classmethod
    @contextmanager
    def joined(cls, launch: Launch, kind: str, timeout_minutes: float) -> Iterator[Group]:
        """Meets the other ranks, and parts from them when the block ends well."""
        device = _device(launch)
        timeout = timedelta(minutes=timeout_minutes)
        store = None
        try:
            common, _, _ = next(iter(rendezvous("env://", timeout=timeout)))
            store = PrefixStore(f"sightline-{next(_meetings)}", common)
            dist.init_process_group(
                "nccl" if device.type == "cuda" else "gloo",
                store=PrefixStore("group", store),
                rank=launch.rank,
                world_size=launch.size,
                timeout=timeout,
                device_id=device if device.type == "cuda" else None,
            )
            yield cls(launch, kind, device, PrefixStore("answers", store))
            dist.barrier()
        except RuntimeError as error:
            if not _is_lost_connection(error):
                raise
            if launch.rank < 2:  # torchrun is about to send it; the line that follows must come out first
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
            raise OtherRankError(LOST, aloud=_tells(launch.rank, store)) from None
        dist.destroy_process_group()

    # The model

    def spread(self, model: nn.Module) -> Spread:
        spread = parallel.replicate(model) if self._kind == "ddp" else parallel.shard(model, keep=self.first)
        for part in spread.owner.modules():
            if isinstance(part, AttentionLoss):
                part.pool(_summed)
        return replace(spread, runner=_Together(spread.runner, self._combine))

    def collect(self, spread: Spread, model: nn.Module) -> None:
        if self._kind == "ddp":
            return
        tensors = self.whole(spread.owner.state_dict())
        if self.first:
            model.load_state_dict(tensors)

    def whole(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        kept = {}
        # One after the other, so that only one is in full on a GPU at a time; and by name, because moments that come
        # from a checkpoint may be listed in another order on each rank.
        for name, value in sorted(tensors.items()):
            full = whole(value)
            if self.first:
                kept[name] = full if full is value else full.cpu()
        return kept

    # An update

    def _combine(self, losses: Losses, batch: Batch) -> Losses:
        assert self._stop is not None, "follow comes first"
        sums, counts = zip(*((total.detach(), count) for total, count in losses.values()), strict=True)
        tokens = (batch.targets or batch.sources[0]).mask.sum()
        own = (tokens, self._stop.wished, self._clock() if self.first else 0.0)
        values = [torch.as_tensor(value, dtype=torch.float64) for value in (*own, *sums, *counts)]
        message = torch.stack([value.to(self.device, non_blocking=True) for value in values])
        dist.all_reduce(message)
        self._pending.append(message[:3])
        combined = {}
        for place, (name, (total, _)) in enumerate(losses.items(), start=3):
            # The value is that of all ranks, the gradient this rank's own, times what torch will divide by.
            share = self.size * (total - total.detach())
            combined[name] = (message[place].to(total.dtype) + share, message[place + len(losses)].long())
        return combined

    def settle(self, tokens: int) -> int:
        assert self._stop is not None
        rows = torch.stack(self._pending).tolist()
        self._pending.clear()
        self._stop.requested |= any(wishes > 0 for _, wishes, _ in rows)
        self._now = rows[-1][2]
        return round(sum(row[0] for row in rows))

    # Agreement

    def follow(self, stop: Stop, clock: Clock) -> Clock:
        self._stop, self._clock = stop, clock
        self.on_first(lambda: None)  # sets the time
        return lambda: self._now

    def on_first(self, work: Callable[[], T]) -> T:
        self._calls += 1
        key = str(self._calls)
        if not self.first:
            return self._answer(key)
        answer: dict[str, Any] = {"failed": 0}
        try:
            answer = {"value": work()}
        finally:
            self._store.set(key, json.dumps({**answer, "now": self._clock()}))
        return self._answer(key)

    def in_turn(self, work: Callable[[], T]) -> T:
        done: list[T] = []
        for turn in range(3):
            self._all((lambda: done.append(work())) if turn == self._turn else (lambda: None))
        return done[0]

    def _all(self, work: Callable[[], object]) -> None:
        """Every rank works, and waits for the others, however long they take."""
        self._calls += 1
        key = str(self._calls)
        try:
            work()
        except BaseException:
            self._store.set(key, json.dumps({"failed": self.rank}))
            raise
        if self._store.add(f"{key}-done", 1) == self.size:
            self._store.set(key, json.dumps({"value": None, "now": self._now}))
        self._answer(key)

    def _answer(self, key: str) -> Any:
        """What another rank, mostly the first, has to say under this key, waiting for it."""
        # Not `wait`, which would warn of every time limit that passes. Signals are noticed between two looks.
        pause = SHORTEST_PAUSE
        while not self._store.check([key]):
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
        answer = json.loads(self._store.get(key))
        if answer.get("failed") == 0:
            raise OtherRankError("the first rank could not go on; it has told why")
        if "failed" in answer:
            raise OtherRankError(f"rank {answer['failed']} could not go on: torchrun tells why", aloud=self.first)
        self._now = answer["now"]
        return answer["value"]

    def gather(self, value: T) -> list[T]:
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values


def _summed(value: Tensor) -> Tensor:
    """The sum over all ranks."""
    total = value.clone()
    dist.all_reduce(total)
    return total


class _Together(nn.Module):
    """A runner whose losses are those of all ranks."""

    def __init__(self, runner: nn.Module, combine: Callable[[Losses, Batch], Losses]) -> None:
        super().__init__()
        self.runner, self._combine = runner, combine

    def loss(self, batch: Batch) -> Losses:
        """Every rank's batch counts; see `ranks.Spread`."""
        return self._combine(losses_of(self.runner, batch), batch)


def _device(launch: Launch) -> torch.device:
    """The GPU of this rank's number on its machine, or the processor where there is none."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    if launch.local_rank >= torch.cuda.device_count():
        raise SightlineError(
            f"torchrun started {launch.local_size} ranks here, but there are {torch.cuda.device_count()} GPUs: "
            "lower --nproc-per-node"
        )
    device = torch.device("cuda", launch.local_rank)
    torch.cuda.set_device(device)
    return device


def _tells(rank: int, store: Store | None) -> bool:
    """Whether this rank tells that another one is lost: the first does, or the second if the first is the one."""
    try:
        if rank == 0 and store is not None:
            store.set(TOLD, "")
        elif rank == 1 and store is not None:
            store.wait([TOLD], WAIT)
    except RuntimeError:  # not there in time, or the store is lost too
        return rank < 2
    return rank == 0


def _is_lost_connection(error: RuntimeError) -> bool:
    """Whether another rank is the cause. gloo has no exception of its own, but its sources' path is in the message."""
    return isinstance(error, dist.DistError) or any(name in str(error).lower() for name in ("gloo", "nccl"))
