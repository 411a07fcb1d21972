"""The score functions that a configuration can name, one row each: no torch here.

A row says which class of `sightline.attention` it is and what that class is built with; `sightline.assembly` builds it
from the row, and the configuration's choices, their checks and the tests of mixtures go by the same rows.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ScoreRow:
    """One score function.

    `part` is its module in `sightline.attention` and its class. `given` are the arguments of the class, in their order:
    query_width, key_width, width (hidden units), kernel and max_source are there to be asked for. With `one_width`,
    queries and keys must be of one width; `placed` ones go by where a key stands or by what stands around it.
    """

    part: str
    given: tuple[str, ...] = ()
    one_width: bool = False
    placed: bool = False


SCORES: dict[str, ScoreRow] = {
    "dot": ScoreRow("scores.Dot", one_width=True),
    "scaled_dot": ScoreRow("scores.ScaledDot", one_width=True),
    "bilinear": ScoreRow("scores.Bilinear", ("query_width", "key_width")),
    "additive": ScoreRow("scores.Additive", ("query_width", "key_width", "width")),
    "cosine": ScoreRow("scores.Cosine", one_width=True),
    "location": ScoreRow("scores.Location", ("query_width", "max_source"), placed=True),
    "convolution": ScoreRow("scores.Convolution", ("query_width", "key_width", "width", "kernel"), placed=True),
}
