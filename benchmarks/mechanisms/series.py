"""Arm after arm: each made, told of and recorded when it is done; one that fails stops no other. No torch here."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.mechanisms.records import Result, record
from benchmarks.speed.common import command, machine, say

ROOT = Path(__file__).resolve().parents[2]


class ArmError(Exception):
    """An arm that did not come to its end, with the reason."""


@dataclass(frozen=True)
class Series:
    """Where arms are recorded, in which `order`, and for how many `minutes` each is trained, if that is known.

    `folders` do not belong into a record: reasons of failures are told without them.
    """

    path: Path
    order: Sequence[str]
    minutes: float | None
    folders: Sequence[Path]

    def run(self, left: Mapping[str, Result], make: Callable[[str], Result], tell: Callable[[Result], str]) -> int:
        """Makes all arms that are `left`, each recorded with its settings; `tell` says what is important of a result.

        1 if an arm failed.
        """
        failed, began = [], time.monotonic()
        for number, (name, settings) in enumerate(left.items()):
            # Until one is done, a minute is allowed for measuring.
            each = (time.monotonic() - began) / number if number else 60 * ((self.minutes or 0) + 1)
            say(f"[{number + 1}/{len(left)}] {name}: about {told_time(each * (len(left) - number))} left")
            try:
                result = make(name)
            except Exception as problem:  # whatever it was, the other arms are not to suffer
                failed.append(name)
                reason = str(problem) if isinstance(problem, ArmError) else f"{type(problem).__name__}: {problem}"
                result = {"failed": self.without_folders(reason)}
                say(f"    failed: {result['failed']}")
            else:
                say(f"    {tell(result)}")
            about = {**settings, "command": command(), "machine": machine()}
            record(self.path, name, {**result, **about}, self.order)
        say(f"{len(left) - len(failed)} arms done" + (f", failed: {', '.join(failed)}" if failed else ""))
        return int(bool(failed))

    def without_folders(self, reason: str) -> str:
        """One line that another machine could have said."""
        line = " ".join(reason.split())
        for folder in (*self.folders, ROOT, Path.home()):
            line = line.replace(f"{folder.resolve()}/", "").replace(f"{folder}/", "")
        return line[:300]


def told_time(seconds: float) -> str:
    """Hours and minutes."""
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02} min" if minutes >= 60 else f"{minutes} min"
