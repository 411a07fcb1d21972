"""How much a text says again, in numbers. No torch here.

A phrase is a run of words within one text. Words are counted in small letters and without punctuation, since a second
comma is no second word. Of a text with c occurrences of a phrase, c - 1 are repetitions: the first is none. Where there
is a reference, those that it has too are right: beyond it are the occurrences that are more than one, and more than the
reference has,

    beyond = Σ_phrases max(0, c - max(1, c of the reference))

Rates are percentages of all phrases of that size, over all texts together, so that long texts count for more. Single
words are repeated in any text ("the"), and another wording may rightly have one article more; of three or four words in
a row this is hardly so. A rate beyond the reference is 0 for the reference itself, and never above the rate of all
repetitions.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

WORD = re.compile(r"\w+(?:[-'’]\w+)*")
SIZES = (1, 2, 3, 4)

Phrases = Counter[tuple[str, ...]]


def words_of(text: str) -> list[str]:
    """Words in small letters, without what stands between them."""
    return WORD.findall(text.casefold())


def phrases(words: Sequence[str], size: int) -> Phrases:
    """How often each phrase of `size` words occurs."""
    return Counter(tuple(words[place : place + size]) for place in range(len(words) - size + 1))


def again(found: Phrases) -> int:
    """Occurrences that are not the first."""
    return found.total() - len(found)


def beyond(found: Phrases, reference: Phrases) -> int:
    """Of these, those that the reference does not have."""
    return sum(max(0, count - max(1, reference[phrase])) for phrase, count in found.items())


def repeated(every: Iterable[Phrases]) -> float:
    """The percentage of phrases that stood in the same text before."""
    found = [*every]
    return percentage(sum(map(again, found)), sum(one.total() for one in found))


def rates(texts: Sequence[str], references: Sequence[str]) -> dict[str, dict[str, float]]:
    """By the size of phrases: repeated in the texts, beyond the references, and in the references themselves."""
    ours, theirs = ([words_of(text) for text in side] for side in (texts, references))
    result: dict[str, dict[str, float]] = {"repeated": {}, "beyond": {}, "reference": {}}
    for size in SIZES:
        found, wanted = ([phrases(words, size) for words in side] for side in (ours, theirs))
        more = sum(beyond(one, other) for one, other in zip(found, wanted, strict=True))
        result["repeated"][str(size)] = repeated(found)
        result["beyond"][str(size)] = percentage(more, sum(one.total() for one in found))
        result["reference"][str(size)] = repeated(wanted)
    return result


def relative_length(texts: Iterable[str], references: Iterable[str]) -> float:
    """Words of the texts as a percentage of those of the references."""
    return percentage(*(sum(len(words_of(text)) for text in side) for side in (texts, references)))


def percentage(part: int, whole: int) -> float:
    """0 of nothing."""
    return 100 * part / max(whole, 1)
