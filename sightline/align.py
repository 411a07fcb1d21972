"""Looking at a finished translation: one forced pass under `capture`, and what it says about words.

Shapes: B sentences, L layers, H heads, T target tokens and S source tokens with their end symbols.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from sightline import links
from sightline.attention.capture import capture
from sightline.batch import Batch, pad
from sightline.config import AlignmentConfig
from sightline.data import ordered_batches
from sightline.errors import SightlineError
from sightline.folder import ModelFolder
from sightline.text import EOS, PAD

NO_ATTENTION = (
    "this model has no attention, so it has no alignment to show: train a bahdanau, luong or transformer model"
)


@dataclass(frozen=True)
class Forced:
    """A sentence pair read by a model with the target given.

    `sentence` holds the attention of the decoder to the source, layer by layer, over tokens; it has no layers when
    the model has no attention. `token_log_probs` has one entry a target token, the end symbol last.
    """

    source_words: list[str]
    target_words: list[str]
    sentence: links.Sentence
    token_log_probs: list[float]

    def word_links(self, alignment: AlignmentConfig) -> links.Links | None:
        """Word links (source, target) under the chosen layer, head and reading; None without attention."""
        if not self.sentence.layers:
            return None
        return links.align(self.sentence, links.Choice(alignment.layer, alignment.head, alignment.reading))

    def word_layers(self, reading: links.Reading) -> list[NDArray[np.float64]]:
        """L arrays `(H, target words, source words)`."""
        return [
            np.stack([self._words(links.read_rows(head, reading)) for head in layer]) for layer in self.sentence.layers
        ]

    def word_weights(self, alignment: AlignmentConfig) -> NDArray[np.float64] | None:
        """Weights (target words, source words) of the chosen layer and head; None without attention."""
        if not self.sentence.layers:
            return None
        weights = links.select(self.sentence.layers, alignment.layer, alignment.head)
        return self._words(links.read_rows(weights, alignment.reading))

    def _words(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        sentence = self.sentence
        counts = (len(self.target_words), len(self.source_words))
        return links.word_weights(weights, sentence.target_words, sentence.source_words, counts)


@dataclass(frozen=True)
class _Encoded:
    source: list[int]
    source_words: list[str]
    source_owners: list[int]
    target: list[int]
    target_words: list[str]
    target_owners: list[int]


def force(
    folder: ModelFolder,
    pairs: Sequence[tuple[str, str | list[int]]],
    device: torch.device | None = None,
    weights: bool = True,
) -> list[Forced]:
    """Reads source and target of each pair, the target as text or as the ids a search gave, in their order.

    Without `weights` only the log-probabilities are kept.
    """
    encoded = [_encode(folder, source, target) for source, target in pairs]
    result: dict[int, Forced] = {}
    lengths = np.array([max(len(one.source), len(one.target)) for one in encoded], dtype=np.int64)
    for part in ordered_batches(lengths, folder.config.search.batch_tokens):
        indices = [int(index) for index in part]
        seen = _force(folder, [encoded[index] for index in indices], device, weights)
        result.update(zip(indices, seen, strict=True))
    return [result[index] for index in range(len(pairs))]


def is_cross_attention(name: str) -> bool:
    """Whether a module's name is that of a decoder's attention to the source."""
    return name == "decoder.attention" or (name.startswith("decoder.") and name.endswith(".cross"))


def read_alignment(forced: Forced, alignment: AlignmentConfig) -> links.Links:
    """The links, or an error when the model has no attention to tell them."""
    found = forced.word_links(alignment)
    if found is None:
        raise SightlineError(NO_ATTENTION)
    return found


def _encode(folder: ModelFolder, source: str, target: str | list[int]) -> _Encoded:
    tokenizers = folder.tokenizers
    source_ids, source_words, source_owners = tokenizers.source.encode_words(source)
    if isinstance(target, str):
        target_ids, target_words, target_owners = tokenizers.target.encode_words(target)
    else:
        target_ids = target
        target_words, target_owners = tokenizers.target.words_of(target)
    return _Encoded([*source_ids, EOS], source_words, source_owners, [*target_ids, EOS], target_words, target_owners)


def _force(
    folder: ModelFolder, encoded: list[_Encoded], device: torch.device | None, weights: bool
) -> Iterator[Forced]:
    source = pad([one.source for one in encoded], PAD)
    target = pad([one.target for one in encoded], PAD)
    batch = Batch((source,), target).to(device or torch.device("cpu"))
    where = is_cross_attention if weights else lambda name: False
    # Not inference mode: what a model keeps for later, such as a longer table of positions, must serve training too.
    with torch.no_grad(), capture(folder.model, where=where) as maps:
        log_probs = folder.model.token_log_probs(batch).cpu()
        layers = [layer.float().cpu().numpy() for layer in maps.values()]
    for row, one in enumerate(encoded):
        rows, columns = len(one.target), len(one.source)
        seen = [layer[row, :, :rows, :columns] for layer in layers]
        sentence = links.Sentence(seen, one.target_owners, one.source_owners)
        yield Forced(one.source_words, one.target_words, sentence, log_probs[row, :rows].tolist())
