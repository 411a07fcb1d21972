"""Reading a memory in several hops: an end-to-end memory network as an encoder (Sukhbaatar et al. 2015).

A document is a story and, as its last sentence, a question.
Shapes: B documents, S tokens, N sentences, d width, K hops, V vocabulary.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sightline.attention.capture import Tapped
from sightline.attention.core import attention_weights
from sightline.attention.scores import dot
from sightline.batch import Final, Memory, Spans, Tokens
from sightline.documents import Cut, cut
from sightline.encoders import Encoder
from sightline.layers import Dropout, Embedding
from sightline.stack import Stack


class Hop(Tapped):
    """`o = Σ_i softmax(u · m_i) c_i`, `u + o`: dot attention whose keys and values differ."""

    def forward(self, question: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        """`(B, d)`, slots `(B, N, d)` as keys and as values, and which may be read `(B, N)`, to `(B, d)`."""
        weights = attention_weights(question[:, None], keys, mask[:, None], score=dot)  # (B, 1, N)
        if self.tap is not None:
            self.tap.record(weights[:, None])
        return question + (weights @ values)[:, 0]


class HopsEncoder(Encoder):
    """Asks the question of the story K times, each time with what it found before.

    A slot is the sum of a sentence's words. There are K + 1 tables of words: hop k has table k for keys and k + 1 for
    values, which is the next hop's table of keys; the first is the model's source embedding and the question's too.
    Each also tells how long ago a sentence was said. With `word_order` a word's features count by its place.

    The memory has the slots of the last table, for a decoder that goes on reading, and what was found, in the place of
    the question and as last state.
    """

    def __init__(
        self, vocabulary: int, width: int, hops: int, marker: int, word_order: bool, max_age: int, dropout: float
    ) -> None:
        super().__init__()
        self.width, self.marker, self.word_order = width, marker, word_order
        self.tables = nn.Parameter(torch.randn(hops, vocabulary, width) * width**-0.5)
        self.ages = nn.Parameter(torch.randn(hops + 1, max_age, width) * 0.1 * width**-0.5)
        self.hops = Stack(Hop() for _ in range(hops))
        self.dropout = Dropout(dropout)

    def read(self, embedding: Embedding, source: Tokens) -> Memory:
        tables = (embedding.weight, *self.tables)
        # Not scaled as for other encoders: the sums of words are compared by their products.
        embedded = torch.cat([F.embedding(source.ids, table) for table in tables], -1)
        memory = self(self.dropout(embedded), source.mask, source.ids == self.marker)
        return replace(memory, source=source)

    def forward(self, embedded: Tensor, mask: Tensor, ends: Tensor | None = None) -> Memory:
        """Tokens by all K + 1 tables, `(B, S, (K + 1) d)`; `ends` `(B, S)` is True where a sentence ends."""
        parts = cut(mask, torch.zeros_like(mask) if ends is None else ends)
        if self.word_order:
            embedded = embedded * place_factors(parts, self.width).repeat(1, 1, len(self.hops) + 1)
        members = parts.members
        slots = torch.stack((members.to(embedded.dtype) @ embedded).chunk(len(self.hops) + 1, -1))  # (K + 1, B, N, d)
        last = parts.real.sum(1) - 1  # the question
        found = slots[0][torch.arange(len(last), device=last.device), last]
        number = torch.arange(parts.real.size(1), device=mask.device)
        story = number < last[:, None]
        age = (last[:, None] - 1 - number).clamp(0, self.ages.size(1) - 1)
        slots = slots + self.ages[:, age]
        for hop, (keys, values) in zip(self.hops, pairwise(slots), strict=True):
            found = hop(found, keys, values, story)
        shares = (members / members.sum(-1, keepdim=True).clamp(min=1)).sum(1)
        states = torch.where((number == last[:, None])[..., None], found[:, None], slots[-1])
        return Memory(states, parts.real, Final(found[:, None]), spans=Spans(members, shares))


def place_factors(parts: Cut, width: int) -> Tensor:
    """How much each feature of a token counts by its place, `(B, S, d)`: `(1 - j/J) - (k/d)(1 - 2j/J)`, j and k from 1.

    Early words count in the first features, late words in the last ones.
    """
    length = (parts.members.sum(-1, keepdim=True) * parts.members).sum(1)  # (B, S): of a token's sentence
    share = ((parts.place + 1) / length.clamp(min=1))[..., None]
    feature = torch.arange(1, width + 1, device=share.device) / width
    return (1 - share) - feature * (1 - 2 * share)
