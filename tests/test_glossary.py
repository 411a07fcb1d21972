"""Glossaries and lists of words: reading them, finding terms, and holding search to them in every vocabulary."""

from __future__ import annotations

import unicodedata
from functools import cache
from itertools import permutations
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sightline.batch import Batch, pad
from sightline.config import TextConfig
from sightline.errors import SightlineError
from sightline.forbidden import forbidden_ids, read_words
from sightline.glossary import Glossary, Term
from sightline.search import Request, SearchOptions, Step, search
from sightline.state import State
from sightline.text import BOS, EOS, PAD, UNK, Tokenizer, train_tokenizer
from sightline.wording import inner_ids, inside_words, spellings, words

CORPUS = [
    "The car is in the garage, the cars are not.",
    "Das Auto steht in der Garage, die Autos nicht.",
    "Der Wagen und die Autobahn (eine Straße) sind grau.",
    "La voiture est au garage, les voitures non.",
    "Ein Haus, zwei Häuser; „Haus“ und 'Hausbau'.",
    "汽车在车库里。 这是我的汽车和房子。",
] * 5
KINDS = ["unigram", "bpe", "word", "char"]


@cache
def tokenizer(kind: str, lowercase: bool = False) -> Tokenizer:
    config = TextConfig.model_validate({"tokenizer": kind, "lowercase": lowercase, "byte_fallback": kind != "word"})
    return train_tokenizer(CORPUS, config, 420)


def glossary(**terms: str | list[str]) -> Glossary:
    values = {name.replace("_", " "): [one] if isinstance(one, str) else one for name, one in terms.items()}
    return Glossary([Term(source, tuple(translations)) for source, translations in values.items()])


def found(subject: Glossary, source: str) -> list[tuple[str, str]]:
    return [(term.source, text) for term, text in subject.find(source)]


class WriterModel:
    """Writes its sentence, token by token, whatever was chosen before, and likes everything else a little."""

    pad, bos, eos = PAD, BOS, EOS

    def __init__(self, size: int, ids: list[int]) -> None:
        self.size, self.ids = size, [*ids, EOS]

    def start(self, batch: Batch, prefix: Tensor | None = None) -> State:
        return State({}, {"row": torch.zeros(batch.size, 1)})

    def step(self, tokens: Tensor, state: State) -> Step:
        scores = torch.linspace(0, 1, self.size).repeat(len(tokens), 1)
        scores[:, self.ids[min(state.position, len(self.ids) - 1)]] = 12.0
        return Step(scores.log_softmax(1), state.advance({}))

    def source_lengths(self, batch: Batch) -> Tensor:
        return batch.sources[0].mask.sum(1)


def write(kind: str, text: str, options: SearchOptions | None = None, request: Request | None = None) -> str:
    """What a model that would write `text` writes."""
    subject = tokenizer(kind)
    model, batch = WriterModel(subject.size, subject.encode(text)), Batch((pad([[5] * 40], PAD),))
    best = search(model, batch, options or SearchOptions(beam=4), [request or Request()])[0][0]
    return subject.decode(best.tokens)


# Words.


def test_words_of_every_kind() -> None:
    assert [word.text for word in words("Don't e-mail: Straße_2 हिन्दी.")] == [
        *["Don", "'", "t", "e", "-", "mail", ":", "Straße_2", "हिन्दी", "."]
    ]
    assert [word.text for word in words("我的iPhone 手机")] == ["我", "的", "iPhone", "手", "机"]
    assert [word.spaced for word in words("a(b c")] == [True, False, False, True]
    assert words("e\u0301")[0].text == "é"
    assert words(" \t") == []


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.text(max_size=12))
def test_words_lose_nothing_but_space(text: str) -> None:
    assert "".join(word.text for word in words(text)) == "".join(unicodedata.normalize("NFC", text).split())


@pytest.mark.parametrize("kind", KINDS)
def test_spellings_are_all_different_and_right(kind: str) -> None:
    subject = tokenizer(kind)
    ways = spellings(subject, " Autobahn", 20)
    assert ways
    assert len(set(ways)) == len(ways)
    assert all(b"".join(subject.surface(id) for id in ids) == b" Autobahn" for ids in ways)
    assert [len(ids) for ids in ways] == sorted(len(ids) for ids in ways)
    assert inner_ids(subject, "Autobahn") in spellings(subject, " Autobahn", 10_000)
    assert spellings(subject, " Ωmega" if kind == "word" else "", 3) == ([] if kind == "word" else [()])


def test_what_goes_on_with_a_word() -> None:
    subject = tokenizer("char")
    inside = {subject.surface(id).decode("utf-8", "replace") for id in inside_words(subject)}
    assert {"a", "ß", "2"} - {"2"} <= inside
    assert not inside & {" ", ".", "(", "„", "汽", ""}
    assert inside_words(tokenizer("word")) == frozenset()


# Finding terms.


