"""From files to batches: pairs of sentences, their token ids, and batches of similar length within a token budget.

Shapes: N examples, B rows of a batch, S source positions, T target positions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from sightline.errors import SightlineError
from sightline.filters import Account, Verdict
from sightline.guidance import Link, token_links
from sightline.open_words import opened
from sightline.readers import Pair, TextFiles
from sightline.source_texts import longest_part
from sightline.tokenizers import EOS, PAD, Tokenizer

if TYPE_CHECKING:
    from sightline.batch import Batch
    from sightline.corpora import Mix

__all__ = [
    "Account",
    "Encoded",
    "EncodedPairs",
    "Origins",
    "Pair",
    "Side",
    "TokenLinks",
    "batches",
    "bundled",
    "encode",
    "encode_pairs",
    "ordered_batches",
    "read_pairs",
]

Integers = NDArray[np.int64]
Change = Callable[[Integers, Integers], tuple[Integers, Integers]]


def bundled(part: Literal["train", "valid", "test"]) -> Path:
    """The file of a part of the English-German corpus that comes with Sightline."""
    return Path(str(resources.files("sightline") / "bundled" / f"tatoeba.en-de.{part}.tsv.gz"))


def read_pairs(
    source: Path | None = None,
    target: Path | None = None,
    pairs: Path | None = None,
    languages: tuple[str | None, str | None] = (None, None),
) -> list[Pair]:
    """All pairs of two parallel files, or of one file of pairs; pairs with an empty side included.

    `languages` are those to take from a .tmx file.
    """
    return TextFiles.given(source, target, pairs, languages).all()


@dataclass(frozen=True)
class Side:
    """Sentences of token ids end to end: sentence i is `ids[offsets[i]:offsets[i + 1]]`.

    `ids` is uint16 where the vocabulary fits, else int32; `offsets` `(N + 1,)` int64. Both may be memory-mapped.
    """

    ids: NDArray[Any]
    offsets: Integers

    @cached_property
    def lengths(self) -> NDArray[np.int32]:
        """`(N,)`: the tokens of each sentence, its end symbol included."""
        return np.diff(self.offsets).astype(np.int32)

    def padded(self, indices: Integers, change: Change | None = None) -> tuple[Integers, NDArray[np.bool_]]:
        """Ids and mask `(B, S)` of these sentences, padded on the right to the longest.

        `change` makes other tokens and lengths of theirs, which it gets end to end.
        """
        lengths: Integers = self.lengths[indices].astype(np.int64)
        columns = np.arange(lengths.max(initial=1))
        mask = columns < lengths[:, None]
        tokens = self.ids[(self.offsets[indices, None] + columns)[mask]]
        if change is not None:
            tokens, lengths = change(tokens.astype(np.int64), lengths)
            mask = np.arange(lengths.max(initial=1)) < lengths[:, None]
        ids = np.full(mask.shape, PAD, dtype=np.int64)
        ids[mask] = tokens
        return ids, mask


@dataclass(frozen=True)
class TokenLinks:
    """Links of all pairs end to end: those of pair i are `places[offsets[i]:offsets[i + 1]]`, (source, target) each.

    `places` `(links, 2)` are token positions, `offsets` `(N + 1,)` int64. Both may be memory-mapped.
    """

    places: NDArray[Any]
    offsets: Integers

    def matrices(self, indices: Integers, targets: int, sources: int) -> NDArray[np.bool_]:
        """`(B, T, S)` of these pairs: True where target and source token are linked."""
        result = np.zeros((len(indices), targets, sources), dtype=np.bool_)
        for row, index in enumerate(indices.tolist()):
            found = self.places[self.offsets[index] : self.offsets[index + 1]]
            result[row, found[:, 1], found[:, 0]] = True
        return result

    def turned(self) -> TokenLinks:
        """The same, (target, source) each."""
        return TokenLinks(self.places[:, ::-1], self.offsets)


@dataclass(frozen=True)
class Origins:
    """The files that examples were read from: those from `bounds[c]` to `bounds[c + 1]` come from `files[c]`."""

    files: tuple[TextFiles, ...]
    bounds: tuple[int, ...]

    def where(self, index: int, line: int) -> str:
        """File and line of an example."""
        number = int(np.searchsorted(self.bounds, index, side="right")) - 1
        return self.files[number].where(line)


@dataclass(frozen=True)
class EncodedPairs:
    """Pairs as token ids, both sides ending with EOS; of several `sources` each ends with it, one after the other.

    `numbers` `(N,)` tells each one's place among the pairs read; with `origins`, its line in its file. `links` are what
    is known of which tokens belong together.
    """

    source: Side
    target: Side
    numbers: Integers
    origins: Origins | None = None
    links: TokenLinks | None = None
    sources: int = 1

    def __len__(self) -> int:
        return len(self.numbers)

    @cached_property
    def lengths(self) -> NDArray[np.int32]:
        """`(N,)`: the tokens of each pair's longer side."""
        return np.maximum(self.source.lengths, self.target.lengths)

    def where(self, index: int) -> str:
        """Where the example at `index` (as in `Batch.indices`) was read: its file and line."""
        number = int(self.numbers[index])
        return f"pair {number + 1}" if self.origins is None else self.origins.where(index, number)

    def batch(self, indices: Integers, changes: tuple[Change | None, Change | None] = (None, None)) -> Batch:
        """These examples as a batch: sources `(B, S)`, targets `(B, T)`, links `(B, T, S)` where there are any.

        `changes` are made to the tokens of sources and targets.
        """
        import torch

        from sightline.batch import Batch, Tokens, apart

        source, target = (
            Tokens(torch.from_numpy(ids), torch.from_numpy(mask))
            for ids, mask in (self.source.padded(indices, changes[0]), self.target.padded(indices, changes[1]))
        )
        links = None
        if self.links is not None:
            links = torch.from_numpy(self.links.matrices(indices, target.ids.size(1), source.ids.size(1)))
        return Batch(apart(source, self.sources, EOS, PAD), target, tuple(indices.tolist()), links)

    def turned(self) -> EncodedPairs:
        """The same pairs the other way round."""
        links = None if self.links is None else self.links.turned()
        return EncodedPairs(self.target, self.source, self.numbers, self.origins, links)


