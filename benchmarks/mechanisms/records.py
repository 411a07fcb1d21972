"""The record of the atlas's arms: read, added to, and asked whether an arm is done. No torch here."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sightline.files import write_text

Result = dict[str, Any]


def read_record(path: Path) -> dict[str, Result]:
    """All arms so far."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def record(path: Path, name: str, result: Result, order: Sequence[str]) -> None:
    """Puts one arm into the file, the others staying as they are; whole or not at all."""
    everything = {**read_record(path), name: result}
    ordered = {arm: everything[arm] for arm in (*order, *everything) if arm in everything}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(ordered, indent=1, ensure_ascii=False) + "\n")


def is_done(found: Result | None, wanted: Result) -> bool:
    """Whether an arm is recorded with these settings, and did not fail."""
    return found is not None and "failed" not in found and all(found.get(key) == wanted[key] for key in wanted)
