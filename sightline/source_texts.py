"""Several sources as text: one line with tabs between them, and one sequence of ids with end symbols between them.

So a line of several sources goes wherever a line goes, and its ids wherever ids go; only who makes a batch of ids takes
them apart again (`sightline.batch.apart`). A source may be empty: it is missing. No torch here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sightline.errors import SightlineError
from sightline.tokenizers import EOS, Tokenizer

BETWEEN = "\t"
DIVIDER = "│"
"""Stands between the words of two sources where they are shown."""


def joined(texts: Iterable[str]) -> str:
    """Sources as one line; a tab inside one of them becomes a space, which is all that it means to a tokenizer."""
    return BETWEEN.join(text.replace(BETWEEN, " ") for text in texts)


def joined_line(text: str | Sequence[str]) -> str:
    """A line as it is, or the sources of one."""
    if isinstance(text, str):
        return text
    if not isinstance(text, Sequence) or not all(isinstance(one, str) for one in text):
        raise SightlineError(f"a line is {text!r}: give text, or a tuple with the text of each source")
    return joined(text)


def split_sources(line: str, count: int) -> list[str]:
    """The `count` sources of a line; those that it does not have are empty."""
    if count == 1:
        return [line]
    texts = line.split(BETWEEN, count - 1)
    return [*texts, *[""] * (count - len(texts))]


def wrong_count(line: str, count: int) -> str | None:
    """What is wrong with a line of `count` sources; an empty one has all of them, and all are empty."""
    found = line.count(BETWEEN) + 1
    if count == 1 or found == count or not line.strip():
        return None
    return (
        f"{found} source{'s' * (found != 1)} where the model reads {count}: put a tab between each two of them, with "
        "nothing before or after it where one is missing"
    )


def check_count(line: str, count: int, where: str) -> None:
    """Refuses a line of another number of sources."""
    if (reason := wrong_count(line, count)) is not None:
        raise SightlineError(f"{where}: {reason}")


def longest_part(ids: Sequence[int]) -> int:
    """The tokens of the longest source of `ids`, which have no end symbol at their end."""
    if EOS not in ids:
        return len(ids)
    longest = length = 0
    for id in ids:
        length = 0 if id == EOS else length + 1
        longest = max(longest, length)
    return longest


class SeveralTokenizer(Tokenizer):
    """A tokenizer for each source, as one for lines of several; they may be the same one.

    Ids have an end symbol between each two sources; a line without a word has none at all.
    """

    def __init__(self, parts: Sequence[Tokenizer]) -> None:
        first = parts[0]
        super().__init__(first._pieces, first._surfaces, first._normalization, first._lowercase)
        self._parts = tuple(parts)

    @property
    def parts(self) -> tuple[Tokenizer, ...]:
        return self._parts

    def texts(self, text: str) -> list[str]:
        return split_sources(text, len(self._parts))

    def encode(self, text: str) -> list[int]:
        ids: list[int] = []
        for part, one in zip(self._parts, self.texts(text), strict=True):
            ids += part.encode(one)
            ids.append(EOS)
        return ids[:-1] if len(ids) > len(self._parts) else []

    def encode_words(self, text: str) -> tuple[list[int], list[str], list[int]]:
        """Words have a divider between each two sources, which no token belongs to; an end symbol belongs to none."""
        ids: list[int] = []
        words: list[str] = []
        owners: list[int] = []
        for part, one in zip(self._parts, self.texts(text), strict=True):
            found, spelled, belongs = part.encode_words(one)
            owners += [owner + len(words) for owner in belongs] + [-1]
            words += [*spelled, DIVIDER]
            ids += [*found, EOS]
        if len(ids) == len(self._parts):
            return [], words[:-1], []
        return ids[:-1], words[:-1], owners[:-1]

    def content(self) -> bytes:
        """Those of its parts: each is kept in a file of its own."""
        return b"".join(part.content() for part in self._parts)

    def same_entries(self, other: Tokenizer) -> bool:
        return all(part.same_entries(other) for part in self._parts)

    def _spell(self, word: str) -> list[int]:
        return self._parts[0]._spell(word)


def tokenizer_of(parts: Sequence[Tokenizer]) -> Tokenizer:
    """The only one, or one for lines of several sources."""
    return parts[0] if len(parts) == 1 else SeveralTokenizer(parts)


def source_names(count: int) -> list[str]:
    """What the sources are called in files that have names: source, source2, source3 …"""
    return ["source", *(f"source{number}" for number in range(2, count + 1))]


def dividers(tokenizer: Tokenizer, text: str) -> tuple[int, ...]:
    """Where the dividers stand among the words of a line of several sources."""
    places: list[int] = []
    for part, one in zip(tokenizer.parts[:-1], tokenizer.texts(text)[:-1], strict=True):
        places.append((places[-1] + 1 if places else 0) + len(part.normalise(one).split()))
    return tuple(places)
