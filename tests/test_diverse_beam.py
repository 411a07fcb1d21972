"""Diverse beam search against one in plain Python, and the rules that end a beam search."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sightline.batch import Batch, pad
from sightline.recipes import WITH_SOURCE
from sightline.search import SearchOptions, beam_search, diverse_beam_search, search
from sightline.search.processors import length_penalty
from tests.conftest import random_batch, small_model
from tests.test_search import (
    EOS,
    FIRST_WORD,
    PENALTIES,
    FixedModel,
    TableModel,
    assert_same,
    limit_of,
    look,
    make_batch,
    plain_beam,
    rescore,
    scored,
    sources_strategy,
    table,
)

Source = tuple[int, ...]

options_strategy = st.builds(
    lambda penalty, groups, width, share, **rest: SearchOptions(
        length_penalty=penalty[0],
        alpha=penalty[1],
        groups=groups,
        beam=groups * width,
        n_best=max(1, round(share * groups * width)),
        **rest,
    ),
    penalty=st.sampled_from(PENALTIES),
    groups=st.integers(1, 3),
    width=st.integers(1, 2),
    share=st.sampled_from([0.1, 0.5, 1.0]),
    diversity=st.sampled_from([0.0, 0.5, 2.0]),
    coverage_penalty=st.sampled_from([0.0, 0.3]),
    min_length=st.integers(0, 2),
    max_ratio=st.sampled_from([0.5, 1.0, 2.0]),
    max_extra=st.integers(0, 3),
    patience=st.sampled_from([1.0, 2.0]),
    stopping=st.sampled_from(["first", "enough", "hopeless"]),
)


@dataclass
class Group:
    """One beam of the plain search: what is alive as (total, tokens), what has ended, what was cut."""

    live: list[tuple[float, Source]] = field(default_factory=lambda: [(0.0, ())])
    finished: list[Source] = field(default_factory=list)
    cut: list[Source] = field(default_factory=list)
    done: bool = False


def plain_step(group: Group, model: TableModel, source: Source, options: SearchOptions, taken: Counter[int]) -> None:
    """Takes a group one token on by the rules, on lists; `taken` are the tokens of the groups before."""
    width, limit = options.beam // options.groups, limit_of(source, options)
    wanted = min(options.n_best, width)
    length = len(group.live[0][1])
    reached = []
    for total, tokens in group.live:
        values = table(source, tokens, model.vocabulary, model.forbid)
        for token in range(model.vocabulary):
            may = token >= FIRST_WORD or (token == EOS and length >= options.min_length)
            if may and values[token] > -math.inf:
                sum_ = total + values[token]
                reached.append((sum_ - options.diversity * taken[token], sum_, tokens, token))
    reached.sort(key=lambda item: -item[0])
    ended = [tokens for _, _, tokens, token in reached[:width] if token == EOS]
    group.finished += ended
    cut = [tokens for _, tokens in group.live if tokens not in ended]
    going = [(total, (*tokens, token)) for _, total, tokens, token in reached[: 2 * width] if token != EOS]
    group.live = going[:width]
    taken.update(tokens[-1] for _, tokens in group.live)
    scores = sorted((scored(model, source, tokens, options) for tokens in group.finished), reverse=True)
    longest = length_penalty(options.length_penalty, options.alpha)(limit + 1)
    best = max((total for total, _ in group.live), default=-math.inf) / longest
    hopeless = not group.live or (len(scores) >= wanted and best <= scores[wanted - 1])
    counts = {"first": wanted, "enough": max(wanted, width * options.patience), "hopeless": math.inf}
    group.done = hopeless or len(group.finished) >= counts[options.stopping] or length == limit
    if group.done and len(group.finished) < wanted:
        group.cut = cut


def plain_diverse_beam(model: TableModel, source: Source, options: SearchOptions) -> list[tuple[float, Source, bool]]:
    groups = [Group() for _ in range(options.groups)]
    while not all(group.done for group in groups):
        taken: Counter[int] = Counter()
        for group in groups:
            if not group.done:
                plain_step(group, model, source, options, taken)
    most = min(options.n_best, options.beam // options.groups)
    pool = []
    for group in groups:
        found = [(scored(model, source, tokens, options), tokens, True) for tokens in group.finished]
        found.sort(key=lambda item: -item[0])
        rest = [(scored(model, source, tokens, options, False), tokens, False) for tokens in group.cut]
        rest.sort(key=lambda item: -item[0])
        pool += (found + rest)[:most]
    pool.sort(key=lambda item: (not item[2], -item[0]))
    different = {item[1]: item for item in reversed(pool)}
    return [item for item in pool if different[item[1]] is item][: options.n_best]


@settings(max_examples=80, deadline=None, derandomize=True)
@given(sources_strategy, options_strategy, st.sampled_from([0.0, 0.4]))
def test_diverse_beam_equals_the_plain_one(sources: list[Source], options: SearchOptions, forbid: float) -> None:
    model = TableModel(forbid=forbid)
    for source, found in zip(sources, diverse_beam_search(model, make_batch(*sources), options), strict=True):
        expected = plain_diverse_beam(model, source, options)
        assert [(tuple(one.tokens), one.finished) for one in found] == [item[1:] for item in expected]
        assert [one.score for one in found] == pytest.approx([item[0] for item in expected], abs=1e-5)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(sources_strategy, options_strategy)
def test_results_are_different_and_the_models_own(sources: list[Source], options: SearchOptions) -> None:
    model = TableModel(forbid=0.2)
    for source, found in zip(sources, diverse_beam_search(model, make_batch(*sources), options), strict=True):
        assert 1 <= len(found) <= options.n_best
        assert len({tuple(one.tokens) for one in found}) == len(found)
        order = [(not one.finished, -one.score) for one in found]
        assert order == sorted(order)
        for one in found:
            tokens = tuple(one.tokens)
            expected = rescore(model, source, tokens, one.finished)
            assert one.token_log_probs == pytest.approx(expected, abs=1e-5)
            assert one.log_prob == pytest.approx(sum(expected), abs=1e-5)
            assert one.weights is not None
            rows = [look(source, tokens[:place]) for place in range(len(tokens) + one.finished)]
            np.testing.assert_allclose(one.weights, np.array(rows).reshape(len(rows), len(source)), atol=1e-6)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(sources_strategy, options_strategy)
def test_one_group_is_beam_search(sources: list[Source], options: SearchOptions) -> None:
    model, batch = TableModel(forbid=0.2), make_batch(*sources)
    options = replace(options, groups=1)
    for one, other in zip(diverse_beam_search(model, batch, options), beam_search(model, batch, options), strict=True):
        assert_same(one, other)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(sources_strategy, options_strategy)
def test_without_diversity_all_groups_are_the_same(sources: list[Source], options: SearchOptions) -> None:
    model, batch = TableModel(forbid=0.2), make_batch(*sources)
    width = options.beam // options.groups
    narrow = replace(options, groups=1, beam=width, n_best=min(options.n_best, width))
    alike = diverse_beam_search(model, batch, replace(options, diversity=0.0))
    for one, other in zip(alike, beam_search(model, batch, narrow), strict=True):
        assert_same(one, other)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(sources_strategy, options_strategy)
def test_batch_of_n_equals_n_batches_of_one(sources: list[Source], options: SearchOptions) -> None:
    model = TableModel()
    together = diverse_beam_search(model, make_batch(*sources), options)
    for source, found in zip(sources, together, strict=True):
        assert_same(found, diverse_beam_search(model, make_batch(source), options)[0])


def test_diversity_by_hand() -> None:
    """Tokens 3, 4 and 5 with probabilities 0.6, 0.3 and 0.1, one token each.

    Group 1 takes 3. To group 2, 3 costs `diversity` more, and is still better while that is below log 2. If both took
    it, it costs group 3 twice as much.
    """
    model = FixedModel([-math.inf] * 3 + [math.log(chance) for chance in (0.6, 0.3, 0.1)])
    options = SearchOptions(beam=3, n_best=3, groups=3, max_ratio=0, max_extra=1)

    def firsts(diversity: float) -> list[int]:
        found = search(model, make_batch((3,)), replace(options, diversity=diversity))[0]
        assert [one.log_prob for one in found] == [pytest.approx(sum(one.token_log_probs)) for one in found]
        return [one.tokens[0] for one in found]

    assert firsts(0.0) == [3]
    assert firsts(0.34) == [3]
    assert firsts(0.35) == [3, 4]
    assert firsts(math.log(2) - 0.01) == [3, 4]
    assert firsts(math.log(2) + 0.01) == [3, 4]
    assert firsts(math.log(6) + 0.01) == [3, 4, 5]


def test_a_sentence_stays_until_all_its_groups_are_done() -> None:
    """Then all its hypotheses leave together, four rows a sentence."""
    model = TableModel()
    batch = make_batch((7, 8), (3,), (4, 5, 6, 7))
    options = SearchOptions(beam=4, groups=2, n_best=4, diversity=1.0)
    diverse_beam_search(model, batch, options)
    assert model.sizes[:2] == [3, 12]
    assert all(size in (4, 8, 12) for size in model.sizes[1:])
    assert model.sizes[1:] == sorted(model.sizes[1:], reverse=True)


@pytest.mark.parametrize("recipe", WITH_SOURCE)
def test_every_recipe(recipe: str) -> None:
    model = small_model(recipe)
    batch = random_batch([6, 3, 9])
    options = SearchOptions(beam=6, groups=3, n_best=6)
    together = search(model, batch, options)
    for place, found in enumerate(together):
        ids, mask = batch.sources[0].ids[place], batch.sources[0].mask[place]  # type: ignore[union-attr]
        alone = search(model, Batch((pad([ids[mask].tolist()], 0),)), options)[0]
        assert [one.tokens for one in alone] == [one.tokens for one in found]
        plain = search(model, Batch((pad([ids[mask].tolist()], 0),)), replace(options, groups=1))[0]
        assert [one.tokens for one in plain] != [one.tokens for one in found]


def test_an_empty_batch() -> None:
    mask = torch.zeros(0, 1, dtype=torch.bool)
    empty = Batch((type(pad([[1]], 0))(mask.long(), mask),))
    assert search(TableModel(), empty, SearchOptions(beam=4, groups=2)) == []


def test_candidates_for_minimum_bayes_risk_may_be_diverse() -> None:
    model, batch = TableModel(), make_batch((7, 8, 9))
    diverse = SearchOptions(beam=4, groups=2, n_best=4)
    found = search(model, batch, SearchOptions(strategy="mbr", beam=4, groups=2))
    assert [one.tokens for one in found[0]] == [one.tokens for one in search(model, batch, diverse)[0]]


# Rules that end a beam search.


def steps(options: SearchOptions) -> int:
    model = TableModel()
    beam_search(model, make_batch((3, 4)), options)
    return len(model.sizes)


def test_each_rule_stops_later_than_the_one_before() -> None:
    options = SearchOptions(beam=4, n_best=1, max_extra=50)
    first, enough, hopeless = (steps(replace(options, stopping=rule)) for rule in ("first", "enough", "hopeless"))
    assert first < enough < hopeless
    assert steps(replace(options, patience=2.0)) > enough
    assert steps(replace(options, patience=math.inf)) == hopeless


@settings(max_examples=30, deadline=None, derandomize=True)
@given(sources_strategy, options_strategy, st.sampled_from(["first", "hopeless"]))
def test_rules_are_kinds_of_patience(sources: list[Source], options: SearchOptions, rule: str) -> None:
    """The first n best is what the least patience waits for; until there is no hope, the greatest."""
    model = TableModel(forbid=0.2)
    options = replace(options, groups=1, stopping="enough", patience=math.inf if rule == "hopeless" else 1e-9)
    found = beam_search(model, make_batch(*sources), replace(options, stopping=rule, patience=3.0))
    for source, other, one in zip(sources, beam_search(model, make_batch(*sources), options), found, strict=True):
        assert_same(one, other)
        expected = plain_beam(model, source, options)
        assert [(tuple(each.tokens), each.finished) for each in one] == [item[1:] for item in expected]
