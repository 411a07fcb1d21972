"""Subword sampling: what is split says the same, by chance, and always by the same chance."""

from __future__ import annotations

from functools import cache
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sightline.config import TextConfig, build_config
from sightline.data import encode_pairs
from sightline.folder import Tokenizers
from sightline.readers import Pair
from sightline.splitting import WHOLE, Halves, Splitting, splitting_of
from sightline.text import CharacterTokenizer, Tokenizer, train_tokenizer
from sightline.tokenizers import EOS
from sightline.training.run import TrainingData
from tests.commands import Command, settings

TEXT = ["the cats and the dogs sleep on the mats", "the cat sat on the mat", "a dog sits there, and sleeps"] * 9
WORDS = " ".join(TEXT[:3]).split()


@cache
def tokenizer(kind: str, symbols: tuple[str, ...] = ()) -> Tokenizer:
    config = TextConfig(tokenizer=cast(Any, kind), byte_fallback=False, symbols=list(symbols))
    return train_tokenizer(TEXT, config, 60)


def always(share: float = 0.0) -> np.random.Generator:
    """A generator that always draws `share`."""
    return cast(Any, SimpleNamespace(random=lambda count: np.full(count, share)))


def table(**halves: tuple[int, int]) -> Halves:
    """Nine entries, those named `t5` and so on made of two others."""
    entries = np.full((9, 2), WHOLE, dtype=np.int64)
    for name, two in halves.items():
        entries[int(name[1:])] = two
    return Halves(entries)


def integers(*values: int) -> Any:
    return np.array(values, dtype=np.int64)


def test_by_hand() -> None:
    halves = table(t5=(4, 6), t4=(7, 8))
    ids, lengths = halves.split(integers(5, 0, 4, 1, 5), integers(3, 2), 0.5, 99, always())
    assert ids.tolist() == [7, 8, 6, 0, 7, 8, 1, 7, 8, 6]
    assert lengths.tolist() == [6, 4]
    same, lengths = halves.split(integers(5, 0, 4), integers(3), 0.5, 99, always(0.5))  # a share of 0.5 is below 0.5
    assert (same.tolist(), lengths.tolist()) == ([5, 0, 4], [3])


def test_a_row_that_would_be_too_long_stays() -> None:
    halves = table(t5=(4, 6))
    ids, lengths = halves.split(integers(5, 5, 0, 5, 1, 5, 5), integers(3, 2, 2), 0.5, 3, always())
    assert ids.tolist() == [5, 5, 0, 4, 6, 1, 5, 5]
    assert lengths.tolist() == [3, 3, 2]


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_halves_make_up_their_entry(kind: str) -> None:
    subwords = tokenizer(kind)
    halves = subwords.halves()
    assert len(halves) > 3
    for id, (left, right) in halves.items():
        assert subwords.piece(left) + subwords.piece(right) == subwords.piece(id)
    if kind == "bpe":  # whose pieces were all made of two; unigram keeps what is likely, which may lack a half
        assert {*halves} == {id for id in range(EOS + 1, subwords.size) if len(subwords.piece(id)) > 1}


def test_of_several_ways_the_likeliest() -> None:
    subwords = tokenizer("unigram")
    scores = {subwords.piece(id): subwords._processor.GetScore(id) for id in range(subwords.size)}  # type: ignore[attr-defined]
    for id, two in subwords.halves().items():
        piece = subwords.piece(id)
        ways = [(piece[:cut], piece[cut:]) for cut in range(1, len(piece))]
        best = max(scores[a] + scores[b] for a, b in ways if a in scores and b in scores)
        assert sum(scores[subwords.piece(half)] for half in two) == pytest.approx(best)


def test_symbols_stay_whole() -> None:
    subwords = tokenizer("bpe", ("at",))
    (symbol,) = [id for id in range(subwords.size) if subwords.piece(id) == "at"]
    assert symbol in subwords.halves()
    assert Halves.of(subwords, frozenset({"at"})).entries[symbol].tolist() == [WHOLE, WHOLE]


def test_only_subwords_have_halves() -> None:
    assert CharacterTokenizer(["a", " "], False, "nfc", False).halves() == {}


