"""Is the difference between two systems more than luck? Paired bootstrap resampling (Koehn 2004). No torch here.

Shapes: N sentences, R resamples, K statistics of a sentence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sightline.errors import SightlineError
from sightline.metrics import bleu_metric, chrf_metric

RESAMPLES = 1_000
SEED = 12345
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Comparison:
    """A metric's scores of two systems on the same sentences.

    `interval`: where 95 of 100 differences (second minus first) of resampled test sets lie. `p_value`: how often
    chance alone would make a difference as large as the one seen.
    """

    name: str
    first: float
    second: float
    interval: tuple[float, float]
    p_value: float
    signature: str

    @property
    def difference(self) -> float:
        """Second minus first: below zero, the second is worse."""
        return self.second - self.first

    def __str__(self) -> str:
        low, high = self.interval
        if low == high == 0:
            return f"{self.name} {self.first:.2f}, the same in every resample"
        return (
            f"{self.name} {self.first:.2f} and {self.second:.2f}: {self.difference:+.2f} "
            f"({CONFIDENCE:.0%} of resamples {low:+.2f} to {high:+.2f}, p = {self.p_value:.3f})"
        )


def compare(
    first: Sequence[str],
    second: Sequence[str],
    references: Sequence[str],
    tokenize: str = "13a",
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> list[Comparison]:
    """BLEU and chrF of two systems' translations, with a paired bootstrap test of each.

    Test sets of the same size are drawn with replacement from the sentences, the same for both systems, and scored as
    a whole. As in sacreBLEU's test, the p-value is the share of resamples whose absolute difference is farther from
    the resamples' mean than the real one is from zero.
    """
    return compare_pooled([first], [second], references, tokenize, resamples, seed)


def compare_pooled(
    first: Sequence[Sequence[str]],
    second: Sequence[Sequence[str]],
    references: Sequence[str],
    tokenize: str = "13a",
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> list[Comparison]:
    """The same of two systems that were each trained several times: each entry has one run's translations.

    What is drawn are sentences, each with all its translations by either system, and their counts are added up before
    they become a score. So several runs steady the scores but do not pass for more sentences than there are.
    """
    for one, other in product(first, second):
        if not len(one) == len(other) == len(references):
            raise SightlineError(
                f"{len(one)} and {len(other)} translations for {len(references)} references: give as many of each"
            )
    if not references or not first or not second:
        raise SightlineError("there is nothing to compare: no sentences")
    count = len(references)
    drawn = np.random.default_rng(seed).choice(count, size=(resamples, count), replace=True)  # (R, N)
    # A resample is so many copies of each sentence; sums of statistics are then one product.
    copies = np.stack([np.bincount(row, minlength=count) for row in drawn]).astype(np.float64)
    results = []
    for name, metric in (("BLEU", bleu_metric(tokenize)), ("chrF", chrf_metric())):
        scores = [_scores(metric, system, references, copies) for system in (first, second)]
        results.append(_comparison(name, scores, str(metric.get_signature())))
    return results


def _scores(
    metric: Any, runs: Sequence[Sequence[str]], references: Sequence[str], copies: NDArray[np.float64]
) -> tuple[float, NDArray[np.float64]]:
    """The score of a system over all its runs, and those of its resamples `(R,)`."""
    counted = [metric._extract_corpus_statistics(run, [references]) for run in runs]
    statistics = np.array(counted, dtype=np.float64).sum(0)  # (N, K)
    real = metric._compute_score_from_stats(statistics.sum(0).tolist()).score
    sums = copies @ statistics  # (R, K)
    return real, np.array([metric._compute_score_from_stats(row.tolist()).score for row in sums])


def _comparison(name: str, scores: list[tuple[float, NDArray[np.float64]]], signature: str) -> Comparison:
    (first, one), (second, other) = scores
    differences = other - one
    low, high = np.quantile(differences, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    sizes = np.abs(differences)
    larger = int(np.sum(sizes - sizes.mean() > abs(second - first)))
    p_value = (larger + 1) / (len(sizes) + 1)
    return Comparison(name, first, second, (float(low), float(high)), p_value, signature)
