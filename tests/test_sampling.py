"""Sampling against exact probabilities, truncation by hand, and samples that depend on nothing but themselves."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sightline.batch import Batch, Features, pad
from sightline.errors import SightlineError
from sightline.recipes import WITH_SOURCE
from sightline.search import Hypothesis, Request, SearchOptions, Step, greedy_search, sample_search, search
from sightline.search.sampling import COINS, draw, random_numbers, sampling_weights, sentence_keys
from sightline.state import State
from tests.conftest import random_batch, small_model
from tests.test_search import (
    BOS,
    EOS,
    FIRST_WORD,
    PAD,
    FixedModel,
    TableModel,
    assert_same,
    limit_of,
    look,
    make_batch,
    rescore,
    scored,
    sources_strategy,
    table,
    uniform,
)

Source = tuple[int, ...]

LAWS = {
    "plain": {},
    "cool": {"temperature": 0.5},
    "hot": {"temperature": 3.0},
    "top_k": {"top_k": 2},
    "top_p": {"top_p": 0.7},
    "min_p": {"min_p": 0.3},
    "all": {"temperature": 1.5, "top_k": 3, "top_p": 0.9, "min_p": 0.1},
}
options_strategy = st.builds(
    SearchOptions,
    strategy=st.just("sample"),
    samples=st.integers(1, 5),
    temperature=st.sampled_from([0.0, 0.7, 1.0, 2.0]),
    top_k=st.sampled_from([0, 1, 2]),
    top_p=st.sampled_from([0.5, 1.0]),
    min_p=st.sampled_from([0.0, 0.2]),
    seed=st.integers(0, 3),
    min_length=st.integers(0, 2),
    max_ratio=st.sampled_from([0.5, 1.0, 2.0]),
    max_extra=st.integers(0, 3),
)


def law(values: list[float], options: SearchOptions, may_end: bool) -> dict[int, float]:
    """What may be drawn and how probable it is, in plain Python."""
    tokens = [token for token in range(len(values)) if token >= FIRST_WORD or (token == EOS and may_end)]
    tokens.sort(key=lambda token: -values[token])
    chances = {token: math.exp((values[token] - values[tokens[0]]) / options.temperature) for token in tokens}
    kept = tokens[: options.top_k or None]
    total = sum(chances[token] for token in kept)
    before = list(itertools.accumulate((chances[token] for token in kept), initial=0.0))
    kept = [token for token, mass in zip(kept, before, strict=False) if mass < options.top_p * total]
    kept = [token for token in kept if chances[token] >= options.min_p]
    total = sum(chances[token] for token in kept)
    return {token: chances[token] / total for token in kept}


def outcomes(
    source: Source, options: SearchOptions, tokens: Source = ()
) -> Iterator[tuple[tuple[Source, bool], float]]:
    """Every sample, as (tokens, finished), with its exact probability."""
    for token, chance in law(table(source, tokens, 6, 0.0), options, len(tokens) >= options.min_length).items():
        if token == EOS:
            yield (tokens, True), chance
        elif len(tokens) == limit_of(source, options):
            yield (tokens, False), chance
        else:
            for outcome, rest in outcomes(source, options, (*tokens, token)):
                yield outcome, chance * rest


@pytest.mark.parametrize("name", LAWS)
def test_frequencies_are_the_exact_probabilities(name: str) -> None:
    """A chi-square test with fixed seeds over all outcomes: far below what a wrong law gives."""
    options = SearchOptions(
        strategy="sample", samples=3000, seed=5, max_ratio=0, max_extra=2, min_length=1, **LAWS[name]
    )
    source = (7, 8, 9)
    expected: Counter[tuple[Source, bool]] = Counter()
    for outcome, chance in outcomes(source, options):
        expected[outcome] += chance  # type: ignore[assignment]
    assert sum(expected.values()) == pytest.approx(1)
    found = sample_search(TableModel(attends=False), make_batch(source), options)[0]
    counts = Counter((tuple(one.tokens), one.finished) for one in found)
    assert counts.keys() <= expected.keys()
    rare = {outcome for outcome, chance in expected.items() if chance * len(found) < 5}
    cells = [(counts[outcome], expected[outcome] * len(found)) for outcome in expected.keys() - rare]
    cells.append((sum(counts[outcome] for outcome in rare), sum(expected[outcome] for outcome in rare) * len(found)))
    statistic = sum((seen - mean) ** 2 / mean for seen, mean in cells if mean)
    freedom = len(cells) - 1
    assert statistic < freedom + 3.5 * math.sqrt(2 * freedom)


def test_sentences_with_one_seed_are_drawn_independently() -> None:
    """Each of 2,000 sentences stops where its own random numbers say: after n tokens with probability 1 / 2^(n + 1)."""
    batch = make_batch(*((number,) for number in range(2000)))
    found = search(FixedModel(uniform(EOS, 4)), batch, SearchOptions(strategy="sample", max_extra=30))
    counts = Counter(len(one.tokens) for (one,) in found)
    cells = [(counts[length], 2000 / 2 ** (length + 1)) for length in range(8)]
    assert sum((seen - mean) ** 2 / mean for seen, mean in cells) < 8 + 3.5 * math.sqrt(16)


def test_keys_are_made_of_seed_and_source_alone() -> None:
    together = sentence_keys(make_batch((3, 4, 5), (3,), (3, 4, 5), (3, 4, 5)), [1, 1, 2, 1])
    assert len(set(together)) == 3
    assert together[0] == together[3]
    assert sentence_keys(make_batch((3,)), [1]) == together[1:2]
    values = torch.tensor([[[0.5], [1.5]], [[0.5], [7.0]]])
    mask = torch.tensor([[True, True], [True, False]])
    keys = sentence_keys(Batch((Features(values, mask),)), [0, 0])
    assert keys[0] != keys[1]
    assert sentence_keys(Batch((Features(values[1:, :1], mask[1:, :1]),)), [0]) == keys[1:]


def weigh(*chances: float, **options: float) -> list[float]:
    row = torch.tensor([[math.log(chance) if chance else -math.inf for chance in chances]])
    weights = sampling_weights(row, SearchOptions(strategy="sample", **options))[0]  # type: ignore[arg-type]
    return (weights / weights.sum()).tolist()


def test_truncation_by_hand() -> None:
    assert weigh(0.2, 0.5, 0.3) == pytest.approx([0.2, 0.5, 0.3])
    assert weigh(0.2, 0.5, 0.3, temperature=0.5) == pytest.approx([4 / 38, 25 / 38, 9 / 38])
    assert weigh(0.2, 0.5, 0.3, temperature=0.0) == [0, 1, 0]
    assert weigh(0.2, 0.5, 0.3, top_k=2) == pytest.approx([0, 5 / 8, 3 / 8])
    assert weigh(0.2, 0.5, 0.3, top_k=9) == pytest.approx([0.2, 0.5, 0.3])
    # The token with which the share is reached stays, also when it is reached exactly.
    assert weigh(0.2, 0.5, 0.3, top_p=0.49) == [0, 1, 0]
    assert weigh(0.2, 0.5, 0.3, top_p=0.51) == pytest.approx([0, 5 / 8, 3 / 8])
    assert weigh(0.2, 0.5, 0.3, top_p=0.8) == pytest.approx([0, 5 / 8, 3 / 8])
    assert weigh(0.2, 0.5, 0.3, top_p=0.81) == pytest.approx([0.2, 0.5, 0.3])
    assert weigh(0.2, 0.5, 0.3, top_p=1e-9) == [0, 1, 0]
    assert weigh(0.2, 0.5, 0.3, min_p=0.4) == pytest.approx([0.2, 0.5, 0.3])
    assert weigh(0.2, 0.5, 0.3, min_p=0.41) == pytest.approx([0, 5 / 8, 3 / 8])
    assert weigh(0.2, 0.5, 0.3, min_p=1.0) == [0, 1, 0]
    # Equals: the lowest ids stay; what is impossible stays so.
    assert weigh(0.25, 0.25, 0.25, 0.25, top_k=2) == [0.5, 0.5, 0, 0]
    assert weigh(0.25, 0.25, 0.25, 0.25, temperature=0.0) == [1, 0, 0, 0]
    assert weigh(0.25, 0.25, 0.25, 0.25, min_p=1.0) == [0.25] * 4
    assert weigh(0.5, 0.0, 0.5, top_k=3, temperature=9.0) == [0.5, 0, 0.5]


@pytest.mark.parametrize(("spread", "share"), [(0.0, 0.9), (0.3, 0.99), (3.0, 0.9), (9.0, 0.5)])
def test_a_nucleus_of_any_size(spread: float, share: float) -> None:
    """From one token to nearly all of 700, against a sort in plain Python."""
    rows = torch.randn(5, 700, generator=torch.Generator().manual_seed(1)).mul(spread).log_softmax(1)
    found = sampling_weights(rows, SearchOptions(strategy="sample", top_p=share))
    for row, weights in zip(rows.tolist(), found.tolist(), strict=True):
        order = sorted(range(700), key=lambda token: -row[token])
        before = itertools.accumulate((math.exp(row[token]) for token in order), initial=0.0)
        kept = {token for token, mass in zip(order, before, strict=False) if mass < share * (1 - 1e-6)}
        assert {token for token in range(700) if weights[token] > 0} == kept


def test_truncations_follow_one_another() -> None:
    """Temperature first: 16, 9, 4, 1. Of the best three's 29, a share of 0.8 takes two; the second is 9/16 of 16."""
    chances = [0.1, 0.2, 0.3, 0.4]
    assert weigh(*chances, temperature=0.5, top_k=3, top_p=0.8) == pytest.approx([0, 0, 9 / 25, 16 / 25])
    assert weigh(*chances, temperature=0.5, top_k=3, top_p=0.9) == pytest.approx([0, 4 / 29, 9 / 29, 16 / 29])
    assert weigh(*chances, temperature=0.5, top_k=3, top_p=0.9, min_p=0.57) == [0, 0, 0, 1]


