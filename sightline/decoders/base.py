"""What every decoder offers: a full pass for training, and start and step for search, which give the same.

Shapes: B sentences, K hypotheses a sentence, R = B * K rows, T target positions, S source positions, e width of an
embedded token, d of a feature vector, d_m of a memory state, L layers, n width of a recurrent state, u of what a step
needs of a token.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from sightline.attention.joined import JoinedAttention
from sightline.attention.soft import SoftAttention
from sightline.batch import Memory
from sightline.decoders.cells import CellStack, Shared
from sightline.repeated import RepeatedValues
from sightline.state import State


@dataclass(frozen=True)
class Decoded:
    """Features for the output layer and, where a decoder has them, weights over the source.

    Full pass: features `(B, T, d)`, weights `(B, T, S)`; step: `(R, d)`, `(R, S)`. Row t belongs to the token
    being predicted.

    Where attention is a choice that nobody knows, features have one more dimension before the last, S: a vector for
    each position. The full pass then has `priors` instead of weights: from the log-chances `(B, T, S)` of each target
    at each position to those of each position before its target is known. `log_chances` `(B, T)` are those of
    positions that were drawn, 0 where none was.
    """

    features: Tensor
    state: State
    weights: Tensor | None = None
    priors: Callable[[Tensor], Tensor] | None = None
    log_chances: Tensor | None = None


class Decoder(nn.Module, ABC):
    """From a memory and the tokens so far to features; `width` is d.

    A step has two parts: `of_tokens`, which looks at the token alone, and `go_on`, the rest. In a model that learns no
    more the first can be looked up: see `Writer.tabulate`.

    Of a decoder with many attentions, `taught` names the layer and head whose weights a full pass reports, for what is
    learnt from them; one with a single attention reports its weights whatever it says.
    """

    width: int
    taught: tuple[int, int] | None = None

    @abstractmethod
    def start(self, memory: Memory) -> State:
        """The state before the first token."""

    def of_tokens(self, embedded: Tensor) -> Tensor:
        """What a step needs of embedded tokens, `(…, e)` to `(…, u)`: by default the tokens as they are."""
        return embedded

    @abstractmethod
    def go_on(self, given: Tensor, state: State) -> Decoded:
        """One token a row, as `of_tokens` gives it, `(R, u)`."""

    def step(self, embedded: Tensor, state: State) -> Decoded:
        """One embedded token a row, `(R, e)`."""
        return self.go_on(self.of_tokens(embedded), state)

    @abstractmethod
    def forward(self, memory: Memory, embedded: Tensor) -> Decoded:
        """All tokens at once, `(B, T, e)`: the start symbol and the targets but the last."""


class Loop(NamedTuple):
    """What the steps of a recurrent decoder's full pass share: see `sightline.repeated`."""

    weights: list[Shared]
    mix: Callable[[Tensor], Tensor]

    @classmethod
    def over(cls, cells: CellStack, state: State, attention: SoftAttention | JoinedAttention) -> Loop:
        """The loop that starts from `state`, with looks by `attention`."""
        mix = attention.mixer(state.shared, lambda values: RepeatedValues(values).mixed)
        return cls([cell.shared() for cell in cells.cells], mix)


class Start(nn.Module, ABC):
    """From the end of encoders to the first state of a recurrent decoder."""

    @abstractmethod
    def forward(self, memory: Memory) -> dict[str, Tensor]:
        """The decoder's first states `(B, n)`, named as `CellStack` names them."""


class Bridge(Start):
    """From one encoder's end to the first state of a recurrent decoder.

    Without `summarise` all of a recurrent encoder's last states are handed over as they are, which needs the same
    cell, layers and width on both sides (Sutskever et al. 2014). With it, `tanh(W x)` of the vector it makes gives
    each of them (Bahdanau et al. 2015).
    """

    def __init__(
        self, summarise: Callable[[Memory], Tensor] | None, summary: int, layers: int, width: int, has_cell: bool
    ) -> None:
        super().__init__()
        self.summarise, self.layers, self.has_cell = summarise, layers, has_cell
        self.linear = nn.Linear(summary, layers * width * (1 + has_cell)) if summarise else None

    def forward(self, memory: Memory) -> dict[str, Tensor]:
        if self.summarise is None or self.linear is None:
            assert memory.final is not None
            return _named(memory.final.hidden, memory.final.cell)
        states = torch.tanh(self.linear(self.summarise(memory))).to(self.linear.weight.dtype)
        states = states.view(states.size(0), self.layers, -1)
        if self.has_cell:
            hidden, cell = states.chunk(2, -1)
            return _named(hidden, cell)
        return _named(states, None)


def backward_state(memory: Memory) -> Tensor:
    """The state of a bidirectional encoder's backward reading at the first token, top layer, `(B, n)`."""
    assert memory.final is not None
    return memory.final.hidden[:, -1].chunk(2, -1)[1]


def top_state(memory: Memory) -> Tensor:
    """A recurrent encoder's last state, top layer, `(B, d_m)`."""
    assert memory.final is not None
    return memory.final.hidden[:, -1]


def first_state(memory: Memory) -> Tensor:
    """The state at the first position, `(B, d_m)`: all that is known when a source begins to come in."""
    return memory.states[:, 0]


def last_state(memory: Memory) -> Tensor:
    """The state at the last real position, `(B, d_m)`."""
    last = memory.mask.sum(-1) - 1
    return memory.states[torch.arange(last.size(0), device=last.device), last]


def _named(hidden: Tensor, cell: Tensor | None) -> dict[str, Tensor]:
    """States `(B, L, n)` layer by layer."""
    states = {f"hidden.{layer}": state for layer, state in enumerate(hidden.unbind(1))}
    if cell is not None:
        states |= {f"cell.{layer}": state for layer, state in enumerate(cell.unbind(1))}
    return states


def mean_state(memory: Memory) -> Tensor:
    """The mean of the real states, `(B, d_m)`."""
    real = memory.mask[..., None].to(memory.states.dtype)
    return (memory.states * real).sum(1) / real.sum(1).clamp(min=1)
