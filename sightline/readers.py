"""Pairs of sentences from files: plain parallel text, .tsv, .csv, .jsonl, .parquet and .tmx; and text without a source.

Everything is a stream, so that a corpus may be larger than the memory. Each pair comes with the number of its line (of
a Parquet file: its row), and a mistake is told with it. Text may be packed: `.gz` or `.zst` after the name.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from sightline.errors import SightlineError
from sightline.files import PACKED, Watch, failure, ignore, read_lines
from sightline.source_texts import joined, source_names
from sightline.tmx import read_tmx

FORMATS = (".tsv", ".csv", ".jsonl", ".json", ".parquet", ".tmx")
ROWS_AT_ONCE = 4096
NUMBERS = {2: "two", 3: "three"}


class Pair(NamedTuple):
    """A source sentence and its target. The text of a language model is a target whose source is empty.

    Several sources are one line with tabs between them: see `sightline.source_texts`.
    """

    source: str
    target: str


Numbered = Iterator[tuple[int, Pair]]


@dataclass(frozen=True)
class TextFiles:
    """Where pairs are read from: two parallel files, or one file of pairs. `given` makes it, and checks.

    With `alone` the only file is text without a source, one sentence or paragraph a line. Of several `sources` each has
    a file, before that of the target, or a column of the file of pairs.
    """

    paths: tuple[Path, ...]
    languages: tuple[str | None, str | None] = (None, None)
    alone: bool = False
    sources: int = 1

    @staticmethod
    def given(
        source: Path | Sequence[Path] | None = None,
        target: Path | None = None,
        pairs: Path | None = None,
        languages: tuple[str | None, str | None] = (None, None),
        text: Path | None = None,
        sources: int = 1,
    ) -> TextFiles:
        """Refuses what does not go together; `languages` are those of a .tmx file to read."""
        every = paths_of(source)
        if text is not None:
            if every or target is not None or pairs is not None:
                raise SightlineError("give either text without a source, for a language model, or pairs, not both")
            return TextFiles((text,), alone=True)
        if pairs is not None:
            if every or target is not None:
                raise SightlineError("give either a source and a target file or one file of pairs, not both")
            files = TextFiles((pairs,), languages, sources=sources)
            if files.form == ".tmx" and sources > 1:
                raise SightlineError(
                    f"{pairs}: a .tmx file has one source, and the model reads {sources}: give a file for each with "
                    "--source, or a .tsv file with a column for each"
                )
            if files.form == ".tmx" and not all(languages):
                raise SightlineError(
                    f"{pairs}: a .tmx file may hold many languages: set data.source_language and data.target_language "
                    "(to evaluate and align: in the model's config.yaml)"
                )
            return files
        if every and target is not None:
            check_source_files(every, sources)
            return TextFiles((*every, target), sources=sources)
        alone = every[0] if every else target
        found = f"{alone} is one side only" if alone else "no text is given"
        raise SightlineError(f"{found}: give a source and a target file, or one file of pairs")

    @property
    def form(self) -> str:
        """The suffix that tells the format, `.gz` and `.zst` aside; empty for two parallel files, "text" for text."""
        if self.alone:
            return "text"
        if len(self.paths) > 1:
            return ""
        (path,) = self.paths
        plain = Path(path.stem) if path.suffix.lower() in PACKED else path
        form = plain.suffix.lower()
        if path.is_dir():
            raise SightlineError(f"{path}: this is a folder; name a file of pairs in it")
        if form not in FORMATS or (form == ".parquet" and plain != path):
            raise SightlineError(
                f"{path}: a file of pairs must end in .tsv, .csv, .jsonl, .parquet or .tmx (text also with .gz or .zst "
                "after it); for two plain text files give source and target"
            )
        return form

    def read(self, watch: Watch = ignore) -> Numbered:
        """The pairs, those with an empty side included, each with its line; `watch` is told of the bytes read."""
        form, path = self.form, self.paths[0]
        if not form:
            return _read_parallel(self.paths, watch)
        if self.alone:
            return ((number, Pair("", line)) for number, line in enumerate(read_lines(path, watch), start=1))
        if form == ".tsv":
            return _read_tab_separated(path, self.sources, watch)
        if form == ".csv":
            return _read_comma_separated(path, self.sources, watch)
        if form == ".parquet":
            return _read_parquet(path, self.sources, watch)
        if form == ".tmx":
            source, target = (language or "" for language in self.languages)
            units = read_tmx(path, source, target, watch)
            return ((line, Pair(_one_line(left), _one_line(right))) for line, left, right in units)
        return _read_json_lines(path, self.sources, watch)

    def all(self) -> list[Pair]:
        """All pairs, which must be some."""
        found = [pair for _, pair in self.read()]
        if not found:
            raise SightlineError(f"{self.paths[0]}: the file is empty")
        return found

    def where(self, line: int) -> str:
        """The place of a pair as a person would look for it."""
        return f"{self.paths[0]}, {'row' if self.form == '.parquet' else 'line'} {line}"


def paths_of(given: Path | Sequence[Path] | None) -> tuple[Path, ...]:
    """The files that a setting names, which may be a list."""
    if given is None:
        return ()
    return (given,) if isinstance(given, Path) else tuple(given)


def read_source_files(paths: Sequence[Path], count: int) -> Iterator[str]:
    """The lines of a file, or of one for each of `count` sources: as one line each, with tabs between the sources.

    A single file may have such lines itself.
    """
    if len(paths) == 1:
        return read_lines(paths[0])
    check_source_files(paths, count)
    return (joined(lines) for _, lines in _together(paths))


def check_source_files(paths: Sequence[Path], count: int) -> None:
    """Refuses more or fewer files than there are sources."""
    if len(paths) != count:
        raise SightlineError(
            f"{len(paths)} source file{'s' * (len(paths) != 1)} ({', '.join(map(str, paths))}), and the model reads "
            f"{count} source{'s' * (count != 1)}: give a file for each"
        )


def _pair(sources: Sequence[str], target: str) -> Pair:
    return Pair(sources[0] if len(sources) == 1 else joined(sources), target)


def _read_parallel(paths: Sequence[Path], watch: Watch) -> Numbered:
    return ((number, _pair(lines[:-1], lines[-1])) for number, lines in _together(paths, watch))


def _together(paths: Sequence[Path], watch: Watch = ignore) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Lines of the same number of all files; it is a mistake if one has more than another."""
    lines = zip_longest(*(read_lines(path, watch) for path in paths))
    for number, found in enumerate(lines, start=1):
        if None in found:
            longer, shorter = (paths[[side is None for side in found].index(missing)] for missing in (False, True))
            total = number + sum(1 for rest in lines if rest[paths.index(longer)] is not None)
            raise SightlineError(
                f"{longer} has {total} lines, {shorter} {number - 1}: line {number} of {longer} has no partner"
            )
        yield number, found


