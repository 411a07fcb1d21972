"""Scores: parity with sacreBLEU and rouge-score, values by hand, properties of the alignment error rate."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import pytest
import sacrebleu
from hypothesis import given, settings
from hypothesis import strategies as st
from rouge_score.rouge_scorer import RougeScorer

from sightline.errors import SightlineError
from sightline.metrics import (
    LengthBucket,
    alignment_error_rate,
    bleu,
    by_length,
    chrf,
    default_edges,
    length_table,
    parse_links,
    perplexity,
    read_links,
    rouge,
    sentence_bleu,
    sentence_chrf,
)

HYPOTHESES = ["The cat sits on the mat.", "It is raining today, is it not?", "Ein Satz ."]
REFERENCES = ["The cat sat on the mat.", "It's raining today, isn't it?", "Ein ganzer Satz ."]


@pytest.mark.parametrize("tokenize", ["13a", "none", "char", "intl"])
def test_bleu_is_sacrebleus(tokenize: str) -> None:
    score = bleu(HYPOTHESES, REFERENCES, tokenize)
    metric = sacrebleu.BLEU(tokenize=tokenize)
    assert score.value == metric.corpus_score(HYPOTHESES, [REFERENCES]).score
    assert score.signature == str(metric.get_signature())
    assert f"tok:{tokenize}" in score.signature


def test_bleu_default_is_sacrebleus_default() -> None:
    assert bleu(HYPOTHESES, REFERENCES).value == sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES]).score


@pytest.mark.parametrize("word_order", [0, 2])
def test_chrf_is_sacrebleus(word_order: int) -> None:
    score = chrf(HYPOTHESES, REFERENCES, word_order)
    metric = sacrebleu.CHRF(word_order=word_order)
    assert score.value == metric.corpus_score(HYPOTHESES, [REFERENCES]).score
    assert score.signature == str(metric.get_signature())


def test_sentence_scores_are_sacrebleus() -> None:
    pairs = list(zip(HYPOTHESES, REFERENCES, strict=True))
    assert sentence_bleu(HYPOTHESES, REFERENCES) == [sacrebleu.sentence_bleu(one, [two]).score for one, two in pairs]
    assert sentence_chrf(HYPOTHESES, REFERENCES) == [sacrebleu.sentence_chrf(one, [two]).score for one, two in pairs]


def test_rouge_by_hand() -> None:
    """Of 3 words and 4, the first 3 alike: F1 of words 2*3/(3+4), of pairs 2*2/(2+3)."""
    found = rouge(["The cat sat."], [["the cat sat down"]])
    assert found.rouge_1 == pytest.approx(100 * 6 / 7)
    assert found.rouge_2 == pytest.approx(100 * 4 / 5)
    assert found.rouge_l == pytest.approx(100 * 6 / 7)
    # No pair is alike; of "b a" and "a b" one word stays in order.
    turned = rouge(["b a"], [["a b"]])
    assert (turned.rouge_1, turned.rouge_2, turned.rouge_l) == pytest.approx((100, 0, 50))
    # Texts count alike, however long.
    assert rouge(["a", "x y z"], [["a"], ["u v w"]]).rouge_1 == pytest.approx(50)


def test_rouge_takes_one_reference_for_all_three() -> None:
    """The first is better in words (2 of 2 and 3: 4/5), the second in pairs; the first counts."""
    found = rouge(["b a"], [["a b c", "b a c d e f"]])
    assert found.rouge_1 == pytest.approx(100 * 4 / 5)
    assert found.rouge_2 == 0
    assert rouge(["b a"], [["b a c d e f"]]).rouge_2 > 0


def test_rouge_counts_endings_unless_told() -> None:
    assert rouge(["many cats"], [["many cat"]]).rouge_1 == pytest.approx(50)
    stemmed = rouge(["many cats"], [["many cat"]], stem=True)
    assert stemmed.rouge_1 == pytest.approx(100)
    assert "stem:yes" in stemmed.signature


TEXTS = st.lists(st.sampled_from(["a", "b", "the", "Cats", "2,5"]), max_size=8).map(" ".join)


@given(TEXTS, st.lists(TEXTS, min_size=1, max_size=3))
@settings(max_examples=50, deadline=None)
def test_rouge_is_rouge_scores(hypothesis: str, references: list[str]) -> None:
    scorer = RougeScorer(["rouge1", "rouge2", "rougeL"])
    found = rouge([hypothesis], [references])
    every = [scorer.score(reference, hypothesis) for reference in references]
    assert found.rouge_1 == pytest.approx(100 * max(one["rouge1"].fmeasure for one in every))
    assert found.rouge_1 == pytest.approx(100 * scorer.score_multi(references, hypothesis)["rouge1"].fmeasure)
    of_one = [tuple(100 * one[name].fmeasure for name in ("rouge1", "rouge2", "rougeL")) for one in every]
    assert any((found.rouge_1, found.rouge_2, found.rouge_l) == pytest.approx(one) for one in of_one)


def test_rouge_of_too_little(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SightlineError, match="1 hypotheses but 2 references"):
        rouge(["a"], [["a"], ["b"]])
    with pytest.raises(SightlineError, match="text 2 has no reference"):
        rouge(["a", "b"], [["a"], []])
    monkeypatch.setitem(sys.modules, "rouge_score.rouge_scorer", None)
    with pytest.raises(SightlineError, match=r"sightline\[rouge\]"):
        rouge(["a"], [["a"]])


def test_a_perfect_short_sentence_scores_100() -> None:
    """Effective order: there is no 4-gram in two words."""
    assert sentence_bleu(["Guten Tag"], ["Guten Tag"]) == [pytest.approx(100.0)]


@pytest.mark.parametrize("score", [bleu, chrf, sentence_bleu, sentence_chrf])
def test_unequal_and_empty_inputs_are_refused(score: object) -> None:
    assert callable(score)
    with pytest.raises(SightlineError, match="2 hypotheses but 1 references"):
        score(["a", "b"], ["a"])
    with pytest.raises(SightlineError, match="no hypotheses to score"):
        score([], [])


def test_unknown_tokenizer_is_refused() -> None:
    with pytest.raises(SightlineError, match="unknown BLEU tokenizer '13b'; did you mean '13a'"):
        bleu(HYPOTHESES, REFERENCES, "13b")


def test_unusable_tokenizer_is_explained_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("needs\n  a package")

    monkeypatch.setattr("sacrebleu.metrics.BLEU.__init__", fail)
    with pytest.raises(SightlineError, match="tokenizer 'ja-mecab' cannot be used: needs a package"):
        bleu(HYPOTHESES, REFERENCES, "ja-mecab")


def test_perplexity() -> None:
    assert perplexity(0.0, 5) == 1.0
    assert perplexity(7 * math.log(50), 7) == pytest.approx(50)
    assert perplexity(1e6, 1) == math.inf
    with pytest.raises(SightlineError, match="no tokens"):
        perplexity(0.0, 0)


def test_parse_links() -> None:
    assert parse_links("0-0 1-2  3p4 5?6\n") == ({(0, 0), (1, 2)}, {(0, 0), (1, 2), (3, 4), (5, 6)})
    assert parse_links("1-1 2p3", one_based=True) == ({(0, 0)}, {(0, 0), (1, 2)})
    assert parse_links("  ") == (set(), set())


@pytest.mark.parametrize("word", ["1", "1-", "-1", "a-b", "1-2-3", "1:2", "-1-2"])
def test_bad_links_are_refused(word: str) -> None:
    with pytest.raises(SightlineError, match=f"'{word}' is not a link"):
        parse_links(f"0-0 {word}")


def test_read_links(tmp_path: Path) -> None:
    path = tmp_path / "gold"
    path.write_bytes(b"\xef\xbb\xbf0-0 1p1\r\n\r\n2-2")
    assert read_links(path) == ([{(0, 0)}, set(), {(2, 2)}], [{(0, 0), (1, 1)}, set(), {(2, 2)}])


@pytest.mark.parametrize(
    ("content", "one_based", "message"),
    [
        (b"0-0\n1-1 x\n", False, "gold, line 2: 'x' is not a link"),
        (b"1-1\n1-0\n", True, "gold, line 2: link '1-0' has position 0"),
        (b"0-0\n\n\xff\n", False, "gold, line 3: not UTF-8"),
    ],
)
def test_errors_in_a_file_name_the_line(tmp_path: Path, content: bytes, one_based: bool, message: str) -> None:
    path = tmp_path / "gold"
    path.write_bytes(content)
    with pytest.raises(SightlineError, match=message):
        read_links(path, one_based)


def test_missing_alignment_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SightlineError, match=r"cannot read alignments from .*nowhere: No such file"):
        read_links(tmp_path / "nowhere")


def test_aer_by_hand() -> None:
    """A has 3 links, S 2 and P 3: |A∩S| = 1, |A∩P| = 2, so 1 - 3/5. Then a second sentence, all right: 1 - 5/7."""
    predicted = [{(0, 0), (1, 2), (2, 2)}]
    sure, possible = [{(0, 0), (1, 1)}], [{(0, 0), (1, 1), (1, 2)}]
    assert alignment_error_rate(predicted, sure, possible) == pytest.approx(0.4)
    predicted, sure, possible = [*predicted, {(0, 0)}], [*sure, {(0, 0)}], [*possible, {(0, 0)}]
    assert alignment_error_rate(predicted, sure, possible) == pytest.approx(2 / 7)


def test_aer_of_nothing() -> None:
    assert alignment_error_rate([set()], [set()], [{(0, 0)}]) == 0.0
    assert alignment_error_rate([], [], []) == 0.0
    assert alignment_error_rate([set()], [{(0, 0)}]) == 1.0
    assert alignment_error_rate([{(0, 0)}], [set()]) == 1.0
    assert alignment_error_rate([{(0, 0)}], [set()], [{(0, 0)}]) == 0.0


def test_aer_needs_a_line_a_sentence() -> None:
    with pytest.raises(SightlineError, match="1 predicted alignments but 2 of sure links"):
        alignment_error_rate([set()], [set(), set()])
    with pytest.raises(SightlineError, match="1 predicted alignments but 0 of possible links"):
        alignment_error_rate([set()], [set()], [])


links = st.sets(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=8)


@settings(derandomize=True, deadline=None)
@given(links, links, links)
def test_aer_is_zero_between_sure_and_possible(
    sure: set[tuple[int, int]], more: set[tuple[int, int]], rest: set[tuple[int, int]]
) -> None:
    assert alignment_error_rate([sure | more], [sure], [sure | more | rest]) == 0.0


@settings(derandomize=True, deadline=None)
@given(links, links, links)
def test_aer_is_a_rate_and_ignores_whether_sure_is_repeated(
    predicted: set[tuple[int, int]], sure: set[tuple[int, int]], possible: set[tuple[int, int]]
) -> None:
    rate = alignment_error_rate([predicted], [sure], [possible])
    assert 0.0 <= rate <= 1.0
    assert rate == alignment_error_rate([predicted], [sure], [possible | sure])


@settings(derandomize=True, deadline=None)
@given(links, links)
def test_aer_without_possible_links_is_one_minus_f1(
    predicted: set[tuple[int, int]], sure: set[tuple[int, int]]
) -> None:
    hits = len(predicted & sure)
    if hits:
        precision, recall = hits / len(predicted), hits / len(sure)
        expected = 1 - 2 * precision * recall / (precision + recall)
        assert alignment_error_rate([predicted], [sure]) == pytest.approx(expected)


def sentences(*lengths: int) -> list[str]:
    return [" ".join(f"w{place}" for place in range(length)) for length in lengths]


def test_by_length_scores_each_bucket_on_its_own() -> None:
    sources = sentences(3, 5, 6, 0, 30)
    references = ["a b c d", "e f g h", "i j k l", "m n o p", "q r s t"]
    hypotheses = ["a b c d", "e f g x", "i j k l", "m n o p", "x x x x"]
    buckets = by_length(sources, hypotheses, references, edges=(5, 10, 20))
    assert [(one.low, one.high, one.sentences, one.label) for one in buckets] == [
        (1, 5, 3, "1-5"),
        (6, 10, 1, "6-10"),
        (21, None, 1, "21+"),
    ]
    first = [0, 1, 3]
    expected = bleu([hypotheses[place] for place in first], [references[place] for place in first])
    assert buckets[0].bleu == expected.value
    assert buckets[1].bleu == pytest.approx(100)
    assert buckets[1].chrf == pytest.approx(100)
    assert buckets[2].chrf == 0


@settings(derandomize=True, deadline=None)
@given(st.lists(st.integers(0, 300), min_size=1, max_size=50))
def test_every_sentence_is_in_one_bucket(lengths: list[int]) -> None:
    edges = default_edges(lengths)
    assert edges == sorted(set(edges))
    assert 1 <= len(edges) <= 8
    assert sum(length <= edges[-1] for length in lengths) >= 0.95 * len(lengths)
    words = ["a b c d"] * len(lengths)
    buckets = by_length(sentences(*lengths), words, words)
    assert sum(one.sentences for one in buckets) == len(lengths)
    assert all(one.bleu == pytest.approx(100) for one in buckets)


def test_default_edges_suit_the_data() -> None:
    assert default_edges([1, 2, 7, 7, 4]) == [1, 2, 3, 4, 5, 6, 7]
    assert default_edges([*range(1, 21)] * 5) == [5, 10, 15, 20]
    assert default_edges([60, 3]) == [10, 20, 30, 40, 50, 60]


@pytest.mark.parametrize("edges", [(5, 5), (10, 5), (0, 5)])
def test_bad_edges_are_refused(edges: tuple[int, ...]) -> None:
    with pytest.raises(SightlineError, match="give rising numbers from 1"):
        by_length(["a"], ["a"], ["a"], edges)


def test_by_length_needs_equal_numbers() -> None:
    with pytest.raises(SightlineError, match="1 sources but 2 hypotheses"):
        by_length(["a"], ["a", "b"], ["a"])


def test_length_table_and_json() -> None:
    buckets = [LengthBucket(1, 5, 12, 31.25, 55.0), LengthBucket(6, 6, 3, 8.04, 40.06), LengthBucket(7, None, 1, 0, 0)]
    assert length_table(buckets).splitlines() == [
        "words  sentences  BLEU  chrF",
        "  1-5         12  31.2  55.0",
        "    6          3   8.0  40.1",
        "   7+          1   0.0   0.0",
    ]
    assert json.loads(json.dumps(buckets[2].as_dict())) == {
        "label": buckets[2].label,
        "low": 7,
        "high": None,
        "sentences": 1,
        "bleu": 0,
        "chrf": 0,
    }
