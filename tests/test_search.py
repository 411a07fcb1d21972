"""Search against oracles: exhaustive enumeration, a beam search in plain Python, rescoring, and values by hand."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sightline.batch import Batch, pad
from sightline.errors import SightlineError
from sightline.search import Hypothesis, SearchOptions, Step, beam_search, greedy_search, search
from sightline.search.candidates import top
from sightline.search.processors import AverageLength, CoveragePenalty, GnmtLength, NoLength, length_penalty
from sightline.state import State

PAD, BOS, EOS = 0, 1, 2
FIRST_WORD = 3
PENALTIES = [("average", 1.0), ("average", 0.5), ("gnmt", 0.6), ("none", 0.0)]


@cache
def table(source: tuple[int, ...], prefix: tuple[int, ...], vocabulary: int, forbid: float) -> list[float]:
    """A random distribution for this source and these tokens so far; each token is impossible with chance `forbid`.

    The forbidden special tokens are made the most probable ones, to tempt the search.
    """
    draw = random.Random(repr((source, prefix, vocabulary)))
    scores = [draw.gauss(0, 1.5) + (3 if token in (PAD, BOS) else 0) for token in range(vocabulary)]
    scores = [-math.inf if draw.random() < forbid else score for score in scores]
    if all(score == -math.inf for score in scores):
        scores[EOS] = 0.0
    return torch.tensor(scores).log_softmax(0).tolist()


@cache
def look(source: tuple[int, ...], prefix: tuple[int, ...]) -> list[float]:
    """Random attention weights over the source."""
    draw = random.Random(repr((prefix, source)))
    return torch.tensor([draw.gauss(0, 2) for _ in source]).softmax(0).tolist()


@dataclass
class TableModel:
    """A language model given by `table`. Its state carries the whole history, so a wrong reorder is noticed."""

    vocabulary: int = 6
    attends: bool = True
    forbid: float = 0.0
    pad: int = PAD
    bos: int = BOS
    eos: int = EOS
    sizes: list[int] = field(default_factory=list)

    def start(self, batch: Batch, prefix: Tensor | None = None) -> State:
        assert prefix is None
        source = batch.sources[0]
        shared = {"ids": source.ids, "mask": source.mask}
        return State(shared, {"history": torch.zeros(batch.size, 0, dtype=torch.long)})

    def step(self, tokens: Tensor, state: State) -> Step:
        history = torch.cat([state.own["history"], tokens[:, None]], 1)
        self.sizes.append(len(tokens))
        assert len(tokens) == len(state.shared["ids"]) * state.width
        assert history.size(1) == state.position + 1
        sources = [
            tuple(row[real].tolist()) for row, real in zip(state.shared["ids"], state.shared["mask"], strict=True)
        ]
        rows = [(sources[row // state.width], tuple(ids[1:])) for row, ids in enumerate(history.tolist())]
        for source, prefix in rows:  # a token that was forbidden must never come back, not even in a dead row
            if prefix:
                assert prefix[-1] >= FIRST_WORD
                assert table(source, prefix[:-1], self.vocabulary, self.forbid)[prefix[-1]] > -math.inf
        log_probs = torch.tensor([table(*row, self.vocabulary, self.forbid) for row in rows])
        weights = None
        if self.attends:
            weights = torch.zeros(len(rows), state.shared["ids"].size(1))
            for row, (source, prefix) in enumerate(rows):
                weights[row, : len(source)] = torch.tensor(look(source, prefix))
        return Step(log_probs, state.advance({"history": history}), weights)

    def source_lengths(self, batch: Batch) -> Tensor:
        return batch.sources[0].mask.sum(1)


def make_batch(*sources: tuple[int, ...]) -> Batch:
    return Batch((pad([list(source) for source in sources], PAD),))


def shortfall(source: tuple[int, ...], tokens: tuple[int, ...], finished: bool = True) -> float:
    """GNMT's coverage sum in plain Python."""
    rows = [look(source, tokens[:length]) for length in range(len(tokens) + finished)]
    return sum(math.log(min(max(sum(row[i] for row in rows), 1e-6), 1.0)) for i in range(len(source)))


