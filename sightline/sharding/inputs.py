"""Reading a file as a stream and cutting it into shards: the same lines in the same shards, whoever translates them."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from sightline.errors import SightlineError
from sightline.files import (
    BYTE_ORDER_MARK,
    GZIP_MAGIC,
    PACKED,
    ZSTD_MAGIC,
    Watch,
    ignore,
    not_utf8,
    read_lines,
    unpacked,
)
from sightline.readers import parquet_rows
from sightline.sharding.job import TABLE, TEXT, Failure, Shard, shortened
from sightline.wishes import parse_list

LINES = "jsonl"
COLUMN = "source"
LONGEST_LINE = 2**20  # bytes; no model takes so much at once, and a file without line ends must not fill the memory


@dataclass(frozen=True)
class Refused:
    """A line that cannot be read: why, and how it begins."""

    reason: str
    text: str


def form_of(path: Path) -> str:
    """How a file is read, by its name: "parquet", "jsonl", or else "text"."""
    plain = Path(path.stem) if path.suffix.lower() in PACKED else path
    if path.suffix.lower() == ".parquet":
        return TABLE
    return LINES if plain.suffix.lower() == ".jsonl" else TEXT


def cut(path: Path, size: int, beside: Mapping[str, Path] | None = None) -> Iterator[Shard]:
    """The shards of a file, in order, each of `size` lines but for the last; an empty file has one of no lines.

    Files `beside` it, by their options' names, have a line for each of its lines.
    """
    others = {name: read_lines(other) for name, other in (beside or {}).items()}
    for shard in _cut(path, size):
        lines = {name: list(islice(each, len(shard.lines))) for name, each in others.items()}
        for name, found in lines.items():
            if len(found) != len(shard.lines):  # it was as long when the work began
                assert beside is not None
                raise SightlineError(f"{beside[name]}: has changed while {path} was translated; start again")
        yield replace(shard, beside=lines)


def check_counts(path: Path, beside: Mapping[str, Path]) -> None:
    """Refuses files beside the input that have more or fewer lines, or one that cannot be read."""
    if not beside:
        return
    count = sum(1 for _ in sources(path))
    for name, other in beside.items():
        own = 0
        for own, line in enumerate(read_lines(other), 1):
            parse_list(name, [line], str(other), own)
        if own != count:
            raise SightlineError(f"{other}: {own:,} {name} for the {count:,} lines of {path}: give one for each line")


def _cut(path: Path, size: int) -> Iterator[Shard]:
    read = 0

    def count(more: int) -> None:
        nonlocal read
        read += more

    number = 0
    lines: list[str] = []
    refused: list[Failure] = []
    for line in sources(path, count):
        if len(lines) == size:
            yield Shard(number, number * size + 1, lines, refused, read, last=False)
            number, lines, refused, read = number + 1, [], [], 0
        if isinstance(line, Refused):
            refused.append(Failure(number * size + len(lines) + 1, line.reason, line.text))
        lines.append("" if isinstance(line, Refused) else line)
    yield Shard(number, number * size + 1, lines, refused, read, last=True)


def sources(path: Path, watch: Watch = ignore) -> Iterator[str | Refused]:
    """What is to be translated: the lines of a text, the `source` of JSON lines, the column `source` of a table.

    `watch` is told of the bytes read.
    """
    form = form_of(path)
    if form == TABLE:
        return (_cell(value) for (value,) in parquet_rows(path, (COLUMN,), watch))
    if form == LINES:
        return (_json_source(line) for line in _text_lines(path, watch))
    return _text_lines(path, watch)


def longer_than(path: Path, most: int) -> bool:
    """Whether a text has more lines than `most`; no more of it is read."""
    with closing(_raw_lines(path, ignore)) as lines:
        return any(number > most for number, _ in enumerate(lines, 1))


def _text_lines(path: Path, watch: Watch) -> Iterator[str | Refused]:
    for number, (raw, whole) in enumerate(_raw_lines(path, watch), 1):
        line = raw.removeprefix(BYTE_ORDER_MARK) if number == 1 else raw
        line = line.removesuffix(b"\n").removesuffix(b"\r")
        try:
            yield line.decode() if whole else Refused(f"longer than {LONGEST_LINE:,} bytes", _legible(line))
        except UnicodeDecodeError as error:
            reason = not_utf8(line, error)
            if number == 1 and line.startswith((GZIP_MAGIC, ZSTD_MAGIC)):
                raise SightlineError(f"{path}: {reason}") from None
            yield Refused(reason, _legible(line))


def _raw_lines(path: Path, watch: Watch) -> Generator[tuple[bytes, bool]]:
    """Lines of bytes, and whether each is whole: of one that is too long only the beginning is kept."""
    number = 0
    # Of a packed file only the blocks that are read can be told, of a plain one every line.
    packed = path.suffix.lower() in PACKED
    with unpacked(path, lambda: f", after line {number}" if number else "", watch if packed else ignore) as stream:
        while line := stream.readline(LONGEST_LINE):
            piece, size = line, len(line)
            while len(piece) == LONGEST_LINE and not piece.endswith(b"\n"):
                piece = stream.readline(LONGEST_LINE)
                size += len(piece)
            if not packed:
                watch(size)
            yield line, size == len(line)
            number += 1


def _json_source(line: str | Refused) -> str | Refused:
    if isinstance(line, Refused):
        return line
    try:
        value: Any = json.loads(line)[COLUMN]
        value.encode()  # half of a surrogate pair is no character
    except (ValueError, RecursionError, TypeError, LookupError, AttributeError):
        return Refused(f"expected a JSON object whose '{COLUMN}' is a text", shortened(line))
    return str(value)


def _cell(value: Any) -> str | Refused:
    if isinstance(value, str):
        return value
    return Refused("no text" if value is None else "not a text", "" if value is None else shortened(str(value)))


def _legible(line: bytes) -> str:
    return shortened(line.decode("utf-8", "backslashreplace"))
