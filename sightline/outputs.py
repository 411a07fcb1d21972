"""From features to the distribution of the next token.

`log_probs` serves search, `nll` training: it computes the loss in chunks, together with its gradient, and never
keeps the logits of a whole batch.
Shapes: N tokens, d width of a feature, V vocabulary.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sightline.int8 import Int8Product
from sightline.output_layer import OutputLayer
from sightline.products import add_product, linear, product

# Large enough for a good matrix product, small enough that a chunk's logits stay in the cache.
CHUNK = 256


class _Sums(NamedTuple):
    """Smoothed and plain loss, and where they are wanted the gradients of the smoothed one."""

    smoothed: Tensor
    plain: Tensor
    by_features: Tensor | None = None
    by_weight: Tensor | None = None
    by_bias: Tensor | None = None


def _straightforward(
    features: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, smoothing: float, learning: bool
) -> _Sums:
    """Chunk by chunk: log-softmax, loss, and the gradient by the logits, p - q, q the smoothed target."""
    by_features = torch.empty_like(features) if learning else None
    by_weight = torch.zeros_like(weight) if learning else None
    by_bias = torch.zeros_like(bias) if learning else None
    smoothed, plain = features.new_zeros(()), features.new_zeros(())
    spread = smoothing / weight.size(0)
    for start in range(0, features.size(0), CHUNK):
        part, index = features[start : start + CHUNK], targets[start : start + CHUNK, None]
        log_probs = F.log_softmax(torch.addmm(bias, part, weight.T), -1)
        nll = -log_probs.gather(1, index).sum()
        plain += nll
        smoothed += (1 - smoothing) * nll
        if smoothing:
            smoothed -= spread * log_probs.sum()
        if by_features is None or by_weight is None or by_bias is None:
            continue
        gradient = log_probs.exp_()
        if smoothing:
            gradient -= spread
        gradient.scatter_add_(1, index, gradient.new_full(index.shape, smoothing - 1))
        torch.mm(gradient, weight, out=by_features[start : start + CHUNK])
        by_weight.addmm_(gradient.T, part)
        by_bias += gradient.sum(0)
    return _Sums(smoothed, plain, by_features, by_weight, by_bias)


def _few_passes(
    features: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, smoothing: float, learning: bool
) -> _Sums | None:
    """The same, touching a chunk's `(n, V)` tensor once outside its matrix products; None where it could overflow.

    With E = exp(X Wᵀ) and s = E eᵇ the softmax is E eᵇ / s. Neither eᵇ nor 1/s need ever be applied to E: they scale
    the rows of W, of X and of the gradients. The uniform part of a smoothed target is a sum over W, or over X, known
    without E. What is left is one exponential and the place of each right token.
    """
    count, vocabulary = features.size(0), weight.size(0)
    low, high = torch.finfo(features.dtype).tiny ** 0.5, torch.finfo(features.dtype).max ** 0.5
    if not bias.abs().max() < math.log(high):
        return None
    factors = bias.exp()
    scaled = weight * factors[:, None]
    by_features, by_bias = torch.empty_like(features), torch.zeros_like(bias)
    by_columns = weight.new_zeros(weight.size(1), vocabulary)  # the gradient of Wᵀ
    totals, right = features.new_empty(count), features.new_empty(count)
    buffer = features.new_empty(min(CHUNK, count), vocabulary)
    for start in range(0, count, CHUNK):
        here = slice(start, min(start + CHUNK, count))
        part, index = features[here], targets[here, None]
        values = product(part, weight, buffer[: part.size(0)])
        right[here] = values.gather(1, index).squeeze(1)
        values.exp_()
        sums = torch.mv(values, factors, out=totals[here])
        smallest, largest = sums.aminmax()
        if not (smallest > low and largest < high):
            return None
        if learning:
            values.scatter_add_(1, index, ((smoothing - 1) * sums / factors[targets[here]])[:, None])
            inverse = sums.reciprocal()
            torch.mul(product(values, scaled.T), inverse[:, None], out=by_features[here])
            add_product(by_columns, (part * inverse[:, None]).T, values.T, out=by_columns)
            by_bias.addmv_(values.T, inverse)
    logs, right = totals.log_(), right + bias[targets]
    every = features.sum(0)  # Σ x
    plain = (logs - right).sum()
    spread = smoothing / vocabulary
    columns = weight.sum(0)  # Σ w
    uniform = smoothing * logs.sum() - spread * (torch.dot(every, columns) + count * bias.sum())
    smoothed = (1 - smoothing) * plain + uniform
    if not learning:
        return _Sums(smoothed, plain)
    by_features.sub_(columns, alpha=spread)
    by_columns.mul_(factors).sub_(every[:, None], alpha=spread)
    by_bias.mul_(factors).sub_(spread * count)
    return _Sums(smoothed, plain, by_features, by_columns.T.contiguous(), by_bias)


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
        arguments = (features, weight, bias, targets, smoothing, learning)
        # Its look at the sums would make a GPU wait, and there the passes cost little.
        sums = _few_passes(*arguments) if features.device.type == "cpu" and features.size(0) else None
        sums = sums or _straightforward(*arguments)
        if sums.by_weight is not None and fixed_row is not None:
            sums.by_weight[fixed_row].zero_()
        ctx.save_for_backward(*sums[2:])
        ctx.mark_non_differentiable(sums.plain)
        return sums.smoothed, sums.plain

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        scale = gradients[0]
        by_features, by_weight, by_bias = ctx.saved_tensors
        return by_features * scale, by_weight * scale, by_bias * scale, None, None, None, None


class TokenScores(NamedTuple):
    """What a mixture needs of the vocabulary's part, each `(N,)`: the right token's logit, `log Σ exp` and the mean."""

    right: Tensor
    normaliser: Tensor
    mean: Tensor


class _TokenScores(torch.autograd.Function):
    """`TokenScores` of `features Wᵀ + b`, chunk by chunk; the backward pass works the logits out again."""

    @staticmethod
    def forward(
        ctx: Any, features: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, fixed_row: int | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        right, normaliser, mean = (features.new_empty(features.size(0)) for _ in range(3))
        for start in range(0, features.size(0), CHUNK):
            here = slice(start, start + CHUNK)
            logits = add_product(bias, features[here], weight)
            right[here] = logits.gather(1, targets[here, None]).squeeze(1)
            normaliser[here], mean[here] = logits.logsumexp(-1), logits.mean(-1)
        ctx.save_for_backward(features, weight, bias, targets, normaliser)
        ctx.set_materialize_grads(False)
        ctx.fixed_row = fixed_row
        return right, normaliser, mean

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        features, weight, bias, targets, normaliser = ctx.saved_tensors
        by_right, by_normaliser, by_mean = (None if one is None else one[:, None] for one in gradients)
        by_features, by_bias = torch.empty_like(features), torch.zeros_like(bias)
        by_columns = weight.new_zeros(weight.size(1), weight.size(0))  # the gradient of Wᵀ
        for start in range(0, features.size(0), CHUNK):
            here = slice(start, start + CHUNK)
            logits = add_product(bias, features[here], weight)
            by_logits = logits.sub_(normaliser[here, None]).exp_()
            by_logits.mul_(0.0 if by_normaliser is None else by_normaliser[here])
            if by_mean is not None:
                by_logits += by_mean[here] / weight.size(0)
            if by_right is not None:
                by_logits.scatter_add_(1, targets[here, None], by_right[here])
            by_features[here] = product(by_logits, weight.T)
            add_product(by_columns, features[here].T, by_logits.T, out=by_columns)
            by_bias += by_logits.sum(0)
        if ctx.fixed_row is not None:
            by_columns[:, ctx.fixed_row].zero_()
        return by_features, by_columns.T.contiguous(), by_bias, None, None


class Output(OutputLayer):
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
        self.fast: Int8Product | None = None

    def changing(self) -> Tensor:
        return self.bias

    def quantise(self) -> None:
        """From now on `log_probs` multiplies in int8: faster, not to the last digit, and without gradients."""
        self.fast = Int8Product(self.weight, self.bias)

    def logits(self, features: Tensor) -> Tensor:
        """`W f + b`: `(…, d)` to `(…, V)`."""
        return linear(features, self.weight, self.bias) if self.fast is None else self.fast(features)

    def log_probs(self, features: Tensor) -> Tensor:
        """Features `(…, d)` to log-probabilities `(…, V)`."""
        logits = self.logits(features)
        if torch.is_grad_enabled():
            return logits.log_softmax(-1)
        # The largest tensor of a step: a second one would cost as much as the softmax.
        return torch.log_softmax(logits, -1, out=logits)

    def nll(self, features: Tensor, targets: Tensor, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
        """Features `(N, d)` and target ids `(N,)` to two sums over tokens: smoothed, for training, and plain.

        The smoothed target gives the right token 1 - ε and then spreads ε over all V tokens, the right one
        included, as torch's `cross_entropy` does. No gradient flows through the plain sum.
        """
        # Inside the function autograd is always off: whether a gradient is wanted must be asked out here.
        learning = torch.is_grad_enabled()
        with torch.autocast(features.device.type, enabled=False):  # a loss wants its full precision
            sums: tuple[Tensor, Tensor] = _CrossEntropy.apply(  # type: ignore[no-untyped-call]
                features.float() if features.dtype in (torch.bfloat16, torch.float16) else features,
                self.weight,
                self.bias,
                targets,
                smoothing,
                self.fixed_row,
                learning,
            )
        return sums

    def token_scores(self, features: Tensor, targets: Tensor) -> TokenScores:
        """Features `(N, d)` and ids `(N,)` to what a mixture with another distribution needs; no logits are kept."""
        with torch.autocast(features.device.type, enabled=False):
            full = features.float() if features.dtype in (torch.bfloat16, torch.float16) else features
            found = _TokenScores.apply(full, self.weight, self.bias, targets, self.fixed_row)  # type: ignore[no-untyped-call]
        return TokenScores(*found)


class OverVocabulary(OutputLayer):
    """An output layer over one of the vocabulary alone."""

    def __init__(self, vocabulary: Output) -> None:
        super().__init__()
        self.vocabulary = vocabulary

    def changing(self) -> Tensor:
        return self.vocabulary.bias

    def quantise(self) -> None:
        self.vocabulary.quantise()
