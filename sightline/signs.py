"""Signs as a small vocabulary has them: quotes, dashes and the like in their plain forms. No torch here."""

from __future__ import annotations

import re
import unicodedata

_PLAIN = str.maketrans(
    {
        **dict.fromkeys("‘’‚‛´′‹›", "'"),
        **dict.fromkeys("‐‑‒–—―−", "-"),
        **{chr(wide): chr(wide - 0xFEE0) for wide in range(0xFF01, 0xFF5F)},  # as wide as a character of Chinese
        **dict.fromkeys("[{", "("),
        **dict.fromkeys("]}", ")"),
        "…": "...",
        # White space of other kinds, lines' and pages' ends within a line among it.
        **dict.fromkeys("\x0b\x0c\x1c\x1d\x1e\x1f\x85\u2028\u2029\xa0\u1680\u202f\u205f\u3000", " "),
        **dict.fromkeys(map(chr, range(0x2000, 0x200B)), " "),
    }
)
_QUOTES = re.compile("[“”„‟″«»]")
_LANGUAGE_QUOTES = {"de": "„“"}  # what opens and what closes; elsewhere both are "
_AND = {"en": "and", "de": "und"}
_ALONE = re.compile(r"(?<!\S)&(?!\S)")
# Of Markdown, around words.
_EMPHASIS = re.compile(r"(?<!\S)[*_`~]+(?=\w)|(?<=\w)[*_`~]+(?![\w*_`~])|(?<=[.,;:!?])[*_`~]+(?!\S)")


def plain_signs(text: str, language: str) -> str:
    """Text with plain signs for those that mean the same, and without what nobody sees; its words stay as many."""
    if text.isascii() and not _UNUSUAL.search(text):
        return text
    found = _QUOTES.sub(lambda quote: _quote(quote, language), text.translate(_PLAIN))
    if and_ := _AND.get(language):
        found = _ALONE.sub(and_, found)
    plain = _EMPHASIS.sub("", "".join(character for character in found if not _hidden(character)))
    return plain if len(plain.split()) == len(text.split()) else text


# What is changed of ASCII.
_UNUSUAL = re.compile(r"[\[\]{}&*_`~\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


def _quote(found: re.Match[str], language: str) -> str:
    """A quotation mark as the language has it: » and « open here and close there, so what follows decides."""
    pair = _LANGUAGE_QUOTES.get(language, '""')
    if found[0] == "„":
        return pair[0]
    if found[0] in "”‟″" or (found[0] == "“" and language == "de"):
        return pair[1]
    text, end = found.string, found.end()
    return pair[0] if end < len(text) and text[end].isalnum() else pair[1]


def _hidden(character: str) -> bool:
    """Whether this is a sign that is not seen, and no white space."""
    return unicodedata.category(character) in ("Cc", "Cf") and not character.isspace()
