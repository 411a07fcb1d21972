"""What a decoder carries between steps.

Shapes: B sentences, K hypotheses a sentence, R = B * K rows (row b * K + k is hypothesis k of sentence b).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class State:
    """Decoding state: an argument and a result of every step, never an attribute of a module.

    `shared` belongs to a sentence and is indexed by it, leading dimension B: encoder states, prepared keys, masks.
    `own` belongs to a hypothesis, leading dimension R: hidden states, key/value cache, coverage.
    `width` is K. `position` is how many tokens every hypothesis has read.
    """

    shared: dict[str, Tensor] = field(default_factory=dict)
    own: dict[str, Tensor] = field(default_factory=dict)
    width: int = 1
    position: int = 0

    def advance(self, own: dict[str, Tensor]) -> State:
        """The state one token later, with these hypothesis tensors replaced."""
        return replace(self, own={**self.own, **own}, position=self.position + 1)

    def expand(self, width: int) -> State:
        """Copies each sentence's only hypothesis `width` times (K = 1 before, K = `width` after)."""
        if self.width != 1:
            raise ValueError("only a state of one hypothesis a sentence can be expanded")
        own = {name: value.repeat_interleave(width, 0) for name, value in self.own.items()}
        return replace(self, own=own, width=width)

    def reorder(self, index: Tensor) -> State:
        """Row r continues what row `index[r]` was: `(R,)` row numbers, each within its own sentence."""
        return replace(self, own={name: value.index_select(0, index) for name, value in self.own.items()})

    def keep(self, sentences: Tensor) -> State:
        """Only these sentences (`(B',)`, their numbers), with all their hypotheses: finished ones leave the batch."""
        offsets = torch.arange(self.width, device=sentences.device)
        rows = (sentences[:, None] * self.width + offsets).flatten()
        shared = {name: value.index_select(0, sentences) for name, value in self.shared.items()}
        own = {name: value.index_select(0, rows) for name, value in self.own.items()}
        return replace(self, shared=shared, own=own)
