"""More pairs out of the same text: sources with what an own model writes for them.

Those translations that are most like what people wrote are easier to learn than the people's (Kim and Rush 2016);
turned round they are other sources for targets that people wrote (Sennrich et al. 2016). Together with the given pairs
they say the same in other words (Nguyen et al. 2020).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sightline.console import bar
from sightline.data import Pair
from sightline.metrics import sentence_chrf
from sightline.translator import Translator

BEAM = 4
LEAST = 60.0  # chrF: what is less like the given target may be wrong


def rewritten(translator: Translator, pairs: Sequence[Pair]) -> Iterator[Pair]:
    """Sources with the model's own translation, where there is one that is good and new."""
    with bar(len(pairs), "translating") as watch:
        found = translator.stream([pair.source for pair in pairs], beam=BEAM, n_best=BEAM, watch=watch)
        for pair, one in zip(pairs, found, strict=True):
            text = nearest([each.text for each in (one, *one.others)], pair.target, LEAST)
            if text is not None:
                yield Pair(pair.source, text)


def nearest(every: Sequence[str], given: str, least: float) -> str | None:
    """That of some translations which is most like the given one; None if it is that one, or not like it."""
    if given in every:
        return None
    scores = sentence_chrf(every, [given] * len(every))
    best = every[scores.index(max(scores))]
    return best if best and max(scores) >= least else None
