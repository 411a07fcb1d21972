"""Scores by source length as SVG: a line a system over the same buckets, each value under the pointer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from sightline.plot.charts import Axis, ticks
from sightline.plot.heatmap import clean
from sightline.plot.widths import display_width

# Told apart with any colour vision, on light and on dark (Okabe and Ito's, the faintest left out).
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
DASHES = ("", "6 3", "2 3")  # for what the colours do not reach
_WIDTH, _LEFT, _RIGHT, _TOP, _BOTTOM = 720.0, 44.0, 704.0, 14.0, 268.0
_LETTER = 7.4
_ROW = 20.0
_STYLE = """
text { font-family: system-ui, -apple-system, "Segoe UI", "Noto Sans", "Liberation Sans", sans-serif; fill: #59636e }
.rule { stroke: #dde1e7 } .paper { fill: #ffffff } .tick { font-size: 12px } .key { font-size: 13px }
.end { text-anchor: end } .middle { text-anchor: middle }
@media (prefers-color-scheme: dark) { .paper { fill: #14171c } .rule { stroke: #2b313a } text { fill: #9aa5b1 } }
"""


def lengths_svg(labels: Sequence[str], series: Mapping[str, Sequence[float]], alone: bool = False) -> str:
    """Lines over buckets with these labels; `alone` makes a file of its own, else an element in a page's colours."""
    highest = max((value for values in series.values() for value in values), default=0.0) or 1.0
    axis = Axis(0.0, highest, _BOTTOM, _TOP)
    across = [_LEFT + (place + 0.5) * (_RIGHT - _LEFT) / max(len(labels), 1) for place in range(len(labels))]
    parts = []
    for value in ticks(axis):
        y = axis.place(value)
        parts.append(f'<path class="rule" d="M{_LEFT:g} {y:.1f}H{_RIGHT:g}"/>')
        parts.append(f'<text class="tick end" x="{_LEFT - 6:g}" y="{y + 4:.1f}">{value:g}</text>')
    for x, label in zip(across, labels, strict=True):
        parts.append(f'<text class="tick middle" x="{x:.1f}" y="{_BOTTOM + 18:g}">{_text(label)}</text>')
    for number, (name, values) in enumerate(series.items()):
        places = [(x, axis.place(value)) for x, value in zip(across, values, strict=True)]
        parts.append(f'<path d="{_path(places)}" {_stroke(number)}/>')
        for (x, y), value, label in zip(places, values, labels, strict=True):
            told = _text(f"{name}, {label} words: {value:.1f}")
            dot = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{COLOURS[number % len(COLOURS)]}">'
            parts.append(f"{dot}<title>{told}</title></circle>")
    keys, bottom = _keys(list(series))
    height = bottom + 10
    title = "Score by the number of source words"
    size = (
        f'xmlns="http://www.w3.org/2000/svg" width="{_WIDTH:g}" height="{height:g}" ' if alone else 'class="lengths" '
    )
    paper = f'<rect class="paper" width="{_WIDTH:g}" height="{height:g}"/>'
    own = [f"<style>{_STYLE}</style>", paper] if alone else []
    opening = f'<svg {size}viewBox="0 0 {_WIDTH:g} {height:g}" role="img" aria-label="{title}">'
    return "\n".join([opening, *own, *parts, *keys, "</svg>\n"])


def _path(places: Sequence[tuple[float, float]]) -> str:
    return "".join(f"{'L' if number else 'M'}{x:.1f} {y:.1f}" for number, (x, y) in enumerate(places))


def _stroke(number: int) -> str:
    dash = DASHES[number // len(COLOURS) % len(DASHES)]
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return f'fill="none" stroke="{COLOURS[number % len(COLOURS)]}" stroke-width="2" stroke-linejoin="round"{dashed}'


def _keys(names: Sequence[str]) -> tuple[list[str], float]:
    """The names beside a piece of their lines, in as many rows as they need, and where these end."""
    parts, x, y = [], _LEFT, _BOTTOM + 44
    for number, name in enumerate(names):
        width = 34 + _LETTER * display_width(clean(name))
        if x > _LEFT and x + width > _RIGHT:
            x, y = _LEFT, y + _ROW
        parts.append(f'<path d="M{x:.1f} {y - 4:.1f}h22" {_stroke(number)}/>')
        parts.append(f'<text class="key" x="{x + 28:.1f}" y="{y:.1f}">{_text(name)}</text>')
        x += width + 14
    return parts, y


def _text(text: str) -> str:
    return escape(clean(text))
