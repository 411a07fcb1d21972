"""Linear attention: a product of features instead of a softmax (Katharopoulos et al. 2020; T2R: Kasai et al. 2021).

`o_t = φ(q_t)ᵀ Σ_s φ(k_s) v_sᵀ / φ(q_t)ᵀ Σ_s φ(k_s)`. The sums do not know the query, so they are made once. In a
decoder they run along with the text, and are all that it carries: linear attention is a recurrent network.
Shapes: B sentences, K hypotheses a sentence, R = B * K rows, H heads, T queries, S keys, d width, d_k and d_v widths of
a head, f features, n chunks of c positions.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sightline.attention.masks import causal_mask
from sightline.attention.multihead import Heads

# Added to the sum of a query's products: features that are all zero must not divide by zero.
EPSILON = 1e-6
# Positions of a causal pass that are computed with each other's weights; a sum goes from one chunk to the next.
CHUNK = 64


class Features(nn.Module, ABC):
    """φ: vectors of a head to features that are not negative; `size` is f."""

    size: int

    @abstractmethod
    def forward(self, vectors: Tensor) -> Tensor:
        """`(…, H, T, d_k)` to `(…, H, T, f)`."""


class EluFeatures(Features):
    """`elu(x) + 1`, which has nothing to learn: f is d_k."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def forward(self, vectors: Tensor) -> Tensor:
        return F.elu(vectors) + 1


class ReluFeatures(Features):
    """`ReLU(W x + b)`, learnt for each head: T2R's."""

    def __init__(self, heads: int, width: int, size: int) -> None:
        super().__init__()
        self.size = size
        self.weight = nn.Parameter(torch.empty(heads, width, size))
        self.bias = nn.Parameter(torch.zeros(heads, 1, size))
        for head in self.weight.data:
            nn.init.xavier_uniform_(head)

    def forward(self, vectors: Tensor) -> Tensor:
        return F.relu(vectors @ self.weight + self.bias)


def linear_weights(queries: Tensor, keys: Tensor, mask: Tensor | None = None, causal: bool = False) -> Tensor:
    """What each query makes of each key: features `(…, T, f)` and `(…, S, f)` to weights `(…, T, S)`.

    They are never computed to attend, only to be looked at, and to say what attending comes to.
    """
    products = queries @ keys.mT
    if mask is not None:
        products = products * mask
    if causal:
        products = products * causal_mask(queries.size(-2), keys.size(-2), queries.device)
    return products / (products.sum(-1, keepdim=True) + EPSILON)


def with_ones(values: Tensor) -> Tensor:
    """`(…, S, d_v)` to `(…, S, d_v + 1)`: what is mixed of the ones is the sum to divide by."""
    return F.pad(values, (0, 1), value=1.0)


def divided(mixed: Tensor) -> Tensor:
    """`(…, T, d_v + 1)`, mixed values and the sum of their weights, to `(…, T, d_v)`."""
    return mixed[..., :-1] / (mixed[..., -1:] + EPSILON)


def summed(keys: Tensor, values: Tensor, mask: Tensor | None = None) -> Tensor:
    """`Σ_s φ(k_s) [v_s; 1]ᵀ`: features `(B, H, S, f)` and values `(B, H, S, d_v)` to `(B, H, f, d_v + 1)`.

    `mask` `(B, 1, 1, S)` is True where a key is real.
    """
    seen = keys if mask is None else keys * mask.mT
    return seen.mT @ with_ones(values)


def attend_causally(queries: Tensor, keys: Tensor, values: Tensor, chunk: int = CHUNK) -> Tensor:
    """Each query with the keys up to its own: features `(B, H, T, f)` and values `(B, H, T, d_v)` to `(B, H, T, d_v)`.

    A sum for each position would take T · f · d_v numbers. So there is one for each chunk, of all before it, and inside
    a chunk the products are computed.
    """
    length = queries.size(-2)
    missing = -length % chunk
    queries, keys, values = (
        torch.unflatten(F.pad(part, (0, 0, 0, missing)), -2, (-1, chunk)) for part in (queries, keys, values)
    )
    values = with_ones(values)
    within = (queries @ keys.mT) * causal_mask(chunk, chunk, queries.device)  # (B, H, n, c, c)
    sums = (keys.mT @ values).cumsum(2)  # (B, H, n, f, d_v + 1)
    before = F.pad(sums[:, :, :-1], (0, 0, 0, 0, 1, 0))
    mixed = within @ values + queries @ before
    return divided(mixed.flatten(2, 3)[:, :, :length])


