"""Attention is score, mask, normalise, mix. The only place a mask is applied.

Shapes: B sentences, H heads, T queries, S keys, d_k width of a key, d_v of a value; leading dimensions may differ.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from sightline.attention.masks import causal_mask
from sightline.attention.scores import scaled_dot
from sightline.randomness import dropout


def masked_softmax(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    """Softmax of `(…, T, S)` over the keys that the mask allows; a row that allows none is all zeros.

    Filling with the smallest finite number instead of minus infinity keeps such rows, and their gradients, finite.
    """
    if mask is None:
        return scores.softmax(-1)
    return masked_scores(scores, mask).softmax(-1) * mask


def masked_scores(scores: Tensor, mask: Tensor) -> Tensor:
    """Scores `(…, T, S)`, with the smallest finite number where the mask does not allow a key."""
    return scores.masked_fill(~mask, torch.finfo(scores.dtype).min)


# The logarithm of a chance that is none. Finite, so that sums and gradients stay finite; its exponential is 0.
LOG_ZERO = -1e9


def masked_log(logs: Tensor, mask: Tensor) -> Tensor:
    """Logarithms of chances, `LOG_ZERO` where the mask does not allow any."""
    return logs.masked_fill(~mask, LOG_ZERO)


def masked_log_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """The logarithm of `masked_softmax`, `LOG_ZERO` for 0."""
    return masked_log(masked_log(precise(scores), mask).log_softmax(-1), mask)


def precise(values: Tensor) -> Tensor:
    """In float32 at least: chances that are multiplied over many steps want it, whatever the scores were made in."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


def attention_weights(
    queries: Tensor,
    keys: Tensor,
    mask: Tensor | None = None,
    *,
    bias: Tensor | None = None,
    causal: bool = False,
    score: Callable[[Tensor, Tensor], Tensor] = scaled_dot,
) -> Tensor:
    """Where each query looks: `(…, T, d_k)` and `(…, S, d_k)` to weights `(…, T, S)` whose rows sum to 1, or 0.

    `bias` is added to the scores; `causal` hides the keys after a query's own. `score` takes queries and keys as
    they are given here: a score with parameters gets prepared keys.
    """
    scores = score(queries, keys)
    if bias is not None:
        scores = scores + bias
    if causal:
        lower = causal_mask(scores.size(-2), scores.size(-1), scores.device)
        mask = lower if mask is None else mask & lower
    return masked_softmax(scores, mask)


def attend_reference(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None = None,
    *,
    bias: Tensor | None = None,
    causal: bool = False,
    drop: float = 0.0,
) -> Tensor:
    """Scaled dot-product attention, written out.

    Queries `(B, H, T, d_k)`, keys `(B, H, S, d_k)` and values `(B, H, S, d_v)` to `(B, H, T, d_v)`.
    """
    weights = attention_weights(queries, keys, mask, bias=bias, causal=causal)
    return dropout(weights, drop) @ values


