"""`sightline translate`: its many options, grouped, and how lines go in and out."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sightline.cli_options import Model
from sightline.cli_shards import Cluster, Sharding, ShardLines, Workers, form
from sightline.console import bar, keeping, presented, say, standard_input
from sightline.errors import SightlineError

if TYPE_CHECKING:
    from sightline.translation import Translation
    from sightline.translator import Translator

STRATEGY, CONTROL = "How to search", "What must come out"
QUALITY, MACHINE = "Signs of bad translations", "Where it runs"


def option(help: str, panel: str | None = None, *names: str, **more: Any) -> Any:
    """An option with its help, in its group."""
    return typer.Option(*names, help=help, rich_help_panel=panel, **more)


def translate(
    model: Model,
    file: Annotated[
        Path | None,
        typer.Argument(help="Lines to translate (plain, .gz, .zst; .jsonl, .parquet); default: standard input."),
    ] = None,
    source: Annotated[
        list[Path] | None,
        option("A file for each source, instead of FILE; lines of FILE have tabs between the sources.", metavar="FILE"),
    ] = None,
    output: Annotated[Path | None, option("Where to write; default: standard output.")] = None,
    n_best: Annotated[int, option("Translations for each line, best first.", min=1)] = 1,
    align: Annotated[bool, option("Add word links, source-target, after a tab.", None, "--align")] = False,
    as_json: Annotated[bool, option("JSON instead of plain text, with all that is known.", None, "--json")] = False,
    live: Annotated[bool, option("Show each translation while it is made.", None, "--live")] = False,
    strategy: Annotated[str | None, option("beam (default), greedy, sample or mbr.", STRATEGY)] = None,
    beam: Annotated[int | None, option("Hypotheses kept at each step; 1 is greedy.", STRATEGY, min=1)] = None,
    length_penalty: Annotated[str | None, option("average, gnmt or none.", STRATEGY)] = None,
    alpha: Annotated[float | None, option("Strength of the length penalty.", STRATEGY)] = None,
    coverage_penalty: Annotated[float | None, option("Strength of GNMT's coverage penalty.", STRATEGY)] = None,
    stopping: Annotated[str | None, option("When a beam ends: first, enough, hopeless.", STRATEGY)] = None,
    groups: Annotated[int | None, option("Parts of a beam that avoid one another's words.", STRATEGY)] = None,
    diversity: Annotated[float | None, option("How much they do.", STRATEGY)] = None,
    samples: Annotated[int | None, option("Translations drawn; sample shows all, as --n-best does.", STRATEGY)] = None,
    temperature: Annotated[float | None, option("Below 1: closer to the most probable.", STRATEGY)] = None,
    top_k: Annotated[int | None, option("Draw among so many tokens.", STRATEGY)] = None,
    top_p: Annotated[float | None, option("Draw among those that have this share of probability.", STRATEGY)] = None,
    min_p: Annotated[
        float | None, option("Draw among those with at least this share of the best one's probability.", STRATEGY)
    ] = None,
    seed: Annotated[int | None, option("Of the random numbers.", STRATEGY)] = None,
    utility: Annotated[str | None, option("What mbr compares by: chrf or bleu.", STRATEGY)] = None,
    aggregate: Annotated[
        bool, option("mbr by mean n-gram counts: faster, nearly the same.", STRATEGY, "--aggregate")
    ] = False,
    prefix: Annotated[str | None, option("What every translation begins with.", CONTROL)] = None,
    prefixes: Annotated[Path | None, option("A file with a beginning for each line.", CONTROL)] = None,
    glossary: Annotated[
        Path | None, option("A file of terms: `term<TAB>translation[<TAB>alternative …]`.", CONTROL)
    ] = None,
    forbid: Annotated[list[str] | None, option("A word never to write; repeatable.", CONTROL)] = None,
    forbid_file: Annotated[Path | None, option("A file of such words, one a line.", CONTROL)] = None,
    no_repeat: Annotated[int | None, option("No run of so many tokens twice in a translation.", CONTROL)] = None,
    repetition_penalty: Annotated[float | None, option("Above 1: tokens written before are avoided.", CONTROL)] = None,
    min_length: Annotated[int | None, option("Fewest tokens of a translation.", CONTROL)] = None,
    max_length: Annotated[int | None, option("Most tokens of a translation.", CONTROL)] = None,
    check: Annotated[bool, option("Look for them, and tell them in what --json prints.", QUALITY, "--check")] = False,
    retry: Annotated[
        bool, option("Translate such lines once more with safer settings; both are kept.", QUALITY, "--retry")
    ] = False,
    engine: Annotated[str, option("ctranslate2, pytorch, or auto: the fastest that can do it.", MACHINE)] = "auto",
    compute: Annotated[str | None, option("What to compute in: float32, or int8, which is faster.", MACHINE)] = None,
    no_shortlist: Annotated[
        bool, option("Search the whole vocabulary, whatever shortlist the export has.", MACHINE, "--no-shortlist")
    ] = False,
    workers: Workers = None,
    shard_lines: ShardLines = None,
    cluster: Cluster = None,
) -> None:
    """Translate lines: one line in, one line out, in order.

    With --n-best: `line ||| translation ||| score` (and the links, with --align).
    """
    from sightline.files import check_writable

    check_writable(output)
    if source and file is not None:
        raise SightlineError(f"give either {file}, with tabs between the sources, or --source once for each, not both")
    if source and len(source) == 1:
        file = source[0]
    files = [file] if file is not None else source or []
    for one in files:
        if output is not None and output.is_file() and one.exists() and one.samefile(output):
            raise SightlineError(f"--output {output} is the file to translate: name another, so that it is not lost")
    if check and not (as_json or retry):
        say("--check: what it finds is told in JSON only: add --json")
    if strategy == "sample" and samples is not None:
        n_best = samples
    banned = [*(forbid or []), *(_read_words(forbid_file) if forbid_file else [])]
    search = {
        "strategy": strategy,
        "beam": beam,
        "n_best": n_best,
        "length_penalty": length_penalty,
        "alpha": alpha,
        "coverage_penalty": coverage_penalty,
        "stopping": stopping,
        "groups": groups,
        "diversity": diversity,
        "samples": samples,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "min_p": min_p,
        "seed": seed,
        "no_repeat": no_repeat,
        "repetition_penalty": repetition_penalty,
        "min_length": min_length,
        "max_length": max_length,
    }
    wishes = {
        "prefix": prefix,
        "prefixes": None if prefixes is None else str(prefixes),
        "glossary": None if glossary is None else str(glossary),
        "forbid": banned or None,
        "utility": utility,
        "aggregate": aggregate or None,
        "check": check or None,
        "retry": retry or None,
    }
    options = {name: value for name, value in {**search, **wishes}.items() if value is not None}
    loading: dict[str, Any] = {"engine": engine, "compute": compute}
    if no_shortlist:
        loading["shortlist"] = False
    sharding = Sharding(workers, shard_lines, cluster)
    if live:
        _live(model, files, output, options, loading, plain=not (as_json or align or n_best > 1))
    elif sharding.wanted(file, output):
        from sightline.sharding.job import TEXT, Job

        assert file is not None
        assert output is not None
        kind = form(output, as_json)
        options["token_scores"] = kind != TEXT or n_best > 1
        sharding.run(file, output, Job(model, options, align, kind, loading))
    else:
        options["token_scores"] = as_json or n_best > 1
        _print(_translated(model, files, output, align, options, loading), output, n_best, as_json)


def _read_words(path: Path) -> list[str]:
    from sightline.forbidden import read_words

    return read_words(path)


def _translated(
    model: Path,
    files: list[Path],
    output: Path | None,
    align: bool,
    options: dict[str, Any],
    loading: dict[str, Any],
) -> Iterator[Translation]:
    """Translations of a file's lines, with a progress bar, or of standard input's as they come.

    A file is checked before the work begins; of a stream, the lines before a mistake come out.
    """
    from sightline.readers import read_source_files
    from sightline.streams import arriving
    from sightline.translator import LINES_AT_ONCE, load

    translator = load(model, **loading)
    if align:
        translator.check_attention()
    if files:
        lines = list(read_source_files(files, translator.config.model.source_count))
        name = " and ".join(map(str, files))
        translator.check_lines(lines, name)
        with bar(len(lines), "translating", output is not None or not sys.stdout.isatty()) as watch:
            yield from translator.stream(lines, align, name, watch=watch, **options)
        return
    _greet()
    first = 1
    for group in arriving(standard_input(), "standard input", LINES_AT_ONCE):
        yield from translator.stream(group, align, "standard input", first, **options)
        first += len(group)


def _print(translations: Iterator[Translation], output: Path | None, n_best: int, as_json: bool) -> None:
    if output is None:
        for number, one in enumerate(translations):
            print(presented(number, one, n_best, as_json), flush=True)
        return
    with keeping(output) as stream:
        for number, one in enumerate(translations):
            print(presented(number, one, n_best, as_json), file=stream, flush=True)


def _live(
    model: Path,
    files: list[Path],
    output: Path | None,
    options: dict[str, Any],
    loading: dict[str, Any],
    plain: bool,
) -> None:
    """Lines one by one, each shown while it is made."""
    from sightline.readers import read_source_files
    from sightline.streams import arriving
    from sightline.translator import load

    if output is not None or not plain:
        raise SightlineError(
            "--live shows plain text on the terminal: leave out --output, --json, --align and --n-best"
        )
    translator: Translator = load(model, **loading)
    options.pop("n_best", None)
    if not files:
        _greet()
    count = translator.config.model.source_count
    groups = [read_source_files(files, count)] if files else arriving(standard_input(), "standard input", 1)
    for line in (line for group in groups for line in group):
        for part in translator.live(line, **options):
            print(part, end="", flush=True)
        print(flush=True)


def _greet() -> None:
    if sys.stdin is not None and sys.stdin.isatty():
        say("a line at a time; Ctrl-D ends")
