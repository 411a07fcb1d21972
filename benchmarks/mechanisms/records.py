"""The record of a benchmark's arms: read, added to, asked whether an arm is done, and filled. No torch here."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.speed.common import command, machine, say
from sightline.files import write_text

ROOT = Path(__file__).resolve().parents[2]

Result = dict[str, Any]


class ArmError(Exception):
    """An arm that did not come to its end, with the reason."""


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


def made_otherwise(results: Mapping[str, Result], alike: Sequence[str]) -> list[str]:
    """A line, if some arms were recorded with other settings than the first, which a table must not hide."""
    first, *_ = results.values()
    others = [name for name, result in results.items() if any(result[key] != first[key] for key in alike)]
    if not others:
        return []
    return [f"With other settings than the first, as the record tells: {', '.join(f'`{name}`' for name in others)}."]


def divided(record: Mapping[str, Result]) -> tuple[dict[str, Result], list[str]]:
    """The arms that came to their end, and a line on each that did not."""
    done = {name: result for name, result in record.items() if "failed" not in result}
    return done, [f"`{name}` failed: {result['failed']}." for name, result in record.items() if name not in done]


def told_budget(result: Result) -> str:
    """How long an arm was trained, and on how many threads."""
    minutes, updates, threads = result["minutes"], result["max_updates"], result["threads"]
    long = f"{minutes:g} minutes" if updates is None else f"{updates:,} updates"
    return f"{long} of training for each arm on {threads} thread{'s' * (threads != 1)}"


def write_page(path: Path, page: Callable[[Mapping[str, Result]], str]) -> None:
    """Writes what a page says of the record beside it, if there is a record."""
    if everything := read_record(path):
        write_text(path.with_suffix(".md"), page(everything))


def fill(
    path: Path,
    wanted: Mapping[str, Result],
    order: Sequence[str],
    measure: Callable[[str], Result],
    told: Callable[[Result], str],
    private: Iterable[Path],
    minutes: float,
    again: bool = False,
    read: Callable[[Path], dict[str, Result]] = read_record,
    write: Callable[[Path, str, Result, Sequence[str]], None] = record,
) -> int:
    """Measures and records arm after arm, each as soon as it is done; 1 if one failed.

    `wanted` has the settings of each arm: one that is recorded with the same is left out, unless `again`. `measure`
    makes an arm's result, and `told` its most important figure; `minutes` is how long one takes at first sight. The
    reason of one that fails is recorded without the names of the `private` folders, and the others go on. `read` and
    `write` are for records of another form than an entry for each arm. Several processes may fill one record.
    """
    done = read(path)
    left = [name for name in wanted if again or not is_done(done.get(name), wanted[name])]
    say(f"{len(wanted)} arms, of which {len(wanted) - len(left)} are recorded already")
    failed, began = [], time.monotonic()
    for number, name in enumerate(left):
        each = (time.monotonic() - began) / number if number else 60 * minutes
        say(f"[{number + 1}/{len(left)}] {name}: about {told_time(each * (len(left) - number))} left")
        about = {**wanted[name], "command": command(), "machine": machine()}
        try:
            result = measure(name)
        except Exception as problem:  # whatever it was, the other arms are not to suffer
            failed.append(name)
            reason = str(problem) if isinstance(problem, ArmError) else f"{type(problem).__name__}: {problem}"
            result = {"failed": without_folders(reason, private)}
            say(f"    failed: {result['failed']}")
        else:
            say(f"    {told(result)}")
        with alone(path):
            write(path, name, {**result, **about}, order)
    if left:
        say(f"{len(left) - len(failed)} arms done" + (f", failed: {', '.join(failed)}" if failed else ""))
    return int(bool(failed))


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Lets one process at a time change a record, so that two may fill it side by side, each with arms of its own."""
    path.parent.mkdir(parents=True, exist_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def without_folders(reason: str, folders: Iterable[Path]) -> str:
    """One line that another machine could have said."""
    line = " ".join(reason.split())
    for folder in (*folders, ROOT, Path.home()):
        line = line.replace(f"{folder.resolve()}/", "").replace(f"{folder}/", "")
    return line[:300]


def told_time(seconds: float) -> str:
    """Hours and minutes."""
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02} min" if minutes >= 60 else f"{minutes} min"
