"""A lexicon: what source tokens become, and with what probability.

It is read from a file, `source<TAB>target<TAB>probability` in each line, counted from word links, or learnt from pairs
by IBM's first model (Brown et al. 1993): t(f | e), the probability that a source token e gives a target token f,
estimated by expectation-maximisation.

Shapes: P pairs of tokens that meet in a sentence, E different ones (entries of the lexicon), T target tokens, V source
vocabulary, M most targets of a source token.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sightline.errors import SightlineError
from sightline.files import read_lines
from sightline.tokenizers import UNK, Tokenizer

ITERATIONS = 5
"""Rounds of expectation-maximisation."""

BLOCK = 4_000_000  # pairs of tokens that are looked at at a time
MOST, LEAST = 20, 0.01
"""What is kept of a learnt lexicon: most targets of a source token, and the least probable."""

WIDEST = 100
"""The most targets of a source token that a model looks at, the most probable ones."""

Ids = Sequence[int]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Lexicon:
    """t(f | e): `probabilities` that `sources` become `targets`, all `(E,)`, sorted by source, then by target."""

    sources: Integers
    targets: Integers
    probabilities: NDArray[np.float64]

    def best(self, most: int = MOST, least: float = LEAST) -> Lexicon:
        """The `most` most probable targets of each source that have at least this probability, made to sum to 1."""
        kept = self.probabilities >= least
        sources, targets, probabilities = self.sources[kept], self.targets[kept], self.probabilities[kept]
        order = np.lexsort((targets, -probabilities, sources))
        sources, targets, probabilities = sources[order], targets[order], probabilities[order]
        kept = np.arange(len(sources)) - np.searchsorted(sources, sources) < most
        sources, targets, probabilities = sources[kept], targets[kept], probabilities[kept]
        return Lexicon(sources, targets, probabilities / np.bincount(sources, probabilities)[sources])

    def without(self, source: int) -> Lexicon:
        """All but what this source token becomes."""
        kept = self.sources != source
        return Lexicon(self.sources[kept], self.targets[kept], self.probabilities[kept])

    def table(self, vocabulary: int) -> tuple[Integers, NDArray[np.float32]]:
        """For each source token of so many its targets and their probabilities, `(V, M)` both, zeros where it has few.

        Of more than `WIDEST` the most probable count.
        """
        order = np.lexsort((-self.probabilities, self.sources))
        sources = self.sources[order]
        ranks = np.arange(len(sources)) - np.searchsorted(sources, sources)
        kept = ranks < WIDEST
        ids = np.zeros((vocabulary, int(ranks[kept].max(initial=0)) + 1), dtype=np.int64)
        probabilities = np.zeros(ids.shape, dtype=np.float32)
        ids[sources[kept], ranks[kept]] = self.targets[order][kept]
        probabilities[sources[kept], ranks[kept]] = self.probabilities[order][kept]
        return ids, probabilities

    def text(self, source: Tokenizer, target: Tokenizer) -> str:
        """The file's content; entries are told by their names, the most probable of each source first."""
        order = np.lexsort((self.targets, -self.probabilities, self.sources))
        rows = zip(self.sources[order], self.targets[order], self.probabilities[order], strict=True)
        return "".join(f"{source.piece(one)}\t{target.piece(other)}\t{share:.9g}\n" for one, other, share in rows)


@dataclass(frozen=True)
class _Block:
    """Some sentences' pairs of tokens: for each target token, side by side, all tokens of its source.

    `entries` `(P,)`: the place of each pair in a lexicon. `meets` `(T,)`: the source tokens of each target token.
    """

    entries: NDArray[np.int32]
    meets: Integers


