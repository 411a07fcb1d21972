"""Moving averages, checkpoints that are kept, and means of them."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import sightline
from sightline.average import average_run
from sightline.config import build_config, merge
from sightline.errors import SightlineError
from sightline.training import checkpoints
from sightline.training.averaging import average_weights
from sightline.training.checkpoints import Keep, best_checkpoints, last_checkpoints, read_weights, save_checkpoint
from sightline.training.moving_average import MovingAverage, replaced
from sightline.training.progress import Silent
from sightline.training.run import train
from sightline.training.watch import Sample
from tests.commands import Command, settings, tiny
from tests.test_checkpoints import adam, trained
from tests.test_training import Run, Toy, ToyData, stopped_at


def named(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "checkpoints").iterdir())


# The moving average


def test_a_moving_average_by_hand() -> None:
    model = nn.Linear(1, 1, bias=False)
    weights = [0.0, 1.0, 3.0, 3.0]
    with torch.no_grad():
        model.weight.fill_(weights[0])
    average = MovingAverage(model, decay=0.3)
    expected = weights[0]
    for number, weight in enumerate(weights[1:], start=1):
        with torch.no_grad():
            model.weight.fill_(weight)
        average.update(model, number)
        decay = min(0.3, (1 + number) / (10 + number))  # 2/11 and 3/12, then the full 0.3
        expected = decay * expected + (1 - decay) * weight
        assert float(average.values["weight"]) == pytest.approx(expected)
    with replaced(model, average.values):
        assert model.weight.item() == pytest.approx(expected)
    assert model.weight.item() == 3.0


def test_the_average_is_float32_beside_weights_of_any_kind_and_tied_ones_once() -> None:
    model = Toy().to(torch.bfloat16)
    average = MovingAverage(model, 0.9)
    assert {value.dtype for value in average.values.values()} == {torch.float32}
    assert "embedding.weight" in average.values
    assert "output.weight" not in average.values
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(RuntimeError, match="on the way"), replaced(model, average.values):
        raise RuntimeError("on the way")
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_validation_and_the_best_model_see_the_average(tmp_path: Path) -> None:
    seen: list[torch.Tensor] = []

    def validate(model: nn.Module) -> Mapping[str, float]:
        seen.append(model.get_parameter("hidden.weight").detach().clone())
        return {"loss": -len(seen)}

    saved: list[torch.Tensor] = []
    run = Run(tmp_path, validate=validate)
    trainer = run.trainer(ema=0.9)
    keep_best = trainer.validation.save_best
    weight = run.model.get_parameter("hidden.weight")
    object.__setattr__(
        trainer.validation, "save_best", lambda scores: (keep_best(scores), saved.append(weight.detach().clone()))
    )
    trainer.run()
    assert trainer.moving_average is not None
    assert torch.equal(seen[-1], trainer.moving_average.values["hidden.weight"])
    assert not torch.equal(seen[-1], weight)
    assert all(torch.equal(one, other) for one, other in zip(seen, saved, strict=True))


@pytest.mark.parametrize("how", ["int", "crash"])
def test_the_average_is_exact_on_resuming(tmp_path: Path, how: str) -> None:
    whole = Run(tmp_path / "whole")
    expected = whole.trainer(ema=0.9)
    expected.run()
    part = Run(tmp_path / "part", ToyData(before=stopped_at(9, how)))
    try:
        part.trainer(ema=0.9).run()
    except RuntimeError:
        assert how == "crash"
    rest = Run(tmp_path / "part").trainer(ema=0.9)
    rest.run(resume=True)
    assert expected.moving_average is not None
    assert rest.moving_average is not None
    for name, value in expected.moving_average.values.items():
        assert torch.equal(value, rest.moving_average.values[name])
    assert Run(tmp_path / "part").lines_without_time() == whole.lines_without_time()


def test_a_moving_average_of_another_model_is_refused(tmp_path: Path) -> None:
    model, optimizer = trained()
    path = save_checkpoint(tmp_path, 1, model, optimizer, {}, moving_average={"middle.bias": torch.zeros(4)})
    with pytest.raises(SightlineError, match="its tensors do not fit the model"):
        checkpoints.load_checkpoint(path, model, optimizer, MovingAverage(model, 0.9).values)
    (path / "ema.safetensors").write_bytes(b"x")
    with pytest.raises(SightlineError, match=r"ema\.safetensors: damaged"):
        read_weights(path)


# Checkpoints that are kept


def scored(folder: Path, scores: list[float | None], keep: Keep, irregular: tuple[int, ...] = ()) -> list[str]:
    model, optimizer = trained()
    for step, score in enumerate(scores, start=1):
        save_checkpoint(folder, step, model, optimizer, {"score": score, "regular": step not in irregular}, keep)
    return sorted(path.name[-1] for path in folder.iterdir())


def test_the_last_and_the_best_are_kept(tmp_path: Path) -> None:
    scores = [5.0, 1.0, 4.0, None, 2.0, 9.0, 3.0]
    assert scored(tmp_path / "a", scores, Keep(last=2)) == ["6", "7"]
    assert scored(tmp_path / "b", scores, Keep(last=1, best=2)) == ["2", "5", "7"]
    assert scored(tmp_path / "c", scores, Keep(last=1, best=2, higher_is_better=True)) == ["1", "6", "7"]
    assert scored(tmp_path / "d", [1.0, 1.0, 1.0], Keep(last=1, best=1)) == ["1", "3"]  # of equals the first
    assert [path.name[-1] for path in best_checkpoints(tmp_path / "b", 2)] == ["2", "5"]
    assert [path.name[-1] for path in last_checkpoints(tmp_path / "b", 2)] == ["5", "7"]
    assert last_checkpoints(tmp_path / "b", 0) == []


def test_one_that_was_not_due_goes_when_there_is_a_newer(tmp_path: Path) -> None:
    assert scored(tmp_path / "a", [None] * 4, Keep(last=2), irregular=(4,)) == ["2", "3", "4"]
    assert scored(tmp_path / "b", [None] * 5, Keep(last=2), irregular=(3, 4)) == ["2", "5"]


def test_of_one_step_the_newest_counts_and_a_damaged_one_not_at_all(tmp_path: Path) -> None:
    model, optimizer = trained()
    for number in range(2):
        save_checkpoint(tmp_path, 1, model, optimizer, {"number": number}, Keep(last=3))
    assert [path.name for path in tmp_path.iterdir()] == ["step-0000001.1"]
    damaged = save_checkpoint(tmp_path, 2, model, optimizer, {}, Keep(last=3))
    (damaged / "trainer.json").write_text("{")
    save_checkpoint(tmp_path, 3, model, optimizer, {}, Keep(last=3))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-0000001.1", "step-0000003"]


def test_an_interrupted_run_keeps_the_same_checkpoints(tmp_path: Path) -> None:
    options: dict[str, Any] = {"keep_last": 3, "validate_every": 4, "save_every": 3}
    Run(tmp_path / "whole").trainer(**options).run()
    for number in (2, 7, 9, 13):  # updates 2, 9, 18; and the last one
        run = Run(tmp_path / "parts", ToyData(before=stopped_at(number, "int")))
        run.trainer(**options).run(resume=number > 2)
    Run(tmp_path / "parts").trainer(**options).run(resume=True)
    assert named(tmp_path / "whole") == ["step-0000015", "step-0000018", "step-0000020"] == named(tmp_path / "parts")


def test_a_good_validation_is_saved_even_when_no_checkpoint_is_due(tmp_path: Path) -> None:
    losses = iter([3.0, 1.0, 2.0, 4.0, 5.0])
    run = Run(tmp_path, validate=lambda model: {"loss": next(losses)})
    run.trainer(validate_every=4, save_every=7, keep_best=2).run()
    assert named(tmp_path) == ["step-0000008", "step-0000012", "step-0000020"]


# Means of checkpoints


def test_a_mean_by_hand(tmp_path: Path) -> None:
    paths = []
    for step, value in enumerate([1.0, 2.0, 6.0], start=1):
        model, optimizer = trained()
        with torch.no_grad():
            model.middle.weight.fill_(value)
        paths.append(save_checkpoint(tmp_path, step, model, optimizer, {}, Keep(last=3)))
    mean = average_weights(paths)
    assert bool((mean["middle.weight"] == 3.0).all())
    assert mean["middle.weight"].dtype == torch.float32
    assert "output.weight" not in mean  # tied, kept once
    assert torch.equal(average_weights(paths[:1])["middle.bias"], read_weights(paths[0])["middle.bias"])
    (paths[1] / "model.safetensors").write_bytes(b"half")
    with pytest.raises(SightlineError, match="damaged"):
        average_weights(paths)


def test_a_mean_of_different_models_is_refused(tmp_path: Path) -> None:
    first, optimizer = trained()
    one = save_checkpoint(tmp_path / "one", 1, first, optimizer, {})
    other = nn.Linear(2, 2)
    two = save_checkpoint(tmp_path / "two", 1, other, adam(*other.parameters()), {})
    with pytest.raises(SightlineError, match="other names or shapes"):
        average_weights([one, two])


@pytest.mark.parametrize("kind", ["last", "best"])
@pytest.mark.parametrize("loss", [1.0, 2.0, 2.5])
@pytest.mark.parametrize("ema", [0.0, 0.5])
def test_the_mean_replaces_the_best_if_it_is_at_least_as_good(
    tmp_path: Path, kind: str, loss: float, ema: float
) -> None:
    """Validations at 6, 12, 18 and 20, then that of the mean."""
    losses = iter([5.0, 2.0, 4.0, 3.0, loss])
    seen: list[torch.Tensor] = []

    def validate(model: nn.Module) -> Mapping[str, float]:
        seen.append(model.get_parameter("hidden.bias").detach().clone())
        return {"loss": next(losses)}

    run = Run(tmp_path, validate=validate)
    result = run.trainer(average=kind, average_count=3, ema=ema).run()
    averaged = (12, 18, 20)  # 6 is neither among the last nor among the best
    torch.testing.assert_close(seen[-1], torch.stack(seen[1:4]).mean(0))
    assert result.average == {"loss": loss}
    better = loss <= 2.0
    assert result.average_of == (averaged if better else ())
    assert (result.best, result.best_step) == (({"loss": loss}, 20) if better else ({"loss": 2.0}, 12))
    last = run.lines()[-1]
    assert (last["kind"], last["best"], last["checkpoints"]) == ("average", better, 3)
    own = load_file(result.checkpoint / "model.safetensors")  # training goes on from the weights, not from the mean
    assert torch.equal(own["hidden.bias"], run.model.get_parameter("hidden.bias"))
    again = Run(tmp_path).trainer(average=kind, average_count=3, ema=ema).run(resume=True)
    assert (again.average, again.average_of) == (None, result.average_of)  # it is tried once


def test_a_mean_that_is_no_number_and_a_single_checkpoint(tmp_path: Path) -> None:
    losses = iter([5.0, 2.0, 4.0, 3.0, float("nan")])
    result = Run(tmp_path / "a", validate=lambda model: {"loss": next(losses)}).trainer(average="last").run()
    assert (result.best, result.average_of) == ({"loss": 2.0}, ())
    assert Run(tmp_path / "b").trainer(average="last", validate_every=100).run().average is None


def test_a_signal_while_the_mean_is_validated(tmp_path: Path) -> None:
    def watched(stop: bool) -> Callable[[nn.Module], Mapping[str, float]]:
        calls: list[int] = []

        def validate(model: nn.Module) -> Mapping[str, float]:
            calls.append(1)
            if stop and len(calls) == 5:
                signal.raise_signal(signal.SIGINT)
            return {"loss": float(model.get_parameter("hidden.bias").detach().square().sum())}

        return validate

    whole, part = Run(tmp_path / "whole", validate=watched(False)), Run(tmp_path / "part", validate=watched(True))
    expected = whole.trainer(average="last").run()
    first = part.trainer(average="last").run()
    assert (first.interrupted, first.average) == (True, None)
    rest = Run(tmp_path / "part", validate=watched(False))
    assert rest.trainer(average="last").run(resume=True).average == expected.average
    assert rest.lines_without_time() == whole.lines_without_time()


class Impatient(Silent):
    """Somebody presses Ctrl-C when the validation at `step` is done."""

    def __init__(self, step: int) -> None:
        self.step = step

    def validated(self, step: int, metrics: Mapping[str, float], best: bool, samples: Sequence[Sample] = ()) -> None:
        if step == self.step:
            signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("step", [16, 20])
def test_a_signal_just_after_a_validation(step: int, tmp_path: Path) -> None:
    """No checkpoint is due at 16, so the one that the signal brings about has no part in the mean; 20 is the end."""
    options: dict[str, Any] = {"average": "last", "average_count": 3, "validate_every": 4, "save_every": 3}

    def validate(model: nn.Module) -> Mapping[str, float]:
        return {"loss": 1.0, "weights": float(model.get_parameter("hidden.bias").detach().square().sum())}

    expected = Run(tmp_path / "whole", validate=validate).trainer(**options).run()
    trainer = Run(tmp_path / "parts", validate=validate).trainer(**options)
    trainer.host = replace(trainer.host, progress=Impatient(step))
    first = trainer.run()
    assert (first.interrupted, first.steps) == (True, step)
    result = Run(tmp_path / "parts", validate=validate).trainer(**options).run(resume=True)
    assert expected.average_of == result.average_of == (15, 18, 20)
    assert result.average == expected.average
    kept = [{name.partition(".")[0] for name in named(tmp_path / part)} for part in ("whole", "parts")]
    assert kept[0] == kept[1] == {"step-0000015", "step-0000018", "step-0000020"}


def test_replacing_restores() -> None:
    model = Toy()
    before = model.hidden.bias.detach().clone()
    with replaced(model, {"hidden.bias": torch.ones(8)}):
        assert bool((model.hidden.bias == 1).all())
    assert torch.equal(model.hidden.bias, before)


# The command line


@pytest.fixture(scope="module")
def kept_run(toy_pairs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has kept four of its checkpoints."""
    training = {"max_steps": 20, "validate_every": 4, "keep_last": 4, "keep_best": 2, "learning_rate": 0.01}
    values = {"data": {"pairs": str(toy_pairs)}, "training": training}
    folder = tmp_path_factory.mktemp("kept") / "run"
    train(build_config(merge(tiny("transformer"), values), "transformer"), folder)
    return folder


