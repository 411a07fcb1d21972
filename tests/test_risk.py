"""Minimum Bayes risk: parity with sacreBLEU pair by pair, exhaustive enumeration, and values worked out by hand."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import sacrebleu
from hypothesis import given, settings
from hypothesis import strategies as st

from sightline import risk
from sightline.errors import SightlineError
from sightline.risk import choose, probabilities, utility_matrix
from sightline.search import SearchOptions
from tests.test_search import TableModel, every_sequence, rescore

SENTENCES = [
    "The cat sat on the mat.",
    "The cat sits on the mat.",
    "the the the the the",
    "On the mat, the cat sat; it's 3.5 kg, isn't it?",
    "Der Hund läuft über die Straße &amp; bellt.",
    "猫が マットの上に座った。",
    "a",
    "a a",
    "",
    " \t ",
    "The cat sat on the mat. ",
]
METRICS = {"chrf": sacrebleu.CHRF(), "bleu": sacrebleu.BLEU(effective_order=True, force=True)}

texts = st.lists(
    st.lists(st.sampled_from(["the", "cat", "cats", "a", "at", "mat.", "3,5", "é", "-", "猫"]), max_size=8).map(
        " ".join
    ),
    min_size=1,
    max_size=4,
)


def pair_by_pair(candidates: list[str], references: list[str], name: str) -> np.ndarray:
    scores = [[METRICS[name].sentence_score(one, [other]).score for other in references] for one in candidates]
    return np.array(scores)


@pytest.mark.parametrize("name", METRICS)
def test_utilities_are_sacrebleus(name: str) -> None:
    expected = pair_by_pair(SENTENCES, SENTENCES, name)
    assert (expected > 0).sum() > 20
    np.testing.assert_allclose(utility_matrix(SENTENCES, SENTENCES, name), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", METRICS)
def test_utilities_are_sacrebleus_in_small_blocks(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A block of matrices may hold a few columns only, when there are many strings."""
    monkeypatch.setattr(risk, "BLOCK", 3 * len(SENTENCES))
    expected = pair_by_pair(SENTENCES, SENTENCES[::-2], name)
    np.testing.assert_allclose(utility_matrix(SENTENCES, SENTENCES[::-2], name), expected, rtol=1e-9, atol=1e-9)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(texts, texts, st.sampled_from(["chrf", "bleu"]))
def test_utilities_are_sacrebleus_for_any_words(candidates: list[str], references: list[str], name: str) -> None:
    expected = pair_by_pair(candidates, references, name)
    np.testing.assert_allclose(utility_matrix(candidates, references, name), expected, rtol=1e-9, atol=1e-9)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.lists(st.text(max_size=12), min_size=1, max_size=4), st.sampled_from(["chrf", "bleu"]))
def test_utilities_are_sacrebleus_for_any_text(candidates: list[str], name: str) -> None:
    expected = pair_by_pair(candidates, candidates, name)
    np.testing.assert_allclose(utility_matrix(candidates, candidates, name), expected, rtol=1e-9, atol=1e-9)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(texts, st.data(), st.sampled_from(["chrf", "bleu"]))
def test_the_choice_is_the_best_on_average(candidates: list[str], data: st.DataObject, name: str) -> None:
    """With weights, without, and with other references; duplicates count as often as they come."""
    references = data.draw(st.none() | texts)
    against = candidates if references is None else references
    numbers = st.lists(st.floats(0.1, 9), min_size=len(against), max_size=len(against))
    weights = data.draw(st.none() | numbers)
    found = choose(candidates, references, weights, name)
    expected = np.average(pair_by_pair(candidates, against, name), axis=1, weights=weights)
    np.testing.assert_allclose(found.utilities, expected, rtol=1e-9, atol=1e-9)
    assert found.text == candidates[found.index]
    assert found.utility == found.utilities.max()
    assert found.index == found.order[0] == int(found.utilities.argmax())
    ranked = [found.utilities[place] for place in found.order]
    assert ranked == sorted(ranked, reverse=True)
    assert sorted(candidates[place] for place in found.order) == sorted(set(candidates))


