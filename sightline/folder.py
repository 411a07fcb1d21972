"""A model is a folder: `config.yaml`, `model.safetensors`, its tokenizers' own files and `README.md`, the model card.

No pickle is ever read or written. Loading checks the format's version, every tensor's name and shape, and the
tokenizers' digests. Torch is imported only where weights are.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from sightline import __version__
from sightline.config import RunConfig, build_config, dump_yaml, read_yaml
from sightline.errors import SightlineError
from sightline.files import check_folder, sha256, write_text
from sightline.text import Sizes, Tokenizer, load_tokenizer, tokenizer_file

if TYPE_CHECKING:
    import torch

    from sightline.models import EncoderDecoder

FORMAT = 1
CONFIG, WEIGHTS, CARD = "config.yaml", "model.safetensors", "README.md"


@dataclass(frozen=True)
class Tokenizers:
    """One for each side; the same object where the vocabulary is joint."""

    source: Tokenizer
    target: Tokenizer

    @property
    def names(self) -> dict[str, Tokenizer]:
        """The tokenizers by the name of their file."""
        if self.source is self.target:
            return {"joint": self.source}
        return {"source": self.source, "target": self.target}

    @property
    def sizes(self) -> Sizes:
        """Vocabulary sizes, as the recipes want them."""
        return Sizes(self.source.size, self.target.size, self.source.same_entries(self.target))


@dataclass(frozen=True)
class ModelFiles:
    """A model folder without its weights: all that lies between text and token ids."""

    path: Path
    config: RunConfig
    tokenizers: Tokenizers


@dataclass(frozen=True)
class ModelFolder(ModelFiles):
    """A model with all it needs to be used."""

    model: EncoderDecoder


@dataclass(frozen=True)
class Card:
    """What the model card tells beyond the configuration."""

    data: list[str] = field(default_factory=list)
    scores: dict[str, str] = field(default_factory=dict)
    training: dict[str, str] = field(default_factory=dict)


def save_tokenizers(folder: Path, tokenizers: Tokenizers) -> None:
    """Writes the tokenizers' files."""
    for name, tokenizer in tokenizers.names.items():
        tokenizer.save(folder, name)


def load_tokenizers(folder: Path, config: RunConfig) -> Tokenizers:
    """Reads the tokenizers of a model folder."""
    if config.text.joint:
        joint = load_tokenizer(folder, "joint", config.text)
        return Tokenizers(joint, joint)
    return Tokenizers(load_tokenizer(folder, "source", config.text), load_tokenizer(folder, "target", config.text))


def _tokenizer_files(folder: Path, config: RunConfig) -> list[Path]:
    names = ["joint"] if config.text.joint else ["source", "target"]
    return [tokenizer_file(folder, name, config.text) for name in names]


def save_config(folder: Path, config: RunConfig) -> None:
    """Writes `config.yaml`, with the format's version and the digests of the tokenizers' files that lie there."""
    files = _tokenizer_files(folder, config)
    header = {
        "sightline": {
            "format": FORMAT,
            "version": __version__,
            "tokenizers": {file.name: sha256(file) for file in files},
        }
    }
    about = "# Written by Sightline. `sightline` tells what the files beside this one must be.\n"
    write_text(folder / CONFIG, about + yaml.safe_dump(header, sort_keys=False) + "\n" + dump_yaml(config))


def read_config(folder: Path) -> RunConfig:
    """Reads and checks `config.yaml`: the format's version and the tokenizers' digests."""
    if not folder.is_dir():
        what = "this is a file" if folder.exists() else "no such folder"
        raise SightlineError(f"{folder}: {what}; name a model folder, as `sightline train --output` makes one")
    path = folder / CONFIG
    if not path.is_file():
        below = sorted(path.parent for path in folder.glob(f"*/{CONFIG}"))
        found = f"; did you mean {' or '.join(map(str, below[:3]))}?" if below else ""
        raise SightlineError(f"{folder}: not a model folder: it has no {CONFIG}{found}")
    values = read_yaml(path)
    header = values.pop("sightline", None)
    if not isinstance(header, dict) or "format" not in header:
        raise SightlineError(f"{path}: not a Sightline model's configuration: its 'sightline' section is missing")
    if header["format"] != FORMAT:
        raise SightlineError(
            f"{path}: format {header['format']}, but this Sightline ({__version__}) reads format {FORMAT}: "
            f"use version {header.get('version', 'unknown')}, which wrote it"
        )
    config = build_config(values, where=str(path))
    digests = header.get("tokenizers")
    for file in _tokenizer_files(folder, config):
        if not file.is_file():
            raise SightlineError(f"{folder}: the tokenizer {file.name} is missing")
        if not isinstance(digests, dict) or sha256(file) != digests.get(file.name):
            raise SightlineError(f"{file}: not the tokenizer this model was trained with (its digest differs)")
    return config


