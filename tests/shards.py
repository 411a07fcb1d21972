"""For tests of shards: a translator that needs no model, and worker processes that have it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sightline.errors import SightlineError
from sightline.sharding import pool, worker
from sightline.translation import Translation
from tests.commands import Done

WORKER = "from tests.shards import serve; serve()"


class ShoutingPlan:
    """What `Plan` is to a translator; what it reads are pairs of a number and a line."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options

    def for_lines(self, first: int, lists: dict[str, Any]) -> ShoutingPlan:
        return self

    def read(self, line: str, number: int) -> ShoutingLine:
        if len(line) > 60 and not line.startswith("die"):
            raise SightlineError("too long")
        return ShoutingLine(number, line)


class ShoutingLine(NamedTuple):
    """A line with its number."""

    number: int
    line: str


class Shouting:
    """Translates by writing large. A model of "no such" is a mistake, and some lines make trouble:

    `boom` raises an error, `die` ends the process, `die once FILE` does unless FILE is there (and makes it), and what
    has more than 60 characters is refused. `batches` has the lines of each call.
    """

    def __init__(self, model: Path) -> None:
        if model.name == "no such":
            raise SightlineError(f"{model}: no such folder")
        self.batches: list[list[str]] = []

    def check_attention(self) -> None:
        """There is none, and nothing is asked for."""

    def plan(self, align: bool, **options: Any) -> ShoutingPlan:
        return ShoutingPlan(options)

    def translated(self, asked: Sequence[tuple[int, str]], plan: ShoutingPlan) -> Iterator[Translation]:
        self.batches.append([line for _, line in asked])
        for number, line in asked:
            if line.startswith("die") and not (line.startswith("die once") and Path(line[9:]).exists()):
                if line.startswith("die once"):
                    Path(line[9:]).touch()
                os.kill(os.getpid(), signal.SIGKILL)
            if line == "boom":
                raise RuntimeError("it went off\nand more")
            text, score = f"{line.upper()}{plan.options.get('mark', '')}", -float(number)
            yield Translation(line, text, score, score, [], [], [], True)


def serve() -> None:
    """A worker process that shouts."""
    worker.load = lambda model, **_: Shouting(model)  # type: ignore[assignment,return-value]
    worker.serve()


def shouting(monkeypatch: Any) -> None:
    """Makes workers shout, in this process and in those that are started from it."""
    monkeypatch.setattr(worker, "load", lambda model, **_: Shouting(model))
    monkeypatch.setattr(pool, "PROGRAM", WORKER)
    monkeypatch.setattr("sightline.sharding.manifest.model_digests", lambda folder: {"model": str(folder)})


def told(done: Done) -> list[str]:
    """What a command said on stderr, but for how far it was, which a slow machine makes it say."""
    return [line for line in done.err.splitlines() if not line.endswith(" hours left")]
