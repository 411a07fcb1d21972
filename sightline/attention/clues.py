"""What a score may know beside query and key: where it is, where it looked before, what has been covered.

Each clue gives features for every query and position; the attention projects them into the score, inside the tanh of
the additive one. What a clue remembers belongs to a hypothesis and travels in the decoder's state.
Shapes: B sentences, T queries (decoding: the hypotheses of a sentence), S positions, d_q and d_k widths of queries and
keys, f features of a clue.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Named = dict[str, Tensor]


@dataclass(frozen=True)
class Look:
    """One look at the memory: queries `(B, T, d_q)` at target positions `(T,)`, from 0.

    `shared` belongs to the sentences, `(B, S, …)` each; `carried` is what the clues remember, `(B, T, S, …)` each.
    """

    queries: Tensor
    shared: Named
    positions: Tensor
    carried: Named


class Clue(nn.Module, ABC):
    """`width` is f. A clue that `remembers` makes its decoder go step by step."""

    width: int
    remembers = True

    def prepare(self, states: Tensor, mask: Tensor) -> Named:
        """What depends on encoder states `(B, S, d_k)` and their mask `(B, S)` alone, `(B, S, …)` each."""
        return {}

    def begin(self, states: Tensor, mask: Tensor) -> Named:
        """What it remembers before the first step, `(B, S, …)` each."""
        return {}

    @abstractmethod
    def features(self, look: Look) -> Tensor:
        """`(B, T, S, f)`."""

    def after(self, look: Look, weights: Tensor) -> Named:
        """What it remembers of this look and its weights `(B, T, S)`."""
        return {}


class PositionBias(Clue):
    """How far along query and position are: log(1 + t), log(1 + s), log(1 + S), S the true length (Cohn et al. 2016).

    Both are counted from 0. The target's length is unknown while it is written, so it has no part in this.
    """

    width = 3
    remembers = False

    def features(self, look: Look) -> Tensor:
        mask = look.shared["mask"]
        batch, source = mask.shape
        kind = look.queries.dtype
        target = torch.log1p(look.positions.to(kind))[None, :, None]
        place = torch.log1p(torch.arange(source, device=mask.device, dtype=kind))[None, None, :]
        length = torch.log1p(mask.sum(-1).to(kind))[:, None, None]
        shape = (batch, look.queries.size(1), source)
        return torch.stack([part.expand(shape) for part in (target, place, length)], -1)


class MarkovBias(Clue):
    """The weights of the step before, from `radius` positions on each side (Cohn et al. 2016); zeros at first."""

    def __init__(self, radius: int) -> None:
        super().__init__()
        self.radius, self.width = radius, 2 * radius + 1

    def begin(self, states: Tensor, mask: Tensor) -> Named:
        return {"before": states.new_zeros(mask.shape)}

    def features(self, look: Look) -> Tensor:
        return windows(look.carried["before"], self.radius)

    def after(self, look: Look, weights: Tensor) -> Named:
        return {"before": weights}


class LocalFertility(Clue):
    """How much weight each of the positions around has had so far (Cohn et al. 2016)."""

    def __init__(self, radius: int) -> None:
        super().__init__()
        self.radius, self.width = radius, 2 * radius + 1

    def begin(self, states: Tensor, mask: Tensor) -> Named:
        return {"received": states.new_zeros(mask.shape)}

    def features(self, look: Look) -> Tensor:
        return windows(look.carried["received"], self.radius)

    def after(self, look: Look, weights: Tensor) -> Named:
        return {"received": look.carried["received"] + weights}


class Coverage(Clue):
    """The sum of the weights so far, over what a position should get (Tu et al. 2016, "linguistic"; See et al. 2017).

    A position's due is its fertility, `Φ = most · σ(u · h)`, or without `most` one.
    """

    width = 1

    def __init__(self, key_width: int, most: float | None) -> None:
        super().__init__()
        self.most = most
        self.fertility = nn.Linear(key_width, 1) if most is not None else None

    def prepare(self, states: Tensor, mask: Tensor) -> Named:
        if self.fertility is None or self.most is None:
            return {}
        return {"fertility": self.most * torch.sigmoid(self.fertility(states)).squeeze(-1)}

    def begin(self, states: Tensor, mask: Tensor) -> Named:
        return {"coverage": states.new_zeros(mask.shape)}

    def features(self, look: Look) -> Tensor:
        return look.carried["coverage"][..., None]

    def after(self, look: Look, weights: Tensor) -> Named:
        due = look.shared.get("fertility")
        return {"coverage": look.carried["coverage"] + (weights if due is None else weights / due[:, None])}


class NeuralCoverage(Clue):
    """A GRU at each position tells what has been covered: `C = GRU(C, [α, h, q])` (Tu et al. 2016)."""

    def __init__(self, query_width: int, key_width: int, width: int) -> None:
        super().__init__()
        self.width = width
        self.cell = nn.GRUCell(1 + key_width + query_width, width)

    def begin(self, states: Tensor, mask: Tensor) -> Named:
        return {"covered": states.new_zeros(*mask.shape, self.width)}

    def features(self, look: Look) -> Tensor:
        return look.carried["covered"]

    def after(self, look: Look, weights: Tensor) -> Named:
        covered = look.carried["covered"]
        shape = covered.shape[:-1]  # (B, T, S)
        states = look.shared["values"][:, None].expand(*shape, -1)
        queries = look.queries[:, :, None].expand(*shape, -1)
        given = torch.cat([weights[..., None], states, queries], -1)
        return {"covered": self.cell(given.flatten(0, 2), covered.flatten(0, 2)).view_as(covered)}


def windows(values: Tensor, radius: int) -> Tensor:
    """Each position's neighbourhood, zeros beyond the edges: `(…, S)` to `(…, S, 2 radius + 1)`."""
    return F.pad(values, (radius, radius)).unfold(-1, 2 * radius + 1, 1)