class LinearAttention(Heads):
    """Multi-head attention without a softmax, to oneself, causal or not, or to a memory.

    Its weights are real ones, not negative and with a sum of 1, but they are only worked out for who looks at them.
    What is carried from step to step, the sums, no longer tells them apart: then there are none to show. Dropout of
    weights has nothing to drop.
    """

    def __init__(self, width: int, heads: int, features: Features, sees: Tensor | None = None) -> None:
        super().__init__(width, heads, sees=sees)
        self.features = features

    def featured(self, vectors: Tensor) -> Tensor:
        """φ in numbers that long sums are exact enough in: `(B, H, T, d_k)` to `(B, H, T, f)`."""
        return self.features(vectors).to(_precise(vectors.dtype))

    def forward(
        self, queries: Tensor, memory: Tensor | None = None, mask: Tensor | None = None, causal: bool = False
    ) -> Tensor:
        """Queries `(B, T, d)` attend to memory `(B, S, d)`, or to themselves without one; `(B, T, d)` comes out.

        `mask` is that of padding, `(B, 1, 1, S)`. A causal pass takes none: padding comes last.
        """
        if memory is None:
            projected, keys, values = self.project_self(queries)
        else:
            projected, (keys, values) = self.project_queries(queries), self.project_memory(memory)
        if causal and (memory is not None or mask is not None):
            raise ValueError("causal linear attention is for oneself, and takes no mask")
        asking, asked = self.featured(projected), self.featured(keys)
        if self.tap is not None:
            self.tap.record(linear_weights(asking, asked, mask, causal))
        with torch.autocast(queries.device.type, enabled=False):
            exact = values.to(asking.dtype)
            heads = attend_causally(asking, asked, exact) if causal else divided(asking @ summed(asked, exact, mask))
        return self.join(heads.to(values.dtype))

    def head_weights(self, head: int, queries: Tensor, memory: Tensor, mask: Tensor | None = None) -> Tensor:
        """Where one head looks: `(B, T, d)` and `(B, S, d)` to `(B, T, S)`."""
        asking, asked = self.featured(self.project_queries(queries)), self.featured(self.project_memory(memory)[0])
        one = slice(head, head + 1)
        return linear_weights(asking[:, one], asked[:, one], mask)[:, 0]

    def begin(self, batch: int) -> dict[str, Tensor]:
        """Sums of nothing, `(B, H, f, d_v + 1)`."""
        kind, size = _precise(self.weight.dtype), self.width // self.heads + 1
        return {"sums": self.weight.new_zeros(batch, self.heads, self.features.size, size, dtype=kind)}

    def advance(self, states: Tensor, past: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """One more token `(R, 1, d)`: it enters the sums before they are read, since it sees itself too."""
        queries, keys, values = self.project_self(states)
        sums = past["sums"] + summed(self.featured(keys), values.to(past["sums"].dtype))
        return self._read(queries, sums), {"sums": sums}

    def remember(self, memory: Tensor, mask: Tensor | None) -> dict[str, Tensor]:
        """The sums `(B, H, f, d_v + 1)` of a memory `(B, S, d)`: however long it is, as large as one key a feature."""
        keys, values = self.project_memory(memory)
        asked = self.featured(keys)
        return {"sums": summed(asked, values.to(asked.dtype), mask)}

    def recall(self, states: Tensor, memory: Mapping[str, Tensor], mask: Tensor | None) -> Tensor:
        """Attention of `(B, K, d)` to what `remember` gave, which is masked already."""
        return self._read(self.project_queries(states), memory["sums"])

    def recall_weights(self, states: Tensor, memory: Mapping[str, Tensor], mask: Tensor | None) -> Tensor | None:
        """None: the sums do not tell one key from another."""
        return None

    def _read(self, queries: Tensor, sums: Tensor) -> Tensor:
        """Projected queries `(R, H, T, d_k)` and sums `(R, H, f, d_v + 1)` to `(R, T, d)`."""
        return self.join(divided(self.featured(queries) @ sums).to(queries.dtype))


def _precise(kind: torch.dtype) -> torch.dtype:
    """float32, or the type itself where it is finer."""
    return torch.promote_types(kind, torch.float32)
