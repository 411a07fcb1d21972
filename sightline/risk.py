"""Minimum Bayes risk: of several translations of one source, the one that agrees best with all of them. No torch here.

Shapes: C candidates, R references, D different strings among both, O orders of n-grams, G n-grams of one order.

The expected utility of candidate c is sum_r p(r) u(c, r): how much c is worth on average if each reference r is right
with its probability (Kumar & Byrne 2004; Eikema & Aziz 2020). References are as a rule the candidates themselves,
samples of the model; equal ones are merged and weigh as many. The n-grams of every string are counted once, and all
pairs of strings are compared in a few products of matrices. Aggregated, each candidate is compared once, with the mean
of the references' n-gram counts (DeNero et al. 2009; Vamvas & Sennrich 2024), so time grows with C + R, not with C * R.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from sightline.errors import SightlineError, nearest

Utility = Callable[[str, str], float]
"""What a candidate, the first, is worth if a reference, the second, is right; more is better."""

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# The most numbers that one matrix of occurrences holds (float32).
BLOCK = 2**22


@dataclass(frozen=True)
class Choice:
    """The candidate with the highest expected utility (the first among equals): its place in the list, and its text.

    `utilities` `(C,)` are the expected utilities of all candidates, in their order.
    """

    index: int
    text: str
    utilities: Floats
    candidates: tuple[str, ...]

    @property
    def utility(self) -> float:
        """The expected utility of the chosen one."""
        return float(self.utilities[self.index])

    @property
    def order(self) -> list[int]:
        """The places of the different candidates, best first."""
        first = {text: place for place, text in reversed(list(enumerate(self.candidates)))}
        return sorted(first.values(), key=lambda place: (-self.utilities[place], place))


def choose(
    candidates: Sequence[str],
    references: Sequence[str] | None = None,
    weights: Sequence[float] | None = None,
    utility: str | Utility = "chrf",
    aggregate: bool = False,
) -> Choice:
    """Chooses among the translations of one source.

    `references`: what to compare with, the candidates themselves unless others are given.
    `weights`: a probability, not necessarily normalised, for each reference; all the same by default. That is right for
    samples. For the n best of a beam search give `probabilities` of their log-probabilities.
    `utility`: "chrf" or "bleu", sacreBLEU's scores of single sentences, or a function of candidate and reference.
    `aggregate`: compares with the mean of the references' n-gram counts instead of with each reference.
    """
    if not candidates:
        raise SightlineError("no candidates to choose from: give at least one")
    shares = _shares(candidates if references is None else references, weights)
    different = list(dict.fromkeys(candidates))
    if aggregate:
        expected = _aggregated(different, list(shares), np.array(list(shares.values())), utility)
    else:
        expected = utility_matrix(different, list(shares), utility) @ np.array(list(shares.values()))
    if not np.isfinite(expected).all():
        raise SightlineError("the utility of a candidate is not a finite number: mend the function that gives it")
    found = dict(zip(different, expected, strict=True))
    utilities = np.array([found[text] for text in candidates])
    index = int(utilities.argmax())
    return Choice(index, candidates[index], utilities, tuple(candidates))


def probabilities(log_probs: Sequence[float]) -> Floats:
    """Weights for `choose` from hypotheses' log-probabilities: proportional to the probabilities, with sum 1."""
    values = np.exp(np.array(log_probs, dtype=np.float64) - max(log_probs))
    return values / values.sum()


def utility_matrix(candidates: Sequence[str], references: Sequence[str], utility: str | Utility = "chrf") -> Floats:
    """The utility of each candidate for each reference, `(C, R)`."""
    if callable(utility):
        values = [[utility(candidate, reference) for reference in references] for candidate in candidates]
        try:
            return np.array(values, dtype=np.float64).reshape(len(candidates), len(references))
        except (TypeError, ValueError):
            raise SightlineError(
                "the utility of a candidate is not a number: mend the function that gives it"
            ) from None
    metric = _metric(utility)
    rows, columns, counts = _count_all(candidates, references, metric)
    totals = np.stack([one.totals for one in counts])  # (O, D)
    matches = np.stack([one.matches(rows, columns) for one in counts])  # (O, C, R)
    return metric.score(totals[:, rows, None], totals[:, None, columns], matches)


