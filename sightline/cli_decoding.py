"""The options of `sightline translate`, group by group, and what they ask of a `Translator`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

STRATEGY, CONTROL = "How to search", "What must come out"
QUALITY, MACHINE = "Signs of bad translations", "Where it runs"


def option(help: str, panel: str | None = None, *names: str, **more: Any) -> Any:
    """An option with its help, in its group."""
    return typer.Option(*names, help=help, rich_help_panel=panel, **more)


# How to search.
Strategy = Annotated[str | None, option("beam (default), greedy, sample or mbr.", STRATEGY)]
Beam = Annotated[int | None, option("Hypotheses kept at each step; 1 is greedy.", STRATEGY, min=1)]
LengthPenalty = Annotated[str | None, option("average, gnmt or none.", STRATEGY)]
Alpha = Annotated[float | None, option("Strength of the length penalty.", STRATEGY)]
CoveragePenalty = Annotated[float | None, option("Strength of GNMT's coverage penalty.", STRATEGY)]
Stopping = Annotated[str | None, option("When a beam ends: first, enough, hopeless.", STRATEGY)]
Patience = Annotated[float | None, option("enough: ends with so many times the beam of translations.", STRATEGY)]
Groups = Annotated[int | None, option("Parts of a beam that avoid one another's words.", STRATEGY)]
Diversity = Annotated[float | None, option("How much they do.", STRATEGY)]
Samples = Annotated[int | None, option("Translations drawn; sample shows all, as --n-best does.", STRATEGY)]
Temperature = Annotated[float | None, option("Below 1: closer to the most probable.", STRATEGY)]
TopK = Annotated[int | None, option("Draw among so many tokens.", STRATEGY)]
TopP = Annotated[float | None, option("Draw among those that have this share of probability.", STRATEGY)]
MinP = Annotated[
    float | None, option("Draw among those with at least this share of the best one's probability.", STRATEGY)
]
Seed = Annotated[int | None, option("Of the random numbers.", STRATEGY)]
Seeds = Annotated[Path | None, option("A file with a seed for each line.", STRATEGY)]
Utility = Annotated[str | None, option("What mbr compares by: chrf or bleu.", STRATEGY)]
Aggregate = Annotated[bool, option("mbr by mean n-gram counts: faster, nearly the same.", STRATEGY, "--aggregate")]

# What must come out.
Prefix = Annotated[str | None, option("What every translation begins with.", CONTROL)]
Prefixes = Annotated[Path | None, option("A file with a beginning for each line.", CONTROL)]
GlossaryFile = Annotated[
    Path | None, option("A file of terms: `term<TAB>translation[<TAB>alternative …]`.", CONTROL, "--glossary")
]
Require = Annotated[list[str] | None, option("A word or phrase that must be there; repeatable.", CONTROL)]
RequireFile = Annotated[Path | None, option("A file with such words for each line, tabs between them.", CONTROL)]
Forbid = Annotated[list[str] | None, option("A word never to write; repeatable.", CONTROL)]
ForbidFile = Annotated[Path | None, option("A file of such words, one a line.", CONTROL)]
NoRepeat = Annotated[int | None, option("No run of so many tokens twice in a translation.", CONTROL)]
RepetitionPenalty = Annotated[float | None, option("Above 1: tokens written before are avoided.", CONTROL)]
MinLength = Annotated[int | None, option("Fewest tokens of a translation.", CONTROL)]
MaxLength = Annotated[int | None, option("Most tokens of a translation.", CONTROL)]

Split = Annotated[
    bool | None,
    option(
        "Translate the sentences of a line one by one (default: as the model's config.yaml says).",
        STRATEGY,
        "--split/--no-split",
    ),
]

# Signs of bad translations.
Check = Annotated[
    bool,
    option(
        "Look for loops, words left out, wrong lengths, copies and other languages, and tell them as flags of --json. "
        "Whether numbers are right is not looked at.",
        QUALITY,
        "--check",
    ),
]
Retry = Annotated[
    bool,
    option("Translate lines that --check finds once more, with safer settings; both are kept.", QUALITY, "--retry"),
]

# Where it runs.
EngineName = Annotated[str, option("ctranslate2, pytorch, or auto: the fastest that can do it.", MACHINE, "--engine")]
Compute = Annotated[str | None, option("What to compute in: float32, or int8, which is faster.", MACHINE)]
NoShortlist = Annotated[
    bool, option("Search the whole vocabulary, whatever shortlist the export has.", MACHINE, "--no-shortlist")
]

# Options that a Translator has by the same names.
SAME = [
    "strategy",
    "beam",
    "length_penalty",
    "alpha",
    "coverage_penalty",
    "stopping",
    "patience",
    "groups",
    "diversity",
    "samples",
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "seed",
    "utility",
    "prefix",
    "no_repeat",
    "repetition_penalty",
    "min_length",
    "max_length",
    "n_best",
]
FILES = {"prefixes": "prefixes", "glossary": "glossary", "seeds": "seeds", "require_file": "requires"}
SWITCHES = ("aggregate", "check", "retry")


def wanted(given: Mapping[str, Any]) -> dict[str, Any]:
    """What options of the command line, by their names, ask for: options of `Translator.plan`."""
    options = {name: given[name] for name in SAME}
    # As text, since a sharded work keeps them in its manifest.
    options |= {name: None if given[own] is None else str(given[own]) for own, name in FILES.items()}
    options |= {name: given[name] or None for name in SWITCHES}
    options["require"] = list(given["require"] or ()) or None
    banned = list(given["forbid"] or ())
    if given["forbid_file"] is not None:
        from sightline.forbidden import read_words

        banned += read_words(given["forbid_file"])
    options["forbid"] = banned or None
    return {name: value for name, value in options.items() if value is not None}


def shown(options: Mapping[str, Any]) -> int:
    """How many translations of a line are shown."""
    count: int = options.get("n_best") or 1
    if options.get("strategy") == "sample" and count == 1:
        count = options.get("samples") or 1
    return count
