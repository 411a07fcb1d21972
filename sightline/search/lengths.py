"""How long a translation may become.

Shapes: B sentences.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from sightline.batch import Batch
from sightline.errors import SightlineError
from sightline.hypothesis import Request, SearchOptions
from sightline.search.protocol import StepModel


def length_limits(
    model: StepModel, batch: Batch, options: SearchOptions, requests: Sequence[Request] | None = None
) -> Tensor:
    """`(B,)`: the most tokens each sentence's translation may have, its end symbol not counted.

    A prefix counts, and is never cut: a limit by the source's length makes way for it, and one that is longer than
    `max_length` is refused.
    """
    lengths = model.source_lengths(batch).double() * options.max_ratio + options.max_extra
    limits = lengths.floor().long().clamp(min=options.min_length, max=options.max_length)
    prefixes = [len(request.prefix) for request in requests or ()]
    if not any(prefixes):
        return limits
    if options.max_length is not None and max(prefixes) > options.max_length:
        number = prefixes.index(max(prefixes)) + 1
        raise SightlineError(
            f"the prefix of sentence {number} has {max(prefixes)} tokens, more than max_length = {options.max_length}: "
            "shorten it or raise max_length"
        )
    return torch.maximum(limits, torch.tensor(prefixes, device=limits.device))
