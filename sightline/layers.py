"""Small parts: embedding, feed-forward, normalisation, residual.

Shapes: B sentences, T positions, d width, f inner width, V vocabulary.
"""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sightline.positions import Positions
from sightline.products import through
from sightline.randomness import dropout, dropout_factors

gelu_tanh = partial(F.gelu, approximate="tanh")


class Dropout(nn.Module):
    """Sets a share of the activations to zero while training, and scales up the rest."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, values: Tensor) -> Tensor:
        """Any shape, to the same shape."""
        return dropout(values, self.rate) if self.training else values

    def added(self, states: Tensor, values: Tensor) -> Tensor:
        """`states + dropout(values)`, in one pass over both."""
        plain = values.device.type != "cpu" or values.dtype != states.dtype or torch.compiler.is_compiling()
        if plain or not self.training or not self.rate:
            return states + self(values)
        return torch.addcmul(states, values, dropout_factors(values, self.rate))


class Embedding(nn.Module):
    """Token ids to vectors: `√d · E[x] + position`, then dropout.

    The table starts as N(0, 1/d) with a zero row for padding; √d brings its vectors to the size of the positions, or
    of what a recurrent cell can hear, while the same table serves, unscaled, as the output layer.
    """

    def __init__(self, vocabulary: int, width: int, padding: int, positions: Positions | None, dropout: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(vocabulary, width) * width**-0.5)
        with torch.no_grad():
            self.weight[padding].zero_()
        self.padding = padding
        self.positions = positions
        self.scale = width**0.5
        self.dropout = Dropout(dropout)

    @property
    def width(self) -> int:
        """d."""
        return self.weight.size(1)

    def forward(self, ids: Tensor, offset: int = 0) -> Tensor:
        """Ids `(B, T)`, the first at position `offset`, to `(B, T, d)`."""
        embedded = F.embedding(ids, self.weight, self.padding) * self.scale
        if self.positions is not None:
            embedded = embedded + self.positions(ids.size(1), offset)
        return self.dropout(embedded)


class FeedForward(nn.Module):
    """`W₂ act(W₁ x + b₁) + b₂` at each position; gated: `W₂ (act(W₁ x + b₁) ∘ (W₃ x + b₃)) + b₂`.

    Activations: relu (Vaswani et al. 2017), gelu (exact, as in BERT), gelu_tanh (as in GPT-2), silu (as in
    Marian's models, which call it swish), geglu and swiglu (Shazeer 2020; geglu with the tanh form, as in T5 1.1).
    With `chunk`, so many positions are computed at a time, and their inner widths never stand side by side.
    """

    ACTIVATIONS: dict[str, tuple[Callable[[Tensor], Tensor], bool]] = {  # noqa: RUF012
        "relu": (F.relu, False),
        "gelu": (F.gelu, False),
        "gelu_tanh": (gelu_tanh, False),
        "silu": (F.silu, False),
        "geglu": (gelu_tanh, True),
        "swiglu": (F.silu, True),
    }

    def __init__(
        self, width: int, inner: int, activation: str = "relu", dropout: float = 0.0, chunk: int | None = None
    ) -> None:
        super().__init__()
        self.chunk = chunk
        self.activation, self.gated = self.ACTIVATIONS[activation]
        self.inner = nn.Linear(width, 2 * inner if self.gated else inner)
        self.outer = nn.Linear(inner, width)
        self.dropout = Dropout(dropout)
        for linear in (self.inner, self.outer):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(self, states: Tensor) -> Tensor:
        """`(…, T, d)` to `(…, T, d)`, each position by itself."""
        if self.chunk is None or states.size(-2) <= self.chunk:
            return self.of_all(states)
        return torch.cat([self.of_all(part) for part in torch.split(states, self.chunk, -2)], -2)

    def of_all(self, states: Tensor) -> Tensor:
        """`(…, d)` to `(…, d)`, in one go."""
        if self.gated:
            opened, gate = through(self.inner, states).chunk(2, -1)
            hidden = self.activation(opened) * gate
        elif self.activation is F.relu:
            hidden = through(self.inner, states, relu=True)
        else:
            hidden = self.activation(through(self.inner, states))
        return through(self.outer, self.dropout(hidden))


def make_norm(kind: str, width: int) -> nn.Module:
    """`layer`: zero mean and unit deviation over the features of a token; `rms`: unit root mean square."""
    return nn.LayerNorm(width) if kind == "layer" else nn.RMSNorm(width, eps=1e-6)


def start_small(sublayers: Sequence[nn.Linear]) -> None:
    """Divides the last matrices of the n sublayers of a post-norm stack by √n.

    `norm(x + f(x))` shares one unit of size between x and f(x), again and again. With f as large as x, next to nothing
    of a token is left after a few layers: attention that is still even adds the same vector to every position, and the
    states become alike. With an n-th of x's variance for each f, a third of the token reaches the top, however deep:
    `(1 + 1/n)⁻ⁿ > 1/e`.
    """
    with torch.no_grad():
        for linear in sublayers:
            linear.weight.mul_(len(sublayers) ** -0.5)


class Residual(nn.Module):
    """A sublayer's way past itself: `x + f(norm(x))` (pre) or `norm(x + f(x))` (post), dropout on f."""

    def __init__(self, width: int, norm: str, position: str, dropout: float) -> None:
        super().__init__()
        self.norm = make_norm(norm, width)
        self.before = position == "pre"
        self.dropout = Dropout(dropout)

    def forward(self, states: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """`(B, T, d)` to `(B, T, d)`."""
        if self.before:
            return self.dropout.added(states, sublayer(self.norm(states)))
        return self.norm(self.dropout.added(states, sublayer(states)))

    def change(self, states: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """What a sublayer adds, without what it is added to (pre-norm only): `(B, T, d)` to `(B, T, d)`."""
        return self.dropout(sublayer(self.norm(states)))
