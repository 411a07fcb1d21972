"""One update's gradients: of one batch, or of several that together stand for a larger one.

Each question that an update answers has one function here: how many tokens it saw, what the gradients are, how long
they are, and whether they may reach the weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sightline.batch import Batch
from sightline.training.averages import Losses, losses_of, objective
from sightline.training.ranks import whole

Summed = dict[str, tuple[Tensor, Tensor | int]]


@dataclass(frozen=True)
class Backward:
    """What the backward passes of an update came to; the gradients themselves lie in the parameters.

    `losses` are sums and counts over all its batches, `objective` is what they make together, `each` what every
    batch makes alone. All are without a dimension and on the device.
    """

    losses: Losses
    objective: Tensor
    each: list[Tensor]


def token_count(batches: Iterable[Batch]) -> int:
    """The target tokens of an update (source tokens where there is no target), padding not counted."""
    return sum(int((batch.targets or batch.sources[0]).mask.sum()) for batch in batches)


def backward(
    model: nn.Module,
    batches: Sequence[Batch],
    weights: Mapping[str, float],
    quiet: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Backward:
    """Adds the gradients of the weighted means over all `batches`, each mean being sum / count over all of them.

    The counts are known when the last batch has been through the model. A single loss does not wait for them: the
    gradients of its sums are added up and divided at the end, so that one batch at a time takes up memory. Several
    losses have several divisors, and their batches' activations are kept until then. All batches but the last work
    within `quiet`, where ranks need not exchange their gradients yet.
    """
    if len(batches) == 1 or len(weights) > 1:
        all_losses = [losses_of(model, batch) for batch in batches]
        losses = added(all_losses)
        total = objective(losses, weights)
        total.backward()  # type: ignore[no-untyped-call]
    else:
        (name,) = weights
        all_losses = []
        for place, batch in enumerate(batches, start=1):
            with quiet() if place < len(batches) else nullcontext():
                found = losses_of(model, batch)
                objective(found, weights)  # names a loss that is not there
                (weights[name] * found[name][0]).backward()  # type: ignore[no-untyped-call]
            all_losses.append(detached(found))
        losses = added(all_losses)
        total = objective(losses, weights)
        count = torch.as_tensor(losses[name][1]).clamp(min=1)
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.grad.div_(count.to(parameter.grad.device))
    each = [objective(one, weights).detach() for one in all_losses] if len(batches) > 1 else [total.detach()]
    return Backward(detached(losses), total.detach(), each)


def plain_loss(found: Backward) -> Tensor:
    """The unsmoothed loss, which validations tell too, of models that give it; else what is minimised."""
    return objective(found.losses, {"nll": 1.0}) if "nll" in found.losses else found.objective


def added(all_losses: Sequence[Losses]) -> Summed:
    """Sums and counts of several batches together."""
    result: Summed = dict(all_losses[0])
    for losses in all_losses[1:]:
        for name, (total, count) in losses.items():
            result[name] = (result[name][0] + total, result[name][1] + count)
    return result


def gradient_norm(parameters: Iterable[nn.Parameter], largest: float) -> Tensor:
    """The norm of all gradients together; a longer one is cut down to `largest`."""
    return whole(nn.utils.clip_grad_norm_(parameters, largest))


def may_step(loss: float, norm: float) -> bool:
    """Whether the gradients may reach the weights: not when the loss or the norm is not finite."""
    return math.isfinite(loss) and math.isfinite(norm)


def suspects(batches: Sequence[Batch], each: Sequence[float]) -> list[int]:
    """The examples of the batches whose own loss is not finite; of all of them if only the gradient was not."""
    bad = [batch for batch, loss in zip(batches, each, strict=True) if not math.isfinite(loss)]
    return [index for batch in bad or batches for index in batch.indices]


def detached(losses: Losses) -> Summed:
    """Sums and counts without the way they came about."""
    return {name: (total.detach(), count) for name, (total, count) in losses.items()}
