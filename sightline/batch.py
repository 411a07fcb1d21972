"""What travels between the data and the models: token ids and features with their masks, and the encoder's memory.

Shapes: B sentences, S source positions, T target positions, d width, L layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(frozen=True)
class Tokens:
    """Right-padded token ids `(B, S)` and their mask `(B, S)`, True where a token is real.

    Sentences that come with padding before their tokens, as other tools may write them, are moved to the front of their
    rows. So positions, causality and packing may all count on it, whoever made the batch.
    """

    ids: Tensor
    mask: Tensor

    def __post_init__(self) -> None:
        # Batches are made on the CPU; on a GPU one look would make the CPU wait for it, at every batch.
        if self.mask.device.type == "cpu" and bool((self.mask[:, 1:] & ~self.mask[:, :-1]).any()):
            order = self.mask.int().argsort(dim=1, descending=True, stable=True)
            object.__setattr__(self, "ids", self.ids.gather(1, order))
            object.__setattr__(self, "mask", self.mask.gather(1, order))

    def to(self, device: torch.device) -> Tokens:
        return Tokens(self.ids.to(device), self.mask.to(device))

    def rows(self, index: Tensor) -> Tokens:
        """Only these sentences, by their numbers `(B',)`."""
        return Tokens(self.ids[index], self.mask[index])

    def between(self, start: int, end: int) -> Tokens:
        """Only these neighbours, no wider than the longest of them."""
        mask = _trimmed(self.mask[start:end])
        return Tokens(self.ids[start:end, : mask.size(1)], mask)


@dataclass(frozen=True)
class Features:
    """Right-padded vectors `(B, S, d)` and their mask `(B, S)`: images, speech, anything that is not text."""

    values: Tensor
    mask: Tensor

    def to(self, device: torch.device) -> Features:
        return Features(self.values.to(device), self.mask.to(device))

    def rows(self, index: Tensor) -> Features:
        """Only these sentences, by their numbers `(B',)`."""
        return Features(self.values[index], self.mask[index])

    def between(self, start: int, end: int) -> Features:
        """Only these neighbours, no wider than the longest of them."""
        mask = _trimmed(self.mask[start:end])
        return Features(self.values[start:end, : mask.size(1)], mask)


def _trimmed(mask: Tensor) -> Tensor:
    """`(B, S)` without the columns in which nothing is real."""
    return mask[:, : int(mask.sum(1).max())]


Source = Tokens | Features


@dataclass(frozen=True)
class Batch:
    """A batch of examples.

    `sources` holds one entry for each input (most models have one); text ends with the end-of-sentence id.
    `targets` is `y_1 … y_n </s>` without the start symbol, or None when decoding.
    `indices` are the examples' positions in their data set, so that errors can name lines.
    `links` `(B, T, S)` is True where a target token is known to belong to a token of the only source.
    """

    sources: tuple[Source, ...]
    targets: Tokens | None = None
    indices: tuple[int, ...] = ()
    links: Tensor | None = None

    def to(self, device: torch.device) -> Batch:
        targets = None if self.targets is None else self.targets.to(device)
        links = None if self.links is None else self.links.to(device)
        return Batch(tuple(source.to(device) for source in self.sources), targets, self.indices, links)

    def turned(self) -> Batch:
        """The same pairs the other way round: the only source is the target, and the target the source."""
        (source,) = self.sources
        assert isinstance(source, Tokens)
        assert self.targets is not None
        links = None if self.links is None else self.links.transpose(1, 2)
        return Batch((self.targets,), source, self.indices, links)

    def rows(self, places: Sequence[int]) -> Batch:
        """Only these sentences, in this order and as often as they are named; padding stays."""
        index = torch.tensor(places, dtype=torch.long, device=self.sources[0].mask.device)
        targets = None if self.targets is None else self.targets.rows(index)
        indices = tuple(self.indices[place] for place in places) if self.indices else ()
        links = None if self.links is None else self.links[index]
        return Batch(tuple(source.rows(index) for source in self.sources), targets, indices, links)

    def between(self, start: int, end: int) -> Batch:
        """The sentences from `start` to before `end`, without the padding that only the others needed."""
        sources = tuple(source.between(start, end) for source in self.sources)
        targets = None if self.targets is None else self.targets.between(start, end)
        links = None
        if self.links is not None and targets is not None:
            links = self.links[start:end, : targets.mask.size(1), : sources[0].mask.size(1)]
        return Batch(sources, targets, self.indices[start:end], links)

    @property
    def size(self) -> int:
        """How many sentences."""
        return int(self.sources[0].mask.size(0))

    @property
    def source_mask(self) -> Tensor:
        """`(B, S)`: the real positions of all sources, one source beside the other as in a `Memory` of several."""
        return side_by_side([source.mask for source in self.sources])


@dataclass(frozen=True)
class Final:
    """A recurrent encoder's last states, `(B, L, d)` each; `cell` is for LSTMs only.

    For a bidirectional encoder d holds the forward half, then the backward half: the forward state after the
    last real token and the backward state after the first.
    """

    hidden: Tensor
    cell: Tensor | None = None
    bidirectional: bool = False


@dataclass(frozen=True)
class Spans:
    """Positions that stand for several source tokens each, as sentences do.

    `members` `(B, N, S)` is True where a token belongs to a position, `shares` `(B, S)` how much of a look at its
    position is meant for a token; those of a position sum to 1.
    """

    members: Tensor
    shares: Tensor

    def matrix(self, kind: torch.dtype) -> Tensor:
        """`(B, N, S)`: weights over positions times this are weights over tokens."""
        return self.members.to(kind) * self.shares[:, None].to(kind)


@dataclass(frozen=True)
class Memory:
    """What an encoder leaves for decoders: states `(B, S, d)`, mask `(B, S)`, and a recurrent encoder's last states.

    `source` are the tokens that it was made of, as the source embedding knows them. Where its positions are not these
    tokens, `spans` tells which of them each stands for. A memory of several sources has them in `parts`, and in its own
    states side by side: S is the sum of theirs.
    """

    states: Tensor
    mask: Tensor
    final: Final | None = None
    parts: tuple[Memory, ...] = field(default=())
    source: Tokens | None = None
    spans: Spans | None = None

    @property
    def sources(self) -> tuple[Memory, ...]:
        """The memories of several sources, or itself."""
        several = self.parts and all(part.spans is None for part in self.parts)
        return self.parts if several else (self,)

    @property
    def tokens(self) -> Tensor:
        """Which source tokens are real, `(B, tokens)`: its own mask, where its positions are tokens."""
        return self.mask if self.spans is None or self.source is None else self.source.mask

    def beside(self) -> dict[str, Tensor]:
        """What attention may want beside states and mask, `(B, …)` each, as far as it is there.

        The `ids` of its positions; the states of `sentences`, which are real, and the tokens in them.
        """
        found: dict[str, Tensor] = {} if self.source is None else {"ids": self.source.ids}
        for part in self.parts:
            if part.spans is not None:
                found |= {"sentences": part.states, "sentence_mask": part.mask, "sentence_members": part.spans.members}
        return found


def side_by_side(parts: Sequence[Tensor]) -> Tensor:
    """Tensors `(B, S_k, …)` of several sources as one, `(B, Σ S_k, …)`; that of one source as it is."""
    return parts[0] if len(parts) == 1 else torch.cat([*parts], 1)


def apart(tokens: Tokens, count: int, end: int, padding: int) -> tuple[Tokens, ...]:
    """Rows in which `count` sources stand one after the other, each ended by the id `end`, as sources `(B, S_k)`.

    A source that a row does not have is the end alone.
    """
    if count == 1:
        return (tokens,)
    ends = (tokens.ids == end) & tokens.mask
    number = ends.cumsum(1) - ends.long()  # (B, S): whose token it is
    found = []
    for source in range(count):
        mask = tokens.mask & (number == source)
        missing = ~mask.any(1)
        order = mask.int().argsort(dim=1, descending=True, stable=True)
        mask = _trimmed(mask.gather(1, order)) if not missing.all() else mask[:, :1]
        ids = tokens.ids.gather(1, order)[:, : mask.size(1)].masked_fill(~mask, padding)
        ids[missing, 0] = end
        mask[missing, 0] = True
        found.append(Tokens(ids, mask))
    return tuple(found)


def pad(rows: list[list[int]], padding: int) -> Tokens:
    """Rows of ids as `Tokens`, padded on the right to the longest (at least one column)."""
    longest = max((len(row) for row in rows), default=0)
    ids = torch.full((len(rows), max(longest, 1)), padding, dtype=torch.long)
    mask = torch.zeros_like(ids, dtype=torch.bool)
    for number, row in enumerate(rows):
        ids[number, : len(row)] = torch.tensor(row, dtype=torch.long)
        mask[number, : len(row)] = True
    return Tokens(ids, mask)
