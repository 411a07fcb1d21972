"""The first look at a corpus: every pair is judged and remembered by its keys, not by its text.

Shapes: R pairs read, N pairs that passed the filters.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sightline.corpora import Corpus
from sightline.errors import SightlineError
from sightline.files import Watch, ignore
from sightline.filters import Account, Filters, Verdict
from sightline.holdout import Keys, hold_out, key, repeated
from sightline.sizes import choose_held_out
from sightline.source_texts import split_sources


@dataclass(frozen=True)
class Survey:
    """What became of each pair: `verdicts` `(R,)` in the order of reading; `words` `(R,)` counts both sides' words.

    `unit` is what a pair is called: text without a source has lines.
    """

    verdicts: NDArray[np.uint8]
    words: NDArray[np.uint32]
    unit: str = "pair"

    def account(self) -> Account:
        """How many were kept and dropped, without examples."""
        counts = Counter(
            dict(zip(*(found.tolist() for found in np.unique(self.verdicts, return_counts=True)), strict=True))
        )
        kept = counts.pop(Verdict.TRAIN, 0) + counts.pop(Verdict.VALID, 0)
        return Account(kept, {Verdict(why): count for why, count in counts.items()}, unit=self.unit)

    def count(self, verdict: Verdict) -> int:
        """How many pairs have this verdict."""
        return int((self.verdicts == verdict).sum())

    def training_words(self) -> int:
        """The words of the training part, both sides together."""
        return int(self.words[self.verdicts == Verdict.TRAIN].sum(dtype=np.int64))


@dataclass(frozen=True)
class HeldOut:
    """How many pairs to hold out (None: as many as suits the corpus), and the seed that chooses them."""

    count: int | None
    seed: int


def survey(
    corpora: Sequence[Corpus], filters: Filters, held_out: HeldOut | None = None, watch: Watch = ignore
) -> Survey:
    """Reads all corpora once; with `held_out`, some of the pairs that pass are set apart for validation."""
    judge = filters.judge()
    verdicts, words = bytearray(), array("I")
    keys = [array("Q") for _ in range(filters.sources + 1)]  # of each source, and of the target
    with_keys = filters.duplicates or held_out is not None
    for corpus in corpora:
        before = len(verdicts)
        for _, pair in corpus.files.read(watch):
            verdict = judge(pair)
            verdicts.append(verdict)
            passed = verdict == Verdict.TRAIN
            words.append(len(pair.source.split()) + len(pair.target.split()) if passed else 0)
            if passed and with_keys:
                # Empty sources are no sentence that texts could share.
                for one, text in zip(keys, (*split_sources(pair.source, filters.sources), pair.target), strict=True):
                    one.append(key(text or pair.target))
        if len(verdicts) == before:
            raise SightlineError(f"{corpus.files.paths[0]}: the file is empty")
    unit = "line" if filters.alone else "pair"
    found = Survey(np.frombuffer(verdicts, dtype=np.uint8), np.frombuffer(words, dtype=np.uint32), unit)
    _settle(found, [np.frombuffer(side, dtype=np.uint64) for side in keys], filters, held_out)
    return found


def _settle(found: Survey, keys: list[Keys], filters: Filters, held_out: HeldOut | None) -> None:
    """Verdicts that take all pairs together: duplicates go, and a validation part is set apart."""
    passed = np.flatnonzero(found.verdicts == Verdict.TRAIN)
    if filters.duplicates:
        again = repeated(*keys)
        found.verdicts[passed[again]] = Verdict.DUPLICATE
        passed, keys = passed[~again], [side[~again] for side in keys]
    if not len(passed):
        hint = f" (a side may have {filters.longest:,} tokens)" if found.count(Verdict.TOO_LONG) else ""
        raise SightlineError(f"nothing is left to train on: {found.account()}{hint}")
    if held_out is None:
        return
    if len(passed) < 2:
        raise SightlineError(f"too little to train on: {found.account()}, and one must be held out for validation")
    chosen = hold_out(keys, choose_held_out(held_out.count, len(passed)), held_out.seed)
    found.verdicts[passed[chosen]] = Verdict.VALID
