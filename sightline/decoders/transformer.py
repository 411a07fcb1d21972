"""The Transformer's decoder, with its key/value cache (Vaswani et al. 2017).

Shapes: see `decoders/base.py`; H heads, d_k width of a head.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sightline.attention.core import attention_weights
from sightline.attention.masks import padding_mask
from sightline.attention.multihead import MultiHeadAttention
from sightline.batch import Memory
from sightline.decoders.base import Decoded, Decoder
from sightline.layers import FeedForward, Residual, make_norm, start_small
from sightline.stack import Stack
from sightline.state import State


class TransformerDecoderLayer(nn.Module):
    """Causal self-attention, attention to the memory, feed-forward, each with its residual.

    Without `cross` there is no memory to look at: a language model's layer.
    """

    def __init__(
        self,
        attention: MultiHeadAttention,
        cross: MultiHeadAttention | None,
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
        self, states: Tensor, memory: Tensor, mask: Tensor | None, head: int | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """States `(B, T, d)`, memory `(B, S, d)` and its mask, broadcastable to `(B, H, T, S)`, to states `(B, T, d)`.

        With a `head`, its weights over the memory, `(B, T, S)`, come too, with their gradient. Padding comes last, so
        causality alone hides it from every real position.
        """
        states = self.around_attention(states, lambda x: self.self_attention(x, causal=True))
        weights: Tensor | None = None
        if self.cross is not None and self.around_cross is not None:
            cross, seen = self.cross, list[Tensor]()

            def look(queries: Tensor) -> Tensor:
                if head is not None:
                    seen.append(cross.head_weights(head, queries, memory, mask))
                return cross(queries, memory, mask)

            states = self.around_cross(states, look)
            weights = seen[0] if seen else None
        return self.around_feedforward(states, self.feedforward), weights

    def last_matrices(self) -> list[nn.Linear]:
        """What each sublayer ends with."""
        cross = [] if self.cross is None else [self.cross.output]
        return [self.self_attention.output, *cross, self.feedforward.outer]


class TransformerDecoder(Decoder):
    """A stack of layers; pre-norm stacks end with one more normalisation, post-norm stacks start small.

    `alignment` names the layer and head whose weights a step reports (None: the mean of all); without it a step
    reports none and saves the work. `pointing` names a layer and a head whose weights are part of the model: the full
    pass reports them too, and `alignment` is not heard. `taught` names those whose weights the full pass alone reports,
    for what is learnt from them.
    """

    alignment: tuple[int | None, int | None] | None = None
    taught: tuple[int, int] | None = None

    def __init__(
        self,
        layers: list[TransformerDecoderLayer],
        norm: str,
        norm_position: str,
        pointing: tuple[int, int] | None = None,
    ) -> None:
        super().__init__()
        self.pointing = pointing
        self.layers = Stack(layers)
        self.width = layers[0].self_attention.width
        self.norm = make_norm(norm, self.width) if norm_position == "pre" else nn.Identity()
        if norm_position == "post":
            start_small([matrix for layer in layers for matrix in layer.last_matrices()])

    def forward(self, memory: Memory, embedded: Tensor) -> Decoded:
        mask = None if bool(memory.mask.all()) else padding_mask(memory.mask)
        states, shown = embedded, self.pointing or self.taught
        weights: Tensor | None = None
        for number, layer in enumerate(self.layers):
            if shown is not None and number == shown[0]:
                states, weights = layer(states, memory.states, mask, shown[1])
            else:
                states, _ = layer(states, memory.states, mask)
        return Decoded(self.norm(states), State(position=embedded.size(1)), weights)

    def start(self, memory: Memory) -> State:
        # Without padding there is no mask to carry, nor to add to the scores of every layer at every step.
        shared = {} if bool(memory.mask.all()) else {"mask": memory.mask}
        own = {}
        batch = memory.states.size(0)
        for number, layer in enumerate(self.layers):
            if layer.cross is not None:
                keys, values = layer.cross.project_memory(memory.states)
                shared[f"{number}.keys"], shared[f"{number}.values"] = keys.contiguous(), values.contiguous()
            heads = layer.self_attention.heads
            empty = memory.states.new_zeros(batch, heads, 0, self.width // heads)
            own[f"{number}.keys"], own[f"{number}.values"] = empty, empty
        return State(shared, own)

    def go_on(self, given: Tensor, state: State) -> Decoded:
        real = state.shared.get("mask")
        mask = None if real is None else padding_mask(real)
        states = given[:, None]  # (R, 1, d)
        own: dict[str, Tensor] = {}
        reported: list[Tensor] = []
        for number, layer in enumerate(self.layers):
            states = layer.around_attention(states, lambda x, n=number: self.attend_to_past(n, x, state, own))
            if layer.around_cross is not None:
                states = layer.around_cross(
                    states, lambda x, n=number: self.attend_to_memory(n, x, state, mask, reported)
                )
            states = layer.around_feedforward(states, layer.feedforward)
        weights = torch.stack(reported).mean(0) if reported else None
        return Decoded(self.norm(states)[:, 0], state.advance(own), weights)

    def attend_to_past(self, number: int, states: Tensor, state: State, own: dict[str, Tensor]) -> Tensor:
        """Self-attention of `(R, 1, d)` over the cache, which gets one key and one value longer."""
        attention = self.layers[number].self_attention
        queries, keys, values = attention.project_self(states)
        keys = own[f"{number}.keys"] = torch.cat([state.own[f"{number}.keys"], keys], 2)
        values = own[f"{number}.values"] = torch.cat([state.own[f"{number}.values"], values], 2)
        return attention.mix(queries, keys, values)

    def attend_to_memory(
        self, number: int, states: Tensor, state: State, mask: Tensor | None, reported: list[Tensor]
    ) -> Tensor:
        """Attention of `(R, 1, d)` to the memory: a sentence's hypotheses stand in for the target positions."""
        cross = self.layers[number].cross
        assert cross is not None
        grouped = states.view(-1, state.width, states.size(-1))  # (B, K, d)
        queries = cross.project_queries(grouped)
        keys, values = state.shared[f"{number}.keys"], state.shared[f"{number}.values"]
        reports = self.pointing or self.alignment
        if reports is not None and reports[0] in (None, number):
            weights = attention_weights(queries, keys, mask)  # (B, H, K, S)
            head = reports[1]
            chosen = weights.mean(1) if head is None else weights[:, head]
            reported.append(chosen.flatten(0, 1))
        return cross.mix(queries, keys, values, mask).view_as(states)
