"""Lines of several sentences: cut into parts, translated one by one, and put together with nothing lost."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import sightline
from sightline import sentences
from sightline.alignments import look
from sightline.config import build_config
from sightline.forced import read_alignment
from sightline.glossary import Glossary, Term
from sightline.sentences import Part, Preparation, copied_parts, in_capitals, sentence_spans, small
from sightline.text import EOS
from sightline.translation import Flag, Translation, nothing
from sightline.translator import Translator
from sightline.whole_lines import joined, spread
from sightline.wording import words as words_of
from tests.commands import Command, environment, finish, start, write_lines
from tests.test_decoding_docs import make_model

# Two paragraphs are two sentences whatever their words are, so the toy model can be asked for them.
LINE = " a b\n\nc d e \n\n h "
PARTS = ["a b", "c d e", "h"]


def words(text: str) -> int:
    return len(text.split())


def preparation(most: int = 1000, **habits: bool) -> Preparation:
    chosen = {"split": True, "copy": True, "capitals": True} | habits
    return Preparation(**chosen, language="en", most=most, tokens=words)


def texts(line: str, language: str = "en") -> list[str]:
    return [line[start:end].strip() for start, end in sentence_spans(line, language)]


@pytest.mark.parametrize(
    ("language", "line", "expected"),
    [
        ("en", "One sentence.", ["One sentence."]),
        ("en", "Dr. Smith came. He left.", ["Dr. Smith came.", "He left."]),
        ("en", "Really? Yes! No.", ["Really?", "Yes!", "No."]),
        ("en", 'He said, "Go. Now!" and left. OK', ['He said, "Go. Now!" and left.', "OK"]),
        ("de", "Am 3. Oktober ist frei. Das ist z. B. so.", ["Am 3. Oktober ist frei.", "Das ist z. B. so."]),
        ("en", "Hello.World is one. So?", ["Hello.World is one.", "So?"]),
        ("en", "A heading\n\nA text.", ["A heading", "", "A text."]),
        ("en", "milk\nbread\neggs", ["milk", "bread", "eggs"]),
        ("en", "My day\nI got up.\n", ["My day", "I got up."]),
        (
            "en",
            "A text that somebody has broken into lines\nof about one length.\nAnd more\tof it",
            ["A text that somebody has broken into lines\nof about one length.", "And more", "of it"],
        ),
        ("de", "Ich wohne im 3. Stock. Du auch?", ["Ich wohne im 3. Stock.", "Du auch?"]),
        ("de", "Im 21. Jahrhundert und im 2. Weltkrieg.", ["Im 21. Jahrhundert und im 2. Weltkrieg."]),
        ("de", "1. Brot und Milch.", ["1.", "Brot und Milch."]),
        ("de", "Das war 1998. Er kam.", ["Das war 1998.", "Er kam."]),
        ("en", "I have 3. You have 4.", ["I have 3.", "You have 4."]),
        ("en", "", [""]),
        ("en", "Hello\tgood day\t\tTom. Go!", ["Hello", "good day", "Tom.", "Go!"]),
        ("en", "\tHello", ["", "Hello"]),
    ],
)
def test_sentences(language: str, line: str, expected: list[str]) -> None:
    assert texts(line, language) == expected


@given(st.text(st.sampled_from(" ab.!?,\n\t\u3000😀❤\ufe0f1A\ud800"), max_size=60), st.integers(1, 8))
@example(" 😀 ", 1)
@example("A\u3000.\t1a\n??11?\u3000\tA", 5)
@settings(deadline=None)
def test_nothing_is_lost(line: str, most: int) -> None:
    """The parts and the white space before them are the line, and no part is longer than the model takes."""
    parts = preparation(most).parts(line)
    before, after = line[: -len(line.lstrip()) or None], line[len(line.rstrip()) :]
    columns = [space if "\t" in space else "" for space in (before, after)] if parts else ["", ""]
    assert "".join(part.gap + part.text for part in parts) == columns[0] + line.strip() + columns[1]
    assert not any(part.gap.strip() for part in parts)
    texts = [part.text for part in parts]
    assert all(text == text.strip() != "" for text in (texts[:-1] if columns[1] else texts))
    assert all(words(part.told) <= most for part in parts if part.told is not None)


def test_a_model_may_want_shorter_pieces_than_it_takes() -> None:
    def most(**search: Any) -> int:
        found = sentences.preparation(build_config({"search": {"split_sentences": True, **search}}), 100, words)
        assert found is not None
        return found.most

    assert [most(), most(max_piece=32), most(max_piece=500)] == [100, 32, 100]


def test_long_sentences_are_cut_at_phrases_then_at_spaces_then_anywhere() -> None:
    cut = preparation(5).parts
    assert [part.text for part in cut("one two three, four five six seven eight")] == [
        "one two three,",
        "four five six seven eight",
    ]
    pieces = [part.text for part in cut(" ".join("abcdefghijklm"))]
    assert max(map(words, pieces)) <= 5
    assert " ".join(pieces) == " ".join("abcdefghijklm")
    letters = Preparation(True, False, False, "en", 10, len).parts("x" * 35)
    assert [part.gap for part in letters] == [""] * len(letters)
    assert max(len(part.text) for part in letters) <= 10


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("I love you 😀", [("I love you", False), ("😀", True)]),
        ("👍🏽 Good!😀❤️", [("👍🏽", True), ("Good!", False), ("😀❤️", True)]),
        ("It is 20° here ©", [("It is 20° here ©", False)]),
        ("?!", [("?!", True)]),
        ("3.14 + 42", [("3.14 + 42", True)]),
        ("42 dogs", [("42 dogs", False)]),
        ("I ❤ you", [("I", False), ("❤", True), ("you", False)]),
        ("I like 🍕 and 🍺.", [("I like", False), ("🍕", True), ("and", False), ("🍺", True), (".", True)]),
        ("See https://a.org/b?c=1, please.", [("See", False), ("https://a.org/b?c=1", True), (", please.", False)]),
        ("Write to me.too@a-b.org.", [("Write to", False), ("me.too@a-b.org", True), (".", True)]),
        (
            '<p class="x">Hi <b>Tom</b></p>',
            [('<p class="x">', True), ("Hi", False), ("<b>", True), ("Tom", False), ("</b>", True), ("</p>", True)],
        ),
        ("If a<b and c>d, go.", [("If a<b and c>d, go.", False)]),
        ("www.😀.org 😀", [("www.😀.org", True), ("", True), ("😀", True)]),
    ],
)
def test_what_is_copied(line: str, expected: list[tuple[str, bool]]) -> None:
    found = copied_parts(line, (0, len(line)))
    assert [(line[start:end].strip(), copied) for start, end, copied in found] == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("- yes", [("-", True), ("yes", False)]),
        ("# A heading", [("#", True), ("A heading", False)]),
        ("2) It rains.", [("2)", True), ("It rains.", False)]),
        ("> • Go! ", [(">", True), ("• Go!", False)]),
        ("**Where is it?**", [("**", True), ("Where is it?", False), ("**", True)]),
        ("I love you :)", [("I love you", False), (":)", True)]),
        ("<3 you ;-)", [("<3", True), ("you", False), (";-)", True)]),
        ("Two-thirds - a part", [("Two-thirds - a part", False)]),
        ("It is (see a:) 8).", [("It is (see a:) 8).", False)]),
        ("***", [("***", True)]),
    ],
)
def test_marks_that_are_copied(line: str, expected: list[tuple[str, bool]]) -> None:
    found = copied_parts(line, (0, len(line)))
    assert [(line[start:end].strip(), copied) for start, end, copied in found] == expected


def test_letters_that_no_entry_has_are_copied() -> None:
    known = replace(preparation(), letters=lambda: frozenset("aäьк"))
    lines = ["Привет, как дела?", "это", "これはペンです。", "Ä!", "これ is a pen."]
    assert [known.parts(line)[0].told for line in lines] == ["Привет, как дела?", None, None, "Ä!", "これ is a pen."]
    assert replace(known, copy=False).parts("это")[0].told == "это"


def test_letters_of_a_vocabulary(trained: Any) -> None:
    tokenizer = sightline.load(trained("transformer")).files.tokenizers.source
    assert {*"abcdefgh"} <= tokenizer.letters() <= {*"abcdefghijklmnopqrstuvwxyz"}


def test_columns_that_are_empty_stay() -> None:
    parts = preparation().parts("\t\tYes.\t\tNo.\t ")
    assert [(part.gap, part.text, part.told) for part in parts] == [
        ("\t\t", "Yes.", "Yes."),
        ("\t\t", "No.", "No."),
        ("\t ", "", None),
    ]
    done = [made("Yes.", "Ja."), made("No.", "Nein."), None]
    found = joined(parts, done, SIDES, EMPTY)
    assert found.text == "\t\tJa.\t\tNein.\t "
    assert found.words == ["Ja.", "Nein."]


@pytest.mark.parametrize(
    "line",
    [
        "a" * 100_000,
        "a." * 50_000,
        "<a" * 50_000,
        "<a " + 'x="1" ' * 20_000,
        "www." * 25_000,
        "😀a" * 50_000,
        "a@" * 50_000,
        "*a" * 50_000,
        "* " * 50_000,
        ":-" * 50_000,
        "<3" * 50_000,
    ],
)
def test_lines_that_would_take_for_ever(line: str) -> None:
    found = copied_parts(line, (0, len(line)))
    assert "".join(line[start:end] for start, end, _ in found) == line


@pytest.mark.parametrize(
    ("text", "capitals"),
    [
        ("WHERE IS TOM?", True),
        ("HELP!", True),
        ("ICH BIN MÜDE.", True),
        ("WO IST DIE STRAßE?", True),
        ("Großß", False),
        ("USA", False),
        ("I", False),
        ("Where is Tom?", False),
        ("42", False),
    ],
)
def test_capitals(text: str, capitals: bool) -> None:
    assert in_capitals(text) == capitals


def test_small_letters() -> None:
    assert small("WHERE IS TOM?") == "Where is tom?"
    assert small("¿QUÉ TAL?") == "¿Qué tal?"
    assert preparation().parts("GO HOME! Now.") == [
        Part("", "GO HOME!", "Go home!", large=True),
        Part(" ", "Now.", "Now."),
    ]
    assert preparation(capitals=False).parts("GO HOME!") == [Part("", "GO HOME!", "GO HOME!")]


@pytest.fixture(scope="module")
def splitting(trained: Any) -> Translator:
    return sightline.load(trained("transformer"), split=True)


def test_a_line_is_what_its_sentences_are(splitting: Translator, trained: Any) -> None:
    """Text, tokens and scores, word links and weights: the same as of the sentences alone, moved to their places."""
    found = splitting.translate(LINE)
    alone = sightline.load(trained("transformer")).translate(PARTS)
    assert found.source == LINE
    assert found.text == "A B\n\nC D E \n\n H"
    assert found.tokens == ["A", "B", "</s>", "C", "D", "E", "</s>", "H"]
    assert found.ids[2] == EOS
    assert found.token_log_probs == [value for one in alone for value in one.token_log_probs]
    assert len(found.token_log_probs) == len(found.tokens) + 1
    assert found.log_prob == pytest.approx(sum(one.log_prob for one in alone))
    assert found.score == pytest.approx(sum(one.score for one in alone) / 3)
    assert found.words == found.text.split()
    assert found.source_words == LINE.split()
    assert found.alignment == "0-0 1-1 2-2 3-3 4-4 5-5"
    assert found.weights is not None
    np.testing.assert_array_equal(found.weights[2:5, 2:5], alone[1].weights)
    assert not found.weights[:2, 2:].any()
    whole = sightline.load(trained("transformer")).translate(LINE)
    assert EOS not in whole.ids  # one sentence, unless told otherwise


def test_looking_inside_a_line(splitting: Translator, trained: Any) -> None:
    """The page's weights are those of each sentence, along the diagonal; both readings give the sentences' links."""
    (found,) = look(splitting, [LINE])
    alone = look(sightline.load(trained("transformer")), PARTS)
    assert found.source_words == LINE.split()
    assert found.target_words == ["A", "B", "C", "D", "E", "H"]
    for reading in ("predicts", "consumes"):
        alignment = splitting.config.alignment.model_copy(update={"reading": reading})
        expected, first = set(), (0, 0)
        for one in alone:
            expected |= {(source + first[0], target + first[1]) for source, target in read_alignment(one, alignment)}
            first = first[0] + len(one.source_words), first[1] + len(one.target_words)
        assert read_alignment(found, alignment) == expected
        weights = found.word_weights(alignment)
        assert weights is not None
        np.testing.assert_allclose(weights[2:5, 2:5], alone[1].word_weights(alignment))
    assert found.token_log_probs == [value for one in alone for value in one.token_log_probs]


def test_looking_at_lines_of_which_nothing_is_translated(trained: Any) -> None:
    translator = sightline.load(trained("transformer"))
    search = translator.config.search.model_copy(update={"copy_symbols": True})
    config = translator.config.model_copy(update={"search": search})
    copying = Translator(replace(translator.files, config=config), translator.engines)
    for lines in (["42 !", ""], ["", "42 !", "a b"]):
        found = dict(zip(lines, look(copying, lines), strict=True))
        assert (found["42 !"].source_words, found["42 !"].target_words) == (["42", "!"], ["42", "!"])
        assert found[""].target_words == []
        for line in ("42 !", ""):
            assert read_alignment(found[line], config.alignment) == set()
    assert read_alignment(found["a b"], config.alignment) == {(0, 0), (1, 1)}


def test_several_translations_of_a_line(splitting: Translator, trained: Any) -> None:
    """The second of a line is made of the second of each sentence, and so on."""
    found = splitting.translate(LINE, n_best=3)
    alone = sightline.load(trained("transformer")).translate(PARTS, n_best=3)
    assert len(found.others) == 2
    for rank, other in enumerate(found.others):
        assert other.text.split() == [word for one in alone for word in one.others[rank].text.split()]
    scores = [found.score, *(one.score for one in found.others)]
    assert scores == sorted(scores, reverse=True)


def test_lines_as_they_are_made(splitting: Translator) -> None:
    assert "".join(splitting.live(LINE)) == splitting.translate(LINE).text
    assert "".join(splitting.live("")) == ""


def test_a_line_with_a_beginning_is_left_whole(splitting: Translator) -> None:
    found = splitting.translate(LINE, prefix="A B C")
    assert EOS not in found.ids
    assert found.text.startswith("A B C")
    lines = splitting.translate([LINE, LINE], prefixes=["", "A B"])
    assert [EOS in one.ids for one in lines] == [True, False]


def test_a_line_with_words_that_must_be_there_is_left_whole(splitting: Translator) -> None:
    found = splitting.translate([LINE, LINE], requires=[[], ["H"]])
    assert [EOS in one.ids for one in found] == [True, False]
    assert found[0].required == []
    assert found[1].required is not None
    assert found[1].required[0].honoured


def test_what_nobody_looks_at_is_left_for_later(splitting: Translator) -> None:
    lazy = splitting.translate(LINE)
    assert not {"links", "score", "words"} & lazy.__dict__.keys()
    at_once = splitting.translate(LINE, align=True, token_scores=True)
    assert (lazy.alignment, lazy.token_log_probs) == (at_once.alignment, at_once.token_log_probs)
    assert pickle.loads(pickle.dumps(splitting.translate(LINE))).alignment == lazy.alignment
    assert splitting.translate(LINE, align=False).links is None


def test_a_glossary_and_checks_are_the_sentences_own(splitting: Translator, tmp_path: Path) -> None:
    terms = write_lines(tmp_path / "terms.tsv", ["b\tH"])
    found = splitting.translate(["a b\n\nb c", "\n", "a"], glossary=str(terms), check=True)
    assert found[0].terms is not None
    assert [one.honoured for one in found[0].terms] == [True, True]
    assert found[0].text.count("H") == 2
    assert [one.terms for one in found[1:]] == [[], []]
    assert found[1].flags == []


@pytest.fixture(scope="module")
def folding(tmp_path_factory: pytest.TempPathFactory) -> Translator:
    """A model of random weights that knows words in small letters."""
    place = tmp_path_factory.mktemp("folding") / "model"
    make_model(place, ["Where are the cars from the US?", "Das Auto in New York ist von hier."] * 40)
    translator = sightline.load(place)
    search = translator.config.search.model_copy(update={"fold_capitals": True, "split_sentences": True})
    config = translator.config.model_copy(update={"search": search})
    return Translator(replace(translator.files, config=config), translator.engines)


@pytest.mark.parametrize("options", [{}, {"retry": True}, {"glossary": Glossary([Term("where", ("Auto",))])}])
def test_forbidden_words_are_not_written_in_capitals(folding: Translator, options: Any) -> None:
    lines = ["WHERE ARE THE CARS? Where are they?", "The cars.", "THE CARS ARE HERE."]
    plain = folding.translate(lines, align=False)
    written = {word.text for line in (0, 2) for word in words_of(plain[line].text) if word.text.isupper()}
    assert written
    for word in sorted(written):
        found = folding.translate(lines, forbid=[word], align=False, **options)
        assert word not in {one.text for line in found for one in words_of(line.text)}, word
        assert found[1].text == folding.translate(lines[1], forbid=[word], align=False, **options).text
    assert "".join(folding.live(lines[2], forbid=["auto"])) == folding.translate(lines[2], forbid=["auto"]).text


def test_terms_of_a_sentence_in_capitals(folding: Translator) -> None:
    """They are found as the line has them, in any case; in another sentence of the line case counts as ever."""
    glossary = Glossary([Term("US", ("New York",)), Term("cars", ("Auto",))])
    found = folding.translate("THE US AND THE CARS. Give us cars.", glossary=glossary)
    assert [(one.term.source, one.text, one.honoured) for one in found.terms or []] == [
        ("US", "US", True),
        ("cars", "CARS", True),
        ("cars", "cars", True),
    ]
    assert "NEW YORK" in found.text


def test_no_line_is_too_long(trained: Any, tmp_path: Path, command: Command) -> None:
    line = " ".join("abcdefgh" * 400)
    source = write_lines(tmp_path / "in.txt", [line])
    assert "more than the 1,000 that this model takes" in command("translate", trained("transformer"), source).mistake()
    done = command("translate", trained("transformer"), source, "--split", "--json")
    (found,) = map(json.loads, done.out.splitlines())
    assert found["tokens"].count("</s>") >= 3
    assert len(found["token_log_probs"]) == len(found["tokens"]) + 1


def test_the_command_and_its_shards(trained: Any, tmp_path: Path, command: Command) -> None:
    """A line with a sign that ends sentences, which the toy model does not know; the same in all ways to ask."""
    lines = ["a b ! C d", "", "e", "h ? G !"]
    source, shards = write_lines(tmp_path / "in.txt", lines), tmp_path / "shards.txt"
    plain = command("translate", trained("transformer"), source)
    split = command("translate", trained("transformer"), source, "--split")
    assert (split.code, split.err) == (0, "")
    one_by_one = ["a b !", "C d", "e", "h ?", "G !"]
    alone = command("translate", trained("transformer"), write_lines(tmp_path / "one", one_by_one)).out.splitlines()
    expected = [" ".join(filter(None, alone[:2])), "", alone[2], " ".join(filter(None, alone[3:]))]
    assert split.out.splitlines() == expected
    assert split.out != plain.out
    done = command("translate", trained("transformer"), source, "--split", "--workers", 1, "--output", shards)
    assert done.code == 0, done
    assert shards.read_text() == split.out
    assert command("translate", trained("transformer"), source, "--no-split").out == plain.out
    live = command("translate", trained("transformer"), source, "--split", "--live", "--beam", 1)
    greedy = command("translate", trained("transformer"), source, "--split", "--beam", 1)
    assert live.out == greedy.out
    linked = command("translate", trained("transformer"), source, "--split", "--align").out.splitlines()
    aligned = command("align", trained("transformer"), "--source", source)
    assert aligned.code == 0
    assert len(linked) == 4


def test_what_a_line_does_not_need_is_not_imported(trained: Any, tmp_path: Path) -> None:
    code = (
        "import sys, sightline\n"
        "model = sightline.load(sys.argv[1], split=True)\n"
        "model.translate(['a b', 'a, b', ''], align=False)\n"
        "assert not {'sentencex', 'torch'} & {*sys.modules}\n"
        "model.translate('a b ! c', align=False)\n"
        "assert 'sentencex' in sys.modules and 'torch' not in sys.modules\n"
    )
    assert environment()
    done = finish(start(trained("transformer"), code=code))
    assert (done.code, done.err) == (0, "")


def made(source: str, text: str, **more: Any) -> Translation:
    """A translation of known words, each linked to the word of its number."""
    count = len(text.split())
    return Translation(
        source,
        text,
        -1.0,
        -2.0,
        list(range(10, 10 + count)),
        text.split(),
        [-0.5] * (count + 1),
        True,
        words=text.split(),
        source_words=source.split(),
        links=[(place, place) for place in range(count)],
        weights=np.eye(count),
        **more,
    )


class Names:
    """In the place of a tokenizer."""

    def names(self, ids: list[int]) -> list[str]:
        return [str(id) for id in ids]

    def normalise(self, text: str) -> str:
        return " ".join(text.split())


SIDES: Any = type("Sides", (), {"source": Names(), "target": Names()})()
EMPTY = nothing("", align=True)


def test_copies_and_capitals_in_a_line() -> None:
    """The words of what is copied are counted and linked to nothing; what follows without a space is one word."""
    line = "😀  GO HOME!❤ now"
    parts = [
        Part("", "😀", None),
        Part("  ", "GO HOME!", "Go home!", True),
        Part("", "❤", None),
        Part(" ", "now", "now"),
    ]
    found = joined(parts, [None, made("Go home!", "geh heim!"), None, made("now", "jetzt")], SIDES, EMPTY)
    assert found.text == "😀  GEH HEIM!❤ jetzt"
    assert found.words == found.text.split()
    assert found.source_words == line.split()
    assert found.links == [(1, 1), (2, 2), (3, 3)]
    assert found.weights is not None
    np.testing.assert_array_equal(found.weights, np.diag([0, 1, 1, 1]))
    assert found.ids == [10, 11, EOS, 10]


def test_a_word_that_was_cut_in_two() -> None:
    """Its weights are the mean of its parts', as a word's are of its pieces'."""
    parts = [Part("", "xy", "xy"), Part("", "zz", "zz"), Part(" ", "w", "w")]
    found = joined(parts, [made("xy", "XY"), made("zz", "ZZ"), made("w", "W")], SIDES, EMPTY)
    assert (found.text, found.words, found.source_words) == ("XYZZ W", ["XYZZ", "W"], ["xyzz", "w"])
    assert found.links == [(0, 0), (1, 1)]
    assert found.weights is not None
    np.testing.assert_array_equal(found.weights, np.eye(2))


