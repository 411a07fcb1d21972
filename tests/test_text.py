"""Normalising and tokenizers: nothing is lost, every token belongs to a word, broken files are refused."""

from __future__ import annotations

import math
import pickle
import random
import unicodedata
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sightline import text as text_module
from sightline.config import TextConfig
from sightline.errors import SightlineError
from sightline.text import (
    BOS,
    EOS,
    PAD,
    UNK,
    CharacterTokenizer,
    Tokenizer,
    load_tokenizer,
    normalise,
    tokenizer_file,
    train_tokenizer,
)

CORPUS = [
    "The cat sat on the mat.",
    "The dog sat on the cat, didn't it?",
    "Die Katze saß auf der Matte.",
    "Übung macht den Meister, sagt der Müller.",
    "Numbers: 1, 22 and 333 (about 12.5%).",
    "日本語 も 少し あります。",
] * 5

KINDS = ["unigram", "bpe", "word", "char"]
LOSSLESS = ["unigram", "bpe", "char"]

# Everything but surrogates, with the troublesome characters well represented.
TROUBLE = " \t\n\r\0\x1f\x85\xa0\u2028\u3000▁▅\ufeff\u200b\u0301\u0308e😀👍🏽<0x41>İΣς™¨ﬁ"
TEXTS = st.lists(
    st.one_of(
        st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
        st.text(TROUBLE, max_size=6),
        st.sampled_from(["the cat", "Matte", " ", "<unk>", "</s>", "<sep>", "日本語"]),
    ),
    max_size=8,
).map("".join)


@cache
def tokenizer(kind: str, byte_fallback: bool = True, normalization: str = "nfc", lowercase: bool = False) -> Tokenizer:
    return train_tokenizer(CORPUS, config(kind, byte_fallback, normalization, lowercase), 400)


def config(
    kind: str, byte_fallback: bool = True, normalization: str = "nfc", lowercase: bool = False, symbols: str = "<sep>"
) -> TextConfig:
    return TextConfig.model_validate(
        {
            "tokenizer": kind,
            "byte_fallback": byte_fallback,
            "normalization": normalization,
            "lowercase": lowercase,
            "symbols": symbols.split(","),
        }
    )


class TestNormalise:
    def test_white_space_is_folded(self) -> None:
        assert normalise(" a\t\tb\u2028\xa0c\x85\n", "none", False) == "a b c"

    def test_forms(self) -> None:
        assert normalise("e\u0301 ﬁ", "nfc", False) == "é ﬁ"
        assert normalise("e\u0301 ﬁ", "nfkc", False) == "é fi"
        assert normalise("e\u0301 ﬁ", "none", False) == "e\u0301 ﬁ"

    def test_lower_case(self) -> None:
        assert normalise("ÄÖ X™", "nfkc", True) == "äö xtm"

    def test_surrogates_are_replaced(self) -> None:
        assert normalise("a\ud800b", "nfc", False) == "a\ufffdb"

    @settings(deadline=None, derandomize=True)
    @given(st.text(), st.sampled_from(["nfc", "nfkc", "none"]), st.booleans())
    def test_twice_is_once(self, text: str, form: str, lowercase: bool) -> None:
        once = normalise(text, form, lowercase)  # type: ignore[arg-type]
        assert normalise(once, form, lowercase) == once  # type: ignore[arg-type]
        assert form == "none" or unicodedata.is_normalized(form.upper(), once)
        assert once.split() == [word for word in once.split(" ") if word]


