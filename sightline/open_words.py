"""Words that a vocabulary of words does not have, and that a model may copy all the same.

The words of a source sentence that the target vocabulary lacks are numbered in it from 0, each different one once. For
this sentence they have ids past the vocabularies:
- as a target token, word k is `size + k`;
- as a source token it is `id + size · (k + 1)`, where `id` is what the source vocabulary has for it, UNK or its own.
So ids alone tell everything: `id % size` is for the embedding, `id // size` for copying. What they mean is known from
the text of the source, and no file needs to keep it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar, overload

from sightline.source_texts import tokenizer_of
from sightline.tokenizers import UNK, Tokenizer

T = TypeVar("T")


class _Longer(Sequence[T]):
    """A sequence that goes on with another, without a copy of either."""

    def __init__(self, first: Sequence[T], second: Sequence[T]) -> None:
        self._first, self._second = first, second

    @overload
    def __getitem__(self, place: int) -> T: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[T]: ...
    def __getitem__(self, place: int | slice) -> T | Sequence[T]:
        if isinstance(place, slice):
            return [self[number] for number in range(*place.indices(len(self)))]
        known = len(self._first)
        return self._first[place] if place < known else self._second[place - known]

    def __len__(self) -> int:
        return len(self._first) + len(self._second)


class OpenTokenizer(Tokenizer):
    """A vocabulary of words as one sentence opens it: `ids` are those of the words it has beside its own."""

    def __init__(self, closed: Tokenizer, ids: dict[str, int]) -> None:
        pieces: Sequence[str] = _Longer(closed._pieces, list(ids))
        surfaces: Sequence[bytes] = _Longer(closed._surfaces, [f" {word}".encode() for word in ids])
        super().__init__(pieces, surfaces, closed._normalization, closed._lowercase)
        self._closed, self._open = closed, ids

    def content(self) -> bytes:
        """What the vocabulary's file holds: the words of a sentence are not in it."""
        return self._closed.content()

    def _spell(self, word: str) -> list[int]:
        return [self._open[word]] if word in self._open else self._closed._word(word)


def opened(source: Tokenizer, target: Tokenizer, text: str) -> tuple[Tokenizer, Tokenizer]:
    """Both vocabularies as the source sentence `text` opens them: as they are, where it has no word of its own.

    Several sources have one vocabulary, and open it together.
    """
    if len(source.parts) > 1:
        both = opened(source.parts[0], target, text)
        return tokenizer_of([both[0]] * len(source.parts)), both[1]
    own: dict[str, int] = {}  # and what the source vocabulary has for them
    for word in source.normalise(text).split():
        if word not in own and target._word(word) == [UNK]:
            own[word] = source._word(word)[0]
    if not own:
        return source, target
    of_source = {word: id + source.size * (number + 1) for number, (word, id) in enumerate(own.items())}
    of_target = {word: target.size + number for number, word in enumerate(own)}
    return OpenTokenizer(source, of_source), OpenTokenizer(target, of_target)


def id_limits(sizes: tuple[int, int], longest: int) -> tuple[int, int]:
    """No id is as large as these, of sources and of targets, in pairs of at most `longest` tokens a side."""
    source, target = sizes
    return source * (longest + 1), target + longest
