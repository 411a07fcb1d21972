"""Lines as a model of single sentences wants them: cut into parts, some of them copied. No torch here.

Four habits, each a key under `search` in the model's configuration, all off unless the model was made for them:
- `split_sentences`: sentences are translated one by one, and one that is longer than the model takes in pieces;
- `copy_symbols`: what has no letter in it that the model knows (a number, "?!"), emoji, addresses, tags, the marks of
  lists and headings are copied;
- `fold_capitals`: a sentence in capitals is translated in small letters, and its translation written in capitals;
- `plain_signs`: the model is given plain quotes, dashes and the like (`sightline.signs`).

`sightline.whole_lines` puts the translations of the parts together again.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby, pairwise

from sightline.config import RunConfig
from sightline.signs import plain_signs

Span = tuple[int, int]

# Where a line may have more than one sentence: some sign other than those that only part words or phrases, then space.
_MAY_END = re.compile(r"[^\w\s,'’‘/&+-][^\w\s]*\s+\S|\n")
_SURROGATES = re.compile("[\ud800-\udfff]")
_WIDE_SPACE = re.compile(r"[^\S\x00-\x7f]")
_PHRASE_ENDS = re.compile(r"(?<=[,;:–—)])\s+")
_SPACE = re.compile(r"\s+")
_COLUMN = re.compile(r"[^\t]+\t*|\t+")
_BREAKS = re.compile(r"\n+")
SHORT_LINE = 40  # characters: who breaks a text into lines makes longer ones, but for the last
# In these languages a full stop makes an ordinal of a number, and a sentence goes on: "im 3. Stock".
_ORDINALS = frozenset(["cs", "da", "de", "fi", "hr", "hu", "nb", "nn", "no", "pl", "sk", "sl", "tr"])
_ORDINAL = re.compile(r"\w.*\b\d{1,3}\.\s*", re.DOTALL)
# A web address without the mark that ends its sentence, an e-mail address, a tag, a face. Nothing is tried twice
# (`++`), or a line of a hundred thousand letters would take minutes.
_COPIED = re.compile(
    r"""(?:https?://|www\.)\S*[^\s.,;:!?)\]'"»“”]|(?<![\w.+-])[\w.+-]++@[\w-]+(?:\.[\w-]+)+"""
    r"""|</?[A-Za-z][\w:-]*+(?:\s++[\w:-]++=(?:"[^"<>]*"|'[^'<>]*'|[^\s<>"']++))*+\s*+/?>"""
    r"""|(?<!\S)(?:[:;=]['’]?-?[()\[\]DPp|/\\]|<3+|\^\^)(?!\S)"""  # a face or a heart of ASCII
)
# What a list, a heading or a quotation begins with, and marks around a whole sentence.
_BEGINS = re.compile(r"\s*(?:(?:[-–—•‣◦·*+#>]+|\d{1,3}\))\s+|[*_`~]++)(?=\S)")
_ENDS = re.compile(r"(?<=[^\s*_`~])[*_`~]+\s*\Z")
# Symbols before the arrows, such as ° and ©, belong to words; so do those of ASCII.
FIRST_SYMBOL = 0x2190
# What an emoji may consist of beside symbols: joiners, variation selectors, skin tones, enclosing keycaps, tags.
_PARTS_OF_SYMBOLS = re.compile("[\u200d\ufe0e\ufe0f\u20e3\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f]")
# A word of so many letters, or two words of two, are capitals and no abbreviation.
LETTERS_OF_A_WORD = 4


@dataclass(frozen=True)
class Part:
    """A stretch of a line.

    `gap` is the white space before it, `text` how the line has it. `told` is what the model is given for it; None when
    it is copied. `large`: its translation is to be written in capitals.
    """

    gap: str
    text: str
    told: str | None
    large: bool = False


