"""The models of a run: one, or with agreement two that translate both ways, each in a folder of its own."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from sightline import expectations
from sightline.agreement import Agreement
from sightline.config import RunConfig
from sightline.data import Pair
from sightline.errors import SightlineError
from sightline.files import make_folder
from sightline.folder import Tokenizers, save_config, save_tokenizers
from sightline.heads import taught_head
from sightline.models import build_model
from sightline.training.compiling import compile_layers
from sightline.writer import Writer

FORWARD, BACKWARD = "forward", "backward"
# Keys of the data section that change places when source and target do.
TWINS = (
    ("source", "target"),
    ("valid_source", "valid_target"),
    ("source_language", "target_language"),
    ("source_script", "target_script"),
)


@dataclass(frozen=True, eq=False)
class Direction:
    """One model of a run; its `name` is empty where it is the only one."""

    name: str
    folder: Path
    config: RunConfig
    tokenizers: Tokenizers
    model: Writer

    @property
    def backward(self) -> bool:
        """Whether it translates from target to source."""
        return self.name == BACKWARD

    def pairs(self, texts: Sequence[Pair]) -> list[Pair]:
        """Pairs as this direction has them."""
        return [Pair(pair.target, pair.source) for pair in texts] if self.backward else [*texts]

    def lay_out(self, texts: Sequence[Pair]) -> None:
        """All of its folder that is known before training; `texts` are validation pairs of the run."""
        make_folder(self.folder)
        save_tokenizers(self.folder, self.tokenizers)
        expectations.save(self.folder, expectations.learn(self.pairs(texts)))
        save_config(self.folder, self.config)

    def own(self, scores: Mapping[str, float]) -> dict[str, float]:
        """Its own among the scores of a run."""
        prefix = f"{self.name}_" if self.name else ""
        return {name.removeprefix(prefix): value for name, value in scores.items() if name.startswith(prefix)}


def directions(config: RunConfig, tokenizers: Tokenizers, output: Path) -> list[Direction]:
    """The models that a run in the folder `output` trains; initial weights come from torch's random state."""
    if not config.training.agreement:
        return [Direction("", output, config, tokenizers, _build(config, tokenizers))]
    other = turned(config)
    swapped = replace(tokenizers, source=tokenizers.target, target=tokenizers.source)
    return [
        Direction(FORWARD, output / FORWARD, config, tokenizers, _build(config, tokenizers)),
        Direction(BACKWARD, output / BACKWARD, other, swapped, _build(other, swapped)),
    ]


def trained_together(models: Sequence[Writer], agreement: float) -> tuple[nn.Module, Mapping[str, float]]:
    """The module that is trained, and the weights of its losses."""
    if len(models) == 1:
        return models[0], models[0].loss_weights
    there, back = models
    both = Agreement(there, back, agreement)
    return both, both.loss_weights


def joint_scores(found: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """The scores of a run, by the names of its directions: of two the means, and each one's with its name before it."""
    if len(found) == 1:
        return dict(next(iter(found.values())))
    first, *others = found.values()
    shared = [name for name in first if all(name in scores for scores in others)]
    means = {name: sum(scores[name] for scores in found.values()) / len(found) for name in shared}
    means["perplexity"] = math.exp(min(means["loss"], 700.0))
    return means | {f"{name}_{key}": value for name, scores in found.items() for key, value in scores.items()}


def turned(config: RunConfig) -> RunConfig:
    """The configuration of the other direction. A file of pairs stays as it is, and so do the links."""
    values = config.model_dump()
    data = values["data"]
    for section in (data, data["filters"], *data["corpora"]):
        _turn(section)
    return RunConfig.model_validate(values)


def _turn(section: dict[str, Any]) -> None:
    for one, other in TWINS:
        if one in section:
            section[one], section[other] = section[other], section[one]


def _build(config: RunConfig, tokenizers: Tokenizers) -> Writer:
    try:
        model = build_model(config.model, tokenizers.sizes, config.training.label_smoothing)
    except RuntimeError:  # torch's, when it gets no memory
        raise SightlineError("the model does not fit in memory: choose smaller sizes in the model section") from None
    model.precision = torch.bfloat16 if config.training.precision == "bfloat16" else torch.float32
    if config.training.agreement:
        model.decoder.taught = taught_head(config.model)
    if config.training.compile:
        compile_layers(model)
    return model
