"""Pictures as PNG, by matplotlib, which is imported when one is drawn.

Figures are built directly, without pyplot, so that no global state of the caller's own plots is touched.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sightline.errors import SightlineError
from sightline.files import replacing
from sightline.plot.heatmap import Heatmap, clean, shade
from sightline.plot.widths import display_width, fit

# Okabe and Ito's colours, which people with any kind of colour vision can tell apart; the marks help in print.
_COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
_MARKS = ("o", "s", "^", "D", "v", "P", "X")
# Asked for in this order, character by character; those not installed are skipped.
_FONTS = ("DejaVu Sans", "Noto Sans", "Noto Sans CJK JP", "Noto Sans CJK SC", "Arial Unicode MS", "Hiragino Sans",
          "PingFang SC", "Microsoft YaHei", "Yu Gothic", "WenQuanYi Zen Hei", "Noto Sans Arabic", "Noto Sans Hebrew",
          "Noto Sans Devanagari", "Noto Emoji", "Segoe UI Symbol")  # fmt: skip
_CELL = 0.26  # inches
_LETTER = 0.085
_LONGEST = 24
_DPI = 144
_MOST_PIXELS = 60_000  # a side; the drawing engine stops at 65,535


def png(heatmaps: Heatmap | Sequence[Heatmap], path: Path | str) -> None:
    """Writes one heat-map, or several below each other, as a PNG file.

    Letters that no installed font has are drawn as boxes, and scripts whose letters join are not shaped: for those
    the SVG and the page are better.
    """
    stack = [heatmaps] if isinstance(heatmaps, Heatmap) else list(heatmaps)
    if not stack:
        raise SightlineError(f"{path}: there is no sentence to draw")
    sizes = [_size(heatmap) for heatmap in stack]
    width, height = max(width for width, _ in sizes), sum(height for _, height in sizes)
    if max(width, height) * _DPI > _MOST_PIXELS:
        raise SightlineError(f"{path}: {len(stack)} sentences are too many for one PNG; draw fewer, or write a page")
    figure = _figure(width, height)
    top = height
    for heatmap, (_, panel_height) in zip(stack, sizes, strict=True):
        _draw(figure, heatmap, width, height, top)
        top -= panel_height
    _save(figure, path)


def line_chart(
    series: Mapping[str, Sequence[tuple[float, float]]],
    path: Path | str,
    x_label: str,
    y_label: str,
    title: str = "",
) -> None:
    """Writes a PNG with one line for each name: its points (x, y)."""
    figure = _figure(7.2, 4.4)
    axes = _chart_axes(figure, x_label, y_label, title)
    for index, (name, points) in enumerate(series.items()):
        _line(axes, index, name, [x for x, _ in points], [y for _, y in points])
    _legend(axes, series)
    _save(figure, path)


def growth_figure(
    panels: Mapping[str, Mapping[str, Sequence[tuple[float, float]]]], path: Path | str, x_label: str, title: str = ""
) -> None:
    """Writes a PNG of panels side by side, each with its lines (x, y) on axes of powers: slopes are exponents."""
    figure = _figure(5.4 * len(panels), 4.4)
    for number, (y_label, series) in enumerate(panels.items()):
        axes = _chart_axes(figure, x_label, y_label, title if number == 0 else "")
        share = 1 / len(panels)
        axes.set_position((share * (number + 0.14), 0.13, share * 0.82, 0.77))
        for index, (name, points) in enumerate(series.items()):
            _line(axes, index, name, [x for x, _ in points], [y for _, y in points])
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        _legend(axes, series)
    _save(figure, path)


def curve_figure(series: Mapping[str, Sequence[tuple[float, float]]], path: Path | str, title: str = "") -> None:
    """Writes BLEU over minutes of training as PNG: for each model its points (minutes, BLEU)."""
    line_chart(series, path, "minutes", "BLEU", title)


def length_figure(series: Mapping[str, Sequence[tuple[str, float]]], path: Path | str, title: str = "") -> None:
    """Writes BLEU by source length as PNG: for each model its points (bucket, BLEU), such as `("1-10", 31.2)`.

    The buckets stand in the order in which they are first met; a model without one of them has a gap.
    """
    labels = list(dict.fromkeys(label for points in series.values() for label, _ in points))
    figure = _figure(7.2, 4.4)
    axes = _chart_axes(figure, "source length (words)", "BLEU", title)
    for index, (name, points) in enumerate(series.items()):
        values = dict(points)
        _line(axes, index, name, range(len(labels)), [values.get(label, float("nan")) for label in labels])
    axes.set_xticks(range(len(labels)), labels, parse_math=False)
    _legend(axes, series)
    _save(figure, path)


def _figure(width: float, height: float) -> Any:
    """An empty figure of that many inches."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise SightlineError("PNG pictures need matplotlib: pip install 'sightline[png]'") from None
    return Figure(figsize=(width, height), dpi=_DPI, facecolor="white")