def rescore(model: TableModel, source: tuple[int, ...], tokens: tuple[int, ...], finished: bool = True) -> list[float]:
    """Teacher forcing in plain Python: the log-probability of each token, the end included when finished."""
    outputs = (*tokens, EOS) if finished else tokens
    return [table(source, tokens[:place], model.vocabulary, model.forbid)[token] for place, token in enumerate(outputs)]


def scored(
    model: TableModel, source: tuple[int, ...], tokens: tuple[int, ...], options: SearchOptions, finished: bool = True
) -> float:
    values = rescore(model, source, tokens, finished)
    score = sum(values) / length_penalty(options.length_penalty, options.alpha)(len(values))
    if options.coverage_penalty:
        score += options.coverage_penalty * shortfall(source, tokens, finished)
    return score


def limit_of(source: tuple[int, ...], options: SearchOptions) -> int:
    limit = max(int(options.max_ratio * len(source) + options.max_extra), options.min_length)
    return limit if options.max_length is None else min(limit, options.max_length)


def every_sequence(model: TableModel, source: tuple[int, ...], options: SearchOptions) -> Iterator[tuple[int, ...]]:
    words = range(FIRST_WORD, model.vocabulary)
    for length in range(options.min_length, limit_of(source, options) + 1):
        yield from itertools.product(words, repeat=length)


def plain_beam(
    model: TableModel, source: tuple[int, ...], options: SearchOptions
) -> list[tuple[float, tuple[int, ...], bool]]:
    """Beam search by its rules, on lists, without the bound that stops it early: (score, tokens, finished)."""
    live: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    finished: list[tuple[int, ...]] = []
    cut: list[tuple[int, ...]] = []
    for length in range(limit_of(source, options) + 1):
        reached = []
        for total, tokens in live:
            values = table(source, tokens, model.vocabulary, model.forbid)
            for token in range(model.vocabulary):
                may = token >= FIRST_WORD or (token == EOS and length >= options.min_length)
                if may and values[token] > -math.inf:
                    reached.append((total + values[token], tokens, token))
        reached.sort(key=lambda item: -item[0])
        ended = [tokens for _, tokens, token in reached[: options.beam] if token == EOS]
        finished += ended
        cut = [tokens for _, tokens in live if tokens not in ended]
        live = [(total, (*tokens, token)) for total, tokens, token in reached[: 2 * options.beam] if token != EOS]
        live = live[: options.beam]
        if len(finished) >= max(options.beam * options.patience, options.n_best) or not live:
            break
    if len(finished) >= options.n_best:
        cut = []
    found = [(scored(model, source, tokens, options), tokens, True) for tokens in finished]
    found.sort(key=lambda item: -item[0])
    rest = [(scored(model, source, tokens, options, False), tokens, False) for tokens in cut]
    rest.sort(key=lambda item: -item[0])
    return (found + rest)[: options.n_best]


def assert_same(first: list[Hypothesis], second: list[Hypothesis]) -> None:
    assert [found.tokens for found in first] == [found.tokens for found in second]
    assert [found.finished for found in first] == [found.finished for found in second]
    for one, other in zip(first, second, strict=True):
        assert one.score == pytest.approx(other.score, abs=1e-6)
        assert one.log_prob == pytest.approx(other.log_prob, abs=1e-9)
        assert one.token_log_probs == pytest.approx(other.token_log_probs, abs=1e-9)
        if one.weights is not None and other.weights is not None:
            np.testing.assert_allclose(one.weights, other.weights, rtol=1e-5, atol=1e-6)


sources_strategy = st.lists(
    st.lists(st.integers(FIRST_WORD, 50), min_size=1, max_size=4).map(tuple), min_size=1, max_size=4
)
options_strategy = st.builds(
    lambda penalty, **rest: SearchOptions(length_penalty=penalty[0], alpha=penalty[1], **rest),
    penalty=st.sampled_from(PENALTIES),
    beam=st.integers(2, 4),
    n_best=st.integers(1, 2),
    coverage_penalty=st.sampled_from([0.0, 0.3]),
    min_length=st.integers(0, 2),
    max_ratio=st.sampled_from([0.5, 1.0, 2.0]),
    max_extra=st.integers(0, 3),
    patience=st.sampled_from([1.0, 2.0, math.inf]),
)


