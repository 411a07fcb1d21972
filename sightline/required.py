"""Words and phrases that a translation must have, whatever the source says: built as a glossary's are. No torch here.

One stands there as whole words, in the case that it was given in, but that a capital may begin the translation. One
that is given twice is to be written twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sightline.errors import SightlineError
from sightline.files import read_lines
from sightline.glossary import Constraint, occurrences, spelled
from sightline.tokenizers import Tokenizer
from sightline.wording import words


@dataclass(frozen=True)
class RequiredOutcome:
    """What became of a word or phrase that was to be there."""

    text: str
    honoured: bool


def checked(texts: Iterable[str]) -> tuple[str, ...]:
    """The texts without the spaces around and between words; an empty one is an error."""
    found = tuple(" ".join(text.split()) for text in texts)
    if not all(map(words, found)):
        raise SightlineError("a word that must be there is empty: leave it out")
    return found


def split(line: str) -> tuple[str, ...]:
    """What one line of a file asks for: texts with tabs between them; none, if it is empty."""
    return checked(part for part in line.split("\t") if part.strip())


def read_required(path: Path) -> list[tuple[str, ...]]:
    """A file with a line for each line of the input: what its translation must have, with tabs between."""
    return [split(line) for line in read_lines(path)]


def constraints(texts: Sequence[str], tokenizer: Tokenizer) -> tuple[Constraint, ...]:
    """The same for `Request.constraints`, in the target `tokenizer`'s ids."""
    found = []
    for text in texts:
        constraint = spelled((text,), tokenizer)
        if not constraint:
            raise SightlineError(f"'{text}' must be there, but this model's vocabulary cannot spell it: leave it out")
        found.append(constraint)
    return tuple(found)


def missing(texts: Iterable[str]) -> list[RequiredOutcome]:
    """What is said of them where there is no translation."""
    return [RequiredOutcome(text, False) for text in texts]


def outcomes(texts: Sequence[str], translation: str, tokenizer: Tokenizer) -> list[RequiredOutcome]:
    """For each text whether the translation has it, as often as it was asked for."""
    given = words(translation)
    asked: Counter[str] = Counter()
    found = []
    for text in texts:
        asked[text] += 1
        times = occurrences(given, [words(tokenizer.normalise(text))])
        found.append(RequiredOutcome(text, times >= asked[text]))
    return found
