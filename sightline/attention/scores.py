"""How well a query and a key match: score functions from dot product to location.

Each is a module with `prepare(keys)`, for what depends on the keys alone (once a sentence), and
`forward(queries, prepared)`, which gives the scores.
Shapes: … leading dimensions, T queries, S keys, d_q and d_k their widths, n hidden units.
"""

import math
from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from sightline.errors import SightlineError
from sightline.products import through


def dot(queries: Tensor, keys: Tensor) -> Tensor:
    """`q · k` (Luong et al. 2015): `(…, T, d)` and `(…, S, d)` to `(…, T, S)`."""
    return queries @ keys.transpose(-2, -1)


def scaled_dot(queries: Tensor, keys: Tensor) -> Tensor:
    """`q · k / √d_k` (Vaswani et al. 2017), d_k the width of one head's keys."""
    return dot(queries * (1 / math.sqrt(keys.size(-1))), keys)


class Score(nn.Module, ABC):
    """A score function with its parameters. Hints of `hint_width` numbers for each query and key may join in.

    One that `looks_ahead` lets the keys after a key have a say in its score.
    """

    hint_width = 1
    looks_ahead = False

    def prepare(self, keys: Tensor, mask: Tensor | None = None) -> Tensor:
        """Keys `(…, S, d_k)`, real where the mask `(…, S)` says so, to whatever `forward` needs of them."""
        return keys

    @abstractmethod
    def forward(self, queries: Tensor, prepared: Tensor) -> Tensor:
        """Queries `(…, T, d_q)` and prepared keys `(…, S, ·)` to scores `(…, T, S)`."""

    def hinted(self, queries: Tensor, prepared: Tensor, hints: Tensor) -> Tensor:
        """The same with hints `(…, T, S, h)`: by default they are added."""
        return self(queries, prepared) + hints.squeeze(-1)


class Dot(Score):
    """`q · k`: no parameters, queries and keys of one width."""

    def forward(self, queries: Tensor, prepared: Tensor) -> Tensor:
        return dot(queries, prepared)


class ScaledDot(Score):
    """`q · k / √d_k`."""

    def forward(self, queries: Tensor, prepared: Tensor) -> Tensor:
        return scaled_dot(queries, prepared)


class Bilinear(Score):
    """`qᵀ W k`, Luong's "general": `W` is `(d_q, d_k)`."""

    def __init__(self, query_width: int, key_width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(query_width, key_width)))

    def prepare(self, keys: Tensor, mask: Tensor | None = None) -> Tensor:
        return keys @ self.weight.T

    def forward(self, queries: Tensor, prepared: Tensor) -> Tensor:
        return dot(queries, prepared)


class Additive(Score):
    """`vᵀ tanh(W q + U k)` (Bahdanau et al. 2015), Luong's "concat": no bias, as in the paper.

    `forward` holds `(…, T, S, n)` for a moment. Hints join in inside the tanh.
    """

    def __init__(self, query_width: int, key_width: int, width: int) -> None:
        super().__init__()
        self.hint_width = width
        self.query = nn.Linear(query_width, width, bias=False)
        self.key = nn.Linear(key_width, width, bias=False)
        self.vector = nn.Parameter(nn.init.uniform_(torch.empty(width), -(width**-0.5), width**-0.5))

    def prepare(self, keys: Tensor, mask: Tensor | None = None) -> Tensor:
        return through(self.key, keys)

    def forward(self, queries: Tensor, prepared: Tensor) -> Tensor:
        projected, kind = through(self.query, queries), self.vector.dtype
        with torch.autocast(projected.device.type, enabled=False):  # a sum of many small terms keeps its precision
            scores: Tensor = _AdditiveScores.apply(  # type: ignore[no-untyped-call]
                projected.to(kind), prepared.to(kind), self.vector
            )
        return scores

    def hinted(self, queries: Tensor, prepared: Tensor, hints: Tensor) -> Tensor:
        # Each query has keys of its own then.
        return self(queries[..., None, :], prepared[..., None, :, :] + hints).squeeze(-2)