@dataclass(frozen=True)
class Encoded:
    """Some pairs, encoded: `verdicts` `(R,)` says of each whether it was kept; all else is of those kept.

    `links` `(links, 2)` and `link_counts` are there if word links were given.
    """

    verdicts: NDArray[np.uint8]
    ids: tuple[NDArray[np.int32], NDArray[np.int32]]
    lengths: tuple[NDArray[np.int32], NDArray[np.int32]]
    links: NDArray[np.int32] | None = None
    link_counts: NDArray[np.int32] | None = None


def encode(
    pairs: Sequence[Pair],
    source: Tokenizer | None,
    target: Tokenizer,
    max_length: int | None = None,
    open_words: bool = False,
    links: Sequence[Sequence[Link]] | None = None,
) -> Encoded:
    """Pairs as ids, without those that have an empty side or one of more than `max_length` tokens (EOS not counted).

    Of several sources some may be empty, and each may have so many tokens.

    Without a `source` tokenizer the targets are text without a source: the end symbol alone stands for it.
    `open_words`: words of a source that the target vocabulary lacks get ids of their own: see `sightline.open_words`.
    `links` are those of each pair's words, as the text has them between spaces.
    """
    verdicts = bytearray()
    ids: tuple[list[int], list[int]] = ([], [])
    lengths: tuple[list[int], list[int]] = ([], [])
    for pair in pairs:
        own = opened(source, target, pair.source) if source and open_words else (source, target)
        encoded = (own[0].encode(pair.source) if own[0] else [], own[1].encode(pair.target))
        if not encoded[1] or not (encoded[0] or source is None):
            verdicts.append(Verdict.EMPTY)
        elif max_length is not None and max(longest_part(encoded[0]), len(encoded[1])) > max_length:
            verdicts.append(Verdict.TOO_LONG)
        else:
            verdicts.append(Verdict.TRAIN)
            for side, counts, found in zip(ids, lengths, encoded, strict=True):
                side += found
                side.append(EOS)
                counts.append(len(found) + 1)
    return Encoded(
        np.frombuffer(verdicts, dtype=np.uint8),
        (np.array(ids[0], dtype=np.int32), np.array(ids[1], dtype=np.int32)),
        (np.array(lengths[0], dtype=np.int32), np.array(lengths[1], dtype=np.int32)),
        *_linked(pairs, links, verdicts, source, target),
    )


