"""Bahdanau's decoder (RNNsearch, 2015): it looks before it moves.

Shapes: see `decoders/base.py`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sightline.attention.joined import JoinedAttention
from sightline.attention.soft import Attended, SoftAttention
from sightline.batch import Memory
from sightline.decoders.base import Decoded, Decoder, Loop, Start
from sightline.decoders.cells import CellStack
from sightline.layers import Dropout
from sightline.products import linear, through
from sightline.state import State


class Readout(nn.Module):
    """`t̃ = U s + V E y + C c`, then the larger of each pair: a maxout layer (Bahdanau et al. 2015, appendix A.2.2)."""

    def __init__(self, state: int, token: int, context: int, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(state + token + context, 2 * width)
        self.parts = [state, token, context]

    def forward(self, state: Tensor, token: Tensor, context: Tensor) -> Tensor:
        """`(…, n)`, `(…, e)` and `(…, d_m)` to `(…, d)`."""
        joined = through(self.linear, torch.cat([state, token, context], -1))
        return joined.view(*joined.shape[:-1], -1, 2).max(-1).values

    def of_tokens(self, token: Tensor) -> Tensor:
        """`V E y` with the bias: `(…, e)` to `(…, 2 d)`."""
        _, weight, _ = torch.split(self.linear.weight, self.parts, 1)
        return linear(token, weight, self.linear.bias)

    def added(self, share: Tensor, state: Tensor, context: Tensor) -> Tensor:
        """What `forward` gives, from what `of_tokens` gave: `(R, 2 d)`, `(R, n)` and `(R, d_m)` to `(R, d)`."""
        by_state, _, by_context = torch.split(self.linear.weight, self.parts, 1)
        joined = torch.addmm(torch.addmm(share, state, by_state.T), context, by_context.T)
        return torch.maximum(joined[:, 0::2], joined[:, 1::2])


class BahdanauDecoder(Decoder):
    """`c_i` from the state before the update, `s_i = cell(s_{i-1}, [E y_{i-1}; c_i])`.

    The output layer reads `E y_{i-1}` and `c_i` beside the state: `s_{i-1}` as the paper writes, or the updated
    `s_i` (`readout_state`), as most later systems do.
    """

    def __init__(
        self,
        cells: CellStack,
        bridge: Start,
        attention: SoftAttention | JoinedAttention,
        readout: Readout,
        width: int,
        readout_state: str,
        dropout: float,
    ) -> None:
        super().__init__()
        self.cells, self.bridge, self.attention, self.readout = cells, bridge, attention, readout
        self.width = width
        self.updated = readout_state == "updated"
        self.dropout = Dropout(dropout)

    def start(self, memory: Memory) -> State:
        shared, remembered = self.attention.open(memory)
        return State(shared, {**self.bridge(memory), **remembered})

    def advance(
        self, projected: Tensor, known: Tensor, state: State, loop: Loop | None = None
    ) -> tuple[State, Tensor, Attended]:
        """From projected tokens `(R, G n)`: the next state, the state to read out `(R, n)`, and what was seen.

        `known` `(R, k)` is what attention wants of the tokens.
        """
        before = state.own[self.cells.top]
        position = torch.tensor([state.position], device=before.device)
        queries, mix = before.view(-1, state.width, before.size(-1)), loop.mix if loop else None
        tokens = known.view(*queries.shape[:2], known.size(-1))
        looked = self.attention(queries, state.shared, position, mix, state.own, tokens)
        own = self.cells.step(projected, looked.context.flatten(0, 1), state.own, loop.weights if loop else None)
        after = state.advance({**own, **looked.state})
        read = after.own[self.cells.top] if self.updated else before
        return after, read, looked

    def of_tokens(self, embedded: Tensor) -> Tensor:
        """Their share of the gates, of the readout and of attention, `(…, G n + 2 d + k)`."""
        parts = (self.cells.project(embedded), self.readout.of_tokens(embedded), self.attention.of_tokens(embedded))
        return torch.cat(parts, -1)

    def go_on(self, given: Tensor, state: State) -> Decoded:
        end = given.size(-1) - self.attention.token_width
        projected, share, known = given.tensor_split([end - 2 * self.width, end], -1)
        state, read, looked = self.advance(projected, known, state)
        features = self.readout.added(share, read, looked.context.flatten(0, 1))
        return Decoded(self.dropout(features), state, looked.weights.flatten(0, 1), log_chances=looked.rows_drawn())

    def forward(self, memory: Memory, embedded: Tensor) -> Decoded:
        state = self.start(memory)
        loop = Loop.over(self.cells, state, self.attention)
        reads, looks = [], []
        of_tokens = (self.cells.project(embedded), self.attention.of_tokens(embedded))
        for projected, known in zip(*(part.unbind(1) for part in of_tokens), strict=True):
            state, read, looked = self.advance(projected, known, state, loop)
            reads.append(read)
            looks.append(looked)
        seen = Attended.joined(looks)
        features = self.readout(torch.stack(reads, 1), embedded, seen.context)
        return Decoded(self.dropout(features), state, seen.weights, log_chances=seen.log_chances)
