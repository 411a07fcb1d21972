"""What training may hold against a model beside its wrong words: losses over attention's weights.

Each gives a sum and what to divide it by. The last real source position is the end symbol, and is nobody's due.
Shapes: B sentences, T target positions, S source positions, d width of a memory state.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from sightline.batch import Memory

Sum = tuple[Tensor, Tensor]


class Penalty(nn.Module, ABC):
    """A loss over the weights of a full pass."""

    @abstractmethod
    def forward(self, weights: Tensor, real: Tensor, memory: Memory) -> Sum:
        """Weights `(B, T, S)`, which targets are real `(B, T)`, and the memory to a sum and its count."""


class RepeatedLooks(Penalty):
    """`Σ_s min(α_ts, Σ_{t' < t} α_t's)` for each target: looking again at what was looked at (See et al. 2017).

    Between 0 and 1 a target, and 0 for the first.
    """

    def forward(self, weights: Tensor, real: Tensor, memory: Memory) -> Sum:
        weights = weights * real[..., None]
        before = weights.cumsum(1) - weights
        return torch.minimum(weights, before).sum(), real.sum()


class OneLookEach(Penalty):
    """`(1 - Σ_t α_ts)²` for each source word: about one look in all (Xu et al. 2015).

    A soft wish: the looks at all words together are as many as there are targets.
    """

    def forward(self, weights: Tensor, real: Tensor, memory: Memory) -> Sum:
        words = source_words(memory.mask)
        return ((1 - received(weights, real)) ** 2 * words).sum(), words.sum()


class GlobalFertility(Penalty):
    """`-log N(Σ_t α_ts; μ(h_s), σ²(h_s))` for each source word, μ and σ² learned (Cohn et al. 2016).

    The variance has a floor: without one a word whose looks are foretold exactly would be worth infinitely much.
    """

    FLOOR = 0.01

    def __init__(self, width: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(width, width)
        self.moments = nn.Linear(width, 2)

    def expected(self, states: Tensor) -> Sum:
        """States `(B, S, d)` to the mean and the variance of the looks at them, `(B, S)`."""
        mean, spread = self.moments(torch.tanh(self.hidden(states))).unbind(-1)
        return nn.functional.softplus(mean), nn.functional.softplus(spread) + self.FLOOR

    def forward(self, weights: Tensor, real: Tensor, memory: Memory) -> Sum:
        words = source_words(memory.mask)
        mean, variance = self.expected(memory.states)
        surprise = 0.5 * ((received(weights, real) - mean) ** 2 / variance + variance.log() + math.log(2 * math.pi))
        return (surprise * words).sum(), words.sum()


def received(weights: Tensor, real: Tensor) -> Tensor:
    """All the weight that real targets `(B, T)` give each position: `(B, T, S)` to `(B, S)`."""
    return (weights * real[..., None]).sum(1)


def source_words(mask: Tensor) -> Tensor:
    """Real positions `(B, S)` without the last of each row, which is the end symbol."""
    following = nn.functional.pad(mask[:, 1:], (0, 1), value=False)
    return mask & following
