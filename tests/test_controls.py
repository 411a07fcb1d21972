"""Controls of search against a beam search in plain Python, exhaustive enumeration, and values by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sightline.errors import SightlineError
from sightline.recipes import WITH_SOURCE
from sightline.search import Request, SearchOptions, beam_search, greedy_search, search
from sightline.search.controls import ForbiddenPhrases, NoRepeat, RepetitionPenalty, Written
from sightline.search.processors import length_penalty
from sightline.search.steering import Steering
from tests.conftest import random_batch, small_model
from tests.test_search import (
    BOS,
    EOS,
    FIRST_WORD,
    PENALTIES,
    FixedModel,
    TableModel,
    assert_same,
    every_sequence,
    limit_of,
    make_batch,
    rescore,
    sources_strategy,
    table,
    uniform,
)

Tokens = tuple[int, ...]


def written(*rows: list[int]) -> Written:
    return Written(torch.tensor(rows, dtype=torch.long).reshape(len(rows), -1), torch.arange(len(rows)))


# The controls alone.


def test_repetition_penalty_by_hand() -> None:
    """Each token once, whatever it was written; a certain token stays certain, an impossible one impossible."""
    scores = torch.tensor([[-1.0, -2.0, 0.0, -math.inf], [-1.0, -2.0, -3.0, -4.0]])
    found = RepetitionPenalty(1.5)(scores, written([1, 1, 2, 3], [3, 3, 3, 3]))
    assert found.tolist() == [[-1.0, -3.0, 0.0, -math.inf], [-1.0, -2.0, -3.0, -6.0]]
    assert scores[0, 1] == -2.0  # the model's tensor is left alone


@pytest.mark.parametrize(
    ("size", "tokens", "banned"),
    [
        (1, [4, 5, 4], {4, 5}),
        (2, [4, 5, 4], {5}),
        (2, [4, 5, 6, 4, 7, 4], {5, 7}),
        (2, [4, 4, 4], {4}),
        (3, [4, 5, 6, 4, 5], {6}),
        (3, [4, 5], set()),
        (3, [4, 5, 6], set()),
        (4, [], set()),
    ],
)
def test_no_repeat_by_hand(size: int, tokens: list[int], banned: set[int]) -> None:
    found = NoRepeat(size)(torch.zeros(1, 8), written(tokens))
    assert set((found[0] == -math.inf).nonzero()[:, 0].tolist()) == banned


@pytest.mark.parametrize(
    ("tokens", "banned"),
    [([], {3, 9}), ([4], {3, 5}), ([5, 4], {3, 5}), ([4, 5], {3, 6, 7}), ([7, 4, 5, 6], {3, EOS}), ([5], {3})],
)
def test_forbidden_phrases_by_hand(tokens: list[int], banned: set[int]) -> None:
    phrases = [(3,), (4, 5), (4, 5, 6), (4, 5, 7), (5, 6, EOS), (BOS, 9), (BOS, 4, 5)]
    control = ForbiddenPhrases(phrases, BOS, torch.device("cpu"))
    found = control(torch.zeros(2, 10), written(tokens, [8] * len(tokens)))
    assert set((found[0] == -math.inf).nonzero()[:, 0].tolist()) == banned


# Searches with them.


def steered(model: TableModel, source: Tokens, tokens: Tokens, options: SearchOptions, prefix: Tokens) -> list[float]:
    """The scores of next tokens in plain Python."""
    values = table(source, tokens, model.vocabulary, model.forbid)
    if len(tokens) < len(prefix):
        return [value if token == prefix[len(tokens)] else -math.inf for token, value in enumerate(values)]
    scores = []
    for token, value in enumerate(values):
        longer, size = (BOS, *tokens, token), options.no_repeat
        grams = [longer[start : start + size] for start in range(1, len(longer) - size + 1)]
        if any(longer[-len(phrase) :] == phrase for phrase in options.forbidden) or (
            size and token != EOS and grams and grams[-1] in grams[:-1]
        ):
            value = -math.inf
        scores.append(value * options.repetition_penalty if token in tokens else value)
    return scores


def total(
    model: TableModel, source: Tokens, tokens: Tokens, options: SearchOptions, prefix: Tokens, end: bool
) -> float:
    """The sum of scores."""
    outputs = (*tokens, EOS) if end else tokens
    return sum(steered(model, source, tokens[:place], options, prefix)[token] for place, token in enumerate(outputs))


def score(
    model: TableModel, source: Tokens, tokens: Tokens, options: SearchOptions, prefix: Tokens, end: bool
) -> float:
    length = length_penalty(options.length_penalty, options.alpha)(len(tokens) + end)
    return total(model, source, tokens, options, prefix, end) / length


def plain_beam(
    model: TableModel, source: Tokens, options: SearchOptions, prefix: Tokens
) -> list[tuple[float, Tokens, bool]]:
    """The beam search of tests/test_search.py with controls: (score, tokens, finished)."""
    live: list[tuple[float, Tokens]] = [(0.0, ())]
    finished: list[Tokens] = []
    cut: list[Tokens] = []
    for length in range(max(limit_of(source, options), len(prefix)) + 1):
        reached = []
        for sum_before, tokens in live:
            for token, value in enumerate(steered(model, source, tokens, options, prefix)):
                may = token >= FIRST_WORD or (token == EOS and length >= options.min_length)
                if may and value > -math.inf:
                    reached.append((sum_before + value, tokens, token))
        reached.sort(key=lambda item: -item[0])
        ended = [tokens for _, tokens, token in reached[: options.beam] if token == EOS]
        finished += ended
        cut = [tokens for _, tokens in live if tokens not in ended]
        live = [(value, (*tokens, token)) for value, tokens, token in reached[: 2 * options.beam] if token != EOS]
        live = live[: options.beam]
        if len(finished) >= max(options.beam * options.patience, options.n_best) or not live:
            break
    if len(finished) >= options.n_best:
        cut = []
    every = [(tokens, True) for tokens in finished] + [(tokens, False) for tokens in cut]
    scored = [(score(model, source, tokens, options, prefix, end), tokens, end) for tokens, end in every]
    return sorted(scored, key=lambda item: (not item[2], -item[0]))[: options.n_best]


words = st.integers(FIRST_WORD, 5)
prefixes_strategy = st.lists(st.lists(words, max_size=3).map(tuple), min_size=4, max_size=4)
options_strategy = st.builds(
    lambda penalty, beam, n_best, **rest: SearchOptions(
        length_penalty=penalty[0], alpha=penalty[1], beam=beam, n_best=min(beam, n_best), **rest
    ),
    penalty=st.sampled_from(PENALTIES),
    beam=st.integers(1, 4),
    n_best=st.integers(1, 3),
    min_length=st.integers(0, 2),
    max_ratio=st.sampled_from([0.5, 1.0, 2.0]),
    max_extra=st.integers(0, 3),
    patience=st.sampled_from([1.0, 2.0]),
    forbidden=st.lists(st.lists(words, min_size=1, max_size=3).map(tuple), max_size=3).map(tuple),
    no_repeat=st.integers(0, 3),
    repetition_penalty=st.sampled_from([1.0, 1.7, 0.6]),
)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(sources_strategy, options_strategy, prefixes_strategy)
def test_controlled_beam_equals_the_plain_one(
    sources: list[Tokens], options: SearchOptions, prefixes: list[Tokens]
) -> None:
    """Greedy search too, with a beam of 1. What is reported is the model's own."""
    model = TableModel()
    requests = [Request(prefix=prefix) for _, prefix in zip(sources, prefixes, strict=False)]
    found = search(model, make_batch(*sources), options, requests)
    for source, request, hypotheses in zip(sources, requests, found, strict=True):
        expected = plain_beam(model, source, options, request.prefix)
        assert [(tuple(one.tokens), one.finished) for one in hypotheses] == [item[1:] for item in expected]
        assert [one.score for one in hypotheses] == pytest.approx([item[0] for item in expected], abs=1e-5)
        for one in hypotheses:
            own = rescore(model, source, tuple(one.tokens), one.finished)
            assert one.token_log_probs == pytest.approx(own, abs=1e-5)
            assert one.log_prob == pytest.approx(sum(own), abs=1e-5)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(sources_strategy, options_strategy, prefixes_strategy)
