"""What users type first, given to every model that comes with Sightline; expectations are loose on purpose.

`tests/test_sentences.py` has what needs no weights.
"""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest

import sightline
from sightline.bundled_models import bundled_models
from sightline.translator import Translator

NAMES = sorted(bundled_models())
LONG = {
    "en": "We went to the station, because the train was late, and we waited, and nobody came, and it was cold, " * 12,
    "de": "Wir gingen zum Bahnhof, weil der Zug zu spät war, und wir warteten, und niemand kam, und es war kalt, " * 12,
}
# Greetings, wishes and the like are idioms, learnt by heart (`examples/bundled/phrases.tsv`); lines at the end, marked
# with an asterisk, are neither there nor in the corpus nor in the text of the last rounds.
# For each language of the source: a line, and what must be in the translation (small letters), one of those between |.
LINES: dict[str, dict[str, tuple[str, ...]]] = {
    "en": {
        "a word": ("house", "haus"),
        "another word": ("Water", "wasser"),
        "a question": ("Where is the station?", "bahnhof"),
        "no question mark": ("where is the station", "bahnhof"),
        "names": ("Tom and Mary live in Boston.", "tom", "mar", "boston"),
        "numbers": ("I have 3 dogs and 12 cats.", "3|drei", "12|zwölf"),
        "all capitals": ("WHERE IS THE STATION?", "BAHNHOF"),
        "no full stop": ("I am very tired", "müde"),
        "two sentences": ("I am tired. Where is the station?", "müde", "bahnhof"),
        "an emoji": ("I love you ❤️", "❤️"),
        "emoji attached": ("I am tired!😀", "😀"),
        "a face": ("I love you :)", ":)"),
        "a goodbye": ("Goodbye!", "wiedersehen|tschüss"),
        "a wish": ("Merry Christmas!", "weihnachten"),
        "a name the corpus hardly has": ("My name is Sarah.", "sarah"),
        "whose": ("Peter's wife is a doctor.", "peters frau|peters ehefrau"),
        "a town with two names": ("I live in Munich.", "münchen"),
        "a price": ("The price is $20.", "20 dollar|20 $"),
        "a large price": ("It costs $12,500.", "12.500"),
        "a time": ("The meeting is at 10:30.", "10:30|10.30"),
        "a date": ("On March 3rd, 1998, he died.", "3. märz 1998"),
        "a time with its half of the day": ("The meeting is at 5:30 pm.", "17:30"),
        "a telephone number": ("My phone number is 555-1234.", "555-1234"),
        "counting": ("one two three", "eins zwei drei"),
        "a title": ("I know Mr. Smith.", "herrn smith"),
        "two titles": ("Mr. and Mrs. Brown live in London.", "herr und frau brown"),
        "a title in a greeting": ("Good morning, Mrs. Miller!", "frau miller"),
        "curly quotes": ("“Where is the station?” he asked.", "bahnhof"),
        "an ampersand": ("Tom & Mary are here.", "tom und mar"),
        "a short goodbye": ("Bye!", "tschüs|wiedersehen"),
        "an answer to thanks": ("You're welcome.", "gern|bitte|keine ursache"),
        "a birthday": ("Happy birthday!", "geburtstag"),
        "a new year": ("Happy New Year!", "neues jahr"),
        "a numeral": ("twenty-three", "dreiundzwanzig"),
        "half an hour": ("It's half past seven.", "halb acht"),
        "a quarter of an hour": ("It's a quarter past seven.", "viertel nach sieben"),
        "what fonts are shown with": ("The quick brown fox jumps over the lazy dog.", "fuchs", "hund"),
        "no apostrophe": ("I dont understand", "verstehe", "nicht"),
        "a mark of a list": ("- Where is the station?", "- wo"),
        "of Markdown": ("**Where is the station?**", "bahnhof?**"),
        "* a way": ("Could you show me the way to the museum?", "weg zum museum"),
        "* a thing lost": ("I forgot my umbrella on the bus.", "regenschirm", "bus", "vergessen"),
        "* a family": ("My sister has two cats and a dog.", "schwester", "zwei katzen", "einen hund"),
        "* a reproach": ("Why didn't you call me yesterday?", "warum", "nicht", "gestern"),
        "* a numeral": ("My grandmother is eighty-four years old.", "vierundachtzig"),
    },
    "de": {
        "a word": ("Haus", "house|home"),
        "another word": ("Wasser", "water"),
        "a question": ("Wo ist der Bahnhof?", "station"),
        "no question mark": ("wo ist der bahnhof", "station"),
        "names": ("Tom und Maria wohnen in Boston.", "tom", "mar", "boston"),
        "numbers": ("Ich habe 3 Hunde und 12 Katzen.", "3|three", "12|twelve"),
        "all capitals": ("WO IST DER BAHNHOF?", "STATION"),
        "no full stop": ("Ich bin sehr müde", "tired"),
        "two sentences": ("Ich bin müde. Wo ist der Bahnhof?", "tired", "station"),
        "an emoji": ("Ich liebe dich ❤️", "❤️"),
        "emoji attached": ("Ich bin müde!😀", "😀"),
        "a face": ("Ich liebe dich :)", ":)"),
        "a goodbye": ("Auf Wiedersehen!", "bye|see you"),
        "a wish": ("Frohe Weihnachten!", "christmas"),
        "a name the corpus hardly has": ("Ich heiße Sarah.", "sarah"),
        "whose": ("Peters Frau ist Ärztin.", "peter's wife"),
        "a town with two names": ("Ich wohne in München.", "munich"),
        "a price": ("Es kostet 20 Euro.", "20"),
        "a large price": ("Der Preis beträgt 12.500 $.", "12,500"),
        "a time of the afternoon": ("Der Bus kommt um 21:15 Uhr.", "21:15|9:15 p"),
        "a time": ("Die Besprechung ist um 10:30 Uhr.", "10:30"),
        "a date": ("Am 3. März 1998 starb er.", "1998"),
        "a telephone number": ("Meine Telefonnummer ist 555-1234.", "555-1234"),
        "counting": ("eins zwei drei", "one two three"),
        "a title": ("Herr Schmidt ist da.", "mr. schmidt|mr schmidt"),
        "two titles": ("Herr und Frau Braun wohnen in London.", "mr. and mrs. braun|mr and mrs braun"),
        "a title in a greeting": ("Guten Tag, Frau Müller!", "mrs. müller|ms. müller|miss müller"),
        "guillemets": ("»Wo ist der Bahnhof?«, fragte er.", "station"),
        "an ampersand": ("Tom & Maria sind hier.", "tom and mar"),
        "an ordinal": ("Ich wohne im 3. Stock.", "third|3"),
        "capitals with ß": ("WO IST DIE STRAßE?", "STREET|ROAD"),
        "a short goodbye": ("Tschüss!", "bye"),
        "thanks": ("Danke schön!", "thank"),
        "an answer to thanks": ("Gern geschehen.", "welcome|pleasure|mention"),
        "a toast": ("Prost!", "cheers"),
        "before a meal": ("Guten Appetit!", "meal|appetit"),
        "a birthday": ("Alles Gute zum Geburtstag!", "happy birthday"),
        "a numeral": ("dreiundzwanzig", "twenty-three"),
        "half an hour": ("Es ist halb acht.", "half past seven|7:30|seven thirty"),
        "a quarter of an hour": ("Es ist Viertel nach sieben.", "quarter past seven|quarter after seven"),
        "ss for ß": ("ich weiss es nicht", "don't know|do not know|no idea"),
        "a mark of a list": ("- Wo ist der Bahnhof?", "- where"),
        "of Markdown": ("**Wo ist der Bahnhof?**", "station?**"),
        "* a way": ("Können Sie mir sagen, wo der Bahnhof ist?", "tell me", "station"),
        "* a meeting": ("Ich habe gestern einen alten Freund getroffen.", "old friend", "yesterday"),
        "* a family": ("Meine Schwester hat zwei Katzen und einen Hund.", "sister", "two cats", "a dog"),
        "* a house": ("Wir suchen ein kleines Haus am Meer.", "small house", "sea"),
        "* a numeral": ("Meine Großmutter ist vierundachtzig Jahre alt.", "eighty-four|84"),
    },
}
PARAGRAPH = {
    "en": "Good morning! My name is Tom. I live in Boston. I have two children. Where is the station? Thank you.",
    "de": "Guten Morgen! Ich heiße Tom. Ich wohne in Boston. Ich habe zwei Kinder. Wo ist der Bahnhof? Danke.",
}
# Of each sentence a word of its translation.
SAID = {
    "de": ("morgen", "tom", "boston", "kinder", "bahnhof", "dank"),
    "en": ("morning", "tom", "boston", "child|kids", "station", "thank"),
}
AS_THEY_ARE = ("", "42", "?!", "😀", "12:30", ":)", "これはペンです。", "\t\t42\t")