class TestRoundTrip:
    @pytest.mark.parametrize("kind", LOSSLESS)
    @pytest.mark.parametrize(("form", "lowercase"), [("nfc", False), ("nfkc", True), ("none", False)])
    def test_decode_undoes_encode(self, kind: str, form: str, lowercase: bool) -> None:
        subject = tokenizer(kind, normalization=form, lowercase=lowercase)

        @settings(max_examples=300, deadline=None, derandomize=True)
        @example("▁")
        @example("a▁ ▁b▁▁c")
        @example("\0 \0a")
        @example(" \ufeff")
        @example("<unk> <s> <pad> <0x41> <sep><sep>")
        @given(TEXTS)
        def check(text: str) -> None:
            assert subject.decode(subject.encode(text)) == subject.normalise(text)
            assert subject.decode([BOS, *subject.encode(text), EOS, PAD, PAD]) == subject.normalise(text)

        check()

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("byte_fallback", [True, False])
    def test_every_token_belongs_to_a_word(self, kind: str, byte_fallback: bool) -> None:
        subject = tokenizer(kind, byte_fallback)

        @settings(max_examples=200, deadline=None, derandomize=True)
        @given(TEXTS)
        def check(text: str) -> None:
            ids, words, owners = subject.encode_words(text)
            assert ids == subject.encode(text)
            assert " ".join(words) == subject.normalise(text)
            assert len(owners) == len(ids)
            assert owners == sorted(owners)
            assert set(owners) == set(range(len(words)))
            assert all(0 <= id < subject.size and id not in (PAD, BOS, EOS) for id in ids)
            decoded, again = subject.words_of([BOS, *ids, EOS])
            assert " ".join(decoded) == subject.decode(ids)
            assert again == [-1, *owners, -1]

        check()

    @pytest.mark.parametrize("kind", KINDS)
    def test_words_of_any_ids(self, kind: str) -> None:
        subject = tokenizer(kind)

        @settings(max_examples=300, deadline=None, derandomize=True)
        @given(st.lists(st.integers(0, subject.size - 1), max_size=30))
        def check(ids: list[int]) -> None:
            words, owners = subject.words_of(ids)
            assert " ".join(words) == subject.decode(ids)
            assert "\n" not in subject.decode(ids)
            assert len(owners) == len(ids)
            for id, owner in zip(ids, owners, strict=True):
                assert -1 <= owner < len(words)
                assert id not in (PAD, BOS, EOS) or owner == -1
            inner = [owner for id, owner in zip(ids, owners, strict=True) if id not in (PAD, BOS, EOS)]
            assert inner == sorted(inner)

        check()


class TestWordsOf:
    def test_bytes_of_a_character_belong_to_its_word(self) -> None:
        subject = tokenizer("char")
        ids, words, owners = subject.encode_words("a😀 b")
        assert words == ["a😀", "b"]
        assert owners == [0, 0, 0, 0, 0, 1, 1]
        assert [subject.piece(id) for id in ids] == ["a", "<0xF0>", "<0x9F>", "<0x98>", "<0x80>", "▁", "b"]

    def test_broken_bytes_are_replaced(self) -> None:
        subject = tokenizer("char")
        smile = subject.encode("😀")
        a, space = subject.encode("a a")[:2]
        assert subject.words_of([a, *smile[:2], space, a]) == (["a\ufffd", "a"], [0, 0, 0, 0, 1])
        assert subject.words_of([*smile[:2]]) == (["\ufffd"], [0, 0])

    def test_spaces_without_words(self) -> None:
        subject = tokenizer("char")
        a, space = subject.encode("a a")[:2]
        assert subject.words_of([space, space]) == ([], [-1, -1])
        assert subject.words_of([space, a, space, EOS]) == (["a"], [0, 0, 0, -1])
        assert subject.words_of([]) == ([], [])


