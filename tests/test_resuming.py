"""Going on with a run: with other limits, from another folder, and what is said when it cannot."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from sightline.config import DataConfig, RunConfig, TrainingConfig, build_config
from sightline.errors import SightlineError
from sightline.training.checkpoint_names import latest
from sightline.training.checkpoints import read_trainer, save_checkpoint
from sightline.training.resume import (
    MAY_CHANGE,
    check_settings,
    find_files,
    going_on,
    lasting_settings,
    places,
)
from sightline.training.run import Scorer
from tests.commands import Command, letters, settings, write_lines, write_tsv
from tests.test_checkpoints import trained
from tests.test_config import keys
from tests.test_training import Clock, Run, ToyData, stopped_at


@pytest.fixture
def begun(command: Command, toy_pairs: Path, tmp_path: Path) -> Callable[..., Path]:
    """`begun(options)`: a run of two updates."""

    def make(*options: object) -> Path:
        folder = tmp_path / "run"
        done = command(
            "train", "--pairs", toy_pairs, "--output", folder, *settings(), "--set", "training.max_steps=2", *options
        )
        assert done.code == 0, done.err
        return folder

    return make


def rates(folder: Path) -> list[float]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line["learning_rate"] for line in lines if line["kind"] == "training"]


# Limits


def test_more_steps_and_a_larger_limit(begun: Callable[..., Path], command: Command) -> None:
    resume = ["train", "--output", begun(), "--resume"]
    done = command(*resume)
    assert done.code == 0
    assert "its 2 updates are done; go on with --more-steps N" in done.err
    for options, steps in ((["--max-steps", 3], 3), (["--more-steps", 4], 7), (["--more-steps", 1], 8)):
        done = command(*resume, *options)
        assert done.code == 0, done.err
        assert f"all {steps} updates are done" in done.err
        assert "go on with" not in done.err


def test_more_steps_after_a_limit_of_time(begun: Callable[..., Path], command: Command) -> None:
    """The time is used up; steps more are what is asked for, so it no longer counts."""
    resume = ["train", "--output", begun(), "--resume"]
    done = command(*resume, "--max-steps", 50, "--max-minutes", 1e-9)
    assert "its 0 minutes are used up; go on with more, counted from the first start, such as --max-minutes" in done.err
    assert "updates in" not in done.err
    assert "all 5 updates are done" in command(*resume, "--more-steps", 3).err
    done = command(*resume, "--more-steps", 3, "--max-minutes", 1e-9)
    assert "its 0 minutes are used up" in done.err


def test_an_interrupted_last_validation_is_made_up_for(
    command: Command, toy_pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No update is left to do, but what a run says at its end was not said yet."""
    line = ["train", "--output", tmp_path / "run"]
    with monkeypatch.context() as patch:
        patch.setattr(Scorer, "__call__", lambda self, model: signal.raise_signal(signal.SIGINT))
        done = command(*line, "--pairs", toy_pairs, *settings(), "--max-steps", 2)
        assert done.code == 130
        assert "interrupted after 2 updates" in done.err
    done = command(*line, "--resume")
    assert done.code == 0
    for told in ("all 2 updates are done", "best validation, at update 2", "the model is in"):
        assert told in done.err
    assert "the model is in" not in command(*line, "--resume").err  # now it was


def test_a_run_without_a_model_is_a_mistake_every_time(command: Command, toy_pairs: Path, tmp_path: Path) -> None:
    line = ["train", "--output", tmp_path / "run"]
    given = ["--pairs", toy_pairs, *settings(), "--max-steps", 2, "--set", "training.learning_rate=1e30"]
    for options in (given, ["--resume"]):
        assert "no validation gave a number, so there is no model" in command(*line, *options).last_word()


def test_more_steps_that_make_no_sense(begun: Callable[..., Path], command: Command, tmp_path: Path) -> None:
    folder = begun()
    assert "--more-steps adds to a run that was begun: give --resume" in command("train", "--more-steps", 3).mistake()
    both = command("train", "--output", folder, "--resume", "--more-steps", 3, "--max-steps", 9)
    assert "give one of them" in both.mistake()
    nothing = command("train", "--output", tmp_path / "none", "--resume", "--more-steps", 3)
    assert "no checkpoint to resume from" in nothing.mistake()


