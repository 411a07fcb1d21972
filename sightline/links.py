"""From attention weights to word alignments: plain functions over numpy arrays.

Shapes: L layers, H heads, T target rows, S source columns; n target tokens and m source tokens without their
end-of-sentence tokens, so that the weights of a whole sentence are (H, n + 1, m + 1).

Attention is not alignment, but the two are near enough to be compared once three things are settled: which row
belongs to a word (`read_rows`), how pieces become words (`word_weights`, `links`), and which head to believe
(`best_head`). A link is `(source word, target word)`, both from 0.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sightline.errors import SightlineError, nearest

Weights = NDArray[Any]
Link = tuple[int, int]
Links = set[Link]
Reading = Literal["predicts", "consumes"]
Symmetry = Literal["intersection", "union", "grow-diag"]

READINGS: tuple[Reading, ...] = ("predicts", "consumes")
SYMMETRIES: tuple[Symmetry, ...] = ("intersection", "union", "grow-diag")


class Choice(NamedTuple):
    """Which weights tell the alignment: None averages over all layers, or over all heads of the layer."""

    layer: int | None = None
    head: int | None = None
    reading: Reading = "predicts"


class Sentence(NamedTuple):
    """One sentence pair under a model.

    `layers`: L arrays `(H, n + 1, m + 1)`, end-of-sentence row and column included; H may differ by layer.
    `target_words`, `source_words`: for each token the index of its word, -1 for special tokens.
    `apart`: the columns at which another source begins that is looked at on its own; each then has links of its own.
    `copied`: `(1, n + 1, m + 1)`, how probable it was to copy each source token, of a model that copies.
    """

    layers: Sequence[Weights]
    target_words: Sequence[int]
    source_words: Sequence[int]
    apart: Sequence[int] = ()
    copied: Weights | None = None

    @property
    def maps(self) -> list[Weights]:
        """All its weights: the layers, and last what was copied."""
        return [*self.layers, *(() if self.copied is None else (self.copied,))]

    @property
    def telling(self) -> Sequence[Weights]:
        """The layers that an alignment is read from: attention's, or without any what was copied."""
        return self.layers or self.maps


class MatchAndMass(NamedTuple):
    """Koehn and Knowles' two numbers, averaged over `words` target words that have a reference link."""

    match: float
    mass: float
    words: int


def select(layers: Sequence[Weights], layer: int | None = None, head: int | None = None) -> Weights:
    """One matrix `(T, S)` out of L arrays `(H, T, S)`; None averages over all layers, or over the layer's heads.

    An average over all layers gives each layer the same say, however many heads it has.
    """
    if not layers:
        raise SightlineError("this model has no attention weights, so there is no alignment to read from it")
    if layer is None:
        if head is not None:
            raise SightlineError(
                f"alignment.head = {head} needs alignment.layer: name the layer, or leave out the head"
            )
        average: Weights = np.mean([weights.mean(axis=0) for weights in layers], axis=0)
        return average
    if not 0 <= layer < len(layers):
        raise SightlineError(f"alignment.layer = {layer}: this model has layers 0 to {len(layers) - 1}")
    weights = layers[layer]
    if head is None:
        return weights.mean(axis=0)
    if not 0 <= head < len(weights):
        raise SightlineError(f"alignment.head = {head}: layer {layer} has heads 0 to {len(weights) - 1}")
    return weights[head]


def read_rows(weights: Weights, reading: Reading = "predicts") -> Weights:
    """The rows that stand for the target's tokens: `(..., n + 1, m + 1)` to `(..., n, m)`.

    Row t of `weights` is where the model looked to predict token t; the last row predicts the end of the sentence.
    "predicts" takes row t for token t. "consumes" takes row t + 1, where token t is the decoder's input: many
    decoders look at the words of a token only when they have just read it.
    The source's end-of-sentence column is dropped, and the rows are not normalised again: what a model parks there
    is its way of looking at nothing.
    """
    if reading not in READINGS:
        raise SightlineError(f"unknown reading '{reading}'; {nearest(reading, READINGS)}")
    if weights.ndim < 2 or 0 in weights.shape[-2:]:
        raise ValueError(f"weights {weights.shape} have no end-of-sentence row or column to drop")
    rows = weights[..., :-1, :] if reading == "predicts" else weights[..., 1:, :]
    return rows[..., :-1]


