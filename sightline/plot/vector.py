"""Heat-maps as SVG: one self-contained file, light and dark, with a tooltip for every cell that matters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from xml.sax.saxutils import escape

import numpy as np

from sightline.plot.heatmap import Heatmap, clean, shade
from sightline.plot.widths import display_width, fit

_CELL = 22.0
_FONT = 13.0
_LETTER = 7.6  # a generous guess at a letter's width: the reader's font is not known here
_LONGEST = 24  # columns of a label before it is cut; its tooltip has the whole word
_MARGIN = 16.0
_TILT = 50.0  # degrees the column labels lean
_FAINTEST = 0.005  # lighter cells are left out: nobody sees them, and long sentences have thousands

_STYLE = """
text { font-family: system-ui, -apple-system, "Segoe UI", "Noto Sans", "Liberation Sans", sans-serif }
@media (prefers-color-scheme: dark) {
  .paper { fill: #14171c } .word { fill: #e4e7ec } .grid { stroke: #2b313a } .weight { fill: #629ae4 }
  .link { stroke: #f0a35e }
}
"""


def svg(heatmaps: Heatmap | Sequence[Heatmap]) -> str:
    """One heat-map, or several below each other, as an SVG document."""
    stack = [heatmaps] if isinstance(heatmaps, Heatmap) else list(heatmaps)
    parts, width, top = [], 2 * _MARGIN, 0.0
    for heatmap in stack:
        part, part_width, part_height = _panel(heatmap)
        parts.append(f'<g transform="translate(0 {top:.0f})">\n{part}\n</g>')
        width, top = max(width, part_width), top + part_height
    top = max(top, 2 * _MARGIN)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{top:.0f}" '
            f'viewBox="0 0 {width:.0f} {top:.0f}" role="img" font-size="{_FONT:.0f}">',
            "<title>Attention: rows are target words, columns source words, darker is more</title>",
            f"<style>{_STYLE}</style>",
            f'<rect class="paper" width="{width:.0f}" height="{top:.0f}" fill="#ffffff"/>',
            *parts,
            "</svg>\n",
        ]
    )


def figure(heatmap: Heatmap) -> str:
    """A heat-map as an element of a page, in the page's own colours, every cell drawn: row by row, for a script."""
    part, width, height = _panel(heatmap, faintest=0.0)
    words = f"{len(heatmap.target)} target words in rows, {len(heatmap.source)} source words in columns"
    return (
        f'<svg class="heat-map" width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'role="img" tabindex="0" font-size="{_FONT:.0f}" aria-label="Heat-map: {words}">\n{part}\n</svg>'
    )


def _panel(heatmap: Heatmap, faintest: float = _FAINTEST) -> tuple[str, float, float]:
    """One heat-map's elements, their width and their height; cells of less than `faintest` are left out."""
    tilt = math.radians(_TILT)
    longest_source = max((_label_width(word) for word in heatmap.source), default=0.0)
    left = _MARGIN + max((_label_width(word) for word in heatmap.target), default=0.0) + 8
    title_height = 26.0 if heatmap.title else 0.0
    top = _MARGIN + title_height + longest_source * math.sin(tilt) + 12
    columns, rows = len(heatmap.source), len(heatmap.target)
    # The last label leans out over the grid's right edge.
    width = (
        max(left + columns * _CELL + longest_source * math.cos(tilt), _MARGIN + _text_width(heatmap.title)) + _MARGIN
    )
    parts = []
    if heatmap.title:
        title = _escape(heatmap.title)
        parts.append(
            f'<text class="word" x="{_MARGIN}" y="{_MARGIN + _FONT}" fill="#1b1f24" font-weight="600">{title}</text>'
        )
    parts += [_grid(left, top, columns, rows), *_column_labels(heatmap, left, top), *_row_labels(heatmap, left, top)]
    parts += [*_cells(heatmap, left, top, faintest), *_links(heatmap, left, top)]
    return "\n".join(parts), width, top + rows * _CELL + _MARGIN


def _grid(left: float, top: float, columns: int, rows: int) -> str:
    right, bottom = left + columns * _CELL, top + rows * _CELL
    across = "".join(f"M{left:g} {top + row * _CELL:g}H{right:g}" for row in range(rows + 1))
    down = "".join(f"M{left + column * _CELL:g} {top:g}V{bottom:g}" for column in range(columns + 1))
    return f'<path class="grid" d="{across}{down}" stroke="#e6e9ed" fill="none"/>'


def _column_labels(heatmap: Heatmap, left: float, top: float) -> list[str]:
    places = [(left + (column + 0.5) * _CELL, top - 7) for column in range(len(heatmap.source))]
    return [
        f'<text class="word" fill="#1b1f24" transform="translate({x + 3:g} {y:g}) rotate(-{_TILT:g})">'
        f"{_label(word)}</text>"
        for word, (x, y) in zip(heatmap.source, places, strict=True)
    ]


def _row_labels(heatmap: Heatmap, left: float, top: float) -> list[str]:
    return [
        f'<text class="word" fill="#1b1f24" text-anchor="end" x="{left - 8:g}" y="{top + (row + 0.5) * _CELL + 4.5:g}">'
        f"{_label(word)}</text>"
        for row, word in enumerate(heatmap.target)
    ]


def _cells(heatmap: Heatmap, left: float, top: float, faintest: float) -> list[str]:
    weights = np.nan_to_num(heatmap.weights)
    opacity = shade(weights)
    parts = []
    for row, column in np.argwhere(weights >= faintest).tolist():
        tooltip = f"{heatmap.target[row]} ← {heatmap.source[column]}: {weights[row, column]:.2f}"
        parts.append(
            f'<rect class="weight" x="{left + column * _CELL + 0.5:g}" y="{top + row * _CELL + 0.5:g}" '
            f'width="{_CELL - 1:g}" height="{_CELL - 1:g}" fill="#08428c" fill-opacity="{opacity[row, column]:.3f}">'
            f"<title>{_escape(tooltip)}</title></rect>"
        )
    return parts


def _links(heatmap: Heatmap, left: float, top: float) -> list[str]:
    return [
        f'<rect class="link" x="{left + source * _CELL + 1.5:g}" y="{top + target * _CELL + 1.5:g}" rx="3" '
        f'width="{_CELL - 3:g}" height="{_CELL - 3:g}" fill="none" stroke="#c25e00" stroke-width="1.6" '
        'pointer-events="none"/>'
        for source, target in sorted(heatmap.links)
    ]


def _label(word: str) -> str:
    """The word, cut if it is long, with all of it in the tooltip."""
    cut = fit(clean(word), _LONGEST).rstrip()
    return _escape(cut) if cut == word else f"{_escape(cut)}<title>{_escape(word)}</title>"


def _label_width(word: str) -> float:
    return min(display_width(clean(word)), _LONGEST) * _LETTER


def _text_width(text: str) -> float:
    return display_width(clean(text)) * _LETTER


def _escape(text: str) -> str:
    return escape(clean(text), {'"': "&quot;", "'": "&#39;"})
