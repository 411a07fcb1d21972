"""What training may hold against a model beside its wrong words: losses over attention's weights.

Each gives a sum and what to divide it by. The last real source position is the end symbol, and is nobody's due.
Shapes: B sentences, T target positions, S source positions, d width of a memory state.
"""

from __future__ import annotations

import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sightline.attention.clues import EmbeddedCoverage
from sightline.batch import Memory, side_by_side

Sum = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Outcome:
    """A full pass over a batch, as losses see it.

    Where the decoder looked, `weights` `(B, T, S)`, which targets are `real` `(B, T)`, the memory, and the `links`
    `(B, T, S)` that were known before. Where positions were drawn, the `log_chances` `(B, T)` of these, and which
    targets are `learnt` `(B, T)` (None: all real ones); `rewards` works out the log-probabilities of the targets,
    `(B, T)`, without gradient; `changing` are some weights that every update changes. `embedded` gives the targets as
    the decoder will read them, `(B, T, e)`.
    """

    weights: Tensor
    real: Tensor
    memory: Memory
    rewards: Callable[[], Tensor]
    changing: Tensor
    links: Tensor | None = None
    log_chances: Tensor | None = None
    learnt: Tensor | None = None
    embedded: Callable[[], Tensor] | None = None


class AttentionLoss(nn.Module, ABC):
    """A loss beside that of the words."""

    def pool(self, summed: Callable[[Tensor], Tensor]) -> None:
        """Where several ranks train: `summed` gives the sum of a tensor over all. Most losses keep nothing to share."""

    @abstractmethod
    def of(self, outcome: Outcome) -> Sum:
        """A sum, and what to divide it by."""


class Penalty(AttentionLoss):
    """A loss over the weights of a full pass alone."""

    def of(self, outcome: Outcome) -> Sum:
        return self(outcome.weights, outcome.real, outcome.memory)

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
        words = words_of(memory)
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
        words = words_of(memory)
        mean, variance = self.expected(memory.states)
        surprise = 0.5 * ((received(weights, real) - mean) ** 2 / variance + variance.log() + math.log(2 * math.pi))
        return (surprise * words).sum(), words.sum()


class CoverageLeft(AttentionLoss):
    """`|c_s|²` for each source word: what its coverage embedding has left after the last target (Mi et al. 2016).

    Squared, because a norm has no gradient where it is 0. The clue belongs to the decoder: its weights are not counted
    among this loss's own.
    """

    def __init__(self, clue: EmbeddedCoverage) -> None:
        super().__init__()
        self.decoders = (clue,)  # a module in a tuple is no submodule

    def of(self, outcome: Outcome) -> Sum:
        (clue,), source = self.decoders, outcome.memory.source
        assert source is not None
        assert outcome.embedded is not None
        left = clue.at_end(source.ids, outcome.weights, outcome.embedded(), outcome.real)
        words = source_words(source.mask)
        return (left.square().sum(-1) * words).sum(), words.sum()


class GuidedAttention(AttentionLoss):
    """Weights compared with links, for each target that has any: with `1 / n` at each of a target's n links.

    cross_entropy `-Σ_s α*_s log α_s` (Chen et al. 2016; Garg et al. 2019), at least the entropy of the links;
    squared_error `½ Σ_s (α_s - α*_s)²`; product `-log Σ_s α*_s α_s` (Liu et al. 2016; Mi et al. 2016).
    A token's row is the one that predicts it or, with `consumes`, the next, which has it as input.
    """

    LEAST = 1e-9  # beside a weight, so that its logarithm is a number

    def __init__(self, kind: str, consumes: bool = False) -> None:
        super().__init__()
        self.kind, self.consumes = kind, consumes

    def of(self, outcome: Outcome) -> Sum:
        return self(outcome.weights, outcome.links)

    def forward(self, weights: Tensor, links: Tensor | None) -> Sum:
        """Weights `(B, T, S)` and links of the same shape, True or False, to a sum and the number of linked targets.

        A target without links, such as the end symbol, is free to look anywhere.
        """
        if links is None:
            return weights.new_zeros(()), torch.zeros((), dtype=torch.long, device=weights.device)
        if self.consumes:
            links = nn.functional.pad(links[:, :-1], (0, 0, 1, 0))
        linked = links.any(-1)
        weights, links = weights[linked], links[linked].to(weights.dtype)  # (linked targets, S)
        wanted = links / links.sum(-1, keepdim=True)
        if self.kind == "squared_error":
            total = 0.5 * ((weights - wanted) ** 2).sum()
        elif self.kind == "product":
            total = -((wanted * weights).sum(-1) + self.LEAST).log().sum()
        else:
            total = -(wanted * (weights + self.LEAST).log()).sum()
        return total, linked.sum()


