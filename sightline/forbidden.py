"""Words that a translation must not hold, as sequences of ids that search never writes. No torch.

A word is forbidden where a word begins: after a space, at the beginning, after an opening mark. It is then forbidden
with every ending too that its pieces could be followed by: with `cat` goes `cats`, if the vocabulary spells that
`cat` and `s`. A vocabulary of characters would so forbid every word that begins alike, so there it is the end of
the word, with whatever may follow one, that is forbidden.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from sightline.errors import SightlineError
from sightline.tokenizers import BOS, EOS, PAD, UNK, CharacterTokenizer, Tokenizer
from sightline.wording import inside_words, listed_lines, spellings

# A model whose usual spelling of a word is forbidden soon finds another, but hardly one of many pieces.
SPELLINGS = 32
SPELLINGS_AFTER_MARKS = 4
OPENING_MARKS = "([{\"'„“”‚‘’«»‹›¿¡-–—/"


def read_words(path: Path) -> list[str]:
    """A file of words or phrases, one a line; lines that begin with # are comments."""
    found = [line.strip() for _, line in listed_lines(path)]
    if not found:
        raise SightlineError(f"{path}: no words in it: write one a line")
    return found


def forbidden_ids(words: Iterable[str], tokenizer: Tokenizer, enlarged: bool = False) -> tuple[tuple[int, ...], ...]:
    """The sequences to forbid, for `SearchOptions.forbidden`, so that none of these words or phrases is written.

    One given in lower case is meant in any case: `cat` is also `Cat` and `CAT`. One with capitals is meant as it is.
    With `enlarged`, for what will be written in capitals, each is meant in any case that becomes the same by that.
    """
    found: dict[tuple[int, ...], None] = {}
    for word in words:
        if not tokenizer.normalise(word):
            raise SightlineError("a forbidden word is empty: leave it out")
        for form in _enlarged_alike(word) if enlarged else _cases(word):
            found.update(dict.fromkeys(_sequences(tokenizer.normalise(form), tokenizer)))
    return tuple(found)


def _cases(word: str) -> list[str]:
    return [word, word[:1].upper() + word[1:], word.upper()] if word == word.lower() else [word]


def _enlarged_alike(word: str) -> list[str]:
    """The usual ways to write what is the same as the word when all of it is in capitals."""
    small = word.lower()
    spelled = (small, small.replace("ß", "ss"), small.replace("ss", "ß"))
    return [word, *(form for one in dict.fromkeys(spelled) for form in (*_cases(one), one.title()))]


def _sequences(word: str, tokenizer: Tokenizer) -> Iterator[tuple[int, ...]]:
    begun = spellings(tokenizer, f" {word}", SPELLINGS)
    bare = spellings(tokenizer, word, SPELLINGS_AFTER_MARKS)
    begun += [(before, *ids) for before in (BOS, *_marks(tokenizer)) for ids in bare]
    if not isinstance(tokenizer, CharacterTokenizer):
        yield from begun
        return
    inside = inside_words(tokenizer)
    follows = [EOS, *(id for id in range(tokenizer.size) if id not in inside and id not in (PAD, UNK, BOS, EOS))]
    yield from ((*ids, id) for ids in begun for id in follows)


def _marks(tokenizer: Tokenizer) -> list[int]:
    """The ids of opening marks, with and without a space before them."""
    marks = {mark.encode() for mark in OPENING_MARKS}
    return [id for id in range(tokenizer.size) if tokenizer.surface(id).removeprefix(b" ") in marks]