@cache
def translator(name: str) -> Translator:
    return sightline.load(name)


def translated(name: str, line: str) -> str:
    return translator(name).translate(line, align=False, token_scores=False).text


def loops(text: str, most: int = 3) -> bool:
    """Whether three words come again and again, more than so many times."""
    words = text.lower().split()
    runs = Counter(zip(words, words[1:], words[2:], strict=False))
    return max(runs.values(), default=0) > most


def test_both_are_there() -> None:
    assert NAMES == ["de-en", "en-de"]


@pytest.mark.parametrize(("name", "kind"), [(name, kind) for name in NAMES for kind in LINES[name.partition("-")[0]]])
def test_first_attempts(name: str, kind: str) -> None:
    line, *expected = LINES[name.partition("-")[0]][kind]
    found = translated(name, line)
    wanted = found if "capitals" in kind else found.lower()
    assert all(any(word in wanted for word in words.split("|")) for words in expected), found
    assert len(found) <= 3 * len(line) + 20
    assert not loops(found)


@pytest.mark.parametrize("name", NAMES)
def test_what_needs_no_translation(name: str) -> None:
    assert [translated(name, line) for line in AS_THEY_ARE] == list(AS_THEY_ARE)


@pytest.mark.parametrize("name", NAMES)
def test_no_sentence_of_a_paragraph_is_dropped(name: str) -> None:
    line = PARAGRAPH[name.partition("-")[0]]
    found = translated(name, line)
    assert sum(found.count(mark) for mark in ".!?") == 6
    assert all(any(word in found.lower() for word in words.split("|")) for words in SAID[name.partition("-")[2]]), found
    assert not loops(found)
    assert 0.5 < len(found) / len(line) < 2


