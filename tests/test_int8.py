"""The output layer in 8-bit integers: near the product, the same in any batch, and nearly the same translations."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

import sightline
from sightline.errors import SightlineError
from sightline.int8 import Int8Product
from tests.commands import RECIPES, Command


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.integers(0, 2**32), st.integers(1, 5), st.floats(1e-3, 1e3))
def test_it_is_near_the_product_and_knows_no_neighbours(seed: int, rows: int, size: float) -> None:
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


def test_of_nothing_it_is_the_bias() -> None:
    product = Int8Product(torch.zeros(3, 4), torch.tensor([1.0, 2.0, 3.0]))
    assert product(torch.ones(2, 4)).tolist() == [[1.0, 2.0, 3.0]] * 2
    assert Int8Product(torch.ones(3, 4), torch.ones(3))(torch.zeros(1, 4)).tolist() == [[1.0] * 3]


def test_the_largest_numbers_do_not_overflow() -> None:
    """Where sums of products of bytes have 16 bits, eight bits on both sides would be too many."""
    product = Int8Product(torch.ones(8, 64), torch.zeros(8))
    torch.testing.assert_close(product(torch.ones(3, 64)), torch.full((3, 8), 64.0))
    torch.testing.assert_close(product(-torch.ones(3, 64)), torch.full((3, 8), -64.0))


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_toy_is_translated_as_well(recipe: str, trained: Any) -> None:
    plain = sightline.load(trained(recipe), engine="pytorch")
    quick = sightline.load(trained(recipe), engine="pytorch", compute="int8")
    lines = ["a b c", "d e", "f g h", "b", "c d e", "b c d e"]
    pairs = [(line, line.upper()) for line in lines]
    for one, other in zip(plain.force(pairs), quick.force(pairs), strict=True):
        assert other.token_log_probs == pytest.approx(one.token_log_probs, abs=0.15)
        assert other.token_log_probs != one.token_log_probs
    together = quick.translate(lines, beam=2, align=False)
    expected = plain.translate(lines, beam=2, align=False)
    assert sum(one.text == other.text for one, other in zip(expected, together, strict=True)) >= len(lines) - 1
    for line, one in zip(lines, together, strict=True):
        again = quick.translate(line, beam=2, align=False)
        assert again.text == one.text
        assert again.token_log_probs == pytest.approx(one.token_log_probs, abs=1e-4)


def test_nobody_has_it_without_asking(trained: Any, command: Command) -> None:
    for options in ({}, {"compute": "float32"}):
        model = sightline.load(trained("bahdanau"), **options).engines.inside().model
        assert model.output.fast is None
    assert sightline.load(trained("bahdanau"), compute="int8").engines.inside().model.output.fast is not None
    done = command("translate", trained("bahdanau"), "--compute", "int8", stdin=b"a b\n")
    assert (done.code, done.out) == (0, "A B\n")


def test_it_needs_a_cpu() -> None:
    with pytest.raises(SightlineError, match="int8 needs a CPU"):
        Int8Product(torch.empty(3, 4, device="meta"), torch.empty(3, device="meta"))