@pytest.mark.parametrize("schedule", ["cosine", "linear", "inverse_sqrt", "constant"])
def test_a_schedule_that_ends_later_is_told(schedule: str, tmp_path: Path) -> None:
    """Cosine and linear run over the whole of the new length; the others do not know of an end."""
    Run(tmp_path / "long").trainer(max_steps=40, schedule=schedule, log_every=1).run()
    Run(tmp_path / "run").trainer(schedule=schedule, log_every=1).run()
    longer = Run(tmp_path / "run").trainer(max_steps=40, schedule=schedule, log_every=1)
    checkpoint = latest(tmp_path / "run" / "checkpoints")
    assert checkpoint is not None
    said = going_on(checkpoint, longer.config)
    longer.run(resume=True)
    assert rates(tmp_path / "run")[20:] == rates(tmp_path / "long")[20:]
    assert said[0] == "going on after update 20"
    if schedule in ("cosine", "linear"):
        risen = f"{rates(tmp_path / 'long')[20]:.1e}"
        assert said[1:] == [
            f"the learning rate goes up from 0.0e+00 to {risen}: the {schedule} schedule now ends at update 40"
        ]
    else:
        assert rates(tmp_path / "run")[:20] == rates(tmp_path / "long")[:20]
        assert said[1:] == [f"the learning rate is {rates(tmp_path / 'long')[20]:.1e}"]


def test_patience_that_is_used_up_is_told(tmp_path: Path) -> None:
    losses = iter([1.0, 2.0, 2.0, 2.0])
    run = Run(tmp_path, validate=lambda model: {"loss": next(losses)})
    assert run.trainer(patience=2, validate_every=2).run().reason == "patience"
    checkpoint = latest(tmp_path / "checkpoints")
    assert checkpoint is not None
    config = run.trainer(patience=2, max_steps=50).config
    assert going_on(checkpoint, config)[1] == "its patience of 2 is used up; go on with --set training.patience=N"
    assert "patience" not in " ".join(going_on(checkpoint, run.trainer(patience=5).config))


def test_a_time_budget_goes_on_where_its_checkpoint_was(tmp_path: Path) -> None:
    """After a crash the time since the last checkpoint is given back, and the rate goes on falling to zero."""
    options: dict[str, Any] = {"max_minutes": 1.0, "validate_every": 20, "log_every": 1, "schedule": "linear"}
    whole = Run(tmp_path / "whole", clock=Clock(tick=0.2))
    expected = whole.trainer(**options).run()
    crashed = Run(tmp_path / "run", ToyData(before=stopped_at(50, "crash")), clock=Clock(tick=0.2))
    with pytest.raises(RuntimeError, match="a crash"):
        crashed.trainer(**options).run()
    before = rates(tmp_path / "run")
    resumed = Run(tmp_path / "run", clock=Clock(tick=0.2, now=99_999.0))  # another day
    checkpoint = latest(tmp_path / "run" / "checkpoints")
    assert checkpoint is not None
    where, rate = going_on(checkpoint, resumed.trainer(**options).config)
    assert where == "going on after update 40"
    assert float(rate.removeprefix("the learning rate is ")) == pytest.approx(before[40], rel=0.05)
    result = resumed.trainer(**options).run(resume=True)
    after = rates(tmp_path / "run")
    assert result.reason == "max_minutes"
    assert abs(result.steps - expected.steps) <= 2
    assert after[:40] == before[:40]
    assert after[40:49] == pytest.approx(before[40:49], rel=0.05)
    assert all(later < earlier for earlier, later in pairwise(after[4:]))
    assert after[-1] < 0.02 * max(after)


# Settings


