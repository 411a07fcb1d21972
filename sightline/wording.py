"""Words of a text, and how a vocabulary spells them: what glossaries and lists of words are matched by. No torch.

A word is a run of letters, digits and the marks that combine with them. In scripts that put no spaces between words
every letter stands alone, so that a term is found wherever its letters are; so does every punctuation mark.
"""

from __future__ import annotations

import heapq
import math
import unicodedata
from collections.abc import Iterator
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple

from sightline.files import read_lines
from sightline.scripts import first_word
from sightline.tokenizers import BYTE_PIECES, UNK, Tokenizer

UNSPACED = {"CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN"}


class Word(NamedTuple):
    """A word or a mark of a text, and whether white space stands before it."""

    text: str
    spaced: bool


def words(text: str) -> list[Word]:
    """The words and marks of a text in normal form C, in their order."""
    text = unicodedata.normalize("NFC", text)
    found: list[Word] = []
    start, spaced = 0, True
    for end in range(1, len(text) + 1):
        kind = _kind(text[start])
        if end < len(text) and kind == "word" == _kind(text[end]):
            continue
        if kind != "space":
            found.append(Word(text[start:end], spaced))
        start, spaced = end, kind == "space"
    return found


def is_unspaced(character: str) -> bool:
    """Whether it is a letter of a script that puts no spaces between words."""
    return first_word(character) in UNSPACED


def listed_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a file, numbered, but for blank ones and comments, which begin with #."""
    for number, line in enumerate(read_lines(path), 1):
        if line.strip() and not line.startswith("#"):
            yield number, line


@lru_cache(maxsize=8)
def inside_words(tokenizer: Tokenizer) -> frozenset[int]:
    """The ids that go on with a word when they follow a letter: they begin with a letter, a digit or part of one."""
    found = set()
    for id in range(tokenizer.size):
        surface = tokenizer.surface(id)
        first = surface.decode("utf-8", "ignore")[:1]
        # A lone byte beyond ASCII is a part of some character, most likely a letter.
        if surface and (not first or _kind(first) == "word"):
            found.add(id)
    return frozenset(found)


def spellings(tokenizer: Tokenizer, text: str, most: int) -> list[tuple[int, ...]]:
    """Ways to spell exactly this text (a space stays a space) in ids, those of fewest ids first, at most `most`.

    The way that the tokenizer itself takes need not be the first.
    """
    data = text.encode()
    entries, longest = _entries(tokenizer)
    # For each position the entries that stand there, by their ends, and the fewest of them to the end of the text.
    steps: list[list[tuple[int, int]]] = [[] for _ in data]
    left = [math.inf] * len(data) + [0.0]
    for start in reversed(range(len(data))):
        for end in range(start + 1, min(len(data), start + longest) + 1):
            entry = entries.get(data[start:end])
            if entry is not None and left[end] < math.inf:
                steps[start].append((end, entry))
                left[start] = min(left[start], left[end] + 1)
    waiting: list[tuple[float, int, tuple[int, ...]]] = [(left[0], 0, ())] if left[0] < math.inf else []
    found: list[tuple[int, ...]] = []
    while waiting and len(found) < most:
        _, start, ids = heapq.heappop(waiting)
        if start == len(data):
            found.append(ids)
            continue
        for end, entry in steps[start]:
            heapq.heappush(waiting, (len(ids) + 1 + left[end], end, (*ids, entry)))
    return found


def inner_ids(tokenizer: Tokenizer, text: str, before: str = "a ") -> tuple[int, ...] | None:
    """The ids that a tokenizer gives `text` after `before`; None when one of them reaches over both."""
    ids = tokenizer.encode(before + text)
    head = tokenizer.encode(before)
    return tuple(ids[len(head) :]) if ids[: len(head)] == head else None


@lru_cache(maxsize=8)
def _entries(tokenizer: Tokenizer) -> tuple[dict[bytes, int], int]:
    """What a vocabulary spells with: ids by their bytes, and the length of the longest.

    A lone byte is spelled as such only where no entry has it as a character.
    """
    written = [id for id in range(tokenizer.size) if tokenizer.surface(id) and id != UNK]
    lone = set(BYTE_PIECES)
    written.sort(key=lambda id: tokenizer.piece(id) not in lone)  # so that a character comes after its byte
    entries = {tokenizer.surface(id): id for id in written}
    return entries, max(map(len, entries), default=0)


@cache
def _kind(character: str) -> str:
    if character.isspace():
        return "space"
    if is_unspaced(character):
        return "alone"
    letter = character.isalnum() or character == "_" or unicodedata.category(character).startswith("M")
    return "word" if letter else "mark"
