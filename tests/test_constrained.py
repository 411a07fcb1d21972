"""Lexical constraints against exhaustive enumeration, a plain matcher of occurrences, and values by hand."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sightline.errors import SightlineError
from sightline.recipes import WITH_SOURCE
from sightline.search import Request, SearchOptions, beam_search, constrained_search, search
from sightline.search.constrained import widened
from sightline.search.constraints import Automaton, Constraints
from tests.conftest import random_batch, small_model
from tests.test_search import (
    BOS,
    EOS,
    PENALTIES,
    FixedModel,
    TableModel,
    assert_same,
    every_sequence,
    limit_of,
    make_batch,
    options_strategy,
    rescore,
    scored,
    sources_strategy,
    uniform,
)

Tokens = tuple[int, ...]


def occurrences(tokens: Tokens, alternatives: tuple[Tokens, ...], inside: frozenset[int]) -> int:
    """The most occurrences of alternatives that do not overlap, by trying every start: a slow and plain oracle."""
    text = (BOS, *tokens)

    def most(start: int) -> int:
        if start >= len(text):
            return 0
        best = most(start + 1)
        for alternative in alternatives:
            end = start + len(alternative)
            if text[start:end] == alternative and (end == len(text) or text[end] not in inside):
                best = max(best, 1 + most(end))
        return best

    return most(0)


def plainly_met(tokens: Tokens, request: Request) -> tuple[bool, ...]:
    seen: Counter[frozenset[Tokens]] = Counter()
    met = []
    for alternatives in request.constraints:
        seen[frozenset(alternatives)] += 1
        met.append(occurrences(tokens, alternatives, request.inside) >= seen[frozenset(alternatives)])
    return tuple(met)


phrases = st.lists(st.integers(3, 5), min_size=1, max_size=3).map(tuple)
constraints_strategy = st.lists(st.lists(phrases, min_size=1, max_size=2).map(tuple), max_size=3).map(tuple)
requests_strategy = st.builds(
    Request, constraints=constraints_strategy, inside=st.sampled_from([frozenset(), frozenset({5}), frozenset({4, 5})])
)


# What a hypothesis has met.


@settings(max_examples=100, deadline=None, derandomize=True)
@given(requests_strategy, st.lists(st.integers(3, 6), max_size=9).map(tuple))
def test_what_is_met_equals_the_plain_count(request: Request, tokens: Tokens) -> None:
    """Phrases that break off, overlap, repeat, are parts of each other, or go on with a word."""
    constraints = Constraints(request, BOS)
    assert constraints.honoured(tokens) == plainly_met(tokens, request)
    progress = constraints.start
    for token in tokens:
        progress = constraints.advance(progress, token)
        assert (constraints.need(progress) == 0) == all(constraints.met(progress))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(requests_strategy, st.lists(st.integers(3, 6), max_size=4).map(tuple))
def test_wanted_tokens_are_those_that_help(request: Request, tokens: Tokens) -> None:
    """No other token lowers the need, and one of them always does, unless it would go on with a finished word."""
    constraints = Constraints(request, BOS)
    progress = constraints.start
    for token in tokens:
        progress = constraints.advance(progress, token)
    need, wanted = constraints.need(progress), constraints.wanted(progress)
    lower = {token for token in range(3, 7) if constraints.need(constraints.advance(progress, token)) < need}
    assert lower <= wanted
    assert bool(lower) == (need > 0) or request.inside
    assert (need > 0) == (not all(constraints.met(progress)))


def test_a_broken_phrase_falls_back_by_hand() -> None:
    """After 3 4 3 4 the last two tokens still begin 3 4 5."""
    automaton = Automaton([(3, 4, 5)], BOS)
    node = automaton.start
    needs = [automaton.need[node]]
    for token in (3, 4, 3, 4, 4, 3, 4, 5):
        node = automaton.moves[node].get(token, 0)
        needs.append(automaton.need[node])
    assert needs == [3, 2, 1, 2, 1, 3, 2, 1, 0]
    assert automaton.whole[node]


def test_phrases_that_begin_alike_are_needed_one_by_one() -> None:
    """3 begins both, but writing on one of them breaks the other off: 4 tokens, then 3, 2, 2 for the other, 1, 0."""
    constraints = Constraints(Request(constraints=(((3, 4),), ((3, 5),))), BOS)
    progress, needs = constraints.start, []
    for token in (3, 4, 6, 3, 5):
        needs.append(constraints.need(progress))
        progress = constraints.advance(progress, token)
    assert [*needs, constraints.need(progress)] == [4, 3, 2, 2, 1, 0]


def test_an_alternative_at_the_beginning_only() -> None:
    constraints = Constraints(Request(constraints=(((BOS, 4), (3, 4)),)), BOS)
    assert constraints.honoured((4, 5)) == (True,)
    assert constraints.honoured((5, 4)) == (False,)
    assert constraints.honoured((5, 3, 4)) == (True,)
    assert constraints.need(constraints.start) == 1


# Searches.


def best_of_all(model: TableModel, source: Tokens, options: SearchOptions, request: Request) -> list[Tokens]:
    """Every output with the constraints, best first; when there is none, cut ones with most of them."""
    every = [
        tokens for tokens in every_sequence(model, source, options) if tokens[: len(request.prefix)] == request.prefix
    ]
    good = [tokens for tokens in every if all(plainly_met(tokens, request))]
    if good:
        return sorted(good, key=lambda tokens: -scored(model, source, tokens, options))
    longest = [tokens for tokens in every if len(tokens) == limit_of(source, options)]
    return sorted(
        longest,
        key=lambda tokens: (-sum(plainly_met(tokens, request)), -scored(model, source, tokens, options, False)),
    )


CASES = {
    "one word": Request(constraints=(((4,),),)),
    "a phrase": Request(constraints=(((4, 4, 3),),)),
    "two that overlap": Request(constraints=(((3, 4),), ((4, 3),))),
    "twice the same": Request(constraints=(((4, 3),), ((4, 3),))),
    "alternatives of different lengths": Request(constraints=(((3, 3, 3), (4, 4)), ((4, 3),))),
    "one within the other": Request(constraints=(((3, 4),), ((4,),))),
    "whole words": Request(constraints=(((4,), (3, 3)),), inside=frozenset({3})),
    "at the beginning": Request(constraints=(((BOS, 4),),)),
    "after a prefix": Request(prefix=(3, 4), constraints=(((4, 4),), ((4, 3),))),
    "too much": Request(constraints=(((4, 4, 4),), ((3, 3, 3),))),
}


@pytest.mark.parametrize(("name", "alpha"), [PENALTIES[0], PENALTIES[2]])
@pytest.mark.parametrize("case", CASES)
def test_wide_beam_equals_enumeration(case: str, name: str, alpha: float) -> None:
    model, request = TableModel(vocabulary=5), CASES[case]
    sources = [(7, 8, 9), (4, 5)]
    options = SearchOptions(
        beam=64, n_best=3, length_penalty=name, alpha=alpha, max_ratio=1, max_extra=2, coverage_penalty=0.3
    )
    found = constrained_search(model, make_batch(*sources), options, [request] * 2)
    for source, hypotheses in zip(sources, found, strict=True):
        expected = best_of_all(model, source, options, request)[:3]
        count = len([tokens for tokens in expected if all(plainly_met(tokens, request))]) or 3
        assert [tuple(one.tokens) for one in hypotheses][:count] == expected[:count]
        for one in hypotheses:
            assert one.honoured == plainly_met(tuple(one.tokens), request)
            assert one.finished == all(one.honoured) or len(one.tokens) == limit_of(source, options)
            assert one.token_log_probs == pytest.approx(
                rescore(model, source, tuple(one.tokens), one.finished), abs=1e-5
            )
            assert one.score == pytest.approx(scored(model, source, tuple(one.tokens), options, one.finished), abs=1e-5)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(sources_strategy, options_strategy, st.sampled_from([0.0, 0.4]))
def test_without_constraints_it_is_plain_beam_search(
    sources: list[Tokens], options: SearchOptions, forbid: float
) -> None:
    model, batch = TableModel(forbid=forbid), make_batch(*sources)
    plain = beam_search(model, batch, options)
    for one, other in zip(plain, constrained_search(model, batch, options, [Request()] * len(sources)), strict=True):
        assert_same(one, other)


@settings(max_examples=20, deadline=None, derandomize=True)
@given(sources_strategy, options_strategy, st.lists(requests_strategy, min_size=4, max_size=4), st.booleans())
def test_constraints_are_met_and_batches_equal_singles(
    sources: list[Tokens], options: SearchOptions, requests: list[Request], greedy: bool
) -> None:
    """With room for all of them, a small beam meets every constraint, in greedy search too."""
    values = {**vars(options), "max_extra": 12} | ({"beam": 1, "n_best": 1} if greedy else {})
    options, model = SearchOptions(**values), TableModel()
    requests = requests[: len(sources)]
    together = search(model, make_batch(*sources), options, requests)
    for source, request, found in zip(sources, requests, together, strict=True):
        assert_same(found, search(model, make_batch(source), options, [request])[0])
        assert found[0].honoured == (True,) * len(request.constraints)
        assert found[0].honoured == plainly_met(tuple(found[0].tokens), request)


def test_a_word_nobody_would_choose_is_written() -> None:
    """The constraint's tokens have a thousandth each, everything else goes to 3 and the end."""
    model = FixedModel([-math.inf, -math.inf, *map(math.log, (0.398, 0.6, 0.001, 0.001))])
    found = search(model, make_batch((3, 3, 3)), SearchOptions(beam=2), [Request(constraints=(((4, 5),), ((5, 4),)))])
    assert found[0][0].honoured == (True, True)
    assert found[0][0].finished


