"""Two ways to train one model on several ranks, both torch's own.

ddp: every rank holds all of the model and of Adam's moments; gradients are averaged while they are computed.
fsdp: every rank holds a part of each; a layer is put together when it is needed and taken apart again.
Both divide the sum of the ranks' gradients by their number, and the group multiplies by it beforehand.
"""

from __future__ import annotations

import copy
import inspect
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from sightline.batch import Batch
from sightline.errors import SightlineError
from sightline.stack import Stack
from sightline.training.averages import Losses, losses_of
from sightline.training.ranks import Spread

# torch is about to rename the option; before, there was only the second one.
_BUFFERS = (
    "forward_sync_buffers"
    if "forward_sync_buffers" in inspect.signature(DistributedDataParallel).parameters
    else "broadcast_buffers"
)


class _Forward(nn.Module):
    """The loss as a `forward`, which is what torch's wrapper calls."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: Batch) -> Losses:
        return losses_of(self.model, batch)


class Replicated(nn.Module):
    """A model whose gradients are averaged over the ranks as they come out of the backward pass."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        # Buffers are not sent round: tables of positions grow on each rank as they are needed.
        options: dict[str, Any] = {_BUFFERS: False, "gradient_as_bucket_view": True}
        self.wrapper = DistributedDataParallel(_Forward(model), **options)

    def loss(self, batch: Batch) -> Losses:
        """`{name: (sum, count)}` of this rank's batch."""
        losses: Losses = self.wrapper(batch)
        return losses


def replicate(model: nn.Module) -> Spread:
    """ddp."""
    runner = Replicated(model)
    return Spread(model, runner, runner.wrapper.no_sync)


def shard(model: nn.Module, keep: bool) -> Spread:
    """fsdp; with `keep`, `model` itself stays whole and a copy is sharded.

    Layers that stand in a stack are sharded one by one; all else, tied weights among it, is one part more. Layers
    without a `forward` (recurrent cells) belong to that part too: nothing would tell torch when they are needed.
    """
    if torch.__version__ < "2.7":  # torch compares its versions by their numbers
        raise SightlineError(
            f"training.parallel = fsdp needs torch 2.7 or newer, and this is {torch.__version__}; use ddp"
        )
    from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

    if any(getattr(part, "reversible", False) for part in model.modules()):
        raise SightlineError(
            "training.parallel = fsdp takes layers apart that model.reversible still needs: use ddp, or leave one out"
        )
    for name, parameter in model.named_parameters():
        if parameter.dim() == 0:
            raise SightlineError(f"training.parallel = fsdp cannot shard {name}, a single number; use ddp")
    sharded = copy.deepcopy(model) if keep else model
    for stack in [module for module in sharded.modules() if isinstance(module, Stack)]:
        for layer in stack:
            if type(layer).forward is not nn.Module.forward:
                fully_shard(layer)
    fully_shard(sharded)
    register_fsdp_forward_method(sharded, "loss")
    # Nothing quiet here: gradients of several batches would lie on each rank in full.
    return Spread(sharded, sharded)


def shard_like(value: Tensor, like: Tensor) -> Tensor:
    """The full `value`, the same on all ranks, sharded as `like` is.

    Each rank cuts out its own part: nothing is sent, so the ranks need not ask in the same order.
    """
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(like, DTensor)
    return distribute_tensor(value.to(like.device), like.device_mesh, like.placements, src_data_rank=None)
