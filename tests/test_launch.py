"""One rank of several, without starting any: what the environment says, who talks, what a signal means."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn

from sightline.config import RunConfig
from sightline.console import complain
from sightline.errors import SightlineError
from sightline.launch import Launch, launched
from sightline.sizes import Corpus, fill
from sightline.training.group import Group
from sightline.training.interrupts import Interrupted, Stop
from sightline.training.ranks import Alone, portion, rank_seed, started, whole

ENVIRONMENT = {
    "RANK": "9",
    "WORLD_SIZE": "16",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "8",
    "MASTER_ADDR": "localhost",
    "MASTER_PORT": "29500",
}


def test_what_torchrun_says() -> None:
    assert launched(ENVIRONMENT) == Launch(9, 16, 1, 8)
    assert launched({}) is None
    for name in ENVIRONMENT:  # a variable of another program is not enough
        assert launched({name: ENVIRONMENT[name]}) is None
    assert Launch(0, 4, 0, 4).command == "torchrun --nproc-per-node 4 -m sightline"
    assert Launch(9, 16, 1, 8).command == "torchrun --nnodes 2 … --nproc-per-node 8 -m sightline"


@pytest.mark.parametrize("rank", ["0", "9"])
def test_the_first_rank_talks_and_each_leaves_its_message_for_torchrun(
    rank: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "error.json"
    for name, value in {**ENVIRONMENT, "RANK": rank, "TORCHELASTIC_ERROR_FILE": str(file)}.items():
        monkeypatch.setenv(name, value)
    complain("no such\nfile")
    assert capsys.readouterr().err == ("sightline: no such file\n" if rank == "0" else "")
    assert json.loads(file.read_text())["message"]["message"] == "no such file"


def test_a_process_alone_does_not_import_the_engine() -> None:
    code = "import sys, sightline.training.run; sys.exit('sightline.training.group' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    with started(RunConfig().training) as ranks:
        assert isinstance(ranks, Alone)
        assert (ranks.rank, ranks.size, ranks.first, ranks.gather("x")) == (0, 1, True, ["x"])
        model = nn.Linear(2, 2)
        assert ranks.spread(model).owner is ranks.spread(model).runner is model
    value = torch.ones(2)
    assert whole(value) is value
    assert portion(value, torch.zeros(2)) is value


def test_a_signal_under_torchrun_is_a_wish() -> None:
    stop = Stop(shared=True)
    stop.handle(signal.SIGINT, None)
    stop.handle(signal.SIGINT, None)  # torchrun's copy of it
    assert (stop.wished, stop.requested) == (True, False)
    with pytest.raises(Interrupted), stop.at_once():
        pass
    alone = Stop()
    alone.handle(signal.SIGINT, None)
    assert (alone.wished, alone.requested) == (True, True)
    with pytest.raises(KeyboardInterrupt):
        alone.handle(signal.SIGINT, None)


def group(launch: Launch, store: dist.HashStore) -> Group:
    return Group(launch, "ddp", torch.device("cpu"), store)


# Two machines, of two ranks and of one.
MACHINES = [Launch(0, 3, 0, 2), Launch(1, 3, 1, 2), Launch(2, 3, 0, 1)]


def test_ranks_prepare_in_turn_and_go_on_together() -> None:
    """The first, then one on the other machine, then the rest; nobody is in a collective while another prepares."""
    store, went_on, order = dist.HashStore(), threading.Event(), list[int]()

    def prepare(rank: int) -> int:
        if rank == 1:
            assert not went_on.wait(0.3)
        order.append(rank)
        return 10 * rank

    def run(launch: Launch) -> int:
        found = group(launch, store).in_turn(lambda: prepare(launch.rank))
        went_on.set()
        return found

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(run, MACHINES)) == [0, 10, 20]
    assert order == [0, 2, 1]


def test_a_rank_that_cannot_prepare_ends_the_others() -> None:
    store = dist.HashStore()

    def prepare(rank: int) -> None:
        if rank == 2:
            raise SightlineError("no such file")

    def run(launch: Launch) -> SightlineError:
        with pytest.raises(SightlineError) as caught:
            group(launch, store).in_turn(lambda: prepare(launch.rank))
        return caught.value

    with ThreadPoolExecutor(3) as pool:
        first, second, third = pool.map(run, MACHINES)
    assert str(first) == str(second) == "rank 2 could not go on: torchrun tells why"
    assert [getattr(error, "aloud", None) for error in (first, second, third)] == [True, False, None]
    assert str(third) == "no such file"


def test_each_rank_has_a_stream_of_its_own() -> None:
    assert rank_seed(5, 0) == 5
    assert len({rank_seed(seed, rank) for seed in range(20) for rank in range(512)}) == 20 * 512
    assert 0 <= rank_seed(2**63 - 1, 511) < 2**63


def test_larger_updates_are_fewer() -> None:
    one, eight = (fill(RunConfig(), Corpus(300_000, 40_960_000, ranks=ranks)).training for ranks in (1, 8))
    assert one.max_steps is not None
    assert one.max_steps == 8 * (eight.max_steps or 0)
