"""Single-head soft attention for recurrent decoders, over all positions or over a window.

Shapes: B sentences, T queries (decoding: the hypotheses of a sentence), S keys, d_q, d_k widths.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor, nn

from sightline.attention.capture import Tapped
from sightline.attention.clues import Clue, Look
from sightline.attention.core import masked_softmax
from sightline.attention.masks import window_mask
from sightline.attention.scores import Score
from sightline.randomness import dropout
from sightline.stack import Stack

NOTHING_BESIDE: Mapping[str, Tensor] = {}
MEMORY = "attention."  # before the names of what attention remembers, in a decoder's state


Mix = Callable[[Tensor], Tensor]


class Readable(Protocol):
    """A memory as attention sees it: states `(B, S, d_k)`, their mask `(B, S)`, and its parts where it has some."""

    @property
    def states(self) -> Tensor: ...
    @property
    def mask(self) -> Tensor: ...
    @property
    def parts(self) -> Sequence[Readable]: ...
    def beside(self) -> Mapping[str, Tensor]:
        """What attention may want beside them."""
        ...


@dataclass(frozen=True)
class Attended:
    """What attention gives: context `(B, T, d_k)`, weights `(B, T, S)`, and what it carries to the next step.

    Where a position was drawn, also the logarithm of its chance, `(B, T)`, and 0 where none was.
    """

    context: Tensor
    weights: Tensor
    state: dict[str, Tensor] = field(default_factory=dict)
    log_chances: Tensor | None = None

    def rows_drawn(self) -> Tensor | None:
        """The log-chances of a step, `(R,)`: one for each hypothesis of each sentence."""
        return None if self.log_chances is None else self.log_chances.flatten(0, 1)

    @classmethod
    def joined(cls, looks: Sequence[Attended]) -> Attended:
        """Looks of single steps, one query each, as one with a query for each of them."""
        drawn = [look.log_chances for look in looks if look.log_chances is not None]
        return cls(
            torch.cat([look.context for look in looks], 1),
            torch.cat([look.weights for look in looks], 1),
            looks[-1].state,
            torch.cat(drawn, 1) if drawn else None,
        )


class Scored(Tapped):
    """A score function over the memory's states, with what it may know beside query and key.

    `clues` each have a matrix of their own, zeros at first, so that a new model begins as if it had none.
    """

    def __init__(self, score: Score, clues: Sequence[Clue] = ()) -> None:
        super().__init__()
        self.score = score
        self.clues = Stack(clues)
        self.hints = Stack(nn.Linear(clue.width, score.hint_width, bias=False) for clue in clues)
        for hint in self.hints:
            nn.init.zeros_(hint.weight)

    @property
    def remembers(self) -> bool:
        """Whether a look depends on the ones before, so that it has to wait for them."""
        return any(clue.remembers for clue in self.clues)

    def open(self, memory: Readable) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """What every step shares of a memory, and what is remembered before the first look."""
        given = (memory.states, memory.mask, memory.beside())
        return self.prepare(*given), self.begin(*given)

    def prepare(self, states: Tensor, mask: Tensor, beside: Mapping[str, Tensor] = NOTHING_BESIDE) -> dict[str, Tensor]:
        """Encoder states `(B, S, d_k)` and their mask `(B, S)` as what every step shares; for `beside` see `begin`."""
        prepared = {"keys": self.score.prepare(states, mask), "values": states, "mask": mask}
        for clue in self.clues:
            prepared |= clue.prepare(states, mask)
        return prepared

    @property
    def token_width(self) -> int:
        """k: how wide what looks want of a token is."""
        return sum(clue.token_width for clue in self.clues)

    def of_tokens(self, embedded: Tensor) -> Tensor:
        """What looks want of the tokens that are read before them, `(…, e)` to `(…, k)`."""
        wanted = [clue.of_tokens(embedded) for clue in self.clues if clue.token_width]
        return wanted[0] if wanted else embedded[..., :0]

    def begin(self, states: Tensor, mask: Tensor, beside: Mapping[str, Tensor] = NOTHING_BESIDE) -> dict[str, Tensor]:
        """What it remembers before the first look: tensors `(B, S, …)`, one row for each hypothesis later on.

        `beside` may have more of the positions, `(B, …)` each: their `ids`.
        """
        begun: dict[str, Tensor] = {}
        for clue in self.clues:
            begun |= clue.begin(states, mask, {**beside})
        return {MEMORY + name: value for name, value in begun.items()}

    def scores(self, look: Look) -> Tensor:
        """`(B, T, S)`, before any mask."""
        if not self.clues:
            return self.score(look.queries, look.shared["keys"])
        hints = [hint(clue.features(look)) for clue, hint in zip(self.clues, self.hints, strict=True)]
        return self.score.hinted(look.queries, look.shared["keys"], sum(hints[1:], hints[0]))


class SoftAttention(Scored, ABC):
    """Weights over the memory's states, and their mean under these weights."""

    def __init__(self, score: Score, dropout: float = 0.0, clues: Sequence[Clue] = ()) -> None:
        super().__init__(score, clues)
        self.dropout = dropout

    @abstractmethod
    def weigh(self, look: Look) -> Tensor:
        """`(B, T, S)`: where to look."""

    def mixer(self, shared: Mapping[str, Tensor], repeated: Callable[[Tensor], Mix]) -> Mix:
        """What mixes the values of `prepare` in every step of a loop; `repeated` makes it of values `(B, S, d_k)`."""
        return repeated(shared["values"])

    def forward(
        self,
        queries: Tensor,
        shared: dict[str, Tensor],
        positions: Tensor,
        mix: Mix | None = None,
        state: Mapping[str, Tensor] | None = None,
        tokens: Tensor | None = None,
    ) -> Attended:
        """Queries `(B, T, d_q)` at target positions `(T,)`, from 0, look at what `prepare` made.

        `mix`, weights `(B, T, S)` to contexts `(B, T, d_k)`, may stand in for the product with the values. `state` has
        among other things what `begin` or the look before left, `(B · T, S, …)` each. `tokens` `(B, T, k)` is what
        `of_tokens` made of those that were just read, for attention that wants it.
        """
        leading = queries.shape[:2]
        carried = {
            name.removeprefix(MEMORY): value.view(*leading, *value.shape[1:])
            for name, value in (state or {}).items()
            if name.startswith(MEMORY)
        }
        look = Look(queries, shared, positions, carried, tokens)
        for clue in self.clues:
            carried |= clue.before(look)
        weights = self.weigh(look)
        if self.tap is not None:
            self.tap.record(weights[:, None])
        kept = {MEMORY + name: value.flatten(0, 1) for name, value in self.after(look, weights).items()}
        taken, log_chances = self.take(weights)
        return Attended(mix(taken) if mix else taken @ shared["values"], weights, kept, log_chances)

    def after(self, look: Look, weights: Tensor) -> dict[str, Tensor]:
        """What it remembers of this look and its weights, `(B, T, S, …)` each."""
        kept: dict[str, Tensor] = {}
        for clue in self.clues:
            kept |= clue.after(look, weights)
        return kept

    def take(self, weights: Tensor) -> tuple[Tensor, Tensor | None]:
        """From weights `(B, T, S)` to what the values are mixed with, and the log-chances of what was drawn, if any."""
        return dropout(weights, self.dropout) if self.training else weights, None


