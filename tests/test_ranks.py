"""Two ranks under torchrun, as a user starts them, against one process that takes the same batches together."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from itertools import chain, count, islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import Tensor

from sightline.config import RunConfig, dump_yaml
from sightline.training import run
from sightline.training.checkpoint_names import CHECKPOINTS, latest
from sightline.training.checkpoints import read_trainer
from tests.commands import WAITS, Done, environment
from tests.ranked import PENALTIES, exact, write_pairs

ROOT = Path(__file__).parent.parent
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


def torchrun(*arguments: object) -> Done:
    """Two ranks, started as a user would."""
    line = [*TORCHRUN, *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(line, cwd=ROOT, env=environment(), text=True, **pipes) as process:
        try:
            out, err = process.communicate(timeout=WAITS)
        except subprocess.TimeoutExpired:
            process.terminate()  # killed, it could not end its ranks
            raise
    return Done(process.returncode, out, err)


def scenario(name: str, folder: Path) -> Done:
    return torchrun("-m", "tests.ranked", name, folder)


def sightline(folder: Path, config: RunConfig, output: str, *options: object) -> Done:
    (folder / "run.yaml").write_text(dump_yaml(config))
    return torchrun("-m", "sightline", "train", folder / "run.yaml", "--output", folder / output, *options)


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """`alone(config, folder, counts)`: trains in this process; update u takes `counts[u]` batches as one."""
    original = run.TrainingData.epoch

    def train(config: RunConfig, folder: Path, counts: Sequence[int], **options: Any) -> Path:
        def epoch(self: run.TrainingData, number: int) -> Sequence[Any]:
            stream = chain.from_iterable(original(self, epoch) for epoch in count())
            return [np.concatenate(list(islice(stream, batches))) for batches in counts]

        with monkeypatch.context() as patch:
            patch.setattr(run.TrainingData, "epoch", epoch)
            run.train(config, folder, **options)
        return folder

    return train


def checkpoint(folder: Path, file: str) -> dict[str, Tensor]:
    path = latest(folder / CHECKPOINTS)
    assert path is not None
    tensors: dict[str, Tensor] = safetensors.torch.load_file(path / f"{file}.safetensors")
    return tensors


def assert_close(one: Path, other: Path) -> None:
    """Weights and moments alike, as far as sums in another order allow; as many updates and tokens."""
    for file, tolerance in (("model", 3e-5), ("optimizer", 1e-6)):
        ours, theirs = checkpoint(one, file), checkpoint(other, file)
        assert ours.keys() == theirs.keys()
        for name in ours:
            torch.testing.assert_close(ours[name], theirs[name], rtol=1e-4, atol=tolerance, msg=f"{file} {name}")
    assert [state(one)[key] for key in ("step", "tokens")] == [state(other)[key] for key in ("step", "tokens")]
    losses = [[line["loss"] for line in lines(path) if line["kind"] == "training"] for path in (one, other)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def state(folder: Path) -> dict[str, Any]:
    path = latest(folder / CHECKPOINTS)
    assert path is not None
    values: dict[str, Any] = read_trainer(path)["state"]
    return values


def lines(folder: Path) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if "second" not in key} for line in found]


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the runs below lie; nobody changes what another made."""
    place = tmp_path_factory.mktemp("ranks")
    write_pairs(place)
    return place


@pytest.fixture(scope="session")
def ddp(folder: Path) -> Path:
    """Seven updates of two ranks, which is two epochs."""
    done = sightline(folder, exact(folder), "ddp")
    assert (done.code, done.out) == (0, ""), done.err
    assert "on each of 2 ranks (ddp)" in done.err
    assert done.err.count("validation at step 4") == done.err.count("the model is in") == 1
    assert "Warning" not in done.err
    return folder / "ddp"


@pytest.fixture(scope="session")
def trainings(folder: Path) -> Path:
    """The runs of the scenario `several`, one of which a single process has begun."""
    run.train(exact(folder, max_steps=5), folder / "grown")
    done = scenario("several", folder)
    assert done.code == 0, done.err
    assert done.out.count("the whole run") == 1  # the estimate
    assert "on each of 2 ranks, of which weights" in done.out
    return folder


def test_two_ranks_equal_one_process_with_the_same_batches(
    ddp: Path, folder: Path, alone: Callable[..., Path], tmp_path: Path
) -> None:
    one = alone(exact(folder), tmp_path / "one", [2] * 7)
    assert_close(ddp, one)
    assert {path.name for path in ddp.iterdir()} == {path.name for path in one.iterdir()}
    best = [safetensors.torch.load_file(path / "model.safetensors") for path in (ddp, one)]
    for name, value in best[0].items():
        torch.testing.assert_close(value, best[1][name], rtol=1e-4, atol=3e-5)


def test_sharded_equals_replicated(ddp: Path, trainings: Path) -> None:
    assert_close(ddp, trainings / "fsdp")
    assert (trainings / "fsdp" / "model.safetensors").stat().st_size == (ddp / "model.safetensors").stat().st_size


@pytest.mark.parametrize("recipe", ["bahdanau", "luong", "seq2seq"])  # the first sharded, the others replicated
def test_recurrent_models(recipe: str, trainings: Path, alone: Callable[..., Path], tmp_path: Path) -> None:
    assert_close(trainings / recipe, alone(exact(trainings, recipe), tmp_path / "one", [2] * 7))


def test_a_language_model(trainings: Path, alone: Callable[..., Path], tmp_path: Path) -> None:
    assert_close(trainings / "lm", alone(exact(trainings, "lm"), tmp_path / "one", [2] * 7))


