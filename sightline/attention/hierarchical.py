"""Attention to words by way of their sentences.

Shapes: B documents, T queries (decoding: the hypotheses of a document), N sentences, S words, d_q, d_k widths.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from sightline.attention.clues import Clue, Look
from sightline.attention.core import masked_softmax
from sightline.attention.scores import Score
from sightline.attention.soft import NOTHING_BESIDE, SoftAttention

KEYS, MASK, MEMBERS = "sentence_keys", "sentence_mask", "sentence_members"


class HierarchicalAttention(SoftAttention):
    """`p(sentence) · p(word | sentence)`: a score chooses among sentences, another among the words of each.

    Clues are of words.
    """

    def __init__(self, score: Score, sentence_score: Score, dropout: float = 0.0, clues: Sequence[Clue] = ()) -> None:
        super().__init__(score, dropout, clues)
        self.sentence_score = sentence_score

    def prepare(self, states: Tensor, mask: Tensor, beside: Mapping[str, Tensor] = NOTHING_BESIDE) -> dict[str, Tensor]:
        """`beside` has the `sentences`, `(B, N, d_k)`, which are real `(B, N)`, and their `members` `(B, N, S)`."""
        real = beside[MASK]
        keys = self.sentence_score.prepare(beside["sentences"], real)
        return {**super().prepare(states, mask, beside), KEYS: keys, MASK: real, MEMBERS: beside[MEMBERS]}

    def weigh(self, look: Look) -> Tensor:
        shared = look.shared
        sentences = masked_softmax(self.sentence_score(look.queries, shared[KEYS]), shared[MASK][:, None])  # (B, T, N)
        within = masked_softmax(self.scores(look)[:, :, None], shared[MEMBERS][:, None])  # (B, T, N, S)
        return torch.einsum("btn,btns->bts", sentences, within)
