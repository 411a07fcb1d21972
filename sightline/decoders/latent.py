"""A decoder for attention that is summed over: Luong's without input feeding, a feature vector for each position.

What was looked at must not enter the state: else there would be a state for each of the ways to look, and they are too
many to be added up.
Shapes: see `decoders/base.py`.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from sightline.attention.clues import Look
from sightline.attention.latent import LatentAttention, arrived, first_place
from sightline.batch import Memory
from sightline.decoders.base import Decoded, Decoder, Start
from sightline.decoders.cells import CellStack
from sightline.layers import Dropout
from sightline.state import State

# Names in the state: where a hypothesis stood after the token before its newest one, and before that one, `(R, S)`, and
# what predicted it at each position, `(R, S, d)`.
PLACE, PRIOR, FEATURES = "latent.place", "latent.prior", "latent.features"


class LatentDecoder(Decoder):
    """`h_t` from the cell; for each position j, `h̃_tj = tanh(W [h_j; h_t])` for the output layer.

    `width` is that of h̃.
    """

    def __init__(
        self,
        cells: CellStack,
        bridge: Start,
        attention: LatentAttention,
        memory_width: int,
        dropout: float,
    ) -> None:
        super().__init__()
        self.cells, self.bridge, self.attention = cells, bridge, attention
        self.width = cells.width
        self.of_memory = nn.Linear(memory_width, cells.width, bias=False)
        self.of_state = nn.Linear(cells.width, cells.width, bias=False)
        self.dropout = Dropout(dropout)

    def start(self, memory: Memory) -> State:
        shared = self.attention.prepare(memory.states, memory.mask)
        shared["projected"] = self.of_memory(memory.states)
        own = self.bridge(memory)
        own[PLACE] = first_place(memory.mask, memory.states.dtype)
        return State(shared, own)

    def features(self, hidden: Tensor, shared: dict[str, Tensor]) -> Tensor:
        """Top states `(B, T, n)` to vectors `(B, T, S, n)`; what is dropped of a state is dropped at all positions."""
        state = self.of_state(hidden)[:, :, None]
        kept = self.dropout(torch.ones_like(state))
        return torch.tanh(shared["projected"][:, None] + state) * kept

    def of_tokens(self, embedded: Tensor) -> Tensor:
        return self.cells.project(embedded)

    def go_on(self, given: Tensor, state: State) -> Decoded:
        own = self.cells.step(given, None, state.own)
        hidden = own[self.cells.top]
        queries = hidden.view(-1, state.width, hidden.size(-1))
        position = torch.tensor([state.position], device=hidden.device)
        moves = self.attention.moves(Look(queries, state.shared, position, {}))
        place = state.own[PLACE].view(*queries.shape[:2], -1)
        own[PRIOR] = arrived(place, moves).flatten(0, 1)
        features = self.features(queries, state.shared).flatten(0, 1)
        if self.attention.chained:
            own[FEATURES] = features
        return Decoded(features, state.advance(own), own[PRIOR].exp())

    def forward(self, memory: Memory, embedded: Tensor) -> Decoded:
        state = self.start(memory)
        hidden, own = self.cells.sequence(embedded, None, state.own)
        length = torch.arange(hidden.size(1), device=hidden.device)
        moves = self.attention.moves(Look(hidden, state.shared, length, {}))
        priors = partial(self.attention.filtered, moves, place=state.own[PLACE])
        state = State(state.shared, own, 1, embedded.size(1))
        return Decoded(self.features(hidden, state.shared), state, priors=priors)
