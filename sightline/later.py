"""What is seldom looked at of a translation, and costs another pass: worked out when it is. No torch here.

Whoever looks at one translation of a call will likely look at its neighbours, so a block of them is done together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sightline.config import AlignmentConfig
from sightline.engines.found import penalty
from sightline.forced import Forced, encode_pair, forced_pair
from sightline.hypothesis import Hypothesis, SearchOptions
from sightline.text import EOS

if TYPE_CHECKING:
    from sightline.translation import Later, Translation
    from sightline.translator import Translator

BLOCK = 200
SCORES = ("score", "log_prob", "token_log_probs")

Found = tuple["Translation", Hypothesis]


class Sight(NamedTuple):
    """What a translation has of its alignment, by the names of `Translation`."""

    words: list[str]
    source_words: list[str]
    links: list[tuple[int, int]] | None
    weights: NDArray[np.float64] | None
    dividers: tuple[int, ...] = ()


NO_SIGHT = Sight([], [], None, None)


def sights(translator: Translator, found: Sequence[Found]) -> list[Sight]:
    """Word links and weights: from the weights that came with the search, else by a forced pass."""
    config, engines = translator.config.alignment, translator.engines
    one_head = AlignmentConfig(layer=0, head=0, reading=config.reading)
    if all(hypothesis.weights is not None for _, hypothesis in found):
        rows = [hypothesis.weights for _, hypothesis in found if hypothesis.weights is not None]
        seen, alignment = _as_forced(translator, found, rows), one_head
    elif (looking := engines.looking(config)) is not None:
        tokenizers = translator.files.tokenizers
        sources = [[*tokenizers.source.encode(one.source), EOS] for one, _ in found]
        rows = looking.weights(list(zip(sources, (one.ids for one, _ in found), strict=True)))
        seen, alignment = _as_forced(translator, found, rows), one_head
    else:
        seen, alignment = translator.force([(one.source, one.ids) for one, _ in found]), config
    return [_sight(forced, alignment) for forced in seen]


def _sight(forced: Forced, alignment: AlignmentConfig) -> Sight:
    pairs = forced.word_links(alignment)
    return Sight(
        words=forced.target_words,
        source_words=forced.source_words,
        links=None if pairs is None else sorted(pairs),
        weights=forced.word_weights(alignment),
        dividers=forced.dividers,
    )


def _as_forced(translator: Translator, found: Sequence[Found], weights: Sequence[NDArray[np.float32]]) -> list[Forced]:
    """What an engine saw, as a model of one layer with one head."""
    result = []
    for (one, hypothesis), given in zip(found, weights, strict=True):
        pair = encode_pair(translator.files.tokenizers, one.source, one.ids)
        rows = np.zeros((len(pair.target), len(pair.source)))
        # A translation that was cut has no row for its end.
        rows[: len(given)] = given[: len(rows)]
        result.append(forced_pair(pair, [rows[None]], hypothesis.token_log_probs, translator.config.model))
    return result


class Block:
    """Translations of one call that are told the rest together."""

    def __init__(self, translator: Translator, found: Sequence[Found], options: SearchOptions) -> None:
        self.translator, self.found, self.options = translator, found, options

    @cached_property
    def scores(self) -> list[tuple[float, float, list[float]]]:
        """Score, log-probability and those of the tokens, by the engine that did not tell them."""
        encode = self.translator.files.tokenizers.source.encode
        pairs = [([*encode(one.source), EOS], [*one.ids, EOS]) for one, _ in self.found]
        result = []
        each = self.translator.engines.first().token_log_probs(pairs)
        for (one, _), values in zip(self.found, each, strict=True):
            values = values if one.finished else values[:-1]  # what was cut never came to predict its end
            total = math.fsum(values)
            result.append((total / penalty(len(values), self.options), total, values))
        return result

    @cached_property
    def sights(self) -> list[Sight]:
        """What `sights` tells."""
        return sights(self.translator, self.found)


def with_later(
    translator: Translator, found: Sequence[Found], options: SearchOptions, align: bool, token_scores: bool
) -> list[Translation]:
    """The translations; alignments and scores are left for later, if these are asked for and not there yet."""
    result = []
    for start in range(0, len(found), BLOCK):
        part = found[start : start + BLOCK]
        block = Block(translator, part, options)
        known: Later = {Sight._fields: partial(_of_block, block, "sights")} if align else {}
        every: Later = {**known, SCORES: partial(_of_block, block, "scores")}
        for place, (one, hypothesis) in enumerate(part):
            later = every if token_scores and not hypothesis.token_log_probs else known
            result.append(one.with_later(later, place) if later else one)
    return result


def _of_block(block: Block, name: str, place: int) -> tuple[Any, ...]:
    every: list[tuple[Any, ...]] = getattr(block, name)
    return every[place]
