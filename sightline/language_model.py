"""A language model: a decoder without an encoder, on the same step protocol.

Shapes: B sentences, T target positions, R hypotheses, d width of a feature.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sightline.batch import Batch, Memory
from sightline.decoders import Decoder
from sightline.layers import Embedding
from sightline.outputs import Output
from sightline.pointing import Pointed, Pointer, PointerOutput
from sightline.state import State
from sightline.writer import Reading, Writer


class LanguageModel(Writer):
    """Goes on with a text. The sources of its batches are empty, their end symbol alone, and are not looked at.

    With `pointer`, the distribution over the vocabulary is mixed with one over the last words.
    """

    output: Output | PointerOutput

    def __init__(
        self,
        embedding: Embedding,
        decoder: Decoder,
        output: Output,
        pointer: Pointer | None = None,
        smoothing: float = 0.0,
    ) -> None:
        super().__init__(smoothing)
        self.target_embedding, self.decoder, self.pointer = embedding, decoder, pointer
        self.output = output if pointer is None else PointerOutput(output)

    def encode(self, batch: Batch) -> Memory:
        """A memory of no positions: only the number of sentences counts."""
        mask = batch.sources[0].mask[:, :0]
        return Memory(self.target_embedding.weight.new_zeros(*mask.shape, self.decoder.width), mask)

    def read(self, batch: Batch) -> Reading:
        """See `Writer.read`."""
        assert batch.targets is not None
        memory, decoded = self.decoded(batch)
        if self.pointer is None:
            return Reading(decoded.features, memory)
        return Reading(self.pointer(decoded.features, self.shifted(batch.targets)), memory)

    def advance(self, tokens: Tensor, state: State) -> tuple[Tensor | Pointed, State, Tensor | None]:
        """See `Writer.advance`."""
        decoded = self.decoded_step(tokens, state)
        if self.pointer is None:
            return decoded.features, decoded.state, None
        return *self.pointer.step(decoded.features, tokens, decoded.state), None

    def source_lengths(self, batch: Batch) -> Tensor:
        """`(B,)` zeros: the length of what is written depends on no input."""
        return torch.zeros_like(batch.sources[0].mask[:, 0], dtype=torch.long)
