"""What a run would need, before it begins: a few updates and a validation are really made, and measured."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from sightline import sizes
from sightline.config import RunConfig, TrainingConfig
from sightline.data import EncodedPairs, batches
from sightline.errors import SightlineError
from sightline.folder import load_tokenizers
from sightline.guidance import check_guidance
from sightline.limits import most_tokens
from sightline.models import parameter_count
from sightline.performance import peak_memory, threads, tune_allocator
from sightline.preparing import Prepared, prepare
from sightline.training.checkpoints import read_trainer, rehearse_checkpoint
from sightline.training.directions import Direction, directions, trained_together
from sightline.training.loop import Host, State, Trainer, Validation
from sightline.training.material import WATCHED_AMONG, check_training
from sightline.training.progress import Report, Silent
from sightline.training.ranks import Ranks, started
from sightline.training.run import Judged, beginning, scorer_for, slow_precision
from sightline.training.watch import Sample
from sightline.training.watching import Watching

UPDATES = 12
WARM = 2  # the first updates, which are slower, do not count
BYTES = 2**20
Say = Callable[[str], None]


@dataclass(frozen=True)
class Estimate:
    """Sizes, memory in bytes on each of the ranks, and time. `epochs` is what the limits come to.

    `unit` is what a pair is called: text without a source has lines. Of a run that goes on after `done` updates,
    updates, epochs, validations and minutes are those that are left. `averaged`: a moving average is kept.
    """

    pairs: int
    parameters: int
    state: int
    peak: int
    ranks: int
    updates_an_epoch: int
    updates: int
    epochs: float
    tokens_per_second: float
    minutes: float
    validations: int
    validation_minutes: float
    unit: str = "pair"
    done: int = 0
    averaged: bool = False

    def __str__(self) -> str:
        each = f" on each of {self.ranks} ranks" if self.ranks > 1 else ""
        what = "what is left" if self.done else "the whole run"
        after = f" after {self.done:,}" if self.done else ""
        kept = "Adam's moments and the moving average" if self.averaged else "and Adam's moments"
        times = f"{self.validations:,} validation{'s' if self.validations != 1 else ''}"
        return "\n".join(
            (
                f"{self.unit + 's':<16}  {self.pairs:,}",
                f"parameters        {self.parameters:,}",
                f"memory            {self.peak / BYTES:,.0f} MiB at its highest{each}, of which weights, gradients"
                f"{',' if self.averaged else ''} {kept} take {self.state / BYTES:,.0f}",
                f"updates an epoch  {self.updates_an_epoch:,}",
                f"target tokens/s   {self.tokens_per_second:,.0f}",
                f"{what:<16}  {self.updates:,} updates{after} ({self.epochs:.1f} epochs) in about "
                f"{self.minutes:,.0f} minutes, {self.validation_minutes:,.0f} of them for {times}",
            )
        )


@dataclass(frozen=True)
class Measured:
    """Seconds and target tokens, of all ranks, of the updates that count, and seconds of a validation."""

    seconds: float
    tokens: int
    validation: float


class _Watch(Silent):
    """Notes when updates end, and how long the validation takes."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock, self.times, self.validation = clock, [clock()], 0.0

    def update(self, report: Report) -> None:
        self.times.append(self.clock())

    def validating(self) -> None:
        self.validation = -self.clock()

    def validated(self, step: int, metrics: Mapping[str, float], best: bool, samples: Sequence[Sample] = ()) -> None:
        self.validation += self.clock()


class _Sample:
    """A few batches of an epoch, the largest first: if there is memory for it there is for all."""

    def __init__(self, pairs: EncodedPairs, chosen: list[np.ndarray]) -> None:
        self.pairs, self.chosen = pairs, chosen
        self.batch, self.where = pairs.batch, pairs.where

    def epoch(self, epoch: int) -> list[np.ndarray]:
        """The same ones every time."""
        return self.chosen


class _Trial(Trainer):
    """Keeps nothing: checkpoints are put together, for the memory that they take, and forgotten."""

    def _save(self, ended: bool = False) -> Path:
        if self._checkpoint is None:
            rehearse_checkpoint(self.spread.owner, self.optimizer, self._averaged_values(), self.ranks)
            self._checkpoint = self.folder
        return self.folder


def estimated(config: RunConfig, say: Say = lambda line: None, resumed: Path | None = None) -> Estimate:
    """Prepares the data as a run would, makes a few updates and a validation in a temporary folder, and reckons.

    With the folder of a run to be `resumed`, what is left of it; the updates are those of a model that is new.
    Under torchrun every rank calls this, and the updates are those of all ranks together.
    """
    with started(config.training) as ranks:
        return _estimated(config, say if ranks.first else lambda line: None, ranks, resumed)