def attend_in_part(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor,
    bias: Tensor,
    drop: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Attention to a part of the keys, and how much that part weighs: `log Σ exp(score)` over it, `(…, T, 1)`.

    Of the parts' results `(…, T, d_v)`, weighted by the softmax of what they weigh, comes attention to all of them. A
    row with nothing to attend to gives zeros, and the part weighs next to nothing.
    """
    scores = scaled_dot(queries, keys) + bias
    scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    mass = scores.logsumexp(-1, keepdim=True)
    weights = (scores - mass).exp() * mask
    return dropout(weights, drop) @ values, mass


def attend(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None = None,
    *,
    bias: Tensor | None = None,
    causal: bool = False,
    drop: float = 0.0,
) -> Tensor:
    """The same as `attend_reference` through torch's fused kernel, which keeps no weights."""
    if drop and queries.device.type == "cpu":  # there the kernel is not fused, and draws from torch's generator alone
        return attend_reference(queries, keys, values, mask, bias=bias, causal=causal, drop=drop)
    if _is_learning(queries, keys, values) and queries.device.type == "cpu" and queries.dtype == torch.bfloat16:
        # There the kernel's backward pass takes ten times as long as in single precision.
        with torch.autocast("cpu", enabled=False):
            full = attend(queries.float(), keys.float(), values.float(), mask, bias=bias, causal=causal)
        return full.to(queries.dtype)
    if _is_short(queries, keys, values, bias) and (short := _attend_short(queries, keys, values, mask, causal)):
        return short[0]
    rows, columns = queries.size(-2), keys.size(-2)
    if causal and (rows != columns or mask is not None or bias is not None):
        # torch's own flag means something else for a rectangle, and goes with no other mask.
        lower = causal_mask(rows, columns, queries.device)
        mask, causal = (lower if mask is None else mask & lower), False
    if bias is None:
        return F.scaled_dot_product_attention(queries, keys, values, mask, dropout_p=drop, is_causal=causal)
    if mask is not None:
        # A row with nothing to attend to must give zeros here too, so the smallest number will not do.
        bias = bias.masked_fill(~mask, float("-inf"))
    return F.scaled_dot_product_attention(queries, keys, values, bias.to(queries.dtype), dropout_p=drop)


# Up to this length of queries and keys, learning on a CPU, small matrix products are faster than torch's kernel.
SHORT = 32


def _is_learning(queries: Tensor, keys: Tensor, values: Tensor) -> bool:
    return torch.is_grad_enabled() and (queries.requires_grad or keys.requires_grad or values.requires_grad)


def _is_short(queries: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None) -> bool:
    fits = queries.dim() == 4 and queries.shape[:2] == keys.shape[:2] and max(queries.size(2), keys.size(2)) <= SHORT
    plain = queries.device.type == "cpu" and queries.dtype in (torch.float32, torch.float64) and bias is None
    return _is_learning(queries, keys, values) and fits and plain and not torch.compiler.is_compiling()


def _attend_short(
    queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, causal: bool
) -> tuple[Tensor] | None:
    """The result, or None: a row with nothing to attend to must give zeros, which this way of masking does not."""
    rows, columns = queries.size(2), keys.size(2)
    if causal:
        lower = causal_mask(rows, columns, queries.device)
        mask = lower if mask is None else mask & lower
    bias = None
    if mask is not None:
        if not mask.any(-1).all():
            return None
        bias = torch.zeros(mask.shape, dtype=queries.dtype).masked_fill_(~mask, torch.finfo(queries.dtype).min / 2)
        bias = bias.expand(*queries.shape[:2], rows, columns).reshape(-1, rows, columns)
    return (_Short.apply(queries, keys, values, bias),)  # type: ignore[no-untyped-call]


class _Short(torch.autograd.Function):
    """Softmax attention of `(B, H, T, d_k)` as a batch of B · H small products, its gradient written out."""

    @staticmethod
    def forward(ctx: Any, queries: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None) -> Tensor:
        batch, heads, rows, width = queries.shape
        q, k, v = (part.reshape(batch * heads, part.size(2), part.size(3)) for part in (queries, keys, values))
        ctx.scale = 1 / math.sqrt(width)
        if bias is None:
            weights = torch.bmm(q, k.transpose(1, 2)).mul_(ctx.scale)
        else:
            weights = torch.baddbmm(bias, q, k.transpose(1, 2), alpha=ctx.scale)
        torch.softmax(weights, -1, out=weights)
        ctx.save_for_backward(q, k, v, weights)
        return torch.bmm(weights, v).view(batch, heads, rows, -1)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, weights = ctx.saved_tensors
        batch, heads, rows, _ = gradient.shape
        given = gradient.reshape(batch * heads, rows, -1)
        by_weights = torch.bmm(given, v.transpose(1, 2))
        by_scores = torch._softmax_backward_data(by_weights, weights, -1, weights.dtype).mul_(ctx.scale)
        parts = (torch.bmm(by_scores, k), by_scores.transpose(1, 2) @ q, weights.transpose(1, 2) @ given)
        return (*(part.view(batch, heads, *part.shape[1:]) for part in parts), None)
