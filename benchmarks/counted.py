"""Two numbers of `docs/scaling.md` that are counted by running small parts of the program, not reckoned.

Shapes: d width, f feed-forward width (here 4d).
"""

from __future__ import annotations

import tracemalloc

import numpy as np
import torch
from torch import Tensor

from sightline.attention.multihead import MultiHeadAttention
from sightline.data import EncodedPairs, Side, batches
from sightline.decoders.transformer import TransformerDecoderLayer
from sightline.encoders import TransformerEncoderLayer
from sightline.layers import FeedForward


def saved(dropout: float, d: int = 512, length: int = 40) -> float:
    """Bytes that autograd keeps on this processor, a layer of each side, for each token pair and unit of width.

    The input of a layer counts; the encoder's last states, which all layers of a decoder share, do not.
    """
    encoder = TransformerEncoderLayer(MultiHeadAttention(d, 8), FeedForward(d, 4 * d), "layer", "pre", dropout)
    attentions = MultiHeadAttention(d, 8), MultiHeadAttention(d, 8)
    decoder = TransformerDecoderLayer(*attentions, FeedForward(d, 4 * d), "layer", "pre", dropout)
    source, states, memory = (torch.randn(1, length, d, requires_grad=True) for _ in range(3))
    own = [*encoder.parameters(), *decoder.parameters(), memory]
    apart = {tensor.untyped_storage().data_ptr() for tensor in own}
    found: dict[int, torch.UntypedStorage] = {}  # held, or its place in memory could become another's

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in apart:
            found[storage.data_ptr()] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        encoder(source, None)
        decoder(states, memory, None)
    return sum(storage.nbytes() for storage in found.values()) / (length * d)


def planned(pairs: int = 100_000) -> float:
    """The most bytes a pair that making the order of an epoch takes, with the lengths that it is made from."""
    generator = np.random.default_rng(0)

    def side() -> Side:
        offsets = np.concatenate(([0], np.cumsum(generator.integers(2, 60, pairs))))
        return Side(np.empty(0, np.uint16), offsets)

    encoded = EncodedPairs(side(), side(), np.arange(pairs))
    tracemalloc.start()
    try:
        batches(encoded, batch_tokens=4096, seed=1, epoch=0)
        return tracemalloc.get_traced_memory()[1] / pairs
    finally:
        tracemalloc.stop()