@pytest.mark.parametrize(("name", "alpha"), PENALTIES)
@pytest.mark.parametrize("coverage", [0.0, 0.4])
@pytest.mark.parametrize("patience", [1.0, math.inf])
def test_wide_beam_equals_enumeration(name: str, alpha: float, coverage: float, patience: float) -> None:
    model = TableModel(vocabulary=5)
    sources = [(7, 8, 9), (4, 5), (6,)]
    options = SearchOptions(
        beam=64,
        n_best=10,
        length_penalty=name,
        alpha=alpha,
        coverage_penalty=coverage,
        max_ratio=1,
        max_extra=2,
        patience=patience,
    )
    for source, found in zip(sources, beam_search(model, make_batch(*sources), options), strict=True):
        every = [(scored(model, source, tokens, options), tokens) for tokens in every_sequence(model, source, options)]
        every.sort(reverse=True)
        assert [tuple(hypothesis.tokens) for hypothesis in found] == [tokens for _, tokens in every[:10]]
        assert [hypothesis.score for hypothesis in found] == pytest.approx([score for score, _ in every[:10]], abs=1e-5)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(sources_strategy, options_strategy, st.sampled_from([0.0, 0.4]))
def test_beam_equals_the_plain_one(sources: list[tuple[int, ...]], options: SearchOptions, forbid: float) -> None:
    """Also that the bound only ever stops a search that has nothing more to find."""
    model = TableModel(forbid=forbid)
    for source, found in zip(sources, beam_search(model, make_batch(*sources), options), strict=True):
        expected = plain_beam(model, source, options)
        assert [(tuple(one.tokens), one.finished) for one in found] == [item[1:] for item in expected]
        assert [one.score for one in found] == pytest.approx([item[0] for item in expected], abs=1e-5)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(sources_strategy, options_strategy, st.sampled_from([0.0, 0.4]))
def test_beam_of_one_equals_greedy(sources: list[tuple[int, ...]], options: SearchOptions, forbid: float) -> None:
    model = TableModel(forbid=forbid)
    one = SearchOptions(
        **{**vars(options), "beam": 1, "n_best": 1, "patience": 1.0},
    )
    greedy = greedy_search(model, make_batch(*sources), one)
    beam = beam_search(model, make_batch(*sources), one)
    assert all(len(found) == 1 for found in beam)
    assert_same(greedy, [found[0] for found in beam])
    assert_same(greedy, [found[0] for found in search(model, make_batch(*sources), one)])


@settings(max_examples=60, deadline=None, derandomize=True)
@given(sources_strategy, options_strategy, st.booleans())
def test_batch_of_n_equals_n_batches_of_one(
    sources: list[tuple[int, ...]], options: SearchOptions, greedy: bool
) -> None:
    model = TableModel()
    if greedy:
        options = SearchOptions(**{**vars(options), "beam": 1, "n_best": 1})
    together = search(model, make_batch(*sources), options)
    for source, found in zip(sources, together, strict=True):
        assert_same(found, search(model, make_batch(source), options)[0])


@settings(max_examples=60, deadline=None, derandomize=True)
@given(sources_strategy, options_strategy, st.booleans())
def test_results_are_sorted_distinct_exact_and_within_limits(
    sources: list[tuple[int, ...]], options: SearchOptions, greedy: bool
) -> None:
    model = TableModel(forbid=0.3)
    if greedy:
        options = SearchOptions(**{**vars(options), "beam": 1, "n_best": 1})
    for source, found in zip(sources, search(model, make_batch(*sources), options), strict=True):
        assert 1 <= len(found) <= options.n_best
        order = [(not one.finished, -one.score) for one in found]
        assert order == sorted(order)
        assert len({tuple(one.tokens) for one in found}) == len(found)
        for one in found:
            tokens = tuple(one.tokens)
            assert not {PAD, BOS, EOS} & set(tokens)
            assert len(tokens) <= limit_of(source, options)
            assert not one.finished or len(tokens) >= options.min_length
            expected = rescore(model, source, tokens, one.finished)
            assert one.token_log_probs == pytest.approx(expected, abs=1e-5)
            assert one.log_prob == pytest.approx(sum(expected), abs=1e-5)
            assert one.score == pytest.approx(scored(model, source, tokens, options, one.finished), abs=1e-5)
            assert math.isfinite(one.score)
            rows = [look(source, tokens[:place]) for place in range(len(tokens) + one.finished)]
            assert one.weights is not None
            expected_weights = np.array(rows).reshape(len(rows), len(source))
            np.testing.assert_allclose(one.weights, expected_weights, rtol=1e-5, atol=1e-6)


