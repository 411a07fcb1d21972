"""Matrix products of layers, by whichever of torch's two libraries is the faster one on this processor.

On x86 torch multiplies float32 by MKL, which chooses its kernels by who made the processor: on AMD's it does without
AVX-512, and reaches half of what oneDNN does, which comes with torch too. There the products of layers go to oneDNN;
everywhere else, and for anything but float32 on a CPU, they are torch's own. Which library it is follows from the
processor alone, so that a run that goes on multiplies as it began.
Shapes: N rows, i width of an input, o of an output.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

# oneDNN makes a kernel for each shape it meets, and keeps a thousand of them, each of a megabyte or so. Batches are
# hardly ever of the same shape, and the layers of one model have fewer; its two caches read this at their first use.
for _name in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
    os.environ.setdefault(_name, "32")
# Below so many rows, or multiplications, the call costs more than the better kernel saves.
FEW_ROWS = 5
FEW_MULTIPLICATIONS = 2**20


@cache
def has_unused_kernels(processor: Path = Path("/proc/cpuinfo")) -> bool:
    """Whether MKL leaves part of this processor unused and oneDNN, with the operation that is needed, does not."""
    libraries = torch.backends.mkl, torch.backends.mkldnn
    if not all(library.is_available() for library in libraries):
        return False
    if torch.backends.cpu.get_cpu_capability() != "AVX512" or not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return False
    try:
        return "AuthenticAMD" in processor.read_text()
    except (OSError, UnicodeDecodeError):
        return False


_forced: bool | None = None


@contextmanager
def by_onednn(wanted: bool) -> Iterator[None]:
    """Within the block oneDNN multiplies, or does not, whatever the processor is: for tests and measurements."""
    global _forced
    before, _forced = _forced, wanted
    try:
        yield
    finally:
        _forced = before


def _fast(rows: Tensor, weight: Tensor) -> bool:
    """Whether a product of `(…, i)` by `(o, i)` goes to oneDNN."""
    # First of all: a compiler cannot look into what comes after it.
    if torch.compiler.is_compiling() or not (has_unused_kernels() if _forced is None else _forced):
        return False
    plain = rows.dtype == weight.dtype == torch.float32 and rows.device.type == weight.device.type == "cpu"
    if not plain or torch.is_autocast_enabled("cpu"):
        return False
    count = rows.numel() // max(rows.size(-1), 1)
    return count >= FEW_ROWS and count * weight.numel() >= FEW_MULTIPLICATIONS


def _onednn(rows: Tensor, weight: Tensor, bias: Tensor | None = None, relu: bool = False) -> Tensor:
    whole, kind = _dense(weight), "relu" if relu else "none"
    result: Tensor = torch.ops.mkldnn._linear_pointwise(rows, whole, bias, kind, [], "")
    return result


def _dense(weight: Tensor) -> Tensor:
    """A matrix that lies in one piece, row by row or column by column: for any other there is no fast kernel."""
    return weight if weight.is_contiguous() or weight.T.is_contiguous() else weight.contiguous()


def product(rows: Tensor, weight: Tensor, room: Tensor | None = None) -> Tensor:
    """`rows weightᵀ` outside autograd: `(N, i)` and `(o, i)`, which may be views, to `(N, o)`.

    It may lie in `room`, of that shape, which is then no more anything else's.
    """
    return _onednn(rows, weight) if _fast(rows, weight) else torch.mm(rows, weight.T, out=room)


def add_product(base: Tensor, rows: Tensor, weight: Tensor, out: Tensor | None = None) -> Tensor:
    """`base + rows weightᵀ` outside autograd: `(N, o)` or `(o,)`, `(N, i)` and `(o, i)` to `(N, o)`."""
    if not _fast(rows, weight):
        return torch.addmm(base, rows, weight.T, out=out)
    return torch.add(_onednn(rows, weight), base, out=out)


def by_weight(gradients: Tensor, rows: Tensor) -> Tensor:
    """`gradientsᵀ rows`, the gradient of a weight: `(N, o)` and `(N, i)` to `(o, i)`."""
    # oneDNN is faster when the wider one of the two stands in the weight's place.
    if rows.size(1) < gradients.size(1) and _fast(rows.T, gradients.T):
        return _onednn(rows.T, gradients.T).T.contiguous()
    return product(gradients.T, rows.T)


def linear(states: Tensor, weight: Tensor, bias: Tensor | None = None, relu: bool = False) -> Tensor:
    """`W x + b`, as `torch.nn.functional.linear`: `(…, i)`, `(o, i)` and `(o,)` to `(…, o)`.

    With `relu` nothing below 0 comes out.
    """
    if not _fast(states, weight):
        result = F.linear(states, weight, bias)
        return F.relu_(result) if relu else result
    wanted = states.requires_grad or weight.requires_grad or (bias is not None and bias.requires_grad)
    if not (wanted and torch.is_grad_enabled()):
        return _onednn(states, weight, bias, relu)
    rows: Tensor = _Linear.apply(  # type: ignore[no-untyped-call]
        states.reshape(-1, states.size(-1)), weight, bias, relu
    )
    return rows.view(*states.shape[:-1], rows.size(-1))


def through(layer: nn.Linear, states: Tensor, relu: bool = False) -> Tensor:
    """A layer's `W x + b`: `(…, i)` to `(…, o)`; with `relu` nothing below 0."""
    return linear(states, layer.weight, layer.bias, relu)


class _Linear(torch.autograd.Function):
    """`W x + b` of rows `(N, i)` and its gradients by oneDNN, which torch does not differentiate itself."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor, bias: Tensor | None, relu: bool) -> Tensor:
        result = _onednn(rows, weight, bias, relu)
        ctx.save_for_backward(rows, weight, result if relu else None)
        return result

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        rows, weight, positive = ctx.saved_tensors
        gradient = gradient.contiguous()  # a sum's is one number, seen many times
        if positive is not None:
            gradient = torch.ops.aten.threshold_backward(gradient, positive, 0)
        wants_rows, wants_weight, wants_bias, _ = ctx.needs_input_grad
        return (
            product(gradient, weight.T) if wants_rows else None,
            by_weight(gradient, rows) if wants_weight else None,
            gradient.sum(0) if wants_bias else None,
            None,
        )
