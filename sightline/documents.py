"""Documents: tokens cut into sentences and put together again, and an encoder of words, then sentences.

A token that ends a sentence, the marker or the end symbol, belongs to it, so that no sentence is without a token.
Shapes: B documents, S tokens, N sentences, L tokens of the longest sentence, R sentences of all documents, d width.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sightline.attention.core import masked_softmax
from sightline.batch import Memory, Spans, Tokens
from sightline.encoders import Encoder, RecurrentEncoder
from sightline.layers import Embedding


@dataclass(frozen=True)
class Cut:
    """Where the tokens of documents are: each one's sentence and its place there, `(B, S)`, both from 0.

    `mask` `(B, S)` tells which tokens are real, `real` `(B, N)` which sentences, `words` `(B, N, L)` which of their
    places.
    """

    sentence: Tensor
    place: Tensor
    mask: Tensor
    real: Tensor
    words: Tensor

    @property
    def slots(self) -> Tensor:
        """`(B, S)`: a token's number among the N · L places; one more than there are where it is padding."""
        _, sentences, longest = self.words.shape
        return torch.where(self.mask, self.sentence * longest + self.place, sentences * longest)

    @property
    def members(self) -> Tensor:
        """`(B, N, S)`: True where a token belongs to a sentence."""
        number = torch.arange(self.real.size(1), device=self.mask.device)
        return (self.sentence[:, None] == number[:, None]) & self.mask[:, None]

    def apart(self, values: Tensor) -> Tensor:
        """Values of tokens `(B, S, d)` by sentence, `(B, N, L, d)`, zeros where there is no token."""
        batch, sentences, longest = self.words.shape
        room = values.new_zeros(batch, sentences * longest + 1, values.size(-1))
        filled = room.scatter(1, self.slots[..., None].expand_as(values), values)
        return filled[:, :-1].view(batch, sentences, longest, -1)

    def together(self, values: Tensor) -> Tensor:
        """The way back: `(B, N, L, d)` to `(B, S, d)`, zeros on padding."""
        padded = F.pad(values.flatten(1, 2), (0, 0, 0, 1))
        return padded.gather(1, self.slots[..., None].expand(-1, -1, values.size(-1)))


def cut(mask: Tensor, ends: Tensor) -> Cut:
    """Documents by their real tokens `(B, S)` and those that end a sentence, which the last real one always does."""
    ends = ends & mask
    sentence = (ends.long().cumsum(1) - ends.long()).masked_fill(~mask, 0)
    position = torch.arange(mask.size(1), device=mask.device).expand_as(sentence)
    begins = F.pad(ends[:, :-1], (1, 0), value=True)
    place = position - torch.where(begins, position, 0).cummax(1).values
    length = F.one_hot(sentence, int(sentence.max()) + 1).mul(mask[..., None]).sum(1)  # (B, N)
    words = torch.arange(int(length.max()), device=mask.device) < length[..., None]
    return Cut(sentence, place, mask, length > 0, words)


class WordPooling(nn.Module):
    """A sentence's vector: its words weighed by a learned query, `α = softmax(tanh(W h + b) · q)` (Yang et al. 2016).

    Without `attends` all words count alike.
    """

    def __init__(self, width: int, attends: bool) -> None:
        super().__init__()
        self.hidden = nn.Linear(width, width) if attends else None
        self.query = nn.Parameter(torch.randn(width) * width**-0.5) if attends else None

    def forward(self, states: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """States `(R, L, d)` and which are real `(R, L)` to vectors `(R, d)` and the words' weights `(R, L)`."""
        if self.hidden is None or self.query is None:
            scores = states.new_zeros(mask.shape)
        else:
            scores = torch.tanh(self.hidden(states)) @ self.query
        weights = masked_softmax(scores, mask)
        return (weights[:, None].to(states.dtype) @ states)[:, 0], weights


class HierarchicalEncoder(Encoder):
    """Words to sentences, sentences to a document (Yang et al. 2016): recurrent encoders, and pooling between.

    The memory has a state for each sentence; with `of_words` one for each token, and the sentences as its part.
    """

    def __init__(
        self, words: RecurrentEncoder, sentences: RecurrentEncoder, pooling: WordPooling, marker: int, of_words: bool
    ) -> None:
        super().__init__()
        self.words, self.pooling, self.sentences = words, pooling, sentences
        self.marker, self.of_words = marker, of_words
        self.width = words.width if of_words else sentences.width

    def read(self, embedding: Embedding, source: Tokens) -> Memory:
        memory = self(embedding(source.ids), source.mask, source.ids == self.marker)
        return replace(memory, source=source)

    def forward(self, embedded: Tensor, mask: Tensor, ends: Tensor | None = None) -> Memory:
        """`ends` `(B, S)` is True where a sentence ends; without it a document is one."""
        parts = cut(mask, torch.zeros_like(mask) if ends is None else ends)
        # Sentences that are padding would be rows without a word: only real ones go through the words' encoder.
        real = parts.real
        words = self.words(parts.apart(embedded)[real], parts.words[real])  # (R, L, d)
        pooled, weights = self.pooling(words.states, words.mask)
        memory = self.sentences(_placed(pooled, real), real)
        shares = parts.together(_placed(weights[..., None], real))[..., 0]
        spans = Spans(parts.members, shares)
        if not self.of_words:
            return replace(memory, spans=spans)
        states = parts.together(_placed(words.states, real))
        return Memory(states, mask, memory.final, (replace(memory, spans=spans),))


def _placed(values: Tensor, real: Tensor) -> Tensor:
    """Values of real sentences `(R, …)` where they belong, `(B, N, …)`, zeros elsewhere."""
    room = values.new_zeros(*real.shape, *values.shape[1:])
    return room.index_put(real.nonzero(as_tuple=True), values)