def test_every_change_is_told_with_what_may_change(tmp_path: Path) -> None:
    model, optimizer = trained()
    path = save_checkpoint(tmp_path, 1, model, optimizer, {"settings": lasting_settings(build_config({}))})
    changed = build_config({"training": {"seed": 2, "max_steps": 7}, "model": {"dropout": 0.5}, "search": {"beam": 2}})
    with pytest.raises(SightlineError) as told:
        check_settings(path, lasting_settings(changed))
    message = str(told.value)
    assert "model.dropout was 0.1 and is now 0.5, training.seed was 1 and is now 2; set them back" in message
    assert f"On resuming may change: {', '.join(MAY_CHANGE)}, search.*, alignment.*" in message
    assert "all else of text.*, data.*, model.* and training.* may not" in message


def test_what_may_change_exists_and_leaves_the_run_alone(tmp_path: Path) -> None:
    assert set(MAY_CHANGE) <= {name for name, _ in keys(RunConfig)}
    assert not set(MAY_CHANGE) & lasting_settings(build_config({})).keys()


def test_a_setting_newer_than_the_run_had_its_default(tmp_path: Path) -> None:
    model, optimizer = trained()
    old = {name: value for name, value in lasting_settings(build_config({})).items() if "ema" not in name}
    path = save_checkpoint(tmp_path, 1, model, optimizer, {"settings": old})
    check_settings(path, lasting_settings(build_config({})))
    with pytest.raises(SightlineError, match=r"training\.ema was None and is now 0\.9"):
        check_settings(path, lasting_settings(build_config({"training": {"ema": 0.9}})))


def test_a_first_look_compares_what_is_given(tmp_path: Path) -> None:
    model, optimizer = trained()
    path = save_checkpoint(tmp_path, 1, model, optimizer, {"settings": {"training.seed": 1, "model.embedding": 64}})
    check_settings(path, {"model.embedding": None}, partly=True)
    with pytest.raises(SightlineError, match=r"model\.embedding was 64 and is now 32; set it back"):
        check_settings(path, {"model.embedding": 32}, partly=True)


