"""What a search is asked for and what it gives back, whichever engine searches: no torch here.

Shapes: S source positions, T predictions of one hypothesis (its end of sentence included).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from types import NoneType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sightline.errors import SightlineError, nearest

STRATEGIES = ("beam", "greedy", "sample", "mbr")
"""Names of what a search does: see `SearchOptions`."""

STOPPING = ("first", "enough", "hopeless")
"""Names of rules for ending a beam search, from the soonest to the latest: see `SearchOptions`."""

LENGTH_PENALTIES = ("average", "gnmt", "none")
"""Names of what a log-probability is divided by: see `sightline.search.processors`."""

RANGES: dict[str, tuple[float, float]] = {
    "alpha": (0, 10),
    "coverage_penalty": (0, 1000),
    "diversity": (0, 1000),
    "temperature": (0, 1000),
    "repetition_penalty": (0.001, 1000),
    "max_ratio": (0, 1000),
    "max_extra": (0, 10**9),
    "min_length": (0, 10**9),
}
"""The least and the most of options: within them nothing overflows, and no search is better for more."""

KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "int": ((Integral,), "a whole number"),
    "int | None": ((Integral, NoneType), "a whole number"),
    "float": ((Real,), "a number"),
    "str": ((str,), "a name"),
}
"""What an option of such a type may be, numpy's numbers included, and what it is called."""


def check_kinds(options: Mapping[str, Any]) -> None:
    """Refuses options of a search that are of another type, such as text for a number."""
    for name, value in options.items():
        field = SearchOptions.__dataclass_fields__.get(name)
        kinds, wanted = KINDS.get(str(field.type), ((), "")) if field else ((), "")
        if kinds and (isinstance(value, bool) or not isinstance(value, kinds)):
            raise SightlineError(f"{name} is {value!r}: give {wanted}")


def check_seed(seed: Any) -> None:
    """Refuses what the random numbers of a sample cannot begin from."""
    if not isinstance(seed, Integral) or not 0 <= int(seed) < 2**64:
        raise SightlineError(f"seed is {seed!r}: give a number from 0 to 2**64 - 1")


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

    `strategy` says which of the others count:
    - "beam": beam search with `beam` hypotheses (1 is greedy search), of which the `n_best` are given. With `groups`
      above 1 the beam is divided into so many that avoid one another's tokens: `diversity` is taken off the
      log-probability of a token for each time that an earlier group has just chosen it.
    - "greedy": the most probable token at every step, whatever `beam` says.
    - "sample": `samples` translations drawn at random by the model's probabilities, all given, in the order drawn.
      `temperature` divides the log-probabilities; then `top_k` keeps that many of the most probable tokens (0: all),
      `top_p` the fewest of them that have this share of their probability, `min_p` those at least this fraction as
      probable as the best. The best token always stays; temperature 0 takes it. `seed` begins the random numbers.
    - "mbr": candidates for a choice by minimum Bayes risk (`sightline.risk`), which leaves `n_best` of them: `samples`
      samples or, with `samples` 1, all `beam` hypotheses of a beam search.

    `stopping` says when the beam search of a sentence ends, if its length limit does not end it before: "first" with
    the first `n_best` finished hypotheses, "enough" with `patience` times `beam` of them, "hopeless" when no live
    hypothesis can still enter the n best. That last condition ends the other two as well, since it changes no result.

    A translation has at most `max_ratio * source tokens + max_extra` tokens, never more than `max_length` and never
    less than `min_length`; its end symbol is not counted among them.

    `forbidden` are sequences of ids that are never written; one that begins with the start symbol is forbidden at the
    beginning only, one that ends with the end symbol at the end only. `no_repeat` = n lets no n tokens occur twice in
    one translation. `repetition_penalty` raises the probability of a token that was written before to this power:
    above 1 it is avoided. 0 and 1 turn these two off.
    """

    beam: int = 5
    n_best: int = 1
    strategy: str = "beam"
    stopping: str = "enough"
    groups: int = 1
    diversity: float = 0.5
    samples: int = 1
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0
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
        check_kinds(vars(self))
        if self.beam < 1:
            raise SightlineError(f"beam is {self.beam}: give at least 1")
        self._check_strategy()
        for name, (least, most) in RANGES.items():
            if not least <= getattr(self, name) <= most:
                raise SightlineError(f"{name} is {getattr(self, name)}: give a number from {least:,} to {most:,}")
        if self.max_length is not None and self.max_length < max(self.min_length, 1):
            raise SightlineError(f"max_length is {self.max_length}: give at least 1, and no less than min_length")
        if not self.patience > 0:
            raise SightlineError(f"patience is {self.patience}: give a number above 0")
        if not all(self.forbidden):
            raise SightlineError("forbidden holds an empty sequence: give at least one token in each")
        if self.no_repeat < 0:
            raise SightlineError(f"no_repeat is {self.no_repeat}: give a number of tokens, or 0 to allow repetition")

    @property
    def sampled(self) -> bool:
        """Whether hypotheses are drawn at random."""
        return self.strategy == "sample" or (self.strategy == "mbr" and self.samples > 1)

    @property
    def width(self) -> int:
        """How many hypotheses of a sentence are searched side by side."""
        if self.sampled:
            return self.samples
        return 1 if self.strategy == "greedy" else self.beam

    def limit(self, source: int) -> int:
        """The most tokens of a translation of so many source tokens, the end symbol of the source counted."""
        most = max(int(source * self.max_ratio + self.max_extra), self.min_length)
        return most if self.max_length is None else min(most, self.max_length)

    def _check_strategy(self) -> None:
        names = {"strategy": STRATEGIES, "stopping": STOPPING, "length_penalty": LENGTH_PENALTIES}
        for name, valid in names.items():
            if getattr(self, name) not in valid:
                raise SightlineError(f"unknown {name} '{getattr(self, name)}'; {nearest(getattr(self, name), valid)}")
        for name in ("groups", "samples"):
            if getattr(self, name) < 1:
                raise SightlineError(f"{name} is {getattr(self, name)}: give at least 1")
        if self.top_k < 0:
            raise SightlineError(f"top_k is {self.top_k}: give a number of tokens, or 0 for all")
        if not 0 < self.top_p <= 1:
            raise SightlineError(f"top_p is {self.top_p}: give a share of the probability, above 0 and at most 1 (all)")
        if not 0 <= self.min_p <= 1:
            raise SightlineError(f"min_p is {self.min_p}: give a fraction of the best probability, from 0 (all) to 1")
        check_seed(self.seed)
        if self.beam % self.groups:
            raise SightlineError(f"beam is {self.beam}: give a multiple of {self.groups}, the number of groups")
        if self.strategy == "mbr" and self.width == 1:
            raise SightlineError("mbr chooses among several candidates: give samples or beam above 1")
        if self.strategy == "greedy" and self.n_best != 1:
            raise SightlineError(f"n_best is {self.n_best}: give 1, since greedy search finds one, or choose beam")
        if self.strategy != "sample" and not 1 <= self.n_best <= self.width:
            most = "the number of samples, or draw more" if self.sampled else "the width of the beam, or widen it"
            raise SightlineError(f"n_best is {self.n_best}: give 1 to {self.width}, {most}")


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

    @property
    def steers(self) -> bool:
        """Whether it asks for anything."""
        return bool(self.prefix or self.constraints or self.seed is not None)

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
