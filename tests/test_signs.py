"""Signs in the forms that a small vocabulary has."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sightline.sentences import Preparation
from sightline.signs import plain_signs


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        ("en", "“Where?” he’s asking…", '"Where?" he\'s asking...'),
        ("de", "»Wo bist du?«, fragte sie.", "„Wo bist du?“, fragte sie."),
        ("de", "«Wo bist du?», fragte sie.", "„Wo bist du?“, fragte sie."),
        ("de", "Er sagte: „Ja!”", "Er sagte: „Ja!“"),
        ("de", "Er sagte: „Ja!“", "Er sagte: „Ja!“"),
        ("fr", "« Oui »", '" Oui "'),
        ("en", "Tom & Mary — at AT&T", "Tom and Mary - at AT&T"),
        ("de", "Tom & Maria", "Tom und Maria"),
        ("fr", "Tom & Marie", "Tom & Marie"),
        ("en", "[Note] Ｈｅｌｌｏ，Tom！", "(Note) Hello,Tom!"),
        ("en", "\ufeffWhere is\u200b it?\x1b", "Where is it?"),
        ("en", "This is *very* __good__, `really`.", "This is very good, really."),
        ("en", "2 * 3 and a_b", "2 * 3 and a_b"),
        ("en", "a \u200b b", "a \u200b b"),  # as many words as before, or none of it
        ("en", "Hello\u2028world\x0cA\xa0dog\u2009sleeps.", "Hello world A dog sleeps."),
        ("en", "page\x0cbreak", "page break"),
        ("en", "Nothing to do.", "Nothing to do."),
    ],
)
def test_plain_signs(language: str, text: str, expected: str) -> None:
    assert plain_signs(text, language) == expected


@given(st.text(max_size=40), st.sampled_from(["en", "de", "fr"]))
def test_words_stay_as_many(text: str, language: str) -> None:
    plain = plain_signs(text, language)
    assert len(plain.split()) == len(text.split())
    assert plain_signs(plain, language) == plain or "\u200b" in text or not text.isprintable()


def test_the_model_is_told_them_and_the_line_keeps_its_own() -> None:
    plain = Preparation(True, True, True, "en", 100, lambda text: len(text.split()), plain=True)
    (part,) = plain.parts("TOM’S DOG & HIS CAT…")
    assert (part.text, part.told, part.large) == ("TOM’S DOG & HIS CAT…", "Tom's dog and his cat...", True)
