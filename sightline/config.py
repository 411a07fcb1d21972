"""One YAML file is one run: small typed sections, validated on load, their descriptions the comments of the file.

A value of `null` means "choose from the data"; `sightline.sizes` fills it in, and the model folder records the choice.
This module must not import torch: `sightline config` and `--help` answer at once.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import yaml
from pydantic import Field, ValidationError

from sightline.architecture import ModelConfig
from sightline.choices import check_choice
from sightline.copy_settings import check_copying, check_open_words
from sightline.document_settings import check_documents
from sightline.efficient import check_efficient
from sightline.errors import SightlineError, nearest
from sightline.heads import check_blocks
from sightline.mistakes import explain
from sightline.recipes import RECIPES, check_choices
from sightline.sections import DataConfig, Section
from sightline.source_settings import with_sources

Share = Annotated[float, Field(ge=0, lt=1)]


class TextConfig(Section):
    """How text becomes tokens."""

    tokenizer: Literal["unigram", "bpe", "word", "char", "marian"] = Field(
        "unigram", description="subwords (unigram or bpe), words split at spaces, char, or an imported model's (marian)"
    )
    joint: bool = Field(True, description="one vocabulary for both sides (else one each)")
    vocabulary: int | None = Field(None, ge=8, description="number of entries; null chooses from the corpus")
    byte_fallback: bool = Field(True, description="spell unknown characters in bytes, so that any text survives")
    split_digits: bool = Field(
        False, description="unigram, bpe: each digit is a token, so that numbers are copied exactly"
    )
    sentences: int | None = Field(
        None, ge=1, description="most sentences to learn from, evenly chosen; null: 500,000, unigram 4 an entry or more"
    )
    symbols: list[str] = Field(default_factory=list, description="strings that always stay one token")
    sentence_marker: str | None = Field(
        None, description="documents: the word that stands between the sentences of a line, such as '|||'; one token"
    )
    normalization: Literal["nfc", "nfkc", "none"] = Field("nfc", description="Unicode normal form of all text")
    lowercase: bool = Field(False, description="lower-case all text")


class TrainingConfig(Section):
    """How the model learns."""

    seed: int = Field(1, ge=0, lt=2**63, description="decides initial weights, order of the data and dropout")
    max_steps: int | None = Field(None, ge=1, description="stop after so many updates; null chooses from the data")
    max_minutes: float | None = Field(None, gt=0, description="stop after so many minutes")
    learning_rate: float | None = Field(None, gt=0, description="highest learning rate; null chooses")
    schedule: Literal["inverse_sqrt", "noam", "constant", "cosine", "linear"] = Field(
        "cosine",
        description="course of the rate after warm-up; cosine and linear end at zero with max_steps or max_minutes",
    )
    warmup: int | None = Field(None, ge=0, description="updates until the rate is highest; null chooses")
    betas: tuple[Share, Share] = Field((0.9, 0.98), description="Adam's averaging")
    epsilon: float = Field(1e-9, gt=0, description="Adam's epsilon")
    weight_decay: float = Field(0.0, ge=0, description="decoupled weight decay")
    label_smoothing: float = Field(0.1, ge=0, lt=1, description="share of the target spread over the vocabulary")
    clip: float = Field(1.0, gt=0, description="largest norm of the gradient")
    validate_every: int | None = Field(None, ge=1, description="updates between validations; null chooses")
    validate_bleu: int = Field(500, ge=0, description="validation sentences translated for BLEU (0: loss only)")
    bleu_tokenize: str = Field("13a", description="sacreBLEU's tokenizer for validation; none for tokenised text")
    patience: int = Field(0, ge=0, description="stop after so many validations without a better one (0: never)")
    metric: Literal["loss", "bleu"] = Field("loss", description="what makes a validation the best")
    log_every: int = Field(50, ge=1, description="updates between lines in the metrics file")
    save_every: int | None = Field(None, ge=1, description="updates between checkpoints; null: at each validation")
    parallel: Literal["ddp", "fsdp"] = Field(
        "ddp", description="under torchrun: each rank holds the whole model (ddp) or a part of it (fsdp)"
    )
    timeout_minutes: float = Field(
        10, gt=0, description="under torchrun: end the run when a rank has not answered for so long"
    )
    samples: int = Field(1, ge=0, description="translations shown at a validation, of those made for BLEU (0: none)")
    watch: int = Field(4, ge=0, description="sentences whose attention is kept at each validation (0: no sharpness)")
    tensorboard: bool = Field(False, description="write TensorBoard's event files too (extra: tensorboard)")
    report: bool = Field(True, description="write report.html at the end; `sightline report` makes it at any time")
    precision: Literal["float32", "bfloat16"] = Field(
        "float32", description="of the products; weights, losses and recurrences stay float32"
    )
    compile: bool = Field(False, description="compile the layers of a transformer (needs a C++ compiler on a CPU)")
    workers: int | None = Field(
        None, ge=1, description="parts of a batch computed side by side on a CPU; null: one for each processor"
    )
    agreement: float = Field(
        0.0, ge=0, description="trains both directions, and rewards attention that agrees; OUTPUT/forward and /backward"
    )
    accumulate: int = Field(1, ge=1, description="batches an update is made of, as if they were one large batch")
    ema: float = Field(0.0, ge=0, lt=1, description="decay of the weights' moving average, such as 0.999 (0: none)")
    keep_last: int = Field(1, ge=1, description="newest checkpoints that are kept")
    keep_best: int = Field(0, ge=0, description="best validated checkpoints that are kept besides")
    average: Literal["none", "last", "best"] = Field(
        "none", description="at the end, try the mean of the last or best checkpoints as the model"
    )
    average_count: int = Field(5, ge=2, description="checkpoints in that mean; so many are kept")


class SearchConfig(Section):
    """Defaults for translating; options of the command line go before them."""

    beam: int = Field(5, ge=1, description="hypotheses kept at each step; 1 is greedy search")
    length_penalty: Literal["average", "gnmt", "none"] = Field(
        "average", description="score / length^alpha, score / ((5+length)/6)^alpha, or the plain sum"
    )
    alpha: float = Field(1.0, ge=0, le=10, description="strength of the length penalty")
    coverage_penalty: float = Field(0.0, ge=0, le=1000, description="beta of GNMT's coverage penalty")
    stopping: Literal["first", "enough", "hopeless"] = Field(
        "enough", description="when a beam ends: with n_best, with patience * beam finished, or when none can improve"
    )
    patience: float = Field(1.0, gt=0, description="see stopping")
    min_length: int = Field(0, ge=0, description="fewest tokens of a translation")
    max_ratio: float = Field(2.0, gt=0, le=1000, description="longest translation: ratio * source tokens + max_extra")
    max_extra: int = Field(10, ge=1, le=10**9, description="see max_ratio")
    max_source: int = Field(1000, ge=1, description="most tokens of a line; longer ones are refused")
    batch_tokens: int = Field(4000, ge=1, description="source tokens translated at once")
    split_sentences: bool = Field(
        False, description="translate the sentences of a line one by one, and those over max_piece in pieces"
    )
    max_piece: int | None = Field(
        None,
        ge=1,
        description="with split_sentences: most tokens of a sentence that is translated whole; null: max_source",
    )
    copy_symbols: bool = Field(
        False, description="copy what has no letter that the model knows, emoji, addresses, tags, marks of lists"
    )
    fold_capitals: bool = Field(
        False, description="translate a sentence in capitals in small letters, and enlarge that"
    )
    plain_signs: bool = Field(False, description="give the model plain quotes, dashes and the like")


class AlignmentConfig(Section):
    """Which weights tell the alignment; `sightline align --gold FILE --choose` finds the best."""

    layer: int | None = Field(None, ge=0, description="decoder layer, from 0; null averages all")
    head: int | None = Field(None, ge=0, description="head of that layer, from 0; null averages all")
    reading: Literal["predicts", "consumes"] = Field(
        "predicts", description="the row that predicts a token, or the row where it is the input"
    )


class RunConfig(Section):
    """A whole run."""

    text: TextConfig = Field(default_factory=TextConfig, description=TextConfig.__doc__)
    data: DataConfig = Field(default_factory=DataConfig, description=DataConfig.__doc__)
    model: ModelConfig = Field(default_factory=ModelConfig, description=ModelConfig.__doc__)
    training: TrainingConfig = Field(default_factory=TrainingConfig, description=TrainingConfig.__doc__)
    search: SearchConfig = Field(default_factory=SearchConfig, description=SearchConfig.__doc__)
    alignment: AlignmentConfig = Field(default_factory=AlignmentConfig, description=AlignmentConfig.__doc__)


# Ends of files that hold text: someone left out the option before it.
NO_YAML = (".tsv", ".csv", ".jsonl", ".parquet", ".tmx", ".gz", ".zst", ".txt")
# What YAML's reader raises: beside its own errors, those of values such as the date 2026-02-30, and of deep nesting.
UNREADABLE = (yaml.YAMLError, ValueError, RecursionError)


def merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """`base` with the values of `over` laid on top, section by section."""
    merged = dict(base)
    for key, value in over.items():
        if isinstance(value, dict) and isinstance(merged.get(key), dict):
            merged[key] = merge(merged[key], value)
        else:
            merged[key] = value
    return merged


def without_nulls(values: dict[str, Any]) -> dict[str, Any]:
    """The values that are given, section by section."""
    return {
        key: without_nulls(value) if isinstance(value, dict) else value
        for key, value in values.items()
        if value is not None
    }


def build_config(values: dict[str, Any], recipe: str | None = None, where: str = "config") -> RunConfig:
    """A validated run: the recipe's defaults with `values` on top.

    `recipe` goes before the one that `values` name; `where` stands in error messages.
    """
    model = values.get("model") or {}
    if not isinstance(model, dict):
        raise SightlineError(f"{where}: 'model' must be a section of keys and values")
    name = recipe or model.get("recipe") or "transformer"
    if not isinstance(name, str) or name not in RECIPES:
        raise SightlineError(f"{where}: unknown recipe '{name}'; {nearest(str(name), RECIPES)}")
    merged = merge(RECIPES[name][1], values)
    merged["model"] = {**(merged["model"] or {}), "recipe": name}
    try:
        config = RunConfig.model_validate(merged)
    except ValidationError as error:
        raise SightlineError(f"{where}: {explain(error, RunConfig)}") from None
    config = with_sources(config, where)
    check_choices(config, where)
    check_blocks(config.model, where)
    check_copying(config.model, where)
    check_open_words(config, where)
    check_choice(config.model, where)
    check_efficient(config.model, where)
    check_documents(config, where)
    return config


def load_config(path: Path, recipe: str | None = None) -> RunConfig:
    """Reads and validates a YAML file."""
    return build_config(read_yaml(path), recipe, str(path))


def read_yaml(path: Path) -> dict[str, Any]:
    """A YAML file's sections as plain values."""
    if path.suffix.lower() in NO_YAML:
        raise SightlineError(f"{path}: not a configuration (.yaml); text to train on goes after --pairs or --source")
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise SightlineError(
            f"{path}: no such file; `sightline config RECIPE > {path}` writes one to start from"
        ) from None
    except OSError as error:
        raise SightlineError(f"{path}: cannot read the configuration: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SightlineError(f"{path}: the configuration is not UTF-8 text") from None
    except UNREADABLE as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        problem = " ".join(str(getattr(error, "problem", error)).split())
        raise SightlineError(f"{path}{line}: not valid YAML: {problem}") from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise SightlineError(f"{path}: expected sections with keys, such as 'training: {{seed: 1}}'")
    return values


def assignment(text: str) -> dict[str, Any]:
    """`section.key=value` of the command line as a nested dict; the value is read as YAML."""
    name, equals, value = text.partition("=")
    keys = name.strip().split(".")
    if not equals or not all(keys):
        raise SightlineError(f"--set {text}: expected section.key=value, such as training.seed=2")
    try:
        nested: Any = yaml.safe_load(value)
    except UNREADABLE:
        raise SightlineError(f"--set {text}: the value is not valid YAML") from None
    for key in reversed(keys):
        nested = {key: nested}
    result: dict[str, Any] = nested
    return result


def dump_yaml(config: RunConfig) -> str:
    """The configuration as YAML, each key with its description as a comment."""
    lines: list[str] = []
    for name, section in _fields(config):
        lines += [f"# {_description(config, name)}", f"{name}:", *_section_lines(section, "  "), ""]
    return "\n".join(lines)


def _section_lines(section: Section, indent: str) -> list[str]:
    lines = []
    for name, value in _fields(section):
        description = _description(section, name)
        if isinstance(value, Section):
            lines += [f"{indent}# {description}", f"{indent}{name}:", *_section_lines(value, indent + "  ")]
        else:
            plain = yaml.safe_dump(section.model_dump(mode="json")[name], default_flow_style=True, width=10**6)
            text = plain.removesuffix("\n").removesuffix("\n...")
            lines.append(f"{f'{indent}{name}: {text}':<36}  # {description}")
    return lines


def _fields(section: Section) -> list[tuple[str, Any]]:
    return [(name, getattr(section, name)) for name in type(section).model_fields]


def _description(section: Section, name: str) -> str:
    """What a key is, and its values where it has but a few and the description names not all of them."""
    field = type(section).model_fields[name]
    told = (field.description or "").strip()
    values = [value for value in get_args(field.annotation) if isinstance(value, str)]
    missing = any(not re.search(rf"\b{re.escape(value)}\b", told) for value in values)
    return f"{told} ({', '.join(values)})" if missing else told
