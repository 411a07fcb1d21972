"""From features to the distribution of the next token.

`log_probs` serves search, `nll` training: it computes the loss in chunks, together with its gradient, and never
keeps the logits of a whole batch.
Shapes: N tokens, d width of a feature, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

# Large enough for a good matrix product, small enough that a chunk's logits stay in the cache.
CHUNK = 256


class _CrossEntropy(torch.autograd.Function):
    """Smoothed cross-entropy of `features Wᵀ + b`, its gradient worked out chunk by chunk in the forward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        weight: Tensor,
        bias: Tensor,
        targets: Tensor,
        smoothing: float,
        fixed_row: int | None,
        grad_mode: bool,
    ) -> tuple[Tensor, Tensor]:
        learning = grad_mode and any(ctx.needs_input_grad)
        grad_features = torch.empty_like(features) if learning else None
        grad_weight = torch.zeros_like(weight) if learning else None
        grad_bias = torch.zeros_like(bias) if learning else None
        smoothed = features.new_zeros(())
        plain = features.new_zeros(())
        spread = smoothing / weight.size(0)
        for start in range(0, features.size(0), CHUNK):
            part = features[start : start + CHUNK]
            index = targets[start : start + CHUNK, None]
            log_probs = F.log_softmax(torch.addmm(bias, part, weight.T), -1)
            nll = -log_probs.gather(1, index).sum()
            plain += nll
            smoothed += (1 - smoothing) * nll
            if smoothing:
                smoothed -= spread * log_probs.sum()
            if grad_features is None or grad_weight is None or grad_bias is None:
                continue
            # The gradient by the logits is p - q, q the smoothed target.
            gradient = log_probs.exp_()
            if smoothing:
                gradient -= spread
            gradient.scatter_add_(1, index, gradient.new_full(index.shape, smoothing - 1))
            torch.mm(gradient, weight, out=grad_features[start : start + CHUNK])
            grad_weight.addmm_(gradient.T, part)
            grad_bias += gradient.sum(0)
        if grad_weight is not None and fixed_row is not None:
            grad_weight[fixed_row].zero_()
        ctx.save_for_backward(grad_features, grad_weight, grad_bias)
        ctx.mark_non_differentiable(plain)
        return smoothed, plain

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        scale = gradients[0]
        by_features, by_weight, by_bias = ctx.saved_tensors
        return by_features * scale, by_weight * scale, by_bias * scale, None, None, None, None


class Output(nn.Module):
    """`softmax(W f + b)` over the vocabulary.

    `weight` may be shared with an embedding, whose row for padding (`fixed_row`) then stays as it is: zero.
    """

    def __init__(
        self, width: int, vocabulary: int, weight: nn.Parameter | None = None, fixed_row: int | None = None
    ) -> None:
        super().__init__()
        self.fixed_row = fixed_row
        if weight is None:
            weight = nn.Parameter(torch.randn(vocabulary, width) * width**-0.5)
        self.weight = weight
        self.bias = nn.Parameter(torch.zeros(vocabulary))

    def log_probs(self, features: Tensor) -> Tensor:
        """Features `(…, d)` to log-probabilities `(…, V)`."""
        return F.log_softmax(F.linear(features, self.weight, self.bias), -1)

    def nll(self, features: Tensor, targets: Tensor, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
        """Features `(N, d)` and target ids `(N,)` to two sums over tokens: smoothed, for training, and plain.

        The smoothed target gives the right token 1 - ε and then spreads ε over all V tokens, the right one
        included, as torch's `cross_entropy` does. No gradient flows through the plain sum.
        """
        sums: tuple[Tensor, Tensor] = _CrossEntropy.apply(  # type: ignore[no-untyped-call]
            # Inside the function autograd is always off: whether a gradient is wanted must be asked out here.
            features,
            self.weight,
            self.bias,
            targets,
            smoothing,
            self.fixed_row,
            torch.is_grad_enabled(),
        )
        return sums
