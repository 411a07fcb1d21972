"""The most probable next tokens of every row, with ties going to the lowest id.

Shapes: R rows, V outcomes, C candidates a row.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from sightline.search.protocol import StepModel

# On a CPU a wide row is first searched for blocks of so many neighbours: reading is quicker than sorting.
BLOCK = 64
# A row must have so many blocks for each value that is wanted, or the detour takes longer.
BLOCKS_FOR_EACH = 8


def next_tokens(model: StepModel, log_probs: Tensor, count: int, may_end: bool) -> tuple[Tensor, Tensor]:
    """The best next tokens that search may choose: log-probabilities and ids, both `(R, C)`.

    Among them are the `count` best allowed ones (or all there are). Tokens that search never emits (padding, the start
    symbol, and the end when the translation may not end yet) have minus infinity, and so stand where they stood:
    the columns are ordered only among the allowed.
    """
    forbidden = [model.pad, model.bos] if may_end else [model.pad, model.bos, model.eos]
    # Forbidding on the few chosen ones spares a copy of the whole (R, V) tensor, which belongs to the model.
    values, ids = top(log_probs, count + len(forbidden))
    for token in forbidden:
        values = values.masked_fill(ids == token, -torch.inf)
    return values, ids


def top(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest of each row (all, if there are fewer), largest first, the lowest index first among equals.

    Values and indices, both `(R, C)`. `torch.topk` alone leaves the order of equals, and the choice among equals at the
    boundary, to chance: one more is taken than asked, and rows where neighbours are equal are chosen again with care.
    """
    count = min(count, values.size(1))
    best, indices = _largest(values, min(count + 1, values.size(1)))
    tied = ((best[:, 1:] == best[:, :-1]) & (best[:, 1:] > -torch.inf)).any(1)
    best, indices = best[:, :count], indices[:, :count]
    if tied.any():
        rows = tied.nonzero()[:, 0]
        careful, positions = _top_of_equals(values[rows], best[rows, -1:], count)
        best, indices = best.index_copy(0, rows, careful), indices.index_copy(0, rows, positions)
    return best, indices


def _largest(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """`values.topk(count, dim=1)`, by blocks where that is quicker: the same values, of equals perhaps others' indices.

    The `count` largest of a row lie in the `count` blocks whose own largest are the largest, or in what is left over
    behind the last whole block.
    """
    blocks, over = divmod(values.size(1), BLOCK)
    if values.device.type != "cpu" or blocks < BLOCKS_FOR_EACH * count:
        return values.topk(count, dim=1)
    grouped = values[:, : blocks * BLOCK].reshape(len(values), blocks, BLOCK)
    chosen = grouped.amax(2).topk(count, dim=1, sorted=False).indices
    inside = grouped.gather(1, chosen[:, :, None].expand(-1, -1, BLOCK)).flatten(1)
    if not over:
        best, places = inside.topk(count, dim=1)
        return best, chosen.gather(1, places // BLOCK) * BLOCK + places % BLOCK
    # What is left over is put last; a block behind all others stands for it.
    best, places = torch.cat([inside, values[:, blocks * BLOCK :]], 1).topk(count, dim=1)
    starts = functional.pad(chosen, (0, 1), value=blocks) * BLOCK
    return best, starts.gather(1, places // BLOCK) + places % BLOCK


def _top_of_equals(values: Tensor, least: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """As `top`, for rows with equals, given the smallest value chosen in each: `least` `(R, 1)`."""
    above, equal = values > least, values == least
    wanted = count - above.sum(1, keepdim=True)
    chosen = above | (equal & (equal.cumsum(1) <= wanted))
    indices = chosen.nonzero()[:, 1].view(-1, count)  # ascending within each row
    best, order = values.gather(1, indices).sort(dim=1, descending=True, stable=True)
    return best, indices.gather(1, order)