def test_whole_words_and_the_longest_first() -> None:
    subject = glossary(car="Auto", car_park="Parkplatz", park_bench="Parkbank", e_mail="Mail")
    assert found(subject, "A car in the car park, no cars, no carpark.") == [("car", "car"), ("car park", "car park")]
    assert found(subject, "the car park bench") == [("car", "car"), ("park bench", "park bench")]
    assert found(subject, "car  park") == [("car park", "car park")]
    assert found(subject, "Car, (car) car/CAR") == [("car", text) for text in ("Car", "car", "car", "CAR")]
    assert found(subject, "") == []


def test_case() -> None:
    subject = glossary(polish="polieren", Polish="polnisch", US="USA", May="Mai", New_York="New York")
    assert found(subject, "They polish Polish shoes. POLISH!") == [
        ("polish", "polish"),
        ("Polish", "Polish"),
        ("polish", "POLISH"),
    ]
    assert found(subject, "Give us the US") == [("US", "US")]
    assert found(subject, "may MAY new york NEW YORK") == [
        ("May", "may"),
        ("May", "MAY"),
        ("New York", "new york"),
        ("New York", "NEW YORK"),
    ]


def test_case_tells_nothing_in_capitals() -> None:
    subject = glossary(US="USA", iPhone="iPhone", us="uns")
    assert [(term.source, text) for term, text in subject.find("GIVE US AN IPHONE", any_case=True)] == [
        ("US", "US"),
        ("iPhone", "IPHONE"),
    ]
    assert found(subject, "GIVE US AN IPHONE") == [("US", "US")]


def test_scripts_without_spaces() -> None:
    assert found(Glossary([Term("汽车", ("car",)), Term("房子", ("house",))]), "这是我的汽车和房子。") == [
        ("汽车", "汽车"),
        ("房子", "房子"),
    ]


def test_what_was_honoured() -> None:
    subject = glossary(car=["Auto", "Autos"], house="Haus", the="das")
    source = "The car, the house and the car."
    check = [(one.text, one.honoured) for one in subject.honoured(source, "Das Auto, das Hausboot und das Autos.")]
    assert check == [("The", True), ("car", True), ("the", True), ("house", False), ("the", True), ("car", True)]
    assert [one.honoured for one in subject.honoured("car car", "Das Auto")] == [True, False]
    assert [one.honoured for one in subject.honoured("house", "haus")] == [False]
    assert [one.honoured for one in subject.honoured("house", "haus", tokenizer("char", lowercase=True))] == [True]
    assert subject.honoured("nothing", "Auto") == []


def test_a_word_honours_one_term() -> None:
    subject = glossary(car=["Auto", "Wagen"], automobile="Auto", house="Haus", car_house=["Auto Haus", "Autohaus"])
    source = "The car and the automobile."

    def check(source: str, translation: str) -> list[bool]:
        return [one.honoured for one in subject.honoured(source, translation)]

    assert check(source, "Das Auto.") == [True, False]
    assert check(source, "Das Auto und der Wagen.") == [True, True]
    assert check("automobile and car", "Das Auto und der Wagen.") == [True, True]
    assert check("car and car house", "Auto Haus und Auto") == [True, True]
    assert check("car and car house", "Auto Haus") == [True, False]
    assert check("car " * 1200, "Auto " * 1199) == [True] * 1199 + [False]


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    st.lists(st.sets(st.sampled_from("ABCD"), min_size=1), min_size=1, max_size=5),
    st.lists(st.sampled_from("ABCD"), max_size=5),
)
def test_as_many_terms_as_can_be_have_a_word_of_their_own(translations: list[set[str]], text: list[str]) -> None:
    """Against all ways to give the words to the terms."""
    terms = [Term(f"t{number}", tuple(sorted(those))) for number, those in enumerate(translations)]
    found = Glossary(terms).honoured(" ".join(term.source for term in terms), " ".join(text))
    spare = [*text, *[""] * len(terms)]
    most = max(
        sum(word in term.translations for word, term in zip(given, terms, strict=True))
        for given in permutations(spare, len(terms))
    )
    assert sum(one.honoured for one in found) == most


# Search with a glossary.


@pytest.mark.parametrize("kind", KINDS)
def test_terms_are_written_as_whole_words(kind: str) -> None:
    """The model would write Autobahn, which is not the term, though it may begin with the same piece."""
    subject = glossary(car="Auto", carriage=["Wagens", "Wagen"])
    source = "a car and a carriage"
    text = write(kind, "Die Autobahn und die", request=subject.request(source, tokenizer(kind)))
    assert [one.honoured for one in subject.honoured(source, text)] == [True, True]


@pytest.mark.parametrize("kind", ["unigram", "bpe", "char"])
@pytest.mark.parametrize("text", ["Voiture est au garage", "La voiture est au garage", "(les voiture)"])
def test_terms_that_are_there_already_change_nothing(kind: str, text: str) -> None:
    """At the beginning a capital will do. Right after an opening mark no word begins: there it is written once more."""
    subject = glossary(car="voiture")
    written = write(kind, text, request=subject.request("car", tokenizer(kind)))
    assert written == text


