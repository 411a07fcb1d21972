"""From files to batches: pairs of sentences, their token ids, and batches of similar length within a token budget.

Shapes: N examples, B rows of a batch, S source positions, T target positions.
"""

from __future__ import annotations

import json
import random
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sightline.errors import SightlineError
from sightline.files import read_lines
from sightline.text import EOS, PAD, Tokenizer

if TYPE_CHECKING:
    from sightline.batch import Batch

Integers = NDArray[np.int64]

MOST_CHARACTERS = 32  # to a token


class Pair(NamedTuple):
    """A source sentence and its target."""

    source: str
    target: str


def bundled(part: Literal["train", "valid", "test"]) -> Path:
    """The file of a part of the English-German corpus that comes with Sightline."""
    return Path(str(resources.files("sightline") / "bundled" / f"tatoeba.en-de.{part}.tsv.gz"))


def read_pairs(source: Path | None = None, target: Path | None = None, pairs: Path | None = None) -> list[Pair]:
    """All pairs of two parallel files, or of one file of pairs; pairs with an empty side included."""
    if pairs is not None:
        if source is not None or target is not None:
            raise SightlineError("give either a source and a target file or one file of pairs, not both")
        found = list(_read_pair_file(pairs))
    elif source is not None and target is not None:
        found = list(_read_parallel(source, target))
    else:
        alone = source or target
        given = f"{alone} is one side only" if alone else "no text is given"
        raise SightlineError(f"{given}: give a source and a target file, or one file of pairs")
    if not found:
        raise SightlineError(f"{pairs or source}: the file is empty")
    return found


def _read_parallel(source: Path, target: Path) -> Iterator[Pair]:
    lines = zip_longest(read_lines(source), read_lines(target))
    number = 0
    for number, (left, right) in enumerate(lines, start=1):
        if left is None or right is None:
            longer, shorter = (target, source) if left is None else (source, target)
            total = number + sum(1 for _ in lines)
            raise SightlineError(
                f"{longer} has {total} lines, {shorter} {number - 1}: line {number} of {longer} has no partner"
            )
        yield Pair(left, right)


def _read_pair_file(path: Path) -> Iterator[Pair]:
    kind = Path(path.stem if path.suffix == ".gz" else path.name).suffix.lower()
    if kind == ".tsv":
        parse = _parse_tab_separated
    elif kind in (".jsonl", ".json"):
        parse = _parse_json
    else:
        raise SightlineError(
            f"{path}: a file of pairs must end in .tsv (source, tab, target) or .jsonl (objects with 'source' and "
            "'target'), perhaps with .gz after it; for two plain text files give source and target"
        )
    for number, line in enumerate(read_lines(path), start=1):
        try:
            yield parse(line)
        except ValueError as error:
            raise SightlineError(f"{path}, line {number}: {error}") from None


def _parse_tab_separated(line: str) -> Pair:
    columns = line.split("\t")
    if len(columns) != 2:
        found = "an empty line" if not line else f"{len(columns)} column{'s' * (len(columns) != 1)}"
        raise ValueError(f"expected two columns, source and target with one tab between them, found {found}")
    return Pair(*columns)


def _parse_json(line: str) -> Pair:
    try:
        values: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        detail = "an empty line" if not line.strip() else getattr(error, "msg", "it is nested too deeply")
        raise ValueError(f"not valid JSON ({detail}); expected one object a line") from None
    if not isinstance(values, dict):
        raise ValueError("expected an object with 'source' and 'target'")
    for key in Pair._fields:
        value = values.get(key)
        if not isinstance(value, str):
            what = "is missing" if key not in values else "must be a string"
            raise ValueError(f"'{key}' {what}; expected an object with 'source' and 'target'")
        if any("\ud800" <= character <= "\udfff" for character in value):
            raise ValueError(f"'{key}' has half of a surrogate pair, which is no character")
    return Pair(values["source"], values["target"])


