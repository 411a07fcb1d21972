"""Looking at a finished translation: one forced pass under `capture`, and what it says about words.

Shapes: B sentences, L layers, H heads, T target tokens and S source tokens with their end symbols.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from sightline.attention.capture import capture
from sightline.batch import Batch, Memory, Tokens, apart, pad
from sightline.data import ordered_batches
from sightline.folder import ModelFiles, ModelFolder
from sightline.forced import EncodedPair, Forced, encode_pair, forced_pair
from sightline.text import EOS, PAD

COPYING = "output"  # the module whose weights tell what is copied


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
        sources = source_tokens(folder, [pairs[index][0] for index in indices])
        target = pad([list(pairs[index][1]) for index in indices], PAD)
        with torch.no_grad():
            found = folder.model.token_log_probs(Batch(sources, target).to(device)).tolist()
        for index, row in zip(indices, found, strict=True):
            result[index] = row[: len(pairs[index][1])]
    return [result[index] for index in range(len(pairs))]


def source_tokens(folder: ModelFiles, sources: Sequence[Sequence[int]]) -> tuple[Tokens, ...]:
    """Ids with their end symbols as a batch's sources, `(B, S)` each."""
    return apart(pad([list(source) for source in sources], PAD), folder.config.model.source_count, EOS, PAD)


def is_cross_attention(name: str) -> bool:
    """Whether a module's name is that of attention to the source for the target's sake: a decoder's, or a hop's."""
    decoders = name == "decoder.attention" or (name.startswith("decoder.") and name.endswith(".cross"))
    return decoders or name.startswith("encoder.hops.")


def _force(folder: ModelFolder, encoded: list[EncodedPair], device: torch.device | None) -> Iterator[Forced]:
    target = pad([one.target for one in encoded], PAD)
    sources = source_tokens(folder, [one.source for one in encoded])
    batch = Batch(sources, target).to(device or torch.device("cpu"))
    real = batch.source_mask.cpu().numpy()
    # Not inference mode: what a model keeps for later, such as a longer table of positions, must serve training too.
    with torch.no_grad(), capture(folder.model, where=lambda name: name == COPYING or is_cross_attention(name)) as maps:
        memory = folder.model.encode(batch)
        log_probs = folder.model.token_log_probs(batch, memory).cpu()
        longest = target.mask.size(1)
        found = {name: _over_tokens(one, memory, longest).float().cpu().numpy() for name, one in maps.items()}
    for row, one in enumerate(encoded):
        rows = len(one.target)
        # Sources that are all empty are one end symbol to a tokenizer, and one each to a model.
        seen = {name: each[row, :, :rows][:, :, real[row]][..., : len(one.source)] for name, each in found.items()}
        copied = seen.pop(COPYING, None)
        yield forced_pair(one, list(seen.values()), log_probs[row, :rows].tolist(), folder.config.model, copied)


def _over_tokens(weights: Tensor, memory: Memory, rows: int) -> Tensor:
    """Weights over source tokens, `(B, H, T, S)`: of a memory whose positions are these, as they are.

    An encoder looks once, for all `rows` of the target alike.
    """
    weights = weights.expand(-1, -1, rows, -1)
    return weights if memory.spans is None else weights @ memory.spans.matrix(weights.dtype)[:, None]
