"""Paired bootstrap resampling against sacreBLEU's own, and what it must say of the plainest cases."""

from __future__ import annotations

import random

import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.significance import PairedTest

from sightline.errors import SightlineError
from sightline.significance import compare

WORDS = ["the", "a", "dog", "cat", "sees", "hears", "old", "young", "house", "tree", "runs", "in", "near"]


def corpus(count: int, seed: int, wrong: float) -> list[str]:
    """Sentences, of whose words a share is replaced by others; the same seed is the same text."""
    generator, noise = random.Random(seed), random.Random(f"{seed} {wrong}")
    lines = [[generator.choice(WORDS) for _ in range(generator.randint(3, 12))] for _ in range(count)]
    return [" ".join(noise.choice(WORDS) if noise.random() < wrong else word for word in line) for line in lines]


@pytest.mark.parametrize(("one", "other"), [(0.2, 0.25), (0.3, 0.31), (0.1, 0.4)])
def test_as_sacrebleu_has_it(one: float, other: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SACREBLEU_SEED", "12345")
    references, first, second = (corpus(60, 1, wrong) for wrong in (0.0, one, other))
    metrics = {"BLEU": BLEU(), "chrF": CHRF()}
    test = PairedTest([("first", first), ("second", second)], metrics, [references], test_type="bs", n_samples=200)
    _, scores = test()
    for found in compare(first, second, references, resamples=200):
        baseline, expected = scores[{"BLEU": "BLEU", "chrF": "chrF2"}[found.name]]
        assert found.first == pytest.approx(baseline.score)
        assert found.second == pytest.approx(expected.score)
        assert found.p_value == pytest.approx(expected.p_value)
        assert found.interval[0] <= found.difference <= found.interval[1]
        assert "version:" in found.signature


def test_a_system_against_itself_and_against_a_bad_one() -> None:
    references, good, bad = (corpus(80, 2, wrong) for wrong in (0.0, 0.1, 0.7))
    for found in compare(good, good, references, resamples=100):
        assert (found.difference, found.interval, found.p_value) == (0.0, (0.0, 0.0), pytest.approx(1 / 101))
    for found in compare(good, bad, references, resamples=100):
        assert found.difference < -10
        assert found.interval[1] < 0
        assert found.p_value == pytest.approx(1 / 101)
        assert str(found).startswith(f"{found.name} {found.first:.2f} and {found.second:.2f}: -")


def test_mistakes() -> None:
    with pytest.raises(SightlineError, match="2 and 1 translations for 2 references"):
        compare(["a", "b"], ["a"], ["a", "b"])
    with pytest.raises(SightlineError, match="nothing to compare"):
        compare([], [], [])
