"""The command line: a thin layer, each command calls the library.

Nothing heavy is imported until a command runs, so that `--help` answers at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sightline import __version__
from sightline.cli_align import align
from sightline.cli_compare import compare
from sightline.cli_exchange import export, import_model
from sightline.cli_generate import evaluate_text, generate
from sightline.cli_lexicon import lexicon
from sightline.cli_options import Model, Pairs, Source, Target, Tokenize, read_given, source_name
from sightline.cli_runs import average, convert, report, train
from sightline.cli_score import score
from sightline.cli_translate import translate
from sightline.console import bar, run, say
from sightline.errors import SightlineError

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


app.command()(align)
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