def test_a_row_that_allows_nothing_has_no_weight() -> None:
    nothing = torch.full((1, 4), -torch.inf)
    for options in ({}, {"top_k": 2}, {"top_p": 0.5}, {"min_p": 0.5}, {"temperature": 0.0}):
        assert sampling_weights(nothing, SearchOptions(**options)).tolist() == [[0.0] * 4]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.sampled_from([0.0, 1e-30, 0.1, 1.0, 3.0]), min_size=1, max_size=9).filter(any), st.data())
def test_what_weighs_nothing_is_never_drawn(weights: list[float], data: st.DataObject) -> None:
    """Not even by the smallest and the largest random numbers; and columns of nothing do not matter."""
    numbers = st.sampled_from([0.0, 2.0**-53, 0.5, 1 - 2.0**-53]) | st.floats(0, 1, exclude_max=True)
    coins = torch.tensor([data.draw(st.lists(numbers, min_size=5, max_size=5))], dtype=torch.double)
    row = torch.tensor([weights])
    index = int(draw(row, coins))
    assert weights[index] > 0
    assert int(draw(torch.nn.functional.pad(row, (0, data.draw(st.integers(0, 20)))), coins)) == index


def test_draws_are_in_proportion() -> None:
    """Coins in a regular grid: the share of each outcome is its weight, to the width of the grid."""
    weights = torch.tensor([[3.0, 0.0, 1.0, 2.0, 4.0]])
    side = (torch.arange(40, dtype=torch.double) + 0.5) / 40
    coins = torch.cartesian_prod(side, side, side)
    found = draw(weights.expand(len(coins), -1), coins).bincount(minlength=5) / len(coins)
    assert found.tolist() == pytest.approx([0.3, 0.0, 0.1, 0.2, 0.4], abs=0.02)


