"""From a configuration to a trained model folder: the whole way of one run."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from sightline import metrics, sizes
from sightline.aligners import align_text
from sightline.batch import Batch
from sightline.config import RunConfig
from sightline.corpora import Mix, named_files
from sightline.data import EncodedPairs, Pair, batches, ordered_batches
from sightline.errors import SightlineError
from sightline.folder import (
    Card,
    Tokenizers,
    check_free,
    save_card,
    save_config,
    save_model,
)
from sightline.guidance import check_guidance
from sightline.limits import most_tokens
from sightline.models import parameter_count
from sightline.performance import has_bfloat16, threads, tune_allocator
from sightline.preparing import Prepared
from sightline.search import SearchOptions, greedy_search
from sightline.sections import DataConfig
from sightline.splitting import Splitting, splitting_of
from sightline.training.averages import average_losses
from sightline.training.checkpoint_names import CHECKPOINTS, latest
from sightline.training.directions import Direction, directions, joint_scores, trained_together
from sightline.training.loop import Host, Result, Trainer, Validation
from sightline.training.material import check_training, gather, with_links
from sightline.training.progress import told_minutes
from sightline.training.ranks import Ranks, started
from sightline.training.resume import check_settings, find_files, going_on, lasting_settings, places
from sightline.training.watching import Watching
from sightline.writer import Writer

Say = Callable[[str], None]


@dataclass(frozen=True)
class Trained:
    """A run's result, the configuration with every choice made, its folder and those of its models."""

    result: Result
    config: RunConfig
    folder: Path
    models: tuple[Path, ...]


@dataclass(frozen=True)
class Inherited:
    """What a new run takes over from a model: its tokenizers, and what `fill` puts into the new one of its weights."""

    tokenizers: Tokenizers
    fill: Callable[[Writer], None]


@dataclass(frozen=True)
class TrainingData:
    """Encoded pairs as the trainer wants them."""

    pairs: EncodedPairs
    batch_tokens: int
    seed: int
    mix: Mix | None = None
    splitting: Splitting | None = None

    def epoch(self, epoch: int) -> Sequence[NDArray[np.int64]]:
        """Batches of example numbers, the same for the same seed and epoch."""
        return batches(self.pairs, self.batch_tokens, self.seed, epoch, self.mix)

    def batch(self, indices: NDArray[np.int64]) -> Batch:
        """These examples, some of their tokens split if that was asked for."""
        if self.splitting is None:
            return self.pairs.batch(indices)
        return self.pairs.batch(indices, self.splitting.changes(self.seed, indices))

    def where(self, index: int) -> str:
        """File and line of the example that `Batch.indices` calls `index`."""
        return self.pairs.where(index)


def train(
    config: RunConfig,
    output: Path,
    resume: bool = False,
    host: Host | None = None,
    say: Say = lambda line: None,
    prepared: Prepared | None = None,
    inherited: Inherited | None = None,
) -> Trained:
    """Trains what `config` describes into the folder `output`; `say` is told, line by line, what was chosen.

    `prepared` is the data of a new run where `sightline.training.material` has begun with it before.

    With `resume`, `config` is the folder's own, perhaps with other limits, and the run goes on from its last
    checkpoint. A run that begins may have `inherited` from a model. Under torchrun every rank calls this; the first one
    talks, the others follow in silence.
    """
    with started(config.training) as ranks:
        if ranks.first:
            return _train(config, output, resume, host, say, ranks, prepared, inherited)
        return _train(config, output, resume, None, lambda line: None, ranks, None, inherited)


def _train(
    config: RunConfig,
    output: Path,
    resume: bool,
    host: Host | None,
    say: Say,
    ranks: Ranks,
    prepared: Prepared | None,
    inherited: Inherited | None,
) -> Trained:
    config, checkpoint, files = beginning(output, config, resume, say, ranks)
    if prepared is None:
        read = config.model_copy(update={"data": files})
        begun, known = resume or not ranks.first, inherited.tokenizers if inherited else None
        prepared = ranks.in_turn(lambda: gather(read, output, begun, host is not None, say, known))
    # Not before: what was freed on the way to the data goes back to the system.
    tune_allocator()
    tokenizers, encoded, valid = prepared.tokenizers, prepared.train, prepared.valid
    if told := prepared.told():
        say("\n".join(told))
    config = sizes.fill(config, sizes.Corpus(len(encoded), prepared.tokens_an_epoch, threads(), ranks.size))
    settings = {**_settings(config), "data": prepared.digest}
    if checkpoint is not None:
        check_settings(checkpoint, settings)
    models = _models(config, tokenizers, output, inherited)
    model, loss_weights = trained_together([one.model for one in models], config.training.agreement)
    ranks.on_first(lambda: _lay_out(output, config, models, prepared.texts))
    before = going_on(checkpoint, config.training, ranks.size) if checkpoint else []
    for line in [_summary(config, model, ranks.size), *slow_precision(config, ranks.device), *before]:
        say(line)

    data = TrainingData(
        encoded, _given(config.data.batch_tokens), config.training.seed, prepared.mix, splitting_of(config, tokenizers)
    )
    watch = Watching(output, config, tokenizers, valid, prepared.texts)
    about = _about(config, prepared)
    judged = Judged({one: scorer_for(one, prepared, watch) for one in models}, about)
    metric = config.training.metric
    validation = Validation(judged.score, judged.save_best, metric, higher_is_better=metric == "bleu")
    host = replace(host or Host(), watch=watch) if ranks.first else host
    notes = {"files": places(config.data, files)}
    model.to(ranks.device)
    trainer = Trainer(
        model,
        data,
        validation,
        config.training,
        output,
        loss_weights=loss_weights,
        settings=settings,
        host=host,
        notes=notes,
        ranks=ranks,
    )
    ranks.on_first(lambda: watch.prepare(models[0].model, about))
    result = trainer.run(resume)
    _tell(result, metric, say)
    if result.best is not None and ranks.first:
        judged.write_cards(result.best, _history(result))
    if not result.interrupted and ranks.first:
        watch.report(say)
    return Trained(result, config, output, tuple(one.folder for one in models))


