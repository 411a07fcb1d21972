"""Slow and plain: loops and finite differences that the tests compare the library with.

Shapes: B sentences, H heads, T queries, S keys, d_k and d_v widths of a key and a value.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

Score = Callable[[Tensor, Tensor], float]


def softmax_by_hand(scores: list[float], allowed: list[bool]) -> list[float]:
    """Softmax over the allowed entries, zero elsewhere, all zero when nothing is allowed."""
    if not any(allowed):
        return [0.0] * len(scores)
    largest = max(score for score, may in zip(scores, allowed, strict=True) if may)
    powers = [math.exp(score - largest) if may else 0.0 for score, may in zip(scores, allowed, strict=True)]
    return [power / sum(powers) for power in powers]


def attend_by_hand(
    queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None = None, bias: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Scaled dot-product attention number by number: weights `(B, H, T, S)` and contexts `(B, H, T, d_v)`."""
    batch, heads, length, width = queries.shape
    size = keys.size(-2)
    shape = (batch, heads, length, size)
    may = torch.ones(shape, dtype=torch.bool) if mask is None else mask.expand(shape)
    added = torch.zeros(shape) if bias is None else bias.expand(shape)
    weights = torch.zeros(shape, dtype=torch.float64)
    contexts = torch.zeros(batch, heads, length, values.size(-1), dtype=torch.float64)
    for b in range(batch):
        for h in range(heads):
            for t in range(length):
                scores = []
                for s in range(size):
                    product = sum(float(queries[b, h, t, i]) * float(keys[b, h, s, i]) for i in range(width))
                    scores.append(product / math.sqrt(width) + float(added[b, h, t, s]))
                row = softmax_by_hand(scores, may[b, h, t].tolist())
                for s in range(size):
                    weights[b, h, t, s] = row[s]
                    contexts[b, h, t] += row[s] * values[b, h, s].double()
    return weights, contexts


def scores_by_hand(score: Score, queries: Tensor, keys: Tensor) -> Tensor:
    """`score` of every pair of one sentence's queries `(T, d_q)` and keys `(S, d_k)`: `(T, S)`."""
    return torch.tensor([[score(query, key) for key in keys] for query in queries], dtype=torch.float64)


def check_gradients(function: Callable[..., Any], *inputs: Tensor) -> None:
    """Central differences of step 1e-6 in float64 against autograd, by every input."""
    leaves = tuple(value.detach().double().clone().requires_grad_() for value in inputs)
    assert torch.autograd.gradcheck(function, leaves, eps=1e-6, atol=1e-7, rtol=1e-5)


def check_parameter_gradients(module: nn.Module, *arguments: Any, read: Callable[[Any], Tensor] = lambda x: x) -> None:
    """The same by every parameter of a module in float64, called with `arguments`; `read` picks the tensor."""
    names = [name for name, _ in module.named_parameters()]
    assert names

    def call(*values: Tensor) -> Tensor:
        return read(functional_call(module, dict(zip(names, values, strict=True)), arguments))

    check_gradients(call, *module.parameters())
