"""A disk that fills up at any write: the last good checkpoint and the last good model stay, and the run goes on."""

from __future__ import annotations

import errno
import io
import json
import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sightline.errors import SightlineError
from sightline.training import checkpoints
from sightline.training.checkpoint_names import latest
from sightline.training.checkpoints import load_checkpoint, save_checkpoint, save_weights
from sightline.training.metrics_log import MetricsLog
from tests.commands import Command, settings
from tests.test_checkpoints import same, trained


class Disk:
    """Lets so many operations pass and fails at the next with ENOSPC, and at all that follow."""

    def __init__(self, room: float) -> None:
        self.room = room

    def takes(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def operation(*args: Any, **kwargs: Any) -> Any:
            self.room -= 1
            if self.room < 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return function(*args, **kwargs)

        return operation


def half_written(path: Path, content: bytes) -> None:
    path.write_bytes(content[: len(content) // 2])
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_every_operation_of_a_checkpoint_can_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, old_optimizer = trained(3)
    new, new_optimizer = trained(5, seed=2)
    room = 0
    while True:
        folder = tmp_path / str(room)
        save_checkpoint(folder, 1, old, old_optimizer, {"step": 1})
        disk = Disk(room)
        with monkeypatch.context() as patch:
            for module, name in ((os, "fsync"), (os, "replace"), (os, "mkdir"), (checkpoints, "_write")):
                patch.setattr(module, name, disk.takes(getattr(module, name)))
            try:
                save_checkpoint(folder, 2, new, new_optimizer, {"step": 2})
            except SightlineError as error:
                told = str(error)
                assert "cannot write the checkpoint of step 2: No space left on device; earlier checkpoints" in told
            else:
                break
        path = latest(folder)
        assert path is not None
        model, optimizer = trained(1)
        step = load_checkpoint(path, model, optimizer)["step"]
        assert same(model, old if step == 1 else new)
        assert not [entry for entry in folder.iterdir() if entry.name.startswith(".partial")]
        room += 1
    assert room > 10


def test_a_file_that_is_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, optimizer = trained()
    save_weights(model, tmp_path / "model.safetensors")
    before = (tmp_path / "model.safetensors").read_bytes()
    monkeypatch.setattr(checkpoints, "_write", half_written)
    with pytest.raises(SightlineError, match="cannot write the weights: No space left on device"):
        save_weights(trained(5)[0], tmp_path / "model.safetensors")
    with pytest.raises(SightlineError, match="cannot write the checkpoint of step 1"):
        save_checkpoint(tmp_path / "checkpoints", 1, model, optimizer, {})
    assert (tmp_path / "model.safetensors").read_bytes() == before
    assert [entry.name for entry in (tmp_path / "checkpoints").iterdir()] == []
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["checkpoints", "model.safetensors"]


def test_a_line_of_the_metrics_that_does_not_fit(tmp_path: Path) -> None:
    """The kernel itself refuses it; what was cut off goes when the run is resumed."""
    path = tmp_path / "metrics.jsonl"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with MetricsLog(path) as log:
        log.write({"step": 1})
        resource.setrlimit(resource.RLIMIT_FSIZE, (20, hard))
        try:
            with pytest.raises(SightlineError, match="cannot write the metrics: File too large"):
                log.write({"step": 2})
        finally:
            log.__exit__(None, None, None)  # while there is no room: it must not fail once more
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    with MetricsLog(path, 1) as log:
        log.write({"step": 2})
    assert [json.loads(line) for line in path.read_text().splitlines()] == [{"step": 1}, {"step": 2}]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_a_device_that_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file that is opened for writing is /dev/full: the error is the kernel's own."""
    model, optimizer = trained()
    path = save_checkpoint(tmp_path, 1, model, optimizer, {"step": 1})
    open_file = io.open

    def full(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        return open_file("/dev/full" if "w" in mode else file, mode, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(io, "open", full)
        with pytest.raises(SightlineError, match="step 2: No space left on device"):
            save_checkpoint(tmp_path, 2, model, optimizer, {"step": 2})
    assert list(tmp_path.iterdir()) == [path]
    assert load_checkpoint(path, model, optimizer) == {"step": 1}


def test_a_run_whose_disk_fills_up_goes_on_exactly(
    command: Command, toy_pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Again and again, after another number of writes, until it comes to its end."""
    options = ["--set", "training.validate_every=2", "--set", "training.log_every=1", "--max-steps", 4]
    line = ["train", "--pairs", toy_pairs, *settings(), *options, "--output"]
    assert command(*line, tmp_path / "whole").code == 0
    expected = latest(tmp_path / "whole" / "checkpoints")
    assert expected is not None
    folder, failures = tmp_path / "run", 0
    for room in (3, 9, 14, 2, 11, 5, 17, 8, 20, 40, 80):
        resumes = latest(folder / "checkpoints") is not None
        disk = Disk(room)
        with monkeypatch.context() as patch:
            for module, name in ((os, "fsync"), (os, "replace"), (checkpoints, "_write")):
                patch.setattr(module, name, disk.takes(getattr(module, name)))
            patch.setattr(MetricsLog, "write", explained(disk, MetricsLog.write))
            again = ["train", "--output", folder, "--resume"]
            done = command(*(again if resumes else [*line, folder]))
        if done.code == 0:
            break
        failures += 1
        assert "No space left on device" in done.last_word() or "the disk is full" in done.last_word()
        assert latest(folder / "checkpoints") is not None or not resumes
    assert done.code == 0
    assert failures >= 3
    found = latest(folder / "checkpoints")
    assert found is not None
    for file in expected.glob("*.safetensors"):
        assert (found / file.name).read_bytes() == file.read_bytes()
    assert (folder / "model.safetensors").read_bytes() == (tmp_path / "whole" / "model.safetensors").read_bytes()


def explained(disk: Disk, write: Callable[..., None]) -> Callable[..., None]:
    """A line of the metrics that finds no room, as the log tells it."""

    def writing(log: MetricsLog, values: Any) -> None:
        try:
            disk.takes(write)(log, values)
        except OSError as error:
            raise SightlineError(f"{log.path}: cannot write the metrics: {error.strerror}") from None

    return writing
