"""What every step of a loop uses: weights and memories whose gradients are gathered and worked out once, at the end.

autograd alone would multiply out a gradient of the whole weight at each step and add it to the sum so far; gathered,
it is one large product.
Shapes: B sentences, R rows, i width of an input, o of an output, T queries, S keys, d width of a value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from sightline.products import add_product, by_weight, product

Pairs = list[tuple[Tensor, Tensor]]


class Repeated:
    """A tensor as every step sees it: `tensor` stands in for the original, `pairs` gathers what its gradient needs."""

    def __init__(self, original: Tensor, finish: Callable[[Pairs], Tensor]) -> None:
        self.pairs: Pairs = []
        self.tensor = original
        if torch.is_grad_enabled() and original.requires_grad:
            self.tensor = _Gather.apply(original, self.pairs, finish)  # type: ignore[no-untyped-call]


class RepeatedWeight(Repeated):
    """A matrix `(o, i)` that multiplies rows at every step."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__(weight, self.by_weight)

    def added(self, base: Tensor, rows: Tensor) -> Tensor:
        """`base + rows Wᵀ`: `(R, o)` and `(R, i)` to `(R, o)`."""
        kind = self.tensor.dtype
        with torch.autocast(base.device.type, enabled=False):  # what goes through many steps keeps its precision
            result: Tensor = _AddProduct.apply(  # type: ignore[no-untyped-call]
                base.to(kind), rows.to(kind), self.tensor, self.pairs
            )
        return result

    @staticmethod
    def by_weight(pairs: Pairs) -> Tensor:
        """`Σ gᵀ x` over all steps."""
        rows, gradients = (torch.cat(side) for side in zip(*pairs, strict=True))
        return by_weight(gradients, rows)


class RepeatedValues(Repeated):
    """Values `(B, S, d)` that every step mixes anew."""

    def __init__(self, values: Tensor) -> None:
        super().__init__(values, self.by_values)

    def mixed(self, weights: Tensor) -> Tensor:
        """`weights @ values`: `(B, T, S)` to `(B, T, d)`."""
        with torch.autocast(weights.device.type, enabled=False):
            kind = self.tensor.dtype
            result: Tensor = _Mix.apply(weights.to(kind), self.tensor, self.pairs)  # type: ignore[no-untyped-call]
        return result

    @staticmethod
    def by_values(pairs: Pairs) -> Tensor:
        """`Σ wᵀ g` over all steps, for each sentence."""
        weights, gradients = (torch.cat(side, 1) for side in zip(*pairs, strict=True))
        return weights.transpose(1, 2) @ gradients


class _Gather(torch.autograd.Function):
    """The identity; its backward runs after those of all steps, and turns what they left into the gradient."""

    @staticmethod
    def forward(ctx: Any, original: Tensor, pairs: Pairs, finish: Callable[[Pairs], Tensor]) -> Tensor:
        ctx.pairs, ctx.finish = pairs, finish
        ctx.set_materialize_grads(False)
        return original.view_as(original)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, other: Tensor | None) -> tuple[Tensor | None, None, None]:
        # `other` comes from uses that are none of the steps' own.
        gathered = ctx.finish(ctx.pairs) if ctx.pairs else None
        ctx.pairs.clear()
        if gathered is not None and other is not None:
            gathered = gathered + other
        return (other if gathered is None else gathered), None, None


class _AddProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, base: Tensor, rows: Tensor, weight: Tensor, pairs: Pairs) -> Tensor:
        ctx.pairs = pairs
        ctx.save_for_backward(rows, weight)
        return add_product(base, rows, weight)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:
        rows, weight = ctx.saved_tensors
        ctx.pairs.append((rows, gradient))
        return gradient, product(gradient, weight.T), None, None


class _Mix(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weights: Tensor, values: Tensor, pairs: Pairs) -> Tensor:
        ctx.pairs = pairs
        ctx.save_for_backward(weights, values)
        return torch.bmm(weights, values)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        weights, values = ctx.saved_tensors
        ctx.pairs.append((weights, gradient))
        return torch.bmm(gradient, values.transpose(1, 2)), None, None
