"""Shared fixtures: one thread a worker, and small models to build."""

from typing import Any

import pytest
import torch

from sightline.batch import Batch, pad
from sightline.config import build_config, merge
from sightline.models import EncoderDecoder, Sizes, build_model

SMALL: dict[str, Any] = {
    "model": {
        "embedding": 12,
        "dropout": 0.0,
        "encoder": {"width": 8, "layers": 2, "heads": 3, "feedforward": 20},
        "decoder": {"width": 10, "layers": 2, "heads": 3, "feedforward": 20},
    }
}
TRANSFORMER: dict[str, Any] = {"model": {"encoder": {"width": None}, "decoder": {"width": None}}}
VOCABULARY = 17


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)


def small_model(recipe: str, changes: dict[str, Any] | None = None, joint: bool = True) -> EncoderDecoder:
    """A tiny model of the recipe in float64 and eval mode, with `changes` to its `model` section."""
    values = merge(SMALL, TRANSFORMER) if recipe == "transformer" else SMALL
    values = merge(values, {"model": changes or {}})
    config = build_config(values, recipe)
    return build_model(config.model, Sizes(VOCABULARY, VOCABULARY, joint)).double().eval()


def random_batch(lengths: list[int], target_lengths: list[int] | None = None, seed: int = 0) -> Batch:
    """Random sentences of these lengths, each ended by the end symbol (3)."""
    generator = torch.Generator().manual_seed(seed)

    def rows(sizes: list[int]) -> list[list[int]]:
        return [[*torch.randint(4, VOCABULARY, (size - 1,), generator=generator).tolist(), 3] for size in sizes]

    targets = None if target_lengths is None else pad(rows(target_lengths), 0)
    return Batch((pad(rows(lengths), 0),), targets, tuple(range(len(lengths))))