def _aggregated(candidates: Sequence[str], references: Sequence[str], shares: Floats, utility: str | Utility) -> Floats:
    """The utility of each candidate, `(C,)`, for references with these shares `(R,)`, all different, taken as one."""
    if callable(utility):
        raise SightlineError(
            "a utility that is a function cannot be aggregated: choose chrf or bleu, or aggregate=False"
        )
    metric = _metric(utility)
    rows, columns, counts = _count_all(candidates, references, metric)
    totals = np.stack([one.totals for one in counts])  # (O, D)
    mean = (totals[:, columns] * shares).sum(1)  # (O,)
    matches = np.stack([one.matches_of_mean(rows, columns, shares) for one in counts])  # (O, C)
    return metric.score(totals[:, rows, None], mean[:, None, None], matches[:, :, None])[:, 0]


def _shares(references: Sequence[str], weights: Sequence[float] | None) -> dict[str, float]:
    """The probability of each different reference."""
    if not references:
        raise SightlineError("no references to compare with: give at least one")
    given = np.ones(len(references)) if weights is None else np.asarray(weights, dtype=np.float64)
    if given.shape != (len(references),):
        raise SightlineError(f"{len(given)} weights for {len(references)} references: give one for each")
    if not (np.isfinite(given).all() and (given >= 0).all() and given.sum() > 0):
        raise SightlineError("weights must be finite, not negative, and not all 0")
    shares: dict[str, float] = {}
    for text, weight in zip(references, given / given.sum(), strict=True):
        shares[text] = shares.get(text, 0.0) + float(weight)
    return shares


