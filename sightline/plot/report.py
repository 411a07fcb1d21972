"""A run in one page: curves, attention over its time, BLEU by length, examples, facts. One file, no network.

Shapes: L layers, H heads, T target words, S source words.

The page is whole without its script: pictures and tables are drawn here. report.js adds what moves: values under the
pointer, and the attention of other steps, layers and heads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from sightline.links import select
from sightline.plot.charts import Chart, chart_svg, marks
from sightline.plot.heatmap import Heatmap, clean
from sightline.plot.page import assembled, inline_json, quantise
from sightline.plot.vector import figure
from sightline.recordings import Seen

Cells = Sequence[str]


@dataclass(frozen=True)
class Table:
    """Headings and rows of text."""

    headings: Cells
    rows: Sequence[Cells]


@dataclass(frozen=True)
class Attention:
    """The same sentences at several steps: `frames[step]` has one `Seen` a sentence, with the same words.

    `notes` says something of a step. `chosen` is the layer and head that tell the alignment, None for an average;
    `sharpest` the head whose rows are most decided at the last step.
    """

    frames: dict[int, list[Seen]]
    notes: dict[int, str]
    chosen: tuple[int | None, int | None] = (None, None)
    sharpest: tuple[int, int | None] | None = None


@dataclass(frozen=True)
class Length:
    """Scores of the sentences of some source lengths."""

    label: str
    sentences: int
    bleu: float
    chrf: float


@dataclass(frozen=True)
class Example:
    """A sentence and its translation, with its chrF."""

    source: str
    reference: str
    translation: str
    chrf: float


@dataclass(frozen=True)
class Report:
    """All that the page tells. `missing` says of a part that is not there why it is not."""

    title: str
    figures: Sequence[tuple[str, str]]
    charts: Sequence[Chart]
    validations: Table
    attention: Attention | None
    lengths: Sequence[Length]
    lengths_note: str
    examples: Sequence[tuple[str, Sequence[Example]]]
    facts: Sequence[tuple[str, str]]
    configuration: str
    missing: dict[str, str]


def report_html(report: Report) -> str:
    """The page as text, with nothing in it that loads from elsewhere."""
    parts = {
        "title": _text(report.title),
        "figures": "".join(
            f"<div><dt>{_text(name)}</dt><dd>{_text(value)}</dd></div>" for name, value in report.figures
        ),
        "charts": "".join(_chart(chart) for chart in report.charts),
        "validations": _table(report.validations),
        "attention": _attention(report),
        "lengths": _lengths(report),
        "examples": _examples(report),
        "facts": "".join(f"<div><dt>{_text(name)}</dt><dd>{_text(value)}</dd></div>" for name, value in report.facts),
        "configuration": "\n".join(_text(line) for line in report.configuration.splitlines()),
        "data": inline_json(
            {"charts": [marks(chart) for chart in report.charts], "attention": _movie(report.attention)}
        ),
    }
    return assembled("report.html", ["page.css", "report.css"], ["page.js", "report.js"], parts)


def _text(text: str) -> str:
    """Text that is no markup, in an element as in an attribute."""
    return escape(clean(text))


def _chart(chart: Chart) -> str:
    keys = [f'<span class="key{number}">{_text(series.name)}</span>' for number, series in enumerate(chart.series)]
    legend = f'<span class="keys">{" ".join(keys)}</span>' if len(keys) > 1 else ""
    return (
        f'<figure class="card curve"><figcaption><h3>{_text(chart.title)}</h3>{legend}</figcaption>{chart_svg(chart)}'
        '<p class="value" aria-live="polite"></p></figure>'
    )


def _table(table: Table) -> str:
    head = "".join(f'<th scope="col">{_text(name)}</th>' for name in table.headings)
    rows = "".join(f"<tr>{''.join(f'<td>{_text(cell)}</td>' for cell in row)}</tr>" for row in table.rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _attention(report: Report) -> str:
    """The heat-maps of the last step, and empty controls, which only the script can fill."""
    if report.attention is None:
        return f'<p class="none">{_text(report.missing["attention"])}</p>'
    frames, chosen = report.attention.frames, report.attention.chosen
    last = max(frames)
    maps = "".join(
        f'<figure class="card map"><figcaption dir="auto">{_text(" ".join(seen.source))}</figcaption>'
        f'<div class="roller">{figure(Heatmap(seen.source, seen.target, select(seen.layers, *chosen)))}</div>'
        '<p class="value" aria-live="polite"></p></figure>'
        for seen in frames[last]
    )
    controls = (
        '<div class="player" hidden><button type="button" id="play" aria-pressed="false">Play</button>'
        f'<label for="moment">Step</label><input type="range" id="moment" min="0" max="{len(frames) - 1}" '
        f'value="{len(frames) - 1}"><output id="told" for="moment">{last:,}</output><span id="picker"></span></div>'
    )
    return f'{controls}<div class="maps">{maps}</div>'


def _movie(attention: Attention | None) -> dict[str, Any] | None:
    """What the script shows: one byte a weight, sentence by sentence and step by step."""
    if attention is None:
        return None
    frames = attention.frames
    return {
        "steps": list(frames),
        "notes": [attention.notes.get(step, "") for step in frames],
        "sharpest": attention.sharpest,
        "sentences": [
            {
                "name": f"sentence {number + 1}",
                "source": [clean(word) for word in seen.source],
                "target": [clean(word) for word in seen.target],
                "heads": [len(weights) for weights in seen.layers],
                "chosen": attention.chosen,
                "frames": [quantise(sentences[number].layers) for sentences in frames.values()],
            }
            for number, seen in enumerate(frames[max(frames)])
        ],
    }


def _lengths(report: Report) -> str:
    if not report.lengths:
        return f'<p class="none">{_text(report.missing["translations"])}</p>'
    highest = max(length.bleu for length in report.lengths) or 1.0
    head = "".join(f'<th scope="col">{name}</th>' for name in ("source words", "sentences", "BLEU", "chrF"))
    rows = "".join(
        f'<tr><th scope="row">{_text(length.label)}</th><td>{length.sentences:,}</td><td><span class="bar">'
        '<svg viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect width="{100 * length.bleu / highest:.1f}" height="10"/></svg>{length.bleu:.1f}</span></td>'
        f"<td>{length.chrf:.1f}</td></tr>"
        for length in report.lengths
    )
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return f'<div class="card roller narrow">{table}</div><p class="note">{_text(report.lengths_note)}</p>'


def _examples(report: Report) -> str:
    if not report.examples:
        return f'<p class="none">{_text(report.missing["translations"])}</p>'
    groups = []
    for name, examples in report.examples:
        cards = "".join(
            f'<li class="card example"><p class="score">chrF {example.chrf:.0f}</p><dl>'
            f'<div><dt>source</dt><dd dir="auto">{_text(example.source)}</dd></div>'
            f'<div><dt>reference</dt><dd dir="auto">{_text(example.reference)}</dd></div>'
            f'<div><dt>translation</dt><dd dir="auto">{_text(example.translation) or "(nothing)"}</dd></div></dl></li>'
            for example in examples
        )
        groups.append(f"<section><h3>{_text(name)}</h3><ul>{cards}</ul></section>")
    return f'<div class="examples">{"".join(groups)}</div>'
