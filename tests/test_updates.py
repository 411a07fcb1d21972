"""An update of several batches is one of a larger batch; what is not finite is left out and named."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from sightline.batch import Batch
from sightline.config import build_config
from sightline.errors import SightlineError
from sightline.preparing import prepare
from sightline.sizes import Corpus, fill
from sightline.training.loop import Trainer
from sightline.training.run import train
from sightline.training.update import backward, suspects, token_count
from tests.commands import letters, tiny, write_tsv
from tests.test_training import Run, Toy, ToyData, assert_same


class Grouped(ToyData):
    """The same examples in batches of `size`."""

    def __init__(self, size: int, examples: int = 24) -> None:
        super().__init__(examples)
        self.size = size

    def epoch(self, epoch: int) -> list[list[int]]:
        order = [index for part in super().epoch(epoch) for index in part]
        return [order[start : start + self.size] for start in range(0, len(order), self.size)]


class TwoLosses(Toy):
    """A second loss, which counts sentences and not tokens."""

    def loss(self, batch: Batch) -> dict[str, tuple[Tensor, Tensor | int]]:
        losses = super().loss(batch)
        return {**losses, "sentences": (losses["nll"][0] ** 2 / 50, batch.size)}


def gradients(model: nn.Module) -> list[Tensor]:
    return [parameter.grad for parameter in model.parameters() if parameter.grad is not None]


def test_three_batches_are_one_of_three_times_the_size(tmp_path: Path) -> None:
    """Sentences differ in length, so a mean of the batches' means would be another number."""
    large = Run(tmp_path / "large", Grouped(12), Toy(dropout=0))
    small = Run(tmp_path / "small", Grouped(4), Toy(dropout=0))
    one, other = large.trainer(clip=0.5), small.trainer(clip=0.5, accumulate=3)
    first, second = one.run(), other.run()
    for ours, theirs in zip(one.model.parameters(), other.model.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)
    assert (first.steps, first.tokens, first.epochs) == (second.steps, second.tokens, second.epochs)
    assert small.data.served == 3 * large.data.served
    for ours, theirs in zip(large.lines_without_time(), small.lines_without_time(), strict=True):
        assert ours.pop("kind") == theirs.pop("kind")
        assert ours == pytest.approx(theirs, rel=1e-4)


@pytest.mark.parametrize(
    "weights", [{"cross_entropy": 1.0}, {"cross_entropy": 0.7}, {"nll": 1.0, "cross_entropy": 2.0}]
)
def test_gradients_of_several_batches(weights: dict[str, float]) -> None:
    data, model = ToyData(), Toy(dropout=0).double()
    whole = backward(model, [data.batch([0, 1, 2, 3, 4])], weights)
    expected = gradients(model)
    model.zero_grad()
    parts = backward(model, [data.batch([0, 1]), data.batch([2, 3, 4])], weights)
    for ours, theirs in zip(gradients(model), expected, strict=True):
        torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(parts.objective, whole.objective)
    assert len(parts.each) == 2
    assert not parts.objective.requires_grad