def _read_tab_separated(path: Path, sources: int, watch: Watch) -> Numbered:
    named = "source and target with one tab between them"
    if sources > 1:
        named = f"{sources} sources and the target with tabs between them"
    for number, line in enumerate(read_lines(path, watch), start=1):
        columns = line.split("\t")
        if len(columns) != sources + 1:
            found = "an empty line" if not line else _columns(len(columns))
            wanted = ",".join(map(str, range(1, sources + 2)))
            remedy = f"; keep {NUMBERS.get(sources + 1, sources + 1)}, as with: cut -f{wanted}"
            raise SightlineError(
                f"{path}, line {number}: expected {NUMBERS.get(sources + 1, sources + 1)} columns, {named}, "
                f"found {found}{remedy if len(columns) > sources + 1 else ''}"
            )
        yield number, _pair(columns[:-1], columns[-1])


def _read_comma_separated(path: Path, sources: int, watch: Watch) -> Numbered:
    """Python's own rules of CSV. A sentence over several lines, which quotes allow, becomes one line."""
    rows = csv.reader((f"{line}\n" for line in read_lines(path, watch)), strict=True)
    wanted = [*source_names(sources), "target"]
    line, chosen, width = 1, [*range(len(wanted))], len(wanted)
    listed = f"{', '.join(wanted[:-1])} and target"
    expected = f"{NUMBERS.get(width, width)} columns, {listed}, or a first line that names them among others"
    try:
        for row in rows:
            names = [name.strip().lower() for name in row] if line == 1 else []
            if {*wanted} <= {*names}:
                chosen, width = [names.index(name) for name in wanted], len(row)
                expected = f"{_columns(width)}, as in the first line"
            elif len(row) != width:
                found = _columns(len(row)) if row else "an empty line"
                raise SightlineError(f"{path}, line {line}: expected {expected}, found {found}")
            else:
                *texts, target = (_one_line(row[place]) for place in chosen)
                yield line, _pair(texts, target)
            line = rows.line_num + 1
    except csv.Error as error:
        raise SightlineError(f"{path}, line {line}: broken CSV: {error}; is a quotation mark missing?") from None


