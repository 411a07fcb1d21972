"""Hashed attention: what it lets a position see, and that the chunks come to the same."""

from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sightline.attention.capture import capture
from sightline.attention.core import attention_weights
from sightline.attention.lsh import LshAttention, Settings, buckets_for, hashes, sort, unit, visible
from sightline.randomness import drawing_from
from tests.oracles import check_gradients
from tests.twins import shake

D, H = 12, 3


def make(chosen: Settings, seed: int = 0) -> LshAttention:
    module = LshAttention(D, H, chosen, seed=seed)
    shake(module)
    return module.double().eval()


def some(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def full(module: LshAttention, states: Tensor, causal: bool = False) -> Tensor:
    """Every position sees every other; itself only when it is alone."""
    vectors, values = module.project(states)
    length = states.size(1)
    seen = ~torch.eye(length, dtype=torch.bool)
    seen = seen.tril() if causal else seen
    seen = seen | (torch.eye(length, dtype=torch.bool) & ~seen.any(-1, keepdim=True))
    return module.join(attention_weights(vectors, unit(vectors), seen) @ values)


@pytest.mark.parametrize(("causal", "rounds", "length"), list(product([False, True], [1, 3], [1, 2, 9])))
def test_one_bucket_and_one_chunk_are_full_attention(causal: bool, rounds: int, length: int) -> None:
    module, states = make(Settings(rounds, chunk=16, buckets=1)), some(2, length, D)
    torch.testing.assert_close(module(states, causal=causal), full(module, states, causal))


def test_a_short_sentence_has_full_attention_by_itself() -> None:
    module, states = make(Settings(rounds=2, chunk=16)), some(2, 16, D)
    torch.testing.assert_close(module(states), full(module, states))


def visible_by_hand(buckets: list[list[int]], chunk: int, same: bool, causal: bool) -> list[set[int]]:
    """What each position sees, by sorting lists: `buckets` of each round."""
    length = len(buckets[0])
    seen: list[set[int]] = [set() for _ in range(length)]
    for numbers in buckets:
        order = sorted(range(length), key=lambda position: (numbers[position], position))
        for place, position in enumerate(order):
            start = max(0, place // chunk - 1) * chunk
            for other in order[start : (place // chunk + 1) * chunk]:
                allowed = (not same or numbers[other] == numbers[position]) and (not causal or other < position)
                if allowed and other != position:
                    seen[position].add(other)
    return [others or {position} for position, others in enumerate(seen)]


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 14).flatmap(
        lambda length: st.lists(st.lists(st.integers(0, 3), min_size=length, max_size=length), min_size=1, max_size=3)
    ),
    st.integers(1, 6),
    st.booleans(),
    st.booleans(),
)
def test_what_is_visible_by_hand(buckets: list[list[int]], chunk: int, same: bool, causal: bool) -> None:
    order = sort(torch.tensor(buckets)[None, None], chunk)
    rows = visible(order, same, causal=causal)[0, 0]
    assert [set(row.nonzero().flatten().tolist()) for row in rows] == visible_by_hand(buckets, chunk, same, causal)


@pytest.mark.parametrize(
    ("causal", "same", "rounds", "length"), list(product([False, True], [False, True], [1, 3], [1, 7, 16, 23]))
)
def test_chunks_and_rounds_come_to_attention_under_one_mask(causal: bool, same: bool, rounds: int, length: int) -> None:
    """Also that what is seen in several rounds counts once, and that the weights shown are those that were used."""
    module, states = make(Settings(rounds, 4, 8, same)), some(2, length, D)
    with capture(module) as maps:
        found = module(states, causal=causal)
    vectors, values = module.project(states)
    seen = visible(sort(module.buckets(vectors, None), 4), same, causal=causal)
    weights = attention_weights(vectors, unit(vectors), seen)
    assert torch.equal(maps[""], weights)
    torch.testing.assert_close(found, module.join(weights @ values))
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, H, length, dtype=torch.float64))


