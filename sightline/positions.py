"""How a position in the sequence is told to a model that reads all positions at once.

Shapes: L positions, d width.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from sightline.errors import SightlineError


def sinusoids(length: int, width: int) -> Tensor:
    """`(L, d)` with sin(p / 10000^(2i/d)) in column 2i and the cosine in column 2i+1 (Vaswani et al. 2017)."""
    position = torch.arange(length, dtype=torch.float64)[:, None]
    columns = torch.arange(0, width, 2, dtype=torch.float64)
    angle = position / 10000 ** (columns / width)
    table = torch.zeros(length, width, dtype=torch.float64)
    table[:, 0::2] = angle.sin()
    table[:, 1::2] = angle.cos()[:, : width // 2]
    return table.float()


class Positions(nn.Module, ABC):
    """Vectors that are added to the embeddings."""

    @abstractmethod
    def forward(self, length: int, offset: int = 0) -> Tensor:
        """Vectors `(L, d)` of the positions from `offset` on."""


class SinusoidalPositions(Positions):
    """Fixed sinusoids, computed as far as they are needed."""

    table: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.register_buffer("table", sinusoids(256, width), persistent=False)

    def forward(self, length: int, offset: int = 0) -> Tensor:
        table = self.table
        if offset + length > table.size(0):
            # Another thread may be doing the same: this one uses its own table, whichever stays.
            table = self.table = sinusoids(2 * (offset + length), self.width).to(table)
        return table[offset : offset + length]


class LearnedPositions(Positions):
    """One learned vector a position, up to a fixed number of them (Gehring et al. 2017)."""

    def __init__(self, width: int, maximum: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(maximum, width) * width**-0.5)

    def forward(self, length: int, offset: int = 0) -> Tensor:
        if offset + length > self.table.size(0):
            raise SightlineError(
                f"a sequence of {offset + length} tokens is too long for {self.table.size(0)} learned positions: "
                "split the line, or train with a larger model.max_positions"
            )
        return self.table[offset : offset + length]
