"""The only place a mask is made.

A mask is boolean, True = may attend, broadcastable to (B, H, T, S), and combined with `&`; only `block_mask` is for
something else.
Shapes: B sentences, H heads, T queries (targets), S keys (sources), d width.
"""

from collections.abc import Collection, Sequence

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


def onward_mask(real: Tensor) -> Tensor:
    """`(B, S)`, True where a position is real, as moves `(B, 1, S, S)` from row to column that never go back."""
    size = real.size(-1)
    return causal_mask(size, size, real.device).T & padding_mask(real)


def feature_blocks(width: int, count: int) -> list[slice]:
    """`count` half-open blocks of one size that together hold each of d features once."""
    if width % count:
        raise ValueError(f"width {width} is not a multiple of {count} blocks")
    size = width // count
    return [slice(start, start + size) for start in range(0, width, size)]


def block_mask(width: int, seen: Sequence[Collection[int]], count: int) -> Tensor:
    """`(d, d)`, True where a head may read a feature; head i sees the blocks `seen[i]` of `count`.

    Rows are those of a projection, the heads' one after the other, and columns the features of its input. This mask is
    laid on the projection, not on scores: a head that sees few features still sees all positions.
    """
    blocks = feature_blocks(width, count)
    mask = torch.zeros(len(seen), width, dtype=torch.bool)
    for row, numbers in zip(mask, seen, strict=True):
        for number in numbers:
            row[blocks[number]] = True
    return mask.repeat_interleave(width // len(seen), 0)
