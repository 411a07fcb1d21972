"""The detector of bad translations: each sign by hand, quiet on real references, awake on references made bad."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sightline import expectations as learning
from sightline.data import Pair, bundled, read_pairs
from sightline.errors import SightlineError
from sightline.failures import (
    CHECKS,
    Expectations,
    Thresholds,
    detect,
    most_frequent,
    most_in_a_row,
    names_in,
    plain_words,
    units,
)
from sightline.translation import Flag, Translation
from tests.commands import letters


def made(source: str, text: str, **changes: Any) -> Translation:
    """A translation of which only the text is known, and what `changes` say."""
    plain = Translation(source, text, 0.0, 0.0, [], text.split(), [], True)
    return replace(plain, **changes)


def names(translation: Translation, expectations: Expectations | None = None) -> list[str]:
    return [flag.name for flag in detect(translation, expectations)]


@pytest.fixture(scope="module")
def pairs() -> list[Pair]:
    return read_pairs(pairs=bundled("valid"))


@pytest.fixture(scope="module")
def learnt(pairs: list[Pair]) -> Expectations:
    return learning.learn(pairs)


# Words


def test_units_are_words_or_letters_where_there_are_no_spaces() -> None:
    assert units("Der MANN, er\u00a0liest") == ["der", "mann,", "er", "liest"]
    assert units("Tom 読む本 Größe") == ["tom", "読", "む", "本", "grösse"]


def test_plain_words_and_names() -> None:
    assert plain_words('"Er" las – 3 Bücher, 2nd!') == ["er", "las", "bücher"]
    names = names_in("Yesterday Tom met (Mary) in Rome. They ate.")
    assert names == {"tom", "mary", "rome"}
    assert plain_words("Tom traf Mary", names) == ["traf"]


@settings(max_examples=80, deadline=None, derandomize=True)
@given(st.lists(st.sampled_from("ab"), max_size=12))
def test_most_in_a_row_equals_enumeration(words: list[str]) -> None:
    expected = 1
    for start in range(len(words)):
        for size in range(1, 9):
            unit = words[start : start + size]
            times = 1
            while len(unit) == size and words[start + times * size : start + (times + 1) * size] == unit:
                times += 1
            expected = max(expected, times)
    found, phrase = most_in_a_row(words)
    assert found == expected
    assert (phrase == "") == (found == 1)
    assert " ".join([phrase] * found) in " ".join(words)


def test_most_frequent_by_hand() -> None:
    assert most_frequent(["a", "b", "c", "a", "b", "d", "a", "b"], 2) == (3, "a b")
    assert most_frequent(["a"], 2) == (0, "")


# Each sign


@pytest.mark.parametrize(
    ("source", "text", "flagged"),
    [
        ("a man reads", "ein Mann liest liest liest", "'liest' stands 3 times in a row"),
        ("a man", "der Mann und der Mann und der Mann und", "'der mann und' stands 3 times in a row"),
        ("a dog", "Hunde-, Hunde-, Hunde-, Hunde-,", "'hunde-,' stands 4 times in a row"),
        ("本を読む", "books books books books", "'books' stands 4 times in a row"),
        ("he reads", "本を読む本を読む本を読む", "'本 を 読 む' stands 3 times in a row"),
        (
            "a long story of something else entirely and more",
            "er ging in das Haus , dann er ging in das Zimmer , und er ging in das Bad",
            "'er ging in das' stands 3 times",
        ),
        ("a man in Brazil", "ein Mann in einem Sakobtttttttt", "'t' stands 8 times in one word"),
        ("parked cars", "ein Auto savenenenenenenen", "'en' stands 7 times in one word"),
        ("no", "neeeeeein", "'e' stands 6 times in one word"),
        ("nooooooo", "neeeeeein", None),
        ("a line ------------", "eine Linie ------------ 1000000000", None),
        ("a very very very good man", "ein sehr sehr sehr guter Mann", None),
        ("a man", "ein guter, guter Mann", None),
        ("he laughed", "er lachte: ha ha", None),
        ("a b c", "x x x", None),  # too few characters to tell
        ("he thinks", "er denkt nach . . .", None),
        (
            "he said he went to town , she said he went to town",
            "er sagte er ging in die Stadt , sie sagte er ging in die Stadt",
            None,
        ),
    ],
)
def test_loops(source: str, text: str, flagged: str | None) -> None:
    found = [flag for flag in detect(made(source, text)) if flag.name == "loop"]
    assert [flag.detail for flag in found] == ([] if flagged is None else [flagged])


def test_a_phrase_may_come_again_in_a_long_text() -> None:
    words = [f"w{number}" for number in range(300)]
    phrase = ["in", "the", "united", "states"]
    text = " ".join([*phrase, *words[:100], *phrase, *words[100:200], *phrase, *words[200:]])
    assert names(made(text.replace("states", "x"), text), Expectations(unchecked=frozenset({"copied"}))) == []


def test_words_that_got_no_attention() -> None:
    weights = np.array([[0.9, 0.1, 0.0, 0.0, 0.0, 0.0], [0.5, 0.5, 0.0, 0.0, 0.0, 0.0], [0.1, 0.3, 0.6, 0.0, 0.0, 0.0]])
    words = ["the", "man", "reads", "a", "good", "book"]
    one = made(" ".join(words), "der Mann liest", weights=weights, source_words=words)
    (flag,) = detect(one)
    assert flag == Flag("dropped", "hardly any attention to 3 of 6 source words: 'a', 'good', 'book'", 0.5)
    assert names(replace(one, weights=weights + 0.05)) == []
    # Three of six is half: a stricter threshold lets it pass.
    assert names(one, Expectations(Thresholds(dropped=0.6))) == []
    assert names(replace(one, weights=weights[:, :2], source_words=words[:2])) == []  # too short to tell


def test_attention_to_everything_and_nothing() -> None:
    even, sharp = np.full((3, 4), 0.25), np.eye(3, 4) + 0.01
    words = ["a", "b", "c", "d"]
    one = made("a b c d", "x y z", weights=even, source_words=words)
    (flag,) = detect(one)
    assert (flag.name, flag.value) == ("scattered", pytest.approx(1.0))
    assert names(replace(one, weights=sharp)) == []
    assert names(replace(one, weights=np.zeros((3, 4)))) == []
    mixed = np.array([[0.5, 0.5, 0.0, 0.0], [0.25, 0.25, 0.25, 0.25]])
    (flag,) = detect(replace(one, weights=mixed), Expectations(Thresholds(scattered=0.7)))
    assert flag.value == pytest.approx((math.log(2) / math.log(4) + 1) / 2)


@pytest.mark.parametrize(
    ("source", "text", "flagged"),
    [
        ("the man reads a book", "the man reads a book", True),
        ("The man reads a book.", "the man reads a book .", True),
        ("the man reads a book", "the man reads a Buch", True),
        ("the man reads a book", "der Mann liest a book", False),
        ("In 1990 Tom Miller met Mary Smith in New York", "1990 traf Tom Miller Mary Smith in New York", False),
        ("Tom Miller", "Tom Miller", False),
        ("12 34 56 78", "12 34 56 78", False),
        ("hello there", "hello there", False),  # too short to tell
    ],
)
def test_copies(source: str, text: str, flagged: bool) -> None:
    assert names(made(source, text)) == (["copied"] if flagged else [])


def test_another_script() -> None:
    expected = Expectations(scripts=frozenset({"CYRILLIC"}))
    (flag,) = detect(made("he reads a book", "er liest"), expected)
    assert (flag.name, flag.value) == ("script", 1.0)
    assert "Latin" in flag.detail
    assert names(made("he reads a book", "он читает книгу"), expected) == []
    assert names(made("Microsoft Windows is here", "Microsoft Windows здесь"), expected) == []
    assert names(made("he reads a book", "er liest")) == []  # nothing is known of the target
    mostly = made("he", "он читает ein")
    assert names(mostly, expected) == []
    assert names(mostly, replace(expected, thresholds=Thresholds(foreign=0.2))) == ["script"]


def test_words_of_some_other_language() -> None:
    expected = Expectations(target_words=frozenset(["der", "die", "ein", "und"]))
    french = "un homme avec un chapeau rouge regarde les gens"
    assert names(made("a man in a red hat looks at people", french), expected) == ["language"]
    assert names(made("a man in a red hat looks at people", f"{french} und"), expected) == []
    assert names(made("a man in a red hat looks", "un homme avec un chapeau"), expected) == []  # too short to tell
    assert names(made("a man in a red hat looks at people", french)) == []


def test_typical_words_are_learnt_where_they_tell() -> None:
    pairs = [
        (f"the cat sees a dog of number {place}", f"die Katze sieht nun einen Hund mit der Nummer {place}")
        for place in range(120)
    ]
    learnt = learning.learn(pairs)
    assert {"die", "katze", "der"} <= learnt.target_words
    short = [(source, " ".join(target.split()[:3])) for source, target in pairs]
    assert learning.learn(short).target_words == frozenset()  # no long one to know by
    mixed = [
        (source, target if place % 20 else " ".join("qrstuvxyz"[part] * (place + 2) for part in range(9)))
        for place, (source, target) in enumerate(pairs)
    ]
    assert learning.learn(mixed).target_words == frozenset()  # too many long ones have none


def test_words_of_the_sources_language() -> None:
    expected = Expectations(source_words=frozenset(["the", "is", "a", "of", "and", "reads"]))
    (flag,) = detect(made("er liest das Buch", "he reads the book of a man"), expected)
    assert (flag.name, flag.value) == ("language", 4 / 7)
    assert "'reads', 'the', 'of', 'a'" in flag.detail
    assert names(made("x", "the is good here now today"), expected) == []


def test_lengths() -> None:
    source = "a sentence of a certain length, forty-two letters long"
    assert names(made(source, "kurz")) == ["short"]
    assert names(made(source, "  ")) == ["short"]
    assert names(made("ja", "")) == ["short"]  # nothing at all is too short for anything
    assert names(made("no", "nein, danke, das ist sehr freundlich")) == []
    assert names(made("no", " ".join(f"wort{number}" for number in range(40)))) == ["long"]
    assert names(made(source, source.upper()[::-1]), Expectations(lengths=(1.1, 1.2))) == ["short"]
    assert names(made(source, source.upper()[::-1]), Expectations(lengths=(0.8, 0.9))) == ["long"]
    assert names(made("a man", "ein Mann", finished=False)) == ["cut"]


def test_confidence() -> None:
    one = made("a man", "ein Mann", log_prob=-8.6)  # of two words and the end
    (flag,) = detect(one)
    assert (flag.name, flag.value) == ("unsure", pytest.approx(-8.6 / 3))
    assert names(replace(one, log_prob=-3.6)) == []


def test_nothing_is_a_good_translation_of_nothing() -> None:
    assert detect(made("  ", "")) == []


def test_every_check_can_be_left_out() -> None:
    one = made("a b c", "", tokens=["x"], finished=False, log_prob=-9.0)
    assert names(one) == ["short", "cut", "unsure"]
    assert names(one, Expectations(unchecked=frozenset(CHECKS))) == []


def test_flags_are_shown_as_json() -> None:
    one = made("a man", "ein Mann")
    assert "flags" not in one.as_dict()
    flagged = replace(one, flags=[Flag("cut", "why", 2.0)], first=one)
    values = json.loads(json.dumps(flagged.as_dict()))
    assert values["flags"] == [{"name": "cut", "detail": "why", "value": 2.0}]
    assert values["first"]["text"] == "ein Mann"
    assert "retry" not in values


# What is learnt


def test_learnt_from_references_it_is_quiet_on_others(learnt: Expectations) -> None:
    others = read_pairs(pairs=bundled("test"))
    flagged = [pair for pair in others if detect(made(*pair), learnt)]
    assert len(flagged) <= 0.01 * len(others)
    assert learnt.unchecked == frozenset()
    assert learnt.scripts == {"LATIN"}
    assert {"the", "is", "you", "to"} <= learnt.source_words
    assert not {"ist", "in", "tom", "nicht", "hat"} & learnt.source_words


def test_it_is_awake_when_references_are_made_bad(learnt: Expectations) -> None:
    others = [pair for pair in read_pairs(pairs=bundled("test")) if len(pair.source.split()) >= 6][:150]
    assert len(others) == 150

    def share(name: set[str], bad: Any) -> float:
        return sum(bool(name & {*names(made(one.source, bad(one)), learnt)}) for one in others) / len(others)

    assert share({"copied"}, lambda one: one.source) > 0.95
    assert share({"copied", "language"}, lambda one: " ".join(reversed(one.source.split()))) > 0.95
    assert share({"loop"}, lambda one: " ".join(one.target.split()[:3] * 4)) > 0.95
    assert share({"script"}, lambda one: "он читает книгу в комнате и молчит") > 0.95
    assert share({"short"}, lambda one: one.target.split()[0]) > 0.5
    assert share({"long"}, lambda one: f"{one.target} " * 3) > 0.9


def test_a_task_of_copying_is_not_flagged_for_it() -> None:
    found = learning.learn(letters(400))
    assert "copied" in found.unchecked
    assert detect(made("a b c d", "A B C D"), found) == []


def test_of_few_pairs_nothing_is_learnt() -> None:
    assert learning.learn(letters(50)) == Expectations()
    assert learning.learn([("", "")] * 200) == Expectations()


def test_what_was_learnt_is_kept(learnt: Expectations, tmp_path: Path) -> None:
    assert learning.load(tmp_path) == Expectations()
    learning.save(tmp_path, learnt)
    assert learning.load(tmp_path) == learnt
    learning.save(tmp_path, Expectations())
    assert learning.load(tmp_path) == Expectations()


@pytest.mark.parametrize(
    "content", [b"{", b"[]", b"{}", b'{"format": 2}', b"\xff", b'{"format": 1, "unchecked": ["x"]}']
)
def test_a_broken_file_is_told(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "expectations.json").write_bytes(content)
    with pytest.raises(SightlineError, match=r"expectations\.json: not "):
        learning.load(tmp_path)


def test_training_keeps_it_in_the_models_folder(trained: Any) -> None:
    # The toy task has few validation pairs.
    assert learning.load(trained("transformer")) == Expectations()
    assert (trained("transformer") / "expectations.json").is_file()