def test_last_digits_almost_never_matter() -> None:
    """Weights as of the same sentence in two batches: of 1,000 draws among 8,000 tokens all come out the same."""
    generator = torch.Generator().manual_seed(1)
    weights = torch.rand(1000, 8000, generator=generator)
    shaken = weights * (1 + 1e-6 * torch.randn(weights.shape, generator=generator))
    coins = torch.rand(1000, COINS, generator=generator, dtype=torch.double)
    assert (draw(weights, coins) == draw(shaken, coins)).all()


def test_random_numbers_belong_to_seed_sample_and_step() -> None:
    numbers = random_numbers([3, 8, 2**64 - 1], 4, 7)
    assert numbers.shape == (3, 4, COINS)
    assert (numbers >= 0).all()
    assert (numbers < 1).all()
    assert len(np.unique(numbers)) == numbers.size
    np.testing.assert_array_equal(random_numbers([8], 2, 7)[0], numbers[1, :2])
    assert not np.isin(random_numbers([8], 4, 6), numbers).any()


@settings(max_examples=25, deadline=None, derandomize=True)
@given(sources_strategy, options_strategy, st.data())
def test_a_batch_gives_what_single_calls_give(
    sources: list[Source], options: SearchOptions, data: st.DataObject
) -> None:
    """Whatever else is in the batch, in whatever order, and however many other samples are drawn."""
    model = TableModel(forbid=0.2)
    seeds = data.draw(st.lists(st.none() | st.integers(0, 9), min_size=len(sources), max_size=len(sources)))
    requests = [Request(seed=seed) for seed in seeds]
    together = sample_search(model, make_batch(*sources), options, requests)
    order = data.draw(st.permutations(range(len(sources))))
    mixed = sample_search(
        model,
        make_batch(*(sources[place] for place in order)),
        replace(options, samples=options.samples + 3),
        [requests[place] for place in order],
    )
    for source, seed, found in zip(sources, seeds, together, strict=True):
        assert len(found) == options.samples
        alone = options if seed is None else replace(options, seed=seed)
        assert_same(found, search(model, make_batch(source), alone)[0])
    for place, found in zip(order, mixed, strict=True):
        assert_same(found[: options.samples], together[place])


