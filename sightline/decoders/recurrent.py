"""A recurrent decoder without a source: the heart of a language model.

Shapes: see `decoders/base.py`.
"""

from __future__ import annotations

from torch import Tensor

from sightline.batch import Memory
from sightline.decoders.base import Decoded, Decoder
from sightline.decoders.cells import CellStack
from sightline.layers import Dropout
from sightline.state import State


class RecurrentDecoder(Decoder):
    """Cells that start from zero and read nothing but the tokens so far."""

    def __init__(self, cells: CellStack, dropout: float) -> None:
        super().__init__()
        self.cells, self.width = cells, cells.width
        self.dropout = Dropout(dropout)

    def start(self, memory: Memory) -> State:
        zeros = self.cells.cells[0].weight_hidden.new_zeros(memory.mask.size(0), self.width)
        names = [f"hidden.{layer}" for layer in range(self.cells.layers)]
        names += [f"cell.{layer}" for layer in range(self.cells.layers)] if self.cells.has_cell else []
        return State(own=dict.fromkeys(names, zeros))

    def of_tokens(self, embedded: Tensor) -> Tensor:
        """The tokens' share of the first cell's gates, `(…, G n)`."""
        return self.cells.project(embedded)

    def go_on(self, given: Tensor, state: State) -> Decoded:
        own = self.cells.step(given, None, state.own)
        return Decoded(self.dropout(own[self.cells.top]), state.advance(own))

    def forward(self, memory: Memory, embedded: Tensor) -> Decoded:
        outputs, own = self.cells.sequence(embedded, None, self.start(memory).own)
        return Decoded(self.dropout(outputs), State({}, own, 1, embedded.size(1)))
