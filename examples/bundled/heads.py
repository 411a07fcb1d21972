"""Which head aligns best, found without hand-made links: by words that two lexicons, one of each direction, agree on.

IBM's first model is learnt from the training pairs both ways. On a validation pair, a link stands where each word is
the other's most probable partner: few links, most of them right.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sightline import links, metrics
from sightline.config import AlignmentConfig
from sightline.data import Pair
from sightline.lexicon import Lexicon, learn_lexicon
from sightline.translator import Translator

MOST_PAIRS, TRIED = 60_000, 300
Ids = list[int]


def best_head(
    translator: Translator, training: Sequence[Pair], validation: Sequence[Pair]
) -> tuple[AlignmentConfig, float]:
    """The layer, head and reading with the lowest error rate against the links of the lexicons, and that rate.

    One layer, some head of it or their mean: that comes with CTranslate2's search, and all layers' mean does not.
    """
    some = validation[:TRIED]
    sure = agreed_links(training[:MOST_PAIRS], some)
    seen = [forced.sentence for forced in translator.force(some)]

    def rate(choice: links.Choice) -> float:
        return metrics.alignment_error_rate([links.align(sentence, choice) for sentence in seen], sure, sure)

    rates = {choice: rate(choice) for choice in links.choices(seen[0].layers) if choice.layer is not None}
    best = min(rates, key=rates.__getitem__)
    return AlignmentConfig(layer=best.layer, head=best.head, reading=best.reading), rates[best]


def agreed_links(training: Sequence[Pair], pairs: Sequence[Pair]) -> list[links.Links]:
    """Links of words of `pairs` that both directions' lexicons, learnt from `training` and them, find most probable."""
    numbers: tuple[dict[str, int], dict[str, int]] = ({}, {})

    def ids(text: str, side: int) -> Ids:
        return [numbers[side].setdefault(word.casefold(), len(numbers[side])) for word in text.split()]

    every = [(ids(pair.source, 0), ids(pair.target, 1)) for pair in [*training, *pairs]]
    full = [pair for pair in every if pair[0] and pair[1]]
    forward = table(learn_lexicon(full, len(numbers[1])))
    backward = table(learn_lexicon([(target, source) for source, target in full], len(numbers[0])))
    return [
        best_links(source, target, forward) & {(one, other) for other, one in best_links(target, source, backward)}
        for source, target in every[len(training) :]
    ]


def table(lexicon: Lexicon) -> dict[tuple[int, int], float]:
    """Probabilities by source and target."""
    keys = zip(lexicon.sources.tolist(), lexicon.targets.tolist(), strict=True)
    return dict(zip(keys, lexicon.probabilities.tolist(), strict=True))


def best_links(source: Ids, target: Ids, probabilities: dict[tuple[int, int], float]) -> links.Links:
    """Each target word's most probable source word."""
    found: links.Links = set()
    for place, word in enumerate(target):
        values = [probabilities.get((other, word), 0.0) for other in source]
        if max(values, default=0.0) > 0:
            found.add((int(np.argmax(values)), place))
    return found