def test_bound_saves_steps_without_changing_the_result() -> None:
    """Without a length penalty nothing that comes later can win, so the search need not wait for patience."""
    model = TableModel()
    options = SearchOptions(beam=4, length_penalty="none", patience=math.inf, max_extra=50)
    beam_search(model, make_batch((3, 4)), options)
    assert len(model.sizes) < 20


class FixedModel(TableModel):
    """The same distribution at every step, whatever the source."""

    def __init__(self, log_probs: list[float], weights: list[float] | None = None) -> None:
        super().__init__()
        self.log_probs, self.weights = torch.tensor(log_probs), weights

    def step(self, tokens: Tensor, state: State) -> Step:
        self.sizes.append(len(tokens))
        log_probs = self.log_probs.expand(len(tokens), -1)
        weights = None if self.weights is None else torch.tensor(self.weights).expand(len(tokens), -1)
        return Step(log_probs, state.advance({}), weights)


def uniform(*tokens: int, width: int = 6) -> list[float]:
    return [-math.log(len(tokens)) if token in tokens else -math.inf for token in range(width)]


@pytest.mark.parametrize("beam", [1, 3])
def test_finished_sentences_leave_the_batch(beam: int) -> None:
    """No sentence ends by itself: two stop after one token (and a step that could have ended them), one after four."""
    model = FixedModel(uniform(3, 4))
    search(model, make_batch((3,), (4, 5, 6, 7), (4,)), SearchOptions(beam=beam, max_ratio=1.0, max_extra=0))
    assert model.sizes == [3, 3 * beam, beam, beam, beam]


@pytest.mark.parametrize("beam", [1, 2])
def test_cut_at_the_limit_is_not_finished(beam: int) -> None:
    found = search(FixedModel(uniform(3)), make_batch((3, 4)), SearchOptions(beam=beam, max_ratio=1.5, max_extra=1))
    assert found[0][0] == Hypothesis([3] * 4, 0.0, 0.0, [0.0] * 4, None, finished=False)


@pytest.mark.parametrize("beam", [1, 3])
def test_minimum_length_goes_before_the_ratio(beam: int) -> None:
    model = FixedModel(uniform(EOS, 4))
    found = search(model, make_batch((3,)), SearchOptions(beam=beam, max_ratio=1, max_extra=0, min_length=3))
    assert found[0][0].tokens == [4, 4, 4]
    assert found[0][0].finished


@pytest.mark.parametrize("beam", [1, 3])
def test_nothing_possible_gives_an_empty_cut_hypothesis(beam: int) -> None:
    """Only the end is possible and the minimum length forbids it."""
    found = search(FixedModel(uniform(EOS)), make_batch((3,)), SearchOptions(beam=beam, min_length=1))
    assert [(one.tokens, one.finished, one.score) for one in found[0]] == [([], False, 0.0)]


def test_ties_go_to_the_lowest_id() -> None:
    model = FixedModel(uniform(3, 4, 5))
    assert greedy_search(model, make_batch((3,)), SearchOptions(max_length=2))[0].tokens == [3, 3]
    found = beam_search(model, make_batch((3,)), SearchOptions(beam=4, n_best=4, max_length=2))[0]
    assert [one.tokens for one in found] == [[3, 3], [3, 4], [3, 5], [4, 3]]


@pytest.mark.parametrize("beam", [1, 4])
def test_a_model_wider_than_its_vocabulary(beam: int) -> None:
    """Ids past the vocabulary are copied source words: search takes the width from the tensor."""
    model = FixedModel([-math.inf] * 9 + [math.log(0.9), -math.inf])
    model.log_probs[EOS] = math.log(0.1)
    found = search(model, make_batch((3,)), SearchOptions(beam=beam, max_length=3))
    assert set(found[0][0].tokens) == {9}


