"""Where a run's checkpoints lie and what they are called: all that can be said of them without torch."""

from __future__ import annotations

import re
from pathlib import Path

CHECKPOINTS = "checkpoints"
# Of a checkpoint's files the one that is written last.
TRAINER = "trainer.json"
# A second checkpoint of the same step gets a number after a dot: nothing is ever written over.
_NAME = re.compile(r"step-(\d+)(?:\.(\d+))?")


def latest(folder: Path) -> Path | None:
    """The newest complete checkpoint of a `checkpoints` folder, None if there is none."""
    found = complete(folder)
    return found[-1] if found else None


def complete(folder: Path) -> list[Path]:
    """The finished checkpoints in `folder`, oldest first."""
    found = []
    for path in folder.iterdir() if folder.is_dir() else ():
        match = _NAME.fullmatch(path.name)
        if match and (path / TRAINER).is_file():
            found.append((int(match[1]), int(match[2] or 0), path))
    return [path for _, _, path in sorted(found)]


def step_of(path: Path) -> int:
    """The update after which the checkpoint `path` was written."""
    match = _NAME.fullmatch(path.name)
    assert match is not None, path
    return int(match[1])


def free_name(folder: Path, step: int) -> Path:
    """A name in `folder` for a checkpoint of this step that no other has."""
    path, number = folder / f"step-{step:07d}", 0
    while path.exists():
        number += 1
        path = folder / f"step-{step:07d}.{number}"
    return path
