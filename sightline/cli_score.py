"""The command that scores given translations."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sightline.cli_options import Model, Source, Target
from sightline.console import bar, json_line, say, watched

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sightline.readers import TextFiles
    from sightline.scoring import Scored
    from sightline.translator import Translator


def score(
    model: Model,
    source: Source = None,
    target: Target = None,
    pairs: Annotated[
        Path | None,
        typer.Option(help="Both in one file: .tsv, .csv, .jsonl, .parquet or .tmx; a .tsv may have second targets."),
    ] = None,
    text: Annotated[Path | None, typer.Option(help="For a language model: text, a line each.")] = None,
    contrastive: Annotated[
        Path | None, typer.Option(help="A second target for each line: tells which of the two is preferred.")
    ] = None,
    normalise: Annotated[
        str, typer.Option(help="none: the sum over a target's tokens; length: their mean.", metavar="none|length")
    ] = "none",
    as_json: Annotated[bool, typer.Option("--json", help="JSON, with the score of each token.")] = False,
) -> None:
    """Score given translations, or text: their log-probability under the model, one line in, one line out.

    With a second target: both scores and `first`, `second` or `neither`; the share of `first` follows on stderr.
    """
    import sys

    from sightline.corpora import given_files
    from sightline.scoring import check_normalisation, preferred, read_candidates, score_lines
    from sightline.translator import load

    check_normalisation(normalise)
    translator = load(model)
    files = given_files(translator.config, source, target, pairs, text)
    sources = " and ".join(map(str, files.paths[: files.sources])) if not files.form else str(files.paths[0])
    names = [sources, *(str(path) for path in (files.paths[-1], contrastive or files.paths[-1]))]
    total = checked(translator, files, contrastive, names)
    choices = {"first": 0, "second": 0, "neither": 0}
    with bar(total, "scoring", show=total > 0 and not sys.stdout.isatty()) as watch:
        found = score_lines(translator, read_candidates(files, contrastive), normalise, names)
        for scored in watched(found, watch):
            print(presented(scored, as_json, files.alone))
            if len(scored) == 2:
                choices[preferred(*scored)] += 1
    compared = sum(choices.values())
    if compared:
        share = 100 * choices["first"] / compared
        say(f"the first target is preferred in {choices['first']:,} of {compared:,} lines: accuracy {share:.2f}%")


def checked(translator: Translator, files: TextFiles, contrastive: Path | None, names: Sequence[str]) -> int:
    """How many lines there are. All are read through once, so that mistakes come out before the work begins.

    0 when a file is a pipe, which can be read only once.
    """
    from sightline.scoring import check_line, read_candidates

    paths = [*files.paths, *([] if contrastive is None else [contrastive])]
    if any(path.exists() and not path.is_file() and not path.is_dir() for path in paths):
        return 0
    count = 0
    for line in read_candidates(files, contrastive):
        check_line(translator, line, names)
        count += 1
    return count


def presented(scored: Sequence[Scored], as_json: bool, alone: bool = False) -> str:
    """A line of output; with `alone`, of text without a source."""
    from sightline.scoring import preferred

    if not as_json:
        parts = [f"{one.score:.4f}" for one in scored]
        return "\t".join([*parts, preferred(*scored)] if len(scored) == 2 else parts)
    values = scored[0].as_dict()
    if alone:
        del values["source"]
    if len(scored) == 2:
        second = scored[1].as_dict()
        del second["source"]
        values |= {"contrastive": second, "preferred": preferred(*scored)}
    return json_line(values)
