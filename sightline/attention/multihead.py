"""Multi-head attention: projections and heads (Vaswani et al. 2017).

Shapes: B sentences, K hypotheses a sentence, R = B * K rows, H heads, T queries, S keys, d width, d_k = d / H.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from sightline.attention.capture import Tapped
from sightline.attention.core import attend, attention_weights
from sightline.products import linear, through


class Heads(Tapped, ABC):
    """Projections into heads and out of them; what the heads do is a subclass's.

    The projections of queries, keys and values lie in one matrix of `(3d, d)`, in this order, so that
    self-attention takes one product. Queries may be projected apart from keys and values, which a decoder
    computes once a sentence (`project_memory`) or once a token (`project_self`). With `parts` of 2 there are
    vectors that are queries and keys at once, and values.

    With `sees`, a mask of `(d, d)` from `masks.block_mask`, a head sees only some features of its input: its
    matrices are zero elsewhere, and stay so. `never_compiled` says what it is that no compiler can follow.
    """

    never_compiled: str | None = None
    sees: Tensor | None

    def __init__(
        self, width: int, heads: int, dropout: float = 0.0, sees: Tensor | None = None, parts: int = 3
    ) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"width {width} is not a multiple of {heads} heads")
        self.width, self.heads, self.dropout = width, heads, dropout
        self.weight = nn.Parameter(torch.empty(parts * width, width))
        self.bias = nn.Parameter(torch.zeros(parts * width))
        self.output = nn.Linear(width, width)
        for part in self.weight.data.chunk(parts):
            nn.init.xavier_uniform_(part)
        nn.init.xavier_uniform_(self.output.weight)
        nn.init.zeros_(self.output.bias)
        self.register_buffer("sees", None if sees is None else sees.repeat(parts, 1), persistent=False)
        if self.sees is not None:
            self.weight.data.mul_(self.sees)

    @property
    def outputs(self) -> list[nn.Linear]:
        """The matrices that it ends with."""
        return [self.output]

    def projections(self) -> Tensor:
        """The matrix of queries, keys and values, `(3d, d)`.

        What a head may not see is masked at each use, so that no gradient, and then no optimizer, ever fills it. Since
        it began as zeros too, the saved matrices are those of a plain Transformer that happens to have zeros there.
        """
        return self.weight if self.sees is None else self.weight * self.sees

    def split(self, projected: Tensor) -> Tensor:
        """`(B, T, d)` to `(B, H, T, d_k)`."""
        batch, length, _ = projected.shape
        return projected.view(batch, length, self.heads, -1).transpose(1, 2)

    def project_self(self, states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """States `(B, T, d)` to queries, keys and values `(B, H, T, d_k)`."""
        queries, keys, values = linear(states, self.projections(), self.bias).chunk(3, -1)
        return self.split(queries), self.split(keys), self.split(values)

    def project_queries(self, states: Tensor) -> Tensor:
        """States `(B, T, d)` to queries `(B, H, T, d_k)`."""
        return self.split(linear(states, self.projections()[: self.width], self.bias[: self.width]))

    def project_memory(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """States `(B, S, d)` to keys and values `(B, H, S, d_k)`."""
        keys, values = linear(states, self.projections()[self.width :], self.bias[self.width :]).chunk(2, -1)
        return self.split(keys), self.split(values)

    def join(self, heads: Tensor) -> Tensor:
        """`(B, H, T, d_k)` to the output `(B, T, d)`."""
        return through(self.output, heads.transpose(1, 2).flatten(-2))

    @abstractmethod
    def begin(self, batch: int) -> dict[str, Tensor]:
        """What a decoder carries for its self-attention before the first token, leading dimension `batch`."""

    @abstractmethod
    def advance(self, states: Tensor, past: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """Self-attention of one more token `(R, 1, d)`, and what is carried on."""


class MultiHeadAttention(Heads):
    """`[head_1; …; head_H] Wᴼ` with `head_i = attend(Q W_i, K W_i, V W_i)`: each head sees all of its input."""

    def mix(
        self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None = None, causal: bool = False
    ) -> Tensor:
        """Projected queries `(B, H, T, d_k)`, keys and values `(B, H, S, d_k)` to the output `(B, T, d)`."""
        if self.tap is not None:
            self.tap.record(attention_weights(queries, keys, mask, causal=causal))
        drop = self.dropout if self.training else 0.0
        heads = attend(queries, keys, values, mask, causal=causal, drop=drop)
        return self.join(heads)

    def begin(self, batch: int) -> dict[str, Tensor]:
        """No keys and values `(B, H, 0, d_k)`."""
        empty = self.weight.new_zeros(batch, self.heads, 0, self.width // self.heads)
        return {"keys": empty, "values": empty}

    def advance(self, states: Tensor, past: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """Attention of `(R, 1, d)` to all keys so far, of which there is one more."""
        queries, keys, values = self.project_self(states)
        cache = {"keys": torch.cat([past["keys"], keys], 2), "values": torch.cat([past["values"], values], 2)}
        return self.mix(queries, cache["keys"], cache["values"]), cache

    def remember(self, memory: Tensor, mask: Tensor | None) -> dict[str, Tensor]:
        """What attention to a memory `(B, S, d)` needs of it, once a sentence."""
        keys, values = self.project_memory(memory)
        return {"keys": keys.contiguous(), "values": values.contiguous()}

    def recall(self, states: Tensor, memory: Mapping[str, Tensor], mask: Tensor | None) -> Tensor:
        """Attention of `(B, K, d)` to what `remember` gave."""
        return self.mix(self.project_queries(states), memory["keys"], memory["values"], mask)

    def recall_weights(self, states: Tensor, memory: Mapping[str, Tensor], mask: Tensor | None) -> Tensor | None:
        """The weights `(B, H, K, S)` of `recall`, or None where there are none to be had."""
        return attention_weights(self.project_queries(states), memory["keys"], mask)

    def head_weights(self, head: int, queries: Tensor, memory: Tensor, mask: Tensor | None = None) -> Tensor:
        """Where one head looks, computed beside the fast path: `(B, T, d)` and `(B, S, d)` to `(B, T, S)`."""
        size = self.width // self.heads
        rows = [slice(start + head * size, start + (head + 1) * size) for start in (0, self.width)]
        matrix = self.projections()
        query, key = (
            linear(states, matrix[part], self.bias[part])[:, None]  # (B, 1, T, d_k)
            for states, part in zip((queries, memory), rows, strict=True)
        )
        return attention_weights(query, key, mask)[:, 0]

    def forward(
        self, queries: Tensor, memory: Tensor | None = None, mask: Tensor | None = None, causal: bool = False
    ) -> Tensor:
        """Queries `(B, T, d)` attend to memory `(B, S, d)`, or to themselves without one; `(B, T, d)` comes out."""
        if memory is None:
            return self.mix(*self.project_self(queries), mask=mask, causal=causal)
        return self.mix(self.project_queries(queries), *self.project_memory(memory), mask=mask, causal=causal)