@settings(max_examples=25, deadline=None, derandomize=True)
@given(sources_strategy, options_strategy)
def test_samples_are_exact_and_within_limits(sources: list[Source], options: SearchOptions) -> None:
    """Log-probabilities are the model's own, whatever the temperature."""
    model = TableModel(forbid=0.3)
    options = replace(options, coverage_penalty=0.3)
    for source, found in zip(sources, sample_search(model, make_batch(*sources), options), strict=True):
        for one in found:
            tokens = tuple(one.tokens)
            assert not {PAD, BOS, EOS} & set(tokens)
            assert len(tokens) <= limit_of(source, options)
            assert not one.finished or len(tokens) >= options.min_length
            expected = rescore(model, source, tokens, one.finished)
            assert one.token_log_probs == pytest.approx(expected, abs=1e-6)
            assert one.log_prob == pytest.approx(sum(expected), abs=1e-6)
            assert one.score == pytest.approx(scored(model, source, tokens, options, one.finished), abs=1e-5)
            rows = [look(source, tokens[:place]) for place in range(len(tokens) + one.finished)]
            assert one.weights is not None
            np.testing.assert_allclose(one.weights, np.array(rows).reshape(len(rows), len(source)), atol=1e-6)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    sources_strategy,
    options_strategy,
    st.sampled_from([{"top_k": 1}, *({"temperature": value} for value in (0.0, 1e-5, 1e-30, 1e-46, 5e-324))]),
)
def test_no_temperature_is_greedy_search(
    sources: list[Source], options: SearchOptions, sharp: dict[str, float]
) -> None:
    model = TableModel(forbid=0.3)
    options = replace(options, **sharp)  # type: ignore[arg-type]
    greedy = greedy_search(model, make_batch(*sources), options)
    for best, found in zip(greedy, sample_search(model, make_batch(*sources), options), strict=True):
        assert_same([best] * options.samples, found)


def texts(found: list[list[Hypothesis]]) -> list[list[tuple[Source, bool]]]:
    return [[(tuple(one.tokens), one.finished) for one in each] for each in found]


