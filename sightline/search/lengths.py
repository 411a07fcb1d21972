"""How long a translation may become.

Shapes: B sentences.
"""

from __future__ import annotations

from torch import Tensor

from sightline.batch import Batch
from sightline.hypothesis import SearchOptions
from sightline.search.protocol import StepModel


def length_limits(model: StepModel, batch: Batch, options: SearchOptions) -> Tensor:
    """`(B,)`: the most tokens each sentence's translation may have, its end symbol not counted."""
    lengths = model.source_lengths(batch).double() * options.max_ratio + options.max_extra
    return lengths.floor().long().clamp(min=options.min_length, max=options.max_length)