def test_the_promises_are_kept(sources: list[Tokens], options: SearchOptions, prefixes: list[Tokens]) -> None:
    """Phrases, repeated n-grams and limits hold for what search chose; the prefix stands, whatever it holds."""
    model = TableModel(attends=False)
    requests = [Request(prefix=prefix) for _, prefix in zip(sources, prefixes, strict=False)]
    together = search(model, make_batch(*sources), options, requests)
    for source, request, hypotheses in zip(sources, requests, together, strict=True):
        start = len(request.prefix)
        assert_same(hypotheses, search(model, make_batch(source), options, [request])[0])
        assert len({tuple(one.tokens) for one in hypotheses}) == len(hypotheses)
        for one in hypotheses:
            tokens = tuple(one.tokens)
            assert tokens[:start] == request.prefix
            assert len(tokens) <= max(limit_of(source, options), start)
            for end in range(start + 1, len(tokens) + 1):
                for phrase in options.forbidden:
                    assert tokens[:end][-len(phrase) :] != phrase
                gram = tokens[end - options.no_repeat : end]
                if options.no_repeat and end >= options.no_repeat:
                    others = [tokens[at : at + len(gram)] for at in range(end - len(gram))]
                    assert gram not in others


@settings(max_examples=15, deadline=None, derandomize=True)
@given(sources_strategy, options_strategy, prefixes_strategy)
def test_controlled_beam_of_one_equals_greedy(
    sources: list[Tokens], options: SearchOptions, prefixes: list[Tokens]
) -> None:
    model, one = TableModel(), replace(options, beam=1, n_best=1, patience=1.0)
    requests = [Request(prefix=prefix) for _, prefix in zip(sources, prefixes, strict=False)]
    beam = beam_search(model, make_batch(*sources), one, requests)
    assert_same(greedy_search(model, make_batch(*sources), one, requests), [found[0] for found in beam])


