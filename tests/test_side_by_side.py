"""Parts of an update side by side: the gradients of the whole, and never a matter of chance."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from sightline.batch import Batch, pad
from sightline.config import build_config
from sightline.errors import SightlineError
from sightline.sizes import Corpus, fill
from sightline.training import side_by_side, update
from sightline.training.side_by_side import Workers
from tests.commands import RECIPES
from tests.conftest import random_batch, small_model
from tests.test_training import Run, Toy, ToyData, assert_same
from tests.test_updates import TwoLosses, gradients

BATCHES = [random_batch([5, 3, 2], [4, 6, 1], seed=1), random_batch([7, 7], [2, 5], seed=2), random_batch([1], [3])]


@pytest.fixture
def workers() -> Any:
    made: list[Workers] = []

    def make(parts: int = 3, seed: int = 5) -> Workers:
        made.append(Workers(parts, seed))
        return made[-1]

    yield make
    for one in made:
        one.close()


Make = Callable[..., Workers]


@pytest.mark.parametrize("weights", [{"cross_entropy": 1.0}, {"cross_entropy": 0.7, "sentences": 2.0}])
def test_the_gradients_are_those_of_one_batch_after_the_other(weights: dict[str, float], workers: Make) -> None:
    model, data = TwoLosses(dropout=0).double(), ToyData()
    batches = [data.batch([0, 1]), data.batch([2, 3, 4]), data.batch([5])]
    expected = update.backward(model, batches, weights)
    theirs = gradients(model)
    model.zero_grad()
    found = side_by_side.backward(model, batches, weights, workers(), step=1)
    torch.testing.assert_close(gradients(model), theirs)
    torch.testing.assert_close(found.objective, expected.objective)
    torch.testing.assert_close(found.each, expected.each)
    torch.testing.assert_close(found.losses, expected.losses)
    assert not found.objective.requires_grad


CELLS = [("luong", "lstm"), ("luong", "rnn"), ("seq2seq", "lstm"), ("bahdanau", "gru"), ("bahdanau", "rnn")]


@pytest.mark.parametrize("parts", [1, 2, 3])
@pytest.mark.parametrize(("recipe", "cell"), [*CELLS, ("transformer", None)])
def test_every_recipes_gradients_are_those_of_its_batches(
    recipe: str, cell: str | None, parts: int, workers: Make
) -> None:
    """Also of parameters that are added up before they are used: no two may share a gradient's memory."""
    changes = {} if cell is None else {"encoder": {"kind": cell}, "decoder": {"cell": cell}}
    model, weights = small_model(recipe, changes), {"cross_entropy": 1.0}
    expected = update.backward(model, BATCHES[:parts], weights)
    theirs = gradients(model)
    model.zero_grad()
    found = side_by_side.backward(model, BATCHES[:parts], weights, workers(parts), step=1)
    torch.testing.assert_close(gradients(model), theirs)
    torch.testing.assert_close(found.objective, expected.objective)
    places = [value.data_ptr() for value in gradients(model)]
    assert len(set(places)) == len(places)


