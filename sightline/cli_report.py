"""`sightline report`: a run's page, made again from its folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    run: Annotated[
        Path, typer.Argument(help="The folder of a run, as `sightline train --output` makes one.", metavar="RUN")
    ],
    output: Annotated[Path | None, typer.Option(help="Where to write the page; default: RUN/report.html.")] = None,
) -> None:
    """Write one page about a run, finished or not: curves, attention, BLEU by length, examples."""
    from sightline.console import say
    from sightline.report import REPORT, write_report

    page = output or run / REPORT
    write_report(run, page)
    say(f"written: {page}")
