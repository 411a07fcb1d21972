"""From a Sightline Transformer to a CTranslate2 model, without torch.

Shapes: V entries of a vocabulary, d width, H heads, d_k = d / H.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from sightline.architecture import ModelConfig
from sightline.config import AlignmentConfig, RunConfig
from sightline.efficient import unusual
from sightline.errors import SightlineError
from sightline.files import failure, make_folder, write_bytes
from sightline.folder import ModelFiles, weights_file
from sightline.interop import weights as tensors
from sightline.interop.model_bin import Variable, quantise, serialise
from sightline.interop.shortlist import FILE as SHORTLIST
from sightline.interop.shortlist import Shortlist
from sightline.interop.weights import Array, Weights, number
from sightline.tokenizers import BOS, EOS, SPECIAL_PIECES, UNK, Tokenizer

VERSION = 1
"""Of what is written here: another number makes kept conversions be made again."""

MODEL, SETTINGS = "model.bin", "config.json"
# CTranslate2's numbers, and whether the feed-forward layer is gated.
ACTIVATIONS = {
    "relu": (0, False),
    "gelu_tanh": (1, False),
    "silu": (2, False),
    "gelu": (3, False),
    "geglu": (1, True),
    "swiglu": (2, True),
}
EPSILON = {"layer": 1e-5, "rms": 1e-6}


@dataclass(frozen=True)
class About:
    """What a converted model can do, kept in its `config.json`.

    `positions`: the longest sequence, end symbol included. `layer` and `head`: the weights that its attention output
    is read from (a head of None: the mean of all); both are None when that is none that was asked for. `shortlist`: the
    digest of its lexical shortlist, if it has one.
    """

    positions: int
    layer: int | None = None
    head: int | None = None
    shortlist: str | None = None

    def aligns(self, alignment: AlignmentConfig, layers: int) -> bool:
        """Whether its attention output is what `alignment` asks for, in a decoder of so many layers."""
        wanted = readable(alignment, layers)
        return wanted is not None and wanted == (self.layer, self.head)


def readable(alignment: AlignmentConfig, layers: int) -> tuple[int, int | None] | None:
    """The layer and head that CTranslate2 would have to read: it reads one layer, so a mean over several is None."""
    if alignment.layer is None:
        return (0, None) if layers == 1 and alignment.head is None else None
    return alignment.layer, alignment.head


def unsupported(config: ModelConfig) -> str | None:
    """What CTranslate2 cannot run of such a model, as in "it cannot run …"; None when it can."""
    if config.source_count > 1:
        return f"a model of several sources ({config.source_count})"
    if config.recipe == "seq2seq":
        return "a decoder without attention (seq2seq)"
    if not config.has_source:
        return f"a decoder without an encoder ({config.recipe})"
    if config.recipe != "transformer":
        return f"a recurrent decoder ({config.recipe})"
    if config.encoder.kind != "transformer":
        return f"an encoder that is no transformer ({config.encoder.kind})"
    if config.copies:
        return f"a model that copies ({config.copying.kind})"
    if config.lexicon.mode != "none":
        return "a model with a lexicon"
    return unusual(config)


def convert(
    files: ModelFiles, output: Path, quantization: str | None = None, shortlist: Shortlist | None = None
) -> None:
    """Writes the model into the folder `output` as CTranslate2 reads it.

    `quantization` is one of `model_bin.QUANTIZATIONS`; float32 by default. `shortlist` is what its searches will use.
    """
    content = converted(files, quantization, shortlist)
    make_folder(output)
    for name, data in content.items():
        write_bytes(output / name, data)


def converted(
    files: ModelFiles, quantization: str | None = None, shortlist: Shortlist | None = None
) -> dict[str, bytes]:
    """The files of the converted model by name."""
    model, path = files.config.model, weights_file(files.path)
    weights = tensors.complete(tensors.read(path), model, files.tokenizers.sizes, path)
    about = describe(files.config)
    lists: dict[str, bytes] = {}
    if shortlist is not None:
        lists[SHORTLIST] = shortlist.text(names(files.tokenizers.source), names(files.tokenizers.target)).encode()
        about = replace(about, shortlist=hashlib.sha256(lists[SHORTLIST]).hexdigest())
    variables = quantise(make_variables(model, weights, about), quantization or "float32")
    sides = _vocabularies(names(files.tokenizers.source), names(files.tokenizers.target))
    vocabularies = {name: json.dumps(entries, indent=0).encode() for name, entries in sides.items()}
    return {MODEL: serialise(variables), SETTINGS: _settings(model, about), **vocabularies, **lists}


def describe(config: RunConfig) -> About:
    """What the conversion of a model with this configuration will be able to do."""
    model = config.model
    positions = model.max_positions if model.positions == "learned" else tensors.positions_needed(config)
    layers, heads = number(model.decoder.layers), number(model.decoder.heads)
    wanted = readable(config.alignment, layers)
    if wanted is None or wanted[0] >= layers or (wanted[1] or 0) >= heads:
        return About(positions)
    return About(positions, *wanted)


def read_about(settings: bytes) -> About | None:
    """What `config.json` tells of a converted model; None when Sightline did not write it."""
    try:
        return About(**json.loads(settings)["sightline"])
    except (ValueError, KeyError, TypeError):
        return None


def names(tokenizer: Tokenizer) -> list[str]:
    """What CTranslate2 calls each entry: its piece, with a number after it where an earlier entry looks the same."""
    found: dict[str, None] = {}
    for id in range(tokenizer.size):
        piece = name = tokenizer.piece(id)
        count = 1
        while name in found:
            count += 1
            name = f"{piece}#{count}"
        found[name] = None
    return list(found)


def _vocabularies(source: list[str], target: list[str]) -> dict[str, list[str]]:
    """The names of the entries, by the files that CTranslate2 has for them."""
    sides = {"shared": source} if source == target else {"source": source, "target": target}
    return {f"{side}_vocabulary.json": entries for side, entries in sides.items()}


def check_vocabularies(folder: Path, source: list[str], target: list[str]) -> None:
    """Refuses a converted model whose lists are not these: CTranslate2 takes them, and fails when it translates."""
    for name, entries in _vocabularies(source, target).items():
        path = folder / name
        try:
            found = json.loads(path.read_bytes())
        except OSError as error:
            raise SightlineError(f"{path}: {failure(error, 'read')}") from None
        except (ValueError, RecursionError):
            found = None
        if found != entries:
            raise SightlineError(f"{path}: not the vocabulary of this model, or damaged: export the model again")


def _settings(model: ModelConfig, about: About) -> bytes:
    special = {"unk_token": UNK, "bos_token": BOS, "eos_token": EOS, "decoder_start_token": BOS}
    values: dict[str, Any] = {name: SPECIAL_PIECES[id] for name, id in special.items()}
    # Whoever translates writes the source's end symbol, and so gets its column of the attention.
    values |= {"add_source_bos": False, "add_source_eos": False}
    values |= {"layer_norm_epsilon": EPSILON[model.norm], "multi_query_attention": False, "sightline": asdict(about)}
    return json.dumps(values, indent=2).encode()


def make_variables(config: ModelConfig, weights: Weights, about: About) -> dict[str, Variable | str]:
    """CTranslate2's variables, by the names of its `TransformerSpec`."""
    aligned = _first_head(weights, about, number(config.decoder.heads))
    activation, gated = ACTIVATIONS[config.activation]
    found: dict[str, Variable | str] = {}
    for part, side, embedding in (("encoder", "source", "embeddings_0"), ("decoder", "target", "embeddings")):
        heads = config.encoder.heads if part == "encoder" else config.decoder.heads
        found |= {
            f"{part}/num_heads": np.int16(number(heads)),
            f"{part}/pre_norm": np.int8(config.norm_position == "pre"),
            f"{part}/activation": np.int8(activation),
            f"{part}/scale_embeddings": np.int8(1),
            f"{part}/{embedding}/weight": weights[f"{side}_embedding.weight"],
            f"{part}/position_encodings/encodings": _positions(config, weights, side, about.positions),
        }
        if config.norm_position == "pre":
            found |= _norm(f"{part}/layer_norm", aligned, f"{part}.norm")
    for part, layer, name in tensors.layer_names(config):
        found |= _layer(f"{part}/layer_{layer}", aligned, name, gated)
    found |= {
        "encoder/embeddings_merge": np.int8(0),
        "decoder/alignment_layer": np.int16(-1 if about.layer is None else about.layer),
        # The first so many heads are averaged; 0 stands for all.
        "decoder/alignment_heads": np.int16(0 if about.layer is not None and about.head is None else 1),
        "decoder/projection/weight": weights["output.weight"],
        "decoder/projection/bias": weights["output.bias"],
    }
    return _shared(found)


