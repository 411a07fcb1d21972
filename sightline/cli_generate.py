"""The commands around language models: generate, and how probable text is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sightline.console import bar, json_line
from sightline.errors import SightlineError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sightline.readers import Pair
    from sightline.translator import Translator

SEARCH = "How to write"


def generate(
    model: Annotated[
        Path, typer.Argument(help="The folder of a language model (`sightline train --recipe lm`).", metavar="MODEL")
    ],
    prefix: Annotated[str, typer.Option(help="What every text begins with.")] = "",
    count: Annotated[int, typer.Option(min=1, help="So many texts.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="JSON, with all that is known.")] = False,
    show: Annotated[bool, typer.Option("--live", help="Show the text while it is made.")] = False,
    strategy: Annotated[str, typer.Option(help="sample, beam or greedy.", rich_help_panel=SEARCH)] = "sample",
    max_length: Annotated[
        int | None, typer.Option(min=1, help="Most tokens after the prefix.", rich_help_panel=SEARCH)
    ] = None,
    min_length: Annotated[
        int | None, typer.Option(min=0, help="Fewest tokens of a text.", rich_help_panel=SEARCH)
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(help="sample: below 1, closer to the most probable.", rich_help_panel=SEARCH)
    ] = None,
    top_k: Annotated[
        int | None, typer.Option(help="sample: draw among so many tokens.", rich_help_panel=SEARCH)
    ] = None,
    top_p: Annotated[
        float | None,
        typer.Option(help="sample: draw among those that have this share of probability.", rich_help_panel=SEARCH),
    ] = None,
    min_p: Annotated[
        float | None,
        typer.Option(
            help="sample: draw among those with at least this share of the best one's.", rich_help_panel=SEARCH
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Of the random numbers: another one, other texts.", rich_help_panel=SEARCH)
    ] = None,
    beam: Annotated[
        int | None, typer.Option(min=1, help="beam: hypotheses kept at each step.", rich_help_panel=SEARCH)
    ] = None,
    no_repeat: Annotated[
        int | None, typer.Option(help="No run of so many tokens twice in a text.", rich_help_panel=SEARCH)
    ] = None,
    repetition_penalty: Annotated[
        float | None, typer.Option(help="Above 1: tokens written before are avoided.", rich_help_panel=SEARCH)
    ] = None,
    forbid: Annotated[
        list[str] | None, typer.Option(help="A word never to write; repeatable.", rich_help_panel=SEARCH)
    ] = None,
) -> None:
    """Write texts with a language model, one a line."""
    from sightline.generating import generate as write
    from sightline.generating import live
    from sightline.translator import load

    options = {
        "strategy": strategy,
        "max_length": max_length,
        "min_length": min_length,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "min_p": min_p,
        "seed": seed,
        "beam": beam,
        "no_repeat": no_repeat,
        "repetition_penalty": repetition_penalty,
        "forbid": forbid,
    }
    if show and (as_json or count > 1):
        raise SightlineError("--live shows one text on the terminal: leave out --json and --count")
    translator = load(model)
    if show:
        for part in live(translator, prefix, **options):
            print(part, end="", flush=True)
        print(flush=True)
        return
    for one in write(translator, prefix, count, **options):
        print(json_line(one.as_dict()) if as_json else one.text)


def evaluate_text(translator: Translator, text: Path, given: Sequence[Pair], lines: bool, as_json: bool) -> None:
    """`sightline evaluate --text`: prints how probable the lines of a file are."""
    import json

    from sightline.evaluate import measure_text

    translator.check_pairs(given, str(text), str(text))
    with bar(len(given), "reading") as watch:
        result = measure_text(translator, [pair.target for pair in given], watch)
    if as_json:
        print(json.dumps(result.as_dict(lines), ensure_ascii=False, indent=2))
        return
    print(f"perplexity         {result.perplexity:10.2f}   {result.tokens:,} tokens in {result.lines:,} lines")
    print(f"perplexity a word  {result.word_perplexity:10.2f}   {result.words:,} words, ends of lines included")
    print(f"bits a character   {result.bits:10.3f}   {result.characters:,} characters, ends of lines included")
    if lines:
        for line, perplexity in result.by_line:
            print(f"{perplexity:.2f}\t{line}")
