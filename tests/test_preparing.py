"""From files to mapped token ids: the same in one process and in two, mapped and in memory, cached and not."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sightline import encoding, preparing
from sightline.config import build_config, merge
from sightline.corpora import Mix
from sightline.data import EncodedPairs, Pair, encode_pairs
from sightline.encoding import Chunk, Encoders
from sightline.errors import SightlineError
from sightline.preparing import Prepared, prepare
from sightline.tokenizers import EOS, CharacterTokenizer, WordTokenizer
from tests.commands import Command, letters, settings, write_lines, write_tsv

Values = dict[str, Any]


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def make(tmp_path: Path, toy_pairs: Path, said: list[str]) -> Callable[..., Prepared]:
    """`make(values)`: the toy corpus prepared with these settings, in a cache of its own."""

    def prepared(values: Values | None = None, longest: int = 250, **options: Any) -> Prepared:
        base = {"text": {"tokenizer": "word"}, "data": {"cache": str(tmp_path / "cache")}}
        if not {"pairs", "corpora"} & (values or {}).get("data", {}).keys():
            base["data"]["pairs"] = str(toy_pairs)
        said.clear()
        return prepare(build_config(merge(base, values or {})), longest, say=said.append, **options)

    return prepared


def rows(part: EncodedPairs) -> list[list[list[int]]]:
    """The ids of each pair."""
    return [
        [side.ids[side.offsets[i] : side.offsets[i + 1]].tolist() for side in (part.source, part.target)]
        for i in range(len(part))
    ]


def texts(part: EncodedPairs, prepared: Prepared) -> list[Pair]:
    """The pairs as text, from their ids."""
    sides = (prepared.tokenizers.source, prepared.tokenizers.target)
    return [Pair(*(one.decode(ids[:-1]) for one, ids in zip(sides, row, strict=True))) for row in rows(part)]


class TestContent:
    def test_mapped_is_as_in_memory(self, make: Callable[..., Prepared], toy_pairs: Path) -> None:
        prepared = make({"data": {"held_out": 30}}, texts=1000)
        pairs = [Pair(*line.split("\t")) for line in toy_pairs.read_text().splitlines()]
        assert len(prepared.valid) == 30 == len(prepared.texts)
        held = {*prepared.texts}
        learnt = [pair for pair in pairs if pair not in held]
        for part, given in ((prepared.train, learnt), (prepared.valid, prepared.texts)):
            memory, _ = encode_pairs(given, prepared.tokenizers.source, prepared.tokenizers.target)
            assert rows(part) == rows(memory)
            assert part.source.ids.dtype == np.uint16
            assert part.source.offsets.tolist() == memory.source.offsets.tolist()
            batch, expected = (data.batch(np.array([5, 2, 8])) for data in (part, memory))
            assert batch.sources[0].ids.tolist() == expected.sources[0].ids.tolist()
            assert batch.indices == (5, 2, 8)
        for side in (0, 1):
            assert not {pair[side] for pair in learnt} & {pair[side] for pair in held}

    def test_where(self, make: Callable[..., Prepared], toy_pairs: Path) -> None:
        prepared = make()
        lines = toy_pairs.read_text().splitlines()
        for part in (prepared.train, prepared.valid):
            for index, pair in enumerate(texts(part, prepared)):
                file, _, line = part.where(index).rpartition(", line ")
                assert file == str(toy_pairs)
                assert lines[int(line) - 1] == "\t".join(pair)

    def test_large_vocabularies_take_more_room(self) -> None:
        assert (encoding.ids_type(2**16), encoding.ids_type(2**16 + 1)) == (np.uint16, np.int32)

    def test_validation_files(self, make: Callable[..., Prepared], tmp_path: Path) -> None:
        valid = write_tsv(tmp_path / "v.tsv", [("a b", "A B"), ("", "A"), ("c", "C"), ("a " * 9, "A")])
        prepared = make({"data": {"valid_pairs": str(valid)}}, longest=8, texts=1)
        assert texts(prepared.valid, prepared) == [Pair("a b", "A B"), Pair("c", "C")]
        assert prepared.texts == [Pair("a b", "A B")]
        assert [prepared.valid.where(index) for index in (0, 1)] == [f"{valid}, line 1", f"{valid}, line 3"]
        assert len(prepared.train) == 400
        assert not prepared.account.dropped

    def test_what_cannot_be_used_is_never_held_out(self, make: Callable[..., Prepared], tmp_path: Path) -> None:
        """One pair is empty, two are far too long: no validation part is made of them."""
        given = [("a", "A"), ("b", "B"), ("", "C"), ("d", "D" * 9000), ("e " * 251, "E")]
        pairs = str(write_tsv(tmp_path / "p.tsv", given))
        for seed in range(4):
            prepared = make({"data": {"pairs": pairs}, "training": {"seed": seed}}, texts=9)
            assert len(prepared.train) == len(prepared.valid) == 1
            assert str(prepared.account) == "1 pair; dropped 1 with an empty side, 2 too long"

    def test_several_corpora(self, make: Callable[..., Prepared], tmp_path: Path) -> None:
        first = write_tsv(tmp_path / "a.tsv", letters(60, seed=1))
        second = letters(20, seed=2)
        write_lines(tmp_path / "b.en", [pair[0] for pair in second])
        write_lines(tmp_path / "b.de", [pair[1] for pair in second])
        valid = write_tsv(tmp_path / "v.tsv", letters(3, seed=3))
        listed = [
            {"pairs": str(first)},
            {"source": str(tmp_path / "b.en"), "target": str(tmp_path / "b.de"), "weight": 3},
        ]
        prepared = make({"data": {"corpora": listed, "valid_pairs": str(valid)}})
        assert [tuple(pair) for pair in texts(prepared.train, prepared)] == [*letters(60, seed=1), *second]
        assert prepared.mix == Mix((0, 60, 80), (60, 60))
        assert prepared.train.where(59) == f"{first}, line 60"
        assert prepared.train.where(60) == f"{tmp_path / 'b.en'}, line 1"
        lengths = prepared.train.target.lengths
        assert prepared.tokens_an_epoch == pytest.approx(lengths[:60].sum() + 3 * lengths[60:].sum(), abs=1)


class TestFilters:
    def test_each_with_examples(self, make: Callable[..., Prepared], tmp_path: Path) -> None:
        given = [("a b", "A B"), ("x", "X X X X"), ("c", "C"), ("same", "same"), ("a b", "A B"), ("дом", "D")]
        pairs = write_tsv(tmp_path / "p.tsv", [*given, ("a b", "A B"), ("d e f g", "D " * 9)])
        valid = write_tsv(tmp_path / "v.tsv", [("same", "same")])
        rules = {"ratio": 6, "identical": True, "duplicates": True, "source_script": "Latin"}
        prepared = make({"data": {"pairs": str(pairs), "valid_pairs": str(valid), "filters": rules}}, longest=8)
        assert texts(prepared.train, prepared) == [Pair("a b", "A B"), Pair("c", "C")]
        assert str(prepared.account) == (
            "2 pairs; dropped 1 too long, 1 of too unequal lengths, 1 with identical sides, 1 in another script, "
            "2 seen before"
        )
        assert prepared.account.lines() == [
            f"  too long: {pairs}, line 8: d e f g | D D D D D D D D D",
            f"  of too unequal lengths: {pairs}, line 2: x | X X X X",
            f"  with identical sides: {pairs}, line 4: same | same",
            f"  in another script: {pairs}, line 6: дом | D",
            f"  seen before: {pairs}, line 5: a b | A B",
            f"  seen before: {pairs}, line 7: a b | A B",
        ]

    def test_too_many_tokens_are_counted_after_tokenising(self, make: Callable[..., Prepared], tmp_path: Path) -> None:
        pairs = write_tsv(tmp_path / "p.tsv", [("ab", "A"), ("abc", "B"), ("abcdef" * 5, "C"), ("a", "D")])
        values = {"text": {"tokenizer": "char"}, "data": {"pairs": str(pairs), "held_out": 1}}
        prepared = make(values, longest=10)
        assert "1 too long" in str(prepared.account)
        assert prepared.account.lines()[0].startswith(f"  too long: {pairs}, line 3: abcdef")

    def test_what_was_held_out_and_cannot_be_used_is_told(self, command: Command, tmp_path: Path) -> None:
        """Every pair is somewhere in the account: held out, too long, or left."""
        rows = [("a" * (20 if number % 2 else 3) + str(number), f"B{number}") for number in range(100)]
        pairs = write_tsv(tmp_path / "p.tsv", rows)
        line = ["train", "--pairs", pairs, "--output", tmp_path / "m", "--max-steps", 1, *settings()]
        sets = ["text.tokenizer=char", "data.max_length=10", "data.held_out=20"]
        done = command(*line, *(part for one in sets for part in ("--set", one)))
        assert done.code == 0, done.err
        assert "held out 20 of 100 pairs" in done.err
        told = r"^{} (\d+) pairs; dropped (\d+) too long\n  too long: .*, line \d+: a{{20}}"
        (training,) = re.findall(told.format("training on"), done.err, re.MULTILINE)
        (validation,) = re.findall(told.format("validating with"), done.err, re.MULTILINE)
        assert sum(map(int, training)) == 80
        assert sum(map(int, validation)) == 20
        kept = json.loads((tmp_path / "m" / "dropped.json").read_text())["validation"]
        assert [kept["kept"], kept["dropped"]["too_long"]["count"]] == [*map(int, validation)]

    def test_what_cannot_be_used_of_a_validation_file(self, make: Callable[..., Prepared], tmp_path: Path) -> None:
        """The second time it comes from the cache."""
        valid = write_tsv(tmp_path / "v.tsv", [("a", "A"), ("", "B"), ("c " * 9, "C")])
        for _ in range(2):
            assert make({"data": {"valid_pairs": str(valid)}}, longest=8).told() == [
                "validating with 1 pair; dropped 1 with an empty side, 1 too long",
                f"  with an empty side: {valid}, line 2: B",
                f"  too long: {valid}, line 3: c c c c c c c c c | C",
            ]

    def test_at_most_three_examples(self, make: Callable[..., Prepared], tmp_path: Path) -> None:
        pairs = write_tsv(tmp_path / "p.tsv", [*letters(30), *[("", "x")] * 7])
        account = make({"data": {"pairs": str(pairs)}}).account
        assert "7 with an empty side" in str(account)
        assert [line.split(":")[1] for line in account.lines()] == [f" {pairs}, line {n}" for n in (31, 32, 33)]

    def test_the_command_tells_and_writes_it(self, command: Command, tmp_path: Path) -> None:
        pairs = write_tsv(tmp_path / "p.tsv", [*letters(30), ("x", "x")])
        line = ["train", "--pairs", pairs, "--output", tmp_path / "m", "--max-steps", 1, *settings()]
        done = command(*line, "--set", "data.filters.identical=true")
        assert done.code == 0, done.err
        assert f"; dropped 1 with identical sides\n  with identical sides: {pairs}, line 31: x | x\n" in done.err
        told = json.loads((tmp_path / "m" / "dropped.json").read_text())
        assert told["dropped"]["identical"]["count"] == 1
        assert command("train", "--output", tmp_path / "m", "--resume", "--max-steps", 2).code == 0
        refused = command("train", "--output", tmp_path / "m", "--resume", "--set", "data.filters.identical=false")
        assert "data.filters.identical was True and is now False" in refused.last_word()


class TestProcesses:
    source = WordTokenizer(["a", "b", "c"], "nfc", False)
    target = CharacterTokenizer([" ", "x", "y"], False, "nfc", False)

    def chunks(self) -> list[Chunk]:
        pairs = [Pair("a b " * (number % 4), "x y"[: number % 5]) for number in range(90)]
        return [Chunk(0, 0, list(range(9)), pairs[start : start + 9]) for start in range(0, 90, 9)]

    def test_two_do_what_one_does(self) -> None:
        found = []
        for processes in (1, 2):
            with Encoders(self.source, self.target, 5, processes) as encoders:
                found.append(list(encoders.encode(self.chunks())))
        for (chunk, one), (same, other) in zip(*found, strict=True):
            assert chunk == same
            arrays = [(each.verdicts, *each.ids, *each.lengths) for each in (one, other)]
            for left, right in zip(*arrays, strict=True):
                assert left.dtype == right.dtype
                assert left.tolist() == right.tolist()
        assert EOS in found[1][0][1].ids[0]

    def test_a_corpus_in_two_processes(
        self, make: Callable[..., Prepared], said: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        one = make({"data": {"cache": None}})
        monkeypatch.setattr(preparing, "processes_for", lambda pairs: 2)
        monkeypatch.setattr(preparing, "CHUNK", 7)
        two = make({"data": {"cache": None}})
        assert "tokenising 400 pairs in 2 processes" in said
        assert one.digest == two.digest
        assert rows(one.train) == rows(two.train)
        assert one.train.numbers.tolist() == two.train.numbers.tolist()

    def test_one_that_dies_is_told(self) -> None:
        with Encoders(self.source, self.target, 5, 2) as encoders:
            for process in encoders._all:
                process.kill()
                process.wait()
            with pytest.raises(SightlineError, match="a process that tokenises was ended from outside"):
                list(encoders.encode(self.chunks()))


class TestCache:
    def entries(self, tmp_path: Path) -> dict[str, Path]:
        return {path.name.split("-")[0]: path for path in (tmp_path / "cache").iterdir()}

    def test_the_second_time_nothing_is_read(
        self, make: Callable[..., Prepared], said: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        first = make(texts=4)
        monkeypatch.setattr(preparing, "survey", None)
        second = make(texts=4)
        assert any(line.startswith("tokenised before: ") for line in said)
        assert (first.digest, first.texts, first.account) == (second.digest, second.texts, second.account)
        assert rows(first.train) == rows(second.train)
        assert sorted(self.entries(tmp_path)) == ["tokenizer", "tokens"]

    @pytest.mark.parametrize(
        "change",
        [
            {"text": {"lowercase": True}},
            {"text": {"vocabulary": 9}},
            {"data": {"held_out": 3}},
            {"data": {"filters": {"ratio": 9}}},
            {"training": {"seed": 2}},
        ],
    )
    def test_other_settings_are_another_entry(
        self, make: Callable[..., Prepared], said: list[str], change: Values
    ) -> None:
        make()
        make(change)
        assert not any(line.startswith("tokenised before") for line in said)

    def test_the_content_counts_not_the_name(
        self, make: Callable[..., Prepared], said: list[str], toy_pairs: Path, tmp_path: Path
    ) -> None:
        make()
        moved = tmp_path / "moved.tsv"
        moved.write_bytes(toy_pairs.read_bytes())
        assert make({"data": {"pairs": str(moved)}}).train.where(0).startswith(f"{moved}, line ")
        assert any(line.startswith("tokenised before") for line in said)
        moved.write_bytes(toy_pairs.read_bytes() + b"a\tA\n")
        make({"data": {"pairs": str(moved)}})
        assert not any(line.startswith("tokenised before") for line in said)

    @pytest.mark.parametrize("broken", ["cut", "changed", "no manifest", "bad manifest", "gone", "a file"])
    def test_a_broken_entry_is_made_anew(
        self, make: Callable[..., Prepared], said: list[str], tmp_path: Path, broken: str
    ) -> None:
        expected = rows(make().train)
        entry = self.entries(tmp_path)["tokens"]
        victim = entry / ("manifest.json" if "manifest" in broken else "train.target.ids")
        content = victim.read_bytes()
        if broken == "a file":
            for path in entry.iterdir():
                path.unlink()
            entry.rmdir()
            entry.write_text("x")
        elif broken in ("no manifest", "gone"):
            victim.unlink()
        else:
            changed = {"cut": content[:-2], "changed": content[:-1] + b"\7", "bad manifest": b"[1]"}
            victim.write_bytes(changed[broken])
        second = make()
        assert not any(line.startswith("tokenised before") for line in said)
        assert rows(second.train) == expected
        if broken != "a file":
            make()
            assert any(line.startswith("tokenised before") for line in said)

    @pytest.mark.parametrize("name", [None, ""])
    def test_switched_off(
        self, make: Callable[..., Prepared], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str | None
    ) -> None:
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        prepared = make({"data": {"cache": name}})
        assert rows(prepared.train) == rows(make().train)
        assert not list(tmp_path.glob("sightline-*"))

    def test_a_folder_that_cannot_be_written(
        self, make: Callable[..., Prepared], said: list[str], tmp_path: Path
    ) -> None:
        blocked = tmp_path / "blocked"
        blocked.write_text("this is a file")
        prepared = make({"data": {"cache": str(blocked / "inside")}})
        assert any("blocked/inside: cannot write" in line and "temporary folder instead" in line for line in said)
        assert rows(prepared.train) == rows(make().train)


def test_a_pipe_is_refused(make: Callable[..., Prepared], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "p.tsv")
    with pytest.raises(SightlineError, match="text is read more than once, so save it in a file"):
        make({"data": {"pairs": str(tmp_path / "p.tsv")}})


def test_corpora_on_the_command_line(command: Command, tmp_path: Path) -> None:
    files = [write_tsv(tmp_path / f"{number}.tsv", letters(30, seed=number)) for number in range(2)]
    given = [part for file in files for part in ("--pairs", file)]
    line = ["train", *given, "--output", tmp_path / "m", *settings(), "--set", "data.temperature=3"]
    done = command(*line, "--max-steps", 1)
    assert done.code == 0, done.err
    assert "held out 3 of 60 pairs" in done.err
    assert "- file 0.tsv\n- file 1.tsv" in (tmp_path / "m" / "README.md").read_text()
    assert command("train", "--output", tmp_path / "m", "--resume", "--max-steps", 2).code == 0
    refused = command("train", "--output", tmp_path / "m", "--resume", "--set", "data.temperature=2")
    assert "data.temperature was 3.0 and is now 2.0" in refused.last_word()


def test_scoring_takes_the_formats_too(trained: Any, command: Command, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("target,source\nA B,a b\nC,c\n")
    done = command("evaluate", trained("transformer"), "--pairs", tmp_path / "x.csv")
    assert done.code == 0, done.err
    assert "2 sentences" in done.out
    (tmp_path / "x.tmx").write_text("<tmx/>")
    told = command("align", trained("transformer"), "--pairs", tmp_path / "x.tmx").mistake()
    assert "in the model's config.yaml" in told