@pytest.mark.parametrize("beam", [1, 2, 4])
def test_the_seats_suffice_for_many_constraints(beam: int) -> None:
    """More banks than seats: those that need least go first, so everything is written."""
    every = tuple((word,) for word in itertools.product((3, 4), repeat=4))
    options = SearchOptions(beam=beam, max_length=70)
    found = constrained_search(TableModel(), make_batch((3,) * 30), options, [Request(constraints=every)])
    assert all(found[0][0].honoured)


def test_phrases_that_begin_alike_are_all_written() -> None:
    """Nothing is gained by standing where several might begin."""
    every = tuple(((3, word, 4),) for word in range(4, 9))
    model = TableModel(vocabulary=9, attends=False)
    for beam in (3, 6):
        options = SearchOptions(beam=beam, max_length=24)
        found = constrained_search(model, make_batch((3,) * 8), options, [Request(constraints=every)])
        assert all(found[0][0].honoured)


def test_a_forbidden_constraint_is_told() -> None:
    """What is forbidden stays so; the other constraint is honoured, and the result says which."""
    request = Request(constraints=(((3,),), ((4,),)))
    options = SearchOptions(beam=4, forbidden=((3,),), max_length=4)
    found = search(FixedModel(uniform(EOS, 3, 4, 5)), make_batch((3,)), options, [request])
    assert found[0][0].honoured == (False, True)
    assert not found[0][0].finished