@pytest.mark.parametrize("name", NAMES)
def test_a_shopping_list(name: str) -> None:
    lines = ["water", "bread", "milk"] if name.startswith("en") else ["Wasser", "Brot", "Milch"]
    expected = ["wasser", "brot", "milch"] if name.startswith("en") else ["water", "bread", "milk"]
    assert translated(name, "\n".join(lines)).lower().split("\n") == expected


@pytest.mark.parametrize("name", NAMES)
def test_a_line_in_the_wrong_language_comes_back_in_some_form(name: str) -> None:
    line = LINES[name.partition("-")[2]]["a question"][0]
    found = translated(name, line)
    assert found
    assert len(found) <= 3 * len(line)
    assert not loops(found)


@pytest.mark.parametrize("name", NAMES)
def test_a_sentence_without_end(name: str) -> None:
    line = LONG[name.partition("-")[0]]
    found = translated(name, line)
    assert 0.4 < len(found) / len(line) < 2.5
    assert not loops(found, max(3, line.count(",")))


@pytest.mark.parametrize("name", NAMES)
def test_all_of_it_is_aligned_to_words_that_are_there(name: str) -> None:
    one = translator(name).translate(PARAGRAPH[name.partition("-")[0]] + " 😀")
    assert one.words == one.text.split()
    assert one.source_words == one.source.split()
    assert one.links
    assert all(source < len(one.source_words) and target < len(one.words) for source, target in one.links)
