"""What an output layer may want to see beside a decoder's features: the source, and where the decoder looked.

Shapes: B sentences, T target positions (decoding: the hypotheses of a sentence), S source positions, d width of a
feature, e of an embedded token.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Protocol

from torch import Tensor, nn

from sightline.batch import Memory
from sightline.outputs import Output

Named = dict[str, Tensor]


class OutputLayer(Protocol):
    """What a model asks of its output layer; `features` are a decoder's, or what the layer's view makes of them."""

    def log_probs(self, features: Any) -> Tensor:
        """The distribution of the next token, `(…, V)` or wider."""
        ...

    def nll(self, features: Any, targets: Tensor, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
        """Features and ids of N targets to two sums over tokens: smoothed, for training, and plain."""
        ...

    def quantise(self) -> None:
        """See `Output.quantise`."""
        ...


class View(nn.Module, ABC):
    """Makes of a decoder's features what its output layer foretells from; `[mask]` gives that of some tokens."""

    @abstractmethod
    def prepare(self, memory: Memory, ids: Tensor) -> Named:
        """What every step shares, from the memory and the source ids `(B, S)`: tensors `(B, …)`."""

    @abstractmethod
    def forward(self, features: Tensor, weights: Tensor | None, inputs: Tensor, shared: Named) -> Any:
        """Features `(B, T, d)`, attention's weights `(B, T, S)` and the embedded tokens `(B, T, e)` that were read."""

    @abstractmethod
    def over(self, vocabulary: Output) -> OutputLayer:
        """The output layer that goes with this view, over one of the vocabulary alone."""

    def known_source(self, ids: Tensor) -> Tensor:
        """Source ids as the source embedding knows them."""
        return ids

    def known_target(self, ids: Tensor) -> Tensor:
        """Target ids as the target embedding knows them."""
        return ids
