"""Putting parts together: the output, and the record of the lines that failed."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

from sightline.errors import SightlineError
from sightline.files import failure
from sightline.sharding.job import TABLE, Job
from sightline.sharding.parts import Parts, Summary

JOINED, FAILED = "joined", "failed"
ROWS_AT_ONCE = 100_000  # of a Parquet file's row group

Write = Callable[[bytes], Any]


def join(parts: Parts, job: Job) -> Summary:
    """Writes the output and `OUTPUT.failed.jsonl`, whole or not at all; without failures there is no such file.

    Both grow in the folder of the parts, so that a broken off attempt leaves nothing behind elsewhere.
    """
    joined, failed = parts.folder / JOINED, parts.folder / FAILED
    lines, failures, reason, blank = 0, 0, "", 0
    try:
        with _output(joined, job) as write, _synced(failed) as record:
            for found, output in parts.every():
                write(output)
                lines += found.lines
                blank += found.blank
                for one in found.failures:
                    record.write(f"{json.dumps(asdict(one), ensure_ascii=False)}\n".encode())
                    failures, reason = failures + 1, reason or one.reason
        if failures:
            os.replace(failed, parts.failed)
        else:
            parts.failed.unlink(missing_ok=True)
        if parts.output.exists():
            shutil.copymode(parts.output, joined)
        os.replace(joined, parts.output)
    except OSError as error:
        raise SightlineError(f"{parts.output}: {failure(error, 'write')}; what is done is kept") from None
    return Summary(lines, failures, reason, blank)


def _output(path: Path, job: Job) -> AbstractContextManager[Write]:
    return _table(path, job.align) if job.form == TABLE else _plain(path)


@contextmanager
def _plain(path: Path) -> Iterator[Write]:
    with _synced(path) as stream:
        yield stream.write


@contextmanager
def _synced(path: Path) -> Iterator[BinaryIO]:
    """A file that is on the disk when the block ends."""
    with open(path, "wb") as stream:
        yield stream
        stream.flush()
        os.fsync(stream.fileno())


@contextmanager
def _table(path: Path, align: bool) -> Iterator[Write]:
    """A Parquet file; what is written are lines of JSON, one a row."""
    import pyarrow
    from pyarrow import parquet

    columns = {"line": pyarrow.int64(), "source": pyarrow.string(), "text": pyarrow.string()}
    columns |= {"score": pyarrow.float64()} | ({"alignment": pyarrow.string()} if align else {})
    schema = pyarrow.schema(columns)
    rows: list[dict[str, Any]] = []

    def add(output: bytes) -> None:
        rows.extend(json.loads(line) for line in output.split(b"\n") if line)
        if len(rows) >= ROWS_AT_ONCE:
            flush()

    def flush() -> None:
        if rows:
            writer.write_table(pyarrow.Table.from_pylist(rows, schema))
            rows.clear()

    with _synced(path) as stream, parquet.ParquetWriter(stream, schema) as writer:
        yield add
        flush()


def check_form(form: str, output: Path) -> None:
    """Refuses a table that could not be written, before the work."""
    if form != TABLE:
        return
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        raise SightlineError(f"{output}: writing Parquet needs pyarrow: pip install 'sightline[parquet]'") from None