def test_the_beam_is_as_wide_as_the_constraints_need() -> None:
    options = SearchOptions(beam=5)
    word = (((3, 4),),)
    assert [widened(options, Request(constraints=word * times), BOS).beam for times in (0, 1, 3, 20)] == [5, 5, 8, 16]
    assert widened(SearchOptions(beam=20), Request(constraints=word * 9), BOS).beam == 20
    assert widened(SearchOptions(beam=1), Request(constraints=word), BOS).beam == 4


@pytest.mark.parametrize("recipe", WITH_SOURCE)
def test_real_models_write_what_they_must(recipe: str) -> None:
    model, batch = small_model(recipe), random_batch([4, 7, 2])
    requests = [
        Request(constraints=(((5, 6, 7), (8,)), ((9, 10),))),
        Request(),
        Request(prefix=(6, 7), constraints=(((7, 4),), ((7, 4),), ((11,),))),
    ]
    options = SearchOptions(beam=3, n_best=2, max_length=20)
    found = search(model, batch, options, requests)
    assert_same(found[1], search(model, batch.rows([1]), options)[0])
    for request, hypotheses in zip(requests, found, strict=True):
        assert all(hypotheses[0].honoured)
        for one in hypotheses:
            assert one.honoured == plainly_met(tuple(one.tokens), request)
            assert tuple(one.tokens[: len(request.prefix)]) == request.prefix


@pytest.mark.parametrize(
    ("constraints", "message"),
    [
        (
            (((3,),), ((4, 4, 4, 4, 4), (3, 4, 5, 3))),
            "constraint 2 of sentence 2 .ids 3 4 5 3. needs 4 tokens.* may have 3",
        ),
        ((((3, EOS),),), "constraint 1 of sentence 2 .ids 3 2. holds padding, an end symbol"),
        ((((3, BOS),),), "a start symbol that is not first"),
        ((((BOS,),),), "a start symbol that is not first"),
        ((((3, 11),),), "a constraint holds the id 11, and this model has 6 outcomes"),
    ],
)
@pytest.mark.parametrize("beam", [1, 3])
def test_impossible_constraints_are_refused(
    constraints: tuple[tuple[Tokens, ...], ...], message: str, beam: int
) -> None:
    options = SearchOptions(beam=beam, max_ratio=0, max_extra=3)
    with pytest.raises(SightlineError, match=message):
        search(TableModel(), make_batch((3,), (4,)), options, [Request(), Request(constraints=constraints)])


@pytest.mark.parametrize("constraints", [((),), (((),),), (((3,), ()),)])
def test_empty_constraints_are_refused(constraints: tuple[tuple[Tokens, ...], ...]) -> None:
    with pytest.raises(SightlineError, match="constraint 1 has an alternative without tokens"):
        Request(constraints=constraints)
