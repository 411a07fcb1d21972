"""The progress bar: only where a person watches, and only when there is time to see it."""

from __future__ import annotations

import io

import pytest

from sightline import console


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("after", "seen"), [(0.0, True), (5.0, True), (50.0, False)])
def test_a_bar_shows_itself_after_a_while(monkeypatch: pytest.MonkeyPatch, after: float, seen: bool) -> None:
    clock, stream = iter(range(100)), Terminal()
    monkeypatch.setattr(console.time, "monotonic", lambda: float(next(clock)))
    monkeypatch.setattr(console.sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    with console.bar(10, "counting", after=after) as watch:
        for _ in range(10):
            watch(1)
    assert ("counting" in stream.getvalue()) == seen


def test_no_bar_where_nobody_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(console.sys, "stderr", stream)
    with console.bar(10, "counting") as watch:
        watch(10)
    assert stream.getvalue() == ""
