"""The metrics file: one JSON object a line, written as training goes."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from sightline.errors import SightlineError

Value = float | int | str | bool | None | Sequence[Mapping[str, str]]


class MetricsLog:
    """Appends to `path` after its first `lines` lines. Later ones are cut off: a resumed run writes them again."""

    def __init__(self, path: Path, lines: int = 0) -> None:
        self.path = path
        self.lines = 0
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("a+b")
            self._file.seek(0)
            end = 0
            while self.lines < lines and (line := self._file.readline()).endswith(b"\n"):
                self.lines += 1
                end += len(line)
            self._file.truncate(end)
        except OSError as error:
            raise SightlineError(f"{path}: cannot write the metrics: {error.strerror}") from None

    def write(self, values: Mapping[str, Value]) -> None:
        """One line, flushed; numbers that JSON lacks (not a number, infinity) become null."""
        plain = {name: None if isinstance(v, float) and not math.isfinite(v) else v for name, v in values.items()}
        try:
            self._file.write(json.dumps(plain).encode() + b"\n")
            self._file.flush()
        except OSError as error:
            raise SightlineError(f"{self.path}: cannot write the metrics: {error.strerror}") from None
        self.lines += 1

    def __enter__(self) -> MetricsLog:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        # A line that did not fit on the disk is still in the buffer, and closing would try it again.
        with contextlib.suppress(OSError):
            self._file.close()
