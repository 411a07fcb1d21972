"""Full disks, places that cannot be written to, runs that were broken off: nothing is lost."""

from __future__ import annotations

import re
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sightline.cli_runs import run_training
from sightline.config import build_config
from tests.commands import Command, finish, settings, start, write_lines


@pytest.fixture
def model(trained: Any) -> Path:
    folder: Path = trained("transformer")
    return folder


# Places that cannot be written to


def test_unwritable_output(command: Command, model: Path, toy_pairs: Path, tmp_path: Path) -> None:
    for place in (toy_pairs / "below-a-file", tmp_path / "nowhere" / "x", tmp_path):
        found = [command("translate", model, "--output", place, stdin=b"a\n")]
        found += [command("evaluate", model, "--pairs", toy_pairs, option, place) for option in ("--output", "--png")]
        found += [
            command("align", model, "--pairs", toy_pairs, option, place) for option in ("--html", "--svg", "--png")
        ]
        for done in found:
            assert done.out == ""
            assert f"{place}: cannot write: " in done.mistake()
    line = ["train", "--pairs", toy_pairs, *settings(), "--output"]
    assert "this is a file; name a folder" in command(*line, toy_pairs).mistake()
    assert "cannot make the folder" in command(*line, toy_pairs / "below").last_word()
    assert not (tmp_path / "nowhere").exists()


@contextmanager
def full_disk(room: int) -> Iterator[None]:
    """No file may grow beyond `room` bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_full_disk(command: Command, model: Path, toy_pairs: Path, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "many", ["a b c d"] * 1000)
    output = write_lines(tmp_path / "kept", ["what was there before"])
    with full_disk(5_000):
        done = command("translate", model, source, "--beam", 1, "--output", output)
    assert "kept: cannot write: File too large; the lines before it are in" in done.mistake()
    assert set((tmp_path / "kept.partial").read_text().splitlines()[:-1]) == {"A B C D"}
    assert output.read_text() == "what was there before\n"
    run = tmp_path / "run"
    line = [
        "train",
        "--pairs",
        toy_pairs,
        "--output",
        run,
        "--max-steps",
        2,
        *settings(),
        "--set",
        "model.embedding=64",
    ]
    with full_disk(50_000):  # enough for the configuration, not for the weights
        done = command(*line)
    told = "cannot write the checkpoint of step 0: File too large; free some space and start again"
    assert told in done.last_word()  # before any time is spent on training
    done = command(*line)  # room was made
    assert done.code == 0, done.err
    assert sorted(path.name for path in run.iterdir()) == [
        "README.md", "checkpoints", "config.yaml", "dropped.json", "expectations.json", "joint.vocab", "metrics.jsonl",
        "model.safetensors", "report.html", "watch",
    ]  # fmt: skip


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_full_standard_output() -> None:
    with open("/dev/full", "w") as full:
        done = finish(start("recipes", stdout=full))
    assert done.mistake() == "sightline: standard output: No space left on device"


# Runs that exist, do not exist, or were broken off


def test_resuming_what_is_not_there(command: Command, toy_pairs: Path, tmp_path: Path) -> None:
    assert "no such folder" in command("train", "--resume", "--output", tmp_path / "none").mistake()
    (tmp_path / "empty").mkdir()
    assert "not a model folder" in command("train", "--resume", "--output", tmp_path / "empty").mistake()


def test_a_folder_that_holds_a_run(command: Command, model: Path, toy_pairs: Path, tmp_path: Path) -> None:
    before = (model / "config.yaml").read_bytes()
    told = command("train", "--pairs", toy_pairs, "--output", model).mistake()
    assert "holds a run already; go on with --resume, or choose another --output" in told
    assert (model / "config.yaml").read_bytes() == before


@pytest.mark.parametrize("name", ["README.md", "config.yaml"])
def test_files_of_others_are_not_written_over(name: str, command: Command, toy_pairs: Path, tmp_path: Path) -> None:
    (tmp_path / name).write_text("mine: 1\n")
    told = command("train", "--pairs", toy_pairs, "--output", tmp_path).mistake()
    assert f"{name}: training would write over it" in told
    assert (tmp_path / name).read_text() == "mine: 1\n"


def test_ctrl_c_saves_and_says_how_to_go_on(command: Command, toy_pairs: Path, tmp_path: Path) -> None:
    run = tmp_path / "my run"
    options = ["--max-steps", 10**6, *settings(), "--set", "training.validate_every=20"]
    process = start("train", "--pairs", toy_pairs, "--output", run, *options)
    assert process.stderr is not None
    said = b""
    while b"validation at step 20" not in said:
        line = process.stderr.readline()
        assert line, said
        said += line
    process.send_signal(signal.SIGINT)
    done = finish(process)
    assert (done.code, done.out) == (130, "")
    assert f"saved; go on with: sightline train --output '{run}' --resume" in done.err
    told = re.search(r"interrupted after ([\d,]+) updates", done.err)
    assert told is not None
    steps = int(told[1].replace(",", ""))
    done = command("train", "--output", run, "--resume", "--max-steps", steps + 2)
    assert done.code == 0, done.err
    assert f"all {steps + 2:,} updates are done" in done.err


def test_a_run_killed_before_its_first_checkpoint_starts_again(
    command: Command, toy_pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = ["train", "--pairs", toy_pairs, "--output", tmp_path / "run", "--max-steps", 1, *settings()]

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("sightline.training.loop.Trainer.run", interrupted)
        patch.setattr("signal.signal", lambda *_: None)  # the process that ends goes deaf; this one goes on
        done = command(*line)
    assert (done.code, done.out) == (130, "")
    assert (tmp_path / "run" / "config.yaml").exists()
    assert "no checkpoint to resume from; start without --resume" in command(*line, "--resume").mistake()
    assert command(*line).code == 0


@pytest.mark.parametrize("saved", [False, True])
def test_an_interruption_says_whether_there_is_anything_to_go_on_from(
    saved: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*arguments: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sightline.training.material.begin", interrupted)
    monkeypatch.setattr("sightline.training.checkpoint_names.latest", lambda folder: folder if saved else None)
    with pytest.raises(KeyboardInterrupt):
        run_training(build_config({}, "transformer"), tmp_path, resume=False)
    told = capsys.readouterr().err
    assert told.startswith("interrupted; ")
    assert ("--resume" in told) is saved
    assert ("nothing was saved yet" in told) is not saved


def test_a_mistake_ends_well_while_torch_is_being_imported(tmp_path: Path) -> None:
    """Told at once, it would otherwise end the process in the middle of an import."""
    for _ in range(3):
        done = finish(start("train", "--pairs", tmp_path / "no.tsv", "--output", tmp_path / "run"))
        assert "no such file" in done.mistake()
