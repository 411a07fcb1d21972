"""Which script a letter belongs to, told from its Unicode name: `CYRILLIC SMALL LETTER A` is Cyrillic."""

from __future__ import annotations

import unicodedata
from functools import cache

from sightline.errors import SightlineError, nearest

_ONE_WORD = """
    Latin Cyrillic Greek Arabic Hebrew Armenian Georgian Devanagari Bengali Gurmukhi Gujarati Oriya Tamil Telugu Kannada
    Malayalam Sinhala Thai Lao Tibetan Myanmar Khmer Ethiopic Cherokee Mongolian Syriac Thaana Hangul Hiragana Katakana
"""
# Scripts by the first word of their letters' names; the last two are what a language writes with.
SCRIPTS: dict[str, tuple[str, ...]] = {
    **{name: (name.upper(),) for name in _ONE_WORD.split()},
    "Han": ("CJK",),
    "Japanese": ("CJK", "HIRAGANA", "KATAKANA"),
    "Korean": ("HANGUL", "CJK"),
}
_WIDTHS = ("FULLWIDTH", "HALFWIDTH")


def script_words(name: str) -> frozenset[str]:
    """The first words that a script's letters have in their names."""
    for known, words in SCRIPTS.items():
        if known.lower() == name.lower():
            return frozenset(words)
    raise SightlineError(f"unknown script '{name}'; {nearest(name.capitalize(), SCRIPTS)}")


@cache
def first_word(character: str) -> str | None:
    """The first word of a letter's Unicode name; None for what is no letter, or belongs to no script."""
    if not character.isalpha():
        return None
    words = unicodedata.name(character, "").split()
    if words and words[0] in _WIDTHS:
        words = words[1:]
    return words[0].split("-")[0] if words and words[0] not in ("MODIFIER", "MATHEMATICAL") else None


def share_of_script(text: str, words: frozenset[str]) -> float:
    """The share of a sentence's letters that are of a script; 1 for a sentence without letters."""
    found = [word for word in map(first_word, text) if word is not None]
    return sum(word in words for word in found) / len(found) if found else 1.0
