"""The parts of a Transformer's layers, made as a configuration names them."""

from __future__ import annotations

from torch import Tensor

from sightline.architecture import ModelConfig
from sightline.attention.joined import PlainCross
from sightline.attention.kinds import SelfAttention
from sightline.attention.linear import EluFeatures, Features, LinearAttention, ReluFeatures
from sightline.attention.lsh import LshAttention, Settings
from sightline.attention.masks import block_mask
from sightline.attention.multihead import MultiHeadAttention
from sightline.errors import SightlineError
from sightline.heads import seen_blocks
from sightline.layers import FeedForward


def make_self_attention(config: ModelConfig, kind: str, width: int, heads: int, layer: int) -> SelfAttention:
    """The attention of a layer to its own sequence, full, lsh or linear; each layer hashes its own way."""
    if kind != "lsh":
        return make_heads(config, kind, width, heads)
    settings = Settings(**config.lsh.model_dump())
    return LshAttention(width, heads, settings, config.attention_dropout, make_sees(config, width, heads), layer)


def make_heads(config: ModelConfig, kind: str, width: int, heads: int) -> PlainCross:
    """Attention that can be to a memory too: full or linear."""
    sees = make_sees(config, width, heads)
    if kind == "full":
        return MultiHeadAttention(width, heads, config.attention_dropout, sees)
    return LinearAttention(width, heads, make_features(config, width // heads, heads), sees)


def make_features(config: ModelConfig, width: int, heads: int) -> Features:
    """What takes the softmax's place, for heads of this width."""
    return (
        EluFeatures(width)
        if config.linear.features == "elu"
        else ReluFeatures(heads, width, config.linear.feature_count)
    )


def make_feedforward(config: ModelConfig, width: int, inner: int) -> FeedForward:
    """A Transformer layer's."""
    return FeedForward(width, inner, config.activation, config.activation_dropout, config.feedforward_chunk)


def make_sees(config: ModelConfig, width: int, heads: int) -> Tensor | None:
    """Which features each head sees (None: all), or a clear error when heads or blocks do not divide the width."""
    if width % heads:
        raise SightlineError(f"{heads} attention heads do not divide the width {width}: choose a divisor of it")
    count = config.attention.blocks
    if width % count:
        raise SightlineError(
            f"model.attention.blocks={count} does not divide the width {width}: choose a divisor of it"
        )
    seen = seen_blocks(config.attention, heads)
    return None if seen is None else block_mask(width, seen, count)
