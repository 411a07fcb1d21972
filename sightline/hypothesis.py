"""What a search is asked for and what it gives back, whichever engine searches: no torch here.

Shapes: S source positions, T predictions of one hypothesis (its end of sentence included).
"""

from __future__ import annotations

import math
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
    They are the model's own, whatever steered the choice, and those of a forced prefix are among them.
    `weights` `(T, S)`: for each prediction, where the model looked to make it, without the columns of padding; None
    when the model has no such weights.
    `finished`: False when the length limit (or a model that allowed no further token) cut it before its end.
    `honoured`: for each constraint of its request, whether it was met.
    """

    tokens: list[int]
    score: float
    log_prob: float
    token_log_probs: list[float]
    weights: NDArray[np.float32] | None
    finished: bool
    honoured: tuple[bool, ...] = ()


@dataclass(frozen=True)
class SearchOptions:
    """How to search. The defaults are those of the configuration's `search` section, where both have the option.

    A translation has at most `max_ratio * source tokens + max_extra` tokens, never more than `max_length` and never
    less than `min_length`; its end symbol is not counted among them. `patience` times `beam` finished hypotheses end
    the search of a sentence; with infinite patience it goes on until no live hypothesis can still enter the n best.

    `forbidden` are sequences of ids that are never written; one that begins with the start symbol is forbidden at the
    beginning only, one that ends with the end symbol at the end only. `no_repeat` = n lets no n tokens occur twice in
    one translation. `repetition_penalty` raises the probability of a token that was written before to this power:
    above 1 it is avoided. 0 and 1 turn these two off.
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
    forbidden: tuple[tuple[int, ...], ...] = ()
    no_repeat: int = 0
    repetition_penalty: float = 1.0

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
        if not all(self.forbidden):
            raise SightlineError("forbidden holds an empty sequence: give at least one token in each")
        if self.no_repeat < 0:
            raise SightlineError(f"no_repeat is {self.no_repeat}: give a number of tokens, or 0 to allow repetition")
        if not 0 < self.repetition_penalty < math.inf:
            raise SightlineError(f"repetition_penalty is {self.repetition_penalty}: give a number above 0; 1 is none")


@dataclass(frozen=True)
class Request:
    """What one sentence is asked for beyond the options that all share.

    `prefix`: target ids that its translation begins with.
    `constraints`: for each, alternatives (sequences of target ids), one of which must occur in the translation. An
    alternative that begins with the start symbol counts at the beginning only. A constraint given twice must be met
    twice; different ones may be met by the same tokens.
    `inside`: ids that go on with a word. An alternative that one of them follows was no whole word and does not count.
    `seed`: of its samples; the same seed gives the same samples, whatever else is in the batch.
    """

    prefix: tuple[int, ...] = ()
    constraints: tuple[tuple[tuple[int, ...], ...], ...] = ()
    seed: int | None = None
    inside: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        for number, alternatives in enumerate(self.constraints, 1):
            if not alternatives or not all(alternatives):
                raise SightlineError(f"constraint {number} has an alternative without tokens, or none: leave it out")


@dataclass(frozen=True)
class Streamed:
    """A part of a translation that is being made: `tokens` that are certain now and follow those given before.

    The last part has the whole in `hypothesis`; all parts' tokens joined are its tokens.
    """

    tokens: list[int]
    hypothesis: Hypothesis | None = None
