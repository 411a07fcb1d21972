"""To and from Hugging Face's MarianMT: weights and settings.

MarianMT is the original Transformer: normalisation after each sublayer, sinusoids, one vocabulary. Its sinusoids have
the sines in the first half of the width and the cosines in the second, ours take turns, so the width is put in another
order wherever it occurs.
Shapes: V entries of a vocabulary, d width.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from sightline.architecture import ModelConfig
from sightline.config import RunConfig
from sightline.efficient import unusual
from sightline.errors import SightlineError
from sightline.interop.weights import OTHER_CONFIG, Array, Weights, layer_names, number, positions_needed, shapes
from sightline.text import BOS, EOS, PAD, Sizes

# Ours to theirs; of several names for one function the first is written, all are read.
ACTIVATIONS = {
    "relu": ("relu",),
    "gelu": ("gelu",),
    "gelu_tanh": ("gelu_pytorch_tanh", "gelu_new"),
    "silu": ("swish", "silu"),
}
# Of several names for the one matrix of embeddings, the first that is there counts.
EMBEDDING = ("model.shared.weight", "model.encoder.embed_tokens.weight", "lm_head.weight")
# A logit that no softmax sees.
NEVER = np.float32(-1e9)


class Tensor(NamedTuple):
    """One of their tensors: which part of ours it is (of so many along the first axis), and its axes of width d."""

    theirs: str
    ours: str
    part: int
    parts: int
    axes: tuple[int, ...]


def unsupported(config: ModelConfig) -> str | None:
    """What MarianMT cannot express of such a model; None when it can."""
    if config.source_count > 1:
        return f"a model of several sources (model.sources.count={config.source_count})"
    if not config.has_source:
        return f"a decoder without an encoder ({config.recipe})"
    if config.recipe != "transformer" or config.encoder.kind != "transformer":
        return f"a {config.recipe} decoder with a {config.encoder.kind} encoder"
    if config.copies:
        return f"a model that copies (model.copying.kind={config.copying.kind})"
    if config.lexicon.mode != "none":
        return f"a model with a lexicon (model.lexicon.mode={config.lexicon.mode})"
    if config.norm_position != "post":
        return "layers that normalise before a sublayer (model.norm_position=pre)"
    if config.norm != "layer":
        return f"{config.norm} normalisation (model.norm={config.norm})"
    if config.positions != "sinusoidal":
        return f"{config.positions} positions (model.positions={config.positions})"
    if config.activation not in ACTIVATIONS:
        return f"a gated feed-forward layer (model.activation={config.activation})"
    if config.tie != "all":
        return f"embeddings that are not all tied (model.tie={config.tie})"
    return unusual(config)


def correspondence(config: ModelConfig) -> Iterator[Tensor]:
    """Every tensor of the layers."""
    for part, layer, name in layer_names(config):
        scope = f"model.{part}.layers.{layer}"
        attentions = [("self_attention", "self_attn", "around_attention")]
        if part == "decoder":
            attentions.append(("cross", "encoder_attn", "around_cross"))
        for ours, theirs, around in attentions:
            for place, projection in enumerate("qkv"):
                yield Tensor(f"{scope}.{theirs}.{projection}_proj.weight", f"{name}.{ours}.weight", place, 3, (1,))
                yield Tensor(f"{scope}.{theirs}.{projection}_proj.bias", f"{name}.{ours}.bias", place, 3, ())
            yield from _both(f"{scope}.{theirs}.out_proj", f"{name}.{ours}.output", (0,), (0,))
            yield from _both(f"{scope}.{theirs}_layer_norm", f"{name}.{around}.norm", (0,), (0,))
        yield from _both(f"{scope}.fc1", f"{name}.feedforward.inner", (1,), ())
        yield from _both(f"{scope}.fc2", f"{name}.feedforward.outer", (0,), (0,))
        yield from _both(f"{scope}.final_layer_norm", f"{name}.around_feedforward.norm", (0,), (0,))


def _both(theirs: str, ours: str, weight: tuple[int, ...], bias: tuple[int, ...]) -> Iterator[Tensor]:
    yield Tensor(f"{theirs}.weight", f"{ours}.weight", 0, 1, weight)
    yield Tensor(f"{theirs}.bias", f"{ours}.bias", 0, 1, bias)


def halves(width: int) -> Array:
    """`(d,)`: for each of their columns, ours: the even ones, which have sines, then the odd ones."""
    return np.concatenate([np.arange(0, width, 2), np.arange(1, width, 2)])


def to_marian(weights: Weights, config: ModelConfig) -> Weights:
    """Their weights from ours."""
    order = halves(number(config.embedding))
    found = {
        "model.shared.weight": weights["target_embedding.weight"][:, order],
        "final_logits_bias": weights["output.bias"][None],
    }
    for tensor in correspondence(config):
        value = np.split(weights[tensor.ours], tensor.parts)[tensor.part]
        found[tensor.theirs] = _reordered(value, tensor.axes, order)
    return {name: np.ascontiguousarray(value, np.float32) for name, value in found.items()}


def from_marian(theirs: Weights, config: ModelConfig, entries: list[int | None], where: str) -> Weights:
    """Our weights from theirs; `entries` has their number of each entry of our vocabulary, None for one of its own.

    `check_embedding` has been called: the entries are rows of the embedding.
    """
    order = np.argsort(halves(number(config.embedding)))
    _, embedding = _get(theirs, EMBEDDING, where)
    for name in ("model.decoder.embed_tokens.weight", "lm_head.weight"):
        if name in theirs and not np.array_equal(theirs[name], embedding):
            raise SightlineError(f"{where}: {name} is another matrix than the source embedding: all must be one")
    bias = theirs.get("final_logits_bias", np.zeros((1, len(embedding)), np.float32))
    _check_shape("final_logits_bias", bias, (1, len(embedding)), where)
    rows = np.array([0 if entry is None else entry for entry in entries])
    own = np.array([entry is None for entry in entries])
    table = np.where(own[:, None], 0, embedding[rows][:, order]).astype(np.float32)
    found: Weights = dict.fromkeys(("source_embedding.weight", "target_embedding.weight", "output.weight"), table)
    found["output.bias"] = np.where(own, NEVER, bias[0, rows]).astype(np.float32)
    values = [(tensor, _get(theirs, [tensor.theirs], where)[1]) for tensor in correspondence(config)]
    wanted = shapes(config, Sizes(len(entries), len(entries), True))
    collected: dict[str, list[Array]] = {}
    for tensor, value in values:
        height, *others = wanted[tensor.ours]
        _check_shape(tensor.theirs, value, (height // tensor.parts, *others), where)
        collected.setdefault(tensor.ours, []).append(_reordered(value.astype(np.float32), tensor.axes, order))
    return found | {name: np.concatenate(parts) for name, parts in collected.items()}


def check_embedding(theirs: Weights, settings: dict[str, Any], where: str) -> None:
    """Refuses weights whose embedding is not of the size that their `config.json` tells."""
    name, embedding = _get(theirs, EMBEDDING, where)
    _check_shape(name, embedding, (settings["vocab_size"], settings["d_model"]), where)


def _get(theirs: Weights, names: Sequence[str], where: str) -> tuple[str, Array]:
    """The first of the tensors that is there, with its name."""
    for name in names:
        if name in theirs:
            return name, theirs[name]
    raise SightlineError(f"{where}: {names[0]} is missing: not the weights of a MarianMT model, or not all of them")


def _check_shape(name: str, value: Array, wanted: tuple[int, ...], where: str) -> None:
    if value.shape != wanted:
        raise SightlineError(f"{where}: shape of {name} is {value.shape}, expected {wanted}: {OTHER_CONFIG}")


def _reordered(value: Array, axes: tuple[int, ...], order: Array) -> Array:
    for axis in axes:
        value = np.take(value, order, axis)
    return value


def to_settings(config: RunConfig, size: int) -> dict[str, Any]:
    """What their `config.json` holds."""
    model = config.model
    return {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "is_encoder_decoder": True,
        "vocab_size": size,
        "decoder_vocab_size": size,
        "d_model": number(model.embedding),
        "encoder_layers": number(model.encoder.layers),
        "decoder_layers": number(model.decoder.layers),
        "encoder_attention_heads": number(model.encoder.heads),
        "decoder_attention_heads": number(model.decoder.heads),
        "encoder_ffn_dim": number(model.encoder.feedforward),
        "decoder_ffn_dim": number(model.decoder.feedforward),
        "activation_function": ACTIVATIONS[model.activation][0],
        "dropout": model.dropout,
        "attention_dropout": model.attention_dropout,
        "activation_dropout": model.activation_dropout,
        "max_position_embeddings": positions_needed(config),
        "scale_embedding": True,
        "static_position_embeddings": True,
        "normalize_before": False,
        "share_encoder_decoder_embeddings": True,
        "tie_word_embeddings": True,
        **special_ids(),
        "torch_dtype": "float32",
    }


def special_ids() -> dict[str, int | None]:
    """The special symbols as both of their files of settings name them."""
    return {
        "pad_token_id": PAD,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "decoder_start_token_id": BOS,
        "forced_eos_token_id": None,
    }


def to_generation(config: RunConfig) -> dict[str, Any]:
    """What their `generation_config.json` holds: a search as near to ours as theirs comes."""
    search = config.search
    alpha = search.alpha if search.length_penalty == "average" else 0.0
    return {
        **special_ids(),
        "num_beams": search.beam,
        "length_penalty": alpha,
        "early_stopping": True,
        "max_length": min(512, positions_needed(config)),
        "suppress_tokens": [PAD, BOS],
    }


def from_settings(settings: dict[str, Any], where: str) -> dict[str, Any]:
    """The `model` section of our configuration from their `config.json`, or an error that says what does not fit."""
    if settings.get("model_type") != "marian":
        raise SightlineError(f"{where}: model_type is {settings.get('model_type')!r}; only 'marian' can be imported")
    for name, wanted in (
        ("normalize_before", False),
        ("normalize_embedding", False),
        ("add_final_layer_norm", False),
        ("scale_embedding", True),
        ("static_position_embeddings", True),
        ("share_encoder_decoder_embeddings", True),
        ("tie_word_embeddings", True),
    ):
        default = name != "scale_embedding" and wanted
        if bool(settings.get(name, default)) != wanted:
            raise SightlineError(f"{where}: {name} is {not wanted}; only models with {wanted} can be imported")
    activation = settings.get("activation_function", "gelu")
    ours = next((name for name, theirs in ACTIVATIONS.items() if activation in theirs), None)
    if ours is None:
        raise SightlineError(f"{where}: activation_function is {activation!r}, which Sightline does not have")
    names = {"layers": "layers", "heads": "attention_heads", "feedforward": "ffn_dim"}
    parts = {
        part: {name: _size(settings, f"{part}_{theirs}", where) for name, theirs in names.items()}
        for part in ("encoder", "decoder")
    }
    _size(settings, "vocab_size", where)
    values = {"embedding": _size(settings, "d_model", where), "activation": ours, **parts}
    kept: tuple[str, ...] = ("dropout", "attention_dropout", "activation_dropout")
    dropout = {name: settings[name] for name in kept if name in settings}
    return {**values, **dropout, "tie": "all", "norm_position": "post", "positions": "sinusoidal"}


def _size(settings: dict[str, Any], name: str, where: str) -> int:
    """One of the sizes in their settings."""
    if name not in settings:
        raise SightlineError(f"{where}: {name!r} is missing")
    value = settings[name]
    if type(value) is not int or value < 1:
        raise SightlineError(f"{where}: {name} is {value!r}; it must be a whole number above 0")
    return value
