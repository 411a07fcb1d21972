"""Attention to one position at a time: drawn by chance, or the first at which to stop.

Shapes: B sentences, T queries (decoding: the hypotheses of a sentence), S positions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sightline.attention.clues import Clue, Look
from sightline.attention.core import masked_softmax, precise
from sightline.attention.latent import stopping
from sightline.attention.scores import Additive, Score
from sightline.attention.soft import MEMORY, NOTHING_BESIDE, SoftAttention
from sightline.randomness import dropout, normal, uniform


class SampledAttention(SoftAttention):
    """One position, drawn with its weight as its chance (Xu et al. 2015); the likeliest one when it does not learn.

    A draw has no gradient: the loss `Reinforce` teaches the weights by what came of it. While learning, a share `soft`
    of all looks takes the mean instead, through which gradients flow as they do in soft attention.
    """

    def __init__(self, score: Score, soft: float, dropout: float = 0.0, clues: Sequence[Clue] = ()) -> None:
        super().__init__(score, dropout, clues)
        self.soft = soft

    def weigh(self, look: Look) -> Tensor:
        return masked_softmax(self.scores(look), look.shared["mask"][:, None, :])

    def take(self, weights: Tensor) -> tuple[Tensor, Tensor | None]:
        if not self.training:
            return one_hot(weights.argmax(-1), weights), None
        drawn = draw(weights)
        mean = uniform(weights[..., :1].detach()) < self.soft  # (B, T, 1)
        chances = weights.gather(-1, drawn[..., None]).clamp(min=torch.finfo(weights.dtype).tiny)
        log_chances = torch.where(mean, 0.0, chances.log()).squeeze(-1)
        return torch.where(mean, dropout(weights, self.dropout), one_hot(drawn, weights)), log_chances


def draw(weights: Tensor) -> Tensor:
    """A position for each row of `(…, S)`, its weight the chance: `(…)`."""
    sums = weights.detach().cumsum(-1)
    total = sums[..., -1:]
    passed = (sums <= uniform(total) * total).sum(-1)
    # Rounding may put a draw at the very end: it belongs to the last position that has a chance.
    return torch.minimum(passed, (sums < total).sum(-1))


def one_hot(positions: Tensor, like: Tensor) -> Tensor:
    """Positions `(…)` as weights `(…, S)`: 1 there, 0 elsewhere."""
    return F.one_hot(positions, like.size(-1)).to(like.dtype)


class OnlineMonotonicAttention(SoftAttention):
    """It goes on from where it stood and stops at the first position that is worth it (Raffel et al. 2017).

    The chance to stop is `p = σ(energy)`. While learning, the weights are expected ones: all ways to go on and stop,
    each with its chance, and noise in the energies makes chances near 0 and 1 worth having. Otherwise it stops where p
    is above one half. What goes past the last position is lost: these rows' weights sum to less than 1, and who has
    gone past it sees nothing any more. The energy is the score plus a learned offset, negative at first; of the
    additive score the vector's length is learned apart from its direction.
    """

    def __init__(self, score: Score, stop_bias: float, dropout: float = 0.0, clues: Sequence[Clue] = ()) -> None:
        super().__init__(score, dropout, clues)
        self.bias = nn.Parameter(torch.tensor([stop_bias]))
        self.gain = nn.Parameter(score.vector.detach().norm()[None].clone()) if isinstance(score, Additive) else None

    @property
    def remembers(self) -> bool:
        return True

    def begin(self, states: Tensor, mask: Tensor, beside: Mapping[str, Tensor] = NOTHING_BESIDE) -> dict[str, Tensor]:
        first = torch.zeros(mask.shape, dtype=states.dtype, device=mask.device)
        first[:, 0] = 1
        return {**super().begin(states, mask, beside), MEMORY + "stood": first}

    def after(self, look: Look, weights: Tensor) -> dict[str, Tensor]:
        return {**super().after(look, weights), "stood": weights}

    def energies(self, look: Look) -> Tensor:
        """`(B, T, S)`: their logistic functions are the chances to stop."""
        scores = precise(self.scores(look))
        if self.gain is not None and isinstance(self.score, Additive):
            scores = scores * (self.gain / self.score.vector.norm())
        return scores + self.bias

    def weigh(self, look: Look) -> Tensor:
        energies, mask = self.energies(look), look.shared["mask"]
        stood = look.carried["stood"]
        if not self.training:
            return first_stop(energies > 0, stood, mask)
        energies = energies + normal(energies.detach())
        return expected_stops(energies, stood, mask)


def first_stop(stops: Tensor, stood: Tensor, mask: Tensor) -> Tensor:
    """The first position `(B, T, S)` to stop at, from the one stood at on; nothing for who stood nowhere."""
    reached = (stood.cumsum(-1) > 0) & stops & mask[:, None]
    return (reached & (reached.cumsum(-1) == 1)).to(stood.dtype)


def expected_stops(energies: Tensor, stood: Tensor, mask: Tensor) -> Tensor:
    """Expected weights `(B, T, S)` from those of the step before and energies, all positions at once.

    The paper divides a running product by another, which soon underflows. A matrix of the moves, made of differences of
    logarithms, does not, and at the lengths of sentences its S² numbers cost little.
    """
    moves = stopping(F.logsigmoid(energies), F.logsigmoid(-energies), mask)
    return (stood[..., :, None] * moves.exp()).sum(-2)


def expected_stops_reference(energies: Tensor, stood: Tensor, mask: Tensor) -> Tensor:
    """The same by the paper's recursion: `q_j = (1 - p_{j-1}) q_{j-1} + α_{t-1,j}`, `α_tj = p_j q_j`."""
    chances = torch.sigmoid(energies) * mask[:, None]
    weights = []
    waiting = torch.zeros_like(stood[..., 0])
    for chance, arriving in zip(chances.unbind(-1), stood.unbind(-1), strict=True):
        waiting = waiting + arriving
        weights.append(chance * waiting)
        waiting = (1 - chance) * waiting
    return torch.stack(weights, -1)
