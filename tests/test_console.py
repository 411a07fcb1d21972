"""The progress bar: only where a person watches, and only when there is time to see it."""

from __future__ import annotations

import io
import json
import math

import pytest

from sightline import console
from sightline.translation import Flag, Translation


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


def test_json_has_no_number_that_is_not_finite() -> None:
    def refused(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    one = Translation(
        "ä", "b", -math.inf, math.nan, [3], ["b"], [-0.5, -math.inf], True, flags=[Flag("x", "", math.inf)]
    )
    line = console.presented(0, one, 1, as_json=True)
    assert "ä" in line
    read = json.loads(line, parse_constant=refused)
    assert (read["score"], read["log_prob"], read["token_log_probs"]) == (None, None, [-0.5, None])
    assert read["flags"][0]["value"] is None
    assert json.loads(console.presented(0, one.changed(score=-0.25), 1, as_json=True))["score"] == -0.25
