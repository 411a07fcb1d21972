"""What a model asks of its output layer, which foretells the next token from what a decoder made of those before it.

Shapes: B sentences, T target positions, K hypotheses a sentence, R = B * K rows, S source positions, N tokens, d width
of a feature, e of an embedded token, V vocabulary.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from sightline.batch import Batch, Memory
from sightline.decoders.base import Decoded
from sightline.state import State

TOKENS_AT_ONCE = 1024
Named = dict[str, Tensor]


class Given(NamedTuple):
    """What a full pass was given: the `tokens` `(B, T)` that were read, the same `embedded` `(B, T, e)`, the `targets`
    `(B, T)` that followed them, and what the layer has prepared of the source."""

    tokens: Tensor
    embedded: Tensor
    targets: Tensor
    shared: Named


class Reading(NamedTuple):
    """What the next tokens are foretold from, the decoder's state, and where it has them its weights over the source.

    `features` are a tensor as a rule, `(B, T, d)` of a full pass, `(R, d)` of a step; what else they may be is between
    the layer's methods. Whatever they are, `features[mask]` are those of some tokens, as with a tensor. Weights are
    `(B, T, S)` or `(R, S)`; `log_chances` `(B, T)` or `(R,)` are those of positions that were drawn.
    """

    features: Any
    state: State
    weights: Tensor | None = None
    log_chances: Tensor | None = None

    @classmethod
    def of(cls, decoded: Decoded, features: Any) -> Reading:
        """What a decoder found, with what a layer made of its features."""
        return cls(features, decoded.state, decoded.weights, decoded.log_chances)


class OutputLayer(nn.Module, ABC):
    """From features to the distribution of the next token.

    A layer may need more than a decoder's features, as the source, or where the decoder looked: `see` and `see_step`
    make of all that what it foretells from. By default that is the features alone.
    """

    stepwise = False  # whether what a step reads depends on what the layer saw in the one before
    writes_unknown = True  # whether `<unk>` is a token like others; if not, it is neither learnt nor ever written
    reads_tokens = False  # whether a step's embedded tokens are wanted, even where the decoder needs none

    def known_source(self, ids: Tensor) -> Tensor:
        """Source ids as the source embedding knows them."""
        return ids

    def known_target(self, ids: Tensor) -> Tensor:
        """Target ids as the target embedding knows them."""
        return ids

    def practised(self, batch: Batch) -> Batch:
        """What training makes of a batch: nothing else, as a rule."""
        return batch

    def prepare(self, memory: Memory, ids: Tensor) -> Named:
        """What every step shares, from the memory and the source ids `(B, S)`: tensors `(B, …)`."""
        return {}

    def begin(self, memory: Memory) -> Named:
        """What it carries before the first token: tensors `(B, …)`."""
        return {}

    def told(self, tokens: Tensor, state: State) -> State:
        """What the tokens `(R,)` that were chosen tell of the state they were chosen in: nothing, as a rule."""
        return state

    def read(self, tokens: Tensor, embedded: Tensor, state: State) -> Tensor:
        """What the decoder reads in a step: tokens `(R,)` and the same embedded `(R, e)` to `(R, e or more)`."""
        return embedded

    def see(self, decoded: Decoded, given: Given) -> Reading:
        """What a full pass foretells from."""
        return Reading.of(decoded, decoded.features)

    def see_step(self, decoded: Decoded, tokens: Tensor, embedded: Tensor | None) -> Reading:
        """What a step foretells from; it read `tokens` `(R,)`, as `embedded` `(R, e)` where these are at hand."""
        return Reading.of(decoded, decoded.features)

    def joined(self, steps: Sequence[Any]) -> Any:
        """The features of steps, one hypothesis a sentence, as those of a full pass."""
        return torch.stack([*steps], 1)

    @abstractmethod
    def log_probs(self, features: Any) -> Tensor:
        """The distribution of the next token, `(…, V)` or wider."""

    @abstractmethod
    def nll(self, features: Any, targets: Tensor, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
        """Features and ids `(N,)` of tokens to two sums over them: smoothed, for training, and plain."""

    def token_log_probs(self, features: Any, targets: Tensor) -> Tensor:
        """Features and ids `(N,)` of tokens to their log-probabilities `(N,)`."""
        # In parts: the distributions of all tokens at once would be the largest tensor of all.
        parts = [slice(start, start + TOKENS_AT_ONCE) for start in range(0, len(targets), TOKENS_AT_ONCE)]
        return torch.cat([self.log_probs(features[part]).gather(-1, targets[part, None])[:, 0] for part in parts])

    @abstractmethod
    def changing(self) -> Tensor:
        """Some of its weights, not many, that every update changes."""

    @abstractmethod
    def quantise(self) -> None:
        """From now on `log_probs` multiplies in int8: faster, not to the last digit, and without gradients."""
