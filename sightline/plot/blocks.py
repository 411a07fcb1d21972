"""Heat-maps in the terminal: shaded blocks that look right on a dark and on a light background."""

from __future__ import annotations

import os
import shutil
import sys

import numpy as np

from sightline.plot.heatmap import Heatmap, clean, shade
from sightline.plot.widths import clusters, display_width, fit

# A cell takes the mark of the highest weight it reaches. Shading mixes the letter colour into the background,
# whichever that is, so it needs to know nothing of the terminal's theme.
_LEVELS = ((0.64, "█"), (0.36, "▓"), (0.16, "▒"), (0.03, "░"), (0.0, "·"))
_LABEL = 18  # the widest row label
_TALLEST = 14  # the longest column label
_LISTED = 3  # source words named for a target word when the grid does not fit
_BLUE, _ORANGE, _DIM, _RESET = "\x1b[38;5;33m", "\x1b[38;5;208m", "\x1b[2m", "\x1b[0m"


def terminal(heatmap: Heatmap, width: int | None = None, color: bool | None = None) -> str:
    """The heat-map as lines of at most `width` columns (the terminal's, when None), without a final newline.

    Rows are target words, columns source words with their labels written downwards. A sentence too long for the
    width becomes a list: each target word with the source words it looks at most.
    `color` None means: when standard output is a terminal and NO_COLOR is not set.
    """
    width = max(shutil.get_terminal_size().columns if width is None else width, 1)
    paint = _wants_color() if color is None else color
    lines = [fit(clean(heatmap.title), width).rstrip()] if heatmap.title else []
    if not heatmap.target or not heatmap.source:
        return "\n".join([*lines, fit(f"(no {'target' if heatmap.source else 'source'} words)", width).rstrip()])
    label = min(max(display_width(clean(word)) for word in heatmap.target), _LABEL)
    cell = _cell_width(heatmap, width - label - 1)
    if cell == 0:
        return "\n".join(lines + _listing(heatmap, width, label, paint))
    legend = "  ".join(f"{mark} from {level:.2f}" for level, mark in reversed(_LEVELS[:-1]))
    lines += _column_labels(heatmap, label, cell) + _rows(heatmap, label, cell, paint)
    return "\n".join([*lines, *([legend] if display_width(legend) <= width else [])])


def _wants_color() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _cell_width(heatmap: Heatmap, room: int) -> int:
    """Columns for a cell: 2, or 1 if that fits and no label has wide characters, or 0 when nothing fits."""
    wide = any(display_width(cluster) > 1 for word in heatmap.source for cluster in clusters(clean(word)))
    for cell in (2,) if wide else (2, 1):
        if len(heatmap.source) * cell <= room:
            return cell
    return 0


def _column_labels(heatmap: Heatmap, label: int, cell: int) -> list[str]:
    words = [clusters(clean(word)) for word in heatmap.source]
    words = [word if len(word) <= _TALLEST else [*word[: _TALLEST - 1], "⋮"] for word in words]
    height = max(len(word) for word in words)
    lines = []
    for line in range(height):
        # Labels stand on the grid, so short words keep their last letter next to it.
        letters = [word[line - height + len(word)] if line >= height - len(word) else "" for word in words]
        lines.append((" " * (label + 1) + "".join(fit(letter, cell) for letter in letters)).rstrip())
    return lines


def _rows(heatmap: Heatmap, label: int, cell: int, paint: bool) -> list[str]:
    weights = np.nan_to_num(heatmap.weights)
    lines = []
    for word, row in zip(heatmap.target, weights, strict=True):
        marks = [_mark(float(weight), cell) for weight in row]
        if paint:
            top = int(row.argmax())
            marks = [_painted(mark, column == top) for column, mark in enumerate(marks)]
        lines.append(f"{fit(clean(word), label, 'right')} {''.join(marks)}".rstrip())
    return lines


def _mark(weight: float, cell: int) -> str:
    mark = next((mark for level, mark in _LEVELS if weight >= level), "·")
    return fit(mark, cell) if mark == "·" else mark * cell


def _painted(mark: str, top: bool) -> str:
    if mark[0] == "·":
        return f"{_DIM}{mark}{_RESET}"
    return f"{_ORANGE if top else _BLUE}{mark}{_RESET}"


def _listing(heatmap: Heatmap, width: int, label: int, paint: bool) -> list[str]:
    """`Haus ← house 0.82, the 0.09`, cut to the width."""
    lines = []
    for word, row in zip(heatmap.target, np.nan_to_num(heatmap.weights), strict=True):
        top = [index for index in np.argsort(-row, kind="stable")[:_LISTED] if shade(row[index]) >= 0.1]
        named = ", ".join(f"{clean(heatmap.source[index])} {row[index]:.2f}" for index in top) or "nothing"
        line = fit(f"{fit(clean(word), label, 'right')} ← {named}", width).rstrip()
        lines.append(line.replace("←", f"{_DIM}←{_RESET}", 1) if paint else line)
    return lines
