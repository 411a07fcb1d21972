"""Where padding may stand: a batch padded on the left, or anywhere, is the same batch as one padded on the right."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sightline.batch import Batch, Tokens, pad
from sightline.search import SearchOptions, beam_search
from tests.conftest import random_batch, small_model
from tests.twins import shake

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "seq2seq": ("seq2seq", {}),
    "bahdanau": ("bahdanau", {}),
    "bahdanau, convolution": ("bahdanau", {"encoder": {"kind": "convolution"}}),
    "luong": ("luong", {"attention": {"span": "local-p", "window": 2}}),
    "luong, positions": ("luong", {"encoder": {"kind": "positions"}}),
    "transformer": ("transformer", {}),
    "transformer, learned positions": ("transformer", {"positions": "learned", "max_positions": 40}),
}


def on_the_left(tokens: Tokens, more: int = 3) -> tuple[Tensor, Tensor]:
    """Ids and mask of the same sentences with their padding before them, and some more of it."""
    width = tokens.ids.size(1) + more
    ids, mask = torch.zeros(len(tokens.ids), width, dtype=torch.long), torch.zeros(len(tokens.ids), width).bool()
    for row, (given_ids, real) in enumerate(zip(tokens.ids, tokens.mask, strict=True)):
        length = int(real.sum())
        ids[row, width - length :] = given_ids[real]
        mask[row, width - length :] = True
    return ids, mask


def moved(batch: Batch) -> Batch:
    source = batch.sources[0]
    assert isinstance(source, Tokens)
    targets = None if batch.targets is None else Tokens(*on_the_left(batch.targets))
    return Batch((Tokens(*on_the_left(source)),), targets, batch.indices)


@pytest.mark.parametrize("name", MODELS)
def test_left_padded_batches_have_the_same_probabilities(name: str) -> None:
    recipe, changes = MODELS[name]
    model = small_model(recipe, changes)
    shake(model)
    right = random_batch([5, 9, 2], [4, 7, 6])
    left = moved(right)
    assert right.targets is not None
    assert left.targets is not None
    expected, found = model.token_log_probs(right), model.token_log_probs(left)
    torch.testing.assert_close(found[left.targets.mask], expected[right.targets.mask])
    torch.testing.assert_close(model.loss(left)["nll"][0], model.loss(right)["nll"][0])


@pytest.mark.parametrize("name", MODELS)
def test_left_padded_sources_have_the_same_translations_and_weights(name: str) -> None:
    """The columns of the weights are the source's tokens, wherever its padding stood."""
    recipe, changes = MODELS[name]
    model = small_model(recipe, changes)
    shake(model)
    if recipe == "transformer":
        model.decoder.alignment = (1, None)
    batch, options = random_batch([5, 9, 2]), SearchOptions(beam=3)
    searches = (beam_search(model, one, options) for one in (batch, moved(batch)))
    for expected, found in zip(*searches, strict=True):
        assert [one.tokens for one in found] == [one.tokens for one in expected]
        assert [one.log_prob for one in found] == pytest.approx([one.log_prob for one in expected])
        for one, other in zip(found, expected, strict=True):
            if other.weights is not None:
                torch.testing.assert_close(torch.as_tensor(one.weights), torch.as_tensor(other.weights))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.lists(st.booleans(), min_size=6, max_size=6), min_size=1, max_size=4))
def test_a_sentence_is_its_real_tokens_in_their_order(rows: list[list[bool]]) -> None:
    mask = torch.tensor(rows)
    ids = torch.arange(1, mask.numel() + 1).view_as(mask)
    tokens = Tokens(ids, mask)
    wanted = [row[real].tolist() for row, real in zip(ids, mask, strict=True)]
    assert [row[real].tolist() for row, real in zip(tokens.ids, tokens.mask, strict=True)] == wanted
    assert tokens.mask.sum(1).tolist() == [len(row) for row in wanted]
    assert torch.equal(tokens.mask, tokens.mask.int().cummin(1).values.bool())  # no token after padding


def test_right_padded_batches_are_left_alone() -> None:
    ids, mask = pad([[4, 5, 3], [3]], 0).ids, pad([[4, 5, 3], [3]], 0).mask
    tokens = Tokens(ids, mask)
    assert tokens.ids is ids
    assert tokens.mask is mask


@pytest.mark.parametrize("shape", [(0, 1), (2, 1), (0, 5)])
def test_batches_with_nothing_to_move(shape: tuple[int, int]) -> None:
    ids = torch.zeros(shape, dtype=torch.long)
    assert Tokens(ids, ids.bool()).ids is ids
