"""An export read back: the weights of a `model.bin` that Sightline wrote, as float32 under the model's own names.

What `ctranslate2.py` writes is undone step by step: matrices of whole numbers are divided by their scales, what was
divided is put together, and the head that was put first goes back to its place. No torch here.

Shapes: d width, H heads, d_k = d / H.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np

from sightline.architecture import ModelConfig
from sightline.errors import SightlineError
from sightline.files import failure
from sightline.folder import ModelFiles
from sightline.interop import weights as tensors
from sightline.interop.ctranslate2 import ACTIVATIONS, MODEL, About, head_order
from sightline.interop.kept import for_ctranslate2
from sightline.interop.model_bin import dequantise, parse
from sightline.interop.weights import Array, Weights, number

FOREIGN = (
    "not a file of weights that Sightline wrote, or a damaged one: the pytorch engine reads Sightline's own exports "
    "only (the ctranslate2 engine may read it)"
)


def exported_weights(files: ModelFiles) -> Weights:
    """All weights of an export, checked against its configuration."""
    path = files.path / MODEL
    _, about = for_ctranslate2(files)
    model = files.config.model
    try:
        found = own_names(_read(path), model, about)
    except (KeyError, ValueError, IndexError, struct.error):
        raise SightlineError(f"{path}: {FOREIGN}") from None
    return tensors.complete(found, model, files.tokenizers.sizes, path)


def _read(path: Path) -> dict[str, Array]:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise SightlineError(f"{path}: {failure(error, 'read')}") from None
    return dequantise(parse(content))


def own_names(variables: dict[str, Array], config: ModelConfig, about: About) -> Weights:
    """CTranslate2's variables under the names that `model.safetensors` has for them."""
    found: Weights = {
        "source_embedding.weight": variables["encoder/embeddings_0/weight"],
        "target_embedding.weight": variables["decoder/embeddings/weight"],
        "output.weight": variables["decoder/projection/weight"],
        "output.bias": variables["decoder/projection/bias"],
    }
    for part, side in (("encoder", "source"), ("decoder", "target")):
        if config.positions == "learned":
            found[f"{side}_embedding.positions.table"] = variables[f"{part}/position_encodings/encodings"]
        if config.norm_position == "pre":
            found |= _norm(f"{part}.norm", variables, f"{part}/layer_norm")
    _, gated = ACTIVATIONS[config.activation]
    for part, layer, name in tensors.layer_names(config):
        found |= _layer(name, variables, f"{part}/layer_{layer}", gated)
    return _own_order(found, about, number(config.decoder.heads))


def _own_order(weights: Weights, about: About, heads: int) -> Weights:
    """The weights with the chosen head back in its place: see `ctranslate2.head_order`."""
    if about.layer is None or not about.head:
        return weights
    back = np.argsort(head_order(about.head, heads)).tolist()
    name = f"decoder.layers.{about.layer}.cross"

    def rows(values: Array) -> Array:  # (3d, ...) is (3, H, d_k, ...)
        return values.reshape(3, heads, -1, *values.shape[1:])[:, back].reshape(values.shape)

    output = weights[f"{name}.output.weight"]  # (d, d) is (d, H, d_k)
    return weights | {
        f"{name}.weight": rows(weights[f"{name}.weight"]),
        f"{name}.bias": rows(weights[f"{name}.bias"]),
        f"{name}.output.weight": output.reshape(len(output), heads, -1)[:, back].reshape(output.shape),
    }


def _layer(name: str, variables: dict[str, Array], scope: str, gated: bool) -> Weights:
    attention = f"{scope}/self_attention"
    found = _linear(f"{name}.self_attention", variables, f"{attention}/linear_0")
    found |= _linear(f"{name}.self_attention.output", variables, f"{attention}/linear_1")
    found |= _norm(f"{name}.around_attention.norm", variables, f"{attention}/layer_norm")
    if name.startswith("decoder"):
        cross = f"{scope}/attention"
        found |= _linear(f"{name}.cross", variables, f"{cross}/linear_0", f"{cross}/linear_1")
        found |= _linear(f"{name}.cross.output", variables, f"{cross}/linear_2")
        found |= _norm(f"{name}.around_cross.norm", variables, f"{cross}/layer_norm")
    inner = [f"{scope}/ffn/linear_0", *([f"{scope}/ffn/linear_0_noact"] if gated else [])]
    found |= _linear(f"{name}.feedforward.inner", variables, *inner)
    found |= _linear(f"{name}.feedforward.outer", variables, f"{scope}/ffn/linear_1")
    return found | _norm(f"{name}.around_feedforward.norm", variables, f"{scope}/ffn/layer_norm")


def _linear(name: str, variables: dict[str, Any], *scopes: str) -> Weights:
    """One layer of ours, of the rows of one or more of theirs."""
    return {
        f"{name}.{part}": np.concatenate([variables[f"{scope}/{part}"] for scope in scopes])
        for part in ("weight", "bias")
    }


def _norm(name: str, variables: dict[str, Any], scope: str) -> Weights:
    found = {f"{name}.weight": variables[f"{scope}/gamma"]}
    if f"{scope}/beta" in variables:
        found[f"{name}.bias"] = variables[f"{scope}/beta"]
    return found
