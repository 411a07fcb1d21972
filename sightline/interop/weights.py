"""A Transformer's weights as numpy arrays by name: read, checked and written without torch.

Shapes: V entries of a vocabulary, d width, f inner width of the feed-forward layer, P positions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError

from sightline.architecture import ModelConfig
from sightline.config import RunConfig
from sightline.errors import SightlineError
from sightline.files import write_bytes
from sightline.text import Sizes

Array = NDArray[Any]
Weights = dict[str, Array]

GATED = ("geglu", "swiglu")
OTHER_CONFIG = "the weights belong to another config"


def number(value: int | None) -> int:
    """A size that a trained model's configuration has."""
    if value is None:
        raise SightlineError("the configuration leaves a size of the model open (null): it is not a trained model's")
    return value


def shapes(config: ModelConfig, sizes: Sizes) -> dict[str, tuple[int, ...]]:
    """Every tensor of a Transformer by its name in `model.safetensors`, tied ones under each of their names."""
    width = number(config.embedding)
    found: dict[str, tuple[int, ...]] = {
        "source_embedding.weight": (sizes.source, width),
        "target_embedding.weight": (sizes.target, width),
        "output.weight": (sizes.target, width),
        "output.bias": (sizes.target,),
    }
    if config.positions == "learned":
        found |= {f"{side}_embedding.positions.table": (config.max_positions, width) for side in ("source", "target")}
    if config.norm_position == "pre":
        found |= _norm("encoder.norm", config) | _norm("decoder.norm", config)
    for part, layers, inner, attentions in (
        ("encoder", config.encoder.layers, config.encoder.feedforward, ("attention",)),
        ("decoder", config.decoder.layers, config.decoder.feedforward, ("attention", "cross")),
    ):
        for layer in range(number(layers)):
            name = f"{part}.layers.{layer}"
            for attention in attentions:
                module = "cross" if attention == "cross" else "self_attention"
                found |= {f"{name}.{module}.weight": (3 * width, width), f"{name}.{module}.bias": (3 * width,)}
                found |= _linear(f"{name}.{module}.output", width, width)
                found |= _norm(f"{name}.around_{attention}.norm", config)
            opened = number(inner) * (2 if config.activation in GATED else 1)
            found |= _linear(f"{name}.feedforward.inner", width, opened)
            found |= _linear(f"{name}.feedforward.outer", number(inner), width)
            found |= _norm(f"{name}.around_feedforward.norm", config)
    return found


def _linear(name: str, inputs: int, outputs: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}


def _norm(name: str, config: ModelConfig) -> dict[str, tuple[int, ...]]:
    parts = ("weight", "bias") if config.norm == "layer" else ("weight",)
    return {f"{name}.{part}": (number(config.embedding),) for part in parts}


def tied(config: ModelConfig) -> list[list[str]]:
    """The names that stand for one tensor; it is kept under the first."""
    every = ["source_embedding.weight", "target_embedding.weight", "output.weight"]
    return {"all": [every], "output": [every[1:]], "none": []}[config.tie]


def read(path: Path) -> Weights:
    """The tensors of a safetensors file."""
    from safetensors.numpy import load

    try:
        return load(path.read_bytes())
    except OSError as error:
        raise SightlineError(f"{path}: cannot read: {error.strerror}") from None
    except SafetensorError:
        raise SightlineError(f"{path}: not a safetensors file, or cut short: copy it again") from None
    except (KeyError, TypeError):  # numpy knows no bfloat16
        raise SightlineError(f"{path}: holds numbers of a kind that numpy does not have; save it as float32") from None


def complete(loaded: Mapping[str, Array], config: ModelConfig, sizes: Sizes, path: Path) -> Weights:
    """All tensors of the model, tied ones under each name, after checking names and shapes; `path` is for errors."""
    wanted = shapes(config, sizes)
    for name, value in loaded.items():
        if name not in wanted:
            raise SightlineError(f"{path}: {name} is not part of the model: {OTHER_CONFIG}")
        if value.shape != wanted[name]:
            raise SightlineError(f"{path}: shape of {name} is {value.shape}, expected {wanted[name]}: {OTHER_CONFIG}")
    found = dict(loaded)
    for names in tied(config):
        holders = [name for name in names if name in found]
        if not holders:
            continue
        for name in holders[1:]:
            if not np.array_equal(found[name], found[holders[0]]):
                raise SightlineError(f"{path}: {holders[0]} and {name} differ, but the model ties them: {OTHER_CONFIG}")
        found |= dict.fromkeys(names, found[holders[0]])
    for name in wanted:
        if name not in found:
            raise SightlineError(f"{path}: {name} is missing: {OTHER_CONFIG}")
    return found


def write(weights: Weights, config: ModelConfig, path: Path) -> None:
    """Writes the weights as a Sightline model's, tied ones once."""
    from safetensors.numpy import save

    again = {name for names in tied(config) for name in names[1:]}
    kept = {name: np.ascontiguousarray(value, np.float32) for name, value in weights.items() if name not in again}
    write_bytes(path, save(kept))


def sinusoids(length: int, width: int) -> NDArray[np.float32]:
    """`(P, d)`: the same table as `sightline.positions.sinusoids`."""
    columns = np.arange(0, width, 2, dtype=np.float64)
    angle = np.arange(length, dtype=np.float64)[:, None] / 10000 ** (columns / width)
    table = np.zeros((length, width))
    table[:, 0::2] = np.sin(angle)
    table[:, 1::2] = np.cos(angle)[:, : width // 2]
    return table.astype(np.float32)


def positions_needed(config: RunConfig) -> int:
    """So many positions serve the longest source that is taken, and the longest translation of it."""
    search = config.search
    longest = search.max_source + 1
    return max(longest, int(search.max_ratio * longest + search.max_extra) + 1, search.min_length + 1)


def layer_names(config: ModelConfig) -> Iterator[tuple[str, int, str]]:
    """Encoder and decoder layers: part, number, and the beginning of its tensors' names."""
    for part, layers in (("encoder", config.encoder.layers), ("decoder", config.decoder.layers)):
        for layer in range(number(layers)):
            yield part, layer, f"{part}.layers.{layer}"
