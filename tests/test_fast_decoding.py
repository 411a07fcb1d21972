"""What makes decoding fast changes nothing: tables, batches cut to size, threads, no mask where none is needed."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import sightline
from sightline.batch import Batch, Tokens, pad
from sightline.engines.pytorch import LARGEST_TABLE, PyTorchEngine
from sightline.hypothesis import Hypothesis, Request, SearchOptions
from sightline.models import EncoderDecoder
from sightline.performance import in_threads
from sightline.search import search, stream
from sightline.state import State
from sightline.translator import Translator
from tests.commands import RECIPES
from tests.conftest import VOCABULARY, random_batch, small_model
from tests.test_decoders import DECODERS, make

RECURRENT = [name for name, (recipe, _) in DECODERS.items() if recipe != "transformer"]
LENGTHS = [5, 9, 2, 9]


def full_pass(model: EncoderDecoder, batch: Batch, sentence: int, history: list[int]) -> Tensor:
    """The last row of log-probabilities after a history of tokens, without any state."""
    source = batch.sources[0]
    assert isinstance(source, Tokens)
    targets = pad([[*history, model.eos]], model.pad)  # the last of which is never read
    alone = Batch((Tokens(source.ids[[sentence]], source.mask[[sentence]]),), targets)
    return model.output.log_probs(model.read(alone).features)[0, -1]


@pytest.mark.parametrize("name", DECODERS)
def test_hypotheses_that_change_places_and_leave_keep_their_history(name: str) -> None:
    """A random search: every row's distribution is that of its own history, read from the beginning."""
    draw = random.Random(1)
    model, batch = make(name), random_batch([5, 9, 2])
    model.tabulate(LARGEST_TABLE)
    sentences, histories = [0, 1, 2], [[], [], []]
    state, width, tokens = model.start(batch), 1, torch.full((3,), model.bos)
    with torch.no_grad():
        for number in range(6):
            step = model.step(tokens, state)
            for row, log_probs in enumerate(step.log_probs):
                expected = full_pass(model, batch, sentences[row // width], histories[row])
                torch.testing.assert_close(log_probs, expected)
            state = step.state
            if number == 3:
                state, sentences, histories = left(state, sentences, histories, [0, 2])
            if number == 1:
                state, width = state.expand(3), 3
                histories = [history[:] for history in histories for _ in range(3)]
            parents = [row // width * width + draw.randrange(width) for row in range(len(histories))]
            chosen = [draw.randrange(4, VOCABULARY) for _ in parents]
            state = state.reorder(torch.tensor(parents))
            histories = [[*histories[parent], token] for parent, token in zip(parents, chosen, strict=True)]
            tokens = torch.tensor(chosen)


def left(
    state: State, sentences: list[int], histories: list[list[int]], kept: list[int]
) -> tuple[State, list[int], list[list[int]]]:
    """Only the sentences at the places `kept` go on."""
    rows = [place * state.width + slot for place in kept for slot in range(state.width)]
    return state.keep(torch.tensor(kept)), [sentences[place] for place in kept], [histories[row] for row in rows]


# What may be asked of a search: options, and a request for each sentence.
ASKED: dict[str, tuple[dict[str, Any], list[Request] | None]] = {
    "greedy": ({"beam": 1}, None),
    "beam": ({"beam": 4, "n_best": 4}, None),
    "gnmt": ({"beam": 3, "length_penalty": "gnmt", "stopping": "hopeless", "n_best": 2}, None),
    "coverage": ({"beam": 3, "coverage_penalty": 0.3, "n_best": 2}, None),
    "diverse": ({"beam": 4, "groups": 2, "n_best": 3}, None),
    "controls": ({"beam": 3, "no_repeat": 2, "min_length": 3, "forbidden": ((5,), (6, 7))}, None),
    "samples": ({"strategy": "sample", "samples": 3, "seed": 4, "top_p": 0.9}, None),
    "prefix": ({"beam": 3, "n_best": 2}, [Request((4, 5)), Request(), Request((6,)), Request((7, 8, 9))]),
    "greedy prefix": ({"beam": 1}, [Request((4, 5)), Request(), Request((6,)), Request((7, 8, 9))]),
    "constraints": (
        {"beam": 3},
        [Request((), (((8,), (9, 10)),)), Request(), Request((4,), (((5, 6),),)), Request((), (((7,),), ((11,),)))],
    ),
}


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("recipe", RECIPES)
def test_looked_up_in_a_batch_as_worked_out_alone(recipe: str, asked: str) -> None:
    """Token by token and score by score."""
    if (recipe, asked) == ("seq2seq", "coverage"):
        pytest.skip("it has no attention")
    model, batch = small_model(recipe), random_batch(LENGTHS)
    if recipe == "transformer" and asked == "coverage":
        model.decoder.alignment = (1, None)
    values, requests = ASKED[asked]
    options = SearchOptions(max_length=8, **values)
    plain = [
        search(model, alone(batch, row), options, None if requests is None else [requests[row]])[0]
        for row in range(batch.size)
    ]
    model.tabulate(LARGEST_TABLE)
    assert (model.table is None) == (recipe == "transformer")
    fast = search(model, batch, options, requests)
    for expected, found in zip(plain, fast, strict=True):
        assert_same(expected, found)


@pytest.mark.parametrize("asked", ["greedy", "controls", "greedy prefix", "constraints"])
@pytest.mark.parametrize("recipe", RECIPES)
def test_a_stream_ends_with_what_a_search_finds(recipe: str, asked: str) -> None:
    model, batch = small_model(recipe), random_batch(LENGTHS)
    model.tabulate(LARGEST_TABLE)
    values, requests = ASKED[asked]
    options = SearchOptions(max_length=8, **values)
    for row, expected in enumerate(search(model, batch, options, requests)):
        *_, last = stream(model, alone(batch, row), options, None if requests is None else requests[row])
        assert last.hypothesis is not None
        assert_same(expected, [last.hypothesis])


def alone(batch: Batch, row: int) -> Batch:
    """One sentence of a batch, without padding."""
    source = batch.sources[0]
    assert isinstance(source, Tokens)
    length = int(source.mask[row].sum())
    return Batch((Tokens(source.ids[[row], :length], source.mask[[row], :length]),))


def assert_same(expected: list[Hypothesis], found: list[Hypothesis]) -> None:
    assert [one.tokens for one in found] == [one.tokens for one in expected]
    for one, other in zip(expected, found, strict=True):
        assert (other.finished, other.honoured) == (one.finished, one.honoured)
        assert other.score == pytest.approx(one.score, abs=1e-9)
        assert other.token_log_probs == pytest.approx(one.token_log_probs, abs=1e-9)
        assert (other.weights is None) == (one.weights is None)
        if one.weights is not None:
            np.testing.assert_allclose(other.weights, one.weights, atol=1e-6)


@pytest.mark.parametrize("lengths", [[6, 6, 6], [6, 3, 9]], ids=["no padding", "padding"])
def test_a_search_without_padding_needs_no_mask(lengths: list[int]) -> None:
    model, batch = small_model("transformer"), random_batch(lengths)
    assert ("mask" in model.start(batch).shared) == (len(set(lengths)) > 1)


@pytest.mark.parametrize("name", RECURRENT)
def test_a_table_stands_for_the_whole_vocabulary(name: str) -> None:
    model = make(name)
    ids = torch.arange(VOCABULARY)
    expected = model.decoder.of_tokens(model.target_embedding(ids[None])[0])
    model.tabulate(expected.numel() - 1)
    assert model.table is None
    model.tabulate(expected.numel())
    assert model.table is not None
    torch.testing.assert_close(model.table, expected)
    assert not model.table.requires_grad
    assert "table" not in model.state_dict()


def test_log_probs_are_the_same_with_and_without_gradients() -> None:
    model = small_model("transformer")
    features = torch.randn(3, 12, dtype=torch.double)
    with_gradients = model.output.log_probs(features)
    assert with_gradients.requires_grad
    with torch.no_grad():
        assert torch.equal(model.output.log_probs(features), with_gradients)


@pytest.mark.parametrize("every", [1, 3, 4])
def test_items_side_by_side_come_out_in_their_order(every: int) -> None:
    both_there = threading.Barrier(2, timeout=60)

    def work(item: int) -> tuple[int, str, int]:
        if item < 2:
            both_there.wait()  # two threads are at work at once
        return item * item, threading.current_thread().name, torch.get_num_threads()

    torch.set_num_threads(every)
    found = list(in_threads(work, range(9), 2))
    assert [square for square, _, _ in found] == [item * item for item in range(9)]
    assert len({name for _, name, _ in found}) == 2
    assert {count for _, _, count in found} == {max(1, every // 2)}
    assert torch.get_num_threads() == every


@pytest.mark.parametrize(("items", "count"), [(1, 4), (5, 1), (0, 2)])
def test_one_at_a_time_needs_no_other_thread(items: int, count: int) -> None:
    found = list(in_threads(lambda item: threading.current_thread(), range(items), count))
    assert found == [threading.current_thread()] * items


def test_a_mistake_ends_the_work() -> None:
    def work(item: int) -> int:
        if item == 2:
            raise ValueError("item 2")
        return item

    def some() -> Iterator[int]:
        yield from in_threads(work, range(100), 2)

    results = some()
    assert [next(results), next(results)] == [0, 1]
    with pytest.raises(ValueError, match="item 2"):
        next(results)


def engine_of(translator: Translator) -> PyTorchEngine:
    engine = translator.engines.get("pytorch")
    assert isinstance(engine, PyTorchEngine)
    return engine


@pytest.mark.parametrize("recipe", ["bahdanau", "transformer"])
@pytest.mark.parametrize("options", [{"beam": 1}, {"beam": 3}, {"strategy": "sample", "samples": 2, "seed": 5}])
def test_threads_change_nothing(
    recipe: str, options: dict[str, Any], trained: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = ["a b c", "d e", "f g h a", "b", "c d e", "b c d e f", "", "c c"] * 3
    translator = sightline.load(trained(recipe), engine="pytorch")
    engine = engine_of(translator)
    monkeypatch.setattr("sightline.engines.pytorch.LARGEST_STEP", 100)
    results = []
    for threads in (1, 3):
        engine.threads = threads
        seen: list[int] = []
        found = list(translator.stream(lines, token_scores=True, watch=seen.append, **options))
        assert sum(seen) == len(lines)
        results.append([(one.text, one.score, one.token_log_probs) for one in found])
    assert results[0] == results[1]


def test_batches_keep_a_step_small_and_the_longest_first(trained: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_of(sightline.load(trained("seq2seq"), engine="pytorch"))
    vocabulary = engine.folder.tokenizers.target.size
    monkeypatch.setattr("sightline.engines.pytorch.LARGEST_STEP", 4 * 5 * vocabulary)
    lengths = np.array([3, 9, 4, 9, 1, 2, 6, 7, 8, 5])
    batches = engine._batches(lengths, 5)
    assert sorted(index for batch in batches for index in batch) == list(range(10))
    assert max(len(batch) for batch in batches) <= 4
    longest = [max(lengths[batch]) for batch in batches]
    assert longest == sorted(longest, reverse=True)
    monkeypatch.setattr("sightline.engines.pytorch.LARGEST_STEP", 1)
    assert {len(batch) for batch in engine._batches(lengths, 5)} == {1}
    assert engine._batches(lengths[:0], 5) == []


def test_a_coverage_penalty_disturbs_no_other_search(trained: Any) -> None:
    """Searches of one engine may be under way at the same time, with weights reported and without."""
    translator = sightline.load(trained("transformer"), engine="pytorch")
    line, other = "a b c d e", "h g"
    for options, between in (({"coverage_penalty": 0.5}, {}), ({}, {"coverage_penalty": 0.5})):
        expected = translator.translate(line, beam=4, **options).text
        parts = translator.live(line, beam=4, **options)
        shown = next(parts)
        translator.translate(other, beam=4, **between)
        assert shown + "".join(parts) == expected
