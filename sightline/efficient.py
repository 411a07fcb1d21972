"""Attention for long sequences: what a configuration may say of it, and what makes no sense. No torch here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from sightline.errors import SightlineError
from sightline.sections import Section

if TYPE_CHECKING:
    from sightline.architecture import ModelConfig

SelfAttention = Literal["full", "lsh", "linear"]
CrossAttention = Literal["full", "linear"]


class LshConfig(Section):
    """Attention to what hashes alike, where encoder.attention or decoder.attention is lsh (Kitaev et al. 2020)."""

    rounds: int = Field(4, ge=1, description="times that the positions are hashed; each finds some that others missed")
    chunk: int = Field(64, ge=1, description="positions of a chunk; each sees its own and the one before")
    buckets: int | None = Field(
        None, ge=1, description="1 or a power of two; null: about 2 * length / chunk (a decoder needs a number)"
    )
    same_bucket: bool = Field(True, description="see only one's own bucket of a chunk (false: all of it)")


class LinearConfig(Section):
    """Attention without a softmax, where one of the attentions is linear (Katharopoulos 2020; Kasai et al. 2021)."""

    features: Literal["elu", "relu"] = Field("elu", description="elu + 1, or a learnt ReLU layer for each head (T2R)")
    feature_count: int = Field(32, ge=1, description="relu: features of a head")


def check_efficient(model: ModelConfig, where: str) -> None:
    """Refuses what makes no sense; `where` stands in the message."""
    encoder, decoder, lsh = model.encoder, model.decoder, model.lsh
    if encoder.attention != "full" and encoder.kind != "transformer":
        raise SightlineError(
            f"{where}: model.encoder.attention = {encoder.attention}: only a transformer encoder attends, and "
            f"model.encoder.kind is {encoder.kind}; leave it out"
        )
    if lsh.buckets is not None and lsh.buckets & (lsh.buckets - 1):
        raise SightlineError(f"{where}: model.lsh.buckets = {lsh.buckets}: expected 1 or a power of two")
    if decoder.attention == "lsh" and lsh.buckets is None:
        raise SightlineError(
            f"{where}: model.decoder.attention = lsh: a decoder cannot choose buckets by a length that it does not "
            "know yet; set model.lsh.buckets, such as 16"
        )
    if model.reversible and model.norm_position != "pre":
        raise SightlineError(
            f"{where}: model.reversible: what a post-norm layer normalised cannot be computed back; "
            "set model.norm_position = pre"
        )
    for name in ("reversible", "feedforward_chunk"):
        if getattr(model, name) and not model.has_transformer:
            part = f"encoder {encoder.kind}" if model.has_source else f"decoder {decoder.kind}"
            raise SightlineError(
                f"{where}: model.{name} is for a transformer's layers, and the recipe {model.recipe} with the {part} "
                "has none; leave it out"
            )
    if decoder.attention != "full" and not model.has_transformer_decoder:
        raise SightlineError(
            f"{where}: model.decoder.attention = {decoder.attention}: only a transformer's decoder attends to what it "
            "wrote; leave it out, or set model.decoder.kind=transformer"
        )
    check_shown(model, where, "model.guided.weight" if model.guided.weight else None)


def check_shown(model: ModelConfig, where: str, learns: str | None) -> None:
    """Refuses layers that show no weights where there is someone to look: an output layer, or what is learnt from them.

    `learns` is the key that asks for that, if one does.
    """
    if model.recipe != "transformer":
        return
    points = None
    if model.copying.kind == "pointer_generator":
        points = "model.copying.kind = pointer_generator"
    elif model.lexicon.mode != "none":
        points = f"model.lexicon.mode = {model.lexicon.mode}"
    hidden = None
    if model.reversible:
        hidden = "model.reversible"
    elif points and model.decoder.cross_attention == "linear":
        hidden = "model.decoder.cross_attention = linear"
    if hidden is not None and (points or learns):
        raise SightlineError(
            f"{where}: {points or learns} needs the weights of a head of the decoder, and with {hidden} there are none "
            "to be had: leave one of them out"
        )


def unusual(model: ModelConfig) -> str | None:
    """What a Transformer of this kind has that other programs' Transformers have not; None when it has nothing."""
    for name, value in (
        ("encoder.attention", model.encoder.attention),
        ("decoder.attention", model.decoder.attention),
        ("decoder.cross_attention", model.decoder.cross_attention),
    ):
        if value != "full":
            what = "attention to what hashes alike" if value == "lsh" else "linear attention"
            return f"{what} (model.{name}={value})"
    return "reversible layers (model.reversible=true)" if model.reversible else None
