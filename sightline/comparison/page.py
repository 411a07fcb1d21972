"""A comparison as one HTML file that needs no network and no script."""

from __future__ import annotations

from html import escape

from sightline.comparison.markdown import NO_MAP
from sightline.comparison.results import Comparison, Table
from sightline.comparison.tables import tables
from sightline.plot.heatmap import Heatmap, clean
from sightline.plot.lengths import lengths_svg
from sightline.plot.page import assembled
from sightline.plot.vector import figure


def page(comparison: Comparison) -> str:
    """The page as text, with nothing in it that loads from elsewhere."""
    found = tables(comparison)
    parts = {
        "title": _text(", ".join(arm.name for arm in comparison.arms)),
        "about": "".join(f"<li>{_text(line)}</li>" for line in comparison.about),
        "chart": lengths_svg(*length_series(comparison)),
        "examples": _examples(comparison),
        "maps": _maps(comparison),
        **{name: _table(table) for name, table in found.items()},
    }
    if len(comparison.arms) < 2:
        parts["significance"] = '<p class="none">There is one config only, and nothing to compare it with.</p>'
    parts["against"] = _text(found["significance"].title)
    return assembled("comparison.html", ["page.css", "report.css", "comparison.css"], [], parts)


def length_series(comparison: Comparison) -> tuple[list[str], dict[str, list[float]]]:
    """The buckets of source lengths, and the BLEU of each arm in them."""
    lengths = comparison.lengths
    labels = [bucket.label for bucket in lengths[comparison.first.name]]
    return labels, {name: [bucket.bleu for bucket in buckets] for name, buckets in lengths.items()}


def _text(text: str) -> str:
    """Text that is no markup, in an element as in an attribute."""
    return escape(clean(text))


def _table(table: Table) -> str:
    notes = "".join(f'<p class="note">{_text(note)}</p>' for note in table.notes)
    if not table.rows:
        return notes
    head = "".join(f'<th scope="col">{_text(name)}</th>' for name in table.headings)
    rows = "".join(
        f'<tr><th scope="row">{_text(name)}</th>{"".join(f"<td>{_text(cell)}</td>" for cell in cells)}</tr>'
        for name, *cells in table.rows
    )
    body = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return f'<div class="card roller" tabindex="0">{body}</div>{notes}'


def _examples(comparison: Comparison) -> str:
    groups = []
    for title, examples in comparison.examples:
        cards = []
        for one in examples:
            rows = [("source", comparison.source(one.pair)), ("reference", one.pair.target), *one.translations.items()]
            lines = "".join(
                f'<div><dt>{_text(name)}</dt><dd dir="auto">{_text(text) or "(nothing)"}</dd></div>'
                for name, text in rows
            )
            cards.append(
                f'<li class="card example"><p class="score">sentence {one.number + 1:,}</p><dl>{lines}</dl></li>'
            )
        groups.append(f"<section><h3>{_text(title)}</h3><ul>{''.join(cards)}</ul></section>")
    note = f'<p class="note">Translations by the runs of seed {comparison.seeds[0]}.</p>'
    return f'{note}<div class="examples">{"".join(groups)}</div>'


def _maps(comparison: Comparison) -> str:
    sections = []
    for pair, maps in comparison.maps():
        cards = "".join(_map(name, heatmap) for name, heatmap in maps.items())
        sections.append(
            f'<section><h3 dir="auto">{_text(comparison.source(pair))}</h3><div class="maps">{cards}</div></section>'
        )
    return "".join(sections)


def _map(name: str, heatmap: Heatmap | None) -> str:
    if heatmap is None:
        inside = f'<p class="none">{NO_MAP}</p>'
    else:
        untitled = Heatmap(heatmap.source, heatmap.target, heatmap.weights, "", heatmap.links)
        inside = f'<div class="roller">{figure(untitled)}</div>'
    return f'<figure class="card map"><figcaption>{_text(name)}</figcaption>{inside}</figure>'
