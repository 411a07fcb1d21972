"""Positions: sinusoids by their closed forms, learned ones by what they refuse, and how both are added."""

import math

import numpy as np
import pytest
import torch

from sightline.errors import SightlineError
from sightline.layers import Embedding
from sightline.positions import LearnedPositions, SinusoidalPositions, sinusoids


def test_by_the_formula() -> None:
    """Sine and cosine of one frequency are neighbours, and the first frequency is 1."""
    table = sinusoids(50, 8)
    for position in (0, 1, 7, 49):
        for i in range(4):
            angle = position / 10000 ** (2 * i / 8)
            assert table[position, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-7)
            assert table[position, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-7)


@pytest.mark.parametrize("shift", [1, 5, 100])
def test_a_shift_is_a_rotation(shift: int) -> None:
    """`PE[p + k] = R_k PE[p]`: each pair of columns turns by k times its frequency, wherever p is."""
    width, table = 16, sinusoids(400, 16).double().numpy()
    rotation = np.zeros((width, width))
    for i in range(0, width, 2):
        angle = shift / 10000 ** (i / width)
        cosine, sine = np.cos(angle), np.sin(angle)
        rotation[i : i + 2, i : i + 2] = [[cosine, sine], [-sine, cosine]]
    # The table is rounded to float32, which leaves 6e-8 in each of the two numbers that are mixed.
    np.testing.assert_allclose(table[: 400 - shift] @ rotation.T, table[shift:], atol=2e-7)


def test_the_squared_norm_is_half_the_width() -> None:
    norms = sinusoids(300, 32).double().square().sum(-1)
    torch.testing.assert_close(norms, torch.full((300,), 16.0, dtype=torch.float64), atol=1e-5, rtol=0)


def test_no_two_positions_are_alike() -> None:
    """Frequencies are geometric: the joint code does not start again, also not past a usual sentence."""
    table = sinusoids(2000, 32)
    distances = torch.cdist(table, table) + 10 * torch.eye(2000)
    assert distances.min().item() > 0.1


def test_an_odd_width_ends_with_a_sine() -> None:
    angle = torch.arange(9, dtype=torch.float64) / 10000 ** (4 / 5)
    torch.testing.assert_close(sinusoids(9, 5)[:, 4], angle.sin().float())


def test_sinusoids_grow_with_the_sequence_and_stay_the_same() -> None:
    positions = SinusoidalPositions(6)
    before = positions(10).clone()
    torch.testing.assert_close(positions(700, offset=300), sinusoids(1000, 6)[300:])
    assert torch.equal(positions(10), before)
    assert positions(3, offset=4).shape == (3, 6)
    assert torch.equal(positions(3, offset=4), positions(7)[4:])


def test_sinusoids_are_neither_learned_nor_saved() -> None:
    positions = SinusoidalPositions(6)
    assert not list(positions.parameters())
    assert not positions.state_dict()


def test_learned_positions_have_a_limit_and_say_so() -> None:
    positions = LearnedPositions(6, maximum=8)
    assert positions(8).shape == (8, 6)
    assert positions(3, offset=5).shape == (3, 6)
    for length, offset in ((9, 0), (1, 8), (4, 5)):
        with pytest.raises(SightlineError, match=f"{length + offset} tokens .* 8 learned positions.*max_positions"):
            positions(length, offset)


def test_positions_that_were_not_met_learn_nothing() -> None:
    positions = LearnedPositions(6, maximum=8)
    positions(3, offset=2).square().sum().backward()
    gradient = positions.table.grad
    assert gradient is not None
    assert gradient[2:5].abs().sum(-1).min() > 0
    assert not gradient[:2].any()
    assert not gradient[5:].any()


@pytest.mark.parametrize("positions", [SinusoidalPositions(4), None])
def test_the_embedding_is_scaled_and_the_position_added(positions: SinusoidalPositions | None) -> None:
    """`√d · E[x] + PE`: added, not concatenated, and only the embedding scaled."""
    embedding = Embedding(9, 4, 0, positions, dropout=0.0)
    ids = torch.tensor([[3, 5, 3], [7, 8, 1]])
    expected = 2.0 * embedding.weight[ids]
    if positions is not None:
        expected = expected + sinusoids(6, 4)[3:]
    torch.testing.assert_close(embedding(ids, offset=3), expected)