@pytest.mark.parametrize("kind", KINDS)
def test_terms_that_share_a_translation_have_one_each(kind: str) -> None:
    subject = glossary(car=["Auto", "Wagen"], automobile="Auto")
    source = "The car and the automobile."
    text = write(kind, "Das Auto steht in der Garage", request=subject.request(source, tokenizer(kind)))
    assert [one.honoured for one in subject.honoured(source, text)] == [True, True], text


def test_terms_of_scripts_without_spaces() -> None:
    subject = Glossary([Term("car", ("汽车",))])
    text = "这是我的汽车和房子。"
    assert write("char", text, request=subject.request("car", tokenizer("char"))) == text
    written = write("unigram", "这是我的房子。", request=subject.request("car", tokenizer("unigram")))
    assert subject.honoured("car", written)[0].honoured


def test_what_cannot_be_spelled_asks_for_nothing() -> None:
    subject = glossary(car=["Kraftfahrzeug", "Auto"], house="Bungalow")
    constraints = subject.constraints("car house", tokenizer("word"))
    assert len(constraints) == 1
    assert all(UNK not in ids for constraint in constraints for ids in constraint)


def test_a_term_twice_is_a_constraint_twice() -> None:
    first, second = glossary(car="Auto").constraints("car and car", tokenizer("bpe"))
    assert first == second


# Forbidden words.


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("beam", [1, 4])
def test_forbidden_words_are_not_written(kind: str, beam: int) -> None:
    """At the beginning, within, after a mark, and in every case; not even in another spelling."""
    subject = tokenizer(kind)
    sequences = forbidden_ids(["auto", "Haus"], subject)
    for text in ("Das Auto steht in der Garage", "Auto AUTO auto", "zwei (Auto) Haus"):
        written = write(kind, text, SearchOptions(beam=beam, forbidden=sequences))
        assert not {"auto", "haus"} & {word.text.casefold() for word in words(written)}, written


def test_other_words_stay_in_a_vocabulary_of_characters() -> None:
    sequences = forbidden_ids(["auto"], tokenizer("char"))
    text = "Die Autos und die Autobahn."
    assert write("char", text, SearchOptions(beam=1, forbidden=sequences)) == text


def test_words_with_capitals_are_forbidden_as_they_are() -> None:
    text = "das haus"
    assert write("char", text, SearchOptions(beam=1, forbidden=forbidden_ids(["Haus"], tokenizer("char")))) == text


@pytest.mark.parametrize("word", ["HAUS", "Haus", "haus", "STRASSE", "Straße"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_will_be_in_capitals_is_forbidden_in_every_case(kind: str, word: str) -> None:
    sequences = forbidden_ids([word], tokenizer(kind), enlarged=True)
    for text in ("Ein Haus und eine Straße", "haus straße", "HAUS STRASSE"):
        written = write(kind, text, SearchOptions(beam=1, forbidden=sequences))
        assert word.upper() not in {one.text for one in words(written.upper())}, written


def test_an_empty_word_cannot_be_forbidden() -> None:
    with pytest.raises(SightlineError, match="a forbidden word is empty"):
        forbidden_ids(["a", " "], tokenizer("bpe"))


# Files.


def test_reading_a_glossary(tmp_path: Path) -> None:
    path = tmp_path / "terms.tsv"
    path.write_text(
        "\ufeff# from\tto\ncar\tAuto\tAutos \n\n car  park \tParkplatz\t\ncar\tAuto\tAutos\n", encoding="utf-8"
    )
    assert Glossary.read(path).terms == [Term("car", ("Auto", "Autos")), Term("car park", ("Parkplatz",))]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "terms.tsv: no terms in it"),
        ("# only\n\n", "terms.tsv: no terms in it"),
        ("a\tb\ncar Auto\n", "terms.tsv, line 2: no translation of 'car Auto': write 'term<TAB>translation'"),
        ("\tAuto\n", "terms.tsv, line 1: no source term"),
        ("#\ncar\t\tAuto\n", "terms.tsv, line 2: an empty translation of 'car'"),
        ("car\tAuto\nhouse\tHaus\ncar\tWagen\n", "terms.tsv, line 3: 'car' is on line 1 already"),
    ],
)
def test_bad_glossaries_are_refused(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "terms.tsv"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(SightlineError) as error:
        Glossary.read(path)
    assert message in str(error.value)


def test_a_glossary_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SightlineError, match=r"nowhere\.tsv"):
        Glossary.read(tmp_path / "nowhere.tsv")
    with pytest.raises(SightlineError, match="empty"):
        Glossary([Term("car", (" ",))])
    with pytest.raises(SightlineError, match="no terms in it: give at least one"):
        Glossary([])


def test_reading_words(tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_text("# not these\nauto\n\n Haus und Hof \n", encoding="utf-8")
    assert read_words(path) == ["auto", "Haus und Hof"]
    path.write_text("#\n", encoding="utf-8")
    with pytest.raises(SightlineError, match=r"words\.txt: no words in it"):
        read_words(path)
