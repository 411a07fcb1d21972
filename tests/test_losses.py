"""Losses over attention's weights: values worked out by hand, identities and gradients."""

import math

import pytest
import torch
from torch import Tensor

from sightline.batch import Memory
from sightline.losses import GlobalFertility, OneLookEach, RepeatedLooks, received, source_words
from tests.oracles import check_gradients


def memory(mask: Tensor, width: int = 3) -> Memory:
    return Memory(torch.randn(*mask.shape, width, dtype=torch.float64), mask)


def every(rows: int) -> Tensor:
    return torch.ones(1, rows, dtype=torch.bool)


def looks(*places: int, size: int = 3) -> Tensor:
    """One row for each look, all at one place."""
    return torch.nn.functional.one_hot(torch.tensor([places]), size).double()


@pytest.mark.parametrize(("places", "expected"), [((0, 0), 1.0), ((0, 1), 0.0), ((0, 1, 0, 1), 2.0), ((2,), 0.0)])
def test_repeated_looks_by_hand(places: tuple[int, ...], expected: float) -> None:
    total, count = RepeatedLooks()(looks(*places), every(len(places)), memory(every(3)))
    assert (total.item(), count.item()) == (expected, len(places))


def test_repeated_looks_against_a_loop() -> None:
    weights, real = (
        torch.rand(2, 5, 4, dtype=torch.float64).softmax(-1),
        torch.tensor([[1] * 5, [1, 1, 1, 0, 0]]).bool(),
    )
    total, count = RepeatedLooks()(weights, real, memory(torch.ones(2, 4, dtype=torch.bool)))
    expected = 0.0
    for b in range(2):
        so_far = [0.0] * 4
        for t in range(int(real[b].sum())):
            expected += sum(min(weights[b, t, s].item(), so_far[s]) for s in range(4))
            so_far = [so_far[s] + weights[b, t, s].item() for s in range(4)]
    assert total.item() == pytest.approx(expected)
    assert count.item() == 8


def test_one_look_each_by_hand() -> None:
    # Three words and the end symbol: looks 2, 0, 1, so (1-2)² + (1-0)² + (1-1)², and the end symbol's are nobody's due.
    total, count = OneLookEach()(looks(0, 0, 2, 3, size=4), every(4), memory(every(4)))
    assert (total.item(), count.item()) == (2.0, 3)


def test_one_look_each_when_all_look_everywhere() -> None:
    """Of L places, the end symbol's among them, the closed form (L - 1) (1 - T / L)²."""
    size, rows = 5, 7
    weights = torch.full((1, rows, size), 1 / size, dtype=torch.float64)
    total, count = OneLookEach()(weights, every(rows), memory(every(size)))
    assert total.item() == pytest.approx((size - 1) * (1 - rows / size) ** 2)
    assert count.item() == size - 1


def test_all_looks_together_are_the_targets() -> None:
    weights = torch.rand(2, 6, 4, dtype=torch.float64).softmax(-1)
    real = torch.tensor([[True] * 6, [True] * 4 + [False] * 2])
    torch.testing.assert_close(received(weights, real).sum(-1), real.sum(-1).double())


def test_global_fertility_is_a_gaussian() -> None:
    penalty, mask = GlobalFertility(3).double(), torch.tensor([[True] * 4, [True, True, True, False]])
    weights, real = (
        torch.rand(2, 5, 4, dtype=torch.float64).softmax(-1),
        torch.tensor([[True] * 5, [True] * 3 + [False] * 2]),
    )
    given = memory(mask)
    total, count = penalty(weights * mask[:, None], real, given)
    mean, variance = penalty.expected(given.states)
    looked, expected = received(weights * mask[:, None], real), 0.0
    for b, words in enumerate([3, 2]):
        for s in range(words):
            normal = torch.distributions.Normal(mean[b, s], variance[b, s].sqrt())
            expected -= normal.log_prob(looked[b, s]).item()
    assert total.item() == pytest.approx(expected)
    assert count.item() == 5
    # However sure it is, the likelihood has a bound.
    assert total.item() > 5 * 0.5 * math.log(2 * math.pi * GlobalFertility.FLOOR)


def test_source_words_leave_out_padding_and_the_end_symbol() -> None:
    mask = torch.tensor([[True, True, True], [True, True, False], [True, False, False]])
    assert source_words(mask).tolist() == [[True, True, False], [True, False, False], [False, False, False]]


@pytest.mark.parametrize("penalty", [RepeatedLooks(), OneLookEach(), GlobalFertility(3).double()])
def test_padding_plays_no_part_and_gradients_are_right(penalty: torch.nn.Module) -> None:
    weights, given = torch.rand(1, 3, 4, dtype=torch.float64).softmax(-1), memory(every(4))
    alone = penalty(weights, every(3), given)
    padded = torch.nn.functional.pad(weights, (0, 2, 0, 1), value=0.3)
    padded[:, :3, 4:] = 0
    states = torch.cat([given.states, torch.randn(1, 2, 3, dtype=torch.float64)], 1)
    mask = torch.tensor([[True] * 4 + [False] * 2])
    real = torch.tensor([[True, True, True, False]])
    for one, other in zip(alone, penalty(padded, real, Memory(states, mask)), strict=True):
        torch.testing.assert_close(one, other)
    check_gradients(lambda weights: penalty(weights, every(3), given)[0], weights)