def _read_json_lines(path: Path, sources: int, watch: Watch) -> Numbered:
    names = (*source_names(sources), "target")
    for number, line in enumerate(read_lines(path, watch), start=1):
        try:
            yield number, _parse_json(line, names)
        except ValueError as error:
            raise SightlineError(f"{path}, line {number}: {error}") from None


def _parse_json(line: str, names: Sequence[str]) -> Pair:
    expected = f"an object with {', '.join(map(repr, names[:-1]))} and 'target'"
    try:
        values: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        detail = "an empty line" if not line.strip() else getattr(error, "msg", "it is nested too deeply")
        raise ValueError(f"not valid JSON ({detail}); expected one object a line") from None
    if not isinstance(values, dict):
        raise ValueError(f"expected {expected}")
    for key in names:
        value = values.get(key)
        if not isinstance(value, str):
            what = "is missing" if key not in values else "must be a string"
            raise ValueError(f"'{key}' {what}; expected {expected}")
        if any("\ud800" <= character <= "\udfff" for character in value):
            raise ValueError(f"'{key}' has half of a surrogate pair, which is no character")
    *texts, target = (_one_line(values[key]) for key in names)
    return _pair(texts, target)


def _read_parquet(path: Path, sources: int, watch: Watch) -> Numbered:
    names = (*source_names(sources), "target")
    for row, values in enumerate(parquet_rows(path, names, watch), 1):
        yield row, _checked(path, row, names, values)


def parquet_rows(path: Path, columns: Sequence[str], watch: Watch = ignore) -> Iterator[tuple[Any, ...]]:
    """The values of these columns, row by row, only some thousands of them in memory; `watch` is told of the bytes."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise SightlineError(f"{path}: reading Parquet needs pyarrow: pip install 'sightline[parquet]'") from None
    row = 0
    try:
        with open(path, "rb") as stream, parquet.ParquetFile(stream, page_checksum_verification=True) as file:
            names = file.schema_arrow.names
            if any(names.count(name) != 1 for name in columns):
                expected = f"column{'s' * (len(columns) > 1)} {' and '.join(map(repr, columns))}"
                raise SightlineError(f"{path}: expected the {expected}, found: {', '.join(names)}")
            share = path.stat().st_size / max(file.metadata.num_rows, 1)
            for batch in file.iter_batches(ROWS_AT_ONCE, columns=list(columns)):
                watch(round(share * len(batch)))
                for values in zip(*(batch.column(name).to_pylist() for name in columns), strict=True):
                    row += 1
                    yield values
    except (pyarrow.ArrowException, UnicodeDecodeError) as error:
        raise _broken_parquet(path, row, error) from None
    except OSError as error:
        # Arrow tells of broken data pages as errors of the system without a number.
        if error.errno is None:
            raise _broken_parquet(path, row, error) from None
        raise SightlineError(f"{path}: {failure(error, 'read')}") from None


def _broken_parquet(path: Path, row: int, error: Exception) -> SightlineError:
    where = f"{path}, after row {row}" if row else str(path)
    return SightlineError(f"{where}: broken Parquet data: {str(error).splitlines()[0]}")


def _checked(path: Path, row: int, names: Sequence[str], values: tuple[Any, ...]) -> Pair:
    for name, value in zip(names, values, strict=True):
        if not isinstance(value, str):
            what = "is missing" if value is None else "must be a string"
            raise SightlineError(f"{path}, row {row}: '{name}' {what}")
    *texts, target = map(_one_line, values)
    return _pair(texts, target)


def _columns(count: int) -> str:
    return f"{count} column{'s' * (count != 1)}"


def _one_line(text: str) -> str:
    """A sentence is a line: where a format lets it go over several, they are joined by spaces."""
    if "\n" in text or "\r" in text:
        return text.replace("\r\n", " ").replace("\n", " ").replace("\r", " ")
    return text
