"""The command line: a thin layer, each command calls the library.

Nothing heavy is imported until a command runs, so that `--help` answers at once.
"""

from __future__ import annotations

import sys
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sightline import __version__
from sightline.cli_compare import compare
from sightline.cli_exchange import export, import_model
from sightline.cli_generate import evaluate_text, generate
from sightline.cli_lexicon import lexicon
from sightline.cli_options import GoldFromOne, Model, Pairs, Source, Target, Tokenize
from sightline.cli_runs import average, convert, report, train
from sightline.cli_score import score
from sightline.cli_translate import translate
from sightline.console import bar, run, say, watched
from sightline.errors import SightlineError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sightline.alignments import Gold
    from sightline.data import Pair
    from sightline.forced import Forced
    from sightline.translator import Translator

app = typer.Typer(
    rich_markup_mode=None,  # boxes and colours would take as long to import as all the rest
    name="sightline",
    help="Sequence-to-sequence models that you train yourself and can look inside.",
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Beam = Annotated[int | None, typer.Option(min=1, help="Hypotheses kept at each step; 1 is greedy.")]
Json = Annotated[bool, typer.Option("--json", help="JSON instead of plain text.")]


def show_version(value: bool) -> None:
    """`--version`."""
    if value:
        print(f"sightline {__version__}")
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Sequence-to-sequence models that you train yourself and can look inside."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


app.command()(train)


app.command(context_settings={"allow_extra_args": True})(translate)  # a text without quotes gets a hint
app.command()(generate)


@app.command()
def evaluate(
    model: Model,
    source: Source = None,
    target: Target = None,
    pairs: Pairs = None,
    text: Annotated[Path | None, typer.Option(help="For a language model: text, a line each.")] = None,
    beam: Beam = None,
    by_length: Annotated[bool, typer.Option("--by-length", help="BLEU and chrF by source length too.")] = False,
    png: Annotated[Path | None, typer.Option(help="Draw BLEU by source length into this file.")] = None,
    sentences: Annotated[bool, typer.Option("--sentences", help="Scores of each sentence too.")] = False,
    tokenize: Tokenize = "13a",
    output: Annotated[Path | None, typer.Option(help="Write the translations into this file.")] = None,
    as_json: Json = False,
) -> None:
    """Score a model on pairs: BLEU and chrF with their signatures, and perplexity; a language model on text."""
    import json

    from sightline.evaluate import evaluate as score
    from sightline.files import check_writable, write_text
    from sightline.metrics import check_tokenizer, length_table
    from sightline.translator import load

    check_tokenizer(tokenize)
    check_writable(output, png)
    translator = load(model)
    given = read_given(source, target, pairs, translator, text)
    if text is not None:
        if by_length or png or output or beam:
            raise SightlineError("--text has no translations: leave out --beam, --by-length, --png and --output")
        evaluate_text(translator, text, given, sentences, as_json)
        return
    translator.check_pairs(given, source_name(source, pairs), str(target or pairs))
    with bar(len(given), "translating") as watch:
        shown = list(translator.stream([pair.source for pair in given], beam=beam, watch=watch))
    with bar(len(given), "reading the references") as watch:
        result = score(translator, given, shown, tokenize, by_length or png is not None, sentences, watch)
    if output is not None:
        write_text(output, "".join(f"{line}\n" for line in result.translations))
    if png is not None:
        from sightline.plot import length_figure

        length_figure({translator.name: [(bucket.label, bucket.bleu) for bucket in result.by_length]}, png)
    if as_json:
        print(json.dumps(result.as_dict(), ensure_ascii=False, indent=2))
        return
    print(f"BLEU       {result.bleu.value:6.2f}   {result.bleu.signature}")
    print(f"chrF       {result.chrf.value:6.2f}   {result.chrf.signature}")
    print(f"perplexity {result.perplexity:6.2f}   {result.sentences:,} sentences")
    if by_length:
        print(length_table(result.by_length))
    for row in result.by_sentence:
        print(f"{row['bleu']:.2f}\t{row['chrf']:.2f}\t{row['translation']}")


@app.command()
def align(
    model: Model,
    source: Source = None,
    target: Annotated[
        Path | None, typer.Option(help="Target sentences; without them each model shows its own translation.")
    ] = None,
    pairs: Pairs = None,
    compare: Annotated[
        list[Path] | None,
        typer.Option(help="With --html: one more model beside the first; repeatable.", metavar="MODEL"),
    ] = None,
    gold: Annotated[
        Path | None, typer.Option(help="Hand-made links (Pharaoh lines): prints the alignment error rate.")
    ] = None,
    gold_from_one: GoldFromOne = False,
    choose: Annotated[
        bool,
        typer.Option(
            "--choose", help="With --gold: find the best layer, head and reading, and keep them in the model."
        ),
    ] = False,
    reading: Annotated[
        str | None, typer.Option(help="Rows to read: those that predict a token (predicts) or read it (consumes).")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write an interactive page.")] = None,
    svg: Annotated[Path | None, typer.Option(help="Write heat-maps as SVG.")] = None,
    png: Annotated[Path | None, typer.Option(help="Write heat-maps as PNG.")] = None,
    show: Annotated[bool, typer.Option("--show", help="Draw heat-maps in the terminal instead of links.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="Sentences that are drawn, from the first.")] = 20,
) -> None:
    """Align words: Pharaoh lines (source-target, from 0) on standard output, pictures on request."""
    from sightline.alignments import align_corpus, choose_head, draw, measure
    from sightline.files import check_writable
    from sightline.translator import load

    if choose and gold is None:
        raise SightlineError("--choose needs --gold: the best head is chosen on hand-made alignments")
    if compare and html is None:
        raise SightlineError("--compare needs --html FILE: the models are shown side by side on that page")
    check_writable(html, svg, png)
    translators = [load(path) for path in [model, *(compare or [])]]
    translators[0].check_attention()
    if reading is not None:
        translators = [read_by(translator, reading) for translator in translators]
    for translator in translators[1:]:
        if (count := translator.config.model.source_count) != translators[0].config.model.source_count:
            raise SightlineError(f"{translator.files.path}: reads {count} sources, not as many as {model}")
    alone = bool(source) and target is None and pairs is None
    given = read_sources(source or [], translators[0]) if alone else read_given(source, target, pairs, translators[0])
    names = (source_name(source, pairs), str(target or pairs))
    if gold is not None and translators[0].config.model.source_count > 1:
        raise SightlineError("--gold: hand-made links tell of one source only, and this model reads several")
    hand_made = None if gold is None else read_gold(gold, given, gold_from_one)
    with bar(len(given), "aligning", show=not sys.stdout.isatty()) as watch:
        seen: Iterable[Forced] = watched(align_corpus(translators[0], given, *names), watch)
        if hand_made is not None:
            seen = [*seen]
            if choose:
                translators[0], line = choose_head(translators[0], seen, hand_made)
                say(line)
            else:
                say("\n".join(measure(translators[0], seen, hand_made)))
        rest = iter(seen)
        drawn = list(islice(rest, limit))
        others = [list(align_corpus(translator, given[:limit], *names)) for translator in translators[1:]]
        # Before the links: whoever reads those may stop at any time, as `head` does.
        draw(translators, [drawn, *others], given[:limit], html, svg, png)
        print_aligned(translators[0], drawn, rest, show)


def print_aligned(translator: Translator, first: Sequence[Forced], rest: Iterable[Forced], show: bool) -> None:
    """Prints each sentence's links, or draws the `first` ones."""
    from sightline.forced import read_alignment
    from sightline.gallery import heatmaps
    from sightline.links import to_pharaoh
    from sightline.plot import terminal

    for forced in () if show else chain(first, rest):
        print(to_pharaoh(read_alignment(forced, translator.config.alignment), forced.dividers))
    for forced in first if show else ():
        for one in heatmaps(forced, translator.config.alignment):
            print(terminal(one), end="\n\n")


def read_gold(path: Path, given: Sequence[Pair] | Sequence[str], one_based: bool) -> Gold:
    """Hand-made links for the pairs, which must have targets."""
    from sightline.alignments import Gold
    from sightline.data import Pair

    pairs = [one for one in given if isinstance(one, Pair)]
    if len(pairs) < len(given):
        raise SightlineError("--gold needs target sentences: give --target, or --pairs")
    return Gold(path, pairs, one_based)


def read_by(translator: Translator, reading: str) -> Translator:
    """The translator with another reading of its weights."""
    from sightline.config import AlignmentConfig
    from sightline.errors import nearest
    from sightline.links import READINGS

    if reading not in READINGS:
        raise SightlineError(f"--reading {reading}: {nearest(reading, READINGS)}")
    chosen = {**translator.config.alignment.model_dump(), "reading": reading}
    return translator.aligning_by(AlignmentConfig.model_validate(chosen))


def source_name(source: list[Path] | None, pairs: Path | None) -> str:
    """What errors call the file that a source line stands in; of several files it is a line of each."""
    return " and ".join(map(str, source)) if source else str(pairs)


def read_given(
    source: list[Path] | None, target: Path | None, pairs: Path | None, translator: Translator, text: Path | None = None
) -> list[Pair]:
    """The pairs a command was given, or an error that says how to give them."""
    from sightline.corpora import given_files

    return given_files(translator.config, source, target, pairs, text).all()


def read_sources(paths: list[Path], translator: Translator) -> list[str]:
    """The lines of a file that must have some, or of one for each source."""
    from sightline.readers import read_source_files

    lines = list(read_source_files(paths, translator.config.model.source_count))
    if not lines:
        raise SightlineError(f"{paths[0]}: the file is empty")
    return lines


app.command()(score)
app.command()(average)
app.command()(convert)
app.command()(report)
app.command()(compare)
app.command()(export)
app.command("import")(import_model)
app.command()(lexicon)


@app.command()
def recipes() -> None:
    """List the recipes."""
    from sightline.recipes import RECIPES

    for name, (description, _) in RECIPES.items():
        print(f"{name:<12} {description}")


@app.command()
def models() -> None:
    """List the models that come with Sightline: their names do wherever a model folder does."""
    from sightline.bundled_models import bundled_models, title

    found = bundled_models()
    if not found:
        say("no models come with this install: `sightline train` makes one")
    for name, folder in found.items():
        print(f"{name:<12} {title(folder)}")


@app.command("config")
def show_config(
    recipe: Annotated[str, typer.Argument(help="seq2seq, bahdanau, luong, transformer or lm.", metavar="RECIPE")],
) -> None:
    """Print a recipe's full configuration, commented, to start from."""
    from sightline.config import build_config, dump_yaml

    print(dump_yaml(build_config({}, recipe, "command line")))


@app.command()
def demo(
    what: Annotated[
        str | None, typer.Argument(help="train: train a small model now, and watch it learn.", metavar="[train]")
    ] = None,
    output: Annotated[Path, typer.Option(help="Where the demo keeps its model and its page.")] = Path("demo"),
    minutes: Annotated[float | None, typer.Option(min=0.01, help="Minutes of training (6).")] = None,
) -> None:
    """Show what the models that come with Sightline do; with `train`, or without such models, train one.

    Training makes a small English-German model from the bundled corpus, scores it, translates and shows an alignment.
    """
    from sightline.bundled_models import bundled_models
    from sightline.errors import nearest

    if what not in (None, "train"):
        raise SightlineError(f"demo {what}: {nearest(what, ['train'])}")
    models = bundled_models()
    if models and what is None and minutes is None:
        from sightline.files import make_folder
        from sightline.first_look import show

        make_folder(output)
        show(dict(sorted(models.items(), reverse=True)), output)
        return
    from sightline.demo import run_demo

    run_demo(output, 6.0 if minutes is None else minutes, say)


def main() -> None:
    """The command line."""
    run(app)
