"""The most probable next tokens of every row, with ties going to the lowest id.

Shapes: R rows, V outcomes, C candidates a row, G groups of outcomes, s outcomes in a group.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from sightline.search.protocol import StepModel

# With fewer outcomes than this for each one wanted, there is nothing to gain from groups.
FEWEST_A_CANDIDATE = 64


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

    Values and indices, both `(R, C)`. A choice of the largest leaves the order of equals, and the choice among equals
    at the boundary, to chance: one more is taken than asked, and rows where neighbours are equal are chosen again with
    care.
    """
    count = min(count, values.size(1))
    best, indices = largest(values, min(count + 1, values.size(1)))
    tied = ((best[:, 1:] == best[:, :-1]) & (best[:, 1:] > -torch.inf)).any(1)
    best, indices = best[:, :count], indices[:, :count]
    if tied.any():
        rows = tied.nonzero()[:, 0]
        careful, positions = _top_of_equals(values[rows], best[rows, -1:], count)
        best, indices = best.index_copy(0, rows, careful), indices.index_copy(0, rows, positions)
    return best, indices


def largest(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """`values.topk(count, dim=1)` of `(R, V)`: values and indices, both `(R, C)`, largest first.

    On a CPU `topk` copies and orders each row whole. Where rows are long, it is quicker to find each group's largest
    first: the C largest of a row lie in the C groups that have the largest.
    """
    width = values.size(1)
    if values.device.type != "cpu" or width < FEWEST_A_CANDIDATE * count:
        return values.topk(count, dim=1)
    # As many groups as there will be outcomes to choose among after them; torch reduces 32 columns at once.
    groups = 32 * max(1, round(math.sqrt(width * count) / 32))
    size = width // groups
    grouped = values[:, : size * groups].unflatten(1, (size, groups))  # (R, s, G): a group is a column
    chosen = grouped.amax(1).topk(count, dim=1, sorted=False).indices  # (R, C)
    inside = torch.arange(size)[:, None] * groups
    rest = torch.arange(size * groups, width).expand(len(values), -1)  # what is left over is looked at in any case
    places = torch.cat([(chosen[:, None] + inside).flatten(1), rest], 1)
    best, order = values.gather(1, places).topk(count, dim=1)
    return best, places.gather(1, order)


def _top_of_equals(values: Tensor, least: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """As `top`, for rows with equals, given the smallest value chosen in each: `least` `(R, 1)`."""
    above, equal = values > least, values == least
    wanted = count - above.sum(1, keepdim=True)
    chosen = above | (equal & (equal.cumsum(1) <= wanted))
    indices = chosen.nonzero()[:, 1].view(-1, count)  # ascending within each row
    best, order = values.gather(1, indices).sort(dim=1, descending=True, stable=True)
    return best, indices.gather(1, order)
