"""The learning rate of each update: pure functions of the step, counted from 1, and of the time where that is limited.

Every schedule warms up linearly over `warmup` updates to `peak`, its highest rate; they differ in how it falls. Where
the time is limited, warm-up ends with a fifth of it at the latest: a slow machine makes few updates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from sightline.config import TrainingConfig
from sightline.errors import SightlineError


def warm_up(step: int, warmup: int) -> float:
    """The share of the peak that linear warm-up allows: `step / warmup`, at most 1."""
    return min(1.0, step / max(warmup, 1))


def constant(step: int, peak: float, warmup: int) -> float:
    """The peak, for ever."""
    return peak * warm_up(step, warmup)


def inverse_sqrt(step: int, peak: float, warmup: int) -> float:
    """Falls with the inverse square root of the step: half the peak at four times the warm-up."""
    first = max(warmup, 1)
    return peak * min(step / first, math.sqrt(first / step))


def noam(step: int, width: int, warmup: int, factor: float = 1.0) -> float:
    """`c · d^-½ · min(step^-½, step · w^-3/2)` (Vaswani et al. 2017, equation 3)."""
    return float(factor * width**-0.5 * min(step**-0.5, step * max(warmup, 1) ** -1.5))


def noam_peak(width: int, warmup: int, factor: float = 1.0) -> float:
    """The highest rate of `noam`, `c · (d · w)^-½`: with it as the peak, `inverse_sqrt` is the same schedule."""
    return float(factor * (width * max(warmup, 1)) ** -0.5)


def cosine(step: int, peak: float, warmup: int, used: float) -> float:
    """Half a cosine wave from the peak to zero; `used` is the share of the budget spent, from 0 to 1."""
    return peak * warm_up(step, warmup) * (1 + math.cos(math.pi * used)) / 2


def linear(step: int, peak: float, warmup: int, used: float) -> float:
    """A straight line from the peak to zero; `used` is the share of the budget spent, from 0 to 1."""
    return peak * warm_up(step, warmup) * (1 - used)


def budget_used(step: int, elapsed: float, warmup: int, max_steps: int | None, max_seconds: float | None) -> float:
    """The share of the budget spent, from 0 to 1: of the updates after warm-up or of the seconds, whichever is more."""
    by_steps = 0.0 if max_steps is None else (step - warmup) / max(max_steps - warmup, 1)
    by_time = 0.0 if max_seconds is None else elapsed / max_seconds
    return min(max(by_steps, by_time, 0.0), 1.0)


@dataclass(frozen=True)
class Schedule:
    """One run's learning rates. `peak` is the highest; cosine and linear end at zero with the budget."""

    LONGEST_WARMUP = 0.2  # of a time limit

    kind: str
    peak: float
    warmup: int
    max_steps: int | None = None
    max_seconds: float | None = None

    def rate(self, step: int, elapsed: float = 0.0) -> float:
        """The learning rate of update `step` (from 1), begun after `elapsed` seconds of training."""
        if step < 1:
            raise ValueError("steps count from 1")
        used = budget_used(step, elapsed, self.warmup, self.max_steps, self.max_seconds)
        step = self._warmed(step, elapsed)
        if self.kind in ("inverse_sqrt", "noam"):  # the peak tells them apart: see noam_peak
            return inverse_sqrt(step, self.peak, self.warmup)
        if self.kind == "constant":
            return constant(step, self.peak, self.warmup)
        decay = cosine if self.kind == "cosine" else linear
        return decay(step, self.peak, self.warmup, used)

    @property
    def falls_to_zero(self) -> bool:
        """Whether the rate ends at zero with the budget, and so depends on where that ends."""
        return self.kind in ("cosine", "linear")

    def warming(self, step: int, elapsed: float = 0.0) -> bool:
        """Whether the rate still rises after update `step`."""
        return self._warmed(step, elapsed) < self.warmup

    def _warmed(self, step: int, elapsed: float) -> int:
        """The update that warm-up has reached: `step`, or a later one where the time for warm-up runs out."""
        if self.max_seconds is None or step >= self.warmup:
            return step
        share = min(1.0, elapsed / (self.LONGEST_WARMUP * self.max_seconds))
        return max(step, int(share * self.warmup))


def schedule(config: TrainingConfig) -> Schedule:
    """The schedule a filled-in configuration asks for; `learning_rate` is the peak of every kind."""
    if config.learning_rate is None or config.warmup is None:
        raise ValueError("learning_rate and warmup must be filled in before training")
    if config.max_steps is None and config.max_minutes is None:
        raise SightlineError("training has no end: set training.max_steps or training.max_minutes")
    seconds = None if config.max_minutes is None else config.max_minutes * 60
    return Schedule(config.schedule, config.learning_rate, config.warmup, config.max_steps, seconds)
