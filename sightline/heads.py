"""Heads that see only some blocks of their input's features, that are looked through or taught: what a config may ask.

No torch here.
"""

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
    reads: tuple[str, str] = ("encoder", model.encoder.kind)
    if not model.has_source:
        reads = "decoder", model.decoder.kind
    if "transformer" not in (model.recipe, reads[1]):
        name = "blocks" if attention.blocks != 1 else "head_blocks"
        raise SightlineError(
            f"{where}: model.attention.{name}: only a transformer has heads, and the recipe {model.recipe} "
            f"with the {' '.join(reads)} has none; leave it out"
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


def pointing_head(model: ModelConfig) -> tuple[int, int] | None:
    """The layer and head of a Transformer's decoder that its output layer looks through, both from 0, if it does."""
    if model.copying.kind != "pointer_generator" and model.lexicon.mode == "none":
        return None
    name, section = ("lexicon", model.lexicon) if model.copying.kind == "none" else ("copying", model.copying)
    layers, heads = model.decoder.layers or 1, model.decoder.heads or 1
    layer = layers - 1 if section.layer is None else section.layer
    if layer >= layers or section.head >= heads:
        raise SightlineError(
            f"model.{name}.layer={layer} and model.{name}.head={section.head} name no head of this model: "
            f"it has {layers} layers of {heads} heads, counted from 0"
        )
    return layer, section.head


def taught_head(model: ModelConfig) -> tuple[int, int]:
    """The decoder's layer and head that learn from links or from another model, both from 0.

    It is the one that the output layer looks through, where there is one.
    """
    layers, heads = model.decoder.layers or 1, model.decoder.heads or 1
    layer, head = model.guided.layer, model.guided.head
    if (pointing := pointing_head(model)) is not None:
        if layer not in (None, pointing[0]) or head not in (0, pointing[1]):
            taught = f"head {head}" if layer is None else f"head {head} of layer {layer}"
            raise SightlineError(
                f"model.guided teaches {taught}, but the output layer looks through head "
                f"{pointing[1]} of layer {pointing[0]}: leave out model.guided.layer and model.guided.head"
            )
        return pointing
    if layer is None:
        layer = max(layers - 2, 0)
    for name, value, most in (("layer", layer, layers), ("head", head, heads)):
        if value >= most:
            raise SightlineError(
                f"model.guided.{name}={value}, but the decoder has {most}, numbered from 0: choose another"
            )
    return layer, head
