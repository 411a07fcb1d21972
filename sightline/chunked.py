"""The log-probability of one token in each row, worked out in chunks: no tensor of rows times vocabulary is kept.

Shapes: N rows, d width of a feature, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

# Numbers of a chunk's logits: a megabyte stays in the cache.
CHUNK = 2**18


def chunks(rows: int, columns: int, most: int = CHUNK) -> Iterator[slice]:
    """Slices of so many rows that each has about `most` numbers."""
    size = max(1, most // columns)
    return (slice(start, start + size) for start in range(0, rows, size))


def token_log_probs(
    features: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, fixed_row: int | None = None
) -> Tensor:
    """Features `(N, d)` and ids `(N,)` to `log softmax(W f + b)` at these ids, `(N,)`; no gradient for `fixed_row`."""
    with torch.autocast(features.device.type, enabled=False):
        found: Tensor = _TokenLogProbs.apply(  # type: ignore[no-untyped-call]
            features.to(weight.dtype), weight, bias, targets, fixed_row
        )
    return found


class _TokenLogProbs(torch.autograd.Function):
    """The forward pass keeps the normalisers, `(N,)`; the backward pass works the logits out again."""

    @staticmethod
    def forward(
        ctx: Any, features: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, fixed_row: int | None
    ) -> Tensor:
        found, totals = features.new_empty(len(features)), features.new_empty(len(features))
        for here in chunks(features.size(0), weight.size(0)):
            logits = torch.addmm(bias, features[here], weight.T)
            torch.logsumexp(logits, -1, out=totals[here])
            found[here] = logits.gather(1, targets[here, None]).squeeze(1) - totals[here]
        ctx.save_for_backward(features, weight, bias, targets, totals)
        ctx.fixed_row = fixed_row
        return found

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, given: Tensor) -> tuple[Tensor | None, ...]:
        features, weight, bias, targets, totals = ctx.saved_tensors
        by_features, by_weight, by_bias = (torch.zeros_like(part) for part in (features, weight, bias))
        for here in chunks(features.size(0), weight.size(0)):
            logits = torch.addmm(bias, features[here], weight.T)
            gradient = logits.sub_(totals[here, None]).exp_().mul_(-given[here, None])
            gradient.scatter_add_(1, targets[here, None], given[here, None])
            torch.mm(gradient, weight, out=by_features[here])
            by_weight.addmm_(gradient.T, features[here])
            by_bias += gradient.sum(0)
        if ctx.fixed_row is not None:
            by_weight[ctx.fixed_row].zero_()
        return by_features, by_weight, by_bias, None, None