def _save(figure: Any, path: Path | str) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    FigureCanvasAgg(figure)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r".*[Gg]lyph .*missing")
        warnings.filterwarnings("ignore", message=r"Matplotlib currently does not support")
        with replacing(Path(path)) as beside:
            figure.savefig(beside, format="png", metadata={"Software": None})


def _fonts() -> list[str]:
    from matplotlib.font_manager import fontManager

    installed = {entry.name for entry in fontManager.ttflist}
    return [name for name in _FONTS if name in installed] or ["sans-serif"]


def _size(heatmap: Heatmap) -> tuple[float, float]:
    """Inches a heat-map takes, labels and margins included."""
    left, top, right = _margins(heatmap)
    width = left + len(heatmap.source) * _CELL + right
    title = display_width(clean(heatmap.title)) * _LETTER * 1.1 + 0.3
    return max(width, title, 1.0), top + max(len(heatmap.target), 1) * _CELL + 0.2


def _margins(heatmap: Heatmap) -> tuple[float, float, float]:
    """Inches left of, above and right of the cells."""
    left = max((_label_length(word) for word in heatmap.target), default=0.0) + 0.25
    label = max((_label_length(word) for word in heatmap.source), default=0.0)
    return left, 0.8 * label + (0.4 if heatmap.title else 0.0) + 0.25, 0.7 * label + 0.2


def _labels(words: Sequence[str]) -> list[str]:
    return [fit(clean(word), _LONGEST).rstrip() for word in words]


def _label_length(word: str) -> float:
    return min(display_width(clean(word)), _LONGEST) * _LETTER


def _draw(figure: Any, heatmap: Heatmap, width: float, height: float, top: float) -> None:
    """One heat-map whose upper edge is `top` inches above the bottom of a figure of that width and height."""
    left, above, _ = _margins(heatmap)
    columns, rows = len(heatmap.source), len(heatmap.target)
    fonts = {"fontfamily": _fonts(), "parse_math": False}
    if heatmap.title:
        figure.text(0.15 / width, (top - 0.25) / height, clean(heatmap.title), weight="bold", fontsize=10, **fonts)
    if not columns or not rows:
        return
    bottom = top - above - rows * _CELL
    axes = figure.add_axes((left / width, bottom / height, columns * _CELL / width, rows * _CELL / height))
    axes.imshow(shade(heatmap.weights), cmap="Blues", vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    for source, target in heatmap.links:
        axes.add_patch(_outline(source, target))
    axes.xaxis.tick_top()
    above_cells, beside_cells = _labels(heatmap.source), _labels(heatmap.target)
    axes.set_xticks(range(columns), above_cells, rotation=50, ha="left", rotation_mode="anchor", fontsize=9, **fonts)
    axes.set_yticks(range(rows), beside_cells, fontsize=9, **fonts)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_color("#c8ced6")


def _outline(source: int, target: int) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((source - 0.42, target - 0.42), 0.84, 0.84, fill=False, edgecolor="#c25e00", linewidth=1.1)


def _chart_axes(figure: Any, x_label: str, y_label: str, title: str) -> Any:
    axes = figure.add_axes((0.1, 0.13, 0.87, 0.77 if title else 0.83))
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    if title:
        axes.set_title(clean(title), fontsize=11, loc="left", parse_math=False, fontfamily=_fonts())
    axes.grid(axis="y", color="#e3e7ec")
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return axes


def _line(axes: Any, index: int, name: str, x: Sequence[float], y: Sequence[float]) -> None:
    color, mark = _COLORS[index % len(_COLORS)], _MARKS[index % len(_MARKS)]
    # A leading underscore would hide the name from the legend.
    axes.plot(x, y, color=color, marker=mark, markersize=5, linewidth=1.8, label=clean(name).lstrip("_") or "?")


def _legend(axes: Any, series: Mapping[str, Any]) -> None:
    if series:
        legend = axes.legend(frameon=False)
        for text in legend.get_texts():
            text.set_parse_math(False)
            text.set_fontfamily(_fonts())
