"""The folder beside the output in which finished shards wait to be joined.

`OUTPUT.parts/NNNNN` is one shard: a line of JSON (its `Record`), then its output as it will stand in the whole.
`manifest.json` says of what they are parts. Every file is moved into place when it is complete, so whatever is there
is whole, wherever the work was broken off.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sightline.errors import SightlineError
from sightline.files import make_folder, write_bytes, write_text
from sightline.sharding.job import Failure, Translated

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

MANIFEST, FINISHED = "manifest.json", "finished.json"


@dataclass(frozen=True)
class Record:
    """What a part says of itself; `size` and `digest` (SHA-256) are of the output that follows, `blank` counts
    lines without a word."""

    lines: int
    read: int
    last: bool
    failures: list[Failure]
    size: int
    digest: str
    blank: int = 0


@dataclass(frozen=True)
class Summary:
    """What came out: lines in all, how many of them failed, why the first one did, and how many had no word."""

    lines: int
    failed: int = 0
    reason: str = ""
    blank: int = 0


class Parts:
    """The parts of one output."""

    def __init__(self, output: Path) -> None:
        self.output = Path(os.path.realpath(output))
        self.folder = self.output.with_name(f"{self.output.name}.parts")
        self.failed = self.output.with_name(f"{self.output.name}.failed.jsonl")

    @contextmanager
    def held(self) -> Iterator[None]:
        """Makes the folder, and keeps other processes away from it; if it holds nothing worth keeping, it goes."""
        make_folder(self.folder)
        descriptor = os.open(self.folder, os.O_RDONLY) if fcntl else None
        try:
            if descriptor is not None:
                _lock(descriptor, self.folder)
            try:
                yield
            finally:
                if self.folder.is_dir() and not self._numbers() and not (self.folder / FINISHED).exists():
                    shutil.rmtree(self.folder, ignore_errors=True)
        finally:
            if descriptor is not None:
                os.close(descriptor)

    def path(self, number: int) -> Path:
        """Where a part lies."""
        return self.folder / f"{number:05d}"

    def manifest(self) -> dict[str, Any] | None:
        """Of what these are parts; None when nothing is there yet."""
        found = _read_json(self.folder / MANIFEST)
        if found is None and self._numbers():
            raise SightlineError(f"{self.folder}: holds parts, but no {MANIFEST}: delete the folder")
        return found

    def begin(self, manifest: dict[str, Any]) -> None:
        """Notes of what these will be parts."""
        write_text(self.folder / MANIFEST, json.dumps(manifest, ensure_ascii=False, indent=1))

    def done(self) -> dict[int, Record]:
        """The parts that are there, without their failures; one whose size is wrong is deleted."""
        found: dict[int, Record] = {}
        for number in self._numbers():
            with open(self.path(number), "rb") as stream:
                record, begin = _record(stream.readline()), stream.tell()
                whole = record is not None and begin + record.size == os.fstat(stream.fileno()).st_size
            if record is None or not whole:
                self.path(number).unlink()
            else:
                found[number] = Record(record.lines, record.read, record.last, [], record.size, record.digest)
        return found

    def write(self, translated: Translated) -> None:
        """Adds a part."""
        output = translated.output
        digest = hashlib.sha256(output).hexdigest()
        failures = list(translated.failures)
        record = Record(
            translated.lines, translated.read, translated.last, failures, len(output), digest, translated.blank
        )
        header = json.dumps(asdict(record), ensure_ascii=False)
        write_bytes(self.path(translated.number), f"{header}\n".encode() + output)

    def every(self) -> Iterator[tuple[Record, bytes]]:
        """All parts in order, to the last; each is compared with its digest."""
        number, last = 0, False
        while not last:
            path = self.path(number)
            try:
                header, _, output = path.read_bytes().partition(b"\n")
            except FileNotFoundError:
                raise SightlineError(f"{path}: missing; start again to translate it") from None
            record = _record(header)
            if record is None or hashlib.sha256(output).hexdigest() != record.digest:
                path.unlink()
                raise SightlineError(f"{path}: was damaged and is deleted; start again to translate it anew")
            yield record, output
            number, last = number + 1, record.last

    def finish(self, manifest: dict[str, Any], summary: Summary) -> None:
        """Notes that the output is in its place, so that nothing is done again if removing the folder is broken off."""
        values = {"manifest": manifest, "summary": asdict(summary)}
        write_text(self.folder / FINISHED, json.dumps(values, ensure_ascii=False))

    def finished(self) -> tuple[dict[str, Any], Summary] | None:
        """The manifest and the summary of a work that was finished."""
        found = _read_json(self.folder / FINISHED)
        return None if found is None else (found["manifest"], Summary(**found["summary"]))

    def clear(self) -> None:
        """Empties the folder; that the work was finished is forgotten last."""
        for path in sorted(self.folder.iterdir(), key=lambda path: path.name == FINISHED):
            path.unlink()

    def remove(self) -> None:
        """Removes the folder."""
        self.clear()
        self.folder.rmdir()

    def _numbers(self) -> list[int]:
        return sorted(int(name) for name in os.listdir(self.folder) if name.isdigit())


def _lock(descriptor: int, folder: Path) -> None:
    """Held as long as the process lives; where a file system has no locks, nothing is held."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise SightlineError(f"{folder}: another process is at work here: wait until it has ended, or end it") from None
    except OSError:
        return


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError:
        raise SightlineError(f"{path}: damaged; delete its folder") from None
    return found


def _record(header: bytes) -> Record | None:
    try:
        values = json.loads(header)
        return Record(**{**values, "failures": [Failure(**failure) for failure in values["failures"]]})
    except (ValueError, TypeError, KeyError):
        return None