@given(
    kind=st.sampled_from(["bpe", "unigram"]),
    texts=st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=8), min_size=1, max_size=5),
    share=st.floats(0, 0.95),
    seed=st.integers(0, 2**32),
    longest=st.integers(1, 60),
)
def test_split_text_says_the_same(kind: str, texts: list[list[str]], share: float, seed: int, longest: int) -> None:
    subwords = tokenizer(kind)
    rows = [[*subwords.encode(" ".join(words)), EOS] for words in texts]
    lengths = integers(*map(len, rows))
    drawn = np.random.default_rng(seed)
    ids, new = Halves.of(subwords).split(integers(*chain(*rows)), lengths, share, longest, drawn)
    assert len(ids) == new.sum()
    assert (new >= lengths).all()
    assert ((new <= longest) | (new == lengths)).all()
    for row, end, length in zip(rows, np.cumsum(new), new, strict=True):
        own = ids[end - length : end].tolist()
        assert subwords.decode(own) == subwords.decode(row)
        assert own[-1] == EOS
        assert EOS not in own[:-1]


def test_about_so_many_are_split() -> None:
    halves = table(t5=(4, 6))
    ids, _ = halves.split(np.full(20_000, 5), integers(20_000), 0.3, 10**6, np.random.default_rng(1))
    assert len(ids) - 20_000 == pytest.approx(6_000, rel=0.05)


def test_a_batch_is_drawn_anew_but_never_differently() -> None:
    subwords = tokenizer("bpe")
    pairs, _ = encode_pairs([Pair(line, line[::-1]) for line in TEXT], subwords, subwords)
    halves = Halves.of(subwords)
    data = TrainingData(pairs, 100, 7, splitting=Splitting(halves, halves, 0.3, 99))
    first, second = np.arange(3), np.arange(3) + 3  # the same three sentences

    def sources(indices: Any, of: TrainingData = data) -> list[list[int]]:
        return [[id for id in row if id] for row in of.batch(indices).sources[0].ids.tolist()]

    assert sources(first) == sources(first)
    assert sources(first) != sources(second)
    assert sources(first) != sources(first, TrainingData(pairs, 100, 8, splitting=data.splitting))
    plain = sources(first, TrainingData(pairs, 100, 7))
    assert sources(first) != plain
    assert [subwords.decode(row) for row in sources(first)] == [subwords.decode(row) for row in plain]
    batch = data.batch(first)
    assert batch.targets is not None
    assert batch.targets.ids.ne(0).equal(batch.targets.mask)


def test_what_the_configuration_asks_for() -> None:
    tokenizers = Tokenizers(tokenizer("bpe"), tokenizer("bpe"))
    assert splitting_of(build_config({}, "transformer"), tokenizers) is None
    asked = splitting_of(build_config({"data": {"split_tokens": 0.2, "max_length": 50}}, "transformer"), tokenizers)
    assert asked is not None
    assert (asked.share, asked.longest) == (0.2, 51)


def test_a_run_that_goes_on_splits_the_same(command: Command, tmp_path: Path) -> None:
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(f"{line} {number}\t{number} {line}\n" for number, line in enumerate(TEXT * 3)))

    def run(name: str, *options: object) -> bytes:
        folder = tmp_path / name
        subwords = ["--set", "text.tokenizer=bpe", "--set", "text.vocabulary=320"]
        rate = ["--set", "training.learning_rate=0.01", "--set", "training.schedule=constant"]
        given = ["--pairs", pairs, *settings(), *subwords, *rate, *options]
        for limit, more in ((2 if name == "parts" else 4, given), (4, ["--resume"])):
            done = command("train", "--output", folder, *more, "--max-steps", limit)
            assert done.code == 0, done.err
        return (folder / "model.safetensors").read_bytes()

    split = ["--set", "data.split_tokens=0.3"]
    whole = run("whole", *split)
    assert run("parts", *split) == whole
    assert run("plain") != whole


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["text.tokenizer=word"], "data.split_tokens splits subwords, and text.tokenizer is 'word'"),
        (["text.tokenizer=bpe", "model.sources.count=2"], "data.split_tokens knows one source"),
        (["text.tokenizer=bpe", "data.alignments=links"], "data.split_tokens does not go with data.alignments"),
    ],
)
def test_what_it_does_not_go_with(
    command: Command, toy_pairs: Path, tmp_path: Path, options: list[str], said: str
) -> None:
    chosen = [part for option in (*options, "data.split_tokens=0.1") for part in ("--set", option)]
    done = command("train", "--pairs", toy_pairs, "--output", tmp_path / "run", *settings(), *chosen)
    assert said in done.mistake()
