"""Whether this process is one of several that torchrun started, and which: read from the environment, without torch."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

# torchrun sets all of them; one alone may be someone else's.
_NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")

WAIT_SECONDS = 5.0


@dataclass(frozen=True)
class Launch:
    """This process's number among all (`rank` of `size`) and among those of its machine."""

    rank: int
    size: int
    local_rank: int
    local_size: int

    @property
    def command(self) -> str:
        """How to start the same ranks again, as far as this machine knows."""
        nodes = "" if self.local_size == self.size else f" --nnodes {-(-self.size // self.local_size)} …"
        return f"torchrun{nodes} --nproc-per-node {self.local_size} -m sightline"


def launched(environment: Mapping[str, str] = os.environ) -> Launch | None:
    """What torchrun says, or None in a process that was started by itself."""
    if not all(environment.get(name) for name in _NAMES):
        return None
    return Launch(*(int(environment[name]) for name in _NAMES[:4]))


def speaks() -> bool:
    """Whether this process talks to the person: of several, the first does."""
    launch = launched()
    return launch is None or launch.rank == 0


def wait_for_first() -> None:
    """Lets the first rank tell of a mistake that all have met: torchrun ends everyone as soon as one has ended."""
    if not speaks():
        time.sleep(WAIT_SECONDS)  # torchrun's signal cuts it short


def record_failure(message: str) -> None:
    """Leaves `message` where torchrun looks for the cause of a rank's end, so that its summary tells it."""
    failure = {"message": {"message": message, "extraInfo": {"timestamp": int(time.time())}}}
    file = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if launched() is not None and file:
        Path(file).write_text(json.dumps(failure), encoding="utf-8")
