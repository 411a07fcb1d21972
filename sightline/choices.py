"""Which ways to choose a position go with which other parts: no torch here."""

from __future__ import annotations

from sightline.architecture import ModelConfig
from sightline.errors import SightlineError

# Choices that nobody makes: a model sums over all of them.
SUMMED = ("exact", "exact_monotonic", "exact_jumps", "segments")
# Clues that know where the steps before looked.
REMEMBERING = ("markov_bias", "fertility_bias")


def check_choice(model: ModelConfig, where: str) -> None:
    """Refuses parts that make no sense together with the choice of positions."""
    attention = model.attention
    if model.penalties.coverage_left and attention.coverage != "embedded":
        raise SightlineError(
            f"{where}: model.penalties.coverage_left is about the vectors of model.attention.coverage=embedded, and "
            f"coverage is {attention.coverage}: set it, or leave the penalty out"
        )
    if attention.choice == "soft":
        return
    here = f"{where}: model.attention.choice = {attention.choice}"
    if attention.span != "global":
        raise SightlineError(f"{here} looks at all positions: leave model.attention.span out")
    if attention.choice not in SUMMED:
        return
    if model.recipe != "luong" or model.decoder.input_feeding:
        raise SightlineError(
            f"{here} sums over all positions, so that what was seen at one must not enter the next state: "
            "set model.recipe = luong and model.decoder.input_feeding = false, or choose sampled"
        )
    remembered = [name for name in REMEMBERING if getattr(attention, name) is not None]
    if attention.coverage != "none":
        remembered.append("coverage")
    if remembered:
        raise SightlineError(
            f"{here} sums over all positions, so that a score cannot know where the model looked before: "
            f"leave model.attention.{remembered[0]} out"
        )
