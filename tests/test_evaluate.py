"""Scoring: the numbers are sacreBLEU's own on the model's own translations."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
import sacrebleu

import sightline
from sightline.data import Pair
from sightline.errors import SightlineError
from sightline.evaluate import evaluate
from tests.commands import Command, letters, write_lines, write_tsv

# Long enough for n-grams of four, and not in the training text: there is something to get wrong.
PAIRS = [Pair(source, target) for source, target in letters(40, seed=9)]


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    return [write_lines(tmp_path / name, [pair[side] for pair in PAIRS]) for side, name in enumerate("st")]


def test_equals_sacrebleu_on_the_translations(
    command: Command, trained: Any, files: list[Path], tmp_path: Path
) -> None:
    output = tmp_path / "out"
    done = command("evaluate", trained("seq2seq"), "--source", files[0], "--target", files[1], "--output", output)
    assert (done.code, done.err) == (0, "")
    translations = output.read_text().split("\n")[:-1]
    assert translations == command("translate", trained("seq2seq"), files[0]).out.split("\n")[:-1]
    references = [[pair.target for pair in PAIRS]]
    bleu = sacrebleu.corpus_bleu(translations, references).score
    chrf = sacrebleu.corpus_chrf(translations, references).score
    assert 0 < bleu < 100
    told = dict(re.findall(r"^(\w+)\s+([\d.]+)", done.out, re.MULTILINE))
    assert told["BLEU"] == f"{bleu:.2f}"
    assert told["chrF"] == f"{chrf:.2f}"
    assert "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:" in done.out


def test_perplexity_is_that_of_the_targets(trained: Any) -> None:
    translator = sightline.load(trained("luong"))
    found = evaluate(translator, PAIRS, translator.stream([pair.source for pair in PAIRS]))
    log_probs = [value for one in translator.force(PAIRS) for value in one.token_log_probs]
    assert len(log_probs) == sum(len(pair.target.split()) + 1 for pair in PAIRS)
    assert found.perplexity == pytest.approx(math.exp(-sum(log_probs) / len(log_probs)))


def test_json_by_length_and_by_sentence(command: Command, trained: Any, tmp_path: Path) -> None:
    pairs = write_tsv(tmp_path / "p.tsv", PAIRS)
    done = command("evaluate", trained("seq2seq"), "--pairs", pairs, "--json", "--by-length", "--sentences")
    assert (done.code, done.err) == (0, "")
    found = json.loads(done.out)
    assert found["sentences"] == len(PAIRS)
    assert [bucket["label"] for bucket in found["by_length"]] == ["1", "2", "3", "4", "5"]
    assert sum(bucket["sentences"] for bucket in found["by_length"]) == len(PAIRS)
    five = [row for row in found["by_sentence"] if len(row["source"].split()) == 5]
    expected = sacrebleu.corpus_bleu([row["translation"] for row in five], [[row["reference"] for row in five]])
    assert found["by_length"][-1]["bleu"] == pytest.approx(expected.score)
    first = found["by_sentence"][0]
    assert (first["source"], first["reference"]) == PAIRS[0]
    chrf = sacrebleu.sentence_chrf(first["translation"], [first["reference"]]).score
    assert first["chrf"] == pytest.approx(chrf)


def test_tables_and_figures(command: Command, trained: Any, tmp_path: Path) -> None:
    pairs, figure = write_tsv(tmp_path / "p.tsv", PAIRS), tmp_path / "lengths.png"
    sources = "".join(f"{source}\n" for source, _ in PAIRS).encode()
    found = command("translate", trained("transformer"), "--beam", 1, stdin=sources).out.splitlines()
    line = ["evaluate", trained("transformer"), "--pairs", pairs, "--tokenize", "none", "--beam", 1]
    done = command(*line, "--by-length", "--sentences", "--png", figure)
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert "tok:none" in lines[0]
    assert lines[3].split() == ["words", "sentences", "BLEU", "chrF"]
    assert [row.split()[0] for row in lines[4:9]] == ["1", "2", "3", "4", "5"]
    assert len(lines) == 9 + len(PAIRS)
    assert [row.split("\t")[2] for row in lines[9:]] == found
    assert figure.read_bytes().startswith(b"\x89PNG")
    assert command(*line, "--png", figure).out.count("\n") == 3  # the figure alone brings no table


def test_empty_sides_count(command: Command, trained: Any, tmp_path: Path) -> None:
    pairs = write_tsv(tmp_path / "p.tsv", [("", "A"), ("a b", ""), ("", ""), ("a b c d", "A B C D")])
    done = command("evaluate", trained("transformer"), "--pairs", pairs, "--json", "--sentences")
    assert done.code == 0
    assert [row["translation"] for row in json.loads(done.out)["by_sentence"]] == ["", "A B", "", "A B C D"]


def test_nothing_to_score(trained: Any) -> None:
    with pytest.raises(SightlineError, match="nothing to evaluate"):
        evaluate(sightline.load(trained("seq2seq")), [], [])
