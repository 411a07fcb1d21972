"""What makes decoding fast changes nothing: a cache that never moves, tables, threads."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

import sightline
from sightline.batch import Batch, Tokens
from sightline.engines.pytorch import PyTorchEngine
from sightline.errors import SightlineError
from sightline.int8 import Int8Product
from sightline.models import EncoderDecoder
from sightline.performance import side_by_side
from sightline.search import SearchOptions, search
from sightline.state import State
from tests.conftest import VOCABULARY, random_batch, small_model
from tests.test_decoders import DECODERS, make

RECURRENT = [name for name, (recipe, _) in DECODERS.items() if recipe != "transformer"]


def full_pass(model: EncoderDecoder, batch: Batch, sentence: int, history: list[int]) -> Tensor:
    """The last row of log-probabilities after a history of tokens, without any state."""
    source = batch.sources[0]
    assert isinstance(source, Tokens)
    ids = torch.tensor([[model.bos, *history]])
    memory = model.encode(Batch((Tokens(source.ids[[sentence]], source.mask[[sentence]]),)))
    return model.output.log_probs(model.decoder(memory, model.target_embedding(ids)).features)[0, -1]


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize("seed", [1, 2])
def test_hypotheses_that_change_places_and_leave_keep_their_history(name: str, seed: int) -> None:
    """A random search: every row's distribution is that of its own history, read from the beginning."""
    draw = random.Random(seed)
    model, batch = make(name), random_batch([5, 9, 2], seed=seed)
    sentences, histories = [0, 1, 2], [[], [], []]
    state, width, tokens = model.start(batch), 1, torch.full((3,), model.bos)
    with torch.no_grad():
        for number in range(7):
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


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("lengths", [[6, 6, 6], [6, 3, 9]], ids=["no padding", "padding"])
def test_a_search_without_padding_needs_no_mask(beam: int, lengths: list[int]) -> None:
    model, batch = small_model("transformer"), random_batch(lengths)
    assert ("mask" in model.start(batch).shared) == (len(set(lengths)) > 1)
    together = search(model, batch, SearchOptions(beam=beam, max_length=8))
    source = batch.sources[0]
    assert isinstance(source, Tokens)
    for row, length in enumerate(lengths):
        alone = Batch((Tokens(source.ids[[row], :length], source.mask[[row], :length]),))
        (found,) = search(model, alone, SearchOptions(beam=beam, max_length=8))
        assert [one.tokens for one in found] == [one.tokens for one in together[row]]


@pytest.mark.parametrize("name", RECURRENT)
def test_what_is_looked_up_is_what_would_be_worked_out(name: str) -> None:
    model, batch = make(name), random_batch([5, 9, 2])
    before = search(model, batch, SearchOptions(beam=3, max_length=8))
    model.tabulate()
    assert model.table is not None
    assert model.table.size(0) == VOCABULARY
    after = search(model, batch, SearchOptions(beam=3, max_length=8))
    for (one,), (other,) in zip(before, after, strict=True):
        assert one.tokens == other.tokens
        assert one.token_log_probs == pytest.approx(other.token_log_probs, abs=1e-9)
    assert "table" not in model.state_dict()


def test_where_positions_count_nothing_is_looked_up() -> None:
    model = small_model("transformer")
    model.tabulate()
    assert model.table is None


def test_log_probs_are_the_same_with_and_without_gradients() -> None:
    model = small_model("transformer")
    features = torch.randn(3, 12, dtype=torch.double)
    with_gradients = model.output.log_probs(features)
    assert with_gradients.requires_grad
    with torch.no_grad():
        assert torch.equal(model.output.log_probs(features), with_gradients)


def test_items_side_by_side_come_out_in_their_order() -> None:
    both_there = threading.Barrier(2, timeout=60)

    def work(item: int) -> tuple[int, str, int]:
        if item < 2:
            both_there.wait()  # two threads are at work at once
        return item * item, threading.current_thread().name, torch.get_num_threads()

    torch.set_num_threads(3)
    found = list(side_by_side(work, range(9), 2))
    assert [square for square, _, _ in found] == [item * item for item in range(9)]
    assert len({name for _, name, _ in found}) == 2
    assert {count for _, _, count in found} == {1}
    assert torch.get_num_threads() == 3


@pytest.mark.parametrize(("items", "count"), [(1, 4), (5, 1), (0, 2)])
def test_one_at_a_time_needs_no_other_thread(items: int, count: int) -> None:
    found = list(side_by_side(lambda item: threading.current_thread(), range(items), count))
    assert found == [threading.current_thread()] * items


def test_a_mistake_ends_the_work() -> None:
    def work(item: int) -> int:
        if item == 2:
            raise ValueError("item 2")
        return item

    def some() -> Iterator[int]:
        yield from side_by_side(work, range(100), 2)

    results = some()
    assert [next(results), next(results)] == [0, 1]
    with pytest.raises(ValueError, match="item 2"):
        next(results)


