"""The processes that train one model together, as the loop sees them; one process alone pays nothing for it.

Every rank runs the same loop over the same sequence of batches and holds the same state; of each `size` batches that
follow one another rank r computes the r-th. What a rank could see differently, a signal or the time, is agreed on
before anyone acts on it; what must happen once (validation, files) the first rank does, and the others learn what came
of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Protocol, TypeVar, final

import torch
from torch import Tensor, nn

from sightline.config import TrainingConfig
from sightline.launch import launched
from sightline.training.interrupts import Stop

Clock = Callable[[], float]
T = TypeVar("T")


@dataclass(frozen=True)
class Spread:
    """A model made ready for training on all ranks.

    `owner` has the parameters that the optimizer moves, under the model's own names. `runner.loss(batch)` gives the
    losses of all ranks together, (sum, count), while their gradient is this rank's share of the whole. Within `quiet`
    a backward pass may leave its gradients on this rank until the next one outside takes them along.
    """

    owner: nn.Module
    runner: nn.Module
    quiet: Callable[[], AbstractContextManager[None]] = nullcontext


class Ranks(Protocol):
    """What the loop asks of its fellows. All ranks make the same calls in the same order."""

    @property
    def rank(self) -> int:
        """This one's number, from 0."""

    @property
    def size(self) -> int:
        """How many there are."""

    @property
    def first(self) -> bool:
        """Whether this one speaks, validates and writes."""

    @property
    def device(self) -> torch.device:
        """Where this one computes."""

    def spread(self, model: nn.Module) -> Spread:
        """Readies `model`, the same on all ranks, for training."""

    def collect(self, spread: Spread, model: nn.Module) -> None:
        """Brings the trained weights into the first rank's `model`, if they are not there anyway."""

    def whole(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """On the first rank the tensors in full, also those of which each rank holds a part."""

    def settle(self, tokens: int) -> int:
        """After an update: the tokens of all ranks since the last time. Time and the wish to stop are agreed on."""

    def follow(self, stop: Stop, clock: Clock) -> Clock:
        """From now on `stop` is what the ranks agree on; returns a clock that all of them read the same."""

    def on_first(self, work: Callable[[], T]) -> T:
        """The first rank works, the others wait, however long it takes; all get the result, which JSON must hold."""

    def in_turn(self, work: Callable[[], T]) -> T:
        """All do the same work: the first rank, then one on each other machine, then the rest.

        Who comes later finds the files that were written; all go on together, however long it took.
        """

    def gather(self, value: T) -> list[T]:
        """Every rank's value, in the order of ranks."""


@final
class Alone:
    """One process: nobody to ask."""

    rank, size, first = 0, 1, True

    @property
    def device(self) -> torch.device:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")

    def spread(self, model: nn.Module) -> Spread:
        return Spread(model, model)

    def collect(self, spread: Spread, model: nn.Module) -> None: ...

    def whole(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return dict(tensors)

    def settle(self, tokens: int) -> int:
        return tokens

    def follow(self, stop: Stop, clock: Clock) -> Clock:
        return clock

    def on_first(self, work: Callable[[], T]) -> T:
        return work()

    def in_turn(self, work: Callable[[], T]) -> T:
        return work()

    def gather(self, value: T) -> list[T]:
        return [value]


@contextmanager
def started(config: TrainingConfig) -> Iterator[Ranks]:
    """The ranks of this run: those that torchrun started, else this process alone."""
    launch = launched()
    if launch is None:
        yield Alone()
        return
    # Not at the top: a process alone has no use for torch's distributed engine, which takes its time to import.
    from sightline.training.group import Group

    with Group.joined(launch, config.parallel, config.timeout_minutes) as group:
        yield group


def rank_seed(seed: int, rank: int) -> int:
    """Seeds dropout: another stream for each rank, the first rank's that of a process alone."""
    return (seed + 1_000_003 * rank) % 2**63


def whole(value: Tensor) -> Tensor:
    """A tensor in full. Of one that is sharded every rank must ask at the same time."""
    gather: Callable[[], Tensor] | None = getattr(value, "full_tensor", None)
    return value if gather is None else gather()


def portion(value: Tensor, like: Tensor) -> Tensor:
    """The full `value` in the form of `like`: this rank's part of it where that is sharded."""
    if not hasattr(like, "device_mesh"):
        return value
    from sightline.training.parallel import shard_like

    return shard_like(value, like)
