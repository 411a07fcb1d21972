"""The only place a mask is made.

A mask is boolean, True = may attend, broadcastable to (B, H, T, S), and combined with `&`.
Shapes: B sentences, H heads, T queries (targets), S keys (sources).
"""

import torch
from torch import Tensor


def padding_mask(real: Tensor) -> Tensor:
    """`(B, S)`, True where a key is real, as `(B, 1, 1, S)`."""
    return real[:, None, None, :]


def causal_mask(queries: int, keys: int, device: torch.device | None = None) -> Tensor:
    """`(T, S)`, for any leading dimensions: query t sees the keys up to its own.

    The last query belongs to the last key, as it does when the earlier keys come from a cache. (torch's
    `is_causal` aligns the first query with the first key instead.)
    """
    query = torch.arange(queries, device=device)[:, None] + (keys - queries)
    key = torch.arange(keys, device=device)[None, :]
    return key <= query


def recent_mask(length: int, window: int, device: torch.device | None = None) -> Tensor:
    """`(T, T)`: query t sees its own key and those before it, `window` in all."""
    position = torch.arange(length, device=device)
    behind = position[:, None] - position
    return (behind >= 0) & (behind < window)


def window_mask(centres: Tensor, keys: int, radius: int) -> Tensor:
    """`(…, T)` centres, real-valued, as `(…, T, S)`: True where a key lies at most `radius` from the centre."""
    key = torch.arange(keys, device=centres.device)
    return (key - centres[..., None]).abs() <= radius
