"""Luong's decoder (2015): it moves, then looks, and may feed what it saw into the next step.

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
from sightline.products import through
from sightline.state import State


class LuongDecoder(Decoder):
    """`h_t` from the cell, `c_t` from attention queried by `h_t`, `h̃_t = tanh(W [c_t; h_t])` for the output layer.

    With input feeding `h̃_{t-1}` (zero at first) enters the cell beside the token, which makes training go step by
    step; without it, and with an attention that remembers nothing, the whole sequence is computed at once.
    """

    def __init__(
        self,
        cells: CellStack,
        bridge: Start,
        attention: SoftAttention | JoinedAttention,
        memory_width: int,
        input_feeding: bool,
        dropout: float,
    ) -> None:
        super().__init__()
        self.cells, self.bridge, self.attention, self.input_feeding = cells, bridge, attention, input_feeding
        self.width = cells.width
        self.combine = nn.Linear(memory_width + cells.width, cells.width, bias=False)
        self.dropout = Dropout(dropout)

    def start(self, memory: Memory) -> State:
        shared, remembered = self.attention.open(memory)
        own = {**self.bridge(memory), **remembered}
        if self.input_feeding:
            own = {**own, "fed": torch.zeros_like(own[self.cells.top])}
        return State(shared, own)

    def look(self, hidden: Tensor, looked: Attended) -> Tensor:
        """Top states `(B, T, n)` and what they saw to attentional vectors `(B, T, n)`."""
        return self.dropout(torch.tanh(through(self.combine, torch.cat([looked.context, hidden], -1))))

    def advance(
        self, projected: Tensor, known: Tensor, state: State, loop: Loop | None = None
    ) -> tuple[Tensor, State, Attended]:
        """One step from projected tokens `(R, G n)`: features `(R, n)`, the next state, and what was seen.

        `known` `(R, k)` is what attention wants of the tokens.
        """
        own = self.cells.step(projected, state.own.get("fed"), state.own, loop.weights if loop else None)
        hidden = own[self.cells.top]
        position = torch.tensor([state.position], device=hidden.device)
        queries = hidden.view(-1, state.width, hidden.size(-1))
        tokens = known.view(*queries.shape[:2], known.size(-1))
        looked = self.attention(queries, state.shared, position, loop.mix if loop else None, state.own, tokens)
        features = self.look(queries, looked).flatten(0, 1)
        if self.input_feeding:
            own["fed"] = features
        return features, state.advance({**own, **looked.state}), looked

    def of_tokens(self, embedded: Tensor) -> Tensor:
        """Their share of the gates and of attention, `(…, G n + k)`."""
        projected = self.cells.project(embedded)
        wanted = self.attention.token_width
        return torch.cat([projected, self.attention.of_tokens(embedded)], -1) if wanted else projected

    def go_on(self, given: Tensor, state: State) -> Decoded:
        projected, known = given.tensor_split([given.size(-1) - self.attention.token_width], -1)
        features, state, looked = self.advance(projected, known, state)
        return Decoded(features, state, looked.weights.flatten(0, 1), log_chances=looked.rows_drawn())

    def forward(self, memory: Memory, embedded: Tensor) -> Decoded:
        state = self.start(memory)
        if not self.input_feeding and not self.attention.remembers:
            hidden, own = self.cells.sequence(embedded, None, state.own)
            looked = self.attention(hidden, state.shared, torch.arange(hidden.size(1), device=hidden.device))
            state = State(state.shared, own, 1, embedded.size(1))
            return Decoded(self.look(hidden, looked), state, looked.weights, log_chances=looked.log_chances)
        loop = Loop.over(self.cells, state, self.attention)
        all_features, looks = [], []
        of_tokens = (self.cells.project(embedded), self.attention.of_tokens(embedded))
        for projected, known in zip(*(part.unbind(1) for part in of_tokens), strict=True):
            features, state, looked = self.advance(projected, known, state, loop)
            all_features.append(features)
            looks.append(looked)
        seen = Attended.joined(looks)
        return Decoded(torch.stack(all_features, 1), state, seen.weights, log_chances=seen.log_chances)
