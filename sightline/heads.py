"""Heads that see only some blocks of their input's features: what a configuration may ask for. No torch here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sightline.errors import SightlineError

if TYPE_CHECKING:
    from sightline.architecture import AttentionConfig, ModelConfig


def check_blocks(model: ModelConfig, where: str) -> None:
    """Refuses blocks that do not exist, and any where there are no heads; `where` stands in the message."""
    attention = model.attention
    if attention.blocks == 1 and attention.head_blocks is None:
        return
    if "transformer" not in (model.recipe, model.encoder.kind):
        name = "blocks" if attention.blocks != 1 else "head_blocks"
        raise SightlineError(
            f"{where}: model.attention.{name}: only a transformer has heads, and the recipe {model.recipe} "
            f"with the encoder {model.encoder.kind} has none; leave it out"
        )
    largest = max((number for numbers in attention.head_blocks or () for number in numbers), default=0)
    if largest >= attention.blocks:
        raise SightlineError(
            f"{where}: model.attention.head_blocks names block {largest}, but model.attention.blocks is "
            f"{attention.blocks}, and they are numbered from 0"
        )


def seen_blocks(attention: AttentionConfig, heads: int) -> list[list[int]] | None:
    """The blocks that each of so many heads sees; None where every head sees everything."""
    if attention.blocks == 1:
        return None
    chosen = attention.head_blocks or [[block] for block in range(attention.blocks)]
    if len(chosen) > heads:
        told = f"blocks={attention.blocks}" if attention.head_blocks is None else "head_blocks"
        raise SightlineError(
            f"model.attention.{told} is for {len(chosen)} heads, and there are {heads}: choose more heads, "
            "or name fewer in model.attention.head_blocks"
        )
    return [chosen[head % len(chosen)] for head in range(heads)]
