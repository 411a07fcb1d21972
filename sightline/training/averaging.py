"""The mean of several checkpoints' weights: one model that is often better than each of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from sightline.config import TrainingConfig
from sightline.errors import SightlineError
from sightline.training.checkpoints import Keep, best_checkpoints, last_checkpoints, read_weights


def kept(config: TrainingConfig, higher_is_better: bool = False) -> Keep:
    """Which checkpoints a run keeps: those it is told to, and those that it will average."""
    last, best = (config.average_count if config.average == kind else 0 for kind in ("last", "best"))
    return Keep(max(config.keep_last, last), max(config.keep_best, best), higher_is_better)


def chosen_checkpoints(folder: Path, kind: str, count: int, higher_is_better: bool = False) -> list[Path]:
    """The `count` checkpoints in `folder` that `kind` ("last" or "best") asks for, oldest first; fewer if it has fewer.

    Any other kind gives none.
    """
    if kind == "last":
        return last_checkpoints(folder, count)
    return best_checkpoints(folder, count, higher_is_better) if kind == "best" else []


def average_weights(paths: Sequence[Path]) -> dict[str, Tensor]:
    """The mean of the checkpoints' weights by name, summed in float64; whole numbers are those of the last one."""
    sums: dict[str, Tensor] = {}
    for path in paths:
        weights = read_weights(path)
        if sums and {name: value.shape for name, value in weights.items()} != {n: v.shape for n, v in sums.items()}:
            raise SightlineError(f"{path}: its weights have other names or shapes than those of {paths[0]}")
        for name, value in weights.items():
            sums[name] = value if not value.is_floating_point() else sums.get(name, 0) + value.double()
    return {
        name: (total / len(paths)).to(value.dtype) if (value := weights[name]).is_floating_point() else value
        for name, total in sums.items()
    }
