"""What is done to a file that is cut into shards: plain values that travel between processes. No torch here."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sightline.console import presented
from sightline.translation import Translation, nothing
from sightline.wishes import PER_LINE, empty_fields

TEXT, JSON, TABLE = "text", "json", "parquet"
LONGEST_QUOTE = 200  # characters of a failed line that its record keeps


@dataclass(frozen=True)
class Job:
    """How every shard is translated.

    `options` are those of `Translator.plan`, `loading` those of `sightline.load`. `form` is what the output consists
    of: lines of text as `translate` prints them, JSON objects, or rows of a Parquet table.
    """

    model: Path
    options: dict[str, Any] = field(default_factory=dict)
    align: bool = False
    form: str = TEXT
    loading: dict[str, Any] = field(default_factory=dict)

    def settings(self) -> dict[str, Any]:
        """All that the output depends on beside the model and the input, without what was left open."""
        values = {**self.options, **self.loading, "align": self.align, "form": self.form}
        return {name: value for name, value in sorted(values.items()) if value is not None}

    @property
    def beside(self) -> dict[str, Path]:
        """The files that have a line for each line of the input, by the names of their options.

        They are cut with it: a worker gets what belongs to its shard.
        """
        return {name: Path(self.options[name]) for name in PER_LINE if self.options.get(name) is not None}

    @property
    def shared(self) -> dict[str, Any]:
        """The options without those files."""
        return {name: value for name, value in self.options.items() if name not in PER_LINE}

    def nothing(self, shard: Shard, line: int) -> Translation:
        """What stands for the translation of a line that has none, by its number; its record has the fields of the
        others."""
        place = line - shard.first
        requires = shard.beside["requires"][place] if "requires" in shard.beside else ""
        return nothing(shard.lines[place], self.align, empty_fields(self.options, requires))

    def row(self, line: int, one: Translation, failed: bool) -> str:
        """A line's translation as it stands in the output; lines are counted from 1."""
        if self.form == TABLE:
            return "\n".join(_cells(line, one.source, each, failed) for each in [one, *one.others])
        return presented(line - 1, one, self.options.get("n_best") or 1, self.form == JSON)


def _cells(line: int, source: str, one: Translation, failed: bool) -> str:
    cells: dict[str, Any] = {"line": line, "source": source, "text": one.text, "score": one.score}
    if one.alignment is not None:
        cells["alignment"] = one.alignment
    if failed:
        cells |= dict.fromkeys(cells.keys() - {"line", "source"})
    return json.dumps(cells, ensure_ascii=False)


@dataclass(frozen=True)
class Failure:
    """A line that came out empty, and why; lines (of a Parquet file: rows) are counted from 1."""

    line: int
    reason: str
    text: str


@dataclass(frozen=True)
class Shard:
    """Consecutive lines of the input.

    `first` is the number of the first. A line that could not be read is empty here and tells why in `refused`. `read`:
    how many bytes of the input it took. `last`: nothing follows. `beside` has the same lines of files that belong to
    the input: see `Job.beside`.
    """

    number: int
    first: int
    lines: list[str]
    refused: list[Failure]
    read: int
    last: bool
    beside: dict[str, list[str]] = field(default_factory=dict)

    @property
    def place(self) -> str:
        """Where its lines stand, as a person would look for them."""
        return f"lines {self.first:,} to {self.first + len(self.lines) - 1:,}"


@dataclass(frozen=True)
class Translated:
    """What became of a shard: the bytes of its `output`, and the failures among its lines, in their order.

    `blank` is how many of its lines had no word.
    """

    number: int
    lines: int
    read: int
    last: bool
    output: bytes
    failures: list[Failure]
    blank: int = 0


def translated(job: Job, shard: Shard, found: Sequence[Translation], failures: Sequence[Failure]) -> Translated:
    """A shard with the translations of its lines; `failures` are those of them that have none."""
    every = sorted([*shard.refused, *failures], key=lambda failure: failure.line)
    reasons = {failure.line: failure.reason for failure in every}
    rows = []
    for line, one in enumerate(found, shard.first):
        if line in reasons:
            one = job.nothing(shard, line).changed(error=reasons[line])
        rows.append(job.row(line, one, line in reasons))
    blank = sum(not line.strip() for number, line in enumerate(shard.lines, shard.first) if number not in reasons)
    output = "".join(f"{row}\n" for row in rows).encode()
    return Translated(shard.number, len(shard.lines), shard.read, shard.last, output, every, blank)


def lost(job: Job, shard: Shard, reason: str) -> Translated:
    """A shard whose lines all failed for the same reason; those that hold nothing have nothing to lose but what was
    typed for them."""
    numbers = range(shard.first, shard.first + len(shard.lines))
    found = [job.nothing(shard, number) for number in numbers]
    refused = {failure.line for failure in shard.refused}
    begun = shard.beside.get("prefixes") or [job.options.get("prefix") or ""] * len(shard.lines)
    failures = [
        Failure(number, reason, shortened(line))
        for number, line, typed in zip(numbers, shard.lines, begun, strict=True)
        if number not in refused and (line.strip() or typed.strip())
    ]
    return translated(job, shard, found, failures)


def shortened(text: str) -> str:
    """The beginning of a text, for a record."""
    return text if len(text) <= LONGEST_QUOTE else f"{text[:LONGEST_QUOTE]}…"
