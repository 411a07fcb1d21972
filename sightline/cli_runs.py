"""The commands around a run: train, convert, average, report."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sightline.cli_options import (
    Assign,
    PairFiles,
    Pairs,
    Source,
    Sources,
    Target,
    Targets,
    ValidPairs,
    ValidSource,
    ValidTarget,
)
from sightline.console import program, say
from sightline.errors import SightlineError
from sightline.launch import launched, speaks

if TYPE_CHECKING:
    from sightline.config import RunConfig
    from sightline.training.loop import Result
    from sightline.training.run import Inherited

NOTHING_SAVED = "nothing was saved yet: give the same command again to start anew"


def train(
    config: Annotated[
        Path | None,
        typer.Argument(help="A YAML file (see `sightline config`); none is needed.", metavar="CONFIG.yaml"),
    ] = None,
    recipe: Annotated[
        str | None, typer.Option(help="seq2seq, bahdanau, luong, transformer (the default) or lm.")
    ] = None,
    source: Sources = None,
    target: Targets = None,
    pairs: PairFiles = None,
    text: Annotated[
        list[Path] | None,
        typer.Option(help="For --recipe lm: text, a sentence or paragraph a line; repeatable.", metavar="FILE"),
    ] = None,
    valid_source: ValidSource = None,
    valid_target: ValidTarget = None,
    valid_pairs: ValidPairs = None,
    valid_text: Annotated[Path | None, typer.Option(help="Validation text, for --recipe lm.")] = None,
    alignments: Annotated[
        Path | None, typer.Option(help="Word links of the training pairs (Pharaoh lines), to teach attention by.")
    ] = None,
    align_with: Annotated[str | None, typer.Option(help="Or the aligner to make them with: eflomal.")] = None,
    output: Annotated[Path, typer.Option(help="The model folder to make.")] = Path("runs/model"),
    assign: Assign = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --output.")] = False,
    max_steps: Annotated[
        int | None, typer.Option(min=1, help="Stop after so many updates, counted from the first start.")
    ] = None,
    more_steps: Annotated[int | None, typer.Option(min=1, help="With --resume: so many updates more.")] = None,
    max_minutes: Annotated[
        float | None, typer.Option(help="Stop after so many minutes, counted from the first start.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Decides initial weights, data order and dropout.")] = None,
    compiled: Annotated[
        bool,
        typer.Option(
            "--compile", help="Compile a Transformer's layers first, a minute or so; faster on some machines."
        ),
    ] = False,
    estimate: Annotated[
        bool, typer.Option("--estimate", help="Only say what the run would need: size, memory, time.")
    ] = False,
) -> None:
    """Train a model on text pairs, or a language model on text.

    Without a config, tokenizer, sizes and schedule are chosen from the data.
    """
    from sightline.run_settings import assembled, data_files, given_only, limits, training_files

    given: dict[str, Any] = {
        "data": {
            **training_files(source or [], target or [], pairs or [], text or []),
            **data_files("valid_", valid_source, valid_target, valid_pairs, valid_text),
            **given_only({"alignments": str(alignments) if alignments else None, "align_with": align_with}),
        },
        "training": given_only({"seed": seed, "compile": compiled or None})
        | limits(output, resume, max_steps, more_steps, max_minutes),
    }
    chosen = assembled(config, recipe, given, assign or [], output if resume else None)
    data = chosen.data
    if not (data.source or data.target or data.pairs or data.text or data.corpora):
        from sightline.corpora import ways_to_give

        raise SightlineError(f"no training data: give {ways_to_give(chosen)}")
    if estimate:
        from sightline.training.estimate import estimated

        found = estimated(chosen, say, output if resume else None)
        if speaks():
            print(found)
        return
    run_training(chosen, output, resume)


def convert(
    model: Annotated[Path, typer.Argument(help="A model folder with a transformer.", metavar="MODEL")],
    to: Annotated[str, typer.Option(help="rnn: a decoder that carries as much after a thousand tokens as after one.")],
    source: Source = None,
    target: Target = None,
    pairs: Pairs = None,
    valid_source: ValidSource = None,
    valid_target: ValidTarget = None,
    valid_pairs: ValidPairs = None,
    output: Annotated[Path | None, typer.Option(help="The model folder to make; default: MODEL-rnn.")] = None,
    cross: Annotated[bool, typer.Option("--cross", help="The attention to the source too.")] = False,
    features: Annotated[int, typer.Option(min=1, help="Features of a head, in place of the softmax.")] = 32,
    max_steps: Annotated[int | None, typer.Option(min=1, help="Stop after so many updates.")] = None,
    max_minutes: Annotated[float | None, typer.Option(help="Stop after so many minutes.")] = None,
    assign: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="A key of the config, such as training.seed=2; repeatable.", metavar="SECTION.KEY=VALUE"
        ),
    ] = None,
) -> None:
    """Make a Transformer's decoder recurrent (T2R), and train it on until it fits.

    By default for a third of what the model was trained with, at half its rate. The result is a model like any other.
    """
    from sightline.convert import inherited, recurrent_config
    from sightline.folder import open_files
    from sightline.run_settings import data_files

    if to != "rnn":
        raise SightlineError(f"--to {to}: a model can be converted to rnn")
    if not (source or target or pairs):
        raise SightlineError("a converted model must be trained on: give --pairs FILE, or --source and --target")
    files = open_files(model)
    data = {
        **data_files("", source, target, pairs),
        **data_files("valid_", valid_source, valid_target, valid_pairs),
    }
    limits = {"max_steps": max_steps, "max_minutes": max_minutes} if max_steps or max_minutes else {}
    config = recurrent_config(files, cross, features, {"data": data, "training": limits}, assign or [])
    output = output or model.parent / f"{model.resolve().name}-rnn"
    run_training(config, output, resume=False, inherited=inherited(files))


def run_training(config: RunConfig, output: Path, resume: bool, inherited: Inherited | None = None) -> None:
    """Trains with progress on stderr, and says at the end what there is and how to go on."""
    import shlex

    from sightline.training import material
    from sightline.training.checkpoint_names import CHECKPOINTS, latest

    folder = shlex.quote(str(output))
    launch = launched()
    again = f"{launch.command if launch else program()} train --output {folder} --resume"
    try:
        prepared = None
        if not (resume or launch):
            config, prepared = material.begin(config, output, True, say, inherited.tokenizers if inherited else None)
        # Not before: these need torch, which is being imported meanwhile.
        from sightline.training.advice import weakness
        from sightline.training.loop import Host
        from sightline.training.progress import progress_for, told_minutes
        from sightline.training.run import train as train_model

        before = latest(output / CHECKPOINTS)
        host = Host(progress_for(metric=config.training.metric))
        trained = train_model(config, output, resume, host, say, prepared, inherited)
        result = trained.result
    except KeyboardInterrupt:
        saved = latest(output / CHECKPOINTS) is not None
        say("interrupted; " + (f"go on from the last checkpoint: {again}" if saved else NOTHING_SAVED))
        raise
    if result.interrupted:
        say(f"interrupted after {result.steps:,} updates, {told_minutes(result.seconds / 60)}")
        say(f"saved; go on with: {again}")
        raise typer.Exit(130)
    over = resume and result.checkpoint == before  # nothing was left to do, and that was said when it was found
    if not over:
        say(ending(result, config))
    if result.best is None:
        raise SightlineError(
            f"{output}: no validation gave a number, so there is no model: allow more time, or lower the learning rate"
        )
    if over:
        return
    scores = ", ".join(f"{name} {value:.2f}" for name, value in result.best.items())
    say(f"best validation, at update {result.best_step:,}: {scores}")
    # Of text that is not translated, a high perplexity says little.
    if config.model.has_source and (weak := weakness(result, config.training, trained.models[0], again)) is not None:
        say(weak)
    use = "echo 'a sentence' | {} translate {}" if config.model.has_source else "{} generate {}"
    if (count := config.model.source_count) > 1:
        use = "printf '" + "\\t".join(["a sentence"] * count) + "\\n' | {} translate {}"
    where = ("the model is in " if len(trained.models) == 1 else "the models are in ") + " and ".join(
        str(model) for model in trained.models
    )
    say(f"{where}; try: {use.format(program(), shlex.quote(str(trained.models[0])))}")


def ending(result: Result, config: RunConfig) -> str:
    """Why a run is over."""
    from sightline.training.progress import told_minutes

    took = told_minutes(result.seconds / 60)
    if result.reason == "max_steps":
        return f"all {result.steps:,} updates are done, in {took}"
    if result.reason == "patience":
        return f"no better in {config.training.patience} validations: {result.steps:,} updates in {took}"
    over = result.seconds > 66 * (config.training.max_minutes or math.inf)
    return f"the time is up: {result.steps:,} updates in {took}{', the last validation included' if over else ''}"


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


def report(
    run: Annotated[
        Path, typer.Argument(help="The folder of a run, as `sightline train --output` makes one.", metavar="RUN")
    ],
    output: Annotated[Path | None, typer.Option(help="Where to write the page; default: RUN/report.html.")] = None,
) -> None:
    """Write one page about a run, finished or not: curves, attention, BLEU by length, examples."""
    from sightline.report import REPORT, write_report

    page = output or run / REPORT
    write_report(run, page)
    say(f"written: {page}")
