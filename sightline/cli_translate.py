"""`sightline translate`: how lines go in and out. Its many options are in `cli_decoding.py`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sightline import cli_decoding as of
from sightline.bundled_models import asked_name
from sightline.cli_online import write_while_reading
from sightline.cli_options import Model
from sightline.cli_shards import Cluster, Sharding, ShardLines, Workers, form
from sightline.console import bar, complain, keeping, presented, program, say, standard_input
from sightline.errors import SightlineError

if TYPE_CHECKING:
    from sightline.plan import Plan
    from sightline.translation import Translation
    from sightline.translator import Translator

STANDARD_INPUT = "standard input"


def translate(
    context: typer.Context,
    model: Model,
    file: Annotated[
        Path | None,
        typer.Argument(help="Lines to translate (plain, .gz, .zst; .jsonl, .parquet); default, and -: standard input."),
    ] = None,
    source: Annotated[
        list[Path] | None,
        of.option(
            "A file for each source, instead of FILE; lines of FILE have tabs between the sources.", metavar="FILE"
        ),
    ] = None,
    output: Annotated[
        Path | None, of.option("Where to write (.jsonl: JSON, .parquet: a table); default: standard output.")
    ] = None,
    n_best: Annotated[
        int | None, of.option("Translations for each line, best first; the beam is at least as wide.", min=1)
    ] = None,
    align: Annotated[bool, of.option("Add word links, source-target, after a tab.", None, "--align")] = False,
    as_json: Annotated[
        bool,
        of.option(
            "JSON instead of plain text: source, text, score, log_prob, tokens, token_log_probs, finished; "
            "source_words, words, alignment with --align, others with --n-best, terms with --glossary, required with "
            "--require, flags with --check or --retry.",
            None,
            "--json",
        ),
    ] = False,
    live: Annotated[bool, of.option("Show each translation while it is made.", None, "--live")] = False,
    online: Annotated[
        bool,
        of.option(
            "Write while the words of standard input still come (models with online monotonic attention that read one "
            "way).",
            None,
            "--online",
        ),
    ] = False,
    strategy: of.Strategy = None,
    beam: of.Beam = None,
    length_penalty: of.LengthPenalty = None,
    alpha: of.Alpha = None,
    coverage_penalty: of.CoveragePenalty = None,
    stopping: of.Stopping = None,
    patience: of.Patience = None,
    groups: of.Groups = None,
    diversity: of.Diversity = None,
    samples: of.Samples = None,
    temperature: of.Temperature = None,
    top_k: of.TopK = None,
    top_p: of.TopP = None,
    min_p: of.MinP = None,
    seed: of.Seed = None,
    seeds: of.Seeds = None,
    utility: of.Utility = None,
    aggregate: of.Aggregate = False,
    prefix: of.Prefix = None,
    prefixes: of.Prefixes = None,
    glossary: of.GlossaryFile = None,
    require: of.Require = None,
    require_file: of.RequireFile = None,
    forbid: of.Forbid = None,
    forbid_file: of.ForbidFile = None,
    no_repeat: of.NoRepeat = None,
    repetition_penalty: of.RepetitionPenalty = None,
    min_length: of.MinLength = None,
    max_length: of.MaxLength = None,
    split: of.Split = None,
    check: of.Check = False,
    retry: of.Retry = False,
    engine: of.EngineName = "auto",
    compute: of.Compute = None,
    no_shortlist: of.NoShortlist = False,
    workers: Workers = None,
    shard_lines: ShardLines = None,
    cluster: Cluster = None,
) -> None:
    """Translate lines: one line in, one line out, in order.

    With --n-best as Marian has it: `line ||| translation ||| F0= log-probability ||| score`, lines counted from 0 (and
    the links before F0, with --align).
    """
    from sightline.files import check_writable

    if " " in str(model) and not model.exists():
        raise SightlineError(f"{model}: no such model folder; {piped(str(model), 'MODEL')}")
    if context.args:
        text = " ".join([str(file), *context.args])
        raise SightlineError(f"more than one file: {text}; {piped(text, asked_name(model))}")
    check_writable(output)
    if source and file is not None:
        raise SightlineError(f"give either {file}, with tabs between the sources, or --source once for each, not both")
    if source and len(source) == 1:
        file, source = source[0], None
    if str(file) == "-":
        file = None
    files = tuple(source or ()) if file is None else (file,)
    for one in files:
        if not one.exists() and is_text(one):
            raise SightlineError(f"{one}: no such file; {piped(str(one), asked_name(model))}")
        if output is not None and output.is_file() and one.exists() and one.samefile(output):
            raise SightlineError(f"--output {output} is the file to translate: name another, so that it is not lost")
    kind = form(output, as_json)
    if check and not (kind == "json" or retry):
        say("--check: what it finds is told in JSON only: add --json")
    options = of.wanted(context.params)
    asked = Asked(model, files, output, align, kind, options, {"engine": engine, "compute": compute})
    if no_shortlist:
        asked.loading["shortlist"] = False
    if split is not None:
        asked.loading["split"] = split
    sharding = Sharding(workers, shard_lines, cluster)
    if online:
        sharding.refuse("--online")
        if files or output is not None or kind != "text" or align or live or asked.n_best > 1:
            raise SightlineError(
                "--online writes plain text while standard input comes: leave out files, --output, --json, --align, "
                "--live and --n-best"
            )
        if engine == "ctranslate2" or asked.loading != {"engine": engine, "compute": None}:
            raise SightlineError(
                "--online has the PyTorch engine and takes a line as it comes: leave out --engine, --compute, "
                "--no-shortlist and --split"
            )
        write_while_reading(model, options)
    elif live:
        sharding.refuse("--live")
        _live(asked)
    elif sharding.wanted(file, output):
        _in_shards(asked, sharding)
    else:
        _print(_translated(asked), asked)


def is_text(given: Path) -> bool:
    """Whether somebody who named this file, which is not there, may have meant a text."""
    return " " in str(given) or (given.name == str(given) and given.suffix in ("", "."))


def piped(text: str, model: str) -> str:
    """How to translate a text that was given in the place of a file."""
    return f"to translate a text, pipe it: echo {shlex.quote(text)} | {program()} translate {model}"


@dataclass(frozen=True)
class Asked:
    """What the command line asks for: options of `Translator.plan`, `loading` those of `sightline.load`."""

    model: Path
    files: tuple[Path, ...]
    output: Path | None
    align: bool
    form: str
    options: dict[str, Any]
    loading: dict[str, Any]

    @property
    def n_best(self) -> int:
        """Translations of each line."""
        return of.shown(self.options)

    @property
    def scored(self) -> bool:
        """Whether scores are shown, and must be exact."""
        return self.form != "text" or self.n_best > 1

    @property
    def name(self) -> str:
        """What its lines come from."""
        return " and ".join(map(str, self.files)) if self.files else STANDARD_INPUT

    def lines(self, translator: Translator) -> list[str]:
        """The lines of its file, or of its files together."""
        from sightline.readers import read_source_files

        return list(read_source_files(self.files, translator.config.model.source_count))

    def plan(self, translator: Translator) -> Plan:
        """The same, checked."""
        if self.align:
            translator.check_attention()
        return translator.plan(align=self.align, token_scores=self.scored, **self.options)


def _in_shards(asked: Asked, sharding: Sharding) -> None:
    from sightline.sharding.job import Job

    (file,) = asked.files
    assert asked.output is not None
    options = {**asked.options, "n_best": asked.n_best, "token_scores": asked.scored}
    sharding.run(file, asked.output, Job(asked.model, options, asked.align, asked.form, asked.loading))


def _translated(asked: Asked) -> Iterator[Translation]:
    """Translations of a file's lines, with a progress bar, or of standard input's as they come.

    A file is checked before the work begins; of a stream, the lines before a mistake come out.
    """
    from sightline.streams import arriving
    from sightline.translator import LINES_AT_ONCE, load

    translator = load(asked.model, **asked.loading)
    plan = asked.plan(translator)
    if asked.files:
        lines = asked.lines(translator)
        plan.check_count(len(lines))
        read = translator.read(lines, plan, asked.name)
        with bar(len(lines), "translating", asked.output is not None or not sys.stdout.isatty()) as watch:
            yield from translator.translated(read, plan, watch)
        return
    if _interactive():
        yield from _answers(translator, plan)
        return
    count = 0
    for group in arriving(standard_input(), STANDARD_INPUT, LINES_AT_ONCE):
        yield from translator.streamed(group, plan, STANDARD_INPUT, count + 1)
        count += len(group)
    plan.check_count(count)


def _answers(translator: Translator, plan: Plan) -> Iterator[Translation]:
    """A translation for each line that is typed; what is wrong with a line is told, and the next may come."""
    for number, line in _typed():
        try:
            yield from translator.streamed([line], plan, STANDARD_INPUT, number)
        except SightlineError as error:
            complain(str(error))


def _typed() -> Iterator[tuple[int, str]]:
    """What a person types, line by line, with their numbers; what is no text is told of, and left out."""
    from sightline.files import decode_lines

    say("a line at a time; Ctrl-D ends")
    for number, raw in enumerate(standard_input(), 1):
        try:
            (line,) = decode_lines([raw], STANDARD_INPUT, number)
        except SightlineError as error:
            complain(str(error))
            continue
        yield number, line


def _print(translations: Iterator[Translation], asked: Asked) -> None:
    n_best, as_json = asked.n_best, asked.form == "json"
    if asked.output is None:
        for number, one in enumerate(translations):
            print(presented(number, one, n_best, as_json), flush=True)
        return
    with keeping(asked.output) as stream:
        for number, one in enumerate(translations):
            print(presented(number, one, n_best, as_json), file=stream, flush=True)


def _live(asked: Asked) -> None:
    """Lines one by one, each shown while it is made."""
    from sightline.streams import arriving
    from sightline.translator import load

    if asked.output is not None or asked.form != "text" or asked.align or asked.n_best > 1:
        raise SightlineError(
            "--live shows plain text on the terminal: leave out --output, --json, --align, --samples and --n-best"
        )
    translator = load(asked.model, **asked.loading)
    plan = translator.live_plan(**asked.options)
    if not asked.files and _interactive():
        for number, line in _typed():
            try:
                _show(translator, plan, line, number, STANDARD_INPUT)
            except SightlineError as error:
                complain(str(error))
        return
    name = asked.name
    if asked.files:
        lines = asked.lines(translator)
        plan.check_count(len(lines))
        groups: Iterator[list[str]] = iter([lines])
    else:
        groups = arriving(standard_input(), name, 1)
    number = 0
    for group in groups:
        for line in group:
            number += 1
            _show(translator, plan, line, number, name)


def _show(translator: Translator, plan: Plan, line: str, number: int, name: str) -> None:
    for part in translator.shown(line, plan, number, name):
        print(part, end="", flush=True)
    print(flush=True)


def _interactive() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()
