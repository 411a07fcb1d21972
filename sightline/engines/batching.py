"""Batches for CTranslate2's workers: how large they are, in which order they come, and how many wait. No torch."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from sightline.data import ordered_batches
from sightline.performance import available_processors

# Tokens of a batch, times the beam: small enough to stay in a core's cache, and many batches keep all cores busy.
BATCH_TOKENS = 2_000
# With a shortlist fewer: what one sentence may use, all of its batch may, and then all of it is multiplied.
SHORTLISTED_TOKENS = 1_000
# The last batches are cut into so many smaller ones, of no fewer rows than this.
LAST_BATCHES, LAST_PARTS, LAST_ROWS = 2, 4, 8
BATCHES_A_WORKER = 3

T = TypeVar("T")


def in_batches(lengths: NDArray[np.int64], batch_tokens: int) -> list[list[int]]:
    """Indices of sources in batches, the longest first and the last ones small, so that all workers end together."""
    parts = ordered_batches(lengths, batch_tokens)
    last = [
        piece
        for part in parts[:LAST_BATCHES]
        for piece in np.array_split(part, max(1, min(LAST_PARTS, len(part) // LAST_ROWS)))
    ]
    return [part.tolist() for part in reversed([*last, *parts[LAST_BATCHES:]])]


def ahead(batches: list[list[int]], start: Callable[[list[int]], T]) -> Iterator[tuple[list[int], T]]:
    """Each batch with what was started for it: several at a time, so that no worker waits for the next.

    Not all at once, since whoever interrupts has to wait until what was started has ended.
    """
    waiting: deque[tuple[list[int], T]] = deque()
    for part in batches:
        waiting.append((part, start(part)))
        if len(waiting) > BATCHES_A_WORKER * available_processors():
            yield waiting.popleft()
    yield from waiting
