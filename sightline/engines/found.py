"""What CTranslate2 finds, in our terms: hypotheses, how many of them end a search, what their scores stand for."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from sightline.engines.base import Ids
from sightline.hypothesis import Hypothesis, SearchOptions
from sightline.text import EOS


@dataclass(frozen=True)
class Found:
    """A hypothesis as CTranslate2 gives it: ids with their end symbol if there is one, score, attention rows."""

    ids: list[int]
    score: float
    attention: list[list[float]] | None

    @property
    def finished(self) -> bool:
        """Whether it has come to its end."""
        return self.ids[-1:] == [EOS]

    def begins(self, ids: Ids) -> bool:
        """Whether these are its first ids."""
        return self.ids[: len(ids)] == list(ids)

    def cut(self, limit: int) -> Found:
        """No more than so many tokens of it, its end symbol not counted."""
        if len(self.ids) - self.finished <= limit:
            return self
        return replace(self, ids=self.ids[:limit], attention=None if self.attention is None else self.attention[:limit])

    def hypothesis(self, options: SearchOptions) -> Hypothesis:
        """The same as our searches give it, without log-probabilities of tokens."""
        divisor, finished = penalty(len(self.ids), options), self.finished
        # Of GNMT's penalty CTranslate2 knows nothing: it gives the sum.
        total = self.score * divisor if options.length_penalty == "average" else self.score
        return Hypothesis(
            tokens=self.ids[:-1] if finished else self.ids,
            score=total / divisor,
            log_prob=total,
            token_log_probs=[],
            weights=None if self.attention is None else np.array(self.attention, dtype=np.float32),
            finished=finished,
        )


def needed(options: SearchOptions, most: int) -> int:
    """How many finished hypotheses end a search; of `most` steps none can finish more than its beam has."""
    wanted = {"first": options.n_best, "enough": options.width * options.patience, "hopeless": math.inf}
    return max(options.n_best, math.ceil(min(wanted[options.stopping], options.width * most)))


def penalty(length: int, options: SearchOptions) -> float:
    """What `length_penalty` divides the log-probability of so many predictions by: see `search/processors.py`."""
    if options.length_penalty == "gnmt":
        return float(((5 + length) / 6) ** options.alpha)
    return float(max(length, 1) ** options.alpha) if options.length_penalty == "average" else 1.0
