"""Masks: True = may attend, the last query belongs to the last key, and an empty row stays harmless."""

import pytest
import torch
from torch.nn import functional as F

from sightline.attention.core import attend, attention_weights
from sightline.attention.masks import causal_mask, padding_mask, window_mask


def rows(mask: torch.Tensor) -> list[str]:
    """The last two dimensions as strings of 1 and 0."""
    return ["".join(str(int(may)) for may in row) for row in mask.reshape(-1, mask.size(-1))]


def test_padding_mask_is_for_keys() -> None:
    real = torch.tensor([[True, True, False], [True, False, False]])
    mask = padding_mask(real)
    assert mask.shape == (2, 1, 1, 3)
    assert mask.dtype == torch.bool
    assert rows(mask) == ["110", "100"]


def test_causal_mask_of_a_square() -> None:
    assert rows(causal_mask(4, 4)) == ["1000", "1100", "1110", "1111"]


def test_causal_mask_of_a_rectangle_is_aligned_at_the_end() -> None:
    assert rows(causal_mask(2, 4)) == ["1110", "1111"]
    assert rows(causal_mask(1, 4)) == ["1111"]


@pytest.mark.parametrize("queries", [1, 2, 5])
def test_a_rectangle_is_the_end_of_the_square(queries: int) -> None:
    assert torch.equal(causal_mask(queries, 5), causal_mask(5, 5)[5 - queries :])


def test_queries_before_the_first_key_see_nothing() -> None:
    assert rows(causal_mask(3, 2)) == ["00", "10", "11"]


def test_torchs_own_flag_is_aligned_at_the_beginning() -> None:
    """Why the fast path hands over a mask for rectangles: with the flag a cached step would see the first key only."""
    values = torch.eye(4)[None, None]
    seen = F.scaled_dot_product_attention(torch.zeros(1, 1, 2, 4), torch.zeros(1, 1, 4, 4), values, is_causal=True)
    assert rows(seen > 0) == ["1000", "1100"]
    ours = attend(torch.zeros(1, 1, 2, 4), torch.zeros(1, 1, 4, 4), values, causal=True)
    assert rows(ours > 0) == ["1110", "1111"]


def test_window_mask() -> None:
    assert rows(window_mask(torch.tensor([0, 2, 4]), 5, 1)) == ["11000", "01110", "00011"]


def test_window_mask_around_places_between_positions() -> None:
    assert rows(window_mask(torch.tensor([1.5, 0.2, 3.0]), 5, 1)) == ["01100", "11000", "00111"]


def test_window_mask_keeps_leading_dimensions() -> None:
    assert window_mask(torch.zeros(2, 3), 5, 1).shape == (2, 3, 5)


def test_masks_combine_with_and() -> None:
    real = torch.tensor([[True, True, True, False], [True, False, False, False]])
    combined = padding_mask(real) & causal_mask(4, 4)
    assert combined.shape == (2, 1, 4, 4)
    assert rows(combined) == ["1000", "1100", "1110", "1110", "1000", "1000", "1000", "1000"]


def test_left_padding_under_a_causal_mask_gives_zeros() -> None:
    """The first queries see only padding: neither NaN nor an average over it."""
    mask = padding_mask(torch.tensor([[False, False, True, True]]))
    states = torch.randn(1, 1, 4, 8)
    weights = attention_weights(states, states, mask, causal=True)
    assert torch.equal(weights[0, 0, :2], torch.zeros(2, 4))
    torch.testing.assert_close(weights[0, 0, 2:].sum(-1), torch.ones(2))
    assert torch.equal(attend(states, states, states, mask, causal=True)[0, 0, :2], torch.zeros(2, 8))
