"""Several sources: how many there are, and what goes together with them. No torch here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from sightline.document_settings import DOCUMENT_KINDS
from sightline.errors import SightlineError
from sightline.score_choices import SCORES

if TYPE_CHECKING:
    from sightline.architecture import ModelConfig
    from sightline.config import RunConfig

# What counts positions or looks at their neighbours, with the value that does not: over the positions of several
# sources side by side neither has a meaning.
PLACED = {"span": "global", "position_bias": False, "markov_bias": None, "fertility_bias": None}
# Choices that every position may be asked for on its own.
UNPLACED_CHOICES = ("soft", "sampled", "exact")


def with_sources(config: RunConfig, where: str) -> RunConfig:
    """The configuration with its number of sources, which a list of files tells, checked; `where` is for messages."""
    files = [("data.source", config.data.source), ("data.valid_source", config.data.valid_source)]
    files += [(f"data.corpora {place}: source", one.source) for place, one in enumerate(config.data.corpora, 1)]
    counts = {name: len(given) if isinstance(given, list) else 1 for name, given in files if given is not None}
    count = config.model.sources.count
    if count is None and max(counts.values(), default=1) > 1:
        count = max(counts.values())
        sources = config.model.sources.model_copy(update={"count": count})
        config = config.model_copy(update={"model": config.model.model_copy(update={"sources": sources})})
    for name, found in counts.items():
        if found != (count or 1):
            told = f"{found} file{'s' * (found != 1)}"
            raise SightlineError(
                f"{where}: {name} names {told}, and the model reads {count or 1} source{'s' * ((count or 1) != 1)} "
                "(model.sources.count): give a file for each"
            )
    check_sources(config, where)
    return config


def check_sources(config: RunConfig, where: str) -> None:
    """Refuses what makes no sense together with several sources."""
    if config.model.source_count == 1:
        return
    for problem in (*_of_model(config.model), *_of_run(config)):
        raise SightlineError(f"{where}: model.sources.count = {config.model.source_count}: {problem}")


def _of_model(model: ModelConfig) -> Iterator[str]:
    context, attention = model.sources.context, model.attention
    if not model.has_source:
        yield "a language model has no source; leave it out"
    if model.encoder.kind in DOCUMENT_KINDS:
        yield f"model.encoder.kind = {model.encoder.kind} reads one document; choose another encoder"
    if model.attention.coverage == "embedded":
        yield "model.attention.coverage = embedded begins from the words of one source: choose sum, fertility or neural"
    if model.recipe == "seq2seq" and model.decoder.context == "concatenation":
        yield "model.decoder.context = concatenation has a place for each position: choose last, mean or sum"
    if model.sources.start == "child_sum" and model.decoder.cell != "lstm" and model.recipe != "transformer":
        yield f"model.sources.start = child_sum adds up memory cells, and a {model.decoder.cell} has none: choose flat"
    recurrent = model.recipe in ("bahdanau", "luong")
    if recurrent and context == "flat":
        placed = [name for name, plain in PLACED.items() if getattr(attention, name) != plain]
        placed += ["score"] if SCORES[attention.score].placed else []
        placed += ["choice"] if attention.choice not in UNPLACED_CHOICES else []
        for name in placed:
            yield (
                f"model.attention.{name} = {getattr(attention, name)} goes by where positions are, which means nothing "
                "from one source to the next: "
                + (
                    "leave it out"
                    if name == "choice"
                    else "choose model.sources.context = concatenated or hierarchical, or leave it out"
                )
            )
    if recurrent and context != "flat" and attention.choice != "soft":
        yield (
            f"model.attention.choice = {attention.choice} chooses one position, and model.sources.context = {context} "
            "looks at each source: choose flat, or leave the choice out"
        )
    yield from _of_output(model)


def _of_output(model: ModelConfig) -> Iterator[str]:
    """What looks words of the source up, by attention or by itself."""
    context = model.sources.context
    if model.copying.kind == "copy_head":
        yield "model.copying.kind = copy_head looks at neighbours: choose copynet or pointer_generator"
    looking = [f"model.copying.kind = {model.copying.kind}"] if model.copying.kind == "pointer_generator" else []
    looking += [f"model.lexicon.mode = {model.lexicon.mode}"] if model.lexicon.mode != "none" else []
    whole = ("flat",) if model.recipe == "transformer" else ("flat", "hierarchical")
    if looking and context not in whole:
        yield (
            f"{looking[0]} needs one set of weights that sum to 1, which model.sources.context = {context} does not "
            f"give: choose {' or '.join(whole)}"
        )
    if model.guided.weight:
        yield "model.guided.weight: word links tell of one source only; leave it out"


def _of_run(config: RunConfig) -> Iterator[str]:
    copies = config.model.copies or config.model.lexicon.mode != "none"
    if copies and not config.text.joint:
        yield "copying and lexicons need one vocabulary for all sources: set text.joint = true"
    if config.data.alignments or config.data.align_with:
        yield "data.alignments and data.align_with: word links tell of one source only; leave them out"
    for name in ("split_sentences", "copy_symbols", "fold_capitals", "plain_signs"):
        if getattr(config.search, name):
            yield f"search.{name} takes a line for one text; leave it out"
    if config.training.agreement:
        yield "training.agreement trains both directions, and several sources have but one; leave it out"