@pytest.mark.parametrize("recipe", RECIPES)
def test_dropout_is_the_same_however_many_threads_there_are(
    recipe: str, workers: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = small_model(recipe, {"dropout": 0.4, "attention_dropout": 0.2}).train()
    found: list[list[Tensor]] = []
    for processors in (1, 3, 3, 2):
        monkeypatch.setattr(side_by_side, "available_processors", lambda count=processors: count)
        model.zero_grad()
        side_by_side.backward(model, BATCHES, {"cross_entropy": 1.0}, workers(), step=7)
        found.append(gradients(model))
        torch.rand(3)  # torch's own generator plays no part
    assert all(torch.equal(one, other) for later in found[1:] for one, other in zip(found[0], later, strict=True))
    for seed, step in ((6, 7), (5, 8)):
        model.zero_grad()
        side_by_side.backward(model, BATCHES, {"cross_entropy": 1.0}, workers(seed=seed), step)
        assert not all(torch.equal(one, other) for one, other in zip(found[0], gradients(model), strict=True))


def test_each_part_draws_its_own_numbers(workers: Make) -> None:
    one = workers()
    draws = {tuple(torch.rand(4, generator=one.generator(step, part)).tolist()) for step in (1, 2) for part in (0, 1)}
    assert len(draws) == 4


def test_every_example_is_in_one_part(workers: Make) -> None:
    for size in range(1, 9):
        rows = pad([[4] * (1 + number) for number in range(size)], 0)
        parts = workers(3).parted(Batch((rows,), rows, tuple(range(size))))
        assert len(parts) == min(3, size)
        assert [index for part in parts for index in part.indices] == list(range(size))
        assert all(part.size for part in parts)


def test_parts_have_equal_work_and_no_columns_of_padding(workers: Make) -> None:
    """Twelve targets of two tokens; sources of one token, then of five: 6 x (1 + 4) + 6 x (5 + 4) = 84 = 39 + 45."""
    sources, targets = pad([[4]] * 6 + [[4] * 5] * 6, 0), pad([[4, 4]] * 12, 0)
    first, second = workers(2).parted(Batch((sources,), targets))
    assert (first.size, second.size) == (7, 5)
    assert (first.sources[0].mask.shape, second.sources[0].mask.shape) == ((7, 5), (5, 5))
    first, _ = workers(2).parted(Batch((pad([[4]] * 6 + [[4, 4]] * 6, 0),), targets))
    assert first.sources[0].mask.shape == (6, 1)  # 30 of 66


def test_a_part_has_its_own_links(workers: Make) -> None:
    links = torch.rand(4, 3, 5) < 0.5
    whole = Batch((pad([[4]] * 2 + [[4] * 5] * 2, 0),), pad([[4, 4]] * 2 + [[4] * 3] * 2, 0), links=links)
    parts = [whole.between(0, 2), whole.between(2, 4)]
    assert torch.equal(parts[0].links, links[:2, :2, :1])
    assert torch.equal(parts[1].links, links[2:])


def test_a_run_in_parts_learns_the_same(tmp_path: Path) -> None:
    whole, parts = Run(tmp_path / "whole", model=Toy(dropout=0)), Run(tmp_path / "parts", model=Toy(dropout=0))
    one, other = whole.trainer(), parts.trainer(workers=3, accumulate=1)
    first, second = one.run(), other.run()
    for ours, theirs in zip(one.model.parameters(), other.model.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)
    assert (first.steps, first.tokens) == (second.steps, second.tokens)


def test_a_resumed_run_in_parts_is_the_same_to_the_bit(tmp_path: Path) -> None:
    straight, broken = Run(tmp_path / "straight", model=Toy(dropout=0)), Run(tmp_path / "broken", model=Toy(dropout=0))
    one = straight.trainer(workers=2, max_steps=9)
    one.run()
    broken.trainer(workers=2, max_steps=4).run()
    other = broken.trainer(workers=2, max_steps=9)
    other.run(resume=True)
    assert_same(one, other)


def test_between_the_parts_one_thread_computes_and_in_validations_all(tmp_path: Path) -> None:
    torch.set_num_threads(2)
    seen: dict[str, set[int]] = {"update": set(), "validation": set()}
    run = Run(tmp_path, ToyData(before=lambda number: seen["update"].add(torch.get_num_threads())), Toy(dropout=0))
    run.validate = lambda model: seen["validation"].add(torch.get_num_threads()) or {"loss": 1.0}
    run.trainer(workers=2).run()
    assert seen == {"update": {1}, "validation": {2}}
    assert torch.get_num_threads() == 2


def test_a_mistake_in_a_part_is_told(workers: Make) -> None:
    class Broken(Toy):
        def loss(self, batch: Batch) -> dict[str, tuple[Tensor, Tensor | int]]:
            if batch.indices[0] == 2:
                raise SightlineError("this one")
            return super().loss(batch)

    data = ToyData()
    with pytest.raises(SightlineError, match="this one"):
        side_by_side.backward(Broken(), [data.batch([0]), data.batch([2])], {"cross_entropy": 1.0}, workers(), 1)
    with pytest.raises(SightlineError, match="no loss 'other'"):
        side_by_side.backward(Toy(), [data.batch([0])], {"other": 1.0}, workers(), 1)


@pytest.mark.parametrize(("processors", "tokens", "expected"), [(1, 4096, 1), (2, 4096, 2), (2, 256, 1), (64, 4096, 8)])
def test_how_many_parts(processors: int, tokens: int, expected: int) -> None:
    config = build_config({"data": {"batch_tokens": tokens}}, "transformer")
    assert fill(config, Corpus(1000, 10_000, processors)).training.workers == expected
