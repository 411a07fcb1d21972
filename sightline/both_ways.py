"""Word links that two models tell of one another's translations, one for each direction, put together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sightline.alignments import Gold, align_corpus
from sightline.data import Pair
from sightline.errors import SightlineError
from sightline.forced import Forced, read_alignment
from sightline.links import Links, Symmetry, symmetrise
from sightline.translator import Translator


@dataclass(frozen=True)
class BothWays:
    """A model, one that translates the other way, and how their links become one set.

    Each links every word that it writes, also those that have no counterpart: what both say is right more often.
    """

    forward: Translator
    backward: Translator
    how: Symmetry = "intersection"

    def __post_init__(self) -> None:
        for translator in (self.forward, self.backward):
            translator.check_attention()
            if translator.config.model.source_count > 1:
                raise SightlineError(f"{translator.files.path}: reads several sources, so no model translates back")

    def look_back(self, pairs: Sequence[Pair], source_name: str, target_name: str) -> Iterator[Forced]:
        """What the backward model sees of the pairs, one by one; the names are those of the files, for errors."""
        turned = [Pair(pair.target, pair.source) for pair in pairs]
        return align_corpus(self.backward, turned, target_name, source_name)

    def links(self, there: Forced, back: Forced) -> Links:
        """Links (source word, target word) of a pair that both have seen."""
        words = [(len(one.source_words), len(one.target_words)) for one in (there, back)]
        if words[0] != words[1][::-1]:
            raise SightlineError(
                f"{self.backward.files.path}: splits text into other words than {self.forward.files.path}, so their "
                "links cannot be put together"
            )
        forward = read_alignment(there, self.forward.config.alignment)
        backward = {(left, right) for right, left in read_alignment(back, self.backward.config.alignment)}
        return symmetrise(forward, backward, self.how)

    def told_rate(self, there: Sequence[Forced], back: Sequence[Forced], gold: Gold) -> str:
        """A line that tells the alignment error rate of the links of both, for a person."""
        rate = gold.error_rate([self.links(one, other) for one, other in zip(there, back, strict=True)])
        return f"alignment error rate {100 * rate:.2f}% (both models, {self.how})"
