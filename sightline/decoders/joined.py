"""One beginning out of several sources' ends (Zoph & Knight 2016).

Each source has a bridge of its own, which gives what a decoder of this source alone would begin with; a missing source
gives zeros.
Shapes: see `decoders/base.py`; N sources.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from sightline.batch import Memory
from sightline.decoders.base import Bridge, Start
from sightline.stack import Stack


class JoinedStart(Start):
    """The bridges of several sources, and for each of the decoder's layers what makes one state of theirs."""

    def __init__(self, bridges: Sequence[Bridge], layers: Sequence[FlatStates | ChildSum]) -> None:
        super().__init__()
        self.bridges, self.layers = Stack(bridges), Stack(layers)

    def forward(self, memory: Memory) -> dict[str, Tensor]:
        ends = []
        for bridge, part in zip(self.bridges, memory.parts, strict=True):
            there = part.mask.any(1, keepdim=True)
            ends.append({name: state * there for name, state in bridge(part).items()})
        states: dict[str, Tensor] = {}
        for number, layer in enumerate(self.layers):
            hidden = [end[f"hidden.{number}"] for end in ends]
            cells = [end[f"cell.{number}"] for end in ends if f"cell.{number}" in end]
            joined, cell = layer(hidden, cells)
            # What goes through many steps keeps its precision, whatever the products' was.
            states[f"hidden.{number}"] = joined.to(hidden[0].dtype)
            if cell is not None:
                states[f"cell.{number}"] = cell.to(cells[0].dtype)
        return states


class FlatStates(nn.Module):
    """`h = tanh(W [h_1; …; h_N])`, `c = c_1 + … + c_N`: the "basic" combination."""

    def __init__(self, sources: int, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(sources * width, width, bias=False)

    def forward(self, hidden: Sequence[Tensor], cells: Sequence[Tensor]) -> tuple[Tensor, Tensor | None]:
        """States and cells of the sources, `(B, n)` each (no cells: of a decoder without), to one of each."""
        joined = torch.tanh(self.linear(torch.cat([*hidden], -1)))
        return joined, sum(cells[1:], cells[0]) if cells else None


class ChildSum(nn.Module):
    """A tree LSTM's node over the sources, with a forget gate for each: cells stay in range however many there are.

    `i, o = σ(Σ_k W_k h_k)`, `u = tanh(Σ_k W_k h_k)`, each with matrices of its own, `f_k = σ(W_k h_k)`;
    `c = i ∘ u + Σ_k f_k ∘ c_k`, `h = o ∘ tanh(c)` (Zoph & Knight 2016, equations 5 to 10; after Tai et al. 2015).
    """

    def __init__(self, sources: int, width: int) -> None:
        super().__init__()
        # The gates i, o and u, then f.
        self.gates = Stack(nn.Linear(width, 4 * width, bias=False) for _ in range(sources))

    def forward(self, hidden: Sequence[Tensor], cells: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """States and cells of the sources, `(B, n)` each, to one of each."""
        width = cells[0].size(-1)
        gates = [gate(state) for gate, state in zip(self.gates, hidden, strict=True)]
        enter, out, new = torch.stack(gates)[..., : 3 * width].sum(0).chunk(3, -1)
        cell = torch.sigmoid(enter) * torch.tanh(new)
        for gate, kept in zip(gates, cells, strict=True):
            cell = cell + torch.sigmoid(gate[..., 3 * width :]) * kept
        return torch.sigmoid(out) * torch.tanh(cell), cell
