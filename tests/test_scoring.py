"""Scores of given translations: the search's own, evaluate's perplexity, candidates that compete, and bad input."""

from __future__ import annotations

import json
import math
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sightline
from sightline import scoring
from sightline.data import Pair
from sightline.errors import SightlineError
from sightline.evaluate import evaluate
from sightline.readers import TextFiles
from sightline.scoring import Line, Scored, preferred, read_candidates, score, score_lines
from sightline.text import EOS
from sightline.translator import Translator
from tests.commands import RECIPES, Command, letters, write_lines, write_tsv

PAIRS = [Pair(source, target) for source, target in letters(30, seed=4)]
# The same with the last letter wrong.
WRONG = [f"{target[:-1]}{'A' if target[-1] != 'A' else 'B'}" for _, target in PAIRS]


@pytest.fixture(scope="session")
def translator(trained: Any) -> Translator:
    return sightline.load(trained("transformer"))


# The library


@pytest.mark.parametrize("recipe", RECIPES)
def test_equals_what_the_search_says_of_its_translations(recipe: str, trained: Any) -> None:
    translator = sightline.load(trained(recipe))
    found = translator.translate([source for source, _ in PAIRS], beam=3, n_best=2, align=False)
    every = [one for best in found for one in (best, *best.others) if one.finished]
    assert len(every) > len(PAIRS)
    scores = score(translator, [(one.source, one.text) for one in every])
    for one, scored in zip(every, scores, strict=True):
        assert (scored.source, scored.text, scored.tokens) == (one.source, one.text, one.tokens)
        assert scored.token_log_probs == pytest.approx(one.token_log_probs, abs=1e-4)
        assert scored.score == scored.log_prob == pytest.approx(one.log_prob, abs=1e-4)


def test_equals_the_perplexity_of_evaluate(translator: Translator) -> None:
    pairs = [*PAIRS, Pair("", "A"), Pair("a b", ""), Pair("", "")]
    log_probs = [value for one in score(translator, pairs) for value in one.token_log_probs]
    found = evaluate(translator, pairs, translator.stream([pair.source for pair in pairs], beam=1))
    assert found.perplexity == pytest.approx(math.exp(-sum(log_probs) / len(log_probs)), rel=1e-5)


def test_a_batch_equals_its_pairs_one_by_one(translator: Translator) -> None:
    together = list(score(translator, PAIRS))
    for pair, one in zip(PAIRS, together, strict=True):
        (alone,) = score(translator, [pair])
        assert (alone.source, alone.text, alone.tokens) == (*pair, one.tokens)
        assert alone.token_log_probs == pytest.approx(one.token_log_probs, abs=1e-4)


def test_the_mean_counts_the_end(translator: Translator) -> None:
    (one,) = score(translator, [("a b", "A B")], normalise="length")
    assert len(one.token_log_probs) == 3
    assert one.score == pytest.approx(one.log_prob / 3)
    (nothing,) = score(translator, [("a b", "")], normalise="length")
    assert (nothing.tokens, nothing.score) == ([], nothing.token_log_probs[0])
    with pytest.raises(SightlineError, match=r"unknown normalisation 'lenght'; did you mean 'length'\?"):
        next(score(translator, PAIRS, normalise="lenght"))


