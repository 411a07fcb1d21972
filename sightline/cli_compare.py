"""The command that compares configurations."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sightline.cli_options import (
    Assign,
    GoldFromOne,
    PairFiles,
    Sources,
    Targets,
    Tokenize,
    ValidPairs,
    ValidSource,
    ValidTarget,
)
from sightline.console import program, say

if TYPE_CHECKING:
    from sightline.readers import TextFiles

Languages = tuple[str | None, str | None]


def compare(
    configs: Annotated[
        list[str],
        typer.Argument(help="YAML files, or names of recipes; the first is compared with.", metavar="CONFIG..."),
    ],
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each config, with seeds that count up.")] = 1,
    output: Annotated[Path, typer.Option(help="Where runs and report go; name it again to go on.")] = Path(
        "runs/comparison"
    ),
    source: Sources = None,
    target: Targets = None,
    pairs: PairFiles = None,
    valid_source: ValidSource = None,
    valid_target: ValidTarget = None,
    valid_pairs: ValidPairs = None,
    test_source: Annotated[
        list[Path] | None,
        typer.Option(help="Test sources (else some pairs are held out); once for each source.", metavar="FILE"),
    ] = None,
    test_target: Annotated[Path | None, typer.Option(help="Test targets.")] = None,
    test_pairs: Annotated[Path | None, typer.Option(help="Test pairs in one file.")] = None,
    gold: Annotated[
        Path | None,
        typer.Option(help="Hand-made links (Pharaoh lines) of the test pairs: adds the alignment error rate."),
    ] = None,
    gold_source: Annotated[Path | None, typer.Option(help="Sources of --gold, if they are others.")] = None,
    gold_target: Annotated[Path | None, typer.Option(help="Targets of --gold.")] = None,
    gold_pairs: Annotated[Path | None, typer.Option(help="Pairs of --gold in one file.")] = None,
    gold_from_one: GoldFromOne = False,
    max_steps: Annotated[int | None, typer.Option(min=1, help="Stop each run after so many updates.")] = None,
    max_minutes: Annotated[float | None, typer.Option(help="Stop each run after so many minutes.")] = None,
    assign: Assign = None,
    tokenize: Tokenize = "13a",
    engine: Annotated[str, typer.Option(help="Who decodes: pytorch, which runs all; ctranslate2 or auto.")] = "pytorch",
) -> None:
    """Train several configs on the same text and write one report: scores, significance, speed, heat-maps.

    Give the same command again to go on where it was stopped.
    """
    from sightline.comparison.configs import common_data, common_sources, read_configs
    from sightline.run_settings import data_files, given_only, training_files

    given: dict[str, Any] = {
        "data": {
            **training_files(source or [], target or [], pairs or []),
            **data_files("valid_", valid_source, valid_target, valid_pairs),
        },
        "training": given_only({"max_steps": max_steps, "max_minutes": max_minutes}),
    }
    chosen = read_configs(configs, given, assign or [])
    data, sources = common_data(chosen), common_sources(chosen)
    languages = (data.source_language, data.target_language)
    test = text_files(languages, sources, test_source, test_target, test_pairs)
    aligned = text_files(languages, 1, [gold_source] if gold_source else None, gold_target, gold_pairs)

    from sightline.comparison.run import MARKDOWN, PAGE, Links
    from sightline.comparison.run import compare as compare_configs

    links = None if gold is None else Links(gold, gold_from_one, aligned)
    try:
        compare_configs(chosen, output, seeds, test, links, tokenize, engine, say, show=True)
    except KeyboardInterrupt:
        say(f"interrupted; what is done is kept. Go on with: {program()} {shlex.join(sys.argv[1:])}")
        raise
    print((output / MARKDOWN).read_text(encoding="utf-8").split("\n## Side by side", 1)[0])
    say(f"the report is in {output / PAGE}")


def text_files(
    languages: Languages, sources: int, source: list[Path] | None, target: Path | None, pairs: Path | None
) -> TextFiles | None:
    """Files of pairs of so many sources, if any are given."""
    from sightline.readers import TextFiles

    if not source and target is None and pairs is None:
        return None
    return TextFiles.given(source, target, pairs, languages, sources=sources)
