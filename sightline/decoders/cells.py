"""Recurrent cells for decoders, written so that what is known for the whole sentence is multiplied at once.

A cell's input is `[token; extra]`: the token part is known for all positions in training and projected in one
product; the extra part (attention's context, input feeding) only becomes known step by step.
Shapes: R rows, T positions, e width of the token part, x of the extra part, n of the state, G gates.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sightline.layers import Stack

GATES = {"rnn": 1, "gru": 3, "lstm": 4}


class Cell(nn.Module):
    """One recurrent layer: plain RNN (tanh), GRU or LSTM, with torch's gate order and conventions.

    torch's GRU is `h' = (1 - z) ∘ tanh(W x + r ∘ (U h)) + z ∘ h`; the paper's swaps z and 1 - z and resets before
    the product.
    """

    def __init__(self, kind: str, token: int, extra: int, width: int) -> None:
        super().__init__()
        self.kind, self.token, self.width = kind, token, width
        bound = width**-0.5
        gates = GATES[kind] * width
        self.weight_input = nn.Parameter(torch.empty(gates, token + extra).uniform_(-bound, bound))
        self.weight_hidden = nn.Parameter(torch.empty(gates, width).uniform_(-bound, bound))
        self.bias_input = nn.Parameter(torch.empty(gates).uniform_(-bound, bound))
        self.bias_hidden = nn.Parameter(torch.empty(gates).uniform_(-bound, bound))

    def project(self, tokens: Tensor) -> Tensor:
        """Token parts `(…, e)` to their share of the gates `(…, G n)`."""
        return F.linear(tokens, self.weight_input[:, : self.token], self.bias_input)

    def step(
        self, projected: Tensor, extra: Tensor | None, hidden: Tensor, cell: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Projected tokens `(R, G n)`, extra parts `(R, x)` and states `(R, n)` to the next states."""
        if extra is not None:
            projected = torch.addmm(projected, extra, self.weight_input[:, self.token :].T)
        if self.kind == "gru":
            return self._gru(projected, F.linear(hidden, self.weight_hidden, self.bias_hidden), hidden), None
        gates = torch.addmm(projected + self.bias_hidden, hidden, self.weight_hidden.T)
        if cell is None:
            return torch.tanh(gates), None
        return self._lstm(gates, cell)

    def sequence(self, tokens: Tensor, hidden: Tensor, cell: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
        """All of `(B, T, e)` at once through torch's own loop, no extra part: outputs `(B, T, n)` and last states."""
        weights: list[Tensor] = [self.weight_input, self.weight_hidden, self.bias_input, self.bias_hidden]
        # biases, one layer, no dropout, training or not, one direction, batch first
        settings = (True, 1, 0.0, self.training, False, True)
        if cell is not None:
            outputs, hidden, cell = torch.lstm(
                tokens, (hidden[None].contiguous(), cell[None].contiguous()), weights, *settings
            )
            return outputs, hidden[0], cell[0]
        network = torch.gru if self.kind == "gru" else torch.rnn_tanh
        outputs, hidden = network(tokens, hidden[None].contiguous(), weights, *settings)
        return outputs, hidden[0], None

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
    """Cells on top of each other, dropout between them. States are `(R, L, n)`; only the first has an extra input."""

    def __init__(self, kind: str, token: int, extra: int, width: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.kind, self.width, self.layers = kind, width, layers
        self.has_cell = kind == "lstm"
        self.cells = Stack(
            Cell(kind, token if layer == 0 else width, extra if layer == 0 else 0, width) for layer in range(layers)
        )
        self.dropout = nn.Dropout(dropout)

    def project(self, tokens: Tensor) -> Tensor:
        """Token parts `(…, e)` to the first layer's gates."""
        return self.cells[0].project(tokens)

    def step(self, projected: Tensor, extra: Tensor | None, states: dict[str, Tensor]) -> dict[str, Tensor]:
        """One step of all layers: projected tokens `(R, G n)`, extra `(R, x)`, `hidden` and `cell` `(R, L, n)`."""
        hiddens: list[Tensor] = []
        memories: list[Tensor] = []
        for layer, cell in enumerate(self.cells):
            if layer:
                projected, extra = cell.project(self.dropout(hiddens[-1])), None
            memory = states["cell"][:, layer] if self.has_cell else None
            hidden, memory = cell.step(projected, extra, states["hidden"][:, layer], memory)
            hiddens.append(hidden)
            if memory is not None:
                memories.append(memory)
        result = {"hidden": torch.stack(hiddens, 1)}
        if memories:
            result["cell"] = torch.stack(memories, 1)
        return result

    def sequence(self, tokens: Tensor, states: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """A whole sequence `(B, T, e)` without extra inputs: the top layer's outputs `(B, T, n)`, and last states."""
        hiddens: list[Tensor] = []
        memories: list[Tensor] = []
        outputs = tokens
        for layer, cell in enumerate(self.cells):
            if layer:
                outputs = self.dropout(outputs)
            memory = states["cell"][:, layer] if self.has_cell else None
            outputs, hidden, memory = cell.sequence(outputs, states["hidden"][:, layer], memory)
            hiddens.append(hidden)
            if memory is not None:
                memories.append(memory)
        result = {"hidden": torch.stack(hiddens, 1)}
        if memories:
            result["cell"] = torch.stack(memories, 1)
        return outputs, result
