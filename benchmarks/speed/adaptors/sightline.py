"""Sightline, through the trainer that `sightline train` runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import sightline
from benchmarks.speed.job import Job
from benchmarks.speed.plan import Plan
from benchmarks.speed.turns import Missing, Turns
from sightline.batch import Batch
from sightline.config import RunConfig, build_config
from sightline.data import EncodedPairs, Side
from sightline.errors import SightlineError
from sightline.folder import WEIGHTS
from sightline.interop import marian, weights
from sightline.models import EncoderDecoder, build_model, parameter_count
from sightline.performance import threads, tune_allocator
from sightline.text import Sizes
from sightline.training.compiling import compile_layers
from sightline.training.loop import Host, Trainer, Validation
from sightline.training.progress import Report, Silent

NEVER = 10**9


class PlannedData:
    """The plan's batches as the trainer's data: all of them are one epoch, in the plan's order."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        count = len(plan.source_offsets) - 1
        source, target = Side(plan.source_ids, plan.source_offsets), Side(plan.target_ids, plan.target_offsets)
        self.pairs = EncodedPairs(source, target, np.arange(count))

    def epoch(self, epoch: int) -> Sequence[NDArray[Any]]:
        return [self.plan.batch(number) for number in range(len(self.plan))]

    def batch(self, indices: NDArray[Any]) -> Batch:
        return self.pairs.batch(indices)


class TakingTurns(Silent):
    """Follows the training from inside, and holds it up between turns."""

    def __init__(self, turns: Turns) -> None:
        self.turns = turns

    def update(self, report: Report) -> None:
        self.turns.done(report.objective)


def configuration(job: Job) -> RunConfig:
    """The recipe with the job's sizes, everything else as it comes."""
    training = {
        "seed": job.seed,
        "max_steps": NEVER,
        "validate_every": NEVER,
        "schedule": "inverse_sqrt",
        "learning_rate": job.peak,
        "warmup": job.warmup,
        "betas": list(job.betas),
        "epsilon": job.epsilon,
        "label_smoothing": job.smoothing,
        "clip": job.clip,
        "compile": job.compiled,
        "workers": 1 if job.compiled else job.threads,
    }
    if job.is_recurrent:
        recurrent = job.recurrent()
        encoder: dict[str, Any] = {"kind": "gru", "width": recurrent.encoder // 2, "layers": 1}
        decoder: dict[str, Any] = {"cell": "gru", "width": recurrent.decoder, "layers": 1}
        model: dict[str, Any] = {"embedding": recurrent.embedding, "attention": {"score": "additive"}}
        recipe = "luong" if job.input_feeding else "bahdanau"
    else:
        size = job.transformer()
        encoder = decoder = {"layers": size.layers, "heads": size.heads, "feedforward": size.feedforward}
        model, recipe = {"embedding": size.width, "norm_position": job.norm_position}, "transformer"
    model |= {"dropout": job.dropout, "encoder": encoder, "decoder": decoder}
    return build_config({"model": model, "training": training}, recipe)


def begin_as_marian(model: EncoderDecoder, config: RunConfig, folder: Path) -> None:
    """Takes up the weights that MarianMT began with, to learn what it learns.

    Its output layer has no bias to learn, and padding's row of the table is there as any other.
    """
    entries: list[int | None] = list(range(model.output.weight.size(0)))
    theirs = marian.from_marian(weights.read(folder / WEIGHTS), config.model, entries, str(folder))
    model.load_state_dict({name: torch.from_numpy(value) for name, value in theirs.items()})
    model.output.bias.requires_grad_(False)
    model.output.fixed_row = None


def train(job: Job, plan: Plan, turns: Turns) -> None:
    """A run without validation or checkpoints, which end a run or interrupt it, and are not training."""
    tune_allocator()
    threads(job.threads)
    config = configuration(job)
    torch.manual_seed(job.seed)
    model = build_model(config.model, Sizes(plan.vocabulary, plan.vocabulary, True), config.training.label_smoothing)
    if job.start:
        begin_as_marian(model, config, Path(job.start))
    if job.compiled:
        try:
            compile_layers(model)
        except SightlineError as error:
            raise Missing(str(error)) from None
    validation = Validation(lambda model: {"loss": 0.0}, lambda scores: None)
    host = Host(progress=TakingTurns(turns))
    trainer = Trainer(model, PlannedData(plan), validation, config.training, Path(job.folder), host=host)
    turns.ready(version=f"sightline {sightline.__version__}", parameters=parameter_count(model))
    trainer.run()
