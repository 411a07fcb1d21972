"""From files to batches: readers and their errors, holding out, encoding, and batches within a budget."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sightline.batch import Tokens, pad
from sightline.data import (
    Account,
    EncodedPairs,
    Pair,
    Side,
    batches,
    drop_empty,
    drop_too_long,
    encode_pairs,
    groups,
    hold_out,
    ordered_batches,
    read_pairs,
)
from sightline.errors import SightlineError
from sightline.text import EOS, PAD, CharacterTokenizer, WordTokenizer

PAIRS = [Pair("one", "eins"), Pair("two ", ""), Pair("drei\u2028", "größer")]
Write = Callable[[str, str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write_file(name: str, text: str) -> Path:
        path = tmp_path / name
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
        return path

    return write_file


def encoded(lengths: list[tuple[int, int]]) -> EncodedPairs:
    """Examples of these source and target lengths; example i is spelled with the id 10 + i."""
    sides = []
    for column in (0, 1):
        rows = [[10 + number] * (pair[column] - 1) + [EOS] for number, pair in enumerate(lengths)]
        offsets = np.cumsum([0, *(len(row) for row in rows)])
        sides.append(Side(np.array([id for row in rows for id in row], dtype=np.int32), offsets.astype(np.int64)))
    return EncodedPairs(sides[0], sides[1], np.arange(len(lengths)))


class TestReaders:
    @pytest.mark.parametrize("zipped", ["", ".gz"])
    @pytest.mark.parametrize("end", ["\n", "\r\n"])
    def test_parallel(self, write: Write, zipped: str, end: str) -> None:
        source = write(f"a.en{zipped}", end.join(pair.source for pair in PAIRS) + end)
        target = write(f"a.de{zipped}", end.join(pair.target for pair in PAIRS))
        assert read_pairs(source, target) == PAIRS

    @pytest.mark.parametrize("zipped", ["", ".gz"])
    def test_tab_separated(self, write: Write, zipped: str) -> None:
        path = write(f"a.tsv{zipped}", "".join(f"{pair.source}\t{pair.target}\n" for pair in PAIRS))
        assert read_pairs(pairs=path) == PAIRS

    @pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.JSONL", "a.jsonl.gz"])
    def test_json_lines(self, write: Write, name: str) -> None:
        path = write(name, "".join(json.dumps({**pair._asdict(), "note": 1}) + "\n" for pair in PAIRS))
        assert read_pairs(pairs=path) == PAIRS


class TestReaderErrors:
    def test_source_longer(self, write: Write) -> None:
        source, target = write("a.en", "x\n" * 100), write("b.de", "y\n" * 98)
        with pytest.raises(SightlineError) as caught:
            read_pairs(source, target)
        assert str(caught.value) == f"{source} has 100 lines, {target} 98: line 99 of {source} has no partner"

    def test_target_longer(self, write: Write) -> None:
        with pytest.raises(SightlineError, match=r"b\.de has 3 lines, .*a\.en 1: line 2 of .*b\.de has no partner"):
            read_pairs(write("a.en", "x\n"), write("b.de", "y\n" * 3))

    @pytest.mark.parametrize(
        ("line", "found"), [("one", "1 column$"), ("a\tb\tc", "3 columns$"), ("", "an empty line$")]
    )
    def test_columns(self, write: Write, line: str, found: str) -> None:
        with pytest.raises(SightlineError, match=rf"a\.tsv, line 2: expected two columns.* found {found}"):
            read_pairs(pairs=write("a.tsv", f"a\tb\n{line}\nc\td\n"))

    @pytest.mark.parametrize(
        ("line", "message"),
        [
            ("{", "not valid JSON"),
            ("", r"not valid JSON \(an empty line\)"),
            ("[" * 100_000, "not valid JSON"),
            ("[1]", "expected an object"),
            ('{"source": "a"}', "'target' is missing"),
            ('{"source": 3, "target": "b"}', "'source' must be a string"),
            ('{"source": "a", "target": "\\ud800"}', "'target' has half of a surrogate pair"),
        ],
    )
    def test_json(self, write: Write, line: str, message: str) -> None:
        good = '{"source": "a", "target": "b"}'
        with pytest.raises(SightlineError, match=rf"a\.jsonl, line 2: {message}"):
            read_pairs(pairs=write("a.jsonl", f"{good}\n{line}\n"))

    @pytest.mark.parametrize("name", ["a.csv", "a.txt.gz", "a", "a.gz"])
    def test_unknown_format(self, write: Write, name: str) -> None:
        with pytest.raises(SightlineError, match=r"must end in \.tsv .* or \.jsonl"):
            read_pairs(pairs=write(name, "a\tb\n"))

    def test_empty(self, write: Write) -> None:
        with pytest.raises(SightlineError, match=r"a\.tsv: the file is empty"):
            read_pairs(pairs=write("a.tsv", ""))
        with pytest.raises(SightlineError, match=r"a\.en: the file is empty"):
            read_pairs(write("a.en", ""), write("a.de", ""))

    def test_which_files(self, write: Write) -> None:
        path = write("a.tsv", "a\tb\n")
        with pytest.raises(SightlineError, match="not both"):
            read_pairs(path, None, path)
        with pytest.raises(SightlineError, match="is one side only: give a source and a target"):
            read_pairs(path)
        with pytest.raises(SightlineError, match="no text is given"):
            read_pairs()


class TestAccounts:
    def test_one_line(self) -> None:
        assert str(Account(1)) == "1 pair"
        assert str(Account(60_000)) == "60,000 pairs"
        assert str(Account(3, 1200, 2)) == "3 pairs; dropped 1,200 with an empty side, 2 too long"

    def test_drop_empty(self) -> None:
        kept, account = drop_empty([Pair("a", "b"), Pair(" ", "b"), Pair("a", "")])
        assert kept == [Pair("a", "b")]
        assert account == Account(1, empty=2)

    def test_drop_too_long(self) -> None:
        good = [Pair("a b", "c"), Pair("x" * 64, "c")]
        kept, account = drop_too_long([*good, Pair("a b c", "c"), Pair("a", "x" * 65)], 2)
        assert kept == good
        assert account == Account(2, too_long=2)
        assert Account(1, 3, 4).after(account) == Account(1, 3, 6)


class TestHoldOut:
    def test_groups(self) -> None:
        pairs = [Pair("a", "x"), Pair("b", "y"), Pair("a", "z"), Pair("c", "z"), Pair("x", "b")]
        assert sorted(map(sorted, groups(pairs))) == [[0, 2, 3], [1], [4]]

    @settings(deadline=None, derandomize=True)
    @given(st.lists(st.builds(Pair, st.text("abcdefgh", min_size=2, max_size=2), st.text("abcdef", max_size=2))))
    def test_no_sentence_in_both_parts(self, pairs: list[Pair]) -> None:
        if len(pairs) < 4:
            return
        try:
            train, valid = hold_out(pairs, len(pairs) // 2, seed=3)
        except SightlineError:
            assert min(map(len, groups(pairs))) > len(pairs) // 2
            return
        assert sorted(train + valid) == sorted(pairs)
        assert 0 < len(valid) <= len(pairs) // 2
        for side in (0, 1):
            assert not {pair[side] for pair in train} & {pair[side] for pair in valid}
        assert hold_out(pairs, len(pairs) // 2, seed=3) == (train, valid)

    def test_seeds_differ_and_order_stays(self) -> None:
        pairs = [Pair(f"{number:03}", f"{number:03}") for number in range(100)]
        train, valid = hold_out(pairs, 10, seed=1)
        assert len(valid) == 10
        assert (train, valid) == (sorted(train), sorted(valid))
        assert valid != hold_out(pairs, 10, seed=2)[1]

    def test_too_many(self) -> None:
        with pytest.raises(SightlineError, match="cannot hold out 2 of 2 pairs"):
            hold_out([Pair("a", "b"), Pair("c", "d")], 2, seed=1)

    def test_all_tied_together(self) -> None:
        with pytest.raises(SightlineError, match="give validation files"):
            hold_out([Pair(str(number), "yes") for number in range(9)], 3, seed=1)


class TestEncoding:
    source = WordTokenizer(["a", "b", "c"], "nfc", False)
    target = CharacterTokenizer([" ", "x", "y"], False, "nfc", False)

    def test_ids_end_with_eos(self) -> None:
        pairs = [Pair("a b", "x y"), Pair(" ", "x"), Pair("c", "yx"), Pair("a b c a", "x"), Pair("a", "")]
        data, account = encode_pairs(pairs, self.source, self.target, max_length=3)
        assert account == Account(2, empty=2, too_long=1)
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
        assert account == Account(0, empty=1)
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
        assert batch.indices == (2, 0)

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

    def test_budget_of_nothing(self) -> None:
        with pytest.raises(SightlineError, match="batch_tokens = 0"):
            ordered_batches(np.array([2]), 0)


def test_reading_needs_no_torch() -> None:
    import subprocess
    import sys

    code = "import sys, sightline.data, sightline.text, sightline.files; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