def test_what_was_asked_for_of_each_sentence() -> None:
    parts = [Part("", "a", "a"), Part(" ", "b", "b"), Part(" ", "7", None)]
    flag = Flag("loop", "again and again", 2.0)
    first = made("a", "X", flags=[])
    second = made("b", "Y", flags=[flag], first=made("b", "Z", flags=[flag]))
    found = joined(parts, [first, second, None], SIDES, replace(EMPTY, flags=[]))
    assert (found.text, found.flags, found.retry) == ("X Y 7", [replace(flag, sentence=2)], None)
    assert found.as_dict()["flags"][0]["sentence"] == 2
    assert found.first is not None
    assert found.first.text == "X Z 7"
    nothing_written = joined([parts[0], parts[2]], [replace(first, text=""), None], SIDES, EMPTY)
    assert nothing_written.text == "7"
    copied = joined([parts[2]], [None], SIDES, replace(EMPTY, terms=[]))
    assert (copied.text, copied.ids, copied.links, copied.terms, copied.finished) == ("7", [], [], [], True)
    cut = joined(parts[:2], [replace(first, finished=False), second], SIDES, EMPTY)
    assert (cut.finished, cut.ids) == (False, [10, 10])


@given(st.lists(st.integers(0, 5), max_size=8), st.integers(0, 20))
def test_progress_is_told_in_lines(counts: list[int], lines: int) -> None:
    seen: list[int] = []
    advance = spread(seen.append, lines, sum(counts))
    for count in counts:
        advance(count)
    assert sum(seen) == lines
