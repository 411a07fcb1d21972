"""Losses averaged over many batches: token by token, whatever the shapes of the batches."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from sightline.batch import Batch
from sightline.errors import SightlineError

# What `model.loss(batch)` gives: name -> (sum, count), both without a dimension.
Losses = Mapping[str, tuple[Tensor, Tensor | int]]
CROSS_ENTROPY: Mapping[str, float] = {"cross_entropy": 1.0}


def losses_of(model: nn.Module, batch: Batch) -> Losses:
    """The model's losses of a batch."""
    losses: Losses = model.loss(batch)  # type: ignore[operator]  # torch types any attribute as a tensor or a module
    return losses


def objective(losses: Losses, weights: Mapping[str, float]) -> Tensor:
    """What training minimises: the weighted sum of the means. A loss that counted nothing adds nothing."""
    terms = []
    for name, weight in weights.items():
        if name not in losses:
            raise SightlineError(f"the model has no loss '{name}' to train on, only {', '.join(losses)}")
        value, count = losses[name]
        terms.append(weight * value / (count.clamp(min=1) if isinstance(count, Tensor) else max(count, 1)))
    return terms[0] if len(terms) == 1 else torch.stack(terms).sum()


@dataclass
class Averages:
    """Sums and counts of losses by name. Tensors stay on their device until someone asks for a mean."""

    sums: dict[str, Any] = field(default_factory=dict)
    counts: dict[str, Any] = field(default_factory=dict)

    def add(self, losses: Losses) -> None:
        """One batch's losses."""
        for name, (total, count) in losses.items():
            self.sums[name] = self.sums.get(name, 0.0) + total.detach().double()
            self.counts[name] = self.counts.get(name, 0) + count

    def means(self, weights: Mapping[str, float]) -> dict[str, float]:
        """Their weighted sum as `loss`, the mean of each by its name, and `perplexity` from "nll"."""
        means = {name: float(total) / max(float(self.counts[name]), 1.0) for name, total in self.sums.items()}
        result = {"loss": sum((weight * means.get(name, math.nan) for name, weight in weights.items()), 0.0), **means}
        if "nll" in means:
            result["perplexity"] = math.exp(means["nll"]) if means["nll"] < 700 else math.inf
        return result

    def plain(self) -> dict[str, dict[str, float]]:
        """As JSON holds it, exactly: `Averages(**plain)` goes on where this one is."""
        sums = {name: float(value) for name, value in self.sums.items()}
        return {"sums": sums, "counts": {name: int(value) for name, value in self.counts.items()}}


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; afterwards the mode and the random generators are as they were."""
    device = next(model.parameters()).device
    training = model.training
    model.eval()
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            yield
    finally:
        model.train(training)


def average_losses(
    model: nn.Module, batches: Iterable[Batch], weights: Mapping[str, float] = CROSS_ENTROPY
) -> dict[str, float]:
    """The losses of all `batches` together in evaluation mode, as `Averages.means` tells them."""
    averages = Averages()
    device = next(model.parameters()).device
    with evaluating(model):
        for batch in batches:
            averages.add(losses_of(model, batch.to(device)))
    return averages.means(weights)