@pytest.mark.parametrize(
    "controls",
    [
        {"forbidden": ((3,), (4, 4))},
        {"no_repeat": 2},
        {"repetition_penalty": 2.0},
        {"forbidden": ((4, 3),), "no_repeat": 1, "repetition_penalty": 1.2},
    ],
)
@pytest.mark.parametrize("prefix", [(), (4,), (3, 3)])
def test_wide_beam_equals_enumeration(controls: dict[str, object], prefix: Tokens) -> None:
    model = TableModel(vocabulary=5)
    options = SearchOptions(beam=64, n_best=5, max_ratio=1, max_extra=2, patience=math.inf, **controls)  # type: ignore[arg-type]
    sources = [(7, 8, 9), (4, 5), (6,)]
    found = search(model, make_batch(*sources), options, [Request(prefix=prefix)] * 3)
    for source, hypotheses in zip(sources, found, strict=True):
        every = [
            (score(model, source, tokens, options, prefix, end=True), tokens)
            for tokens in every_sequence(model, source, options)
            if tokens[: len(prefix)] == prefix
        ]
        every = sorted((item for item in every if item[0] > -math.inf), reverse=True)
        finished = [one for one in hypotheses if one.finished]
        assert [tuple(one.tokens) for one in finished] == [tokens for _, tokens in every[:5]]
        assert [one.score for one in finished] == pytest.approx([item[0] for item in every[:5]], abs=1e-5)


def test_the_penalty_counts_in_the_score_and_not_in_the_log_probability() -> None:
    """0.6 against 0.4: the second time token 3 counts 0.36, and token 4 is taken; both are then penalised alike."""
    model = FixedModel([-math.inf, -math.inf, -math.inf, math.log(0.6), math.log(0.4), -math.inf])
    options = SearchOptions(beam=1, length_penalty="none", repetition_penalty=2.0, max_length=3)
    found = search(model, make_batch((3, 3)), options)[0][0]
    assert found.tokens == [3, 4, 3]
    assert found.log_prob == pytest.approx(math.log(0.6 * 0.4 * 0.6), abs=1e-6)
    assert found.score == pytest.approx(math.log(0.6 * 0.4 * 0.36), abs=1e-6)


