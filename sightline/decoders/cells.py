"""Recurrent cells for decoders, written so that what is known for the whole sentence is multiplied at once.

A cell's input is a token part and an extra part: the tokens are known for all positions in training and projected in
one product; the extra part (attention's context, input feeding) only becomes known step by step.
Shapes: R rows, T positions, e width of the token part, x of the extra part, n of the state, G gates.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from sightline.layers import Dropout
from sightline.products import linear
from sightline.recurrence import scan
from sightline.repeated import RepeatedWeight
from sightline.stack import Stack

GATES = {"rnn": 1, "gru": 3, "lstm": 4}


class Shared(NamedTuple):
    """A cell's weights as the steps of a loop share them."""

    extra: RepeatedWeight | None
    hidden: RepeatedWeight


class Cell(nn.Module):
    """One recurrent layer: plain RNN (tanh), GRU or LSTM, with torch's gate order and conventions.

    torch's GRU is `h' = (1 - z) ∘ tanh(W x + r ∘ (U h)) + z ∘ h`; the paper's swaps z and 1 - z and resets before
    the product.
    """

    def __init__(self, kind: str, token: int, extra: int, width: int) -> None:
        super().__init__()
        self.kind, self.width = kind, width
        bound = width**-0.5
        gates = GATES[kind] * width

        def parameter(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.empty(shape).uniform_(-bound, bound))

        self.weight_token = parameter(gates, token)
        # Two matrices instead of slices of one: a slice would cost a whole matrix of zeros in each step's gradient.
        self.weight_extra = parameter(gates, extra) if extra else None
        self.weight_hidden = parameter(gates, width)
        self.bias_input = parameter(gates)
        self.bias_hidden = parameter(gates)

    def project(self, tokens: Tensor) -> Tensor:
        """Token parts `(…, e)` to their share of the gates `(…, G n)`."""
        # A GRU's reset gate works on the hidden part with its bias, so only there the two stay apart.
        bias = self.bias_input if self.kind == "gru" else self.bias_input + self.bias_hidden
        # What goes through many steps keeps its precision, whatever the product's was.
        return linear(tokens, self.weight_token, bias).to(self.weight_token.dtype)

    def shared(self) -> Shared:
        """The weights for a loop over many steps."""
        extra = None if self.weight_extra is None else RepeatedWeight(self.weight_extra)
        return Shared(extra, RepeatedWeight(self.weight_hidden))

    def step(
        self,
        projected: Tensor,
        extra: Tensor | None,
        hidden: Tensor,
        cell: Tensor | None,
        weights: Shared | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Projected tokens `(R, G n)`, extra parts `(R, x)` and states `(R, n)` to the next states."""
        weights = weights or self.shared()
        if extra is not None and weights.extra is not None:
            projected = weights.extra.added(projected, extra)
        if self.kind == "gru":
            carried = weights.hidden.added(self.bias_hidden.expand_as(projected), hidden)
            return self._gru(projected, carried, hidden), None
        gates = weights.hidden.added(projected, hidden)
        if cell is None:
            return torch.tanh(gates), None
        return self._lstm(gates, cell)

    def sequence(
        self, tokens: Tensor, extra: Tensor | None, hidden: Tensor, cell: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """All of `(B, T, e)` at once: outputs `(B, T, n)` and last states `(B, n)`.

        The extra part `(B, x)` is the same at every step.
        """
        projected = self.project(tokens.transpose(0, 1))
        if extra is not None and self.weight_extra is not None:
            projected = projected + extra @ self.weight_extra.T
        outputs, cells = scan(self.kind, projected, self.weight_hidden, self.bias_hidden, hidden, cell)
        return outputs.transpose(0, 1), outputs[-1], None if cells is None else cells[-1]

    def _gru(self, given: Tensor, carried: Tensor, hidden: Tensor) -> Tensor:
        n = self.width
        reset, update = torch.sigmoid(given[:, : 2 * n] + carried[:, : 2 * n]).chunk(2, 1)
        new = torch.tanh(torch.addcmul(given[:, 2 * n :], reset, carried[:, 2 * n :]))
        return torch.lerp(new, hidden, update)

    @staticmethod
    def _lstm(gates: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        enter, forget, new, out = gates.chunk(4, 1)
        cell = torch.addcmul(torch.sigmoid(forget) * cell, torch.sigmoid(enter), torch.tanh(new))
        return torch.sigmoid(out) * torch.tanh(cell), cell


class CellStack(nn.Module):
    """Cells on top of each other, dropout between them; only the first has an extra input.

    States are named `hidden.0`, `hidden.1`, … from the bottom, and for LSTMs `cell.0`, …, `(R, n)` each.
    """

    def __init__(self, kind: str, token: int, extra: int, width: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.kind, self.width, self.layers = kind, width, layers
        self.has_cell = kind == "lstm"
        self.cells = Stack(
            Cell(kind, token if layer == 0 else width, extra if layer == 0 else 0, width) for layer in range(layers)
        )
        self.dropout = Dropout(dropout)

    @property
    def top(self) -> str:
        """The name of the top layer's hidden state."""
        return f"hidden.{self.layers - 1}"

    def project(self, tokens: Tensor) -> Tensor:
        """Token parts `(…, e)` to the first layer's gates."""
        return self.cells[0].project(tokens)

    def step(
        self,
        projected: Tensor,
        extra: Tensor | None,
        states: dict[str, Tensor],
        weights: list[Shared] | None = None,
    ) -> dict[str, Tensor]:
        """One step of all layers: projected tokens `(R, G n)`, extra `(R, x)`, states `(R, n)`."""
        result: dict[str, Tensor] = {}
        for layer, cell in enumerate(self.cells):
            if layer:
                projected, extra = cell.project(self.dropout(result[f"hidden.{layer - 1}"])), None
            before = states[f"hidden.{layer}"], states.get(f"cell.{layer}")
            hidden, memory = cell.step(projected, extra, *before, weights[layer] if weights else None)
            _put(result, layer, hidden, memory)
        return result

    def sequence(
        self, tokens: Tensor, extra: Tensor | None, states: dict[str, Tensor]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """A whole sequence `(B, T, e)`, extra part `(B, x)` constant: top outputs `(B, T, n)`, and last states."""
        result: dict[str, Tensor] = {}
        outputs = tokens
        for layer, cell in enumerate(self.cells):
            if layer:
                outputs, extra = self.dropout(outputs), None
            outputs, hidden, memory = cell.sequence(
                outputs, extra, states[f"hidden.{layer}"], states.get(f"cell.{layer}")
            )
            _put(result, layer, hidden, memory)
        return outputs, result


def _put(states: dict[str, Tensor], layer: int, hidden: Tensor, memory: Tensor | None) -> None:
    states[f"hidden.{layer}"] = hidden
    if memory is not None:
        states[f"cell.{layer}"] = memory
