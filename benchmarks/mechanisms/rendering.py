"""The pages of the atlas, from its texts, the records and the pictures that there are."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from benchmarks.mechanisms.entries import Atlas, Measured, Page, Row
from benchmarks.mechanisms.material import SHOWN
from benchmarks.mechanisms.pictures import picture_name
from benchmarks.mechanisms.records import told_budget
from benchmarks.readme_tables import paragraph, table

MAPS = "heat-maps"
RECORD = "atlas.json"
HEADS = {
    "bleu": "BLEU",
    "chrf": "chrF",
    "perplexity": "perplexity",
    "word_perplexity": "perplexity of a word",
    "bits_per_character": "bits a character",
    "sharpness": "sharpness",
    "missed": "missed, %",
    "repeated": "repeated, %",
    "updates": "updates",
    "tokens_per_second": "tokens/s",
    "parameters": "parameters",
}
ABOUT = {
    "sharpness": "Sharpness is 1 where every row of weights lies on one place and 0 where it is even.",
    "missed": "Missed are source words that a whole translation gave less than a quarter of weight in all.",
    "repeated": "Repeated are pairs of words that stood in the same translation before.",
}

UNMEASURED = "not measured yet"

Records = Mapping[str, Mapping[str, Any]]


def read_records(results: Path, atlas: Atlas) -> dict[str, Any]:
    """The records that the pages are made of, by their names; those that are not there are left out."""
    names = {RECORD, *(one.record for page in atlas.pages.values() for one in page.measured)}
    paths = {name: results / name for name in sorted(names)}
    return {name: json.loads(path.read_text(encoding="utf-8")) for name, path in paths.items() if path.exists()}


# One page


def page_text(page: Page, atlas: Atlas, records: Records, pictures: Collection[str]) -> str:
    """A mechanism's whole page; `pictures` are the names of heat-maps that lie beside it."""
    parts = [
        f"# {page.title}",
        paragraph(page.problem),
        "## Equation",
        f"```\n{page.equation}\n```",
        "## Configuration",
        *_configuration(page),
        "## Measured",
        *_measured(page, records, pictures),
        "## When not to use it",
        paragraph(page.avoid),
        "## Where it is",
        "\n".join(
            [
                f"- code: {', '.join(code_link(name) for name in page.code)}",
                f"- tests: {', '.join(test_link(name) for name in page.tests)}",
                *(f"- paper: {name}, [{atlas.papers[name][0]}]({atlas.papers[name][1]})" for name in page.papers),
                "- [all mechanisms](README.md)",
            ]
        ),
    ]
    return "\n\n".join(parts) + "\n"


def _configuration(page: Page) -> list[str]:
    found = []
    if page.config is None:
        return ["There is no key for it."]
    found.append(f"```yaml\n{yaml.safe_dump(page.config, default_flow_style=None, sort_keys=False, width=100)}```")
    if page.command:
        found.append(f"```\n{page.command}\n```")
    return found


def _measured(page: Page, records: Records, pictures: Collection[str]) -> list[str]:
    found = []
    if page.arm and page.twin:
        found += _trained(page, page.arm, page.twin, records.get(RECORD, {}))
        drawn = {"With it": page.arm, f"Twin: {page.lacks}": page.twin}
        found += _maps({what: name for what, name in drawn.items() if name in pictures})
    for one in page.measured:
        found += _elsewhere(one, records, pictures)
    return found or [paragraph(page.unmeasured or "Nothing: see below.")]


def _trained(page: Page, arm: str, twin: str, record: Mapping[str, Any]) -> list[str]:
    """An arm of the atlas beside its twin."""
    again = f"`python benchmarks/atlas.py --data DIR --only {page.name}`"
    missing = [name for name in (arm, twin) if name not in record]
    failed = [f"`{name}` failed ({record[name]['failed']})" for name in (arm, twin) if "failed" in record.get(name, {})]
    if failed:
        return [paragraph(f"Not measured: {'; '.join(failed)}. {again} tries again.")]
    if missing:
        return [paragraph(f"Not measured yet: {again} trains it and its twin ({page.lacks}).")]
    found, other = record[arm], record[twin]
    keys = [key for key in HEADS if any(_number(one, key) is not None for one in (found, other))]
    rows = [["**with it**", found], [f"twin: {page.lacks}", other]]
    cells = [[name, *(_told(one, key) for key in keys)] for name, one in rows]
    text = f"{found['pairs']:,} pairs of Tatoeba, English to German, {told_budget(found)}, one seed"
    if "bleu" in found:
        text += f"; {found['sentences']:,} held-out sentences, beam 5 (`{found['bleu']['signature']}`)"
    text += ". With one seed a small difference may be luck. " + " ".join(ABOUT[key] for key in keys if key in ABOUT)
    if "sharpness" in keys and found["config"]["model"]["recipe"] == "transformer":
        text += " Of a Transformer it is the mean of the heads of the layer before the last that is looked at"
        head = found["config"].get("alignment", {}).get("head")
        text += "." if head is None else f"; with it, head {head} of that layer alone."
    made = f"[The record](../../benchmarks/results/{RECORD}), made again by {again}."
    return [paragraph(f"{text} {made}"), table(["arm", *(HEADS[key] for key in keys)], cells, len(keys))]


