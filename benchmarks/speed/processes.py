"""The benchmark's side of the pipe: a contender's process, started once and asked for so many updates at a time."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class Failed(Exception):  # noqa: N818
    """The process ended or could not begin; the text says why."""


@dataclass(frozen=True)
class Turn:
    """What one turn came to; `memory` is the most bytes the process had until then."""

    updates: int
    tokens: int
    seconds: float
    losses: list[float]
    memory: int

    @property
    def speed(self) -> float:
        """Target tokens a second."""
        return self.tokens / self.seconds


class Worker:
    """A process that speaks as `turns.py` says; what else it prints goes to the file `log`."""

    def __init__(self, command: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
        self.log = log
        with log.open("w", encoding="utf-8") as errors:
            try:
                self.process = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment
                )
            except OSError as error:
                raise Failed(f"{command[0]}: {error.strerror}") from None

    def ready(self) -> dict[str, Any]:
        """Waits until the contender is built, and returns what it tells of itself."""
        message = self._answer()
        if "missing" in message:
            raise Failed(message["missing"])
        about: dict[str, Any] = message["ready"]
        return about

    def run(self, updates: int) -> Turn:
        """Lets it train; returns when it waits again."""
        return Turn(**self.ask({"run": updates}))

    def ask(self, order: Mapping[str, Any]) -> dict[str, Any]:
        """Gives it something to do; returns what it answers when it waits again."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(order) + "\n")
            self.process.stdin.flush()
        except OSError:
            pass  # it has ended: its log says why
        return self._answer()

    def close(self) -> None:
        """Ends the process."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        try:
            self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            said = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            raise Failed(said[-1].strip() if said else "ended without a word")
        message: dict[str, Any] = json.loads(line)
        return message


def worker_command(job: str, python: str = sys.executable) -> list[str]:
    """How a contender's process is started."""
    return [python, "-m", "benchmarks.speed.worker", job]
