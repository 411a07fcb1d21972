"""The vocabulary's distribution mixed with one over words that stand somewhere, in the source or in the text so far:

    p(w) = g P_vocabulary(w) + Σ_{i: x_i = w} c_i
with a share g of generating and c_i of copying what stands at position i, 1 in all. Training needs of it the right
tokens' probabilities alone, never the whole distribution.
Shapes: N tokens, d width of a feature, W positions, V vocabulary.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from sightline.outputs import Output


class Mixture(Protocol):
    """What a mixture is made of, for each token to be foretold."""

    @property
    def features(self) -> Tensor:
        """`(…, d)`: what the vocabulary's distribution is made from."""
        ...

    @property
    def ids(self) -> Tensor:
        """`(…, W)`: what stands at the positions."""
        ...

    def shares(self, normaliser: Tensor) -> tuple[Tensor, Tensor]:
        """The log-probability of generating `(…)` and the probability of copying each position `(…, W)`.

        `normaliser` `(…)` is `log Σ exp` of the vocabulary's logits.
        """
        ...


def mixture_log_probs(mixture: Mixture, vocabulary: Output, more: int = 0) -> Tensor:
    """The mixture's distribution, `(…, V)`, or `(…, V + more)` where ids may lie past the vocabulary."""
    logits = vocabulary.logits(mixture.features)
    normaliser = logits.logsumexp(-1)
    generate, copies = mixture.shares(normaliser)
    given = logits + (generate - normaliser)[..., None]
    if more:
        given = F.pad(given, (0, more), value=-torch.inf)
    copied = torch.zeros_like(given).scatter_add(-1, mixture.ids, copies.to(given.dtype))
    if torch.is_grad_enabled():
        return mixed(given, copied)
    # Only words that stand somewhere change, and the whole is the largest tensor of a step. A word that stands twice is
    # written twice, which a gradient would count twice.
    changed = mixed(given.gather(-1, mixture.ids), copied.gather(-1, mixture.ids))
    return given.scatter_(-1, mixture.ids, changed)


def mixture_nll(
    mixture: Mixture, vocabulary: Output, targets: Tensor, smoothing: float = 0.0, least: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Target ids `(N,)` to two sums over tokens: smoothed, for training, and plain.

    Smoothing asks the vocabulary's distribution alone to stay near to the uniform one: whether to copy, and what, may
    be as certain as it can. `least` is added to the probability of each, where a right one may have none at all.
    """
    with torch.autocast(targets.device.type, enabled=False):
        inside = targets < vocabulary.bias.size(0)
        right, normaliser, mean = vocabulary.token_scores(mixture.features, torch.where(inside, targets, 0))
        generate, copies = mixture.shares(normaliser)
        copied = (copies * (mixture.ids == targets[:, None])).sum(-1)
        generated = (right - normaliser + generate).masked_fill(~inside, -torch.inf)
        plain = -mixed(generated, copied + least).sum()
        uniform = (normaliser - mean).sum() if smoothing else 0.0
    return (1 - smoothing) * plain + smoothing * uniform, plain.detach()


def mixed(log_probs: Tensor, added: Tensor) -> Tensor:
    """`log(exp(log_probs) + added)`, both of one shape; where nothing is added, to the last digit as it was."""
    some = added > 0
    # Without the inner choice the logarithm of 0 would make a gradient of 0 into none at all.
    return torch.where(some, torch.logaddexp(log_probs, torch.where(some, added, 1.0).log()), log_probs)