def _models(config: RunConfig, tokenizers: Tokenizers, output: Path, inherited: Inherited | None) -> list[Direction]:
    """The models of the run, with their first weights."""
    torch.manual_seed(config.training.seed)
    models = directions(config, tokenizers, output)
    if inherited is not None:
        for one in models:
            inherited.fill(one.model)
    return models


def _lay_out(output: Path, config: RunConfig, models: Sequence[Direction], texts: Sequence[Pair]) -> None:
    """What the folders of the run and of its models hold from the beginning."""
    save_config(output, config)
    for one in models:
        if one.folder != output:
            one.lay_out(texts)


def scorer_for(one: Direction, prepared: Prepared, watch: Watching) -> Scorer:
    """How a direction is measured. Only the first is watched."""
    config, valid = one.config, prepared.valid
    if one.backward:
        valid = valid.turned()
        unseen = config.training.model_copy(update={"watch": 0, "tensorboard": False})
        watch = Watching(one.folder, config.model_copy(update={"training": unseen}), one.tokenizers, valid, ())
    return Scorer(config, one.tokenizers, valid, one.pairs(prepared.texts[: config.training.validate_bleu]), watch)


def _tell(result: Result, metric: str, say: Say) -> None:
    """What a person would not see from the best validation alone."""
    if result.skipped:
        say(f"{result.skipped:,} updates were left out: their loss or gradient was not finite")
    if result.average is not None:
        value = f"the mean of checkpoints has a validation {metric} of {result.average[metric]:.4g}"
        if result.average_of:
            say(f"{value}, at least as good as the best: the model is the mean of {_updates(result.average_of)}")
        elif result.best is not None:
            say(f"{value}, worse than {result.best[metric]:.4g}: the model stays that of update {result.best_step:,}")


def _history(result: Result) -> dict[str, str]:
    """How the model came about, for its card."""
    length = f"{result.steps:,} updates in {told_minutes(result.seconds / 60)} ({result.epochs:.1f} epochs)"
    best = f"mean of {_updates(result.average_of)}" if result.average_of else f"update {result.best_step:,}"
    return {"training": length, "best validation": best}


def _updates(steps: Sequence[int]) -> str:
    return f"updates {', '.join(f'{step:,}' for step in steps)}"


def beginning(
    output: Path, config: RunConfig, resume: bool, say: Say, ranks: Ranks
) -> tuple[RunConfig, Path | None, DataConfig]:
    """The configuration, the checkpoint to go on from, if any, and the data's files where they are.

    The settings get a first look here: reading and encoding a large corpus takes its time. Where an aligner is to make
    links of the text, it does.
    """
    check_guidance(config)
    check_training(config)
    if not resume:
        ranks.on_first(lambda: check_free(output))
        if config.data.align_with is not None:
            config = with_links(config, Path(ranks.on_first(lambda: str(align_text(config.data, output, say)))))
        return config, None, config.data
    found = latest(output / CHECKPOINTS)
    if found is None:
        raise SightlineError(f"{output}: no checkpoint to resume from; start without --resume")
    check_settings(found, _settings(config), partly=True)
    return config, found, find_files(config.data, found)


def slow_precision(config: RunConfig, device: torch.device) -> list[str]:
    """A line about bfloat16 where the hardware does not have it."""
    if config.training.precision != "bfloat16" or has_bfloat16(device.type) is not False:
        return []
    what = "GPU" if device.type == "cuda" else "processor"
    return [
        f"training.precision = bfloat16: this {what} cannot multiply in it, so training will be slower than in float32"
    ]