@pytest.mark.parametrize("beam", [1, 4])
def test_a_prefix_beyond_the_ratio_is_not_cut(beam: int) -> None:
    options = SearchOptions(beam=beam, max_ratio=1, max_extra=0)
    found = search(FixedModel(uniform(EOS, 3, 4)), make_batch((3,)), options, [Request(prefix=(4, 4, 4))])
    assert found[0][0].tokens == [4, 4, 4]
    assert found[0][0].finished


def test_prefixes_of_different_lengths_do_not_fill_the_beam() -> None:
    """After the prefix the beam has as many different hypotheses as without one."""
    model = FixedModel(uniform(3, 4, 5))
    options = SearchOptions(beam=3, n_best=3, max_length=4)
    found = search(model, make_batch((3,), (4,)), options, [Request(prefix=(5,)), Request(prefix=(4, 4, 4))])
    assert [one.tokens for one in found[0]] == [[5, 3, 3, 3], [5, 3, 3, 4], [5, 3, 3, 5]]
    assert [one.tokens for one in found[1]] == [[4, 4, 4, 3], [4, 4, 4, 4], [4, 4, 4, 5]]


@pytest.mark.parametrize("recipe", WITH_SOURCE)
def test_real_models_go_on_from_their_own_words(recipe: str) -> None:
    """A prefix of what greedy search writes changes nothing, in a batch of different prefixes."""
    model, batch = small_model(recipe), random_batch([4, 7, 2, 5])
    options = SearchOptions(beam=1, max_length=8, no_repeat=2, forbidden=((5,),))
    free = search(model, batch, options)
    requests = [
        Request(prefix=tuple(found[0].tokens[:length])) for found, length in zip(free, [3, 0, 1, 8], strict=True)
    ]
    for one, other in zip(free, search(model, batch, options, requests), strict=True):
        assert_same(one, other)
    assert all(5 not in found[0].tokens for found in free)


def test_nothing_asked_for_costs_nothing() -> None:
    log_probs = torch.zeros(2, 6)
    steering = Steering(TableModel(), make_batch((3,), (4,)), SearchOptions(), [Request(), Request()])
    assert steering.written is None
    assert steering(log_probs) is log_probs


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize(
    ("request_", "options", "message"),
    [
        (Request(prefix=(3, EOS)), {}, "prefix of sentence 1 holds padding, a start or an end symbol"),
        (Request(prefix=(3, 17)), {}, "holds the id 17, and this model has 6 outcomes"),
        (Request(), {"forbidden": ((3, 9),)}, "holds the id 9"),
        (Request(prefix=(3, 3, 3)), {"max_length": 2}, "prefix of sentence 1 has 3 tokens, more than max_length = 2"),
        (Request(prefix=(4, 3)), {}, r"after ids \[4\] this model never writes 3"),
    ],
)
def test_bad_requests_are_refused(request_: Request, options: dict[str, object], message: str, beam: int) -> None:
    with pytest.raises(SightlineError, match=message):
        search(FixedModel(uniform(EOS, 4)), make_batch((3,)), SearchOptions(beam=beam, **options), [request_])  # type: ignore[arg-type]


def test_requests_must_be_as_many_as_sentences() -> None:
    with pytest.raises(SightlineError, match="1 requests for 2 sentences"):
        search(TableModel(), make_batch((3,), (4,)), SearchOptions(), [Request()])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"forbidden": ((),)}, "empty sequence"),
        ({"no_repeat": -1}, "no_repeat is -1"),
        ({"repetition_penalty": 0.0}, "repetition_penalty is 0.0: give a number from 0.001 to 1,000"),
        ({"repetition_penalty": 1e308}, "repetition_penalty is 1e.308"),
    ],
)
def test_bad_options_are_refused(values: dict[str, float], message: str) -> None:
    with pytest.raises(SightlineError, match=message):
        SearchOptions(**values)  # type: ignore[arg-type]
