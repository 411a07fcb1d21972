"""The batches that all contenders train on, in a file: sentences as token ids, and which of them make each batch.

Shapes: N sentences, B rows of a batch, S source positions, T target positions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Sightline's ids: every contender gets these.
PAD, UNK, BOS, EOS = range(4)
Integers = NDArray[Any]


@dataclass(frozen=True)
class Plan:
    """Sentence i of a side is `ids[offsets[i]:offsets[i + 1]]`, its end symbol included; `rows` are the batches."""

    source_ids: Integers
    source_offsets: Integers
    target_ids: Integers
    target_offsets: Integers
    rows: Integers
    cuts: Integers  # batch i is rows[cuts[i]:cuts[i + 1]]
    vocabulary: int

    @staticmethod
    def load(path: str | Path) -> Plan:
        """Reads what `save` wrote."""
        with np.load(path) as arrays:
            values: dict[str, Any] = dict(arrays)
        return Plan(**{**values, "vocabulary": int(values["vocabulary"])})

    def save(self, path: Path) -> None:
        """As one file of arrays."""
        np.savez(path, **vars(self))

    def __len__(self) -> int:
        return len(self.cuts) - 1

    def batch(self, number: int) -> Integers:
        """`(B,)`: the sentences of a batch."""
        return self.rows[self.cuts[number] : self.cuts[number + 1]]

    @cached_property
    def lengths(self) -> tuple[Integers, Integers]:
        """`(N,)` each: the tokens of each source and of each target."""
        return np.diff(self.source_offsets), np.diff(self.target_offsets)

    def padded(self, number: int) -> tuple[Integers, Integers]:
        """Source ids `(B, S)` and target ids `(B, T)` of a batch, padded on the right."""
        rows = self.batch(number)
        return (
            _padded(self.source_ids, self.source_offsets, rows),
            _padded(self.target_ids, self.target_offsets, rows),
        )

    def tokens(self, number: int) -> int:
        """Target tokens of a batch."""
        return int(self.lengths[1][self.batch(number)].sum())

    def padding(self, numbers: range) -> float:
        """The share of the positions of these batches, both sides, that is padding."""
        real = positions = 0
        for number in numbers:
            for lengths in self.lengths:
                of_batch = lengths[self.batch(number)]
                real += int(of_batch.sum())
                positions += int(of_batch.max()) * len(of_batch)
        return 1 - real / positions

    def pairs(self, numbers: range) -> Iterator[tuple[int, int]]:
        """The source's and the target's tokens of each pair of these batches."""
        for number in numbers:
            rows = self.batch(number)
            yield from zip(self.lengths[0][rows].tolist(), self.lengths[1][rows].tolist(), strict=True)


def _padded(ids: Integers, offsets: Integers, rows: Integers) -> Integers:
    lengths = offsets[rows + 1] - offsets[rows]
    columns = np.arange(lengths.max())
    mask = columns < lengths[:, None]
    result = np.full(mask.shape, PAD, dtype=np.int64)
    result[mask] = ids[(offsets[rows, None] + columns)[mask]]
    return result


def make(source: Path, target: Path, vocabulary: int, batch_tokens: int, updates: int, seed: int = 1) -> Plan:
    """So many updates' batches as `sightline train` makes them: one joint vocabulary, as many epochs as it takes."""
    from sightline.config import TextConfig
    from sightline.data import batches, encode_pairs, read_pairs
    from sightline.text import train_tokenizer

    pairs = read_pairs(source, target)
    tokenizer = train_tokenizer((side for pair in pairs for side in pair), TextConfig(), vocabulary)
    encoded, _ = encode_pairs(pairs, tokenizer, tokenizer, max_length=250)
    parts: list[Integers] = []
    epoch = 0
    while len(parts) < updates:
        parts += batches(encoded, batch_tokens, seed, epoch)
        epoch += 1
    parts = parts[:updates]
    return Plan(
        encoded.source.ids,
        encoded.source.offsets,
        encoded.target.ids,
        encoded.target.offsets,
        np.concatenate(parts),
        np.cumsum([0, *map(len, parts)]),
        tokenizer.size,
    )
