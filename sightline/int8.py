"""Products with 8-bit integers, for a model that learns no more, on a CPU.

Shapes: R rows, i width of an input, o of an output.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sightline.errors import SightlineError

# Inputs have seven bits: processors without instructions for sums of products of bytes add two of them in 16 bits.
LEVELS, MIDDLE = 63, 64


class Int8Product:
    """`x Wᵀ + b`: W `(o, i)` in integers with a scale for each output, x in integers with a scale for each row.

    A row's own scale costs one more pass over the outputs, and keeps what comes out for a row independent of its
    neighbours. torch's older functions for quantised tensors, which have one scale for all rows, are on their way out.
    """

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        weight, self.bias = weight.detach().float(), bias.detach().float()
        self.scales = weight.abs().amax(1).clamp(min=torch.finfo(torch.float32).tiny) / 127  # (o,)
        self.zeros = torch.zeros(len(weight), dtype=torch.long)
        whole = (weight / self.scales[:, None]).round().to(torch.int8)
        try:
            self.packed = torch.ops.onednn.qlinear_prepack(whole, None)
            self(weight[:1])  # what this torch cannot do is told now, not in the midst of a translation
        except (AttributeError, NotImplementedError, RuntimeError):
            raise SightlineError("int8 needs a CPU and a torch with oneDNN: leave out compute=int8") from None

    def __call__(self, rows: Tensor) -> Tensor:
        """`(R, i)` to `(R, o)`."""
        largest = rows.abs().amax(-1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny)  # (R, 1)
        whole = (rows / largest).mul_(LEVELS).round_().add_(MIDDLE).to(torch.uint8)
        product: Tensor = torch.ops.onednn.qlinear_pointwise(
            whole, 1 / LEVELS, MIDDLE, self.packed, self.scales, self.zeros, None, 1.0, 0, torch.float32, "none", [], ""
        )
        return torch.addcmul(self.bias, product, largest, out=product)
