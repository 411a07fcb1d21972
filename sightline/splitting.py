"""Subword sampling: in training, some tokens are split into the two that they are made of, others each time.

So a model sees the same words spelled in several ways, and learns what their parts mean. It is done to the ids of a
batch, so that text is tokenised once and kept once, whatever is drawn. Close to BPE-dropout (Provilkov et al. 2020),
which leaves merges out on the way up; here they are undone on the way down.
Shapes: V entries of a vocabulary, B rows of a batch, n tokens of all its rows end to end.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np

from sightline.config import RunConfig
from sightline.data import Change, Integers
from sightline.errors import SightlineError
from sightline.folder import Tokenizers
from sightline.limits import most_tokens
from sightline.text import checked_symbols
from sightline.tokenizers import Tokenizer

WHOLE = -1  # stands for the halves of an entry that has none


@dataclass(frozen=True)
class Halves:
    """The two entries that each entry of a vocabulary is made of: `(V, 2)`, `WHOLE` where it has none."""

    entries: Integers

    @classmethod
    def of(cls, tokenizer: Tokenizer, whole: frozenset[str] = frozenset()) -> Halves:
        """Those of a tokenizer; what is called one of `whole` stays so."""
        entries = np.full((tokenizer.size, 2), WHOLE, dtype=np.int64)
        for id, halves in tokenizer.halves().items():
            if tokenizer.piece(id) not in whole:
                entries[id] = halves
        return cls(entries)

    def split(
        self, ids: Integers, lengths: Integers, share: float, longest: int, generator: np.random.Generator
    ) -> tuple[Integers, Integers]:
        """Tokens `(n,)` of rows of `lengths` `(B,)`, with a `share` of them split, and of their halves again.

        A row that would get more than `longest` tokens stays as it was.
        """
        new, rows = ids, np.repeat(np.arange(len(lengths)), lengths)
        fresh = np.ones(len(new), dtype=np.bool_)
        while True:
            drawn = fresh & (generator.random(len(new)) < share) & (self.entries[new, 0] != WHOLE)
            if not drawn.any():
                break
            times = 1 + drawn
            starts = np.cumsum(times) - times
            halves = self.entries[new[drawn]]
            new, rows, fresh = np.repeat(new, times), np.repeat(rows, times), np.repeat(drawn, times)
            new[starts[drawn]], new[starts[drawn] + 1] = halves.T
        counts = np.bincount(rows, minlength=len(lengths))
        too_long = (counts > longest) & (counts > lengths)
        if too_long.any():
            old_rows = np.repeat(np.arange(len(lengths)), lengths)
            kept = [(ids[old_rows == row] if too_long[row] else new[rows == row]) for row in range(len(lengths))]
            new, counts = np.concatenate(kept), np.where(too_long, lengths, counts)
        return new, counts


@dataclass(frozen=True)
class Splitting:
    """How both sides of a batch are split."""

    source: Halves
    target: Halves
    share: float
    longest: int  # tokens of a side, its end symbol included

    def changes(self, seed: int, indices: Integers) -> tuple[Change, Change]:
        """What becomes of the tokens of the batch of these examples, source first; the same for the same seed."""
        generator = np.random.default_rng([seed % 2**64, zlib.crc32(indices.tobytes())])

        def change(halves: Halves) -> Change:
            return lambda ids, lengths: halves.split(ids, lengths, self.share, self.longest, generator)

        return change(self.source), change(self.target)


def splitting_of(config: RunConfig, tokenizers: Tokenizers) -> Splitting | None:
    """What `data.split_tokens` asks for; None where it asks for nothing."""
    if not config.data.split_tokens:
        return None
    whole = frozenset(checked_symbols(config.text))
    source, target = (Halves.of(one, whole) for one in (tokenizers.source, tokenizers.target))
    longest = min(config.data.max_length, *most_tokens(config.model)) + 1
    return Splitting(source, target, config.data.split_tokens, longest)


def check_splitting(config: RunConfig) -> None:
    """Refuses what has no parts to split, and what counts tokens that would be others."""
    if not config.data.split_tokens:
        return
    if config.text.tokenizer not in ("unigram", "bpe"):
        raise SightlineError(
            f"data.split_tokens splits subwords, and text.tokenizer is '{config.text.tokenizer}': use unigram or bpe, "
            "or leave it out"
        )
    if config.model.source_count > 1:
        raise SightlineError("data.split_tokens knows one source, and model.sources.count says more: leave it out")
    linked = {"data.alignments": config.data.alignments, "data.align_with": config.data.align_with}
    for key, given in linked.items():
        if given is not None:
            raise SightlineError(f"data.split_tokens does not go with {key}, whose links are of whole tokens: use one")
