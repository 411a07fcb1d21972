"""What is done to a file that is cut into shards: plain values that travel between processes. No torch here."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sightline.console import presented
from sightline.translation import Translation, nothing

TEXT, JSON, TABLE = "text", "json", "parquet"
LONGEST_QUOTE = 200  # characters of a failed line that its record keeps


@dataclass(frozen=True)
class Job:
    """How every shard is translated.

    `options` are those of `Translator.stream`, `loading` those of `sightline.load`. `form` is what the output consists
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
    how many bytes of the input it took. `last`: nothing follows.
    """

    number: int
    first: int
    lines: list[str]
    refused: list[Failure]
    read: int
    last: bool

    @property
    def place(self) -> str:
        """Where its lines stand, as a person would look for them."""
        return f"lines {self.first:,} to {self.first + len(self.lines) - 1:,}"


@dataclass(frozen=True)
class Translated:
    """What became of a shard: the bytes of its `output`, and the failures among its lines, in their order."""

    number: int
    lines: int
    read: int
    last: bool
    output: bytes
    failures: list[Failure]


def translated(job: Job, shard: Shard, found: Sequence[Translation], failures: Sequence[Failure]) -> Translated:
    """A shard with the translations of its lines; `failures` are those of them that have none."""
    every = sorted([*shard.refused, *failures], key=lambda failure: failure.line)
    failed = {failure.line for failure in every}
    rows = [job.row(line, one, line in failed) for line, one in enumerate(found, shard.first)]
    output = "".join(f"{row}\n" for row in rows).encode()
    return Translated(shard.number, len(shard.lines), shard.read, shard.last, output, every)


def lost(job: Job, shard: Shard, reason: str) -> Translated:
    """A shard whose lines all failed for the same reason; those that hold nothing have nothing to lose."""
    found = [nothing(line, job.align) for line in shard.lines]
    failures = [
        Failure(number, reason, shortened(line)) for number, line in enumerate(shard.lines, shard.first) if line.strip()
    ]
    return translated(job, shard, found, failures)


def shortened(text: str) -> str:
    """The beginning of a text, for a record."""
    return text if len(text) <= LONGEST_QUOTE else f"{text[:LONGEST_QUOTE]}…"
