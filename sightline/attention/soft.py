"""Single-head soft attention for recurrent decoders, over all positions or over a window.

Shapes: B sentences, T queries (decoding: the hypotheses of a sentence), S keys, d_q, d_k widths.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from sightline.attention.capture import Tapped
from sightline.attention.core import masked_softmax
from sightline.attention.masks import window_mask
from sightline.attention.scores import Score
from sightline.randomness import dropout


@dataclass(frozen=True)
class Attended:
    """What attention gives: context `(B, T, d_k)`, weights `(B, T, S)`, and what it carries to the next step."""

    context: Tensor
    weights: Tensor
    state: dict[str, Tensor] = field(default_factory=dict)


class SoftAttention(Tapped, ABC):
    """Weights over the memory's states, and their mean under these weights."""

    def __init__(self, score: Score, dropout: float = 0.0) -> None:
        super().__init__()
        self.score = score
        self.dropout = dropout

    def prepare(self, states: Tensor, mask: Tensor) -> dict[str, Tensor]:
        """Encoder states `(B, S, d_k)` and their mask `(B, S)` as what every step shares."""
        return {"keys": self.score.prepare(states), "values": states, "mask": mask}

    @abstractmethod
    def weigh(self, queries: Tensor, shared: dict[str, Tensor], positions: Tensor) -> Tensor:
        """Queries `(B, T, d_q)`, shared tensors, and the queries' positions `(T,)` to weights `(B, T, S)`."""

    def forward(
        self,
        queries: Tensor,
        shared: dict[str, Tensor],
        positions: Tensor,
        mix: Callable[[Tensor], Tensor] | None = None,
    ) -> Attended:
        """Queries `(B, T, d_q)` at target positions `(T,)`, from 0, look at what `prepare` made.

        `mix`, weights `(B, T, S)` to contexts `(B, T, d_k)`, may stand in for the product with the values.
        """
        weights = self.weigh(queries, shared, positions)
        if self.tap is not None:
            self.tap.record(weights[:, None])
        mixed = dropout(weights, self.dropout) if self.training else weights
        return Attended(mix(mixed) if mix else mixed @ shared["values"], weights)


class GlobalAttention(SoftAttention):
    """Every real position (Bahdanau et al. 2015; Luong's "global")."""

    def weigh(self, queries: Tensor, shared: dict[str, Tensor], positions: Tensor) -> Tensor:
        return masked_softmax(self.score(queries, shared["keys"]), shared["mask"][:, None, :])


class LocalMonotonicAttention(SoftAttention):
    """Luong's local-m: query t looks at the positions at most `window` from t (from the last one when t is past it)."""

    def __init__(self, score: Score, window: int, dropout: float = 0.0) -> None:
        super().__init__(score, dropout)
        self.window = window

    def weigh(self, queries: Tensor, shared: dict[str, Tensor], positions: Tensor) -> Tensor:
        mask = shared["mask"]
        last = mask.sum(-1, keepdim=True) - 1  # (B, 1)
        centres = torch.minimum(positions[None, :], last)  # (B, T)
        allowed = window_mask(centres, mask.size(-1), self.window) & mask[:, None, :]
        return masked_softmax(self.score(queries, shared["keys"]), allowed)


class LocalPredictiveAttention(SoftAttention):
    """Luong's local-p: the model places the window's centre, `p = S · sigmoid(vᵀ tanh(W q))`, S the true length.

    The softmax runs inside the window; a Gaussian around p of deviation window/2 then weighs it down and is not
    normalised again, so a row's sum is below 1. Through it alone the centre learns.
    """

    def __init__(self, score: Score, query_width: int, window: int, dropout: float = 0.0) -> None:
        super().__init__(score, dropout)
        self.window = window
        self.hidden = nn.Linear(query_width, query_width, bias=False)
        self.place = nn.Linear(query_width, 1, bias=False)

    def centres(self, queries: Tensor, mask: Tensor) -> Tensor:
        """Queries `(B, T, d_q)` and mask `(B, S)` to centres `(B, T)`."""
        share = torch.sigmoid(self.place(torch.tanh(self.hidden(queries)))).squeeze(-1)
        return mask.sum(-1, keepdim=True) * share

    def weigh(self, queries: Tensor, shared: dict[str, Tensor], positions: Tensor) -> Tensor:
        mask = shared["mask"]
        centres = self.centres(queries, mask)
        allowed = window_mask(centres, mask.size(-1), self.window) & mask[:, None, :]
        inside = masked_softmax(self.score(queries, shared["keys"]), allowed)
        distance = torch.arange(mask.size(-1), device=mask.device) - centres[..., None]  # (B, T, S)
        return inside * torch.exp(-(distance**2) / (2 * (self.window / 2) ** 2))
