"""The Transformer's decoder; what it carries from token to token is its attentions' (Vaswani et al. 2017).

Shapes: see `decoders/base.py`; H heads, d_k width of a head.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from sightline.attention.joined import JoinedCross, numbered, of_number
from sightline.attention.kinds import CrossAttention, SelfAttention
from sightline.attention.masks import padding_mask
from sightline.batch import Memory
from sightline.decoders.base import Decoded, Decoder
from sightline.layers import FeedForward, Residual, make_norm, start_small
from sightline.reversible import OneStream, Sublayer, TwoStreams, pass_through
from sightline.stack import Stack
from sightline.state import State

Masks = Tensor | tuple[Tensor, ...] | None


class TransformerDecoderLayer(nn.Module):
    """Causal self-attention, attention to the memory, feed-forward, each with its residual.

    Without `cross` there is no memory to look at: a language model's layer.
    """

    def __init__(
        self,
        attention: SelfAttention,
        cross: CrossAttention | None,
        feedforward: FeedForward,
        norm: str,
        norm_position: str,
        dropout: float,
    ) -> None:
        super().__init__()
        self.self_attention, self.cross, self.feedforward = attention, cross, feedforward
        self.around_attention = Residual(attention.width, norm, norm_position, dropout)
        self.around_cross = None if cross is None else Residual(attention.width, norm, norm_position, dropout)
        self.around_feedforward = Residual(attention.width, norm, norm_position, dropout)

    def forward(
        self, states: Tensor, memory: Tensor, mask: Masks, head: int | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """States `(B, T, d)`, memory `(B, S, d)` and its mask, broadcastable to `(B, H, T, S)`, to states `(B, T, d)`.

        Where each source is looked at apart, the mask is one for each.

        With a `head`, its weights over the memory, `(B, T, S)`, come too, with their gradient. Padding comes last, so
        causality alone hides it from every real position.
        """
        states = self.around_attention(states, lambda x: self.self_attention(x, causal=True))
        weights: Tensor | None = None
        if self.cross is not None and self.around_cross is not None:
            cross = self.cross
            seen: list[Tensor] = []  # not `list[Tensor]()`, where torch.compile would break off

            def look(queries: Tensor) -> Tensor:
                if head is not None:
                    assert not isinstance(cross, JoinedCross), "a configuration that asks for it is refused"
                    assert not isinstance(mask, tuple)
                    seen.append(cross.head_weights(head, queries, memory, mask))
                return cross(queries, memory, mask)

            states = self.around_cross(states, look)
            weights = seen[0] if seen else None
        return self.around_feedforward(states, self.feedforward), weights

    def sublayers(self, mask: Masks) -> list[Sublayer]:
        """The same in its parts."""
        found = [
            Sublayer(self.around_attention, self.self_attention, lambda x, memory: self.self_attention(x, causal=True)),
            Sublayer(self.around_feedforward, self.feedforward, lambda x, memory: self.feedforward(x)),
        ]
        if self.cross is not None and self.around_cross is not None:
            cross = self.cross
            found.insert(1, Sublayer(self.around_cross, cross, lambda x, memory: cross(x, memory, mask)))
        return found

    def last_matrices(self) -> list[nn.Linear]:
        """What each sublayer ends with."""
        cross = [] if self.cross is None else self.cross.outputs
        return [self.self_attention.output, *cross, self.feedforward.outer]


class TransformerDecoder(Decoder):
    """A stack of layers; pre-norm stacks end with one more normalisation, post-norm stacks start small.

    `alignment` names the layer and head whose weights a step reports (None: the mean of all); without it a step
    reports none and saves the work. `pointing` names a layer and a head whose weights are part of the model: the full
    pass reports them too, and `alignment` is not heard. With `reversible`, for pre-norm stacks, the full pass computes
    activations again instead of keeping them, and reports nothing.
    """

    alignment: tuple[int | None, int | None] | None = None

    def __init__(
        self,
        layers: list[TransformerDecoderLayer],
        norm: str,
        norm_position: str,
        pointing: tuple[int, int] | None = None,
        reversible: bool = False,
    ) -> None:
        super().__init__()
        self.pointing, self.reversible = pointing, reversible
        self.layers = Stack(layers)
        self.width = layers[0].self_attention.width
        self.norm = make_norm(norm, self.width) if norm_position == "pre" else nn.Identity()
        if norm_position == "post":
            start_small([matrix for layer in layers for matrix in layer.last_matrices()])

    def forward(self, memory: Memory, embedded: Tensor) -> Decoded:
        mask = self.masks(memory)
        states, shown = embedded, self.pointing or self.taught
        weights: Tensor | None = None
        if self.reversible:
            sublayers = [sublayer for layer in self.layers for sublayer in layer.sublayers(mask)]
            states = pass_through(sublayers, embedded, memory.states)
            return Decoded(self.norm(states), State(position=embedded.size(1)))
        for number, layer in enumerate(self.layers):
            if shown is not None and number == shown[0]:
                states, weights = layer(states, memory.states, mask, shown[1])
            else:
                states, _ = layer(states, memory.states, mask)
        return Decoded(self.norm(states), State(position=embedded.size(1)), weights)

    def masks(self, memory: Memory) -> Masks:
        """What hides the memory's padding: nothing where it has none, a mask, or one for each source."""
        if any(isinstance(layer.cross, JoinedCross) for layer in self.layers):
            return tuple(padding_mask(part.mask) for part in memory.parts)
        return None if bool(memory.mask.all()) else padding_mask(memory.mask)

    def start(self, memory: Memory) -> State:
        # Without padding there is no mask to carry, nor to add to the scores of every layer at every step.
        shared = {} if bool(memory.mask.all()) else {"mask": memory.mask}
        masks = self.masks(memory)
        own: dict[str, Tensor] = {}
        for number, layer in enumerate(self.layers):
            if isinstance(layer.cross, JoinedCross):
                assert isinstance(masks, tuple)
                shared |= numbered(number, layer.cross.remember(memory.states, masks))
            elif layer.cross is not None:
                assert not isinstance(masks, tuple)
                shared |= numbered(number, layer.cross.remember(memory.states, masks))
            own |= numbered(number, layer.self_attention.begin(memory.states.size(0)))
        return State(shared, own)

    def go_on(self, given: Tensor, state: State) -> Decoded:
        real = state.shared.get("mask")
        mask = None if real is None else padding_mask(real)
        first = given[:, None]  # (R, 1, d)
        streams: OneStream | TwoStreams = TwoStreams(first) if self.reversible else OneStream(first)
        own: dict[str, Tensor] = {}
        reported: list[Tensor] = []
        for number, layer in enumerate(self.layers):
            streams.through(layer.around_attention, partial(self.attend_to_past, number, state=state, own=own))
            if layer.around_cross is not None:
                look = partial(self.attend_to_memory, number, state=state, mask=mask, reported=reported)
                streams.through(layer.around_cross, look)
            streams.through(layer.around_feedforward, layer.feedforward)
        weights = torch.stack(reported).mean(0) if reported else None
        return Decoded(self.norm(streams.end())[:, 0], state.advance(own), weights)

    def attend_to_past(self, number: int, states: Tensor, state: State, own: dict[str, Tensor]) -> Tensor:
        """Self-attention of `(R, 1, d)`; what it carries on goes to `own`."""
        found, past = self.layers[number].self_attention.advance(states, of_number(number, state.own))
        own |= numbered(number, past)
        return found

    def attend_to_memory(
        self, number: int, states: Tensor, state: State, mask: Tensor | None, reported: list[Tensor]
    ) -> Tensor:
        """Attention of `(R, 1, d)` to the memory: a sentence's hypotheses stand in for the target positions."""
        cross = self.layers[number].cross
        assert cross is not None
        grouped = states.view(-1, state.width, states.size(-1))  # (B, K, d)
        memory = of_number(number, state.shared)
        reports = self.pointing or self.alignment
        if reports is not None and reports[0] in (None, number):
            weights = cross.recall_weights(grouped, memory, mask)  # (B, H, K, S)
            if weights is not None:
                head = reports[1]
                chosen = weights.mean(1) if head is None else weights[:, head]
                reported.append(chosen.flatten(0, 1))
        return cross.recall(grouped, memory, mask).view_as(states)
