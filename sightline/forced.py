"""What a model saw of a sentence pair, told in words: no torch here.

Shapes: L layers, H heads, T target tokens and S source tokens with their end symbols.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sightline import links
from sightline.architecture import ModelConfig
from sightline.config import AlignmentConfig
from sightline.errors import SightlineError
from sightline.folder import Tokenizers
from sightline.source_texts import dividers
from sightline.text import EOS

NO_ATTENTION = (
    "this model has no attention, so it has no alignment to show: train a bahdanau, luong or transformer model"
)


@dataclass(frozen=True)
class Forced:
    """A sentence pair read by a model with the target given.

    `sentence` holds the attention of the decoder to the source, layer by layer, over tokens; it has no layers when
    the model has no attention, and what was copied then takes their place, if the model copies. `token_log_probs` has
    one entry a target token, the end symbol last. Of several sources, `dividers` are the places of the words that stand
    between each two of them.
    """

    source_words: list[str]
    target_words: list[str]
    sentence: links.Sentence
    token_log_probs: list[float]
    dividers: tuple[int, ...] = ()

    def word_links(self, alignment: AlignmentConfig) -> links.Links | None:
        """Word links (source, target) under the chosen layer, head and reading; None without weights."""
        if not self.sentence.telling:
            return None
        return links.align(self.sentence, links.Choice(alignment.layer, alignment.head, alignment.reading))

    def word_layers(self, reading: links.Reading) -> list[NDArray[np.float64]]:
        """L arrays `(H, target words, source words)`."""
        return [
            np.stack([self._words(links.read_rows(head, reading)) for head in layer]) for layer in self.sentence.layers
        ]

    def word_weights(self, alignment: AlignmentConfig) -> NDArray[np.float64] | None:
        """Weights (target words, source words) of the chosen layer and head; None without weights."""
        if not self.sentence.telling:
            return None
        weights = links.select(self.sentence.telling, alignment.layer, alignment.head)
        return self._words(links.read_rows(weights, alignment.reading))

    def word_copies(self) -> NDArray[np.float64] | None:
        """How probable it was to copy (target words, source words): always of the row that predicts a token."""
        return None if self.sentence.copied is None else self._words(links.read_rows(self.sentence.copied[0]))

    def _words(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        sentence = self.sentence
        counts = (len(self.target_words), len(self.source_words))
        return links.word_weights(weights, sentence.target_words, sentence.source_words, counts)


@dataclass(frozen=True)
class EncodedPair:
    """Ids with their end symbols, words, and for each token but the end the word that owns it."""

    source: list[int]
    source_words: list[str]
    source_owners: list[int]
    target: list[int]
    target_words: list[str]
    target_owners: list[int]
    dividers: tuple[int, ...] = ()


def forced_pair(
    pair: EncodedPair,
    layers: Sequence[links.Weights],
    token_log_probs: list[float],
    config: ModelConfig,
    copied: links.Weights | None = None,
) -> Forced:
    """A pair as a model of this configuration saw it: L arrays `(H, T, S)`, and what was copied, `(1, T, S)`."""
    # Sources that are looked at side by side each have a place that is looked at most; else they compete.
    several = bool(pair.dividers) and config.sources.context == "concatenated"
    ends = [place + 1 for place, id in enumerate(pair.source) if id == EOS][:-1] if several else []
    sentence = links.Sentence(layers, pair.target_owners, pair.source_owners, tuple(ends), copied)
    return Forced(pair.source_words, pair.target_words, sentence, token_log_probs, pair.dividers)


def encode_pair(tokenizers: Tokenizers, source: str, target: str | list[int]) -> EncodedPair:
    """A pair for a forced pass, the target as text or as the ids a search gave."""
    tokenizers = tokenizers.opened(source)
    source_ids, source_words, source_owners = tokenizers.source.encode_words(source)
    if isinstance(target, str):
        target_ids, target_words, target_owners = tokenizers.target.encode_words(target)
    else:
        target_ids = target
        target_words, target_owners = tokenizers.target.words_of(target)
    target_side = ([*target_ids, EOS], target_words, target_owners)
    places = dividers(tokenizers.source, source)
    return EncodedPair([*source_ids, EOS], source_words, source_owners, *target_side, places)


def has_attention(config: ModelConfig) -> bool:
    """Whether a model of this kind looks at its source: its decoder, or its encoder in hops."""
    return config.has_source and (config.recipe != "seq2seq" or config.encoder.kind == "hops")


def has_alignment(config: ModelConfig) -> bool:
    """Whether there are weights to align by: attention's, or those of copying."""
    return has_attention(config) or config.copies


def has_step_weights(config: ModelConfig) -> bool:
    """Whether each step of its search tells where it looked."""
    return has_attention(config) and config.recipe != "seq2seq" and config.decoder.cross_attention == "full"


def read_alignment(forced: Forced, alignment: AlignmentConfig) -> links.Links:
    """The links, or an error when the model has no weights to tell them."""
    found = forced.word_links(alignment)
    if found is None:
        raise SightlineError(NO_ATTENTION)
    return found