def test_every_loss_has_its_own_count() -> None:
    data, weights = ToyData(), {"cross_entropy": 1.0, "sentences": 0.5}
    model = TwoLosses(dropout=0).double()
    batches = [data.batch([0, 1]), data.batch([2, 3, 4])]
    backward(model, batches, weights)
    found = gradients(model)
    model.zero_grad()
    losses = [model.loss(batch) for batch in batches]
    tokens = sum(one["cross_entropy"][0] for one in losses) / token_count(batches)
    (tokens + 0.5 * sum(one["sentences"][0] for one in losses) / 5).backward()  # type: ignore[union-attr]
    for ours, theirs in zip(found, gradients(model), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_a_loss_that_is_not_there() -> None:
    data = ToyData()
    with pytest.raises(SightlineError, match="no loss 'agreement' to train on"):
        backward(Toy(), [data.batch([0]), data.batch([1])], {"agreement": 1.0})


def test_resuming_between_updates_of_several_batches(tmp_path: Path) -> None:
    """Five batches an epoch, three an update: updates reach over the end of an epoch."""

    def run(name: str, *stops: int) -> Trainer:
        for number, stop in enumerate(stops):
            trainer = Run(tmp_path / name).trainer(accumulate=3, max_steps=stop, schedule="constant")
            trainer.run(resume=number > 0)
        return trainer

    assert_same(run("whole", 12), run("parts", 2, 7, 12))


def test_steps_and_validations_count_updates() -> None:
    chosen = [
        fill(build_config({"training": {"accumulate": count}, "data": {"batch_tokens": 100}}), Corpus(1000, 1_000_000))
        for count in (1, 4)
    ]
    assert [one.training.max_steps for one in chosen] == [300_000, 75_000]


# What is not finite


class Allergic(Toy):
    """Its loss, or only its gradient, is not a number for batches with example 7."""

    def __init__(self, gradient_only: bool) -> None:
        super().__init__()
        self.gradient_only = gradient_only

    def loss(self, batch: Batch) -> dict[str, tuple[Tensor, Tensor | int]]:
        losses = super().loss(batch)
        if self.training and 7 in batch.indices:
            total, count = losses["cross_entropy"]
            zero = self.hidden.weight.sum() * 0
            losses["cross_entropy"] = (total + zero.sqrt() if self.gradient_only else total * math.nan, count)
        return losses


@pytest.mark.parametrize("gradient_only", [False, True])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_one_bad_batch_leaves_out_its_update_only(tmp_path: Path, gradient_only: bool, accumulate: int) -> None:
    run = Run(tmp_path, model=Allergic(gradient_only))
    result = run.trainer(accumulate=accumulate).run()
    epochs = 20 * accumulate / 5
    assert result.skipped == epochs
    assert all(bool(torch.isfinite(parameter).all()) for parameter in run.model.parameters())


def test_the_batch_that_is_not_finite_is_named() -> None:
    batches = [Batch((), None, (1, 2)), Batch((), None, (3,)), Batch((), None, (4, 5))]
    assert suspects(batches, [1.0, math.nan, math.inf]) == [3, 4, 5]
    assert suspects(batches, [1.0, 1.0, 1.0]) == [1, 2, 3, 4, 5]  # the gradient was not finite: it may be any


def test_lines_are_those_of_the_file_although_some_were_dropped_or_held_out(tmp_path: Path) -> None:
    rows = [("", "X"), *letters(40, seed=3), ("a", ""), ("q " * 300, "Q"), *letters(9, seed=4)]
    path = write_tsv(tmp_path / "p.tsv", rows)
    config = build_config({"text": {"tokenizer": "word"}, "data": {"pairs": str(path), "held_out": 5}})
    found = prepare(config, 250)
    assert len(found.train) == len(rows) - 3 - 5
    for number in range(len(found.train)):
        name, _, line = found.train.where(number).rpartition(", line ")
        assert name == str(path)
        ids = found.train.batch(np.array([number])).sources[0].ids[0].tolist()
        assert found.tokenizers.source.decode(ids[:-1]) == rows[int(line) - 1][0]


def test_a_run_that_stays_not_finite_names_its_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_tsv(tmp_path / "p.tsv", letters(40, seed=3))
    values: dict[str, Any] = {**tiny("transformer"), "data": {"pairs": str(path), "batch_tokens": 12}}
    step = Trainer._update

    def poisoned(trainer: Trainer) -> None:
        with torch.no_grad():
            next(trainer.model.parameters()).fill_(math.nan)
        step(trainer)

    monkeypatch.setattr(Trainer, "_update", poisoned)
    with pytest.raises(SightlineError, match=r"step 20: .* 20 times in a row, last with .*p\.tsv, line \d+"):
        train(build_config(values, "transformer"), tmp_path / "run")
