"""Folders of Hugging Face's MarianMT: written from a Sightline model, and read back into one.

config.json, generation_config.json   settings
model.safetensors                     weights
source.spm, target.spm, vocab.json, tokenizer_config.json   the tokenizer, where ours is sentencepiece
sightline.json                        what `sightline import` needs beyond them
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from sightline.config import RunConfig, build_config
from sightline.errors import SightlineError
from sightline.files import make_folder, write_bytes, write_text
from sightline.folder import (
    CARD,
    WEIGHTS,
    ModelFiles,
    Tokenizers,
    load_tokenizers,
    save_config,
    save_tokenizers,
    weights_file,
)
from sightline.interop import ctranslate2, marian
from sightline.interop import weights as tensors
from sightline.text import (
    BOS,
    EOS,
    PAD,
    UNK,
    SubwordTokenizer,
    read_subwords,
    tokenizer_file,
)
from sightline.tokenizers import SPECIAL_PIECES, MarianTokenizer

SETTINGS, GENERATION, OWN = "config.json", "generation_config.json", "sightline.json"
VOCABULARY, TOKENIZER = "vocab.json", "tokenizer_config.json"
SPM = ("source.spm", "target.spm")
PICKLE = "pytorch_model.bin"
# A second normalizer_spec, which protocol buffers lay over the first: add_dummy_prefix and remove_extra_whitespaces are
# on. We put the space before a word ourselves; whoever gives sentencepiece a whole sentence needs it to.
WHOLE_SENTENCES = b"\x1a\x04\x18\x01\x20\x01"


def export(files: ModelFiles, output: Path) -> None:
    """Writes a model as a folder that `MarianMTModel.from_pretrained` loads, with equal logits."""
    from safetensors.numpy import save

    config = files.config
    reason = marian.unsupported(config.model)
    if reason is not None:
        other = "" if ctranslate2.unsupported(config.model) else "; --to ctranslate2 may do"
        raise SightlineError(f"{files.path}: MarianMT cannot express {reason}{other}")
    tokenizer = files.tokenizers.target
    path = weights_file(files.path)
    weights = tensors.complete(tensors.read(path), config.model, files.tokenizers.sizes, path)
    make_folder(output)
    _write_json(output / SETTINGS, marian.to_settings(config, tokenizer.size))
    _write_json(output / GENERATION, marian.to_generation(config))
    _write_json(output / OWN, config.model_dump(mode="json", include={"text", "search", "alignment"}))
    write_bytes(output / WEIGHTS, save(marian.to_marian(weights, config.model), {"format": "pt"}))
    _write_tokenizer(files.tokenizers, config, output)


def _write_json(path: Path, values: Any) -> None:
    write_text(path, f"{json.dumps(values, indent=2, ensure_ascii=False)}\n")


def _write_tokenizer(tokenizers: Tokenizers, config: RunConfig, output: Path) -> None:
    """Their tokenizer if ours is sentencepiece; else our own file, for the way back."""
    tokenizer = tokenizers.target
    if not isinstance(tokenizer, SubwordTokenizer):
        save_tokenizers(output, tokenizers)
        return
    for name in SPM:
        write_bytes(output / name, tokenizer.content() + WHOLE_SENTENCES)
    _write_json(output / VOCABULARY, {tokenizer.piece(id): id for id in range(tokenizer.size)})
    special = {"pad_token": PAD, "unk_token": UNK, "eos_token": EOS}
    values = {
        "tokenizer_class": "MarianTokenizer",
        "source_lang": config.data.source_language,
        "target_lang": config.data.target_language,
        "model_max_length": config.search.max_source,
        **{name: SPECIAL_PIECES[id] for name, id in special.items()},
    }
    _write_json(output / TOKENIZER, values)


def import_marian(folder: Path, output: Path) -> RunConfig:
    """Makes a Sightline model folder of a MarianMT one, with equal logits; its configuration."""
    if not (folder / SETTINGS).is_file():
        raise SightlineError(f"{folder}: not a MarianMT folder: it has no {SETTINGS}")
    if (output / WEIGHTS).exists():
        raise SightlineError(f"{output}: holds a model already; choose another folder")
    settings = _read_object(folder / SETTINGS)
    model = marian.from_settings(settings, str(folder / SETTINGS))
    theirs = tensors.read(_find_weights(folder))
    marian.check_embedding(theirs, settings, str(folder / WEIGHTS))
    entries: list[int | None]
    if (folder / OWN).is_file():
        config = build_config({**_read_object(folder / OWN), "model": model}, "transformer", str(folder / OWN))
        tokenizers = _own_tokenizers(folder, config, settings["vocab_size"])
        entries = list(range(settings["vocab_size"]))
    else:
        config, tokenizers, entries = _foreign(folder, settings, model)
    weights = marian.from_marian(theirs, config.model, entries, str(folder / WEIGHTS))
    weights = tensors.complete(weights, config.model, tokenizers.sizes, folder / WEIGHTS)
    make_folder(output)
    save_tokenizers(output, tokenizers)
    save_config(output, config)
    tensors.write(weights, config.model, output / WEIGHTS)
    write_text(output / CARD, _card(folder, weights))
    return config


def _read_object(path: Path) -> dict[str, Any]:
    """The names and values of a JSON file."""
    try:
        values = json.loads(path.read_bytes())
    except OSError as error:
        raise SightlineError(f"{path}: cannot read: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise SightlineError(f"{path}: not valid JSON") from None
    if not isinstance(values, dict):
        raise SightlineError(f"{path}: not a JSON object of names and values: copy the file again")
    return values


def _find_weights(folder: Path) -> Path:
    weights = folder / WEIGHTS
    if not weights.is_file():
        what = f"only {PICKLE}, a pickle, which can run code" if (folder / PICKLE).is_file() else f"no {WEIGHTS}"
        raise SightlineError(
            f"{folder}: {what}; where you trust it, save it as safetensors with transformers: "
            f"MarianMTModel.from_pretrained({str(folder)!r}).save_pretrained(NEW), and import NEW"
        )
    return weights


def _own_tokenizers(folder: Path, config: RunConfig, size: int) -> Tokenizers:
    """The tokenizers of a model that Sightline exported with so many entries."""
    path = tokenizer_file(folder, "joint" if config.text.joint else "target", config.text)
    if path.suffix == SubwordTokenizer.suffix:
        path = folder / SPM[0]
        tokenizer = read_subwords(path, _read_spm(path).removesuffix(WHOLE_SENTENCES), config.text)
        found = Tokenizers(tokenizer, tokenizer)
    else:
        found = load_tokenizers(folder, config)
    if found.target.size != size:
        raise SightlineError(f"{path}: has {found.target.size:,} entries, but vocab_size in {SETTINGS} is {size:,}")
    return found


def _foreign(
    folder: Path, settings: dict[str, Any], model: dict[str, Any]
) -> tuple[RunConfig, Tokenizers, list[int | None]]:
    """Configuration, tokenizers, and for each entry of our vocabulary its number in theirs.

    Ours begins with padding, unknown, start and end. Theirs has them anywhere, and often starts with padding: then our
    padding is an entry of its own that is never expected.
    """
    vocabulary = _read_object(folder / VOCABULARY)
    if not all(type(number) is int for number in vocabulary.values()):
        raise SightlineError(f"{folder / VOCABULARY}: every entry must have a whole number")
    if (folder / "target_vocab.json").is_file():
        raise SightlineError(f"{folder}: has a vocabulary for each side; only models with one can be imported")
    pieces = {number: piece for piece, number in vocabulary.items()}
    where, size = f"{folder / SETTINGS}", settings["vocab_size"]
    pad, start, end = (settings.get(f"{name}_id") for name in ("pad_token", "decoder_start_token", "eos_token"))
    unknown = vocabulary.get("<unk>")
    if not all(type(number) is int and 0 <= number < size for number in (pad, unknown, start, end)):
        raise SightlineError(f"{where}: padding, start, end and '<unk>' must have numbers below vocab_size, {size:,}")
    special = {PAD: None if pad == start else pad, UNK: unknown, BOS: start, EOS: end}
    rest = [number for number in range(size) if number not in (pad, unknown, start, end)]
    entries = [special[id] for id in range(len(special))] + rest
    names = [pieces.get(number, f"<unused{number}>") for number in rest]
    source, target = (_read_marian(folder / name, names) for name in SPM)
    joint = source.content() == target.content()
    config = build_config({"text": {"tokenizer": "marian", "joint": joint}, "model": model}, "transformer", where)
    return config, Tokenizers(source, source if joint else target), entries


def _read_marian(path: Path, entries: list[str]) -> MarianTokenizer:
    model = _read_spm(path)
    try:
        return MarianTokenizer(entries, model, "none", False)
    except RuntimeError:
        raise SightlineError(f"{path}: not a sentencepiece model, or a damaged one") from None


def _read_spm(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise SightlineError(f"{path}: cannot read the tokenizer: {error.strerror}") from None


def _card(folder: Path, weights: tensors.Weights) -> str:
    unique = {id(value): value for value in weights.values()}
    count = sum(int(np.prod(value.shape)) for value in unique.values())
    return (
        f"# A transformer model, imported\n\nMade by `sightline import` of the MarianMT folder `{folder.name}`: "
        f"{count:,} parameters.\nIts own card tells data, scores and licence, which hold for this copy too.\n\n"
        '## Use\n\n```\necho "a sentence" | sightline translate FOLDER\n```\n'
    )