def test_eos_does_not_empty_the_beam() -> None:
    """The end is the best continuation of every hypothesis, and yet the beam stays full of living ones."""
    model = FixedModel([-math.inf, -math.inf, *[math.log(p) for p in (0.7, 0.1, 0.1, 0.1)]])
    found = beam_search(model, make_batch((3,)), SearchOptions(beam=3, n_best=3, length_penalty="none"))[0]
    assert [one.tokens for one in found] == [[], [3], [4]]


def test_impossible_tokens_never_appear() -> None:
    model = FixedModel(uniform(EOS, 5))
    found = beam_search(model, make_batch((3,)), SearchOptions(beam=5, n_best=5, max_length=3, patience=9))[0]
    assert sorted(one.tokens for one in found) == [[], [5], [5, 5], [5, 5, 5]]
    assert all(one.finished for one in found)


@pytest.mark.parametrize("beam", [1, 2])
def test_an_empty_batch(beam: int) -> None:
    mask = torch.zeros(0, 1, dtype=torch.bool)
    empty = Batch((type(pad([[1]], 0))(mask.long(), mask),))
    assert search(TableModel(), empty, SearchOptions(beam=beam)) == []


def test_search_leaves_the_models_tensor_alone() -> None:
    model = FixedModel([-1.0] * 6)
    search(model, make_batch((3,)), SearchOptions(beam=2, min_length=2))
    assert model.log_probs.tolist() == [-1.0] * 6


def test_length_penalties_by_hand() -> None:
    gnmt = GnmtLength(0.6)
    assert gnmt(1) == 1.0
    assert gnmt(20) == pytest.approx(2.354, abs=5e-4)
    assert AverageLength(1.0)(7) == 7.0
    assert AverageLength(0.5)(9) == 3.0
    assert AverageLength(0.0)(9) == 1.0
    assert NoLength()(9) == 1.0
    for name, alpha in PENALTIES:
        values = [length_penalty(name, alpha)(length) for length in range(20)]
        assert values == sorted(values)
        assert values[0] > 0


def test_coverage_penalty_by_hand() -> None:
    coverage = torch.tensor([[0.5, 1.7, 0.25, 0.0], [1.0, 1.0, 0.0, 0.0]])
    mask = torch.tensor([[True, True, True, False], [True, True, True, False]])
    values = CoveragePenalty(0.2)(coverage, mask)
    assert values.tolist() == pytest.approx([0.2 * math.log(0.5 * 0.25), 0.2 * math.log(1e-6)], rel=1e-5)


def test_coverage_penalty_ranks_hypotheses() -> None:
    """Each step looks 0.4 at the first word and 0.6 at the second: two predictions cover 0.8 and 1."""
    model = FixedModel(uniform(EOS, 4), weights=[0.4, 0.6])
    options = SearchOptions(beam=4, n_best=3, length_penalty="none", coverage_penalty=10.0, max_length=2, patience=9)
    found = beam_search(model, make_batch((3, 4)), options)[0]
    assert [one.tokens for one in found] == [[4, 4], [4], []]
    half = math.log(0.5)
    expected = [3 * half, 2 * half + 10 * math.log(0.8), half + 10 * math.log(0.4 * 0.6)]
    assert [one.score for one in found] == pytest.approx(expected, abs=1e-5)
    assert [one.log_prob for one in found] == pytest.approx([3 * half, 2 * half, half], abs=1e-6)


@pytest.mark.parametrize("beam", [1, 3])
def test_coverage_penalty_without_weights_is_refused(beam: int) -> None:
    options = SearchOptions(beam=beam, coverage_penalty=0.2)
    with pytest.raises(SightlineError, match="gives none"):
        search(TableModel(attends=False), make_batch((3,)), options)
    with pytest.raises(SightlineError, match="each of 1 source positions, and this model gives 2"):
        search(FixedModel(uniform(EOS), weights=[0.5, 0.5]), make_batch((3,)), options)


