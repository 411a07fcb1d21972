"""Penalties: what is done to a log-probability before hypotheses of different lengths are compared.

Shapes: N hypotheses, S source positions.

The length |Y| of a hypothesis is the number of its predictions: its tokens and, when it is finished, its end symbol.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from sightline.errors import SightlineError, nearest
from sightline.hypothesis import Hypothesis, SearchOptions

LengthPenalty = Callable[[int], float]
"""What the log-probability of a hypothesis of this length is divided by: positive, never falling with the length."""


@dataclass(frozen=True)
class AverageLength:
    """|Y|^alpha: with alpha 1, the mean log-probability of a token."""

    alpha: float

    def __call__(self, length: int) -> float:
        return float(max(length, 1) ** self.alpha)


@dataclass(frozen=True)
class GnmtLength:
    """((5 + |Y|) / 6)^alpha (Wu et al. 2016, equation 14): gentler than the average on short translations."""

    alpha: float

    def __call__(self, length: int) -> float:
        return float(((5 + length) / 6) ** self.alpha)


@dataclass(frozen=True)
class NoLength:
    """1: the plain sum of log-probabilities, which favours short translations."""

    alpha: float = 0.0

    def __call__(self, length: int) -> float:
        return 1.0


LENGTH_PENALTIES: dict[str, Callable[[float], LengthPenalty]] = {
    "average": AverageLength,
    "gnmt": GnmtLength,
    "none": NoLength,
}


def length_penalty(name: str, alpha: float) -> LengthPenalty:
    """The length penalty of this name and strength."""
    if name not in LENGTH_PENALTIES:
        raise SightlineError(f"unknown length_penalty '{name}'; {nearest(name, LENGTH_PENALTIES)}")
    return LENGTH_PENALTIES[name](alpha)


@dataclass(frozen=True)
class CoveragePenalty:
    """beta * sum_i log min(sum_j a_ji, 1) over source positions i and predictions j (Wu et al. 2016, equation 14).

    Never above 0. A position that got less than `floor` of attention in all counts as `floor`, so that one word that
    was never looked at costs much, but not everything.
    """

    beta: float
    floor: float = 1e-6

    def __call__(self, coverage: Tensor, mask: Tensor) -> Tensor:
        """`(N,)` penalties from the attention each position got so far `(N, S)` and where positions are real `(N, S)`.

        Both may have more leading dimensions.
        """
        shortfall = coverage.clamp(min=self.floor, max=1.0).log()
        return self.beta * shortfall.masked_fill(~mask, 0.0).sum(-1)


class Ranking:
    """What finished hypotheses are compared by: log P(Y) / length penalty + coverage penalty.

    With a repetition penalty log P(Y) is the sum of the penalised log-probabilities.
    """

    def __init__(self, options: SearchOptions) -> None:
        self.length = length_penalty(options.length_penalty, options.alpha)
        self.coverage = CoveragePenalty(options.coverage_penalty) if options.coverage_penalty else None

    def score(self, log_probs: Tensor, length: int, coverage: Tensor | None, mask: Tensor) -> Tensor:
        """`(N,)` scores of hypotheses of one length from their log-probabilities `(N,)`.

        `coverage` `(N, S)` is the attention each source position got, unused without a coverage penalty;
        `mask` `(N, S)`, True where a position is real.
        """
        scores = log_probs / self.length(length)
        if self.coverage is not None and coverage is not None:
            scores = scores + self.coverage(coverage, mask)
        return scores

    def score_of(self, hypothesis: Hypothesis, total: float | None = None) -> float:
        """The score of one hypothesis, from what it carries.

        `total` is the sum of the scores its tokens were chosen by, where controls changed them: by default `log_prob`.
        """
        total = hypothesis.log_prob if total is None else total
        log_prob = torch.tensor([total], dtype=torch.double)
        coverage = None if hypothesis.weights is None else torch.from_numpy(hypothesis.weights).sum(0, keepdim=True)
        mask = torch.ones(1, 1, dtype=torch.bool)  # padding's columns are already gone
        return float(self.score(log_prob, len(hypothesis.token_log_probs), coverage, mask))

    def check(self, weights: Tensor | None, mask: Tensor) -> None:
        """Raises when a coverage penalty is asked for and a step's weights, `(R, S)` or None, do not allow it."""
        if self.coverage is None:
            return
        if weights is None:
            raise SightlineError("coverage_penalty needs attention weights and this model gives none: set it to 0")
        if weights.size(1) != mask.size(1):
            raise SightlineError(
                f"coverage_penalty needs a weight for each of {mask.size(1)} source positions, "
                f"and this model gives {weights.size(1)}: set it to 0"
            )
