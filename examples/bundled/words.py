"""Single words and their translations, out of pairs of sentences: people try a word first, and the corpus has few.

IBM's first model is learnt both ways. Two words are a pair where each is the other's most probable partner, and very
probable. They are written as they are most often in the midst of a sentence: German nouns have their capitals.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from sightline.data import Pair
from sightline.lexicon import Lexicon, learn_lexicon

WORD = re.compile(r"\w+(?:'\w+)*")
LEAST_PROBABILITY, LEAST_SEEN = 0.3, 4


class Side:
    """The words of one side: a number for each, whatever its case, how often it was seen, and how it is written."""

    def __init__(self, sentences: Sequence[str]) -> None:
        self.numbers: dict[str, int] = {}
        self.seen: Counter[str] = Counter()
        self.forms: dict[str, Counter[str]] = {}
        self.sentences = [self._read(sentence) for sentence in sentences]

    def _read(self, sentence: str) -> list[int]:
        words = WORD.findall(sentence)
        for place, word in enumerate(words):
            key = word.casefold()
            self.seen[key] += 1
            # Where a sentence begins, the case tells nothing; it decides only when the word stands nowhere else.
            self.forms.setdefault(key, Counter())[word] += 1000 if place else 1
        return [self.numbers.setdefault(word.casefold(), len(self.numbers)) for word in words]

    def usual(self) -> list[str | None]:
        """How each word is written, by its number; None for rare ones."""
        known = {key for key, times in self.seen.items() if times >= LEAST_SEEN and key.isalpha()}
        return [self.forms[key].most_common(1)[0][0] if key in known else None for key in self.numbers]


def word_pairs(pairs: Sequence[Pair]) -> list[Pair]:
    """Pairs of words that sentences agree on, in the order in which their sources first come."""
    sides = [Side([pair[side] for pair in pairs]) for side in (0, 1)]
    together = [both for both in zip(sides[0].sentences, sides[1].sentences, strict=True) if all(both)]
    there = _partners(learn_lexicon(together, len(sides[1].numbers)))
    back = _partners(learn_lexicon([(target, source) for source, target in together], len(sides[0].numbers)))
    sources, targets = (side.usual() for side in sides)
    found = []
    for source, target in there.items():
        first, second = sources[source], targets[target]
        if back.get(target) == source and first is not None and second is not None:
            found.append(Pair(first, second))
    return found


def _partners(lexicon: Lexicon) -> dict[int, int]:
    """Each source's most probable target, where that is probable enough."""
    order = np.lexsort((-lexicon.probabilities, lexicon.sources))
    sources = lexicon.sources[order]
    best = order[np.r_[True, sources[1:] != sources[:-1]]]
    sure = best[lexicon.probabilities[best] >= LEAST_PROBABILITY]
    return dict(zip(lexicon.sources[sure].tolist(), lexicon.targets[sure].tolist(), strict=True))
