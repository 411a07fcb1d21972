"""Dropout, and whose random numbers it draws: torch's, or those of a generator that belongs to the work at hand.

Parts of a batch that are computed side by side must each have their own generator, or the order of their draws, and
so the result, would be a matter of chance.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

_here = threading.local()


@contextmanager
def drawing_from(generator: torch.Generator) -> Iterator[None]:
    """Inside, this thread's dropout draws from `generator`, one of the CPU's."""
    before = current_generator(), _bits_of_own()
    _here.generator, _here.bits = generator, None
    try:
        yield
    finally:
        _here.generator, _here.bits = before


def current_generator() -> torch.Generator | None:
    """This thread's own generator; None stands for torch's."""
    return getattr(_here, "generator", None)


def _bits_of_own() -> np.random.Generator | None:
    return getattr(_here, "bits", None)


def _bits() -> np.random.Generator:
    """Random bits that follow from the current generator. numpy makes them, compares them and turns them into numbers
    in a third of the time that torch takes."""
    bits = _bits_of_own()
    if bits is None:
        seed = torch.empty((), dtype=torch.int64).random_(generator=current_generator())
        bits = np.random.Generator(np.random.SFC64(int(seed)))
        # torch's own generator may be set, or read, at any time: only one of the thread's own is good for many draws.
        if current_generator() is not None:
            _here.bits = bits
    return bits


def dropout_factors(values: Tensor, rate: float) -> Tensor:
    """What dropout multiplies `values`, on a CPU, with: 0 for a share of them, `1 / (1 - rate)` for the others.

    Drawing random numbers is a noticeable part of training a small model on a CPU; 16 bits are enough for one
    activation, so one 64-bit draw serves four.
    """
    count = values.numel()
    draws = _bits().integers(0, 2**64, (count + 3) // 4, dtype=np.uint64).view(np.uint16)[:count]
    kept = torch.from_numpy((draws >= round(rate * 2**16)).astype(np.float32)).view(values.shape)
    return kept.to(values.dtype).mul_(1 / (1 - rate))


def dropout(values: Tensor, rate: float) -> Tensor:
    """A share of `values`, of any shape, set to zero and the rest scaled up."""
    if rate == 0:
        return values
    # A compiler draws in the same pass that multiplies.
    if values.device.type != "cpu" or torch.compiler.is_compiling():
        return F.dropout(values, rate)
    return values * dropout_factors(values, rate)
