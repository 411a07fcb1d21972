"""From pairs to batches: encoding, the order of an epoch, and batches within a budget."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sightline.batch import Tokens, pad
from sightline.corpora import Mix
from sightline.data import (
    Account,
    EncodedPairs,
    Origins,
    Pair,
    Side,
    _cut,
    batches,
    encode_pairs,
    ordered_batches,
)
from sightline.errors import SightlineError
from sightline.filters import Verdict
from sightline.readers import TextFiles
from sightline.text import EOS, PAD, CharacterTokenizer, WordTokenizer


def encoded(lengths: list[tuple[int, int]]) -> EncodedPairs:
    """Examples of these source and target lengths; example i is spelled with the id 10 + i."""
    sides = []
    for column in (0, 1):
        rows = [[10 + number] * (pair[column] - 1) + [EOS] for number, pair in enumerate(lengths)]
        offsets = np.cumsum([0, *(len(row) for row in rows)])
        sides.append(Side(np.array([id for row in rows for id in row], dtype=np.int32), offsets.astype(np.int64)))
    return EncodedPairs(sides[0], sides[1], np.arange(len(lengths)))


class TestEncoding:
    source = WordTokenizer(["a", "b", "c"], "nfc", False)
    target = CharacterTokenizer([" ", "x", "y"], False, "nfc", False)

    def test_ids_end_with_eos(self) -> None:
        pairs = [Pair("a b", "x y"), Pair(" ", "x"), Pair("c", "yx"), Pair("a b c a", "x"), Pair("a", "")]
        data, account = encode_pairs(pairs, self.source, self.target, max_length=3)
        assert account == Account(2, {Verdict.EMPTY: 2, Verdict.TOO_LONG: 1})
        assert len(data) == 2
        assert data.source.ids.dtype == np.int32
        assert data.source.ids.tolist() == [4, 5, EOS, 6, EOS]
        assert data.target.ids.tolist() == [5, 4, 6, EOS, 6, 5, EOS]
        assert data.source.lengths.tolist() == [3, 2]
        assert data.lengths.tolist() == [4, 3]
        assert data.numbers.tolist() == [0, 2]

    def test_no_limit(self) -> None:
        data, account = encode_pairs([Pair("a " * 1000, "x")], self.source, self.target)
        assert account == Account(1)
        assert data.lengths.tolist() == [1001]

    def test_nothing_left(self) -> None:
        data, account = encode_pairs([Pair("", "")], self.source, self.target, 5)
        assert len(data) == 0
        assert account == Account(0, {Verdict.EMPTY: 1})
        assert batches(data, 100, seed=1, epoch=0) == []
        assert ordered_batches(data.lengths, 100) == []

    def test_batch(self) -> None:
        pairs = [Pair("a b", "x y"), Pair("", ""), Pair("c", "yx")]
        data, _ = encode_pairs(pairs, self.source, self.target)
        batch = data.batch(np.array([1, 0]))
        source = batch.sources[0]
        assert isinstance(source, Tokens)
        assert batch.targets is not None
        assert source.ids.tolist() == [[6, EOS, PAD], [4, 5, EOS]]
        assert source.mask.tolist() == [[True, True, False], [True, True, True]]
        assert batch.targets.ids.tolist() == [[6, 5, EOS, PAD], [5, 4, 6, EOS]]
        assert batch.indices == (1, 0)
        assert [data.where(index) for index in batch.indices] == ["pair 3", "pair 1"]

    @settings(deadline=None, derandomize=True)
    @given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=30))
    def test_padding_is_the_plain_one(self, lengths: list[tuple[int, int]]) -> None:
        data = encoded(lengths)
        indices = np.array([number for number in range(len(lengths)) if number % 3 != 1][::-1])
        for side, column in ((data.source, 0), (data.target, 1)):
            rows = [[10 + int(number)] * (lengths[number][column] - 1) + [EOS] for number in indices]
            expected = pad(rows, PAD)
            ids, mask = side.padded(indices)
            assert torch.equal(torch.from_numpy(ids), expected.ids)
            assert torch.equal(torch.from_numpy(mask), expected.mask)

    def test_where_an_example_was_read(self) -> None:
        files = (TextFiles((Path("a.tsv"),)), TextFiles((Path("b.parquet"),)), TextFiles((Path("c.en"), Path("c.de"))))
        data = encoded([(2, 2)] * 5)
        data = EncodedPairs(data.source, data.target, np.array([3, 9, 2, 1, 7]), Origins(files, (0, 2, 2, 5)))
        assert [data.where(index) for index in range(3)] == ["a.tsv, line 3", "a.tsv, line 9", "c.en, line 2"]
        assert Origins(files, (0, 1, 2, 3)).where(1, 8) == "b.parquet, row 8"


def cut_one_by_one(order: list[int], lengths: list[int], budget: int) -> list[list[int]]:
    """The plain rule: a row that would take the batch over the budget begins the next."""
    parts: list[list[int]] = []
    for index in order:
        longest = max([lengths[index], *(lengths[other] for other in parts[-1])]) if parts else 0
        if not parts or (len(parts[-1]) + 1) * longest > budget:
            parts.append([])
        parts[-1].append(index)
    return parts


LENGTHS = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), max_size=80)


class TestBatches:
    @settings(deadline=None, derandomize=True)
    @given(LENGTHS, st.integers(1, 200), st.integers(-5, 5), st.integers(0, 3))
    def test_every_example_once_within_the_budget(
        self, lengths: list[tuple[int, int]], budget: int, seed: int, epoch: int
    ) -> None:
        data = encoded(lengths)
        parts = batches(data, budget, seed, epoch)
        assert sorted(int(index) for part in parts for index in part) == list(range(len(lengths)))
        for part in parts:
            assert len(part) == 1 or len(part) * data.lengths[part].max() <= budget
        again = batches(data, budget, seed, epoch)
        assert [part.tolist() for part in again] == [part.tolist() for part in parts]

    @settings(deadline=None, derandomize=True)
    @given(LENGTHS, st.integers(1, 200))
    def test_ordered(self, lengths: list[tuple[int, int]], budget: int) -> None:
        longest = encoded(lengths).lengths
        parts = ordered_batches(longest, budget)
        flat = [int(index) for part in parts for index in part]
        assert flat == sorted(range(len(lengths)), key=lambda index: longest[index])
        for part in parts:
            assert len(part) == 1 or len(part) * longest[part].max() <= budget

    def test_epochs_and_seeds_differ(self) -> None:
        data = encoded([(3 + number % 5, 4 + number % 3) for number in range(500)])
        orders = [
            [part.tolist() for part in batches(data, 100, seed, epoch)] for seed, epoch in [(1, 0), (1, 1), (2, 0)]
        ]
        assert orders[0] != orders[1]
        assert orders[0] != orders[2]
        # Not only the batches' order: examples meet others.
        assert sorted(map(sorted, orders[0])) != sorted(map(sorted, orders[1]))

    def test_batches_are_full_and_of_one_length(self) -> None:
        data = encoded([(5, 5)] * 100 + [(20, 20)] * 100)
        parts = batches(data, 100, seed=1, epoch=0)
        assert sorted(len(part) for part in parts) == [5] * 20 + [20] * 5
        assert all(len(set(data.lengths[part].tolist())) == 1 for part in parts)

    def test_a_long_example_stands_alone(self) -> None:
        parts = ordered_batches(np.array([2, 500, 3]), 10)
        assert [part.tolist() for part in parts] == [[0, 2], [1]]

    @settings(deadline=None, derandomize=True)
    @given(st.lists(st.integers(1, 30), min_size=1, max_size=120), st.integers(1, 150), st.randoms())
    def test_cuts_are_those_of_the_plain_rule(self, lengths: list[int], budget: int, random: Random) -> None:
        order = random.sample(range(len(lengths)), len(lengths))
        found = _cut(np.array(order), np.array(lengths, dtype=np.int32), budget)
        assert [part.tolist() for part in found] == cut_one_by_one(order, lengths, budget)

    def test_the_order_of_an_epoch_is_a_full_permutation(self) -> None:
        """Of equal lengths nothing is sorted: what comes out is numpy's permutation, cut into batches."""
        data = encoded([(3, 3)] * 5000)
        generator = np.random.default_rng([7, 2])
        order = generator.permutation(5000)
        parts = [order[start : start + 10] for start in range(0, 5000, 10)]
        expected = [parts[place].tolist() for place in generator.permutation(500)]
        assert [part.tolist() for part in batches(data, 30, seed=7, epoch=2)] == expected

    def test_a_mix_of_corpora(self) -> None:
        data = encoded([(3 + number % 4, 4) for number in range(100)])
        mix = Mix((0, 90, 100), (45, 25))
        parts = batches(data, 40, 1, 0, mix)
        counts = np.bincount(np.concatenate(parts), minlength=100)
        assert counts[:90].sum() == 45
        assert set(counts[:90].tolist()) == {0, 1}
        assert counts[90:].sum() == 25
        assert set(counts[90:].tolist()) == {2, 3}
        assert all(len(part) * data.lengths[part].max() <= 40 for part in parts)
        again, other = (np.concatenate(batches(data, 40, 1, epoch, mix)).tolist() for epoch in (0, 1))
        assert np.concatenate(parts).tolist() == again
        assert sorted(again) != sorted(other)  # the part of a corpus is drawn anew

    def test_budget_of_nothing(self) -> None:
        with pytest.raises(SightlineError, match="batch_tokens = 0"):
            ordered_batches(np.array([2]), 0)


def test_reading_needs_no_torch() -> None:
    import subprocess
    import sys

    modules = ", ".join(f"sightline.{name}" for name in ("data", "encoding", "survey", "text", "cache"))
    code = f"import sys, {modules}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