def agreement(forward: Tensor, backward: Tensor, source: Tensor, target: Tensor) -> Sum:
    """How far two directions see the same: `Tr(A B)`, and the most it can be, the words of the shorter side.

    Weights `(B, T, S)` of the one direction and `(B, S, T)` of the other, and the masks of their tokens, `(B, S)` and
    `(B, T)`. The end symbols have no part in it, neither as rows nor as columns.
    """
    sources, targets = source_words(source), source_words(target)
    both = (forward * backward.transpose(1, 2)) * (targets[:, :, None] & sources[:, None])
    return both.sum(), torch.minimum(sources.sum(-1), targets.sum(-1)).sum()


class Certainty(Penalty):
    """`Σ_s α_ts log α_ts` for each target, between -log S and 0: with a small weight, a bonus for open choices."""

    def forward(self, weights: Tensor, real: Tensor, memory: Memory) -> Sum:
        return (torch.xlogy(weights, weights.clamp(min=1e-30)) * real[..., None]).sum(), real.sum()


def _alone(value: Tensor) -> Tensor:
    """What one process has to add is all there is."""
    return value


# Parts of a batch may be at work at once; a lock of a module's own could not be copied with it.
_PENDING = threading.Lock()


class Reinforce(AttentionLoss):
    """Teaches attention that draws its positions (Xu et al. 2015): `-(Σ_{t' ≥ t} log p(y_t') - b) log α_t` for each.

    A draw is good for what comes at its target and after it. `b` is what a target was worth lately, a moving average
    of log-probabilities which lowers the variance and, because it never knows the draw at hand, changes nothing else.
    All batches of an update see the same one: what they add to it waits until the weights have changed. It waits as a
    whole number of millionths, so that the order of the parts cannot matter. Where several ranks train, `pooled` sums
    up what they add, so that all know the same. What is not a number is left out: the update will be skipped.
    """

    MEMORY, UNIT, MOST = 0.9, 1e-6, 1e15
    baseline: Tensor
    waiting: Tensor
    seen: Tensor | None

    def __init__(self, first: float) -> None:
        """`first`: what a target is worth to who knows nothing."""
        super().__init__()
        self.pooled: Callable[[Tensor], Tensor] = _alone
        self.register_buffer("baseline", torch.tensor([first], dtype=torch.float64))
        self.register_buffer("waiting", torch.zeros(2, dtype=torch.long))  # a sum in units, and its count
        self.register_buffer("seen", None, persistent=False)  # the weights that `waiting` belongs to

    def pool(self, summed: Callable[[Tensor], Tensor]) -> None:
        self.pooled = summed

    def of(self, outcome: Outcome) -> Sum:
        if outcome.log_chances is None:  # nothing was drawn, as in evaluation
            return outcome.weights.new_zeros(()), outcome.real.sum()
        return self(outcome.log_chances, outcome.rewards(), outcome.real, outcome.changing, outcome.learnt)

    def forward(
        self, log_chances: Tensor, rewards: Tensor, real: Tensor, weights: Tensor, learnt: Tensor | None = None
    ) -> Sum:
        """Log-chances of draws, log-probabilities of targets without gradient, and which are real, `(B, T)` each.

        `weights` are any that every update changes. Only targets that are `learnt` `(B, T)`, None: all real ones, are
        worth anything.
        """
        baseline = self.settled(weights)
        learnt = real if learnt is None else learnt
        gains = (rewards - baseline) * learnt
        to_come = gains.flip(1).cumsum(1).flip(1)
        worth = float((rewards * learnt).sum()) / self.UNIT
        told = (round(worth), int(learnt.sum())) if abs(worth) < self.MOST else (0, 0)
        added = self.pooled(torch.tensor(told, device=self.waiting.device))
        with _PENDING:
            self.waiting += added
        return -(to_come * log_chances * real).sum(), real.sum()

    def settled(self, weights: Tensor) -> float:
        """The baseline, after taking up what was waiting if the weights have changed since."""
        with _PENDING:
            if self.seen is None or not torch.equal(self.seen, weights):
                self.seen = weights.detach().clone()
                total, count = self.waiting.tolist()
                if count:
                    lately = total * self.UNIT / count
                    self.baseline.mul_(self.MEMORY).add_((1 - self.MEMORY) * lately)
                    self.waiting.zero_()
            return float(self.baseline)


def received(weights: Tensor, real: Tensor) -> Tensor:
    """All the weight that real targets `(B, T)` give each position: `(B, T, S)` to `(B, S)`."""
    return (weights * real[..., None]).sum(1)


def words_of(memory: Memory) -> Tensor:
    """The source tokens `(B, S)` of a memory that are words; of several sources each has its own end symbol."""
    return side_by_side([source_words(source.tokens) for source in memory.sources])


def source_words(mask: Tensor) -> Tensor:
    """Real positions `(B, S)` without the last of each row, which is the end symbol."""
    following = nn.functional.pad(mask[:, 1:], (0, 1), value=False)
    return mask & following