class TestKinds:
    def test_unknown_words(self) -> None:
        subject = tokenizer("word")
        assert UNK in subject.encode("The zebra sat")
        assert subject.decode(subject.encode("The zebra sat")) == "The <unk> sat"
        assert subject.pieces("The zebra sat") == ["The", "<unk>", "sat"]

    @pytest.mark.parametrize("kind", LOSSLESS)
    def test_unknown_characters_without_bytes(self, kind: str) -> None:
        assert tokenizer(kind, byte_fallback=False).decode(tokenizer(kind, byte_fallback=False).encode("a😀")) == (
            "a<unk>"
        )

    def test_pieces_of_subwords(self) -> None:
        pieces = tokenizer("bpe").pieces("The cat sat")
        assert "".join(pieces).replace("▁", " ") == " The cat sat"

    @pytest.mark.parametrize("kind", LOSSLESS)
    def test_symbols_stay_whole(self, kind: str) -> None:
        subject = tokenizer(kind)
        assert subject.pieces("cat<sep>mat <sep>").count("<sep>") == 2
        assert subject.decode(subject.encode("cat<sep>mat <sep>")) == "cat<sep>mat <sep>"

    def test_symbols_are_words_of_a_word_vocabulary(self) -> None:
        assert tokenizer("word").pieces("cat <sep>")[-1] == "<sep>"

    @pytest.mark.parametrize("kind", LOSSLESS)
    def test_symbols_are_normalised(self, kind: str) -> None:
        subject = train_tokenizer(CORPUS, config(kind, lowercase=True, symbols="<SEP>,x,<sep>"), 400)
        assert "<sep>" in subject.pieces("A<SEP>B")
        assert "x" in subject.pieces("axb")

    @pytest.mark.parametrize("kind", KINDS)
    def test_long_lines(self, kind: str) -> None:
        subject = tokenizer(kind)
        for line in ("a" * 100_000, "cat " * 25_000, "😀" * 100_000, "the▁" * 25_000):
            decoded = subject.decode(subject.encode(line))
            assert kind == "word" or decoded == subject.normalise(line)
            assert " ".join(subject.words_of(subject.encode(line))[0]) == decoded

    @pytest.mark.parametrize("kind", KINDS)
    def test_forgetting_remembered_words_changes_nothing(self, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
        expected = [tokenizer(kind).encode(line) for line in CORPUS]
        monkeypatch.setattr("sightline.tokenizers.CACHED_WORDS", 2)
        assert [train_tokenizer(CORPUS, config(kind), 400).encode(line) for line in CORPUS] == expected

    def test_word_by_word_is_how_sentencepiece_spells_the_whole(self) -> None:
        # Not tested of unigram: equally likely spellings are told apart by rounding, which differs with the place.
        subject = tokenizer("bpe")
        for line in CORPUS:
            assert subject.encode(line) == subject._processor.EncodeAsIds(" " + line)  # type: ignore[attr-defined]

    @pytest.mark.parametrize("kind", ["unigram", "bpe"])
    def test_digits_can_stand_alone(self, kind: str) -> None:
        lines = ["in 1999 and 1998 at 10:30", "2019 years", "30 of 1990"] * 20
        longest = {}
        for apart in (True, False):
            settings = TextConfig.model_validate({"tokenizer": kind, "split_digits": apart})
            subject = train_tokenizer(lines, settings, 310)
            longest[apart] = max(len(piece.strip("▁")) for piece in subject.pieces("1999 1998"))
            assert subject.decode(subject.encode("in 1999 at 10:30")) == "in 1999 at 10:30"
        assert longest[True] == 1 < longest[False]


class TestTraining:
    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("lines", [["a"], ["hello world"], ["▁ ▅ \0"], ["<s> <0x41> <unk> </s>"] * 50, ["x"] * 9])
    @pytest.mark.parametrize("byte_fallback", [True, False])
    def test_a_tiny_corpus_gets_a_small_vocabulary(self, kind: str, lines: list[str], byte_fallback: bool) -> None:
        subject = train_tokenizer(lines, config(kind, byte_fallback), 1000)
        assert subject.size <= 300
        assert kind == "word" or not byte_fallback or subject.decode(subject.encode("new text")) == "new text"

    @pytest.mark.parametrize("kind", KINDS)
    def test_size_is_at_most_what_was_asked(self, kind: str) -> None:
        assert tokenizer(kind).size <= 400
        assert train_tokenizer(CORPUS, config(kind, byte_fallback=False), 80).size <= 80

    @pytest.mark.parametrize("kind", KINDS)
    def test_the_same_corpus_gives_the_same_file(self, kind: str, tmp_path: Path) -> None:
        first = train_tokenizer(iter(CORPUS), config(kind), 400).save(tmp_path, "first").read_bytes()
        assert train_tokenizer(iter(CORPUS), config(kind), 400).save(tmp_path, "second").read_bytes() == first

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("lines", [[], ["", "  ", "\u2028"]])
    def test_empty_corpus(self, kind: str, lines: list[str]) -> None:
        with pytest.raises(SightlineError, match="the training text is empty"):
            train_tokenizer(lines, config(kind), 400)

    @pytest.mark.parametrize(("kind", "size"), [("unigram", 262), ("bpe", 262), ("char", 262), ("word", 5)])
    def test_the_smallest_vocabulary(self, kind: str, size: int) -> None:
        with pytest.raises(SightlineError, match=f"text.vocabulary = {size} is too small: .* take {size}"):
            train_tokenizer(CORPUS, config(kind), size)
        assert train_tokenizer(CORPUS, config(kind), size + 1).size == size + 1

    @pytest.mark.parametrize("kind", ["unigram", "bpe"])
    def test_more_characters_than_entries(self, kind: str) -> None:
        lines = [chr(0x4E00 + number) + chr(0x4E01 + number) for number in range(500)]
        with pytest.raises(SightlineError, match=r"too small for the characters .* at least 507"):
            train_tokenizer(lines, config(kind, byte_fallback=False), 300)
        subject = train_tokenizer(lines, config(kind), 300)
        assert all(subject.decode(subject.encode(line)) == line for line in lines)

    @pytest.mark.parametrize("kind", ["unigram", "bpe"])
    def test_long_sentences_are_learnt_from(self, kind: str) -> None:
        subject = train_tokenizer(["ab" * 50_000, "zebra " * 20_000], config(kind), 400)
        assert subject.pieces("zebra") == ["▁zebra"]

    @pytest.mark.parametrize("kind", ["unigram", "bpe"])
    def test_a_corpus_of_copies(self, kind: str) -> None:
        subject = train_tokenizer(["zebra"] * 20_000 + ["ab"] * 20_000, config(kind), 400)
        assert subject.pieces("zebra ab") == ["▁zebra", "▁ab"]

    def test_digits_have_entries_however_rare(self) -> None:
        subject = train_tokenizer([*["letters only"] * 5000, "7"], config("bpe"), 400)
        assert subject.pieces("7")[-1].strip("▁") == "7"

    @pytest.mark.parametrize("symbol", ["a b", "", " ", "a▁b", "<s>", "<0x41>"])
    def test_symbols_that_cannot_be(self, symbol: str) -> None:
        with pytest.raises(SightlineError, match=r"text\.symbols: "):
            train_tokenizer(CORPUS, config("bpe", symbols=symbol), 400)

    def test_sampling_is_fixed_and_complete(self) -> None:
        lines = [str(number) for number in range(1000)]
        assert text_module._sample(lines, 2000) == lines
        sample = text_module._sample(iter(lines), 100)
        assert sample == text_module._sample(iter(lines), 100)
        assert len(set(sample)) == 100
        assert set(sample) <= set(lines)
        assert any(int(line) > 500 for line in sample)

    def test_every_line_has_the_same_chance(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Counted over many seeds: 2,000 samples of 30 from 100 lines take each line some 600 times."""
        counts: Counter[str] = Counter()
        seeds = iter(range(2_000))
        plain = random.Random
        monkeypatch.setattr(text_module.random, "Random", lambda _: plain(next(seeds)))
        for _ in range(2_000):
            counts.update(text_module._sample((str(number) for number in range(100)), 30))
        deviation = math.sqrt(2_000 * 0.3 * 0.7)
        assert counts.total() == 2_000 * 30
        assert max(abs(counts[str(number)] - 600) for number in range(100)) < 4.5 * deviation

    def test_how_many_sentences(self) -> None:
        most = text_module.most_sentences
        assert [most(config("unigram"), size) for size in (500, 9_000)] == [30_000, 36_000]
        assert most(config("bpe"), 9_000) == 500_000
        few = config("word").model_copy(update={"sentences": 3})
        lines = [f"w{number}" for number in range(50)]
        assert train_tokenizer(lines, few, 400).size == 4 + len(few.symbols) + 3

    def test_nothing_is_printed(self, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
        train_tokenizer(CORPUS, config("unigram"), 400)
        (tmp_path / "text.spm").write_bytes(b"rubbish")
        with pytest.raises(SightlineError):
            load_tokenizer(tmp_path, "text", config("unigram"))
        assert capfd.readouterr() == ("", "")


class TestFiles:
    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("byte_fallback", [True, False])
    def test_save_and_load(self, kind: str, byte_fallback: bool, tmp_path: Path) -> None:
        subject = tokenizer(kind, byte_fallback)
        path = subject.save(tmp_path, "text")
        assert path == tokenizer_file(tmp_path, "text", config(kind))
        assert [entry.name for entry in tmp_path.iterdir()] == [path.name]
        again = load_tokenizer(tmp_path, "text", config(kind, byte_fallback))
        copy = pickle.loads(pickle.dumps(subject))
        for other in (again, copy):
            assert type(other) is type(subject)
            assert other.size == subject.size
            for line in [*CORPUS, "unseen 😀 ▁"]:
                assert other.encode(line) == subject.encode(line)
                assert other.decode(other.encode(line)) == subject.decode(subject.encode(line))

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("data", [b"", b"rubbish", b"\x00\xff" * 50, b"[]", b"{}", b"9" * 5000])
    def test_rubbish(self, kind: str, data: bytes, tmp_path: Path) -> None:
        path = tokenizer_file(tmp_path, "text", config(kind))
        path.write_bytes(data)
        with pytest.raises(SightlineError, match=path.name):
            load_tokenizer(tmp_path, "text", config(kind))

    @pytest.mark.parametrize("kind", KINDS)
    def test_truncated(self, kind: str, tmp_path: Path) -> None:
        path = tokenizer(kind).save(tmp_path, "text")
        path.write_bytes(path.read_bytes()[:-100])
        with pytest.raises(SightlineError, match=r"damaged|another program"):
            load_tokenizer(tmp_path, "text", config(kind))

    @pytest.mark.parametrize("kind", KINDS)
    def test_missing(self, kind: str, tmp_path: Path) -> None:
        with pytest.raises(SightlineError, match="cannot read the tokenizer"):
            load_tokenizer(tmp_path, "text", config(kind))

    def test_the_other_kind(self, tmp_path: Path) -> None:
        tokenizer("word").save(tmp_path, "text")
        with pytest.raises(SightlineError, match=r"a 'word' vocabulary, but text\.tokenizer is 'char'"):
            load_tokenizer(tmp_path, "text", config("char"))

    def test_entries_are_checked(self, tmp_path: Path) -> None:
        path = CharacterTokenizer([" ", "a", "b"], True, "nfc", False).save(tmp_path, "text")
        for damage in ('"a",\n"a"', '"a", 3', '"a", ""'):
            broken = path.read_text().replace('"a"', damage)
            (tmp_path / "broken.vocab").write_text(broken)
            with pytest.raises(SightlineError, match="entries must be distinct strings"):
                load_tokenizer(tmp_path, "broken", config("char"))

    @pytest.mark.parametrize("options", [{}, {"pad_id": 0, "unk_id": 1, "bos_id": 2, "eos_id": 3}])
    def test_a_model_of_another_program(self, options: dict[str, int], tmp_path: Path) -> None:
        import sentencepiece

        with open(tmp_path / "text.spm", "wb") as stream:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(CORPUS), model_writer=stream, vocab_size=60, minloglevel=2, **options
            )
        with pytest.raises(SightlineError, match=r"text\.spm: a sentencepiece model of another program"):
            load_tokenizer(tmp_path, "text", config("unigram"))