@dataclass(frozen=True)
class Preparation:
    """How lines are prepared. `language` tells whose sentences they are, `tokens` counts those of a text, of which the
    model takes `most` at once, and `letters` are those it knows, small; None: all there are."""

    split: bool
    copy: bool
    capitals: bool
    language: str
    most: int
    tokens: Callable[[str], int]
    letters: Callable[[], frozenset[str]] | None = None
    plain: bool = False

    def parts(self, line: str) -> list[Part]:
        """The parts of a line, in their order: none of it is lost but the white space around it without a tab."""
        found: list[Part] = []
        end = 0
        for start, after, copied in self._spans(line):
            text = line[start:after]
            copied = copied or (self.copy and not self._knows(text))
            large = self.capitals and not copied and in_capitals(text)
            told = small(text) if large else text
            told = plain_signs(told, self.language) if self.plain else told
            found.append(Part(_gap(line[end:start], bool(found)), text, None if copied else told, large))
            end = after
        if found and "\t" in line[end:]:  # empty columns
            found.append(Part(line[end:], "", None))
        return found

    def _knows(self, text: str) -> bool:
        """Whether there is a letter in it that the model knows."""
        letters = [character for character in text.casefold() if character.isalpha()]
        # Letters of ASCII are known to be known, so that most texts are not looked through.
        return self.letters is None or any(map(str.isascii, letters)) or not self.letters().isdisjoint(letters)

    def _spans(self, line: str) -> Iterator[tuple[int, int, bool]]:
        """Where parts begin and end, without white space around them, and whether they are copied."""
        for sentence in sentence_spans(line, self.language) if self.split else [(0, len(line))]:
            for start, end, copied in copied_parts(line, sentence) if self.copy else [(*sentence, False)]:
                for span in self._pieces(line, (start, end)) if self.split and not copied else [(start, end)]:
                    first, last = trimmed(line, span)
                    if first < last:
                        yield first, last, copied

    def _pieces(self, line: str, span: Span) -> Iterator[Span]:
        """A sentence, in halves of halves if it is too long: at the end of a phrase if one ends there, at a space, or
        where there is none in the midst of a word."""
        start, end = span
        text = line[start:end]
        # Every byte may be a token, and the space before every word.
        longest = len(text.encode(errors="replace")) + len(text.split())
        if longest <= self.most or len(text) < 2 or self.tokens(text) <= self.most:
            yield span
            return
        middle = start + _middle(text)
        yield from self._pieces(line, (start, middle))
        yield from self._pieces(line, (middle, end))


def _gap(space: str, begun: bool) -> str:
    """The white space before a part; before the first one only columns count."""
    return space if begun or "\t" in space else ""


def preparation(
    config: RunConfig,
    most: int,
    tokens: Callable[[str], int],
    letters: Callable[[], frozenset[str]] | None = None,
) -> Preparation | None:
    """How a model of this configuration wants its lines; None when it takes them as they are."""
    search = config.search
    most = min(most, search.max_piece or most)
    habits = (search.split_sentences, search.copy_symbols, search.fold_capitals)
    language = config.data.source_language or "en"
    wanted = Preparation(*habits, language, most, tokens, letters, search.plain_signs)
    return wanted if any((*habits, search.plain_signs)) else None


def sentence_spans(line: str, language: str) -> list[Span]:
    """Where the sentences of a line begin and end; all of it is in one of them. They end at white space only.

    What stands in columns, with tabs between them, is of different sentences, and so is what stands on short lines.
    """
    found: list[Span] = []
    for column in _COLUMN.finditer(line):
        for start, end in pairwise(_line_ends(line, column.start(), column.end())):
            found += [(start + one, start + other) for one, other in _block_spans(line[start:end], language)]
    return found or [(0, 0)]


def _line_ends(text: str, start: int, end: int) -> list[int]:
    """Where a column begins, where a short line of it ends, and where the column does."""
    found = [start]
    begin = start
    for breaks in _BREAKS.finditer(text, start, end):
        if len(text[begin : breaks.start()].strip()) < SHORT_LINE:
            found.append(breaks.end())
        begin = breaks.end()
    return found if found[-1] == end else [*found, end]


