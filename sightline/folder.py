"""A model is a folder: `config.yaml`, `model.safetensors`, its tokenizers' own files and `README.md`, the model card.

No pickle is ever read or written. Loading checks the format's version, every tensor's name and shape, and the
tokenizers' digests. Torch is imported only where weights are.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from sightline import __version__
from sightline.bundled_models import told_names
from sightline.config import RunConfig, build_config, dump_yaml, read_yaml
from sightline.errors import SightlineError
from sightline.files import check_folder, sha256, write_text
from sightline.source_texts import source_names, tokenizer_of
from sightline.text import Sizes, Tokenizer, WordTokenizer, load_tokenizer, tokenizer_file

if TYPE_CHECKING:
    import torch

    from sightline.lexicon import Lexicon
    from sightline.writer import Writer

FORMAT = 1
CONFIG, WEIGHTS, CARD, LEXICON = "config.yaml", "model.safetensors", "README.md", "lexicon.tsv"


@dataclass(frozen=True)
class Tokenizers:
    """One for each side; the same object where the vocabulary is joint. That of several sources has `parts`.

    With `copies`, for a model that copies source words; of a vocabulary of words these may be words it does not have.
    `lexicon`, in the tokenizers' ids, is for a model that looks words up. `marker` separates sentences.
    """

    source: Tokenizer
    target: Tokenizer
    copies: bool = False
    lexicon: Lexicon | None = None
    marker: str | None = None

    @property
    def names(self) -> dict[str, Tokenizer]:
        """The tokenizers by the name of their file."""
        parts = self.source.parts
        if all(part is self.target for part in parts):
            return {"joint": self.target}
        return {**dict(zip(source_names(len(parts)), parts, strict=True)), "target": self.target}

    @property
    def sizes(self) -> Sizes:
        """Vocabulary sizes, as the recipes want them."""
        joint = self.source.same_entries(self.target)
        same = () if joint or not self.copies else self.target.ids_of(self.source)
        # A word's first token may be the space before it.
        marker = None if self.marker is None else self.source.encode(self.marker)[-1]
        others = tuple(part.size for part in self.source.parts[1:])
        # Without the sentence marker, which the encoder must find.
        words = tuple(id for id in self.source.with_letters() if id != marker) if self.open else ()
        return Sizes(self.source.size, self.target.size, joint, same, self.open, words, self.lexicon, marker, others)

    @property
    def open(self) -> bool:
        """Whether a source sentence brings words of its own: see `sightline.open_words`."""
        return self.copies and isinstance(self.source.parts[0], WordTokenizer)

    def opened(self, source: str) -> Tokenizers:
        """The tokenizers for this source sentence and its translation."""
        if not self.open:
            return self
        from sightline.open_words import opened

        return Tokenizers(*opened(self.source, self.target, source))

    def id_limits(self, longest: int) -> tuple[int, int]:
        """No id is as large as these, of sources and of targets, in pairs of at most `longest` tokens a side."""
        parts = self.source.parts
        sizes = (max(part.size for part in parts), self.target.size)
        if not self.open:
            return sizes
        from sightline.open_words import id_limits

        return id_limits(sizes, longest * len(parts))


@dataclass(frozen=True)
class ModelFiles:
    """A model folder without its weights: all that lies between text and token ids."""

    path: Path
    config: RunConfig
    tokenizers: Tokenizers

    @property
    def writes_unknown(self) -> bool:
        """Whether `<unk>` is a token like others to the model; if not, it is neither learnt nor written."""
        return not self.tokenizers.open or self.config.model.copying.unknown


@dataclass(frozen=True)
class ModelFolder(ModelFiles):
    """A model with all it needs to be used."""

    model: Writer


@dataclass(frozen=True)
class Card:
    """What the model card tells beyond the configuration."""

    data: list[str] = field(default_factory=list)
    scores: dict[str, str] = field(default_factory=dict)
    training: dict[str, str] = field(default_factory=dict)


def save_tokenizers(folder: Path, tokenizers: Tokenizers) -> None:
    """Writes the tokenizers' files, and the lexicon's where there is one."""
    for name, tokenizer in tokenizers.names.items():
        tokenizer.save(folder, name)
    if tokenizers.lexicon is not None:
        write_text(folder / LEXICON, tokenizers.lexicon.text(tokenizers.source, tokenizers.target))


def load_tokenizers(folder: Path, config: RunConfig) -> Tokenizers:
    """Reads the tokenizers of a model folder, and its lexicon where it has one."""
    names = source_names(config.model.source_count)
    if config.text.joint:
        target = load_tokenizer(folder, "joint", config.text)
        sources = [target] * len(names)
    else:
        *sources, target = (load_tokenizer(folder, name, config.text) for name in (*names, "target"))
    source = tokenizer_of(sources)
    tokenizers = Tokenizers(source, target, config.model.copies, marker=config.text.sentence_marker)
    return with_lexicon(tokenizers, folder / LEXICON) if (folder / LEXICON).is_file() else tokenizers


def with_lexicon(tokenizers: Tokenizers, path: Path) -> Tokenizers:
    """The tokenizers and a lexicon from a file."""
    from sightline.lexicon import read_lexicon

    return replace(tokenizers, lexicon=read_lexicon(path, tokenizers.source, tokenizers.target))


def _tokenizer_files(folder: Path, config: RunConfig) -> list[Path]:
    names = ["joint"] if config.text.joint else [*source_names(config.model.source_count), "target"]
    lexicon = [] if config.model.lexicon.mode == "none" else [folder / LEXICON]
    return [*(tokenizer_file(folder, name, config.text) for name in names), *lexicon]


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
        named = "name a model folder, as `sightline train --output` makes one"
        raise SightlineError(f"{folder}: {what}; {named}{told_names(str(folder))}")
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
            what = "lexicon" if file.name == LEXICON else "tokenizer"
            raise SightlineError(f"{folder}: the {what} {file.name} is missing")
        if not isinstance(digests, dict) or sha256(file) != digests.get(file.name):
            what = "lexicon" if file.name == LEXICON else "tokenizer"
            raise SightlineError(f"{file}: not the {what} this model was trained with (its digest differs)")
    return config


def check_free(folder: Path) -> None:
    """Refuses a folder for a new run that holds another, or files that a run would write over."""
    from sightline.training.checkpoint_names import CHECKPOINTS, latest

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
                f"{folder}: an export for CTranslate2 has its weights rounded in model.bin: use the model itself"
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
    """The same with its model, in eval mode; an export's weights are those of its `model.bin`."""
    from sightline.interop.kept import is_export
    from sightline.models import build_model
    from sightline.training.checkpoints import fill_weights, load_weights

    model = build_model(files.config.model, files.tokenizers.sizes)
    if is_export(files.path):
        import torch

        from sightline.interop.exported import exported_weights

        weights = {name: torch.tensor(value) for name, value in exported_weights(files).items()}
        fill_weights(model, weights, files.path / "model.bin")
    else:
        load_weights(model, weights_file(files.path))
    return ModelFolder(files.path, files.config, files.tokenizers, model.to(device or "cpu").eval())


