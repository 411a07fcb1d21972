"""More pairs out of the same text: sources with what an own model writes for them.

Those translations that are most like what people wrote are easier to learn than the people's (Kim and Rush 2016);
turned round they are other sources for targets that people wrote (Sennrich et al. 2016). Together with the given pairs
they say the same in other words (Nguyen et al. 2020).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from sightline.console import bar
from sightline.data import Pair
from sightline.metrics import sentence_chrf
from sightline.translator import Translator

BEAM = 4
MOST_SOURCES = 2  # of one target: what stands lower in a beam differs little from what stands above it
# chrF: what is less like the given target may be wrong. A source may be, if only what is learnt to be written is right.
LEAST, LEAST_AS_SOURCE = 60.0, 45.0


class Rewriting(NamedTuple):
    """Of a pair's source: another target for it, if there is a good one, and texts whose target it may be."""

    target: str | None
    sources: list[str]


def rewritten(translator: Translator, pairs: Sequence[Pair]) -> Iterator[Rewriting]:
    """What the model writes for each pair's source, where it is new and like the given target."""
    with bar(len(pairs), "translating") as watch:
        found = translator.stream([pair.source for pair in pairs], beam=BEAM, n_best=BEAM, watch=watch)
        for pair, one in zip(pairs, found, strict=True):
            every = [each.text for each in (one, *one.others)]
            # A model that knows the given target has nothing to add to it.
            target = None if pair.target in every else next(iter(alike(every, pair.target, LEAST)), None)
            yield Rewriting(target, alike(every, pair.target, LEAST_AS_SOURCE)[:MOST_SOURCES])


def alike(every: Sequence[str], given: str, least: float) -> list[str]:
    """Those of some translations that are other than the given one but like it, the most alike first."""
    others = [text for text in dict.fromkeys(every) if text and text != given]
    scores = dict(zip(others, sentence_chrf(others, [given] * len(others)), strict=True)) if others else {}
    return sorted((text for text in others if scores[text] >= least), key=lambda text: -scores[text])