def test_weights_not_over_the_source_are_given_whole() -> None:
    model = FixedModel(uniform(EOS), weights=[0.2, 0.3, 0.5])
    found = search(model, make_batch((3, 4)), SearchOptions(beam=2))[0][0]
    assert found.weights is not None
    assert found.weights.shape == (1, 3)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"beam": 0}, "beam is 0"),
        ({"beam": "5"}, "beam is '5': give a whole number"),
        ({"beam": 2.5}, "beam is 2.5: give a whole number"),
        ({"beam": 2.0}, "beam is 2.0: give a whole number"),
        ({"beam": True}, "beam is True: give a whole number"),
        ({"beam": None}, "beam is None: give a whole number"),
        ({"max_length": "9"}, "max_length is '9': give a whole number"),
        ({"alpha": "1"}, "alpha is '1': give a number"),
        ({"strategy": 1}, "strategy is 1: give a name"),
        ({"beam": 2, "n_best": 3}, "n_best is 3: give 1 to 2"),
        ({"alpha": -1.0}, "alpha is -1.0: give a number from 0 to 10"),
        ({"alpha": 250.0}, "alpha is 250.0: give a number from 0 to 10"),
        ({"alpha": math.nan}, "alpha is nan"),
        ({"coverage_penalty": math.inf}, "coverage_penalty is inf: give a number from 0 to 1,000"),
        ({"coverage_penalty": 1e308}, "coverage_penalty is 1e.308: give a number from 0 to 1,000"),
        ({"max_ratio": math.inf}, "max_ratio is inf: give a number from 0 to 1,000"),
        ({"max_extra": 10**400}, "give a number from 0 to 1,000,000,000"),
        ({"min_length": -1}, "min_length is -1: give a number from 0 to 1,000,000,000"),
        ({"max_length": 2, "min_length": 3}, "max_length is 2"),
        ({"patience": 0.0}, "patience is 0.0"),
    ],
)
def test_bad_options_are_refused(values: dict[str, float], message: str) -> None:
    with pytest.raises(SightlineError, match=message):
        SearchOptions(**values)  # type: ignore[arg-type]


def test_numbers_of_numpy_are_numbers() -> None:
    plain = {"beam": 2, "alpha": 0.5, "strategy": "sample", "samples": 3, "seed": 3}
    numpys = plain | {"beam": np.int64(2), "alpha": np.float32(0.5), "seed": np.int64(3)}
    every = [search(TableModel(), make_batch((3,)), SearchOptions(**values)) for values in (plain, numpys)]  # type: ignore[arg-type]
    one, other = ([found.tokens for found in each[0]] for each in every)
    assert one == other


def test_unknown_length_penalty_is_refused() -> None:
    with pytest.raises(SightlineError, match="did you mean 'average'"):
        search(TableModel(), make_batch((3,)), SearchOptions(length_penalty="averge"))


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.lists(st.lists(st.integers(-3, 3), min_size=7, max_size=7), min_size=1, max_size=5), st.integers(1, 9))
def test_top_is_a_stable_sort(rows: list[list[int]], count: int) -> None:
    """-3 stands for minus infinity, whose order does not matter."""
    values = torch.tensor(rows, dtype=torch.float)
    values[values == -3] = -torch.inf
    best, indices = top(values, count)
    expected = values.sort(dim=1, descending=True, stable=True)
    assert torch.equal(best, expected.values[:, :count])
    finite = best > -torch.inf
    assert torch.equal(indices[finite], expected.indices[:, :count][finite])
    assert torch.equal(values.gather(1, indices), best)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.integers(0, 10**6), st.integers(4600, 4700), st.sampled_from([3, 4000, 10**6]), st.sampled_from([0.0, 0.5, 0.99])
)
def test_top_of_wide_rows_is_a_stable_sort_too(seed: int, width: int, levels: int, banned: float) -> None:
    """They are searched by blocks, the last of which may be short; few levels make ties, also across blocks."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randint(levels, (3, width), generator=generator).float()
    values[torch.rand(3, width, generator=generator) < banned] = -torch.inf
    best, indices = top(values, 1)
    more, places = top(values, 8)
    expected = values.sort(dim=1, descending=True, stable=True)
    assert torch.equal(more, expected.values[:, :8])
    assert torch.equal(best, more[:, :1])
    for found, columns in ((best, indices), (more, places)):
        finite = found > -torch.inf
        assert torch.equal(columns[finite], expected.indices[:, : found.size(1)][finite])
