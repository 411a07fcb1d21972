"""Output layers that see more than a decoder's features: the source, and where the decoder looked.

Shapes: B sentences, T target positions (decoding: K, the hypotheses of a sentence), R = B * K rows, S source positions,
d width of a feature, e of an embedded token.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from torch import Tensor, nn

from sightline.batch import Memory
from sightline.decoders.base import Decoded
from sightline.output_layer import Given, Named, Reading
from sightline.outputs import Output, OverVocabulary


class View(nn.Module, ABC):
    """Makes of a decoder's features what an output layer foretells from; `[mask]` gives that of some tokens.

    `reads_tokens` tells whether it looks at the embedded tokens.
    """

    reads_tokens = False

    @abstractmethod
    def prepare(self, memory: Memory, ids: Tensor) -> Named:
        """See `OutputLayer.prepare`."""

    @abstractmethod
    def forward(self, features: Tensor, weights: Tensor | None, embedded: Tensor | None, shared: Named) -> Any:
        """Features `(B, T, d)`, attention's weights `(B, T, S)` and the embedded tokens `(B, T, e)` that were read."""

    def known_source(self, ids: Tensor) -> Tensor:
        """See `OutputLayer.known_source`."""
        return ids

    def known_target(self, ids: Tensor) -> Tensor:
        """See `OutputLayer.known_target`."""
        return ids


class ViewedOutput(OverVocabulary):
    """An output layer that sees through a view."""

    def __init__(self, vocabulary: Output, view: View) -> None:
        super().__init__(vocabulary)
        self.view = view
        self.reads_tokens = view.reads_tokens

    def known_source(self, ids: Tensor) -> Tensor:
        return self.view.known_source(ids)

    def known_target(self, ids: Tensor) -> Tensor:
        return self.view.known_target(ids)

    def prepare(self, memory: Memory, ids: Tensor) -> Named:
        return self.view.prepare(memory, ids)

    def see(self, decoded: Decoded, given: Given) -> Reading:
        return Reading.of(decoded, self.view(decoded.features, decoded.weights, given.embedded, given.shared))

    def see_step(self, decoded: Decoded, tokens: Tensor, embedded: Tensor | None) -> Reading:
        """The hypotheses of a sentence stand side by side, as targets do: features are `(B, K, …)`."""
        rows = (decoded.features, decoded.weights, embedded)
        grouped = (None if part is None else by_sentence(part, decoded.state.width) for part in rows)
        return Reading.of(decoded, self.view(*grouped, decoded.state.shared))


def by_sentence(rows: Tensor, width: int) -> Tensor:
    """Rows `(R, …)` as `(B, K, …)`."""
    return rows.reshape(-1, width, *rows.shape[1:])