def check_free(folder: Path) -> None:
    """Refuses a folder for a new run that holds another, or files that a run would write over."""
    from sightline.training.checkpoints import CHECKPOINTS, latest

    if folder.exists() and not folder.is_dir():
        raise SightlineError(f"{folder}: this is a file; name a folder for the model")
    check_folder(folder)
    if latest(folder / CHECKPOINTS) is not None or (folder / WEIGHTS).exists():
        raise SightlineError(f"{folder}: holds a run already; go on with --resume, or choose another --output")
    config = folder / CONFIG
    # A run that was broken off before its first checkpoint leaves its configuration, and is begun anew.
    if config.is_file() and isinstance(read_yaml(config).get("sightline"), dict):
        return
    for file in (config, folder / CARD):
        if file.exists():
            raise SightlineError(f"{file}: training would write over it; choose another --output")


def open_files(folder: Path) -> ModelFiles:
    """Reads a model folder but for its weights."""
    config = read_config(folder)
    return ModelFiles(folder, config, load_tokenizers(folder, config))


def weights_file(folder: Path) -> Path:
    """Where the weights lie, which must be there."""
    weights = folder / WEIGHTS
    if not weights.is_file():
        if (folder / "model.bin").is_file():
            raise SightlineError(
                f"{folder}: an export for CTranslate2 has no weights to look into: use the model itself"
            )
        if below := sorted(path.parent for path in folder.glob(f"*/{WEIGHTS}")):
            raise SightlineError(f"{folder}: a run of several models: name one of them, {' or '.join(map(str, below))}")
        raise SightlineError(
            f"{folder}: no {WEIGHTS} yet: training writes it at the first validation (go on with --resume)"
        )
    return weights


def load_folder(folder: Path, device: torch.device | None = None) -> ModelFolder:
    """Reads a model folder; the model comes in eval mode."""
    return load_model(open_files(folder), device)


def load_model(files: ModelFiles, device: torch.device | None = None) -> ModelFolder:
    """The same with its model, in eval mode."""
    from sightline.models import build_model
    from sightline.training.checkpoints import load_weights

    weights = weights_file(files.path)
    model = build_model(files.config.model, files.tokenizers.sizes)
    load_weights(model, weights)
    return ModelFolder(files.path, files.config, files.tokenizers, model.to(device or "cpu").eval())


def save_model(folder: Path, model: EncoderDecoder) -> None:
    """Writes the weights, whole or not at all."""
    from sightline.training.checkpoints import save_weights

    save_weights(model, folder / WEIGHTS)


def save_card(folder: Path, config: RunConfig, model: EncoderDecoder, tokenizers: Tokenizers, card: Card) -> None:
    """Writes `README.md`, the model card."""
    write_text(folder / CARD, card_text(config, model, tokenizers, card))


def card_text(config: RunConfig, model: EncoderDecoder, tokenizers: Tokenizers, card: Card) -> str:
    """The model card: what the model is, what it learnt from, how well, and how to use it."""
    from sightline.models import parameter_count

    sizes = tokenizers.sizes
    vocabulary = f"{sizes.source:,} (joint)" if sizes.joint else f"{sizes.source:,} and {sizes.target:,}"
    facts: dict[str, Any] = {
        "recipe": config.model.recipe,
        "parameters": f"{parameter_count(model):,}",
        "tokenizer": f"{config.text.tokenizer}, vocabulary {vocabulary}",
        **card.training,
    }
    lines = [
        f"# A {config.model.recipe} model",
        "",
        f"Made by Sightline {__version__}. It turns a source sentence into a target sentence, as in its training data,",
        "and was trained for nothing else.",
        "",
        *(f"- {name}: {value}" for name, value in facts.items()),
        "",
        "## Data",
        "",
        *(f"- {line}" for line in card.data or ["not recorded"]),
        "",
        "## Scores",
        "",
        *(f"- {name}: {value}" for name, value in (card.scores or {"none": "no validation has ended yet"}).items()),
        "",
        "## Licence",
        "",
        "The training data's licence may bind the weights too: whoever passes them on should name it here.",
        "",
        "## Use",
        "",
        "```",
        'echo "a sentence" | sightline translate FOLDER',
        "```",
        "",
    ]
    return "\n".join(lines)