def _block_spans(line: str, language: str) -> list[Span]:
    if not _MAY_END.search(line):
        return [(0, len(line))]
    import sentencex

    # A lone surrogate is no character to others, and sentencex takes every space before a full stop for a single byte;
    # as many characters stand in their places.
    plain = _WIDE_SPACE.sub(" ", _SURROGATES.sub("\ufffd", line))
    found = [len(one) for one in sentencex.segment(language, plain)]
    ends, end = [0], 0
    for length in found:
        end += length
        if end == len(line) or line[end - 1 : end].isspace() or line[end : end + 1].isspace():
            ends.append(end)
    if sum(found) != len(line):  # should it leave something out one day
        return [(0, len(line))]
    spans: list[Span] = []
    for start, end in pairwise(ends):
        goes_on = spans and language in _ORDINALS and _ORDINAL.fullmatch(line[slice(*spans[-1])].lstrip())
        spans.append((spans.pop()[0], end) if goes_on else (start, end))
    return spans


def copied_parts(line: str, sentence: Span) -> list[tuple[int, int, bool]]:
    """A sentence in parts that are translated, and parts that are copied, which the last of each three tells.

    Copied are emoji, addresses and tags, and what has no letters between them.
    """
    start, end = sentence
    cuts = [start, *(start + place for span in _as_they_are(line[start:end]) for place in span), end]
    spans = [(one, other, copied % 2 == 1) for copied, (one, other) in enumerate(pairwise(cuts)) if one < other]
    return [
        (one, other, copied or not any(character.isalpha() for character in line[one:other]))
        for one, other, copied in spans
    ]


def _as_they_are(text: str) -> list[Span]:
    """Where emoji, addresses, tags and the marks around a sentence stand, in their order; none within another."""
    found: list[Span] = []
    end, last = 0, len(text)
    if begins := _BEGINS.match(text):
        found.append(begins.span())
        end = begins.end()
    ends = _ENDS.search(text, end) if text[-1:] in "*_`~" or text[-1:].isspace() else None
    last = ends.start() if ends else last
    for match in _COPIED.finditer(text, end, last):
        found += [*_symbols(text, end, match.start()), match.span()]
        end = match.end()
    return [*found, *_symbols(text, end, last), *([ends.span()] if ends else [])]


def _symbols(text: str, start: int, end: int) -> Iterator[Span]:
    """Where emoji stand in a stretch of a text."""
    if text[start:end].isascii():
        return
    for picture, characters in groupby(text[start:end], is_symbol):
        first, start = start, start + len(list(characters))
        if picture:
            yield first, start


def is_symbol(character: str) -> bool:
    """Whether this is an emoji or another picture, or a part of one."""
    if character.isascii():
        return False
    picture = ord(character) >= FIRST_SYMBOL and unicodedata.category(character) == "So"
    return picture or _PARTS_OF_SYMBOLS.match(character) is not None


def in_capitals(text: str) -> bool:
    """Whether all letters are large, and there are enough of them to be no abbreviation."""
    if not text.replace("ß", "").isupper():  # which has a large form that hardly anybody types
        return False
    letters = [sum(map(str.isalpha, word)) for word in text.split()]
    return max(letters) >= LETTERS_OF_A_WORD or sum(count >= 2 for count in letters) >= 2


def small(text: str) -> str:
    """Text in small letters, but for the first."""
    lower = text.lower()
    first = next((place for place, character in enumerate(lower) if character.isalpha()), 0)
    return lower[:first] + lower[first : first + 1].upper() + lower[first + 1 :]


def trimmed(line: str, span: Span) -> Span:
    """The span without the white space around it."""
    start, end = span
    text = line[start:end]
    return start + len(text) - len(text.lstrip()), end - len(text) + len(text.rstrip())


def _middle(text: str) -> int:
    """Where to cut a text in two: nearest to its middle, in its inner half if a phrase ends there."""
    half = len(text) / 2
    for pattern, reach in ((_PHRASE_ENDS, half / 2), (_SPACE, half)):
        found = [match.end() for match in pattern.finditer(text) if abs(match.end() - half) < reach]
        if found:
            return min(found, key=lambda place: abs(place - half))
    return len(text) // 2
