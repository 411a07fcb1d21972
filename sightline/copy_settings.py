"""Copying and lexicons: what a configuration may ask for together. No torch here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sightline.choices import SUMMED
from sightline.errors import SightlineError

if TYPE_CHECKING:
    from sightline.architecture import ModelConfig
    from sightline.config import RunConfig


def check_open_words(config: RunConfig, where: str) -> None:
    """Refuses settings of copying that only words have, where nothing or something else is copied."""
    copying = config.model.copying
    if copying.kind != "none" and config.text.tokenizer == "word":
        return
    default = type(copying).model_fields["practice"].default
    wanted = {"practice": copying.practice not in (0, default), "unknown": copying.unknown}
    for name, asked in wanted.items():
        if asked:
            raise SightlineError(
                f"{where}: model.copying.{name} is for models that copy words: set model.copying.kind and "
                "text.tokenizer=word, or leave it out"
            )


def check_copying(model: ModelConfig, where: str) -> None:
    """Refuses a kind of copying that the recipe's parts cannot serve; `where` stands in the message."""
    kind = model.copying.kind
    if model.attention.choice in SUMMED and (kind != "none" or model.lexicon.mode != "none"):
        name = f"copying.kind={kind}" if kind != "none" else f"lexicon.mode={model.lexicon.mode}"
        raise SightlineError(
            f"{where}: model.attention.choice={model.attention.choice} and model.{name} both take the place of the "
            "output layer: choose one"
        )
    if kind != "none" and model.lexicon.mode != "none":
        raise SightlineError(
            f"{where}: model.copying.kind={kind} and model.lexicon.mode={model.lexicon.mode} both take the place of "
            "the output layer: choose one"
        )
    if kind == "pointer_generator" and model.recipe == "seq2seq":
        raise SightlineError(
            f"{where}: model.copying.kind=pointer_generator copies by attention, and the recipe seq2seq has none: "
            "choose copynet or copy_head, which look for themselves"
        )
    if kind == "pointer_generator" and model.attention.span == "local-p":
        raise SightlineError(
            f"{where}: model.copying.kind=pointer_generator needs weights that sum to 1, and those of "
            "model.attention.span=local-p do not: choose the span global or local-m, or another kind"
        )
    if kind == "pointer_generator" and model.attention.choice == "online_monotonic":
        raise SightlineError(
            f"{where}: model.copying.kind=pointer_generator needs weights that sum to 1, and those of "
            "model.attention.choice=online_monotonic may sum to less: choose another kind, or another choice"
        )
    parts = {"attention.span": ("local-p", "global or local-m"), "attention.choice": ("online_monotonic", "soft")}
    for name, (value, other) in parts.items() if model.lexicon.mode == "linear" else ():
        if getattr(model.attention, name.split(".")[1]) == value:
            raise SightlineError(
                f"{where}: model.lexicon.mode=linear needs weights that sum to 1, and those of model.{name}={value} do "
                f"not: choose the {name.split('.')[1]} {other}, or model.lexicon.mode=bias"
            )
    if kind == "copynet" and model.copying.selective_read and model.recipe == "transformer":
        raise SightlineError(
            f"{where}: model.copying.selective_read makes each step wait for the one before, which a transformer "
            "does not: set model.copying.selective_read=false, or choose a recurrent recipe"
        )