class GlobalAttention(SoftAttention):
    """Every real position (Bahdanau et al. 2015; Luong's "global")."""

    def weigh(self, look: Look) -> Tensor:
        return masked_softmax(self.scores(look), look.shared["mask"][:, None, :])


class LocalMonotonicAttention(SoftAttention):
    """Luong's local-m: query t looks at the positions at most `window` from t (from the last one when t is past it)."""

    def __init__(self, score: Score, window: int, dropout: float = 0.0, clues: Sequence[Clue] = ()) -> None:
        super().__init__(score, dropout, clues)
        self.window = window

    def weigh(self, look: Look) -> Tensor:
        mask = look.shared["mask"]
        last = mask.sum(-1, keepdim=True) - 1  # (B, 1)
        centres = torch.minimum(look.positions[None, :], last)  # (B, T)
        allowed = window_mask(centres, mask.size(-1), self.window) & mask[:, None, :]
        return masked_softmax(self.scores(look), allowed)


class LocalPredictiveAttention(SoftAttention):
    """Luong's local-p: the model places the window's centre, `p = S · sigmoid(vᵀ tanh(W q))`, S the true length.

    The softmax runs inside the window; a Gaussian around p of deviation window/2 then weighs it down and is not
    normalised again, so a row's sum is below 1. Through it alone the centre learns.
    """

    def __init__(
        self, score: Score, query_width: int, window: int, dropout: float = 0.0, clues: Sequence[Clue] = ()
    ) -> None:
        super().__init__(score, dropout, clues)
        self.window = window
        self.hidden = nn.Linear(query_width, query_width, bias=False)
        self.place = nn.Linear(query_width, 1, bias=False)

    def centres(self, queries: Tensor, mask: Tensor) -> Tensor:
        """Queries `(B, T, d_q)` and mask `(B, S)` to centres `(B, T)`."""
        share = torch.sigmoid(self.place(torch.tanh(self.hidden(queries)))).squeeze(-1)
        return mask.sum(-1, keepdim=True) * share

    def weigh(self, look: Look) -> Tensor:
        mask = look.shared["mask"]
        centres = self.centres(look.queries, mask)
        allowed = window_mask(centres, mask.size(-1), self.window) & mask[:, None, :]
        inside = masked_softmax(self.scores(look), allowed)
        distance = torch.arange(mask.size(-1), device=mask.device) - centres[..., None]  # (B, T, S)
        return inside * torch.exp(-(distance**2) / (2 * (self.window / 2) ** 2))