@pytest.mark.parametrize("recipe", WITH_SOURCE)
def test_every_recipe_in_single_precision(recipe: str) -> None:
    """In a batch with padding, log-probabilities differ in their last digits from those of a single call."""
    model = small_model(recipe).float()
    batch = random_batch([6, 3, 9])
    options = SearchOptions(strategy="sample", samples=6, seed=3, top_p=0.95)
    together = search(model, batch, options)
    assert len({one for each in texts(together) for one in each}) > 12
    for place, found in enumerate(together):
        ids, mask = batch.sources[0].ids[place], batch.sources[0].mask[place]  # type: ignore[union-attr]
        alone = search(model, Batch((pad([ids[mask].tolist()], 0),)), options)
        assert texts(alone) == texts([found])
        for one, other in zip(alone[0], found, strict=True):
            assert one.token_log_probs == pytest.approx(other.token_log_probs, abs=1e-5)


def test_seeds_make_the_difference() -> None:
    model, batch = TableModel(), make_batch((7, 8, 9))
    options = SearchOptions(strategy="sample", samples=20)
    assert texts(search(model, batch, options)) == texts(search(model, batch, options))
    assert texts(search(model, batch, options)) != texts(search(model, batch, replace(options, seed=1)))
    first, second = search(model, make_batch((7, 8, 9), (7, 8, 9)), options, [Request(seed=1), Request(seed=2)])
    assert texts([first]) != texts([second])


class CountingModel(FixedModel):
    """Sample i of the only sentence ends after i tokens: the end is possible to a row that has read enough."""

    def start(self, batch: Batch, prefix: Tensor | None = None) -> State:
        return State(own={"left": torch.zeros(batch.size, dtype=torch.long)})

    def step(self, tokens: Tensor, state: State) -> Step:
        self.sizes.append(len(tokens))
        left = torch.where(tokens >= FIRST_WORD, tokens - FIRST_WORD, state.own["left"])
        log_probs = torch.full((len(tokens), 6), -torch.inf)
        first = tokens == BOS
        log_probs[first, FIRST_WORD:] = math.log(1 / 3)
        for row in (~first).nonzero()[:, 0].tolist():
            log_probs[row, FIRST_WORD + int(left[row]) - 1 if left[row] else EOS] = 0.0
        return Step(log_probs, state.advance({"left": left}))


def test_finished_samples_and_sentences_make_room() -> None:
    """The first token tells how many follow: 3 none, 4 one, 5 two. Rows are needed for the fullest sentence only."""
    model = CountingModel(uniform(3))
    options = SearchOptions(strategy="sample", samples=8, seed=2)
    found = sample_search(model, make_batch((3,), (4,)), options)
    assert all(len(one.tokens) == one.tokens[0] - 2 for each in found for one in each)
    longer = [[sum(len(one.tokens) > length for one in each) for length in range(3)] for each in found]
    assert all(8 == each[0] > each[1] > each[2] > 0 for each in longer)
    assert longer[0] != longer[1]
    assert model.sizes == [16, *(2 * max(pair) for pair in zip(*longer, strict=True))]


def test_a_sentence_leaves_with_its_last_sample() -> None:
    model = FixedModel(uniform(3, 4))
    options = SearchOptions(strategy="sample", samples=3, max_ratio=1.0, max_extra=0)
    found = search(model, make_batch((3,), (4, 5, 6, 7), (4,)), options)
    assert [[len(one.tokens) for one in each] for each in found] == [[1] * 3, [4] * 3, [1] * 3]
    assert not any(one.finished for each in found for one in each)
    assert model.sizes == [9, 9, 3, 3, 3]


def test_nothing_possible_gives_empty_cut_samples() -> None:
    options = SearchOptions(strategy="sample", samples=2, min_length=1)
    found = search(FixedModel(uniform(EOS)), make_batch((3,)), options)
    assert [(one.tokens, one.finished, one.score) for one in found[0]] == [([], False, 0.0)] * 2


def test_an_empty_batch_has_no_samples() -> None:
    mask = torch.zeros(0, 1, dtype=torch.bool)
    empty = Batch((type(pad([[1]], 0))(mask.long(), mask),))
    assert sample_search(TableModel(), empty, SearchOptions(strategy="sample", samples=3)) == []


def test_a_wider_output_changes_no_sample() -> None:
    """Words to copy from another sentence make the output wider, without a chance for this one."""
    narrow, wide = FixedModel(uniform(EOS, 3, 4, 5)), FixedModel(uniform(EOS, 3, 4, 5, width=40))
    options = SearchOptions(strategy="sample", samples=20)
    assert texts(search(narrow, make_batch((3,)), options)) == texts(search(wide, make_batch((3,)), options))