class _AdditiveScores(torch.autograd.Function):
    """`vᵀ tanh(q + k)` of `(…, T, n)`, `(…, S, n)` and `(n,)`, `(…, T, S)`.

    `tanh x = 2 σ(2x) - 1`: torch's logistic function takes a third of the time of its hyperbolic tangent, and its
    gradient is worked out in place.
    """

    @staticmethod
    def forward(ctx: Any, queries: Tensor, keys: Tensor, vector: Tensor) -> Tensor:
        gates = torch.add(2 * queries[..., :, None, :], keys[..., None, :, :], alpha=2).sigmoid_()  # (…, T, S, n)
        ctx.save_for_backward(gates, vector)
        return 2 * (gates @ vector) - vector.sum()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, given: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        gates, vector = ctx.saved_tensors
        inner = (4 * given)[..., None] * vector
        torch.ops.aten.sigmoid_backward.grad_input(inner, gates, grad_input=inner)
        by_vector = 2 * (gates.flatten(0, -2).T @ given.flatten()) - given.sum()
        # One query a sentence, as in a decoder's step, needs no sum over them.
        by_keys = inner.squeeze(-3) if inner.size(-3) == 1 else inner.sum(-3)
        return inner.sum(-2), by_keys, by_vector


class Cosine(Score):
    """`τ · q·k / (|q| |k|)` with a learned temperature τ > 0: without one the weights could not be sharp."""

    def __init__(self, temperature: float = 10.0) -> None:
        super().__init__()
        self.log_temperature = nn.Parameter(torch.tensor(math.log(temperature)))

    def prepare(self, keys: Tensor, mask: Tensor | None = None) -> Tensor:
        return nn.functional.normalize(keys, dim=-1, eps=1e-6)

    def forward(self, queries: Tensor, prepared: Tensor) -> Tensor:
        return self.log_temperature.exp() * dot(nn.functional.normalize(queries, dim=-1, eps=1e-6), prepared)


class Location(Score):
    """`W q`: the query alone says where to look (Luong et al. 2015). `W` is `(S_max, d_q)`."""

    def __init__(self, query_width: int, max_source: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(max_source, query_width)))

    def prepare(self, keys: Tensor, mask: Tensor | None = None) -> Tensor:
        length = keys.size(-2)
        if length > self.weight.size(0):
            raise SightlineError(
                f"a source of {length} tokens is too long for the location score, which addresses "
                f"{self.weight.size(0)}: split the line, or train with a larger model.attention.max_source"
            )
        return keys

    def forward(self, queries: Tensor, prepared: Tensor) -> Tensor:
        return queries @ self.weight[: prepared.size(-2)].T


class Convolution(Score):
    """What stands around a key decides, and the query says what to look for (Allamanis et al. 2016).

    `L = C_2 relu(C_1 k) ∘ W q`, each position's vector scaled to length 1, then `C_3 L`: three convolutions over
    neighbouring keys, n filters in the first two and one in the last. Padding is set to zero before each: to a filter,
    the end of a sentence must look the same in any batch. A vector of zeros stays as it is.
    """

    looks_ahead = True

    def __init__(self, query_width: int, key_width: int, width: int, kernel: int) -> None:
        super().__init__()
        if kernel % 2 == 0:
            raise ValueError(f"a kernel of {kernel} has no middle: choose an odd one")
        self.first = nn.Conv1d(key_width, width, kernel, padding=kernel // 2)
        self.second = nn.Conv1d(width, width, kernel, padding=kernel // 2)
        self.gate = nn.Linear(query_width, width)
        self.last = nn.Conv1d(width, 1, kernel, padding=kernel // 2, bias=False)  # a softmax would not hear it

    def prepare(self, keys: Tensor, mask: Tensor | None = None) -> Tensor:
        real = keys.new_ones(1) if mask is None else mask[..., None, :].to(keys.dtype)
        inner = torch.relu(self.first(keys.transpose(-2, -1) * real))  # (B, n, S)
        return (self.second(inner * real) * real).transpose(-2, -1)

    def forward(self, queries: Tensor, prepared: Tensor) -> Tensor:
        gated = nn.functional.normalize(self.gate(queries)[..., None, :] * prepared[..., None, :, :], dim=-1)
        leading = gated.shape[:-2]  # (…, T)
        flat = gated.flatten(0, -3).transpose(-2, -1)  # (… · T, n, S)
        return self.last(flat).view(*leading, -1)
