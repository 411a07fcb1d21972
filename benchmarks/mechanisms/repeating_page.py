"""The record of `benchmarks/repeating.py` as tables. No torch here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.mechanisms.records import Result, divided, told_budget
from benchmarks.mechanisms.repetition import SIZES
from benchmarks.readme_tables import paragraph, table

Path = tuple[str, ...]
Columns = Mapping[str, Path]

QUALITY: Columns = {
    "BLEU": ("bleu",),
    "chrF": ("chrf",),
    "length": ("length",),
    "missed": ("missed",),
    "dropped": ("dropped",),
    "loops": ("loops",),
    "cut": ("cut",),
}
AGAIN: Columns = {
    f"{head}, {size}": (key, str(size)) for key, head in (("repeated", "again"), ("beyond", "beyond")) for size in SIZES
}
BY_LENGTH: Columns = {
    "BLEU": ("bleu",),
    "Words of the translations, % of those of the references": ("length",),
    "Pairs of words again, beyond the references, %": ("beyond", "2"),
    "Phrases of four words again, beyond the references, %": ("beyond", "4"),
    "Loops, %": ("loops",),
}
# Where the figures of the references themselves lie.
OWN: Mapping[Path, Path] = {
    ("loops",): ("reference_loops",),
    **{("repeated", str(size)): ("reference", str(size)) for size in SIZES},
}
ABOUT = (
    "All but scores are percentages. Length is words of the translations, of those of the references. Missed are "
    "source words that got less than a quarter of weight in all; dropped, loops and cut are translations that are "
    "flagged for it. Again are phrases of one to four words that a text has had before, beyond those of them that a "
    "translation has more often than its reference. With one seed a small difference may be luck."
)


def page(record: Mapping[str, Result]) -> str:
    """All lengths, the long ones, and length by length; an arm that failed is told with its reason."""
    done, failed = divided(record)
    parts = ["# Dropping and repeating"]
    if done:
        first = next(iter(done.values()))
        parts += [paragraph(f"{budget(first)} {ABOUT}"), paragraph(made(first))]
        parts += part_tables("All lengths", done, "all")
        parts += part_tables(f"Long sources: more than {first['long_above']} words", done, "long")
        parts.append("## By length of the source, in words")
        for title, path in BY_LENGTH.items():
            parts += [f"{title}:", lengths_table(done, path)]
    parts += map(paragraph, failed)
    return "\n\n".join(parts) + "\n"


def budget(found: Result) -> str:
    """On what, how long and where the arms were trained and tested."""
    return (
        f"Europarl, English to German: {found['pairs']:,} pairs and passages of two sentences, {told_budget(found)} "
        f"of {found['machine']['cpu']}, one seed; {found['all']['sentences']:,} sentences of the "
        f"test part, at most {found['held_out']:,} of each length (`{found['signatures'][0]}`)."
    )


def made(found: Result) -> str:
    """Where the figures come from."""
    return f"[The record](repeating.json), made again by `{found['command']}`."


def title_of(found: Result) -> str:
    """An arm as its row is called."""
    return f"{found['title']}, beta {found['beta']:g}" if "beta" in found else found["title"]


def part_tables(title: str, done: Mapping[str, Result], part: str) -> list[str]:
    """How good they are and what they leave out, then what they say again; nothing if there are no such sources."""
    there = [found for found in done.values() if found[part]]
    if not there:
        return []
    found = []
    for columns, updates in ((QUALITY, True), (AGAIN, False)):
        rows = [
            [title_of(one), *([f"{one['updates']:,}"] * updates), *(cell(one[part], path) for path in columns.values())]
            for one in there
        ]
        own = [cell(there[0][part], OWN[path]) if path in OWN else "–" for path in columns.values()]
        rows.append(["the references", *(["–"] * updates), *own])
        heads = ["arm", *(["updates"] * updates), *columns]
        found.append(table(heads, rows, len(heads) - 1))
    return [f"## {title}", *found]


def lengths_table(done: Mapping[str, Result], path: Path) -> str:
    """One figure by length, a row an arm."""
    labels = [*dict.fromkeys(label for found in done.values() for label in found["lengths"])]
    rows = [[title_of(one), *(cell(one["lengths"].get(label), path) for label in labels)] for one in done.values()]
    return table(["arm", *labels], rows, len(labels))


def cell(found: Result | None, path: Sequence[str]) -> str:
    """One figure, or that there is none."""
    value: object = found
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return f"{value:.2f}" if isinstance(value, int | float) else "–"