def save_model(folder: Path, model: Writer) -> None:
    """Writes the weights, whole or not at all."""
    from sightline.training.checkpoints import save_weights

    save_weights(model, folder / WEIGHTS)


def save_card(folder: Path, config: RunConfig, model: Writer, tokenizers: Tokenizers, card: Card) -> None:
    """Writes `README.md`, the model card."""
    write_text(folder / CARD, card_text(config, model, tokenizers, card))


def card_text(config: RunConfig, model: Writer, tokenizers: Tokenizers, card: Card) -> str:
    """The model card: what the model is, what it learnt from, how well, and how to use it."""
    from sightline.models import parameter_count

    sizes = tokenizers.sizes
    each = " and ".join(f"{size:,}" for size in (sizes.source, *sizes.others, sizes.target))
    vocabulary = f"{sizes.source:,} (joint)" if sizes.joint else each
    can, use = "It turns a source sentence into a target sentence", 'echo "a sentence" | sightline translate FOLDER'
    if sizes.others:
        count = 1 + len(sizes.others)
        can = f"It turns {count} source sentences, with tabs between them, into one target sentence"
        examples = "\\t".join(source_names(count))
        use = f"printf '{examples}\\n' | sightline translate FOLDER"
    if not config.model.has_source:
        vocabulary = f"{sizes.target:,}"
        can, use = "It goes on with a text, and tells how probable a text is", "sightline generate FOLDER"
    facts: dict[str, Any] = {
        "recipe": config.model.recipe,
        "parameters": f"{parameter_count(model):,}",
        "tokenizer": f"{config.text.tokenizer}, vocabulary {vocabulary}",
        **card.training,
    }
    lines = [
        f"# A {config.model.recipe} model",
        "",
        f"Made by Sightline {__version__}. {can}, as in its training data,",
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
        use,
        "```",
        "",
    ]
    return "\n".join(lines)