def test_duplicates_weigh_as_many() -> None:
    repeated = ["b c", "a b", "b c", "a d", "b c", "a b"]
    merged = choose(["b c", "a b", "a d"], weights=[3, 2, 1])
    found = choose(repeated)
    assert found.utilities.tolist() == pytest.approx(merged.utilities[[0, 1, 0, 2, 0, 1]].tolist())
    assert found.order == [[0, 1, 3][place] for place in merged.order]


def test_every_string_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many pairs there are."""
    seen: list[str] = []

    def watched(texts: list[str]) -> list[np.ndarray]:
        seen.extend(texts)
        return symbols(texts)

    symbols = risk.UTILITIES["chrf"].symbols
    monkeypatch.setitem(risk.UTILITIES, "chrf", risk._Metric(6, watched, risk._chrf))
    choose(["a", "b", "a", "c"], ["c", "d", "d", "b"])
    assert sorted(seen) == ["a", "b", "c", "d"]


def word(tokens: tuple[int, ...]) -> str:
    return " ".join("xyz"[token - 3] * 2 for token in tokens)


@pytest.mark.parametrize("name", METRICS)
def test_enumeration_gives_the_exact_choice(name: str) -> None:
    """All translations of a model with three words, with their probabilities as weights: the true expectation."""
    model, source = TableModel(), (7, 8)
    options = SearchOptions(max_ratio=0, max_extra=3)
    every = list(every_sequence(model, source, options))
    assert len(every) == 1 + 3 + 9 + 27
    log_probs = [sum(rescore(model, source, tokens)) for tokens in every]
    candidates = [word(tokens) for tokens in every]
    found = choose(candidates, weights=probabilities(log_probs).tolist(), utility=name)
    total = sum(math.exp(value) for value in log_probs)
    by_hand = {
        one: sum(
            math.exp(value) / total * METRICS[name].sentence_score(one, [other]).score
            for other, value in zip(candidates, log_probs, strict=True)
        )
        for one in candidates
    }
    assert found.text == max(by_hand, key=lambda one: by_hand[one])
    assert found.utility == pytest.approx(max(by_hand.values()))


def test_exact_match_picks_the_most_frequent() -> None:
    samples = ["one", "two", "three", "two", "three", "three"]
    found = choose(samples, utility=lambda candidate, reference: float(candidate == reference))
    assert found.text == Counter(samples).most_common(1)[0][0] == "three"
    assert found.utilities.tolist() == pytest.approx([1 / 6, 2 / 6, 3 / 6, 2 / 6, 3 / 6, 3 / 6])
    assert found.order == [2, 1, 0]


def test_a_function_gets_the_candidate_first() -> None:
    """Worth nothing if longer than the reference: candidates 1, 2 and 3 long, references 2 and 3 long, by hand."""

    def fits(candidate: str, reference: str) -> float:
        return float(len(candidate)) if len(candidate) <= len(reference) else 0.0

    found = choose(["x", "xx", "xxx"], ["yy", "yyy"], [0.25, 0.75], fits)
    assert found.utilities.tolist() == [1.0, 2.0, 0.75 * 3]
    assert found.text == "xxx"


def test_ties_go_to_the_first() -> None:
    assert choose(["b", "a", "a", "b"]).index == 0


def test_aggregate_by_hand() -> None:
    """Mean counts of "a a" and "a b": a 1.5, b 0.5. "a a" shares 1.5 words of 2, and half of its one pair of words."""
    found = choose(["a a"], ["a a", "a b"], utility="bleu", aggregate=True)
    assert found.utility == pytest.approx(100 * math.sqrt((1.5 / 2) * (0.5 / 1)))
    # chrF: order 1 as above, order 2 ("aa" in one of two) 0.5 of 1; precision and recall are both (0.75 + 0.5) / 2.
    assert choose(["a a"], ["a a", "a b"], aggregate=True).utility == pytest.approx(62.5)
    # The mean length is 3 words; two words, one of them matched 0.5 times and none of its pairs: 1/2 of a pair.
    found = choose(["a x"], ["b c d", "a e f"], utility="bleu", aggregate=True)
    assert found.utility == pytest.approx(100 * math.exp(1 - 3 / 2) * math.sqrt((0.5 / 2) * (0.5 / 1)))


@settings(max_examples=30, deadline=None, derandomize=True)
@given(texts, st.sampled_from(SENTENCES), st.sampled_from(["chrf", "bleu"]))
def test_aggregate_of_one_reference_is_exact(candidates: list[str], reference: str, name: str) -> None:
    fast = choose(candidates, [reference] * 3, utility=name, aggregate=True)
    slow = choose(candidates, [reference], utility=name)
    np.testing.assert_allclose(fast.utilities, slow.utilities, rtol=1e-9, atol=1e-9)


def plain_aggregate(candidate: str, shares: dict[str, float]) -> float:
    """chrF against mean counts in plain Python."""

    def grams(text: str, order: int) -> Counter[str]:
        text = "".join(text.split())
        return Counter(text[place : place + order] for place in range(len(text) - order + 1))

    precisions, recalls = [], []
    for order in range(1, 7):
        mean: Counter[str] = Counter()
        for text, share in shares.items():
            for gram, count in grams(text, order).items():
                mean[gram] += share * count  # type: ignore[assignment]
        own = grams(candidate, order)
        if own and mean:
            match = sum(min(count, mean[gram]) for gram, count in own.items())
            precisions.append(match / own.total())
            recalls.append(match / mean.total())
    precision, recall = (sum(values) / max(len(values), 1) for values in (precisions, recalls))
    return 100 * 5 * precision * recall / (4 * precision + recall) if precision + recall else 0.0


@settings(max_examples=30, deadline=None, derandomize=True)
@given(texts)
def test_aggregate_equals_the_plain_one(candidates: list[str]) -> None:
    shares = {text: count / len(candidates) for text, count in Counter(candidates).items()}
    expected = [plain_aggregate(candidate, shares) for candidate in candidates]
    np.testing.assert_allclose(choose(candidates, aggregate=True).utilities, expected, rtol=1e-9, atol=1e-9)


def test_aggregate_finds_the_same_where_it_is_clear() -> None:
    """Variants of one sentence and a stray: both ways choose the one that shares most with the rest."""
    verbs, ends = ["sat", "sits", "was"], ["on the mat.", "on a mat.", "upon the mat."]
    variants = [f"The cat {verb} {end}" for verb, end in itertools.product(verbs, ends)]
    candidates = [*variants, "The cat sat on the mat.", "Something else entirely!"]
    for name in METRICS:
        slow, fast = choose(candidates, utility=name), choose(candidates, utility=name, aggregate=True)
        assert slow.text == fast.text == "The cat sat on the mat."
        assert slow.order[-1] == fast.order[-1] == len(candidates) - 1


def test_probabilities() -> None:
    values = probabilities([math.log(0.2), math.log(0.1), -math.inf])
    assert values.tolist() == pytest.approx([2 / 3, 1 / 3, 0.0])
    assert probabilities([-5000.0, -5000.0]).tolist() == [0.5, 0.5]


def test_mistakes_are_refused() -> None:
    with pytest.raises(SightlineError, match="no candidates"):
        choose([])
    with pytest.raises(SightlineError, match="no references"):
        choose(["a"], [])
    with pytest.raises(SightlineError, match="2 weights for 1 references"):
        choose(["a"], weights=[1, 2])
    for weights in ([-1.0, 2.0], [0.0, 0.0], [math.nan, 1.0], [math.inf, 1.0]):
        with pytest.raises(SightlineError, match="not negative"):
            choose(["a", "b"], weights=weights)
    with pytest.raises(SightlineError, match="unknown utility 'chrff'; did you mean 'chrf'"):
        choose(["a"], utility="chrff")
    with pytest.raises(SightlineError, match="cannot be aggregated"):
        choose(["a"], utility=lambda one, other: 1.0, aggregate=True)
    with pytest.raises(SightlineError, match="not a finite number"):
        choose(["a"], utility=lambda one, other: math.nan)
    for wrong in ("much", [1.0, 2.0], {}):
        with pytest.raises(SightlineError, match="not a number: mend the function that gives it"):
            choose(["a"], utility=lambda one, other, wrong=wrong: wrong)  # type: ignore[misc]


def test_no_torch_is_needed() -> None:
    code = "import sys, sightline.risk, sightline.hypothesis; sys.exit('torch' in sys.modules)"
    root = Path(risk.__file__).parent.parent
    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=root).returncode == 0