@dataclass(frozen=True)
class Account:
    """How many pairs were kept, and how many were dropped and why. Written out, it is one line."""

    kept: int
    empty: int = 0
    too_long: int = 0

    def after(self, earlier: Account) -> Account:
        """One account of two rounds of dropping."""
        return Account(self.kept, self.empty + earlier.empty, self.too_long + earlier.too_long)

    def __str__(self) -> str:
        reasons = [(self.empty, "with an empty side"), (self.too_long, "too long")]
        dropped = ", ".join(f"{count:,} {reason}" for count, reason in reasons if count)
        kept = f"{self.kept:,} pair{'s' * (self.kept != 1)}"
        return f"{kept}; dropped {dropped}" if dropped else kept


def drop_empty(pairs: Sequence[Pair]) -> tuple[list[Pair], Account]:
    """The pairs with something on both sides."""
    kept = [pair for pair in pairs if pair.source.strip() and pair.target.strip()]
    return kept, Account(len(kept), empty=len(pairs) - len(kept))


def drop_too_long(pairs: Sequence[Pair], max_length: int) -> tuple[list[Pair], Account]:
    """Without pairs that no tokenizer would bring down to `max_length` tokens a side.

    They are known by their words, and by their characters: no ordinary text has so many to a token. Out of the way
    before anything is learnt or held out, they neither shape a vocabulary nor fill a validation part.
    """
    kept = [
        pair
        for pair in pairs
        if all(len(side) <= MOST_CHARACTERS * max_length and len(side.split()) <= max_length for side in pair)
    ]
    return kept, Account(len(kept), too_long=len(pairs) - len(kept))


def groups(pairs: Sequence[Pair]) -> list[list[int]]:
    """The pairs' numbers in groups that hang together: pairs that share a source or a target are in one group."""
    parents = list(range(len(pairs)))

    def root(number: int) -> int:
        while parents[number] != number:
            parents[number] = parents[parents[number]]
            number = parents[number]
        return number

    first_with: dict[tuple[int, str], int] = {}
    for number, pair in enumerate(pairs):
        for side in enumerate(pair):
            parents[root(number)] = root(first_with.setdefault(side, number))
    members: dict[int, list[int]] = {}
    for number in range(len(pairs)):
        members.setdefault(root(number), []).append(number)
    return list(members.values())


def hold_out(pairs: Sequence[Pair], count: int, seed: int) -> tuple[list[Pair], list[Pair]]:
    """Splits off a validation part of at most `count` pairs: (train, valid), each in the order of `pairs`.

    No sentence of one part, on either side, is in the other: pairs that share a sentence stay together. So groups
    larger than the room left stay in the training part, and a corpus of few distinct sentences may give fewer pairs.
    """
    if count >= len(pairs):
        raise SightlineError(f"cannot hold out {count:,} of {len(pairs):,} pairs; hold out fewer or add training text")
    together = groups(pairs)
    random.Random(seed).shuffle(together)
    held: set[int] = set()
    for group in together:
        if len(held) + len(group) <= count:
            held.update(group)
    if not held:
        raise SightlineError(
            "no pairs can be held out for validation: repeated sentences tie them all together; give validation files"
        )
    train = [pair for number, pair in enumerate(pairs) if number not in held]
    return train, [pair for number, pair in enumerate(pairs) if number in held]


@dataclass(frozen=True)
class Side:
    """Sentences of token ids end to end: sentence i is `ids[offsets[i]:offsets[i + 1]]`.

    `ids` is int32, `offsets` `(N + 1,)` int64; both may be memory-mapped.
    """

    ids: NDArray[np.int32]
    offsets: Integers

    @cached_property
    def lengths(self) -> Integers:
        """`(N,)`: the tokens of each sentence, its end symbol included."""
        return np.diff(self.offsets)

    def padded(self, indices: Integers) -> tuple[Integers, NDArray[np.bool_]]:
        """Ids and mask `(B, S)` of these sentences, padded on the right to the longest."""
        lengths = self.lengths[indices]
        columns = np.arange(lengths.max(initial=1))
        mask = columns < lengths[:, None]
        ids = np.full(mask.shape, PAD, dtype=np.int64)
        ids[mask] = self.ids[(self.offsets[indices, None] + columns)[mask]]
        return ids, mask