def _first_head(weights: Weights, about: About, heads: int) -> Weights:
    """The weights with the chosen head as the first of its layer, which changes nothing else.

    Queries, keys and values `(3d, d)` are `(3, H, d_k, d)`, the output's `(d, d)` is `(d, H, d_k)`.
    """
    if about.layer is None or not about.head:
        return weights
    order = head_order(about.head, heads)
    name = f"decoder.layers.{about.layer}.cross"

    def sorted_rows(values: Array) -> Array:
        return values.reshape(3, heads, -1, *values.shape[1:])[:, order].reshape(values.shape)

    output = weights[f"{name}.output.weight"]
    return weights | {
        f"{name}.weight": sorted_rows(weights[f"{name}.weight"]),
        f"{name}.bias": sorted_rows(weights[f"{name}.bias"]),
        f"{name}.output.weight": output.reshape(len(output), heads, -1)[:, order].reshape(output.shape),
    }


def head_order(head: int, heads: int) -> list[int]:
    """The heads of a layer with the chosen one first."""
    return [head, *(other for other in range(heads) if other != head)]


def _positions(config: ModelConfig, weights: Weights, side: str, count: int) -> Array:
    """What is added to the embeddings; a model without positions gets zeros, since CTranslate2 always adds some."""
    if config.positions == "learned":
        return weights[f"{side}_embedding.positions.table"]
    width = number(config.embedding)
    if config.positions == "none":
        return np.zeros((count, width), np.float32)
    return tensors.sinusoids(count, width)