def test_scores_come_as_lines_go(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory holds a chunk of lines, and what is asked of the engine does not depend on what comes later."""
    monkeypatch.setattr(scoring, "LINES_AT_ONCE", 4)
    taken: list[int] = []

    def lines() -> Iterator[Line]:
        for number, (source, target) in enumerate(PAIRS, 1):
            taken.append(number)
            yield Line(number, source, (target, target.lower()))

    found = score_lines(translator, lines())
    first = next(found)
    assert len(taken) == 4
    every = [first, *found]
    assert [(one.text, other.text) for one, other in every] == [(target, target.lower()) for _, target in PAIRS]
    assert all(one.source == other.source == pair.source for pair, (one, other) in zip(PAIRS, every, strict=True))


def test_candidates_compete(translator: Translator) -> None:
    lines = [
        Line(number, source, (target, other))
        for number, ((source, target), other) in enumerate(zip(PAIRS, WRONG, strict=True), 1)
    ]
    choices = [preferred(*pair) for pair in score_lines(translator, lines)]
    assert choices.count("first") > 0.9 * len(PAIRS)
    (same,) = score_lines(translator, [Line(1, "a b", ("A B", "A B"))])
    assert preferred(*same) == "neither"
    low, high = (Scored("a", "b", value, [], [value]) for value in (-2.0, -1.0))
    assert (preferred(high, low), preferred(low, high)) == ("first", "second")


def test_the_engine_is_given_end_symbols(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []
    engine = translator.engines.first()

    def log_probs(pairs: Any) -> list[list[float]]:
        given.extend(pairs)
        return [[-1.0] * len(target) for _, target in pairs]

    monkeypatch.setattr(engine, "token_log_probs", log_probs)
    (one,) = score(translator, [("a b c", "A")])
    ((source, target),) = given
    assert (len(source), source[-1], len(target), target[-1]) == (4, EOS, 2, EOS)
    assert (one.score, one.tokens) == (-2.0, ["A"])


def test_a_line_that_is_too_long_is_named(translator: Translator) -> None:
    long = "a " * 2000
    names = ("s.txt", "t.txt", "u.txt")
    for line, told in (
        (Line(7, long, ("A",)), "s.txt, line 7: 2,000 tokens"),
        (Line(8, "a", ("A", long)), "u.txt, line 8: 2,000 tokens"),
    ):
        with pytest.raises(SightlineError, match=told):
            list(score_lines(translator, [Line(1, "a", ("A",)), line], names=names))


# The command


def test_the_command_prints_a_score_a_line(
    command: Command, trained: Any, translator: Translator, tmp_path: Path
) -> None:
    source = write_lines(tmp_path / "s", [source for source, _ in PAIRS])
    target = write_lines(tmp_path / "t", [target for _, target in PAIRS])
    done = command("score", trained("transformer"), "--source", source, "--target", target)
    assert (done.code, done.err) == (0, "")
    expected = [one.score for one in score(translator, PAIRS)]
    assert [float(line) for line in done.out.splitlines()] == pytest.approx(expected, abs=1e-3)
    pairs = write_tsv(tmp_path / "p.tsv", PAIRS)
    means = command("score", trained("transformer"), "--pairs", pairs, "--normalise", "length")
    counts = [len(target.split()) + 1 for _, target in PAIRS]
    expected = [value / count for value, count in zip(expected, counts, strict=True)]
    assert [float(line) for line in means.out.splitlines()] == pytest.approx(expected, abs=1e-3)


def test_json_tells_of_each_token(command: Command, trained: Any, tmp_path: Path) -> None:
    pairs = write_tsv(tmp_path / "p.tsv", PAIRS[:3])
    done = command("score", trained("transformer"), "--pairs", pairs, "--json")
    rows = [json.loads(line) for line in done.out.splitlines()]
    assert [(row["source"], row["text"]) for row in rows] == PAIRS[:3]
    for row in rows:
        assert row["tokens"] == row["text"].split()
        assert len(row["token_log_probs"]) == len(row["tokens"]) + 1
        assert row["score"] == row["log_prob"] == pytest.approx(sum(row["token_log_probs"]))


@pytest.mark.parametrize("how", ["file", "column"])
def test_contrastive_targets(how: str, command: Command, trained: Any, tmp_path: Path) -> None:
    if how == "file":
        second = write_lines(tmp_path / "second", WRONG)
        given = ["--pairs", write_tsv(tmp_path / "p.tsv", PAIRS), "--contrastive", second]
    else:
        rows = [f"{source}\t{target}\t{other}" for (source, target), other in zip(PAIRS, WRONG, strict=True)]
        given = ["--pairs", write_lines(tmp_path / "p.tsv", rows)]
    done = command("score", trained("transformer"), *given)
    assert done.code == 0
    rows = [line.split("\t") for line in done.out.splitlines()]
    assert len(rows) == len(PAIRS)
    won = 0
    for first, second, choice in rows:
        assert choice == ("first" if float(first) > float(second) else "second")
        won += choice == "first"
    share = f"accuracy {100 * won / len(PAIRS):.2f}%"
    assert done.err == f"the first target is preferred in {won} of {len(PAIRS)} lines: {share}\n"
    found = json.loads(command("score", trained("transformer"), *given, "--json").out.splitlines()[0])
    assert found["preferred"] == rows[0][2]
    assert found["contrastive"]["text"] == WRONG[0]
    assert found["contrastive"]["score"] == pytest.approx(float(rows[0][1]), abs=1e-3)
    assert set(found["contrastive"]) == {"text", "score", "log_prob", "tokens", "token_log_probs"}


def test_a_pipe_is_read_once(command: Command, trained: Any, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.tsv"
    os.mkfifo(pipe)
    content = "".join(f"{source}\t{target}\n" for source, target in PAIRS)
    writer = threading.Thread(target=lambda: pipe.write_text(content), daemon=True)
    writer.start()
    done = command("score", trained("transformer"), "--pairs", pipe)
    writer.join(10)
    assert (done.code, done.err, len(done.out.splitlines())) == (0, "", len(PAIRS))


# Bad input


def test_missing_and_empty_files(command: Command, trained: Any, tmp_path: Path) -> None:
    model, source = trained("transformer"), write_lines(tmp_path / "s", ["a"])
    empty = write_lines(tmp_path / "empty.tsv", [])
    missing = tmp_path / "no.tsv"
    for given, told in (
        (["--pairs", missing], f"{missing}: no such file"),
        (["--source", source, "--target", missing], f"{missing}: no such file"),
        (["--source", source, "--target", source, "--contrastive", missing], f"{missing}: no such file"),
        (["--pairs", empty], f"{empty}: the file is empty"),
        (["--source", empty, "--target", empty, "--contrastive", empty], f"{empty}: the file is empty"),
        ([], "no text: give --pairs FILE, or --source FILE and --target FILE"),
        (["--source", source], f"{source} is one side only: give a source and a target file, or one file of pairs"),
        (["--pairs", empty, "--normalise", "mean"], "unknown normalisation 'mean'; valid: none, length"),
    ):
        done = command("score", model, *given)
        assert done.mistake() == f"sightline: {told}"
        assert done.out == ""


def test_unequal_counts_are_told_with_the_line_before_anything_is_scored(
    command: Command, trained: Any, tmp_path: Path
) -> None:
    three, two = write_lines(tmp_path / "three", ["a", "b", "c"]), write_lines(tmp_path / "two", ["A", "B"])
    for given, told in (
        ([three, two], f"{three} has 3 lines, {two} 2: line 3 of {three} has no partner"),
        ([three, three, two], f"{two} has 2 lines for 3 pairs: line 3 has no partner"),
        ([two, two, three], f"{three} has 3 lines for 2 pairs: line 3 has no partner"),
    ):
        names = ["--source", "--target", "--contrastive"]
        line = [part for name, path in zip(names, given, strict=False) for part in (name, path)]
        done = command("score", trained("transformer"), *line)
        assert told in done.mistake()
        assert done.out == ""


def test_columns_that_change(tmp_path: Path) -> None:
    for rows, told in (
        (["a\tA\tB", "b\tB"], "line 2: expected 3 columns with tabs between them, source, target, second target"),
        (["a\tA", "b\tB\tC"], "line 2: expected 2 columns with tabs between them, source, target; found 3 columns"),
        (["a\tA", ""], "line 2: expected 2 columns .* found an empty line"),
        (["a"], "line 1: expected 2 columns .* found 1 column"),
    ):
        path = write_lines(tmp_path / "p.tsv", rows)
        with pytest.raises(SightlineError, match=told):
            list(read_candidates(TextFiles.given(pairs=path)))
    both = write_lines(tmp_path / "p.tsv", ["a\tA\tB"])
    with pytest.raises(SightlineError, match="expected two columns"):
        list(read_candidates(TextFiles.given(pairs=both), both))


def test_a_long_line_is_refused_before_anything_is_scored(command: Command, trained: Any, tmp_path: Path) -> None:
    source, target = write_lines(tmp_path / "s", ["a", "a"]), write_lines(tmp_path / "t", ["A", "A " * 1500])
    done = command("score", trained("transformer"), "--source", source, "--target", target)
    assert f"{target}, line 2: 1,500 tokens, more than the 1,000 that this model takes at once" in done.mistake()
    assert done.out == ""
