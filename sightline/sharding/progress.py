"""How far a file is: a bar where a person watches, else a line a minute for the log."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sightline.console import say

SECONDS_BETWEEN_LINES = 60.0

Advance = Callable[[int, int], None]


@contextmanager
def progress(total: int, read: int, lines: int) -> Iterator[Advance]:
    """What it gives is called with the lines and the bytes of each shard that is done.

    `total` bytes are to be read; `read` of them, `lines` lines, were done before. The time left is told by bytes, since
    nobody knows the number of lines, the speed in lines of this run.
    """
    with _bar(total, read, lines) if sys.stderr.isatty() else _log(total, read, lines) as advance:
        yield advance


@contextmanager
def _bar(total: int, read: int, lines: int) -> Iterator[Advance]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    sentences = TextColumn("{task.fields[lines]:,} sentences, {task.fields[speed]:,.0f}/s")
    columns = (TextColumn("translating"), BarColumn(), TaskProgressColumn(), sentences, TimeRemainingColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True, speed_estimate_period=600)
    task = bar.add_task("", total=max(total, 1), completed=read, lines=lines, speed=0.0)
    pace = _Pace(lines)

    def advance(more: int, more_read: int) -> None:
        pace.add(more)
        bar.update(task, advance=more_read, lines=pace.lines, speed=pace.speed)

    with bar:
        yield advance


@contextmanager
def _log(total: int, read: int, lines: int) -> Iterator[Advance]:
    pace, begun, done = _Pace(lines), time.monotonic(), read
    told = begun

    def advance(more: int, more_read: int) -> None:
        nonlocal told, done
        pace.add(more)
        done += more_read
        now = time.monotonic()
        if now - told >= SECONDS_BETWEEN_LINES:
            told = now
            rest = left(now - begun, done - read, total - done)
            say(f"{status(pace.lines, pace.speed, done / max(total, 1))}, {rest}")

    yield advance


def status(lines: int, speed: float, share: float) -> str:
    """How far it is, in words."""
    return f"{lines:,} sentences ({min(share, 1.0):.1%}), {speed:,.0f} a second"


def left(seconds: float, done: int, rest: int) -> str:
    """The time that is left if it goes on like this."""
    minutes = round(seconds * max(rest, 0) / max(done, 1) / 60)
    return f"{minutes // 60}:{minutes % 60:02d} hours left"


class _Pace:
    """Lines in all, and lines a second since it was made."""

    def __init__(self, before: int) -> None:
        self.lines = self._before = before
        self._begun = time.monotonic()

    def add(self, more: int) -> None:
        self.lines += more

    @property
    def speed(self) -> float:
        return (self.lines - self._before) / max(time.monotonic() - self._begun, 1e-9)