def _linked(
    pairs: Sequence[Pair],
    links: Sequence[Sequence[Link]] | None,
    verdicts: Sequence[int],
    source: Tokenizer | None,
    target: Tokenizer,
) -> tuple[NDArray[np.int32] | None, NDArray[np.int32] | None]:
    """The links of the pairs that were kept, in tokens, and how many each has, if there are any."""
    if links is None or source is None:
        return None, None
    found: list[Link] = []
    counts: list[int] = []
    for pair, given, verdict in zip(pairs, links, verdicts, strict=True):
        if verdict == Verdict.TRAIN:
            owners = [source.encode_given(pair.source)[1], target.encode_given(pair.target)[1]] if given else [[], []]
            expanded = token_links(given, *owners)
            found += expanded
            counts.append(len(expanded))
    return np.array(found, dtype=np.int32).reshape(-1, 2), np.array(counts, dtype=np.int32)


def encode_pairs(
    pairs: Iterable[Pair],
    source_tokenizer: Tokenizer | None,
    target_tokenizer: Tokenizer,
    max_length: int | None = None,
    open_words: bool = False,
    links: Sequence[Sequence[Link]] | None = None,
) -> tuple[EncodedPairs, Account]:
    """`encode`, all of it held in memory, ready for batches, and the account of what was dropped."""
    found = encode([*pairs], source_tokenizer, target_tokenizer, max_length, open_words, links)
    source, target = (
        Side(ids, np.concatenate(([0], np.cumsum(lengths, dtype=np.int64))))
        for ids, lengths in zip(found.ids, found.lengths, strict=True)
    )
    kept = np.flatnonzero(found.verdicts == Verdict.TRAIN)
    counts = {why: int((found.verdicts == why).sum()) for why in (Verdict.EMPTY, Verdict.TOO_LONG)}
    account = Account(len(kept), {why: count for why, count in counts.items() if count})
    linked = None
    if found.links is not None and found.link_counts is not None:
        linked = TokenLinks(found.links, np.concatenate(([0], np.cumsum(found.link_counts, dtype=np.int64))))
    return EncodedPairs(source, target, kept, links=linked), account


def batches(encoded: EncodedPairs, batch_tokens: int, seed: int, epoch: int, mix: Mix | None = None) -> list[Integers]:
    """One epoch: arrays of indices, of similar length, in an order fixed by seed and epoch.

    Every example comes once, or as often as `mix` says. Rows times the longest sentence, source or target, is at most
    `batch_tokens`; a longer example stands alone.
    """
    generator = np.random.default_rng([seed % 2**64, epoch])
    order = generator.permutation(len(encoded) if mix is None else mix.draw(seed, epoch))
    # The sort is stable, so examples of the same lengths stay in random order and meet others in each epoch.
    order = order[np.lexsort((encoded.source.lengths[order], encoded.target.lengths[order]))]
    parts = _cut(order, encoded.lengths, batch_tokens)
    return [parts[place] for place in generator.permutation(len(parts))]


def ordered_batches(lengths: NDArray[np.integer[Any]], batch_tokens: int) -> list[Integers]:
    """Every index once, sorted by `lengths` `(N,)`, shortest first, in batches within the same budget.

    The indices tell where each result belongs, so the order of the input can be put back.
    """
    return _cut(np.argsort(lengths, kind="stable"), lengths, batch_tokens)


def _cut(order: Integers, lengths: NDArray[np.integer[Any]], batch_tokens: int) -> list[Integers]:
    """`order` cut wherever one more row would take a batch over the budget."""
    if batch_tokens < 1:
        raise SightlineError(f"batch_tokens = {batch_tokens}: expected at least 1")
    cuts = [0]
    rows = longest = 0
    # Plain and lean, since an epoch may have millions of rows; no `max`, which would cost as much as all the rest.
    for place, length in enumerate(lengths[order].tolist()):
        rows += 1
        if length > longest:
            longest = length
        if rows * longest > batch_tokens and rows > 1:
            cuts.append(place)
            rows, longest = 1, length
    return [order[start:end] for start, end in pairwise([*cuts, len(order)])] if len(order) else []
