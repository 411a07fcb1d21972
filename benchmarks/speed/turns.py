"""A contender's side of the pipe: it trains when it is its turn and waits, without computing, when it is not.

Each message is a line of JSON. The contender says `{"ready": …}` once it is built; `{"run": 8}` asks for eight updates
and is answered with their target tokens, seconds and losses; the end of the input ends the process.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO


class Over(Exception):  # noqa: N818
    """No more turns: leaves whatever loop the contender trains in."""


class Missing(Exception):  # noqa: N818
    """The contender cannot run here; the text says why."""


class Turns:
    """Counts updates and gives the word back when as many are done as were asked for.

    A training loop calls `ready` before its first update and `done` after each; both return when there is more to do.
    """

    def __init__(
        self,
        orders: TextIO,
        answers: TextIO,
        tokens: Callable[[int], int],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.orders, self.answers, self.tokens, self.clock = orders, answers, tokens, clock
        self.updates = 0
        self._wanted = 0
        self._began = 0.0
        self._losses: list[float] = []
        self._counted = 0

    def ready(self, **about: Any) -> None:
        """All is built; `about` tells of the contender: its version, its parameters."""
        self.say({"ready": about})
        self._wait()

    def done(self, loss: float, tokens: int | None = None) -> None:
        """One update is done; the loss is a mean over tokens, which are the plan's unless told otherwise."""
        self._losses.append(loss)
        self._counted += self.tokens(self.updates) if tokens is None else tokens
        self.updates += 1
        if len(self._losses) == self._wanted:
            seconds = self.clock() - self._began
            answer = {"updates": self._wanted, "tokens": self._counted, "seconds": seconds, "losses": self._losses}
            self.say({**answer, "memory": peak_memory()})
            self._wait()

    def say(self, message: dict[str, Any]) -> None:
        """One line, at once."""
        self.answers.write(json.dumps(message) + "\n")
        self.answers.flush()

    def _wait(self) -> None:
        line = self.orders.readline()
        if not line:
            raise Over
        self._wanted, self._losses, self._counted = int(json.loads(line)["run"]), [], 0
        self._began = self.clock()


def peak_memory() -> int:
    """The most bytes this process has had in memory.

    Linux's getrusage would start from the size of the process that began this one, so the kernel's own account of
    this program comes first.
    """
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def answers_alone() -> TextIO:
    """The process's standard output for answers alone: whatever else prints goes to standard error from now on."""
    kept = os.dup(1)
    os.dup2(2, 1)
    return os.fdopen(kept, "w", encoding="utf-8")
