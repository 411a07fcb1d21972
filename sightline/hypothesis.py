"""What a search is asked for and what it gives back, whichever engine searches: no torch here.

Shapes: S source positions, T predictions of one hypothesis (its end of sentence included).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sightline.errors import SightlineError


@dataclass(frozen=True)
class Hypothesis:
    """One translation.

    `tokens`: its ids, without the start and end symbols.
    `score`: what ranks it, penalties included.
    `log_prob`: the sum of `token_log_probs`, one for each prediction; the end of sentence, when reached, is the last.
    `weights` `(T, S)`: for each prediction, where the model looked to make it, without the columns of padding; None
    when the model has no such weights.
    `finished`: False when the length limit (or a model that allowed no further token) cut it before its end.
    """

    tokens: list[int]
    score: float
    log_prob: float
    token_log_probs: list[float]
    weights: NDArray[np.float32] | None
    finished: bool


@dataclass(frozen=True)
class SearchOptions:
    """How to search. The defaults are those of the configuration's `search` section, where both have the option.

    A translation has at most `max_ratio * source tokens + max_extra` tokens, never more than `max_length` and never
    less than `min_length`; its end symbol is not counted among them. `patience` times `beam` finished hypotheses end
    the search of a sentence; with infinite patience it goes on until no live hypothesis can still enter the n best.
    """

    beam: int = 5
    n_best: int = 1
    length_penalty: str = "average"
    alpha: float = 1.0
    coverage_penalty: float = 0.0
    min_length: int = 0
    max_ratio: float = 2.0
    max_extra: int = 10
    max_length: int | None = None
    patience: float = 1.0

    def __post_init__(self) -> None:
        if self.beam < 1:
            raise SightlineError(f"beam is {self.beam}: give at least 1")
        if not 1 <= self.n_best <= self.beam:
            raise SightlineError(f"n_best is {self.n_best}: give 1 to {self.beam}, the width of the beam, or widen it")
        for name in ("alpha", "coverage_penalty", "min_length", "max_ratio", "max_extra"):
            if not getattr(self, name) >= 0:
                raise SightlineError(f"{name} is {getattr(self, name)}: it cannot be negative")
        if self.max_length is not None and self.max_length < max(self.min_length, 1):
            raise SightlineError(f"max_length is {self.max_length}: give at least 1, and no less than min_length")
        if not self.patience > 0:
            raise SightlineError(f"patience is {self.patience}: give a number above 0")


@dataclass(frozen=True)
class Request:
    """What one sentence is asked for beyond the options that all share.

    `prefix`: target ids that its translation begins with.
    `constraints`: for each, alternatives (sequences of target ids), one of which must occur in the translation.
    `seed`: of its samples; the same seed gives the same samples, whatever else is in the batch.
    """

    prefix: tuple[int, ...] = ()
    constraints: tuple[tuple[tuple[int, ...], ...], ...] = ()
    seed: int | None = None
