"""Filters: what each rule drops, scripts, and the account of it."""

from __future__ import annotations

import pytest

from sightline.errors import SightlineError
from sightline.filters import Account, Example, Filters, Verdict, shortened
from sightline.readers import Pair
from sightline.scripts import script_words, share_of_script

GOOD = Pair("a house", "ein Haus")


@pytest.mark.parametrize(
    ("rules", "pair", "verdict"),
    [
        ({}, GOOD, Verdict.TRAIN),
        ({}, Pair(" \u3000", "x"), Verdict.EMPTY),
        ({}, Pair("x", ""), Verdict.EMPTY),
        ({"longest": 2}, Pair("a b c", "x"), Verdict.TOO_LONG),
        ({"longest": 2}, Pair("a", "x" * 65), Verdict.TOO_LONG),
        ({"longest": 2}, Pair("a b", "x" * 64), Verdict.TRAIN),
        ({"ratio": 2}, Pair("abcd", "ab"), Verdict.TRAIN),
        ({"ratio": 2}, Pair("ab", "abcde"), Verdict.RATIO),
        ({"ratio": 2}, Pair("abcde", " ab "), Verdict.RATIO),
        ({}, Pair("same", "same"), Verdict.TRAIN),
        ({"identical": True}, Pair("same", " same"), Verdict.IDENTICAL),
        ({"identical": True}, Pair("same", "Same"), Verdict.TRAIN),
        ({"source_script": "Latin"}, Pair("дом", "дом"), Verdict.SCRIPT),
        ({"target_script": "cyrillic"}, Pair("a house", "дом"), Verdict.TRAIN),
        ({"target_script": "Cyrillic"}, Pair("a house", "дом!"), Verdict.TRAIN),
        ({"target_script": "Cyrillic"}, Pair("1.", "2."), Verdict.TRAIN),
        ({"target_script": "Cyrillic"}, Pair("x", "дом Windows"), Verdict.SCRIPT),
        ({"target_script": "Cyrillic", "script_share": 0.3}, Pair("x", "дом Windows"), Verdict.TRAIN),
        ({"target_script": "Japanese"}, Pair("x", "これは本です"), Verdict.TRAIN),
        ({"target_script": "Han"}, Pair("x", "これは本です"), Verdict.SCRIPT),
    ],
)
def test_rules(rules: dict[str, object], pair: Pair, verdict: Verdict) -> None:
    assert Filters(**{"longest": 250, **rules}).judge()(pair) == verdict  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "script", "share"),
    [
        ("", "Latin", 1.0),
        ("123 !?", "Latin", 1.0),
        ("ab вг", "Latin", 0.5),
        ("ab вг", "Cyrillic", 0.5),
        ("größer Œuvre", "Latin", 1.0),
        ("ＡＢ", "Latin", 1.0),
        ("한국어", "Korean", 1.0),
        ("ｶﾅ", "Katakana", 1.0),
        ("ελ ሰላም", "Greek", 0.4),
    ],
)
def test_scripts(text: str, script: str, share: float) -> None:
    assert share_of_script(text, script_words(script)) == pytest.approx(share)


def test_an_unknown_script() -> None:
    with pytest.raises(SightlineError, match="unknown script 'cyrilic'; did you mean 'Cyrillic'"):
        Filters(250, source_script="cyrilic").judge()


class TestAccount:
    def test_one_line(self) -> None:
        assert str(Account(1)) == "1 pair"
        assert str(Account(60_000)) == "60,000 pairs"
        dropped = {Verdict.TOO_LONG: 2, Verdict.EMPTY: 1200, Verdict.DUPLICATE: 1, Verdict.RATIO: 0}
        assert str(Account(3, dropped)) == "3 pairs; dropped 1,200 with an empty side, 2 too long, 1 seen before"

    def test_examples(self) -> None:
        account = Account(3, {Verdict.IDENTICAL: 1}, {Verdict.IDENTICAL: [Example("a.tsv, line 4", "x", "x")]})
        assert account.lines() == ["  with identical sides: a.tsv, line 4: x | x"]
        assert account.as_dict() == {
            "kept": 3,
            "dropped": {
                "identical": {
                    "count": 1,
                    "meaning": "with identical sides",
                    "examples": [{"where": "a.tsv, line 4", "source": "x", "target": "x"}],
                }
            },
        }

    def test_shortened(self) -> None:
        assert shortened(" a  b\n") == "a b"
        assert len(shortened("word " * 100_000)) == 60
        assert shortened("x" * 61).endswith("x…")
