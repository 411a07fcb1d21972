"""`sightline average`: a model out of the checkpoints of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sightline.console import say


def average(
    run: Annotated[Path, typer.Argument(help="The folder of a run that keeps its checkpoints.", metavar="RUN")],
    output: Annotated[Path, typer.Option(help="The model folder to make.")],
    last: Annotated[int | None, typer.Option(min=2, help="So many of the last checkpoints.")] = None,
    best: Annotated[int | None, typer.Option(min=2, help="So many of the best, by their validation.")] = None,
) -> None:
    """Average the weights of a run's checkpoints into a new model.

    Without --last or --best, of all that are there (see training.keep_last and training.keep_best).
    """
    from sightline.average import average_run

    steps = average_run(run, output, last, best)
    say(f"the mean of updates {', '.join(f'{step:,}' for step in steps)} is in {output}; it has not been validated")