def _layer(scope: str, weights: Weights, name: str, gated: bool) -> dict[str, Variable | str]:
    found: dict[str, Variable | str] = {}
    found |= _linear(f"{scope}/self_attention/linear_0", weights, f"{name}.self_attention")
    found |= _linear(f"{scope}/self_attention/linear_1", weights, f"{name}.self_attention.output")
    found |= _norm(f"{scope}/self_attention/layer_norm", weights, f"{name}.around_attention.norm")
    if f"{name}.cross.weight" in weights:
        width = weights[f"{name}.cross.weight"].shape[1]
        for linear, rows in (("linear_0", slice(width)), ("linear_1", slice(width, None))):
            found |= _linear(f"{scope}/attention/{linear}", weights, f"{name}.cross", rows)
        found |= _linear(f"{scope}/attention/linear_2", weights, f"{name}.cross.output")
        found |= _norm(f"{scope}/attention/layer_norm", weights, f"{name}.around_cross.norm")
    inner = len(weights[f"{name}.feedforward.inner.bias"]) // (2 if gated else 1)
    found |= _linear(f"{scope}/ffn/linear_0", weights, f"{name}.feedforward.inner", slice(inner))
    if gated:
        found |= _linear(f"{scope}/ffn/linear_0_noact", weights, f"{name}.feedforward.inner", slice(inner, None))
    found |= _linear(f"{scope}/ffn/linear_1", weights, f"{name}.feedforward.outer")
    found |= _norm(f"{scope}/ffn/layer_norm", weights, f"{name}.around_feedforward.norm")
    return found


def _linear(scope: str, weights: Weights, name: str, rows: slice = slice(None)) -> dict[str, Variable | str]:
    return {f"{scope}/weight": weights[f"{name}.weight"][rows], f"{scope}/bias": weights[f"{name}.bias"][rows]}


def _norm(scope: str, weights: Weights, name: str) -> dict[str, Variable | str]:
    found: dict[str, Variable | str] = {f"{scope}/gamma": weights[f"{name}.weight"]}
    if f"{name}.bias" in weights:
        found[f"{scope}/beta"] = weights[f"{name}.bias"]
    return found


def _shared(variables: dict[str, Variable | str]) -> dict[str, Variable | str]:
    """Large arrays that are equal are kept once: tied embeddings, and the sinusoids of both sides."""
    groups = (
        ["decoder/embeddings/weight", "decoder/projection/weight", "encoder/embeddings_0/weight"],
        ["decoder/position_encodings/encodings", "encoder/position_encodings/encodings"],
    )
    result = dict(variables)
    for first, *others in groups:
        for name in others:
            if np.array_equal(np.asarray(variables[first]), np.asarray(variables[name])):
                result[name] = first
    return result