class Scorer:
    """Validation: loss and perplexity over all validation pairs, BLEU over greedy translations of the first ones."""

    def __init__(
        self, config: RunConfig, tokenizers: Tokenizers, valid: EncodedPairs, texts: list[Pair], watch: Watching
    ) -> None:
        self.config, self.tokenizers, self.valid, self.texts, self.watch = config, tokenizers, valid, texts, watch
        self.options = SearchOptions(beam=1, max_length=most_tokens(config.model)[1])
        # The signature does not depend on what is scored, and a resumed run may have no validation of its own.
        self.signature = metrics.bleu(["a"], ["a"], config.training.bleu_tokenize).signature

    def __call__(self, model: nn.Module) -> Mapping[str, float]:
        assert isinstance(model, Writer)
        budget = 2 * _given(self.config.data.batch_tokens)
        parts = ordered_batches(self.valid.lengths, budget)
        scores = average_losses(model, (self.valid.batch(part) for part in parts))
        # The smoothed loss cannot reach zero; what counts, and is compared, is the plain one.
        scores["loss"] = scores["nll"]
        scores = {name: scores[name] for name in ("loss", "perplexity")}
        if self.texts:
            tokenize = self.config.training.bleu_tokenize
            references = [pair.target for pair in self.texts]
            translations = self.translate(model)
            scores["bleu"] = metrics.bleu(translations, references, tokenize).value
            self.watch.translated(self.texts, translations)
        return scores | self.watch.look(model)

    def translate(self, model: Writer) -> list[str]:
        """The validation texts, translated greedily."""
        count = len(self.texts)
        device = next(model.parameters()).device
        found: dict[int, str] = {}
        for part in ordered_batches(self.valid.source.lengths[:count], self.config.search.batch_tokens):
            batch = Batch(self.valid.batch(part).sources).to(device)
            for index, hypothesis in zip(part.tolist(), greedy_search(model, batch, self.options), strict=True):
                target = self.tokenizers.opened(self.texts[index].source).target
                found[index] = target.decode(hypothesis.tokens)
        return [found[index] for index in range(count)]

    def describe(self, scores: Mapping[str, float]) -> dict[str, str]:
        """The scores as a model card tells them."""
        told = {"validation perplexity": f"{scores['perplexity']:.2f}"}
        if "bleu" in scores:
            sentences = f"{len(self.texts):,} validation sentences, greedy, {self.signature}"
            told["validation BLEU"] = f"{scores['bleu']:.1f} ({sentences})"
        return told


@dataclass(frozen=True)
class Judged:
    """The models of a run, each with its scorer; `about` tells what they learn from."""

    scorers: Mapping[Direction, Scorer]
    about: list[str]

    def score(self, trained: nn.Module) -> Mapping[str, float]:
        """The scores of the run; `trained` is the module that holds its models."""
        return joint_scores({one.name: scorer(one.model) for one, scorer in self.scorers.items()})

    def save_best(self, scores: Mapping[str, float]) -> None:
        """Writes weights and cards."""
        for one in self.scorers:
            save_model(one.folder, one.model)
        self.write_cards(scores, {})

    def write_cards(self, scores: Mapping[str, float], training: dict[str, str]) -> None:
        """Only the cards; `training` tells how the models came about."""
        for one, scorer in self.scorers.items():
            card = Card(self.about, scorer.describe(one.own(scores)), training)
            save_card(one.folder, one.config, one.model, one.tokenizers, card)


def _summary(config: RunConfig, model: nn.Module, ranks: int) -> str:
    training = config.training
    limits = [f"{training.max_steps:,} updates" if training.max_steps else ""]
    limits += [told_minutes(training.max_minutes) if training.max_minutes else ""]
    end = " or ".join(limit for limit in limits if limit)
    together = f" on each of {ranks} ranks ({training.parallel})" if ranks > 1 else ""
    return (
        f"{config.model.recipe}: {parameter_count(model):,} parameters; {end}, "
        f"batches of {config.data.batch_tokens:,} tokens{together}, highest learning rate {training.learning_rate:g}"
    )


def _about(config: RunConfig, prepared: Prepared) -> list[str]:
    """What a run learns from."""
    unit = prepared.account.unit
    return [f"{len(prepared.train):,} training {unit}s, {len(prepared.valid):,} validation {unit}s", *_names(config)]


def _names(config: RunConfig) -> list[str]:
    # A name that is not UTF-8 is no text to write.
    return [f"file {os.fsencode(path.name).decode(errors='replace')}" for path in named_files(config.data)]


def _settings(config: RunConfig) -> dict[str, Any]:
    """What must stay the same on resuming; of the files the content counts, not where they lie."""
    sides = ("source", "target", "pairs", "text")
    files = {*sides, *(f"valid_{side}" for side in sides), "corpora", "alignments", "cache"}
    lasting = lasting_settings(config)
    weights = [corpus.weight for corpus in config.data.corpora]
    return {
        **{name: value for name, value in lasting.items() if name not in {f"data.{key}" for key in files}},
        "data.corpora.weight": weights or [1.0],
    }


def _given(value: int | None) -> int:
    assert value is not None, "sizes.fill chooses it"
    return value
