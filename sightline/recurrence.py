"""A recurrent layer over a whole sequence as one step of autograd, its gradient written out.

torch's own loop on a CPU records every small operation of every step, multiplies out the weights' gradient at each of
them, and for sentences of unequal length cuts and joins the states at each step. Here the products of the weights'
gradient wait for the end and become one, and padding is simply walked over: it comes after the real tokens, so no real
state depends on it.
Shapes: T steps, B rows, n width of a state, G gates (see `decoders/cells.py`), in torch's order.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sightline.products import add_product, by_weight, product

_sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input
_tanh_backward = torch.ops.aten.tanh_backward.grad_input


def scan(
    kind: str, inputs: Tensor, weight: Tensor, bias: Tensor | None, hidden: Tensor, cell: Tensor | None = None
) -> tuple[Tensor, Tensor | None]:
    """All states of one layer in one direction: hidden states `(T, B, n)` and, for an LSTM, cells `(T, B, n)`.

    `inputs` `(T, B, G n)` are the projected tokens with their bias (for all but a GRU the hidden part's bias too),
    `weight` `(G n, n)` and `bias` `(G n,)` (a GRU's alone) make the hidden part; `hidden` and `cell` `(B, n)` come
    before the first step.
    """
    inputs, hidden = inputs.to(weight.dtype), hidden.to(weight.dtype)
    with torch.autocast(inputs.device.type, enabled=False):  # what goes through many steps keeps its precision
        if kind == "lstm":
            assert cell is not None
            outputs, cells = _Lstm.apply(inputs, weight, hidden, cell.to(weight.dtype))  # type: ignore[no-untyped-call]
            return outputs, cells
        if kind == "gru":
            return _Gru.apply(inputs, weight, bias, hidden), None  # type: ignore[no-untyped-call]
        return _Plain.apply(inputs, weight, hidden), None  # type: ignore[no-untyped-call]


def _by_weight(gradients: Tensor, outputs: Tensor, hidden: Tensor) -> Tensor:
    """`Σ_t g_tᵀ h_{t-1}` of `(T, B, G n)` and `(T, B, n)`, with `hidden` `(B, n)` before the first step."""
    result = by_weight(gradients[0], hidden)
    return result.add_(by_weight(gradients[1:].flatten(0, 1), outputs[:-1].flatten(0, 1)))


class _Lstm(torch.autograd.Function):
    """`c' = f ∘ c + i ∘ g`, `h' = o ∘ tanh(c')`; gates in the order i, f, g, o."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        steps, batch, width = *inputs.shape[:2], hidden.size(1)
        gates = torch.empty_like(inputs)
        outputs, cells, squashed = inputs.new_empty(3, steps, batch, width)
        before, memory = hidden, cell
        for t in range(steps):
            active = add_product(inputs[t], before, weight, out=gates[t])
            active[:, : 2 * width].sigmoid_()
            active[:, 2 * width : 3 * width].tanh_()
            active[:, 3 * width :].sigmoid_()
            enter, forget, new, out = active.chunk(4, 1)
            memory = torch.mul(forget, memory, out=cells[t]).addcmul_(enter, new)
            before = torch.mul(out, torch.tanh(memory, out=squashed[t]), out=outputs[t])
        ctx.save_for_backward(weight, hidden, cell, gates, outputs, cells, squashed)
        return outputs, cells

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *given: Tensor) -> tuple[Tensor, ...]:
        weight, hidden, cell, gates, outputs, cells, squashed = ctx.saved_tensors
        by_gates = torch.empty_like(gates)
        by_hidden, by_cell = torch.zeros_like(hidden), torch.zeros_like(cell)
        for t in range(gates.size(0) - 1, -1, -1):
            enter, forget, new, out = gates[t].chunk(4, 1)
            by_enter, by_forget, by_new, by_out = by_gates[t].chunk(4, 1)
            by_hidden += given[0][t]
            by_cell += given[1][t]
            by_cell += torch.ops.aten.tanh_backward(by_hidden * out, squashed[t])
            _sigmoid_backward(by_hidden * squashed[t], out, grad_input=by_out)
            _sigmoid_backward(by_cell * new, enter, grad_input=by_enter)
            _sigmoid_backward(by_cell * (cells[t - 1] if t else cell), forget, grad_input=by_forget)
            _tanh_backward(by_cell * enter, new, grad_input=by_new)
            by_cell *= forget
            by_hidden = product(by_gates[t], weight.T, by_hidden)
        return by_gates, _by_weight(by_gates, outputs, hidden), by_hidden, by_cell


class _Gru(torch.autograd.Function):
    """`h' = (1 - z) ∘ new + z ∘ h` with `new = tanh(x + r ∘ (U h + b))`; gates in the order r, z, new."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor, hidden: Tensor) -> Tensor:
        width = hidden.size(1)
        gates, carried = torch.empty_like(inputs), torch.empty_like(inputs)
        outputs = inputs.new_empty(*inputs.shape[:2], width)
        before = hidden
        for t in range(inputs.size(0)):
            part = add_product(bias, before, weight, out=carried[t])
            active = torch.add(inputs[t], part, out=gates[t])
            active[:, : 2 * width].sigmoid_()
            reset, update, new = active.chunk(3, 1)
            torch.addcmul(inputs[t, :, 2 * width :], reset, part[:, 2 * width :], out=new).tanh_()
            before = torch.lerp(new, before, update, out=outputs[t])
        ctx.save_for_backward(weight, hidden, gates, carried, outputs)
        return outputs

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, given: Tensor) -> tuple[Tensor, ...]:
        weight, hidden, gates, carried, outputs = ctx.saved_tensors
        width = hidden.size(1)
        by_inputs, by_carried = torch.empty_like(gates), torch.empty_like(gates)
        by_hidden = torch.zeros_like(hidden)
        for t in range(gates.size(0) - 1, -1, -1):
            reset, update, new = gates[t].chunk(3, 1)
            by_reset, by_update, by_new = by_inputs[t].chunk(3, 1)
            by_hidden += given[t]
            kept = by_hidden * update
            _tanh_backward(by_hidden - kept, new, grad_input=by_new)
            by_hidden *= (outputs[t - 1] if t else hidden) - new
            _sigmoid_backward(by_hidden, update, grad_input=by_update)
            _sigmoid_backward(by_new * carried[t, :, 2 * width :], reset, grad_input=by_reset)
            by_carried[t, :, : 2 * width] = by_inputs[t, :, : 2 * width]
            torch.mul(by_new, reset, out=by_carried[t, :, 2 * width :])
            add_product(kept, by_carried[t], weight.T, out=by_hidden)
        return by_inputs, _by_weight(by_carried, outputs, hidden), by_carried.sum((0, 1)), by_hidden


class _Plain(torch.autograd.Function):
    """`h' = tanh(x + U h)`."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, hidden: Tensor) -> Tensor:
        outputs = torch.empty_like(inputs)
        before = hidden
        for t in range(inputs.size(0)):
            before = add_product(inputs[t], before, weight, out=outputs[t]).tanh_()
        ctx.save_for_backward(weight, hidden, outputs)
        return outputs

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, given: Tensor) -> tuple[Tensor, ...]:
        weight, hidden, outputs = ctx.saved_tensors
        by_inputs = torch.empty_like(outputs)
        by_hidden = torch.zeros_like(hidden)
        for t in range(outputs.size(0) - 1, -1, -1):
            by_hidden += given[t]
            _tanh_backward(by_hidden, outputs[t], grad_input=by_inputs[t])
            by_hidden = product(by_inputs[t], weight.T, by_hidden)
        return by_inputs, _by_weight(by_inputs, outputs, hidden), by_hidden
