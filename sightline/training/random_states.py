"""The states of torch's random generators on all ranks, to and from a checkpoint."""

from __future__ import annotations

import torch
from torch import Tensor

from sightline.training.ranks import Ranks, rank_seed


def random_states(ranks: Ranks) -> dict[str, Tensor]:
    """Torch's generators; Python's and numpy's are not used while training, batches depend on seed and epoch alone."""
    own = {"cpu": torch.get_rng_state()}
    if ranks.device.type == "cuda":
        own["cuda"] = torch.cuda.get_rng_state(ranks.device)
    everyone = ranks.gather(own)
    return {_name(rank, device): state for rank, states in enumerate(everyone) for device, state in states.items()}


def restore_random_states(states: dict[str, Tensor], ranks: Ranks) -> None:
    """Each rank's own; one that was not there when they were saved begins a stream that depends on the first's."""
    rank = ranks.rank
    if _name(rank, "cpu") not in states:
        torch.set_rng_state(states["cpu"])
        torch.manual_seed(rank_seed(int(torch.randint(2**62, ())), rank))
        return
    torch.set_rng_state(states[_name(rank, "cpu")])
    if ranks.device.type == "cuda" and _name(rank, "cuda") in states:
        torch.cuda.set_rng_state(states[_name(rank, "cuda")], ranks.device)


def _name(rank: int, device: str) -> str:
    return f"rank-{rank}/{device}" if rank else device