def test_a_forbidden_change_is_told_before_the_data_is_read(
    begun: Callable[..., Path], command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = ["train", "--output", begun(), "--resume"]
    monkeypatch.setattr("sightline.training.material.prepare", lambda *_: pytest.fail("it was read"))
    assert "model.dropout was 0.1 and is now 0.3" in command(*line, "--set", "model.dropout=0.3").mistake()
    assert "did you mean 'training.max_steps'?" in command(*line, "--set", "training.max_step=9").mistake()


def test_what_may_change_changes(begun: Callable[..., Path], command: Command) -> None:
    sets = ["patience=9", "validate_every=1", "validate_bleu=2", "log_every=1", "save_every=1", "keep_last=2"]
    sets += ["keep_best=1", "average=last", "average_count=3"]
    options = [part for one in sets for part in ("--set", f"training.{one}")]
    done = command("train", "--output", begun(), "--resume", "--more-steps", 2, *options, "--set", "search.beam=2")
    assert done.code == 0, done.err


# Files


def test_a_run_goes_on_from_another_working_folder(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    (home / "data").mkdir(parents=True)
    elsewhere.mkdir()
    pairs = letters(60)
    write_lines(home / "data" / "train.en", [source for source, _ in pairs])
    write_lines(home / "data" / "train.de", [target for _, target in pairs])
    write_tsv(home / "valid.tsv", letters(9, seed=5))
    monkeypatch.chdir(home)
    files = ["--source", "data/train.en", "--target", "data/train.de", "--valid-pairs", "valid.tsv"]
    assert command("train", *files, "--output", "run", *settings(), "--max-steps", 2).code == 0
    config = (home / "run" / "config.yaml").read_text()
    write_tsv(elsewhere / "valid.tsv", letters(9, seed=6))  # of the same name, but not the run's
    monkeypatch.chdir(elsewhere)
    for steps in (3, 4):
        done = command("train", "--output", "../home/run", "--resume", "--max-steps", steps)
        assert done.code == 0, done.err
    assert (home / "run" / "config.yaml").read_text() == config.replace("max_steps: 2", "max_steps: 4")
    for file in ("README.md", "config.yaml"):
        assert str(tmp_path) not in (home / "run" / file).read_text()
    # The data has moved: it is looked for where it was and here, and can be named anew.
    (home / "data").rename(elsewhere / "moved")
    told = command("train", "--output", "../home/run", "--resume", "--more-steps", 1).mistake()
    where = home / "data" / "train.en"
    assert f"data/train.en: not found, neither here nor at {where}, where it was; say where it is now" in told
    assert "with --source FILE" in told
    new = ["--source", "moved/train.en", "--target", "moved/train.de"]
    assert command("train", "--output", "../home/run", "--resume", "--more-steps", 1, *new).code == 0
    monkeypatch.chdir(tmp_path)
    done = command("train", "--output", "home/run", "--resume", "--more-steps", 1)
    assert done.code == 0, done.err


def test_finding_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here.tsv").touch()
    model, optimizer = trained()
    old = save_checkpoint(tmp_path / "old", 1, model, optimizer, {})
    data = DataConfig(pairs=Path("here.tsv"))
    assert find_files(data, old) == data  # a run of an older version has noted nothing
    with pytest.raises(SightlineError, match=r"gone\.tsv: not found; say where it is now with --valid-pairs FILE"):
        find_files(DataConfig(pairs=Path("here.tsv"), valid_pairs=Path("gone.tsv")), old)
    noted = places(data, data)
    assert noted == {"here.tsv": str(tmp_path / "here.tsv")}
    new = save_checkpoint(tmp_path / "new", 1, model, optimizer, {"files": noted})
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path / "there")
    found = find_files(data, new)
    assert found.pairs == tmp_path / "here.tsv"
    assert places(data, found) == noted
    (tmp_path / "here.tsv").rename(tmp_path / "there" / "here.tsv")  # the whole tree may have moved
    assert find_files(data, new) == data


def test_where_the_files_are_is_noted_in_the_checkpoint_only(begun: Callable[..., Path], toy_pairs: Path) -> None:
    folder = begun()
    checkpoint = latest(folder / "checkpoints")
    assert checkpoint is not None
    assert read_trainer(checkpoint)["files"] == {str(toy_pairs): str(toy_pairs.resolve())}
    assert str(toy_pairs.parent) not in (folder / "README.md").read_text()


def test_a_rate_that_is_not_known_is_not_compared(tmp_path: Path) -> None:
    model, optimizer = trained()
    state = {"step": 5, "seconds": 1.0, "waited": 0}
    path = save_checkpoint(tmp_path, 5, model, optimizer, {"state": state})
    config = TrainingConfig(max_steps=10, learning_rate=0.1, warmup=1)
    assert going_on(path, config) == ["going on after update 5", "the learning rate is 4.1e-02"]


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"max_steps": 101}, ["is 0.0e+00", "next to none"]),
        ({"max_steps": 104}, ["goes up from 0.0e+00 to 2.1e-04: the cosine schedule now ends at update 104", "none"]),
        ({"max_steps": 104, "schedule": "linear"}, ["goes up from 0.0e+00 to 2.9e-03: the linear schedule"]),
        ({"max_steps": 200}, ["goes up from 0.0e+00 to 5.0e-02: the cosine schedule now ends at update 200"]),
        ({"max_steps": 101, "schedule": "constant"}, ["is 1.0e-01"]),
        ({"max_steps": 40_000, "warmup": 30_000}, ["is 3.4e-04"]),  # it will rise
    ],
)
def test_the_rate_is_told_and_whether_it_is_none(settings: dict[str, Any], told: list[str], tmp_path: Path) -> None:
    """A few updates after the end of a schedule are made at almost no rate, and change nothing."""
    model, optimizer = trained()
    state = {"step": 100, "seconds": 1.0, "waited": 0, "rate": 0.0}
    path = save_checkpoint(tmp_path, 100, model, optimizer, {"state": state})
    lines = going_on(path, TrainingConfig(**{"learning_rate": 0.1, "warmup": 1, **settings}))[1:]
    assert len(lines) == len(told)
    assert all(part in line for part, line in zip(told, lines, strict=True)), lines
    assert lines[0].startswith("the learning rate ")
    assert all("the highest being 1.0e-01" in line and line.endswith("--more-steps 100") for line in lines[1:])
