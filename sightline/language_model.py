"""A language model: a decoder without an encoder, on the same step protocol.

Shapes: B sentences.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sightline.batch import Batch, Memory
from sightline.decoders import Decoder
from sightline.layers import Embedding
from sightline.output_layer import OutputLayer
from sightline.writer import Writer


class LanguageModel(Writer):
    """Goes on with a text. The sources of its batches are empty, their end symbol alone, and are not looked at."""

    def __init__(self, embedding: Embedding, decoder: Decoder, output: OutputLayer, smoothing: float = 0.0) -> None:
        super().__init__(smoothing)
        self.target_embedding, self.decoder, self.output = embedding, decoder, output

    def encode(self, batch: Batch) -> Memory:
        """A memory of no positions: only the number of sentences counts."""
        mask = batch.sources[0].mask[:, :0]
        return Memory(self.target_embedding.weight.new_zeros(*mask.shape, self.decoder.width), mask)

    def source_lengths(self, batch: Batch) -> Tensor:
        """`(B,)` zeros: the length of what is written depends on no input."""
        return torch.zeros_like(batch.sources[0].mask[:, 0], dtype=torch.long)
