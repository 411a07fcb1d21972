"""Attention is score, mask, normalise, mix. The only place a mask is applied.

Shapes: B sentences, H heads, T queries, S keys, d_k width of a key, d_v of a value; leading dimensions may differ.
"""

from collections.abc import Callable

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
    filled = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    return filled.softmax(-1) * mask


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
