"""Writing while the source comes in: the same as greedy search over the whole of it, and never too early."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from sightline.batch import Tokens
from sightline.errors import SightlineError
from sightline.hypothesis import SearchOptions
from sightline.models import EncoderDecoder
from sightline.online import OnlineWriter
from sightline.search import greedy_search
from tests.conftest import random_batch, small_model

ONLINE: dict[str, Any] = {
    "attention": {"choice": "online_monotonic", "stop_bias": 0.0},
    "encoder": {"bidirectional": False},
}
MOST = 8


def made(recipe: str) -> EncoderDecoder:
    """Weights larger than they come, so that it stops here and goes on there."""
    model = small_model(recipe, ONLINE)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3 if parameter.dim() > 1 else 1).add_(0.2 * torch.randn_like(parameter))
    return model


@pytest.mark.parametrize("recipe", ["bahdanau", "luong"])
def test_the_same_as_greedy_search(recipe: str) -> None:
    model, batch, early = made(recipe), random_batch([6, 9, 3, 7]), 0
    source = batch.sources[0]
    assert isinstance(source, Tokens)
    with torch.no_grad():
        expected = greedy_search(model, batch, SearchOptions(max_length=MOST))
    for row, hypothesis in enumerate(expected):
        tokens = source.ids[row, : int(source.mask[row].sum()) - 1].tolist()
        writer = OnlineWriter(model, MOST)
        for token in tokens:
            early += len(writer.push([token]))
        writer.finish()
        assert writer.written == hypothesis.tokens
    assert early > 0


def test_what_is_written_does_not_depend_on_what_comes_later() -> None:
    model = made("luong")
    for last in (5, 6, 7):
        writer = OnlineWriter(model, MOST)
        first = writer.push([4, 8]) + writer.push([])
        writer.push([last])
        assert writer.written[: len(first)] == first
        assert OnlineWriter(model, MOST).push([4, 8]) == first


@pytest.mark.parametrize(
    ("recipe", "changes", "told"),
    [
        ("luong", {}, "online_monotonic"),
        ("seq2seq", {}, "online_monotonic"),
        ("luong", {"attention": {"choice": "online_monotonic"}}, "reads ahead"),
        ("luong", {**ONLINE, "attention": {**ONLINE["attention"], "position_bias": True}}, "lies ahead"),
        ("luong", {**ONLINE, "copying": {"kind": "copynet", "selective_read": False}}, "what to copy"),
        ("luong", {**ONLINE, "copying": {"kind": "copy_head"}}, "what to copy"),
    ],
)
def test_models_that_need_it_all_are_refused(recipe: str, changes: dict[str, Any], told: str) -> None:
    with pytest.raises(SightlineError, match=told):
        OnlineWriter(small_model(recipe, changes))


def test_nothing_comes_of_nothing() -> None:
    assert OnlineWriter(made("luong")).push([]) == []
