"""A comparison as Markdown, with its pictures in files beside it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sightline.comparison.results import Comparison, Table
from sightline.comparison.tables import tables
from sightline.plot.heatmap import clean

LENGTHS, MAPS = "bleu-by-length.svg", "heat-maps"
NO_MAP = "no attention weights to show"


def markdown(comparison: Comparison) -> str:
    """The whole file."""
    found = tables(comparison)
    lines = [f"# {_text(', '.join(arm.name for arm in comparison.arms))}", ""]
    lines += [f"- {_text(line)}" for line in comparison.about]
    order = ["scores", "significance", "lengths", "speed", "differences"]
    for name in order:
        if name == "significance" and len(comparison.arms) < 2:
            continue
        lines += _table(found[name])
        if name == "lengths":
            lines += ["", f"![BLEU by source length]({LENGTHS})"]
    return "\n".join([*lines, *_examples(comparison), *_maps(comparison), ""])


def _table(table: Table) -> list[str]:
    lines = ["", f"## {_text(table.title)}", ""]
    if table.rows:
        lines += [_row(table.headings), f"|---|{'---:|' * (len(table.headings) - 1)}", *map(_row, table.rows), ""]
    return [*lines, *(_text(note) for note in table.notes)]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(_text, cells))} |"


def _examples(comparison: Comparison) -> list[str]:
    seed = comparison.seeds[0]
    lines = ["", "## Side by side", "", f"Translations by the runs of seed {seed}."]
    for title, examples in comparison.examples:
        lines += ["", f"### {title}"]
        for one in examples:
            rows = [("source", comparison.source(one.pair)), ("reference", one.pair.target), *one.translations.items()]
            lines += ["", _row([f"sentence {one.number + 1}", ""]), "|---|---|"]
            lines += [_row([name, text or "(nothing)"]) for name, text in rows]
    return lines


def _maps(comparison: Comparison) -> list[str]:
    lines = ["", "## Where they looked", ""]
    lines.append("Rows are the words of the config's own translation, columns source words; darker is more.")
    for number, (pair, maps) in enumerate(comparison.maps(), 1):
        lines += ["", f"### {_text(comparison.source(pair))}", ""]
        if any(maps.values()):
            lines.append(f"![Heat-maps of sentence {number}]({MAPS}/{number}.svg)")
        without = [name for name, heatmap in maps.items() if heatmap is None]
        if without:
            lines += ["", f"{_text(', '.join(without))}: {NO_MAP}."]
    return lines


def _text(text: str) -> str:
    """Text that is no markup, on one line."""
    return re.sub(r"([\\`*_\[\]<>|#&$~])", r"\\\1", clean(" ".join(text.split())))
