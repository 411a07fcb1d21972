"""Several sources of one target: a reader for each, a memory of all, and the parts that put together what they say.

Shapes: B sentences, S_k positions of source k, S all of them, e width of an embedded token.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from sightline.architecture import ModelConfig
from sightline.attention.joined import JoinedAttention, JoinedCross, PlainCross, SourceWeights
from sightline.attention.kinds import CrossAttention
from sightline.attention.multihead import MultiHeadAttention
from sightline.attention.soft import SoftAttention
from sightline.batch import Batch, Memory, Tokens, side_by_side
from sightline.decoders import Bridge, CellStack, Decoder
from sightline.decoders.base import Start
from sightline.decoders.joined import ChildSum, FlatStates, JoinedStart
from sightline.encoders import Encoder
from sightline.layers import Embedding
from sightline.losses import AttentionLoss
from sightline.output_layer import OutputLayer
from sightline.stack import Stack
from sightline.writer import Writer


class Reader(nn.Module):
    """What one of several sources is read with; readers may share an embedding or an encoder.

    Where they share the encoder, a learned vector beside each embedded token tells it which source it reads.
    """

    def __init__(self, embedding: Embedding, encoder: Encoder, named: bool) -> None:
        super().__init__()
        self.embedding, self.encoder = embedding, encoder
        self.name = nn.Parameter(torch.randn(embedding.width)) if named else None

    def forward(self, ids: Tensor, mask: Tensor) -> Memory:
        """Ids and mask `(B, S_k)` to a memory."""
        embedded = self.embedding(ids)
        memory: Memory = self.encoder(embedded if self.name is None else embedded + self.name, mask)
        return memory


class SeveralSources(Writer):
    """Reads several sources, writes one target.

    A source that is the end symbol alone, while another says something, is missing: nobody sees any of it.
    """

    def __init__(
        self,
        readers: Sequence[Reader],
        target_embedding: Embedding,
        decoder: Decoder,
        output: OutputLayer,
        smoothing: float = 0.0,
        losses: Mapping[str, tuple[float, AttentionLoss]] | None = None,
    ) -> None:
        super().__init__(smoothing, losses)
        self.readers, self.target_embedding = Stack(readers), target_embedding
        self.decoder, self.output = decoder, output

    def encode(self, batch: Batch) -> Memory:
        """All sources as one memory `(B, S, d)`, with each in its parts."""
        present = present_sources(batch)
        parts = []
        for reader, source, there in zip(self.readers, batch.sources, present.unbind(1), strict=True):
            assert isinstance(source, Tokens)
            memory = reader(self.output.known_source(source.ids), source.mask)
            parts.append(memory if bool(there.all()) else silenced(memory, there))
        states, mask = (side_by_side([getattr(part, name) for part in parts]) for name in ("states", "mask"))
        return Memory(states, mask, parts=tuple(parts))

    def source_lengths(self, batch: Batch) -> Tensor:
        """`(B,)`: real tokens of all sources, their end symbols included."""
        return batch.source_mask.sum(-1)


def present_sources(batch: Batch) -> Tensor:
    """`(B, N)`: which sources say something; the first, if none does, so that there is always one to look at."""
    present = torch.stack([source.mask.sum(1) > 1 for source in batch.sources], 1)
    present[:, 0] |= ~present.any(1)
    return present


def silenced(memory: Memory, present: Tensor) -> Memory:
    """A memory that holds nothing for the sentences that are not `present` `(B,)`: zeros that nobody may look at."""
    there = present[:, None, None]
    final = memory.final
    if final is not None:
        cell = None if final.cell is None else final.cell * there
        final = replace(final, hidden=final.hidden * there, cell=cell)
    return Memory(memory.states * there, memory.mask & present[:, None], final)


def context_width(config: ModelConfig, width: int) -> int:
    """How wide what a recurrent decoder sees is, of memories `width` wide."""
    return width * config.source_count if config.sources.context == "concatenated" else width


def joined_start(config: ModelConfig, bridges: Sequence[Bridge], cells: CellStack) -> Start:
    """The only source's bridge, or what makes one beginning of several."""
    if len(bridges) == 1:
        return bridges[0]
    kind = ChildSum if config.sources.start == "child_sum" else FlatStates
    return JoinedStart(bridges, [kind(len(bridges), cells.width) for _ in range(cells.layers)])


def joined_attention(
    config: ModelConfig, make: Callable[[], SoftAttention], query_width: int, key_width: int
) -> SoftAttention | JoinedAttention:
    """One attention over everything, or one for each source."""
    if not config.looks_apart:
        return make()
    count = config.source_count
    hierarchical = config.sources.context == "hierarchical"
    weights = SourceWeights(count, query_width, key_width) if hierarchical else None
    return JoinedAttention([make() for _ in range(count)], weights)


def joined_cross(config: ModelConfig, make: Callable[[], PlainCross], width: int, heads: int) -> CrossAttention:
    """The same for a Transformer's layer."""
    if not config.looks_apart:
        return make()
    hierarchical = config.sources.context == "hierarchical"
    weights = MultiHeadAttention(width, heads, config.attention_dropout) if hierarchical else None
    return JoinedCross([make() for _ in range(config.source_count)], weights)
