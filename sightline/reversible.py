"""Stacks whose activations are computed again when they are needed, instead of being kept (Gomez et al. 2017).

Two streams a and b go through the sublayers f: `(a, b)` becomes `(b, a + f(b))`. What came in follows from what came
out, `a = b' - f(a')`, so that the backward pass needs the last streams alone, and memory does not grow with the layers.
Reformer (Kitaev et al. 2020): y₁ = x₁ + attention(x₂), y₂ = x₂ + feedforward(y₁).
Shapes: B sentences, T positions, S positions of a memory, d width.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from sightline.attention.capture import Tapped
from sightline.layers import Residual
from sightline.randomness import Draws


class OneStream:
    """States `(B, T, d)` on their way through sublayers with plain residuals."""

    def __init__(self, states: Tensor) -> None:
        self.states = states

    def through(self, around: Residual, sublayer: Callable[[Tensor], Tensor]) -> None:
        """One sublayer further."""
        self.states = around(self.states, sublayer)

    def end(self) -> Tensor:
        """What comes out, `(B, T, d)`."""
        return self.states


class TwoStreams:
    """The same with reversible residuals: both streams begin as the states, and their mean comes out."""

    def __init__(self, states: Tensor) -> None:
        self.first = self.second = states

    def through(self, around: Residual, sublayer: Callable[[Tensor], Tensor]) -> None:
        """One sublayer further."""
        self.first, self.second = self.second, self.first + around.change(self.second, sublayer)

    def end(self) -> Tensor:
        """What comes out, `(B, T, d)`."""
        return (self.first + self.second) / 2


@dataclass(frozen=True)
class Sublayer:
    """A function of a layer: `call(states, memory)` with its `module`, and the residual around it."""

    around: Residual
    module: nn.Module
    call: Callable[[Tensor, Tensor | None], Tensor]

    def of_memory(self, memory: Tensor | None, states: Tensor) -> Tensor:
        """`call` with the memory first."""
        return self.call(states, memory)

    def change(self, states: Tensor, memory: Tensor | None) -> Tensor:
        """What it adds to the other stream, `(B, T, d)`; `memory` `(B, S, d)` is what a decoder reads."""
        return self.around.change(states, partial(self.of_memory, memory))

    def parameters(self) -> list[nn.Parameter]:
        """Those that learn."""
        both = [*self.around.parameters(), *self.module.parameters()]
        return [parameter for parameter in both if parameter.requires_grad]


def pass_through(sublayers: Sequence[Sublayer], states: Tensor, memory: Tensor | None = None) -> Tensor:
    """All sublayers after each other: states `(B, T, d)` to `(B, T, d)`, in the memory of one of them.

    An attention that is looked at would show itself twice, so then activations are kept.
    """
    looked_at = any(isinstance(one.module, Tapped) and one.module.tap is not None for one in sublayers)
    if looked_at or not torch.is_grad_enabled():
        return kept(sublayers, states, memory)
    parameters = [parameter for sublayer in sublayers for parameter in sublayer.parameters()]
    result: Tensor = _Recomputed.apply(sublayers, states, memory, *parameters)  # type: ignore[no-untyped-call]
    return result


def kept(sublayers: Sequence[Sublayer], states: Tensor, memory: Tensor | None = None) -> Tensor:
    """The same by plain means: autograd keeps every activation."""
    streams = TwoStreams(states)
    for sublayer in sublayers:
        streams.through(sublayer.around, partial(sublayer.of_memory, memory))
    return streams.end()


class _Recomputed(torch.autograd.Function):
    """Keeps the last streams, and for each sublayer where the random numbers stood."""

    @staticmethod
    def forward(
        ctx: Any, sublayers: Sequence[Sublayer], states: Tensor, memory: Tensor | None, *parameters: Tensor
    ) -> Tensor:
        device = states.device
        ctx.sublayers, ctx.draws = sublayers, []
        ctx.autocast = (device.type, torch.get_autocast_dtype(device.type), torch.is_autocast_enabled(device.type))
        first = second = states
        for sublayer in sublayers:
            ctx.draws.append(Draws.now(device))
            first, second = second, first + sublayer.change(second, memory)
        ctx.save_for_backward(first, second, memory)
        return (first + second) / 2

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        first, second, memory = ctx.saved_tensors
        by_first = by_second = gradient / 2
        by_memory: Tensor | None = None
        by_parameters: list[Tensor | None] = []
        for sublayer, draws in zip(reversed(ctx.sublayers), reversed(ctx.draws), strict=True):
            parameters = sublayer.parameters()
            with torch.enable_grad(), draws.again(), torch.autocast(*ctx.autocast):
                given = first.detach().requires_grad_()
                read = None if memory is None else memory.detach().requires_grad_()
                change = sublayer.change(given, read)
            inputs = [given, *parameters] if read is None else [given, read, *parameters]
            found = torch.autograd.grad(change, inputs, by_second.to(change.dtype), allow_unused=True)
            first, second = second - change.detach(), first
            by_first, by_second = by_second, by_first + _or_zero(found[0], by_first)
            if read is not None and found[1] is not None:
                by_memory = found[1] if by_memory is None else by_memory + found[1]
            by_parameters = [*found[len(inputs) - len(parameters) :], *by_parameters]
        return (None, by_first + by_second, by_memory, *by_parameters)


def _or_zero(gradient: Tensor | None, like: Tensor) -> Tensor:
    return torch.zeros_like(like) if gradient is None else gradient
