"""Writing recent words again: the pointer-sentinel mixture of a language model (Merity et al. 2017).

    p(w) = g p_vocabulary(w) + Σ_{i: x_i = w} a_i
over the words x_i of a window. a and g sum to 1 together, so nothing is scaled once more. The start symbol is no word:
it cannot be pointed at.
Shapes: B sentences, T target positions, R rows, N tokens, d width of a state, V vocabulary, W positions that can be
pointed at: T in the full pass, at most `window` in a step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from sightline.attention.masks import recent_mask
from sightline.attention.sentinel import Sentinel
from sightline.decoders.base import Decoded
from sightline.mixtures import mixture_log_probs, mixture_nll
from sightline.output_layer import Given, Reading
from sightline.outputs import Output, OverVocabulary
from sightline.state import State

STATES, IDS = "pointer.states", "pointer.ids"


@dataclass(frozen=True)
class Pointed:
    """What the mixture is made of, for each token to be predicted.

    `features` `(…, d)`, the states; `log_weights` `(…, W + 1)`, of pointing at each position and last of the
    vocabulary; `ids` `(…, W)`, the tokens at the positions.
    """

    features: Tensor
    log_weights: Tensor
    ids: Tensor

    def __getitem__(self, which: Any) -> Pointed:
        """Those of some tokens, as with a tensor."""
        return Pointed(self.features[which], self.log_weights[which], self.ids[which])

    def shares(self, normaliser: Tensor) -> tuple[Tensor, Tensor]:
        """See `mixtures.Mixture`: here they do not depend on the vocabulary's logits."""
        weights = self.log_weights.to(normaliser.dtype)
        return weights[..., -1], weights[..., :-1].exp()


class Pointer(nn.Module):
    """Points from each state to the last `window` tokens that were read, the newest included."""

    def __init__(self, width: int, window: int) -> None:
        super().__init__()
        self.sentinel, self.window = Sentinel(width), window

    def forward(self, states: Tensor, ids: Tensor) -> Pointed:
        """The full pass: states `(B, T, d)` after reading the tokens `ids` `(B, T)`, the start symbol first."""
        length = ids.size(1)
        words = torch.arange(length, device=ids.device) > 0
        mask = recent_mask(length, self.window, ids.device) & words
        return Pointed(states, self.sentinel(states, states, mask), ids[:, None].expand(-1, length, -1))

    def step(self, states: Tensor, ids: Tensor, state: State) -> tuple[Pointed, State]:
        """One token a row: states `(R, d)` after reading `ids` `(R,)`, `state` the decoder's after that token.

        What can be pointed at travels in the state, as everything that belongs to a hypothesis.
        """
        if state.position == 1:  # the start symbol was read
            past, words = states.new_zeros(states.size(0), 0, states.size(1)), ids.new_zeros(ids.size(0), 0)
        else:
            past = torch.cat([state.own[STATES], states[:, None]], 1)[:, -self.window :]
            words = torch.cat([state.own[IDS], ids[:, None]], 1)[:, -self.window :]
        everything = torch.ones(past.size(1), dtype=torch.bool, device=ids.device)
        log_weights = self.sentinel(states[:, None], past, everything)[:, 0]
        return Pointed(states, log_weights, words), replace(state, own={**state.own, STATES: past, IDS: words})


class PointerOutput(OverVocabulary):
    """The mixture of the vocabulary's distribution and the pointer's."""

    def __init__(self, vocabulary: Output, pointer: Pointer) -> None:
        super().__init__(vocabulary)
        self.pointer = pointer

    def see(self, decoded: Decoded, given: Given) -> Reading:
        return Reading(self.pointer(decoded.features, given.tokens), decoded.state)

    def see_step(self, decoded: Decoded, tokens: Tensor, embedded: Tensor | None) -> Reading:
        return Reading(*self.pointer.step(decoded.features, tokens, decoded.state))

    def log_probs(self, features: Pointed) -> Tensor:
        """The distribution of the next token, `(…, V)`."""
        return mixture_log_probs(features, self.vocabulary)

    def nll(self, features: Pointed, targets: Tensor, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
        return mixture_nll(features, self.vocabulary, targets, smoothing)
