"""Curves as SVG for a page: axes, lines and their points, in the page's own colours.

A page's script finds in `marks` where each point lies and what it says, so that it computes nothing of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Literal

from sightline.plot.heatmap import clean

Style = Literal["number", "rate", "count"]
Point = tuple[float, float]

_WIDTH, _HEIGHT = 400.0, 220.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 52.0, 388.0, 14.0, 188.0
_MOST_POINTS = 300  # of a line; more cannot be told apart
_FEW_POINTS = 40  # with so many, each is marked


@dataclass(frozen=True)
class Series:
    """A line: points (x, y), x rising; a y that is not finite leaves a gap."""

    name: str
    points: Sequence[Point]


@dataclass(frozen=True)
class Chart:
    """Lines over one axis. `best` marks a place on it; `logarithmic` is for what falls by powers."""

    title: str
    series: Sequence[Series]
    style: Style = "number"
    logarithmic: bool = False
    best: float | None = None


@dataclass(frozen=True)
class Axis:
    """From values to places: `low` lies at `start`, `high` at `end`."""

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False

    def place(self, value: float) -> float:
        """Where a value lies."""
        low, high, at = (math.log(each) if self.logarithmic else each for each in (self.low, self.high, value))
        return self.start + (self.end - self.start) * (at - low) / (high - low)


def chart_svg(chart: Chart) -> str:
    """The chart as an element of a page."""
    x_axis, y_axis = _axes(chart)
    parts = []
    for value in ticks(y_axis):
        y = y_axis.place(value)
        parts.append(f'<path class="rule" d="M{_LEFT:g} {y:.1f}H{_RIGHT:g}"/>')
        parts.append(f'<text class="tick end" x="{_LEFT - 6:g}" y="{y + 4:.1f}">{shown(value, chart.style)}</text>')
    for value in ticks(x_axis):
        x = x_axis.place(value)
        parts.append(f'<text class="tick middle" x="{x:.1f}" y="{_BOTTOM + 18:g}">{shown(value, "count")}</text>')
    parts.append(f'<path class="axis" d="M{_LEFT:g} {_BOTTOM:g}H{_RIGHT:g}"/>')
    if chart.best is not None:
        parts.append(f'<path class="best" d="M{x_axis.place(chart.best):.1f} {_TOP:g}V{_BOTTOM:g}"/>')
    for number, series in enumerate(chart.series):
        parts += _line(thin(series.points), x_axis, y_axis, number)
    names = " and ".join(series.name for series in chart.series)
    label = escape(clean(f"{chart.title}: {names} by step; arrow keys move along the line"))
    return (
        f'<svg class="chart" viewBox="0 0 {_WIDTH:g} {_HEIGHT:g}" role="img" tabindex="0" aria-label="{label}">'
        f"{''.join(parts)}</svg>"
    )


def marks(chart: Chart) -> list[dict[str, Any]]:
    """For each line its name and its points: [x, place across, place down, what y is]."""
    x_axis, y_axis = _axes(chart)
    return [
        {
            "name": clean(series.name),
            "points": [
                [x, round(x_axis.place(x), 1), round(y_axis.place(y), 1), shown(y, chart.style)]
                for x, y in thin(series.points)
                if math.isfinite(y)
            ],
        }
        for series in chart.series
    ]


def thin(points: Sequence[Point], most: int = _MOST_POINTS) -> list[Point]:
    """At most about `most` points: each stands for as many neighbours, at the last one's x, with the mean of their y.

    Means leave out what is not finite; the last point is kept as it is.
    """
    if len(points) <= most:
        return list(points)
    size = math.ceil(len(points) / most)
    groups = [points[start : start + size] for start in range(0, len(points) - 1, size)]
    result = []
    for group in groups:
        finite = [y for _, y in group if math.isfinite(y)]
        result.append((group[-1][0], sum(finite) / len(finite) if finite else math.nan))
    return result if result[-1][0] == points[-1][0] else [*result, points[-1]]


def ticks(axis: Axis, most: int = 5) -> list[float]:
    """Round values within an axis, two to `most` of them where there are such."""
    if axis.logarithmic and axis.high / axis.low >= 10:
        powers = range(math.floor(math.log10(axis.low)), math.ceil(math.log10(axis.high)) + 1)
        for factors in ((1, 2, 5), (1, 3), (1,)):
            found = [factor * 10.0**power for power in powers for factor in factors]
            found = [value for value in found if axis.low <= value <= axis.high]
            if len(found) <= most:
                return found
        return found[:: math.ceil(len(found) / most)]
    width = (axis.high - axis.low) / most
    scale = 10.0 ** math.floor(math.log10(width))
    step = next(factor * scale for factor in (1, 2, 5, 10) if factor * scale >= width * (1 - 1e-9))
    first, last = math.ceil(axis.low / step - 1e-9), math.floor(axis.high / step + 1e-9)
    return [number * step for number in range(first, last + 1)]


def shown(value: float, style: Style) -> str:
    """A value as a person reads it."""
    if not math.isfinite(value):
        return "–"
    if style == "count":
        return f"{value:,.0f}"
    if style == "rate":
        return "0" if value == 0 else f"{value:.2g}" if value >= 0.01 else f"{value:.1e}".replace("e-0", "e-")
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}" if abs(value) >= 1 else f"{value:.3g}"


def _axes(chart: Chart) -> tuple[Axis, Axis]:
    """Across and up, with some room where all values are one."""
    points = [point for series in chart.series for point in thin(series.points) if math.isfinite(point[1])]
    xs = [x for x, _ in points] or [0.0]
    ys = [y for _, y in points] or [0.0, 1.0]
    low, high = min(ys), max(ys)
    logarithmic = chart.logarithmic and low > 0
    if low == high:
        low, high = (low / 2, high * 2) if logarithmic else (low - max(abs(low), 1) / 10, high + max(abs(high), 1) / 10)
    elif chart.style != "number" and not logarithmic:
        low = min(low, 0.0)  # rates are compared with none at all
    first = min(0.0, *xs) if len(xs) > 1 else xs[0] - 1
    across = Axis(first, max(max(xs), first + 1), _LEFT, _RIGHT)
    return across, Axis(low, high, _BOTTOM, _TOP, logarithmic)


def _line(points: Sequence[Point], x_axis: Axis, y_axis: Axis, number: int) -> list[str]:
    path, gap = [], True
    dots = []
    for x, y in points:
        if not math.isfinite(y):
            gap = True
            continue
        place = f"{x_axis.place(x):.1f} {y_axis.place(y):.1f}"
        path.append(f"{'M' if gap else 'L'}{place}")
        gap = False
        if len(points) <= _FEW_POINTS:
            dots.append(f'<circle class="dot line{number}" cx="{place.split()[0]}" cy="{place.split()[1]}" r="2.6"/>')
    return [f'<path class="line line{number}" d="{"".join(path)}"/>', *dots] if path else []