def test_averaging_afterwards(kept_run: Path, command: Command, tmp_path: Path) -> None:
    done = command("average", kept_run, "--last", 3, "--output", tmp_path / "mean")
    assert done.code == 0, done.err
    assert "the mean of updates 12, 16, 20 is in" in done.err
    found = load_file(tmp_path / "mean" / "model.safetensors")
    expected = average_weights([kept_run / "checkpoints" / f"step-00000{step}" for step in (12, 16, 20)])
    assert found.keys() == expected.keys()
    assert all(torch.equal(value, expected[name]) for name, value in found.items())
    assert "the mean of checkpoints, updates 12, 16, 20" in (tmp_path / "mean" / "README.md").read_text()
    assert isinstance(sightline.load(tmp_path / "mean").translate("a b").text, str)
    assert average_run(kept_run, tmp_path / "all") == [8, 12, 16, 20]
    assert average_run(kept_run, tmp_path / "best", best=2) == [16, 20]


def test_what_cannot_be_averaged(kept_run: Path, trained: Any, command: Command, tmp_path: Path) -> None:
    line = ["average", kept_run, "--output", tmp_path / "new"]
    told = command(*line, "--last", 9).mistake()
    assert "has 4 checkpoints to choose the last from, not 9: go on with a larger training.keep_last" in told
    assert "has 4 checkpoints to choose the best from, not 5" in command(*line, "--best", 5).mistake()
    assert "give one number, not two" in command(*line, "--best", 2, "--last", 2).mistake()
    assert "holds a run already" in command("average", kept_run, "--output", kept_run).mistake()
    assert "has 1 checkpoint to choose" in command("average", trained("luong"), "--output", tmp_path / "new").mistake()
    assert "no such folder" in command("average", tmp_path / "none", "--output", tmp_path / "new").mistake()
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("loss", [2.0, 2.1])
def test_the_card_and_the_last_words_tell_of_the_mean(
    loss: float, command: Command, toy_pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses = iter([3.0, 2.0, 2.5, loss])
    score = {"perplexity": 9.0}
    monkeypatch.setattr("sightline.training.run.Scorer.__call__", lambda self, model: {"loss": next(losses), **score})
    options = ["average=last", "average_count=2", "validate_every=2", "learning_rate=0.01"]
    sets = [part for option in options for part in ("--set", f"training.{option}")]
    folder = tmp_path / "run"
    done = command("train", "--pairs", toy_pairs, "--output", folder, *settings(), "--max-steps", 6, *sets)
    assert done.code == 0, done.err
    card, model = (folder / "README.md").read_text(), load_file(folder / "model.safetensors")
    mean = average_weights(last_checkpoints(folder / "checkpoints", 2))
    assert all(torch.equal(value, mean[name]) for name, value in model.items()) == (loss == 2.0)
    if loss == 2.0:
        assert "loss of 2, at least as good as the best: the model is the mean of updates 4, 6" in done.err
        assert "- best validation: mean of updates 4, 6" in card
    else:
        assert "loss of 2.1, worse than 2: the model stays that of update 4" in done.err
        assert "- best validation: update 4" in card
