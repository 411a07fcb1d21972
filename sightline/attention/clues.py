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
    `tokens` `(B, T, k)` is what a clue made of the tokens that were read just before.
    """

    queries: Tensor
    shared: Named
    positions: Tensor
    carried: Named
    tokens: Tensor | None = None


class Clue(nn.Module, ABC):
    """`width` is f. A clue that `remembers` makes its decoder go step by step.

    `token_width` is k, of what it wants of each token that is read; at most one clue of an attention wants any.
    """

    width: int
    remembers = True
    token_width = 0

    def of_tokens(self, embedded: Tensor) -> Tensor:
        """What it wants of embedded tokens, `(…, e)` to `(…, k)`."""
        return embedded[..., :0]

    def prepare(self, states: Tensor, mask: Tensor) -> Named:
        """What depends on encoder states `(B, S, d_k)` and their mask `(B, S)` alone, `(B, S, …)` each."""
        return {}

    def begin(self, states: Tensor, mask: Tensor, beside: Named) -> Named:
        """What it remembers before the first step, `(B, S, …)` each; `beside` may have the `ids` `(B, S)` of words."""
        return {}

    def before(self, look: Look) -> Named:
        """What of it changes with the tokens that were just read."""
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

    def begin(self, states: Tensor, mask: Tensor, beside: Named) -> Named:
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

    def begin(self, states: Tensor, mask: Tensor, beside: Named) -> Named:
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

    def begin(self, states: Tensor, mask: Tensor, beside: Named) -> Named:
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

    def begin(self, states: Tensor, mask: Tensor, beside: Named) -> Named:
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


class EmbeddedCoverage(Clue):
    """What is left to be said of each position, a vector that begins as its word's own (Mi et al. 2016).

    `c_0 = C[x]`, one vector for each word of the source vocabulary. With every target token y and the weight α that
    its look gave a position, that position's vector moves on: `c = c - α W y`, or with a `gru` `c = GRU(c, [y; α])`.
    y is known only when the next look begins, so the weights wait for it.
    """

    def __init__(self, vocabulary: int, width: int, token_width: int, gru: bool) -> None:
        super().__init__()
        self.width, self.read_width, self.gru = width, token_width, gru
        self.table = nn.Parameter(torch.randn(vocabulary, width) * width**-0.5)
        self.cell = nn.GRUCell(token_width + 1, width) if gru else None
        self.token = None if gru else nn.Linear(token_width, width, bias=False)
        self.token_width = 3 * width if gru else width

    def of_tokens(self, embedded: Tensor) -> Tensor:
        """`W y`, or y's share of the gates with their bias."""
        given = embedded[..., : self.read_width]
        if self.cell is None:
            assert self.token is not None
            return self.token(given)
        return F.linear(given, self.cell.weight_ih[:, :-1], self.cell.bias_ih)

    def begin(self, states: Tensor, mask: Tensor, beside: Named) -> Named:
        return {"left": F.embedding(beside["ids"], self.table), "last": states.new_zeros(mask.shape)}

    def before(self, look: Look) -> Named:
        assert look.tokens is not None
        left = look.carried["left"]
        moved = self.moved(left, look.carried["last"], look.tokens)
        begun = (look.positions > 0)[:, None, None]  # before the first look nothing has been written
        return {"left": torch.where(begun, moved, left)}

    def features(self, look: Look) -> Tensor:
        return look.carried["left"]

    def after(self, look: Look, weights: Tensor) -> Named:
        return {"left": look.carried["left"], "last": weights}

    def moved(self, left: Tensor, weights: Tensor, tokens: Tensor) -> Tensor:
        """`(…, S, f)` after tokens `(…, k)` that were written with weights `(…, S)`."""
        share = weights[..., None].to(left.dtype)
        if self.cell is None:
            return left - share * tokens[..., None, :]
        of_input = tokens[..., None, :] + share * self.cell.weight_ih[:, -1]
        of_left = F.linear(left, self.cell.weight_hh, self.cell.bias_hh)
        reset, update, new = of_input.chunk(3, -1)
        reset_left, update_left, new_left = of_left.chunk(3, -1)
        candidate = torch.tanh(new + torch.sigmoid(reset + reset_left) * new_left)
        return torch.lerp(candidate, left, torch.sigmoid(update + update_left))

    def at_end(self, ids: Tensor, weights: Tensor, embedded: Tensor, real: Tensor) -> Tensor:
        """What is left `(B, S, f)` after the last real target.

        Of source words `(B, S)`, the weights `(B, T, S)` of all targets, the same embedded `(B, T, e)`, and which are
        real `(B, T)`.
        """
        left, tokens = F.embedding(ids, self.table), self.of_tokens(embedded)
        if self.cell is None:
            return left - (weights * real[..., None]).to(tokens.dtype).transpose(1, 2) @ tokens
        for share, token, counts in zip(weights.unbind(1), tokens.unbind(1), real.unbind(1), strict=True):
            left = torch.where(counts[:, None, None], self.moved(left, share, token), left)
        return left


def windows(values: Tensor, radius: int) -> Tensor:
    """Each position's neighbourhood, zeros beyond the edges: `(…, S)` to `(…, S, 2 radius + 1)`."""
    return F.pad(values, (radius, radius)).unfold(-1, 2 * radius + 1, 1)
