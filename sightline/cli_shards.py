"""`translate` for files of any size: its options, and when a file is cut into shards."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sightline.console import say
from sightline.errors import SightlineError, nearest

if TYPE_CHECKING:
    from sightline.sharding.job import Job
    from sightline.sharding.parts import Summary

CLUSTERS = ("ray",)
SOME_FAILED = 1  # the exit code when there is a translation, but not of all lines
MOST_WORKERS = 8  # unless more are asked for: each holds the model in memory

Workers = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Translate FILE in shards, with so many processes (one a processor, up to 8); if it is broken off, the "
        "same command goes on.",
    ),
]
ShardLines = Annotated[
    int | None, typer.Option(min=1, help="Lines of a shard (4,000); a longer FILE is cut whenever there is --output.")
]
Cluster = Annotated[
    str | None, typer.Option("--engine-cluster", help="ray: the shards on the machines of a Ray cluster.")
]


@dataclass(frozen=True)
class Sharding:
    """What the command line says about shards."""

    workers: int | None
    lines: int | None
    cluster: str | None

    def wanted(self, file: Path | None, output: Path | None) -> bool:
        """Whether FILE is cut into shards.

        It is when that is asked for, when FILE or `output` is no text, when it was begun that way, and when FILE has
        more lines than a shard: so much work must not be lost.
        """
        reason = self._asked() or _other_format(file, output)
        place = output is not None and (output.is_file() or not output.exists())
        if reason is None:
            return file is not None and output is not None and place and _long(file, output)
        if file is None or (file.exists() and not file.is_file()):
            raise SightlineError(f"{reason} needs a FILE to translate: after an interruption it is read again")
        if not place:
            raise SightlineError(f"{reason} needs --output FILE, where the translations are kept until all are there")
        return True

    def refuse(self, other: str) -> None:
        """Refuses these options beside another."""
        asked = self._asked()
        if asked is not None:
            raise SightlineError(f"{other} and {asked} do not go together: leave out one of them")

    def run(self, file: Path, output: Path, job: Job) -> None:
        """Translates the file, and says what came out."""
        from sightline.performance import available_processors
        from sightline.sharding.run import SHARD_LINES, on_this_machine, translate_file

        if self.cluster is not None:
            from sightline.sharding.cluster import on_ray

            runner = on_ray(job, self.workers)
        else:
            runner = on_this_machine(job, self.workers or min(available_processors(), MOST_WORKERS))
        summary = translate_file(job, file, output, runner, self.lines or SHARD_LINES, say)
        _report(summary, output)

    def _asked(self) -> str | None:
        if self.cluster is not None and self.cluster not in CLUSTERS:
            raise SightlineError(f"--engine-cluster {self.cluster}: {nearest(self.cluster, CLUSTERS)}")
        options = {"--workers": self.workers, "--shard-lines": self.lines, "--engine-cluster": self.cluster}
        return next((name for name, value in options.items() if value is not None), None)


def _other_format(file: Path | None, output: Path | None) -> str | None:
    """Which of the two is no text."""
    if file is None and output is None:
        return None
    from sightline.sharding.inputs import form_of
    from sightline.sharding.job import TABLE, TEXT

    if file is not None and form_of(file) != TEXT:
        return f"{file}: this format"
    return f"{output}: this format" if output is not None and form_of(output) == TABLE else None


def _long(file: Path, output: Path) -> bool:
    """Whether a file has more lines than a shard, or was cut before."""
    from sightline.sharding.inputs import longer_than
    from sightline.sharding.parts import Parts
    from sightline.sharding.run import SHARD_LINES

    return file.is_file() and (Parts(output).folder.is_dir() or longer_than(file, SHARD_LINES))


def form(output: Path | None, as_json: bool) -> str:
    """What the output consists of."""
    from sightline.sharding.job import JSON, TABLE, TEXT

    if output is None:
        return JSON if as_json else TEXT
    from sightline.files import PACKED
    from sightline.sharding.inputs import LINES, form_of

    if output.suffix.lower() in PACKED:
        raise SightlineError(
            f"--output {output}: output is not packed; leave out {output.suffix} and pack it afterwards"
        )
    named = form_of(output)
    if named == TABLE and as_json:
        raise SightlineError(f"{output}: a table has no JSON in it: leave out --json, or name a .jsonl file")
    return TABLE if named == TABLE else JSON if as_json or named == LINES else TEXT


def _report(summary: Summary, output: Path) -> None:
    from sightline.sharding.parts import Parts

    failed = Parts(output).failed
    if summary.failed and summary.failed + summary.blank == summary.lines:
        raise SightlineError(f"no line could be translated, see {failed}; of the first: {summary.reason}")
    say(f"{output}: {summary.lines:,} lines")
    if summary.failed:
        say(f"{summary.failed:,} of them failed and are empty, see {failed}; the first: {summary.reason}")
        raise typer.Exit(SOME_FAILED)
