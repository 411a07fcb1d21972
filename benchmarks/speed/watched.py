"""A `sightline` process watched from outside: what it says and when, its memory, and the updates it has made."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType

ROOT = Path(__file__).resolve().parents[2]


class Watched:
    """`sightline ARGUMENTS`, started within a `with` block and killed at its end if it still runs.

    Seconds count from just before the process was started. With `processors`, only the first so many are its own.
    `code` runs in the place of `sightline`, and gets its arguments.
    """

    def __init__(
        self, arguments: Sequence[object], output: Path, processors: int | None = None, code: str | None = None
    ) -> None:
        how = ["-m", "sightline"] if code is None else ["-c", code]
        self._line = [sys.executable, *how, *map(str, arguments)]
        self._metrics, self._processors = output / "metrics.jsonl", processors
        self._lines: queue.Queue[tuple[float, str]] = queue.Queue()
        self.said: list[str] = []

    def __enter__(self) -> Watched:
        paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}
        self.begun = time.monotonic()
        self._process = subprocess.Popen(self._line, stderr=subprocess.PIPE, text=True, env=environment)
        if self._processors is not None:
            os.sched_setaffinity(self._process.pid, range(self._processors))
        self._listening = threading.Thread(target=self._listen, daemon=True)
        self._listening.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.kill()
        self._process.wait()
        self._listening.join()
        assert self._process.stderr is not None
        self._process.stderr.close()

    def _listen(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._lines.put((self.elapsed(), line.rstrip("\n")))

    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.begun

    def running(self) -> bool:
        """Whether it still runs; a process that failed is an error, which tells what it said."""
        code = self._process.poll()
        if code:
            self._listening.join()
            raise SystemExit("\n".join([*self.said, *(text for _, text in self.news())]))
        return code is None

    def news(self) -> Iterator[tuple[float, str]]:
        """The lines it has said since the last call, each with its second."""
        while not self._lines.empty():
            second, text = self._lines.get()
            self.said.append(text)
            yield second, text

    def updates(self) -> int:
        """Updates so far, when `training.log_every` is 1: the lines of the metrics file."""
        try:
            return self._metrics.read_bytes().count(b'"kind": "training"')
        except OSError:
            return 0

    def memory(self) -> dict[str, float]:
        """Megabytes: all that is resident, its own part (without mapped files), and that with its helpers'."""
        found = [one for one in map(_memory, _family(self._process.pid)) if one]
        if not found:
            return {}
        return {**found[0], "own_with_helpers": sum(one["own"] for one in found)}


def _memory(process: int) -> dict[str, float]:
    """Megabytes of one process; nothing of one that is gone."""
    try:
        text = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return {}
    fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    if "VmRSS" not in fields:
        return {}
    return {name: int(fields[key].split()[0]) / 1024 for name, key in (("resident", "VmRSS"), ("own", "RssAnon"))}


def _family(process: int) -> list[int]:
    """The process and those it started."""
    try:
        return [process, *map(int, Path(f"/proc/{process}/task/{process}/children").read_text().split())]
    except OSError:
        return [process]