def _maps(drawn: Mapping[str, str]) -> list[str]:
    """The pictures of arms, by what they are called."""
    if not drawn:
        return []
    shown = " and ".join(f"“{pair.source}”" for pair in SHOWN)
    about = (
        f"Where they looked as they were about to write each word of the reference, for {shown}: a row for each target "
        "word, darker is more, links are framed."
    )
    return [paragraph(about), *(f"{what}:\n\n{_picture(name)}" for what, name in drawn.items())]


def _picture(name: str) -> str:
    return f"![Heat-map of {name}]({MAPS}/{name}.svg)"


def _number(found: Mapping[str, Any], key: str) -> float | None:
    value = found.get(key)
    return value["value"] if isinstance(value, Mapping) else value


def _told(found: Mapping[str, Any], key: str) -> str:
    value = _number(found, key)
    if value is None:
        return "–"
    if key in ("updates", "tokens_per_second", "parameters"):
        return f"{value:,.0f}"
    return (
        f"{value:.2f}"
        if key in ("perplexity", "word_perplexity", "bits_per_character", "sharpness")
        else f"{value:.1f}"
    )


def _elsewhere(measured: Measured, records: Records, pictures: Collection[str]) -> list[str]:
    """Figures of another benchmark's record."""
    record = records.get(measured.record, {})
    found = {name: _inside(record, path) for name, path in measured.rows.items()}
    if not any(found.values()):
        return [paragraph(f"Not measured yet: `{measured.command}` will. {measured.about}")]
    cells = [[name, *_cells(one, [*measured.columns.values()])] for name, one in found.items()]
    made = f"[The record](../../benchmarks/results/{measured.record}), made again by `{measured.command}`."
    drawn = {name: picture_of(measured, path) for name, path in measured.rows.items()}
    return [
        paragraph(f"{measured.about} {made}"),
        table(["arm", *measured.columns], cells, len(measured.columns)),
        *(f"{what}:\n\n{_picture(name)}" for what, name in drawn.items() if name in pictures),
    ]


def _cells(found: Any, columns: Sequence[Sequence[str]]) -> list[str]:
    """The figures of one row, or why there are none."""
    if found is not None and "failed" not in found:
        return [_plain(_inside(found, path)) for path in columns]
    return [UNMEASURED if found is None else "failed", *["–"] * (len(columns) - 1)]


def picture_of(measured: Measured, path: Sequence[str]) -> str:
    """The name of the heat-map of an arm, which tells another benchmark's name."""
    return path[0] if measured.record == RECORD else picture_name(measured.record, path)


def lookup(found: Any, path: Sequence[str]) -> Any:
    """What lies there in a record, else a KeyError; `name=value` chooses from a list the entry that has this value."""
    for key in path:
        if isinstance(found, list):
            name, _, value = key.partition("=")
            entries = [one for one in found if str(one.get(name)) == value]
            found = {key: entries[0]} if entries else {}
        if not isinstance(found, Mapping):
            raise KeyError(key)
        found = found[key]
    return found


def _inside(found: Any, path: Sequence[str]) -> Any:
    try:
        return lookup(found, path)
    except KeyError:
        return None


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        value = value.get("value")
    if isinstance(value, float):
        return f"{value:g}" if value == round(value, 3) else f"{value:.1f}"
    return "–" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


# The index


def code_link(name: str) -> str:
    """A file of the program, from the pages' folder."""
    return f"[`{name}`](../../sightline/{name})"


def test_link(name: str) -> str:
    """A file of tests."""
    return f"[`{name}`](../../tests/{name})"


def row_cells(row: Row, page: Page | None) -> list[str]:
    """A row of the index."""
    return [
        row.mechanism,
        ", ".join(f"`{key}`" for key in row.config) or "–",
        ", ".join(map(code_link, row.code)),
        ", ".join(map(test_link, row.tests)),
        f"[{page.name}]({page.name}.md)" if page else "–",
        "; ".join(row.paper) or "–",
    ]


def index_text(atlas: Atlas) -> str:
    """The page that lists all mechanisms."""
    about = """Each row is a config away; the files are where the equations stand. `sightline config RECIPE` prints
        every key. Keys without a section are of `model` (`attention.score` is `model.attention.score`). A mechanism's
        page tells what it is for, its equation in the code's own names, its configuration, what was measured of it
        beside its twin without it, and when not to use it."""
    made = """The pages are written by `python benchmarks/atlas.py --pages` from `benchmarks/mechanisms/texts` and the
        records in `benchmarks/results`; `python benchmarks/atlas.py --data DIR` trains the arms first.
        [Notes](notes.md) tell how each is held to its paper, and what is often said and not so. [One position at a
        time](../hard_attention.md), [several sources](../many_sources.md), [documents](../documents.md), [long
        sequences](../efficient.md), [copying and lexicons](../copying.md), [teaching attention](../guided.md) and
        [language models](../language_models.md) are told of as a whole elsewhere."""
    about, made = (" ".join(text.split()) for text in (about, made))
    rows = [row_cells(row, page) for page in atlas.pages.values() for row in page.rows]
    rows += [row_cells(row, None) for row in atlas.others]
    heads = ["mechanism", "config", "code", "tests", "page", "paper"]
    return "\n\n".join(["# The atlas of attention", paragraph(about), paragraph(made), table(heads, rows, 0)]) + "\n"


def render(atlas: Atlas, records: Records, pictures: Collection[str]) -> dict[str, str]:
    """All pages by their files' names."""
    pages = {f"{name}.md": page_text(page, atlas, records, pictures) for name, page in atlas.pages.items()}
    return {"README.md": index_text(atlas), **pages}
