"""What a run would need, before it begins: a few updates are really made, and measured."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from sightline import sizes
from sightline.config import RunConfig
from sightline.data import EncodedPairs, batches
from sightline.errors import SightlineError
from sightline.guidance import check_guidance
from sightline.limits import most_tokens
from sightline.models import parameter_count
from sightline.performance import peak_memory, threads, tune_allocator
from sightline.preparing import prepare
from sightline.training.directions import directions, trained_together
from sightline.training.loop import Host, Trainer, Validation
from sightline.training.progress import Report, Silent

UPDATES = 12
WARM = 2  # the first updates, which are slower, do not count
BYTES = 2**20


@dataclass(frozen=True)
class Estimate:
    """Sizes, memory in bytes, and time. `minutes` leaves validations out; `epochs` is what the limits come to.

    `unit` is what a pair is called: text without a source has lines.
    """

    pairs: int
    parameters: int
    state: int
    peak: int
    updates_an_epoch: int
    updates: int
    epochs: float
    tokens_per_second: float
    minutes: float
    unit: str = "pair"

    def __str__(self) -> str:
        return "\n".join(
            (
                f"{self.unit + 's':<16}  {self.pairs:,}",
                f"parameters        {self.parameters:,}",
                f"memory            {self.peak / BYTES:,.0f} MiB at its highest, of which weights, gradients and "
                f"Adam's moments take {self.state / BYTES:,.0f}",
                f"updates an epoch  {self.updates_an_epoch:,}",
                f"target tokens/s   {self.tokens_per_second:,.0f}",
                f"the whole run     {self.updates:,} updates ({self.epochs:.1f} epochs) in about "
                f"{self.minutes:,.0f} minutes, validations not counted",
            )
        )


class _Measured(Silent):
    """Notes when updates end, and the tokens they had."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock, self.times = clock, [clock()]

    def update(self, report: Report) -> None:
        self.times.append(self.clock())


class _Sample:
    """A few batches of an epoch, the largest first: if there is memory for it there is for all."""

    def __init__(self, pairs: EncodedPairs, chosen: list[np.ndarray]) -> None:
        self.pairs, self.chosen = pairs, chosen
        self.batch, self.where = pairs.batch, pairs.where

    def epoch(self, epoch: int) -> list[np.ndarray]:
        """The same ones every time."""
        return self.chosen


def estimated(config: RunConfig, say: Callable[[str], None] = lambda line: None) -> Estimate:
    """Prepares the data as a run would, makes a few updates in a temporary folder, and reckons."""
    check_guidance(config)
    if config.data.align_with is not None:
        raise SightlineError("--estimate would have to align first: leave out data.align_with, or give data.alignments")
    longest = min(config.data.max_length, *most_tokens(config.model))
    prepared = prepare(config, longest, say=say, show=True)
    tune_allocator()
    processors = threads()
    config = sizes.fill(config, sizes.Corpus(len(prepared.train), prepared.tokens_an_epoch, processors))
    training = config.training
    tokens = config.data.batch_tokens
    assert tokens is not None
    epoch = batches(prepared.train, tokens, training.seed, 0, prepared.mix)
    torch.manual_seed(training.seed)
    models = [one.model for one in directions(config, prepared.tokenizers, Path())]
    model, weights = trained_together(models, training.agreement)
    model.to(torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    lengths = prepared.train.lengths
    largest = max(epoch, key=lambda part: len(part) * int(lengths[part].max()) ** 2)
    sample = _Sample(prepared.train, [largest, *epoch[: UPDATES - 1]])
    say(f"trying {len(sample.chosen) * training.accumulate} batches")
    seconds, seen = _measure(config, model, weights, sample)
    updates_an_epoch = max(1, len(epoch) // training.accumulate)
    seconds_an_update = seconds * (prepared.tokens_an_epoch / updates_an_epoch) / seen
    updates = training.max_steps or 10**12
    if training.max_minutes is not None:
        updates = min(updates, int(training.max_minutes * 60 / seconds_an_update))
    parameters = parameter_count(model)
    return Estimate(
        pairs=len(prepared.train),
        parameters=parameters,
        state=parameters * 4 * 4,
        peak=peak_memory(),
        updates_an_epoch=updates_an_epoch,
        updates=updates,
        epochs=updates / updates_an_epoch,
        tokens_per_second=seen / seconds,
        minutes=updates * seconds_an_update / 60,
        unit=prepared.account.unit,
    )


def _measure(config: RunConfig, model: nn.Module, weights: Mapping[str, float], sample: _Sample) -> tuple[float, int]:
    """Seconds and target tokens of the updates that count."""
    count = max(WARM + 1, len(sample.chosen))
    limits: dict[str, Any] = {
        "max_steps": count,
        "max_minutes": None,
        "validate_every": count + 1,
        "save_every": count + 1,
    }
    limits |= {"average": "none", "ema": 0.0}
    training = config.training.model_copy(update=limits)
    progress = _Measured(time.perf_counter)
    validation = Validation(lambda model: {"loss": 0.0}, lambda scores: None)
    with tempfile.TemporaryDirectory() as folder:
        host = replace(Host(), progress=progress)
        Trainer(model, sample, validation, training, Path(folder), weights, host=host).run()
    served = [sample.chosen[number % len(sample.chosen)] for number in range(count * training.accumulate)]
    counted = served[WARM * training.accumulate :]
    tokens = sum(int(sample.pairs.target.lengths[indices].sum()) for indices in counted)
    return progress.times[-1] - progress.times[WARM], tokens