@pytest.mark.parametrize("recipe", ["bahdanau", "transformer"])
@pytest.mark.parametrize("options", [{"beam": 1}, {"beam": 3}, {"strategy": "sample", "samples": 2, "seed": 5}])
def test_threads_change_nothing(
    recipe: str, options: dict[str, Any], trained: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = ["a b c", "d e", "f g h i", "j", "k l m", "b c d e f", "", "c c"] * 3
    translator = sightline.load(trained(recipe), engine="pytorch")
    engine = translator.engines.get("pytorch")
    assert isinstance(engine, PyTorchEngine)
    monkeypatch.setattr("sightline.engines.pytorch.LARGEST_STEP", 100)
    results = []
    for threads in (1, 3):
        engine.threads = threads
        seen: list[int] = []
        found = list(translator.stream(lines, token_scores=True, watch=seen.append, **options))
        assert sum(seen) == len(lines)
        results.append([(one.text, one.score, one.token_log_probs) for one in found])
    assert results[0] == results[1]


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.integers(0, 2**32), st.integers(1, 5), st.floats(1e-3, 1e3))
def test_int8_is_near_the_product_and_knows_no_neighbours(seed: int, rows: int, size: float) -> None:
    """Each input is off by half a level of its row's largest at most, each weight by half a level of its output's."""
    generator = torch.Generator().manual_seed(seed)
    weight, bias = torch.randn(20, 16, generator=generator), torch.randn(20, generator=generator)
    values = torch.randn(rows, 16, generator=generator) * size
    product = Int8Product(weight, bias)
    found = product(values)
    largest_value, largest_weight = values.abs().amax(1)[:, None], weight.abs().amax(1)
    bound = 0.5 / 63 * largest_value * weight.abs().sum(1) + 0.5 / 127 * values.abs().sum(1)[:, None] * largest_weight
    bound = bound + 16 * (0.5 / 63) * (0.5 / 127) * largest_value * largest_weight
    assert ((found - F.linear(values, weight, bias)).abs() <= bound * 1.001 + 1e-5).all()
    assert torch.equal(product(values[:1]), found[:1])


def test_int8_of_nothing_is_the_bias() -> None:
    product = Int8Product(torch.zeros(3, 4), torch.tensor([1.0, 2.0, 3.0]))
    assert product(torch.ones(2, 4)).tolist() == [[1.0, 2.0, 3.0]] * 2
    assert Int8Product(torch.ones(3, 4), torch.ones(3))(torch.zeros(1, 4)).tolist() == [[1.0] * 3]


def test_the_largest_numbers_do_not_overflow() -> None:
    """Where sums of products of bytes have 16 bits, eight bits on both sides would be too many."""
    product = Int8Product(torch.ones(8, 64), torch.zeros(8))
    torch.testing.assert_close(product(torch.ones(3, 64)), torch.full((3, 8), 64.0))
    torch.testing.assert_close(product(-torch.ones(3, 64)), torch.full((3, 8), -64.0))


@pytest.mark.parametrize("recipe", ["seq2seq", "bahdanau", "luong", "transformer"])
def test_int8_translates_a_toy_as_well(recipe: str, trained: Any) -> None:
    plain = sightline.load(trained(recipe), engine="pytorch")
    quick = sightline.load(trained(recipe), engine="pytorch", compute="int8")
    lines = ["a b c", "d e", "f g h", "j", "k l m", "b c d e"]
    expected = [plain.translate(line, beam=2, align=False) for line in lines]
    together = quick.translate(lines, beam=2, align=False)
    same = sum(one.text == other.text for one, other in zip(expected, together, strict=True))
    assert same >= len(lines) - 1
    for line, one in zip(lines, together, strict=True):
        assert quick.translate(line, beam=2, align=False).text == one.text


def test_int8_needs_a_cpu() -> None:
    with pytest.raises(SightlineError, match="int8 needs a CPU"):
        Int8Product(torch.empty(3, 4, device="meta"), torch.empty(3, device="meta"))


def test_tables_are_made_where_they_pay(trained: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    translator = sightline.load(trained("bahdanau"), engine="pytorch")
    engine = translator.engines.get("pytorch")
    assert isinstance(engine, PyTorchEngine)
    translator.translate("a b", beam=1)
    assert engine.model.table is None
    monkeypatch.setattr("sightline.engines.pytorch.LARGEST_TABLE", 10)
    translator.translate(["a b c d"] * 20, beam=5)
    assert engine.model.table is None
    monkeypatch.undo()
    before = translator.translate("a b", beam=1).text
    translator.translate(["a b c d"] * 20, beam=5)
    assert engine.model.table is not None
    assert translator.translate("a b", beam=1).text == before
