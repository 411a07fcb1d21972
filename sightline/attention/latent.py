"""Hard attention whose choice nobody knows: one position at each step, and the sum over all ways to choose them.

A way is a chain of positions, the chance of each given by the one before: `p(a_t = j | a_{t-1} = k)`, a matrix of
moves. The target tells, token by token, where the chain may be: what was possible before a token (the prior) becomes,
through the token's chance at each position, what is possible after it (the posterior), which moves on to the next
prior. That is the forward algorithm of a hidden Markov model, in logarithms.
Shapes: B sentences, T queries (decoding: the hypotheses of a sentence), S positions, k the position before, j the one
after, W kinds of jumps.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sightline.attention.clues import Clue, Look
from sightline.attention.core import LOG_ZERO, masked_log, masked_log_softmax, precise
from sightline.attention.masks import onward_mask
from sightline.attention.scores import Score
from sightline.attention.soft import NOTHING_BESIDE, Scored


class LatentAttention(Scored, ABC):
    """Moves from position to position. Before the first one every chain stands at the first position.

    `chained` tells whether a move depends on where it starts: if not, there is one row of moves for all positions.
    """

    chained = True

    @abstractmethod
    def moves(self, look: Look) -> Tensor:
        """Log-chances `(B, T, S, S)` from k (second last) to j (last); `(B, T, 1, S)` when not `chained`."""

    def filtered(self, moves: Tensor, emissions: Tensor, place: Tensor) -> Tensor:
        """The priors of all steps `(B, T, S)`.

        From moves, the log-chances `(B, T, S)` of each target at each position, and the place `(B, S)` before.
        """
        priors = []
        for step, emission in zip(moves.unbind(1), emissions.unbind(1), strict=True):
            priors.append(arrived(place, step))
            place = posterior(priors[-1], emission)
        result = torch.stack(priors, 1)
        if self.tap is not None:
            self.tap.record(result.exp()[:, None])
        return result


def first_place(mask: Tensor, kind: torch.dtype) -> Tensor:
    """Log-chances `(B, S)` of a chain that stands at the first position."""
    at_first = torch.arange(mask.size(-1), device=mask.device) == 0
    return masked_log(torch.zeros(mask.shape, dtype=kind, device=mask.device), at_first)


def arrived(place: Tensor, moves: Tensor) -> Tensor:
    """Log-chances of the positions after a move: `(…, S)` and `(…, S or 1, S)` to `(…, S)`."""
    if moves.size(-2) == 1 < moves.size(-1):
        return moves.squeeze(-2)
    return torch.logsumexp(place[..., None] + moves, -2).clamp(min=LOG_ZERO)


def posterior(prior: Tensor, emission: Tensor) -> Tensor:
    """Where a chain may be after a token: log-chances before it, and of it at each position, `(…, S)` each."""
    return (prior + emission).log_softmax(-1).clamp(min=LOG_ZERO)


class ExactAttention(LatentAttention):
    """Every position at every step: `α_tj = softmax_j score(s_t, h_j)` (Wu et al. 2018; Deng et al. 2018).

    The sum over chains is a product of sums over positions, one for each step.
    """

    chained = False

    def moves(self, look: Look) -> Tensor:
        return masked_log_softmax(self.scores(look), look.shared["mask"][:, None, :])[..., None, :]


class ExactMonotonicAttention(LatentAttention):
    """The same scores, but a chain never goes back: normalised anew over j ≥ k (Wu & Cotterell 2019, order 0)."""

    def moves(self, look: Look) -> Tensor:
        return masked_log_softmax(self.scores(look)[..., None, :], onward_mask(look.shared["mask"]))


class ExactJumpsAttention(LatentAttention):
    """A move also depends on where it starts, by how far it goes (Wu & Cotterell 2019, order 1).

    `score(s_t, h_j) + u_{min(j - k, most)}ᵀ tanh(W s_t + U h_k)`, normalised over j ≥ k. The vectors u are zero at
    first, so that a new model is one of order 0.
    """

    def __init__(
        self, score: Score, query_width: int, key_width: int, width: int, most: int, clues: Sequence[Clue] = ()
    ) -> None:
        super().__init__(score, clues)
        self.most = most
        self.query = nn.Linear(query_width, width)
        self.key = nn.Linear(key_width, width, bias=False)
        self.jump = nn.Linear(width, most + 1)
        nn.init.zeros_(self.jump.weight)
        nn.init.zeros_(self.jump.bias)

    def prepare(self, states: Tensor, mask: Tensor, beside: Mapping[str, Tensor] = NOTHING_BESIDE) -> dict[str, Tensor]:
        return {**super().prepare(states, mask, beside), "starts": self.key(states)}

    def moves(self, look: Look) -> Tensor:
        mask, size = look.shared["mask"], look.shared["mask"].size(-1)
        hidden = torch.tanh(self.query(look.queries)[:, :, None] + look.shared["starts"][:, None])  # (B, T, S, n)
        place = torch.arange(size, device=mask.device)
        distance = (place[None, :] - place[:, None]).clamp(0, self.most)  # (S, S)
        jumps = self.jump(hidden)  # (B, T, S, W)
        by_distance = jumps.gather(-1, distance.expand(*jumps.shape[:3], size))
        return masked_log_softmax(self.scores(look)[..., None, :] + by_distance, onward_mask(mask))


class SegmentAttention(LatentAttention):
    """At each position a chain stops or goes on to the next one: segment to segment (Yu, Buys & Blunsom 2016).

    `p(j | k) = e_j Π_{k ≤ l < j} (1 - e_l)`, `e_j = σ(score(s_t, h_j) + b)`. At the last position it must stop.
    """

    def __init__(self, score: Score, stop_bias: float, clues: Sequence[Clue] = ()) -> None:
        super().__init__(score, clues)
        self.bias = nn.Parameter(torch.tensor([stop_bias]))

    def moves(self, look: Look) -> Tensor:
        mask = look.shared["mask"]
        energies = precise(self.scores(look)) + self.bias
        last = mask & ~F.pad(mask[:, 1:], (0, 1))
        stop = F.logsigmoid(energies) * ~last[:, None]  # the logarithm of 1 is 0
        return stopping(stop, F.logsigmoid(-energies), mask)


def stopping(stop: Tensor, go: Tensor, mask: Tensor) -> Tensor:
    """Moves `(B, T, S, S)` of who stops or goes on at each position, with these log-chances `(B, T, S)`."""
    before = go.cumsum(-1) - go
    return masked_log((stop + before)[..., None, :] - before[..., :, None], onward_mask(mask))
