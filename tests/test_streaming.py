"""Streams: what is certain never changes, comes as early as it can, and joined is what search finds."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sightline.errors import SightlineError
from sightline.hypothesis import Hypothesis
from sightline.recipes import WITH_SOURCE
from sightline.search import Request, SearchOptions, Streamed, search, stream
from sightline.search.protocol import StepModel
from sightline.search.streaming import stream_beam, stream_greedy
from tests.conftest import random_batch, small_model
from tests.test_constrained import requests_strategy
from tests.test_controls import options_strategy
from tests.test_search import FixedModel, TableModel, assert_same, make_batch, uniform

Tokens = tuple[int, ...]


def joined(parts: list[Streamed]) -> tuple[list[int], Hypothesis]:
    """All tokens, and the whole that only the last part has."""
    *early, last = parts
    assert all(part.hypothesis is None and part.tokens for part in early)
    assert last.hypothesis is not None
    return [token for part in parts for token in part.tokens], last.hypothesis


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    st.lists(st.integers(3, 50), min_size=1, max_size=4).map(tuple),
    options_strategy,
    st.one_of(st.builds(Request, prefix=st.lists(st.integers(3, 5), max_size=3).map(tuple)), requests_strategy),
)
def test_a_stream_joined_is_what_search_finds(source: Tokens, options: SearchOptions, request: Request) -> None:
    model, batch = TableModel(), make_batch(source)
    options = SearchOptions(**{**vars(options), "max_extra": 6})
    tokens, hypothesis = joined(list(stream(model, batch, options, request)))
    best = search(model, batch, options, [request])[0][0]
    assert tokens == hypothesis.tokens
    assert_same([hypothesis], [best])
    assert hypothesis.honoured == best.honoured


@pytest.mark.parametrize("beam", [1, 3])
def test_tokens_come_step_by_step(beam: int) -> None:
    """One way only: each token is given after the step that chose it, before the next is taken."""
    model = FixedModel(uniform(4))
    parts, steps = [], []
    for part in stream(model, make_batch((3, 4)), SearchOptions(beam=beam, max_ratio=1, max_extra=1)):
        parts.append(part)
        steps.append(len(model.sizes))
    assert [part.tokens for part in parts] == [[4], [4], [4], []]
    assert steps == [1, 2, 3, 4]


def test_a_beam_gives_what_all_agree_on() -> None:
    """The first word is open until nothing that begins with 4 is alive any more."""
    ways = {(): {3: 0.6, 4: 0.4}, (3,): {3: 0.5, 5: 0.5}, (4,): {3: 0.01, 4: 0.01}}

    class Ways(TableModel):
        def step(self, tokens: Tensor, state: object):  # type: ignore[no-untyped-def]
            step = super().step(tokens, state)  # type: ignore[arg-type]
            for row, history in enumerate(step.state.own["history"].tolist()):
                chances = ways.get(tuple(history[1:]), {5: 1.0})
                values = [math.log(chances[token]) if token in chances else -math.inf for token in range(6)]
                step.log_probs[row] = torch.tensor(values)
            return step

    parts = list(stream(Ways(), make_batch((3, 4)), SearchOptions(beam=2, max_length=4)))
    assert [part.tokens for part in parts] == [[3], [3, 5, 5]]
    assert parts[-1].hypothesis is not None
    assert parts[-1].hypothesis.tokens == [3, 3, 5, 5]


def test_a_finished_winner_is_certain_before_the_search_ends() -> None:
    """Without a length penalty the empty translation, of 0.7, cannot be beaten; with more patience others go on."""
    model = FixedModel([-math.inf, -math.inf, *[math.log(p) for p in (0.7, 0.1, 0.1, 0.1)]])
    options = SearchOptions(beam=3, n_best=3, length_penalty="none", patience=3.0)
    assert joined(list(stream(model, make_batch((3,)), options)))[0] == []


def test_another_way_to_choose() -> None:
    """The walk takes whatever chooses: here the least probable word that is possible."""

    def least(model: StepModel, scores: Tensor, sentences: Tensor, may_end: bool) -> tuple[Tensor, Tensor]:
        words = scores[:, 3:].masked_fill(scores[:, 3:] == -math.inf, math.inf)
        return words.min(1).values.double(), words.argmin(1) + 3

    model = FixedModel([-math.inf, -math.inf, -math.inf, *map(math.log, (0.5, 0.3, 0.2))])
    options = SearchOptions(max_length=3, forbidden=((5, 5),))
    tokens, found = joined(list(stream_greedy(model, make_batch((3,)), options, choose=least)))
    assert tokens == [5, 4, 5]
    assert found.log_prob == pytest.approx(math.log(0.2 * 0.3 * 0.2), abs=1e-6)


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("recipe", WITH_SOURCE)
def test_real_models_stream(recipe: str, beam: int) -> None:
    model, batch = small_model(recipe), random_batch([6])
    options = SearchOptions(beam=beam, max_length=12, no_repeat=2)
    parts = stream(model, batch, options)
    tokens, hypothesis = joined(list(parts))
    assert tokens == hypothesis.tokens
    assert_same([hypothesis], search(model, batch, options)[0])
    assert all(torch.is_grad_enabled() for _ in stream(model, batch, options))


@pytest.mark.parametrize("streaming", [stream_greedy, stream_beam])
def test_several_sentences_are_refused(streaming) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(SightlineError, match="this batch has 2"):
        list(streaming(TableModel(), make_batch((3,), (4,))))
