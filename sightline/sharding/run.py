"""Translating a whole file, from the plan to the joined output; broken off anywhere, it goes on. No torch here."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator
from contextlib import closing
from pathlib import Path
from typing import Any

from sightline.errors import SightlineError
from sightline.files import sha256
from sightline.sharding.inputs import check_counts, cut
from sightline.sharding.job import Job, Translated
from sightline.sharding.joining import check_form, join
from sightline.sharding.manifest import check_same, describe, difference, file_digests, stamp
from sightline.sharding.parts import Parts, Summary
from sightline.sharding.pool import Pool
from sightline.sharding.progress import progress

# Two of the groups that `Translator.stream` sorts by length: larger shards would not translate faster.
SHARD_LINES = 4_000

# The translations, in any order, of the shards of a file (path, lines of a shard) but for those with these numbers.
Runner = Callable[[Path, int, Collection[int]], Generator[Translated]]


def on_this_machine(job: Job, workers: int) -> Runner:
    """Translates with so many processes."""

    def run(source: Path, shard_lines: int, done: Collection[int]) -> Generator[Translated]:
        with Pool(job, workers) as pool:
            yield from pool.translate(
                shard for shard in cut(source, shard_lines, job.beside) if shard.number not in done
            )

    return run


def translate_file(
    job: Job,
    source: Path,
    output: Path,
    runner: Runner,
    shard_lines: int = SHARD_LINES,
    say: Callable[[str], None] = lambda line: None,
) -> Summary:
    """Translates `source` into `output`, or goes on with what an earlier call has left in `output.parts`.

    Lines that fail come out empty and are recorded in `output.failed.jsonl`. The output depends on the input, the
    model, the options and `shard_lines`, and on nothing else: not on the runner, and not on interruptions.
    """
    parts = Parts(output)
    check_form(job.form, output)
    with parts.held():
        ended = parts.finished()
        before = parts.manifest() if ended is None else ended[0]
        manifest = describe(job, source, shard_lines, before)
        if ended is not None and difference(ended[0], manifest) is None:
            summary = ended[1]  # only the folder was left
        else:
            if ended is not None:
                parts.clear()
            elif before is not None:
                check_same(before, manifest, parts.folder)
            check_counts(source, job.beside)
            parts.begin(manifest)
            _work(parts, source, manifest, runner, shard_lines, say)
            _check_files(job, manifest, parts)
            summary = join(parts, job)
            parts.finish(manifest, summary)
        parts.remove()
    return summary


def _check_files(job: Job, manifest: dict[str, Any], parts: Parts) -> None:
    """Refuses to join what was made with two states of a glossary or the like."""
    for name, digest in file_digests(job).items():
        if digest != manifest["files"].get(name):
            raise SightlineError(
                f"{job.options[name]}: has changed while it was used; delete {parts.folder} and start again: its parts "
                "do not belong together"
            )


def _work(
    parts: Parts, source: Path, manifest: dict[str, Any], runner: Runner, shard_lines: int, say: Callable[[str], None]
) -> None:
    """Fills the folder with all parts that are not there yet."""
    done = parts.done()
    lines, read = sum(record.lines for record in done.values()), sum(record.read for record in done.values())
    if done:
        say(f"{parts.folder}: {lines:,} lines are translated already; going on")
    try:
        found = closing(runner(source, shard_lines, done.keys()))
        with progress(manifest["seen"]["size"], read, lines) as advance, found as translations:
            for translated in translations:
                parts.write(translated)
                advance(translated.lines, translated.read)
    except KeyboardInterrupt:
        say(f"interrupted; what is done is kept in {parts.folder}, and the same command goes on")
        raise
    if stamp(source) != manifest["seen"] and sha256(source) != manifest["input"]:
        raise SightlineError(
            f"{source}: has changed while it was translated; delete {parts.folder} and start again: its parts do not "
            "belong together"
        )
