"""What a run is given, where it stands, and what it came to."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from torch import nn

from sightline.batch import Batch
from sightline.errors import SightlineError
from sightline.training.averages import Averages
from sightline.training.progress import Progress, Silent
from sightline.training.watch import Unwatched, Watch

Reason = Literal["max_steps", "max_minutes", "patience", "interrupted"]


class Data(Protocol):
    """Where batches come from."""

    def epoch(self, epoch: int) -> Sequence[Any]:
        """The example numbers of each batch of an epoch (from 0): always the same for the same seed and epoch."""

    def batch(self, indices: Any) -> Batch:
        """These examples as a batch."""

    def where(self, index: int) -> str:
        """File and line of the example that `Batch.indices` calls `index`."""


@dataclass(frozen=True)
class Validation:
    """How well the model does: `run(model)` gives metrics, and the one called `metric` decides which weights are best.

    `run` finds the model in evaluation mode and without gradients. `save_best(metrics)` is called each time the
    weights are the best so far, before training goes on.
    """

    run: Callable[[nn.Module], Mapping[str, float]]
    save_best: Callable[[dict[str, float]], None]
    metric: str = "loss"
    higher_is_better: bool = False

    def better(self, new: Mapping[str, float], old: Mapping[str, float] | None) -> bool:
        """Whether `new` beats `old`; what is not a number never does."""
        if self.metric not in new:
            raise SightlineError(f"validation gives no '{self.metric}' to choose by, only {', '.join(new)}")
        value = new[self.metric]
        if old is None:
            return not math.isnan(value)
        return value > old[self.metric] if self.higher_is_better else value < old[self.metric]

    def as_good(self, new: Mapping[str, float], old: Mapping[str, float] | None) -> bool:
        """Whether `new` is a number at least as good as `old`."""
        return self.better(new, None) and (old is None or not self.better(old, new))


@dataclass(frozen=True)
class Host:
    """The world around a run: who watches, and what time it is, in seconds."""

    progress: Progress = field(default_factory=Silent)
    clock: Callable[[], float] = time.monotonic
    watch: Watch = field(default_factory=Unwatched)


@dataclass(frozen=True)
class Result:
    """What a run came to. Steps, seconds and (target) tokens count from its first start, resumed or not.

    `best` are the metrics of the best validation, `average_of` the updates whose mean it was (none: single weights),
    `average` the metrics of the mean tried at the end. `checkpoint` is where the run can go on from.
    """

    reason: Reason
    steps: int
    epochs: float
    seconds: float
    tokens: int
    skipped: int
    best: dict[str, float] | None
    best_step: int
    checkpoint: Path
    average_of: tuple[int, ...] = ()
    average: dict[str, float] | None = None

    @property
    def interrupted(self) -> bool:
        """Whether a signal ended it."""
        return self.reason == "interrupted"


@dataclass
class State:
    """Where a run is; with weights, moments and random states all it takes to go on."""

    step: int = 0
    epoch: int = 0
    position: int = 0  # batches of the epoch that are done
    tokens: int = 0
    seconds: float = 0.0
    skipped: int = 0
    skipped_in_a_row: int = 0
    best: dict[str, float] | None = None
    best_step: int = 0
    waited: int = 0  # validations since the best
    validated: int = 0  # step of the last validation
    lines: int = 0  # of the metrics file
    rate: float | None = None  # of the last update
    score: float | None = None  # of the last validation, if it was a number
    average_of: list[int] = field(default_factory=list)  # updates whose mean the best weights are, if they are one
    averaged: int = 0  # step after which a mean was tried


@dataclass
class Window:
    """What has gathered since the last line of the metrics file."""

    losses: Averages = field(default_factory=Averages)
    updates: int = 0
    norms: float = 0.0
    tokens: int = 0
    seconds: float = 0.0