@pytest.mark.parametrize("same", [False, True])
def test_a_step_is_a_pass_over_the_text_so_far(same: bool) -> None:
    """Not the pass over the whole text: where its chunks end depends on what comes later (see `test_decoders.py`)."""
    module, states = make(Settings(2, 3, 4, same)), some(2, 11, D)
    past = module.begin(2)
    with capture(module) as maps:
        for length in range(1, 12):
            found, past = module.advance(states[:, length - 1 : length], past)
            assert maps._taps[""].recorded.pop().shape == (2, H, 1, length)
            torch.testing.assert_close(found, module(states[:, :length], causal=True)[:, -1:])
            maps._taps[""].recorded.clear()


@pytest.mark.parametrize("buckets", [None, 4])
def test_padding_changes_nothing(buckets: int | None) -> None:
    """No exemption is needed: padding is sorted last, and buckets go by a sentence's own length."""
    module, lengths = make(Settings(2, 4, buckets)), [19, 9, 3]
    states = some(3, 19, D)
    mask = (torch.arange(19) < torch.tensor(lengths)[:, None])[:, None, None]
    together = module(states, mask=mask)
    assert together.isfinite().all()
    for row, length in enumerate(lengths):
        torch.testing.assert_close(together[row, :length], module(states[row : row + 1, :length])[0])


def test_the_past_is_told_by_original_positions() -> None:
    module, states = make(Settings(2, 4, 4)), some(1, 20, D)
    with capture(module) as maps:
        module(states, causal=True)
    assert not maps[""].triu(1).any()


def test_numbers_of_buckets() -> None:
    found = buckets_for(torch.tensor([1, 64, 65, 128, 129, 16_384]), 64)
    assert found.tolist() == [1, 1, 4, 4, 8, 512]


@pytest.mark.parametrize("count", [1, 2, 16, 64, 128, 512])
def test_hashes_are_in_range_and_replayable(count: int) -> None:
    vectors = some(2, 2, 300, 8)
    found = hashes(vectors, count, 3, seed=5)
    assert found.shape == (2, 2, 3, 300)
    assert found.min() >= 0
    assert found.max() < count
    assert torch.equal(found, hashes(7 * vectors, count, 3, seed=5))  # the direction counts alone
    if count > 1:
        assert not torch.equal(found, hashes(vectors, count, 3, seed=6))
        assert len(found.unique()) > count // 4
        opposite = hashes(-vectors, count, 3, seed=5)
        assert not (opposite == found).any()


def test_near_vectors_meet_more_often_than_far_ones() -> None:
    generator = torch.Generator().manual_seed(0)
    vectors = torch.randn(1, 1, 200, 16, generator=generator)
    near = vectors + 0.1 * torch.randn(1, 1, 200, 16, generator=generator)
    buckets = [hashes(one, 16, 4, seed=1) for one in (vectors, near, vectors.flip(2))]
    assert (buckets[0] == buckets[1]).float().mean() > 0.7
    assert (buckets[0] == buckets[2]).float().mean() < 0.2


def test_new_hashes_while_learning_the_same_ones_after() -> None:
    module, states = make(Settings(1, 4, 8)), some(1, 32, D)
    assert torch.equal(module(states), module(states))
    module.train()

    def drawn(seed: int) -> Tensor:
        with drawing_from(torch.Generator().manual_seed(seed)):
            return module(states)

    assert torch.equal(drawn(1), drawn(1))
    assert not torch.allclose(drawn(1), drawn(2))
    other = make(Settings(1, 4, 8), seed=1)
    other.load_state_dict(module.state_dict())
    assert not torch.allclose(other(states), module.eval()(states))  # each layer hashes its own way


@pytest.mark.parametrize("causal", [False, True])
def test_gradients(causal: bool) -> None:
    module, inputs = make(Settings(2, 2, 4)), some(1, 6, D)
    check_gradients(lambda states: module(states, causal=causal), inputs)


def test_a_causal_pass_needs_a_number_of_buckets() -> None:
    with pytest.raises(ValueError, match="number of buckets"):
        make(Settings())(some(1, 4, D), causal=True)