def word_weights(
    weights: Weights,
    target_words: Sequence[int],
    source_words: Sequence[int],
    shape: tuple[int, int] | None = None,
) -> Weights:
    """Merges pieces to words: `(T, S)` over tokens to (target words, source words).

    The weights of a source word are the sum of its pieces' (attention to any part of it counts), those of a target
    word the mean of its pieces' (so that a row stays a distribution). Tokens with the index -1 are left out.
    The lists may go on past the matrix with -1, for tokens that `read_rows` dropped.
    `shape`, when given, is the result's; else the highest index of each list decides.
    """
    rows = _membership(target_words, weights.shape[0], shape[0] if shape else None)  # (target words, T)
    columns = _membership(source_words, weights.shape[1], shape[1] if shape else None)  # (source words, S)
    pieces = rows.sum(axis=1, keepdims=True)
    return (rows / np.maximum(pieces, 1)) @ np.nan_to_num(weights) @ columns.T


def links(
    weights: Weights,
    target_words: Sequence[int] | None = None,
    source_words: Sequence[int] | None = None,
    threshold: float | None = None,
) -> Links:
    """Hard links (source, target) from weights `(T, S)`.

    Every target token links to the source token it weighs most (the first, when several weigh the same), or, with
    a `threshold`, to all that weigh at least so much. With token-to-word lists two words are linked if any of their
    pieces are; without them, tokens count as words. Tokens of index -1 take no part; a row of zeros links to nothing.
    """
    targets = _trim(range(weights.shape[0]) if target_words is None else target_words, weights.shape[0])
    sources = _trim(range(weights.shape[1]) if source_words is None else source_words, weights.shape[1])
    open_columns = np.array([word >= 0 for word in sources], dtype=bool)
    known = np.where(open_columns, np.nan_to_num(weights), 0.0)
    found: Links = set()
    for row, target in zip(known, targets, strict=True):
        if target < 0 or not np.any(row > 0):
            continue
        chosen = [int(row.argmax())] if threshold is None else np.flatnonzero((row >= threshold) & (row > 0)).tolist()
        found |= {(sources[column], target) for column in chosen}
    return found


def to_pharaoh(found: Iterable[Link], dividers: Sequence[int] = ()) -> str:
    """`0-0 1-2`: source-target, sorted.

    Of several sources, with words at the places `dividers` between them, each has a column, with tabs between these.
    """
    columns: list[list[Link]] = [[] for _ in range(len(dividers) + 1)]
    starts = [0, *(place + 1 for place in dividers)]
    for source, target in sorted(found):
        number = bisect_right(starts, source) - 1
        columns[number].append((source - starts[number], target))
    return "\t".join(" ".join(f"{source}-{target}" for source, target in column) for column in columns)


def match_and_mass(weights: Sequence[Weights], reference: Sequence[Links]) -> MatchAndMass:
    """How far attention agrees with reference links, over sentences of word weights (target words, source words).

    Of a target word with k links, the match is 1 if its k linked words are the k it weighs most; the mass is the
    weight on them. Words without a link are left out (Koehn and Knowles 2017, section 3.5).
    """
    matches: list[bool] = []
    masses: list[float] = []
    for matrix, gold in zip(weights, reference, strict=True):
        for target in sorted({target for _, target in gold}):
            linked = {source for source, other in gold if other == target}
            row = matrix[target]
            top = np.argsort(-row, kind="stable")[: len(linked)]
            matches.append(linked == set(top.tolist()))
            masses.append(float(row[sorted(linked)].sum()))
    if not matches:
        return MatchAndMass(0.0, 0.0, 0)
    return MatchAndMass(float(np.mean(matches)), float(np.mean(masses)), len(matches))