def test_candidates_for_minimum_bayes_risk() -> None:
    """Samples if several are asked for, all hypotheses of the beam otherwise, whatever is to be left of them."""
    model, batch = TableModel(), make_batch((7, 8, 9), (4,))
    drawn = search(model, batch, SearchOptions(strategy="mbr", samples=7))
    assert texts(drawn) == texts(search(model, batch, SearchOptions(strategy="sample", samples=7)))
    beam = search(model, batch, SearchOptions(strategy="mbr", beam=4))
    assert texts(beam) == texts(search(model, batch, SearchOptions(beam=4, n_best=4)))


def test_the_greedy_strategy_needs_no_narrow_beam() -> None:
    model, batch = TableModel(), make_batch((7, 8, 9), (4,))
    found = search(model, batch, SearchOptions(strategy="greedy"))
    assert texts(found) == texts([[one] for one in greedy_search(model, batch)])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"strategy": "beems"}, "unknown strategy 'beems'; did you mean 'beam'"),
        ({"stopping": "never"}, "unknown stopping 'never'; valid: first, enough, hopeless"),
        ({"temperature": -0.1}, "temperature is -0.1"),
        ({"temperature": math.nan}, "temperature is nan"),
        ({"temperature": math.inf}, "temperature is inf"),
        ({"temperature": 1e308}, "temperature is 1e.308: give a number from 0 to 1,000"),
        ({"top_k": -1}, "top_k is -1"),
        ({"top_p": 0.0}, "top_p is 0.0"),
        ({"top_p": 1.1}, "top_p is 1.1"),
        ({"min_p": -0.1}, "min_p is -0.1"),
        ({"min_p": 1.1}, "min_p is 1.1"),
        ({"samples": 0}, "samples is 0: give at least 1"),
        ({"seed": -1}, "seed is -1: give a number from 0"),
        ({"groups": 0}, "groups is 0: give at least 1"),
        ({"diversity": -1.0}, "diversity is -1.0"),
        ({"diversity": 1e308}, "diversity is 1e.308: give a number from 0 to 1,000"),
        ({"groups": 2, "beam": 5}, "beam is 5: give a multiple of 2"),
        ({"strategy": "greedy", "n_best": 2}, "n_best is 2: give 1, since greedy"),
        ({"strategy": "mbr", "beam": 1}, "mbr chooses among several candidates"),
        ({"strategy": "mbr", "samples": 4, "n_best": 5}, "n_best is 5: give 1 to 4, the number of samples"),
        ({"strategy": "mbr", "n_best": 6}, "n_best is 6: give 1 to 5, the width of the beam"),
    ],
)
def test_bad_options_are_refused(values: dict[str, float], message: str) -> None:
    with pytest.raises(SightlineError, match=message):
        SearchOptions(**values)  # type: ignore[arg-type]


def test_a_bad_seed_of_a_request_is_refused() -> None:
    with pytest.raises(SightlineError, match="seed is -3"):
        sample_search(TableModel(), make_batch((3,)), SearchOptions(strategy="sample"), [Request(seed=-3)])


def test_a_repetition_penalty_is_in_the_score_as_in_a_beams() -> None:
    """With temperature 0 a sample is what greedy search finds, and so is its score."""
    model, batch = small_model("luong"), random_batch([5, 3, 7])
    options = SearchOptions(beam=1, repetition_penalty=1.7, min_length=20, temperature=0.0, samples=2)
    drawn = sample_search(model, batch, replace(options, strategy="sample"))
    greedy = greedy_search(model, batch, options)
    for each, one in zip(drawn, greedy, strict=True):
        for sample in each:
            assert sample.tokens == one.tokens
            assert sample.log_prob == pytest.approx(one.log_prob)
            assert sample.score == pytest.approx(one.score)
    penalised = [one for one in greedy if one.score != pytest.approx(one.log_prob / len(one.token_log_probs))]
    assert penalised  # some token was written twice