def test_several_losses_and_several_batches_an_update(
    trainings: Path, alone: Callable[..., Path], tmp_path: Path
) -> None:
    """Each loss is divided by its own count, of all batches of all ranks."""
    one = alone(exact(trainings, "bahdanau", PENALTIES, max_steps=3), tmp_path / "one", [4] * 3)
    assert_close(trainings / "losses", one)
    assert {"repeated_looks", "one_look_each"} <= lines(one)[0].keys()


def test_resuming_sampled_attention_is_identical(trainings: Path) -> None:
    """All ranks know what their draws were worth lately, so it is one rank's to write and everyone's to read."""
    whole, parts = (checkpoint(trainings / f"sampled-{name}", "model") for name in ("whole", "parts"))
    assert any(name.endswith("baseline") for name in whole)
    assert whole.keys() == parts.keys()
    for name, value in whole.items():
        assert torch.equal(value, parts[name]), name


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_several_batches_an_update_and_the_moving_average(
    kind: str, trainings: Path, alone: Callable[..., Path], tmp_path: Path
) -> None:
    found = trainings / f"accumulated-{kind}"
    one = alone(exact(trainings, ema=0.9, max_steps=5), tmp_path / "one", [4] * 5)
    assert_close(found, one)
    averages = [checkpoint(folder, "ema") for folder in (found, one)]
    for name, value in averages[0].items():
        torch.testing.assert_close(value, averages[1][name], rtol=1e-4, atol=3e-5, msg=name)
    best = [safetensors.torch.load_file(folder / "model.safetensors") for folder in (found, one)]
    for name, value in best[0].items():
        torch.testing.assert_close(value, best[1][name], rtol=1e-4, atol=3e-5, msg=name)


def test_every_epoch_sees_every_pair_once(trainings: Path) -> None:
    """Also when its batches do not come out even: seven for two ranks."""
    first, second = (json.loads((trainings / f"seen-{rank}.json").read_text()) for rank in range(2))
    stream = [batch for update in zip(first, second, strict=True) for batch in update]
    assert len(stream) == 14
    for epoch in (stream[:7], stream[7:]):
        assert sorted(chain.from_iterable(epoch)) == list(range(86))
    assert stream[:7] != stream[7:]


def test_resuming_on_as_many_ranks_is_identical(trainings: Path) -> None:
    """With dropout, of which each rank has its own stream."""
    for file in ("model", "optimizer", "random"):
        whole, parts = (checkpoint(trainings / name, file) for name in ("whole", "parts"))
        assert whole.keys() == parts.keys()
        assert all(torch.equal(value, parts[name]) for name, value in whole.items())
    whole, parts = (
        [line for line in lines(trainings / name) if line["kind"] == "training"] for name in ("whole", "parts")
    )
    assert whole == parts
    states = checkpoint(trainings / "whole", "random")
    assert not torch.equal(states["cpu"], states["rank-1/cpu"])


def test_from_two_ranks_to_one(ddp: Path, folder: Path, alone: Callable[..., Path], tmp_path: Path) -> None:
    shutil.copytree(ddp, tmp_path / "run")
    said: list[str] = []
    run.train(exact(folder, max_steps=10), tmp_path / "run", resume=True, say=said.append)
    assert "before there were 2 ranks, now 1: so many batches make an update" in said
    assert_close(tmp_path / "run", alone(exact(folder, max_steps=10), tmp_path / "one", [2] * 7 + [1] * 3))


def test_from_one_rank_to_two_and_from_whole_to_sharded(
    trainings: Path, alone: Callable[..., Path], tmp_path: Path
) -> None:
    assert_close(trainings / "grown", alone(exact(trainings, max_steps=8), tmp_path / "one", [1] * 5 + [2] * 3))


def test_a_mistake_is_everyones(trainings: Path) -> None:
    """The first rank finds that the folder is taken; the other one ends too, and knows that it is not the cause."""
    first, second = ((trainings / f"refused-{rank}").read_text() for rank in range(2))
    assert "holds a run already" in first
    assert second == "the first rank could not go on; it has told why"


def assert_lost(done: Done) -> None:
    """It ended, and one rank has told why and how to go on."""
    assert done.code not in (0, 2)  # torchrun's own
    told = [line for line in done.err.splitlines() if line.startswith("sightline: ")]
    assert len(told) == 1, done.err
    assert "another rank has died or did not answer in time" in told[0]
    assert "go on from it with --resume" in told[0]


@pytest.mark.parametrize(("rank", "name", "place"), [(1, "dying", "died"), (0, "dying_first", "died-first")])
def test_a_dead_rank_ends_the_run(rank: int, name: str, place: str, folder: Path) -> None:
    """One of ranks that each have the whole model, and one, the first, of ranks that each have a part."""
    done, output = scenario(name, folder), folder / place
    assert_lost(done)
    assert f"rank      : {rank}" in done.err
    assert "SIGKILL" in done.err
    assert state(output)["step"] == 4
    run.train(exact(folder, max_steps=5), output, resume=True)
    assert state(output)["step"] == 5


def test_a_rank_that_hangs_ends_the_run_when_its_time_is_up(folder: Path) -> None:
    assert_lost(scenario("hanging", folder))
    assert state(folder / "hung")["step"] == 4


def test_ctrl_c_saves_once(folder: Path) -> None:
    done = scenario("interrupted", folder)
    assert done.code != 0
    assert done.err.count("interrupted after 7 updates") == 1
    again = f"torchrun --nproc-per-node 2 -m sightline train --output {folder / 'interrupted'} --resume"
    assert done.err.count(f"saved; go on with: {again}") == 1
    names = {path.name for path in (folder / "interrupted" / CHECKPOINTS).iterdir()}
    assert names == {"step-0000004", "step-0000007"}  # the last regular one, and the newest
    run.train(exact(folder, max_steps=8), folder / "interrupted", resume=True)
    assert state(folder / "interrupted")["step"] == 8
