"""The decoder before attention: one fixed vector is all it knows of the source (Sutskever et al. 2014).

Shapes: see `decoders/base.py`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sightline.batch import Memory
from sightline.decoders.base import Decoded, Decoder, Start, mean_state
from sightline.decoders.cells import CellStack
from sightline.errors import SightlineError
from sightline.layers import Dropout
from sightline.state import State


class FixedContextDecoder(Decoder):
    """A recurrent decoder that starts from the source's vector and never looks back.

    `last` hands over the encoder's last states and nothing more. `mean`, `sum` and `concatenation` of all states
    also enter the cell at every step, as a context that stays the same.
    """

    def __init__(
        self, cells: CellStack, bridge: Start, context: str, memory_width: int, max_source: int, dropout: float
    ) -> None:
        super().__init__()
        self.cells, self.bridge, self.context, self.max_source = cells, bridge, context, max_source
        self.width = cells.width
        self.join = nn.Linear(max_source * memory_width, cells.width) if context == "concatenation" else None
        self.dropout = Dropout(dropout)

    @staticmethod
    def context_width(context: str, memory_width: int, width: int) -> int:
        """How wide the cell's constant extra input is."""
        return {"last": 0, "mean": memory_width, "sum": memory_width, "concatenation": width}[context]

    def summarise(self, memory: Memory) -> Tensor | None:
        """The context `(B, x)` that enters every step, if any."""
        if self.context == "last":
            return None
        if self.context == "mean":
            return mean_state(memory)
        states = memory.states * memory.mask[..., None]
        if self.context == "sum":
            return states.sum(1)
        assert self.join is not None
        length = states.size(1)
        if length > self.max_source:
            raise SightlineError(
                f"a source of {length} tokens does not fit a concatenation of {self.max_source} states: "
                "split the line, or train with a larger model.decoder.max_source"
            )
        padded = nn.functional.pad(states, (0, 0, 0, self.max_source - length))
        return torch.tanh(self.join(padded.flatten(1)))

    def start(self, memory: Memory) -> State:
        context = self.summarise(memory)
        return State(shared={} if context is None else {"context": context}, own=self.bridge(memory))

    def of_tokens(self, embedded: Tensor) -> Tensor:
        return self.cells.project(embedded)

    def go_on(self, given: Tensor, state: State) -> Decoded:
        context = state.shared.get("context")
        extra = None if context is None else context.repeat_interleave(state.width, 0)
        own = self.cells.step(given, extra, state.own)
        return Decoded(self.dropout(own[self.cells.top]), state.advance(own))

    def forward(self, memory: Memory, embedded: Tensor) -> Decoded:
        state = self.start(memory)
        outputs, own = self.cells.sequence(embedded, state.shared.get("context"), state.own)
        return Decoded(self.dropout(outputs), State(state.shared, own, 1, embedded.size(1)))
