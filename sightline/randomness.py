"""Dropout and other draws, and whose random numbers: torch's, or a generator's that belongs to the work at hand.

Parts of a batch that are computed side by side must each have their own generator, or the order of their draws, and
so the result, would be a matter of chance.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

_here = threading.local()


@contextmanager
def drawing_from(generator: torch.Generator) -> Iterator[None]:
    """Inside, this thread's dropout draws from `generator`, one of the CPU's."""
    before = current_generator()
    _here.generator = generator
    try:
        yield
    finally:
        _here.generator = before


def current_generator() -> torch.Generator | None:
    """This thread's own generator; None stands for torch's."""
    return getattr(_here, "generator", None)


@dataclass(frozen=True)
class Draws:
    """Where this thread's random numbers stood, so that they can be drawn again."""

    host: Tensor
    device: torch.device
    on_device: Tensor | None

    @classmethod
    def now(cls, device: torch.device) -> Draws:
        """Those of the CPU, and those of `device` if it is a GPU."""
        generator = current_generator() or torch.default_generator
        on_device = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
        return cls(generator.get_state(), device, on_device)

    @contextmanager
    def again(self) -> Iterator[None]:
        """Inside, the same numbers come as after `now`, in whatever thread; afterwards all is as before."""
        generator = torch.Generator()
        generator.set_state(self.host)
        with drawing_from(generator):
            if self.on_device is None:
                yield
                return
            with torch.random.fork_rng([self.device]):
                torch.cuda.set_rng_state(self.on_device, self.device)
                yield


def dropout_factors(values: Tensor, rate: float) -> Tensor:
    """What dropout multiplies `values`, on a CPU, with: 0 for a share of them, `1 / (1 - rate)` for the others.

    Drawing random numbers is a noticeable part of training a small model on a CPU; 16 bits are enough for one
    activation, so one 64-bit draw serves four. The generator gives a seed: numpy makes bits from it, compares them and
    turns them into numbers in a third of the time that torch takes.
    """
    count = values.numel()
    seed = torch.empty((), dtype=torch.int64).random_(generator=current_generator())
    bits = np.random.Generator(np.random.SFC64(int(seed)))
    draws = bits.integers(0, 2**64, (count + 3) // 4, dtype=np.uint64).view(np.uint16)[:count]
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


def uniform(like: Tensor) -> Tensor:
    """Numbers from [0, 1), of the shape, type and device of `like`."""
    generator = current_generator() if like.device.type == "cpu" else None
    return torch.empty_like(like).uniform_(generator=generator)


def normal(like: Tensor) -> Tensor:
    """Numbers of mean 0 and deviation 1, of the shape, type and device of `like`."""
    generator = current_generator() if like.device.type == "cpu" else None
    return torch.empty_like(like).normal_(generator=generator)