def _estimated(config: RunConfig, say: Say, ranks: Ranks, resumed: Path | None) -> Estimate:
    check_training(config)
    check_guidance(config)
    if config.data.align_with is not None:
        raise SightlineError("--estimate would have to align first: leave out data.align_with, or give data.alignments")
    read, known, state = config, None, State()
    if resumed is not None:
        config, checkpoint, files = beginning(resumed, config, True, say, ranks)
        assert checkpoint is not None
        read, known = config.model_copy(update={"data": files}), load_tokenizers(resumed, config)
        state = State(**read_trainer(checkpoint)["state"])
    longest = min(config.data.max_length, *most_tokens(config.model))
    texts = max(config.training.validate_bleu, WATCHED_AMONG)
    prepared = ranks.in_turn(lambda: prepare(read, longest, known, texts, say, show=ranks.first))
    for line in prepared.told():
        say(line)
    tune_allocator()
    train, tokens = prepared.train, prepared.tokens_an_epoch
    config = sizes.fill(config, sizes.Corpus(len(train), tokens, threads(), ranks.size))
    training = config.training
    assert config.data.batch_tokens is not None
    epoch = batches(train, config.data.batch_tokens, training.seed, 0, prepared.mix)
    torch.manual_seed(training.seed)
    models = directions(config, prepared.tokenizers, Path())
    for line in slow_precision(config, ranks.device):
        say(line)
    largest = max(epoch, key=lambda part: len(part) * int(train.lengths[part].max()) ** 2)
    sample = _Sample(train, [largest, *epoch[: UPDATES * ranks.size - 1]])
    say(f"trying {len(sample.chosen) * training.accumulate} batches and a validation")
    found = _measure(config, models, sample, prepared, ranks)
    updates_an_epoch = max(1, len(epoch) // (training.accumulate * ranks.size))
    an_update = found.seconds * (tokens / updates_an_epoch) / found.tokens
    updates, validations = reckoned(training, an_update, found.validation, state.step, state.seconds)
    parameters = sum(parameter_count(one.model) for one in models)
    return Estimate(
        pairs=len(train),
        parameters=parameters,
        state=parameters * 4 * (5 if training.ema else 4) // (ranks.size if training.parallel == "fsdp" else 1),
        peak=peak_memory(),
        ranks=ranks.size,
        updates_an_epoch=updates_an_epoch,
        updates=updates,
        epochs=updates / updates_an_epoch,
        tokens_per_second=found.tokens / found.seconds,
        minutes=(updates * an_update + validations * found.validation) / 60,
        validations=validations,
        validation_minutes=validations * found.validation / 60,
        unit=prepared.account.unit,
        done=state.step,
        averaged=bool(training.ema),
    )


def reckoned(
    training: TrainingConfig, an_update: float, validation: float, done: int = 0, seconds: float = 0.0
) -> tuple[int, int]:
    """Updates and validations that the limits come to, when they take so many seconds each.

    Without the updates that are `done`, and their time. The last update is followed by a validation, and with
    `average` by another one, of the mean.
    """
    every = training.validate_every
    assert every is not None, "sizes.fill chooses it"
    updates = (training.max_steps or 10**12) - done
    if training.max_minutes is not None:
        left = training.max_minutes * 60 - seconds
        updates = min(updates, int(left / (an_update + validation / every)))
    if updates <= 0:
        return 0, 0
    return updates, -(-(done + updates) // every) - done // every + (training.average != "none")


def _measure(
    config: RunConfig, models: Sequence[Direction], sample: _Sample, prepared: Prepared, ranks: Ranks
) -> Measured:
    """The trainer makes the updates, and at its end validates as every run does."""
    together = config.training.accumulate * ranks.size
    count = max(WARM + 1, len(sample.chosen) // ranks.size)
    changes: dict[str, Any] = {
        "max_steps": count,
        "max_minutes": None,
        "validate_every": count + 1,
        "save_every": count + 1,
        "average": "none",
        "tensorboard": False,
    }
    config = config.model_copy(update={"training": config.training.model_copy(update=changes)})
    model, weights = trained_together([one.model for one in models], config.training.agreement)
    model.to(ranks.device)
    progress = _Watch(time.perf_counter)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        validation = Validation(_scoring(config, models, prepared, folder), lambda scores: None, config.training.metric)
        host = Host(progress)
        result = _Trial(model, sample, validation, config.training, folder, weights, host=host, ranks=ranks).run()
    if result.interrupted:
        raise KeyboardInterrupt
    served = [sample.chosen[number % len(sample.chosen)] for number in range(count * together)]
    tokens = sum(int(sample.pairs.target.lengths[indices].sum()) for indices in served[WARM * together :])
    return Measured(progress.times[-1] - progress.times[WARM], tokens, progress.validation)


def _scoring(
    config: RunConfig, models: Sequence[Direction], prepared: Prepared, folder: Path
) -> Callable[[nn.Module], Mapping[str, float]]:
    """A run's validation. A model that has learnt nothing ends its translations at once, or never: here each becomes
    as long as a reference is on average."""
    watch = Watching(folder, config, prepared.tokenizers, prepared.valid, prepared.texts)
    scorers = {one: scorer_for(one, prepared, watch) for one in models}
    for scorer in scorers.values():
        length = min(round(float(scorer.valid.target.lengths.mean())), most_tokens(config.model)[1])
        scorer.options = replace(scorer.options, min_length=length, max_ratio=0.0, max_extra=length)
    return Judged(scorers, []).score
