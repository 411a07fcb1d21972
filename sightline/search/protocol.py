"""All that search knows of a model.

Shapes: B sentences, K hypotheses a sentence, R = B * K rows, S source positions, V outcomes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from sightline.batch import Batch
from sightline.state import State


@dataclass(frozen=True)
class Step:
    """One decoding step.

    `log_probs` `(R, V)`: the distribution of the next token, minus infinity where a token is not allowed.
    V is read from this tensor; it may be wider than the vocabulary.
    `weights` `(R, S)`: where the model looked to predict that token, or None when it has no such weights.
    """

    log_probs: Tensor
    state: State
    weights: Tensor | None = None


class StepModel(Protocol):
    """Anything that can be decoded from: it starts from a batch, then takes one token a row and gives a `Step`."""

    pad: int
    bos: int
    eos: int

    def start(self, batch: Batch, prefix: Tensor | None = None) -> State:
        """The state before the first token, one hypothesis a sentence.

        With `prefix` `(B, P)`, target tokens every sentence begins with, it is the state after reading the start
        symbol and all of the prefix but its last token, which is the first to give to `step`.
        """
        ...

    def step(self, tokens: Tensor, state: State) -> Step:
        """Reads one token a row, `(R,)` (the start symbol first), and predicts the next."""
        ...

    def source_lengths(self, batch: Batch) -> Tensor:
        """`(B,)`: how long each sentence's input is, for limits on the output's length."""
        ...
