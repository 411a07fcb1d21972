"""Options and arguments that several commands have, each declared once, and how the files that they name are read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sightline.bundled_models import locate

if TYPE_CHECKING:
    from sightline.data import Pair
    from sightline.translator import Translator

Model = Annotated[
    Path,
    typer.Argument(
        help="A model folder, as `sightline train --output` makes one, or a name that `sightline models` lists.",
        metavar="MODEL",
        callback=locate,
    ),
]

# Text to work on.
Source = Annotated[
    list[Path] | None,
    typer.Option(help="Source sentences, one a line (plain, .gz or .zst); once for each source.", metavar="FILE"),
]
Target = Annotated[Path | None, typer.Option(help="Target sentences, line by line the same.")]
Pairs = Annotated[Path | None, typer.Option(help="Both in one file: .tsv, .csv, .jsonl, .parquet or .tmx.")]

# Text to train on, and to validate with.
Sources = Annotated[
    list[Path] | None,
    typer.Option(
        help="Source sentences, one a line (plain, .gz or .zst); repeatable: several of one --target are several "
        "sources.",
        metavar="FILE",
    ),
]
Targets = Annotated[list[Path] | None, typer.Option(help="Target sentences, line by line the same.", metavar="FILE")]
PairFiles = Annotated[
    list[Path] | None,
    typer.Option(help="Both in one file: .tsv, .csv, .jsonl, .parquet or .tmx; repeatable.", metavar="FILE"),
]
ValidSource = Annotated[
    list[Path] | None,
    typer.Option(help="Validation sources (else some pairs are held out); once for each source.", metavar="FILE"),
]
ValidTarget = Annotated[Path | None, typer.Option(help="Validation targets.")]
ValidPairs = Annotated[Path | None, typer.Option(help="Validation pairs in one file.")]
Assign = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="A key of the configuration, such as training.seed=2; repeatable.",
        metavar="SECTION.KEY=VALUE",
    ),
]

# Measures.
Tokenize = Annotated[str, typer.Option(help="sacreBLEU's tokenizer; `none` for tokenised text.")]
GoldFromOne = Annotated[bool, typer.Option("--gold-from-one", help="The positions in --gold count from 1, not from 0.")]


def source_name(source: list[Path] | None, pairs: Path | None) -> str:
    """What errors call the file that a source line stands in; of several files it is a line of each."""
    return " and ".join(map(str, source)) if source else str(pairs)


def read_given(
    source: list[Path] | None, target: Path | None, pairs: Path | None, translator: Translator, text: Path | None = None
) -> list[Pair]:
    """The pairs a command was given, or an error that says how to give them."""
    from sightline.corpora import given_files

    return given_files(translator.config, source, target, pairs, text).all()
