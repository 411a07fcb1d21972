"""The exponential moving average of the weights: often a better model than the weights themselves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class MovingAverage:
    """`values`: for each parameter's name a float32 tensor of its shape, on its device.

    After the n-th update it becomes `d · values + (1 - d) · weights` with `d = min(decay, (1 + n) / (10 + n))`: the
    first weights, which are random, would otherwise weigh too much for too long.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        # A copy even of float32 weights: `float` alone would give back the weights themselves.
        self.values = {name: value.detach().float().clone() for name, value in model.named_parameters()}

    def update(self, model: nn.Module, number: int) -> None:
        """Takes in the weights after the update `number` (from 1; skipped ones do not count)."""
        share = 1 - min(self.decay, (1 + number) / (10 + number))
        with torch.no_grad():
            for name, value in model.named_parameters():
                self.values[name].lerp_(value.detach().float(), share)


@contextmanager
def replaced(model: nn.Module, values: Mapping[str, Tensor]) -> Iterator[None]:
    """Within the block the parameters and buffers named in `values` have these; afterwards their own again."""
    own = {name: value for name, value in model.state_dict(keep_vars=True).items() if name in values}
    kept = {name: value.detach().clone() for name, value in own.items()}
    try:
        _copy(own, values)
        yield
    finally:
        _copy(own, kept)


def _copy(own: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> None:
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(values[name])