def read_lexicon(path: Path, source: Tokenizer, target: Tokenizer) -> Lexicon:
    """Reads a file in the ids of two vocabularies.

    A side of an entry is the name of a token, as `sightline lexicon --model` writes it, or a word that is one token.
    Sources that are neither are left out; what goes to targets that are neither goes to UNK.
    """
    names = [{one.piece(id): id for id in range(one.size)} for one in (source, target)]
    found: defaultdict[tuple[int, int], float] = defaultdict(float)
    for number, line in enumerate(read_lines(path), start=1):
        columns = line.split("\t")
        share = _probability(columns[2]) if len(columns) == 3 else None
        if share is None:
            raise SightlineError(
                f"{path}, line {number}: expected a source, a target and a probability from 0 to 1, with tabs between"
            )
        one = _token(columns[0], names[0], source)
        other = _token(columns[1], names[1], target)
        if one is not None:
            found[one, UNK if other is None else other] += share
    if not found:
        raise SightlineError(f"{path}: no source of this lexicon is a token of the model: is it of the same languages?")
    keys = np.array(sorted(found), dtype=np.int64)
    shares = np.array([found[one, other] for one, other in keys.tolist()])
    sums = np.bincount(keys[:, 0], shares)
    if sums.max() > 1.001:
        name = source.piece(int(sums.argmax()))
        raise SightlineError(f"{path}: the probabilities of '{name}' sum to {sums.max():.3g}: they must not pass 1")
    return Lexicon(keys[:, 0], keys[:, 1], shares)


def _probability(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value <= 1 else None


def _token(text: str, names: dict[str, int], tokenizer: Tokenizer) -> int | None:
    if text in names:
        return names[text]
    ids = tokenizer.encode(text)
    return ids[0] if len(ids) == 1 and ids[0] != UNK else None


def learn_lexicon(pairs: Sequence[tuple[Ids, Ids]], vocabulary: int, iterations: int = ITERATIONS) -> Lexicon:
    """IBM's first model of pairs of ids; `vocabulary` is the size of the target's."""
    keys, blocks = _count(pairs, vocabulary)
    sources, targets = np.divmod(keys, vocabulary)
    probabilities = np.ones(len(keys))
    for _ in range(iterations):
        counts = np.zeros(len(keys))
        for block in blocks:
            # How likely each source token of a sentence is to have given the target token.
            given = probabilities[block.entries]
            starts = np.cumsum(block.meets) - block.meets
            given /= np.repeat(np.add.reduceat(given, starts), block.meets)
            counts += np.bincount(block.entries, given, minlength=len(keys))
        probabilities = counts / np.bincount(sources, counts)[sources]
    return Lexicon(sources, targets, probabilities)


def counted_lexicon(counts: Mapping[tuple[int, int], int]) -> Lexicon:
    """Of links between tokens, counted: the share of a source token's links that go to each target token."""
    keys = np.array(sorted(counts), dtype=np.int64).reshape(-1, 2)
    times = np.array([counts[source, target] for source, target in keys.tolist()], dtype=np.float64)
    return Lexicon(keys[:, 0], keys[:, 1], times / np.bincount(keys[:, 0], times)[keys[:, 0]])


def _count(pairs: Sequence[tuple[Ids, Ids]], vocabulary: int) -> tuple[Integers, list[_Block]]:
    """All different pairs of tokens, as source * vocabulary + target, sorted; and where in the text they meet."""
    found: list[tuple[Integers, NDArray[np.int32], Integers]] = []
    for part in _parts(pairs):
        lengths = np.array([(len(source), len(target)) for source, target in part], dtype=np.int64)
        sources, targets = (np.concatenate([np.asarray(pair[side], np.int64) for pair in part]) for side in (0, 1))
        meets = np.repeat(lengths[:, 0], lengths[:, 1])  # (T,)
        first = np.repeat(np.cumsum(lengths[:, 0]) - lengths[:, 0], lengths[:, 1])  # (T,): where its source begins
        starts = np.cumsum(meets) - meets
        places = np.arange(meets.sum()) - np.repeat(starts - first, meets)  # (P,)
        unique, inverse = np.unique(sources[places] * vocabulary + np.repeat(targets, meets), return_inverse=True)
        found.append((unique, inverse.astype(np.int32), meets))
    keys = np.unique(np.concatenate([unique for unique, _, _ in found]))
    return keys, [
        _Block(np.searchsorted(keys, unique).astype(np.int32)[inverse], meets) for unique, inverse, meets in found
    ]


def _parts(pairs: Sequence[tuple[Ids, Ids]]) -> Iterable[Sequence[tuple[Ids, Ids]]]:
    """The pairs in runs of so few that the pairs of their tokens do not fill the memory."""
    start = held = 0
    for number, (source, target) in enumerate(pairs):
        held += len(source) * len(target)
        if held > BLOCK and number > start:
            yield pairs[start:number]
            start, held = number, len(source) * len(target)
    yield pairs[start:]