def sharpness(weights: Weights) -> NDArray[np.float64]:
    """How decided each row of weights `(..., T, S)` is: 1 - entropy / log S, one number a row that looks anywhere.

    1 is all weight on one place, 0 the same weight on all, and half the places out of S = 4 give 0.5. Rows are made to
    sum to 1 first. Rows of zeros, and those with one place to look at, have nothing to decide and are left out.
    """
    rows = np.asarray(weights, dtype=np.float64).reshape(-1, weights.shape[-1])
    totals = rows.sum(axis=1)
    rows = rows[totals > 0] / totals[totals > 0, None]
    if rows.shape[1] < 2:
        return np.zeros(0)
    entropy = -np.sum(rows * np.log(np.where(rows > 0, rows, 1.0)), axis=1)
    return 1 - entropy / np.log(rows.shape[1])


def symmetrise(forward: Links, backward: Links, how: Symmetry = "grow-diag") -> Links:
    """Joins the links of the two directions, both written (source, target).

    "grow-diag" starts from the intersection and takes in a link of the union that touches one it already has
    (diagonals too) as long as one of the two words has no link yet, until nothing changes.
    """
    if how not in SYMMETRIES:
        raise SightlineError(f"unknown way to symmetrise '{how}'; {nearest(how, SYMMETRIES)}")
    if how == "intersection":
        return forward & backward
    union = forward | backward
    if how == "union":
        return union
    grown = forward & backward
    changed = True
    while changed:
        changed = False
        # Row by row, and links found on the way count at once: the result depends on this order, so it is fixed.
        for source, target in sorted(union, key=lambda link: (link[1], link[0])):
            if (source, target) not in grown:
                continue
            for near in _neighbours(source, target):
                if near in union and near not in grown and _one_is_free(near, grown):
                    grown.add(near)
                    changed = True
    return grown


def align(sentence: Sentence, choice: Choice) -> Links:
    """The word links of one sentence under one choice of weights."""
    weights = read_rows(select(sentence.telling, choice.layer, choice.head), choice.reading)
    found: Links = set()
    for start, end in pairwise([0, *sentence.apart, None]):
        found |= links(weights[:, start:end], sentence.target_words, sentence.source_words[start:end])
    return found


def best_head(sentences: Sequence[Sentence], score: Callable[[list[Links]], float]) -> tuple[Choice, float]:
    """The choice of layer, head and reading whose links over all sentences get the lowest `score`.

    `score` takes one set of links for each sentence; for the alignment error rate it is
    `lambda predicted: alignment_error_rate(predicted, sure, possible)`. The averages are tried before single heads,
    and a later choice must be better, not equal.
    """
    if not sentences:
        raise SightlineError("choosing an alignment head needs at least one sentence")
    scored = (
        (choice, score([align(sentence, choice) for sentence in sentences])) for choice in choices(sentences[0].telling)
    )
    return min(scored, key=lambda pair: pair[1])


def choices(layers: Sequence[Weights]) -> Iterator[Choice]:
    """All choices a model of L layers `(H, T, S)` offers: all averaged, each layer averaged, each head."""
    pairs: list[tuple[int | None, int | None]] = [(None, None)]
    pairs += [(layer, None) for layer in range(len(layers))]
    # The average of one head is the head.
    pairs += [(layer, head) for layer, weights in enumerate(layers) if len(weights) > 1 for head in range(len(weights))]
    return (Choice(layer, head, reading) for layer, head in pairs for reading in READINGS)


def _trim(words: Sequence[int], length: int) -> list[int]:
    """The first `length` indices; what follows may only be special tokens."""
    if len(words) < length or any(word >= 0 for word in words[length:]):
        raise ValueError(f"{len(words)} token-to-word indices for {length} rows or columns of weights")
    return list(words[:length])


def _membership(words: Sequence[int], length: int, count: int | None) -> NDArray[np.float64]:
    """`(words, length)`: 1 where a token belongs to a word."""
    indices = np.array(_trim(words, length), dtype=np.int64)
    if count is None:
        count = int(indices.max(initial=-1)) + 1
    return (np.arange(count)[:, None] == indices[None, :]).astype(np.float64)


def _neighbours(source: int, target: int) -> list[Link]:
    straight = [(-1, 0), (0, -1), (1, 0), (0, 1)]
    diagonal = [(-1, -1), (-1, 1), (1, -1), (1, 1)]
    return [(source + right, target + down) for down, right in straight + diagonal]


def _one_is_free(link: Link, taken: Links) -> bool:
    return all(source != link[0] for source, _ in taken) or all(target != link[1] for _, target in taken)