@dataclass(frozen=True)
class EncodedPairs:
    """Pairs as token ids, both sides ending with EOS. `numbers` `(N,)` tells each one's place among the pairs read."""

    source: Side
    target: Side
    numbers: Integers

    def __len__(self) -> int:
        return len(self.numbers)

    @cached_property
    def lengths(self) -> Integers:
        """`(N,)`: the tokens of each pair's longer side."""
        return np.maximum(self.source.lengths, self.target.lengths)

    def batch(self, indices: Integers) -> Batch:
        """These examples as a batch: source `(B, S)`, targets `(B, T)`."""
        import torch

        from sightline.batch import Batch, Tokens

        source, target = (
            Tokens(torch.from_numpy(ids), torch.from_numpy(mask))
            for ids, mask in (self.source.padded(indices), self.target.padded(indices))
        )
        return Batch((source,), target, tuple(self.numbers[indices].tolist()))


def encode_pairs(
    pairs: Iterable[Pair], source_tokenizer: Tokenizer, target_tokenizer: Tokenizer, max_length: int | None = None
) -> tuple[EncodedPairs, Account]:
    """Pairs as ids, without those that have an empty side or one of more than `max_length` tokens (EOS not counted)."""
    sides = (array("i"), array("i"))
    offsets = (array("q", [0]), array("q", [0]))
    numbers = array("q")
    empty = too_long = 0
    for number, pair in enumerate(pairs):
        encoded = (source_tokenizer.encode(pair.source), target_tokenizer.encode(pair.target))
        if not all(encoded):
            empty += 1
        elif max_length is not None and max(map(len, encoded)) > max_length:
            too_long += 1
        else:
            for side, ends, ids in zip(sides, offsets, encoded, strict=True):
                side.extend(ids)
                side.append(EOS)
                ends.append(len(side))
            numbers.append(number)
    source, target = (
        Side(np.array(side, dtype=np.int32), np.array(ends, dtype=np.int64))
        for side, ends in zip(sides, offsets, strict=True)
    )
    account = Account(len(numbers), empty, too_long)
    return EncodedPairs(source, target, np.array(numbers, dtype=np.int64)), account


def batches(encoded: EncodedPairs, batch_tokens: int, seed: int, epoch: int) -> list[Integers]:
    """One epoch: arrays of indices, every example once, of similar length, in an order fixed by seed and epoch.

    Rows times the longest sentence, source or target, is at most `batch_tokens`; a longer example stands alone.
    """
    generator = np.random.default_rng([seed % 2**64, epoch])
    order = generator.permutation(len(encoded))
    # The sort is stable, so examples of the same lengths stay in random order and meet others in each epoch.
    order = order[np.lexsort((encoded.source.lengths[order], encoded.target.lengths[order]))]
    parts = _cut(order, encoded.lengths, batch_tokens)
    return [parts[place] for place in generator.permutation(len(parts))]


def ordered_batches(lengths: Integers, batch_tokens: int) -> list[Integers]:
    """Every index once, sorted by `lengths` `(N,)`, shortest first, in batches within the same budget.

    The indices tell where each result belongs, so the order of the input can be put back.
    """
    return _cut(np.argsort(lengths, kind="stable"), lengths, batch_tokens)


def _cut(order: Integers, lengths: Integers, batch_tokens: int) -> list[Integers]:
    """`order` cut wherever one more row would take a batch over the budget."""
    if batch_tokens < 1:
        raise SightlineError(f"batch_tokens = {batch_tokens}: expected at least 1")
    cuts: list[int] = []
    start = longest = 0
    for place, length in enumerate(lengths[order].tolist()):
        longest = max(longest, length)
        if place > start and (place + 1 - start) * longest > batch_tokens:
            cuts.append(place)
            start, longest = place, length
    return np.split(order, cuts) if len(order) else []
