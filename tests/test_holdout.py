"""Holding out: pairs that hang together, whatever the number of pairs, and the same choice as by the plain way."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from sightline.errors import SightlineError
from sightline.holdout import components, groups, hold_out, key, repeated
from sightline.readers import Pair

PAIRS = st.lists(st.builds(Pair, st.text("abcdefgh", min_size=2, max_size=2), st.text("abcdef", max_size=2)))


def keys(pairs: list[Pair]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """The keys of both sides."""
    source, target = (np.array([key(pair[side]) for pair in pairs], dtype=np.uint64) for side in (0, 1))
    return source, target


def chosen(pairs: list[Pair], count: int, seed: int) -> tuple[list[Pair], list[Pair]]:
    """(train, valid)."""
    held = hold_out(keys(pairs), count, seed)
    return [p for p, out in zip(pairs, held, strict=True) if not out], [
        p for p, out in zip(pairs, held, strict=True) if out
    ]


def plain_groups(pairs: list[Pair]) -> list[list[int]]:
    """Groups by sets of sentences, one pair after the other."""
    found: list[tuple[set[tuple[int, str]], list[int]]] = []
    for number, pair in enumerate(pairs):
        sentences, members = set(enumerate(pair)), [number]
        apart = []
        for other, numbers in found:
            if other & sentences:
                sentences, members = sentences | other, members + numbers
            else:
                apart.append((other, numbers))
        found = [*apart, (sentences, members)]
    return sorted(sorted(members) for _, members in found)


def test_groups() -> None:
    pairs = [Pair("a", "x"), Pair("b", "y"), Pair("a", "z"), Pair("c", "z"), Pair("x", "b")]
    assert groups(pairs) == [[0, 2, 3], [1], [4]]


@settings(deadline=None, derandomize=True)
@given(PAIRS)
def test_groups_are_the_plain_ones(pairs: list[Pair]) -> None:
    assert groups(pairs) == plain_groups(pairs)


@settings(deadline=None, derandomize=True)
@given(PAIRS, st.integers(0, 5))
def test_no_sentence_in_both_parts(pairs: list[Pair], seed: int) -> None:
    if len(pairs) < 4:
        return
    room = len(pairs) // 2
    try:
        train, valid = chosen(pairs, room, seed)
    except SightlineError:
        assert min(map(len, plain_groups(pairs))) > room
        return
    assert sorted(train + valid) == sorted(pairs)
    assert 0 < len(valid) <= room
    for side in (0, 1):
        assert not {pair[side] for pair in train} & {pair[side] for pair in valid}
    # The plain way: groups in random order, each taken if there is room.
    together, held = plain_groups(pairs), set[int]()
    random.Random(seed).shuffle(together)
    for group in together:
        if len(held) + len(group) <= room:
            held.update(group)
    assert valid == [pair for number, pair in enumerate(pairs) if number in held]


def test_seeds_differ_and_order_stays() -> None:
    pairs = [Pair(f"{number:03}", f"{number:03}") for number in range(100)]
    train, valid = chosen(pairs, 10, seed=1)
    assert len(valid) == 10
    assert (train, valid) == (sorted(train), sorted(valid))
    assert valid != chosen(pairs, 10, seed=2)[1]


@pytest.mark.parametrize("order", ["rising", "falling", "random"])
def test_a_long_chain_is_one_group(order: str) -> None:
    """Pair i shares its target with the next one's target or source in turn: a path of 100,000 links."""
    places = np.arange(100_000, dtype=np.uint64)
    if order == "falling":
        places = places[::-1].copy()
    elif order == "random":
        places = np.random.default_rng(0).permutation(places)
    assert not components((places + 1) // 2, places // 2).any()


def test_at_scale() -> None:
    """A million pairs, a tenth of them with repeated sentences."""
    generator = np.random.default_rng(1)
    source, target = (generator.integers(0, 4_000_000, 1_000_000).astype(np.uint64) for _ in range(2))
    held = hold_out([source, target], 5_000, seed=3)
    assert held.sum() == 5_000
    for side in (source, target):
        assert not np.isin(side[held], side[~held]).any()


def test_too_many() -> None:
    with pytest.raises(SightlineError, match="cannot hold out 2 of 2 pairs"):
        chosen([Pair("a", "b"), Pair("c", "d")], 2, seed=1)


def test_all_tied_together() -> None:
    with pytest.raises(SightlineError, match="give validation files"):
        chosen([Pair(str(number), "yes") for number in range(9)], 3, seed=1)


@settings(deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("abc"))))
def test_repeated(rows: list[tuple[str, str]]) -> None:
    again = repeated(*keys([Pair(*row) for row in rows]))
    assert again.tolist() == [row in rows[:number] for number, row in enumerate(rows)]


def test_keys_are_the_same_in_every_process() -> None:
    assert key("größer") == 0xAE3BE64C2ED70516
    assert key("") != key(" ")
    assert 0 <= key("\ud800") < 2**64