@dataclass(frozen=True)
class _Counts:
    """How often D strings have each n-gram of one order: the entries of a sparse matrix, and its sums `(D,)`."""

    rows: Integers
    grams: Integers
    counts: Integers
    totals: Integers

    def matches(self, candidates: Integers, references: Integers) -> Floats:
        """How many n-grams each candidate and each reference share, `(C, R)`, given their rows: sums of smaller counts.

        If the k-th occurrence of an n-gram is something of its own, which a string has or has not, that sum is a
        product of matrices of zeros and ones. What only one string has is of use only to the string itself.
        """
        rows = np.repeat(self.rows, self.counts)
        occurrences = np.arange(len(rows)) - np.repeat(np.cumsum(self.counts) - self.counts, self.counts)
        keys = np.repeat(self.grams, self.counts) * (self.counts.max(initial=0) + 1) + occurrences
        _, columns, spread = np.unique(keys, return_inverse=True, return_counts=True)
        shared = spread[columns] > 1
        alone = np.bincount(rows[~shared], minlength=len(self.totals))
        result = np.where(candidates[:, None] == references, alone[candidates][:, None], 0).astype(np.float64)
        rows, columns, total = rows[shared], (np.cumsum(spread > 1) - 1)[columns[shared]], int((spread > 1).sum())
        width = max(1, BLOCK // len(self.totals))
        for first in range(0, total, width):
            inside = (columns >= first) & (columns < first + width)
            table = np.zeros((len(self.totals), min(width, total - first)), dtype=np.float32)
            table[rows[inside], columns[inside] - first] = 1
            result += table[candidates] @ table[references].T
        return result

    def matches_of_mean(self, candidates: Integers, references: Integers, shares: Floats) -> Floats:
        """How many n-grams each candidate shares with the mean of the references, `(C,)`: the sum of smaller counts."""
        weights = np.zeros(len(self.totals))
        weights[references] = shares
        mean = np.bincount(self.grams, weights=weights[self.rows] * self.counts)  # (G,)
        smaller = np.minimum(self.counts, mean[self.grams])
        found = np.bincount(self.rows, weights=smaller, minlength=len(self.totals))[candidates]
        return found.astype(np.float64)


def _count_all(
    candidates: Sequence[str], references: Sequence[str], metric: _Metric
) -> tuple[Integers, Integers, list[_Counts]]:
    """The rows of the candidates, those of the references, and the counts of the different strings, order by order."""
    places: dict[str, int] = {}
    for text in (*candidates, *references):
        places.setdefault(text, len(places))
    rows, columns = (np.array([places[text] for text in texts], dtype=np.int64) for texts in (candidates, references))
    return rows, columns, _count(metric.symbols(list(places)), metric.orders)


def _count(sequences: list[Integers], orders: int) -> list[_Counts]:
    """The n-grams of sequences of symbols, of the orders 1 to `orders`.

    All sequences are worked on as one. An n-gram is an (n - 1)-gram and the symbol after it, so its number comes from
    theirs; those that reach over the end of a sequence get a number too, but are not counted.
    """
    owners = np.repeat(np.arange(len(sequences)), [len(sequence) for sequence in sequences])
    _, symbols = np.unique(np.concatenate(sequences), return_inverse=True)
    alphabet = int(symbols.max(initial=0)) + 1
    grams = np.zeros_like(symbols)
    result = []
    for order in range(1, orders + 1):
        ends = symbols[order - 1 :]
        _, grams = np.unique(grams[: len(ends)] * alphabet + ends, return_inverse=True)
        inside = owners[: len(ends)] == owners[order - 1 :]
        total = int(grams.max(initial=0)) + 1
        keys, counts = np.unique(owners[: len(ends)][inside] * total + grams[inside], return_counts=True)
        totals = np.bincount(owners[: len(ends)][inside], minlength=len(sequences))
        result.append(_Counts(keys // total, keys % total, counts, totals))
    return result


def _characters(texts: list[str]) -> list[Integers]:
    """Each text's characters without white space, as chrF takes them."""
    joined = ["".join(text.split()).encode("utf-32-le", "surrogatepass") for text in texts]
    return [np.frombuffer(text, dtype="<u4").astype(np.int64) for text in joined]


@cache
def _tokenizer() -> Callable[[str], str]:
    """sacreBLEU's default one: a text with spaces between its words. It remembers texts, so one serves all calls."""
    from sacrebleu.metrics.bleu import BLEU

    return BLEU(effective_order=True).tokenizer


def _words(texts: list[str]) -> list[Integers]:
    """Each text's words, numbered, as BLEU takes them."""
    numbers: dict[str, int] = {}
    split = [_tokenizer()(text.rstrip()).split() for text in texts]
    return [np.array([numbers.setdefault(word, len(numbers)) for word in words], dtype=np.int64) for words in split]


def _chrf(candidates: NDArray[np.number], references: NDArray[np.number], matches: Floats) -> Floats:
    """chrF2 (Popović 2015), `(C, R)`, from n-grams in candidates `(O, C, 1)`, in references `(O, 1, R)`, and in both.

    Precision and recall are means over the orders that both have. They are weighed 1 to 4.
    """
    both = (candidates > 0) & (references > 0)
    orders = np.maximum(both.sum(0), 1)
    precision = np.divide(matches, candidates, where=both, out=np.zeros_like(matches)).sum(0) / orders
    recall = np.divide(matches, references, where=both, out=np.zeros_like(matches)).sum(0) / orders
    total = 4 * precision + recall
    return 100 * np.divide(5 * precision * recall, total, where=total > 0, out=np.zeros_like(total))


def _bleu(candidates: NDArray[np.number], references: NDArray[np.number], matches: Floats) -> Floats:
    """Sentence BLEU, `(C, R)`, from the same counts: the geometric mean of the precisions, times the brevity penalty.

    Only orders that the candidate has count. The first without a match gets 1/2, the next 1/4, and so on; without
    any match at all the score is 0.
    """
    counted = np.broadcast_to(candidates > 0, matches.shape)
    missed = counted & (matches == 0)
    smoothed = np.where(missed, 0.5 ** np.cumsum(missed, 0), matches)
    logs = np.log(smoothed / np.maximum(candidates, 1), where=counted, out=np.zeros_like(matches))
    mean = logs.sum(0) / np.maximum(counted.sum(0), 1)
    brevity = np.exp(np.minimum(0.0, 1 - references[0] / np.maximum(candidates[0], 1)))
    return np.where((matches > 0).any(0), 100 * brevity * np.exp(mean), 0.0)


@dataclass(frozen=True)
class _Metric:
    """A score made of n-gram counts: of how many orders, of which symbols, and how."""

    orders: int
    symbols: Callable[[list[str]], list[Integers]]
    score: Callable[[NDArray[np.number], NDArray[np.number], Floats], Floats]


UTILITIES = {"chrf": _Metric(6, _characters, _chrf), "bleu": _Metric(4, _words, _bleu)}
"""The utilities that have names."""


def _metric(name: str) -> _Metric:
    if name not in UTILITIES:
        raise SightlineError(f"unknown utility '{name}'; {nearest(name, UTILITIES)}")
    return UTILITIES[name]
