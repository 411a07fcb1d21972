"""Looking at a finished translation: one forced pass under `capture`, and what it says about words.

Shapes: B sentences, L layers, H heads, T target tokens and S source tokens with their end symbols.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from sightline import links
from sightline.attention.capture import capture
from sightline.batch import Batch, Memory, pad
from sightline.data import ordered_batches
from sightline.folder import ModelFolder
from sightline.forced import EncodedPair, Forced, encode_pair
from sightline.text import PAD


def force(
    folder: ModelFolder,
    pairs: Sequence[tuple[str, str | list[int]]],
    device: torch.device | None = None,
) -> list[Forced]:
    """Reads source and target of each pair, the target as text or as the ids a search gave, in their order."""
    encoded = [encode_pair(folder.tokenizers, source, target) for source, target in pairs]
    result: dict[int, Forced] = {}
    lengths = np.array([max(len(one.source), len(one.target)) for one in encoded], dtype=np.int64)
    for part in ordered_batches(lengths, folder.config.search.batch_tokens):
        indices = [int(index) for index in part]
        seen = _force(folder, [encoded[index] for index in indices], device)
        result.update(zip(indices, seen, strict=True))
    return [result[index] for index in range(len(pairs))]


def log_probs(
    folder: ModelFolder, pairs: Sequence[tuple[Sequence[int], Sequence[int]]], device: torch.device
) -> list[list[float]]:
    """The log-probability of each target token given its source, both ids with their end symbols, in their order."""
    result: dict[int, list[float]] = {}
    lengths = np.array([max(len(source), len(target)) for source, target in pairs], dtype=np.int64)
    for part in ordered_batches(lengths, folder.config.search.batch_tokens):
        indices = [int(index) for index in part]
        source, target = (pad([list(pairs[index][side]) for index in indices], PAD) for side in (0, 1))
        with torch.no_grad():
            found = folder.model.token_log_probs(Batch((source,), target).to(device)).tolist()
        for index, row in zip(indices, found, strict=True):
            result[index] = row[: len(pairs[index][1])]
    return [result[index] for index in range(len(pairs))]


def is_cross_attention(name: str) -> bool:
    """Whether a module's name is that of attention to the source for the target's sake: a decoder's, or a hop's."""
    decoders = name == "decoder.attention" or (name.startswith("decoder.") and name.endswith(".cross"))
    return decoders or name.startswith("encoder.hops.")


def _force(folder: ModelFolder, encoded: list[EncodedPair], device: torch.device | None) -> Iterator[Forced]:
    source = pad([one.source for one in encoded], PAD)
    target = pad([one.target for one in encoded], PAD)
    batch = Batch((source,), target).to(device or torch.device("cpu"))
    # Not inference mode: what a model keeps for later, such as a longer table of positions, must serve training too.
    with torch.no_grad(), capture(folder.model, where=is_cross_attention) as maps:
        memory = folder.model.encode(batch)
        log_probs = folder.model.token_log_probs(batch, memory).cpu()
        layers = [_over_tokens(layer, memory, target.mask.size(1)).float().cpu().numpy() for layer in maps.values()]
    for row, one in enumerate(encoded):
        rows, columns = len(one.target), len(one.source)
        seen = [layer[row, :, :rows, :columns] for layer in layers]
        sentence = links.Sentence(seen, one.target_owners, one.source_owners)
        yield Forced(one.source_words, one.target_words, sentence, log_probs[row, :rows].tolist())


def _over_tokens(weights: Tensor, memory: Memory, rows: int) -> Tensor:
    """Weights over source tokens, `(B, H, T, S)`: of a memory whose positions are these, as they are.

    An encoder looks once, for all `rows` of the target alike.
    """
    weights = weights.expand(-1, -1, rows, -1)
    return weights if memory.spans is None else weights @ memory.spans.matrix(weights.dtype)[:, None]
