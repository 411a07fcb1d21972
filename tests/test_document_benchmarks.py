"""The benchmarks of documents: that their tasks are what they say, and one run of each as small as can be."""

from __future__ import annotations

import io
import json
import sys
import tarfile
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import babi, documents
from benchmarks.documents import ARROWS, ENTITIES, MARKER, arrows, planted
from sightline.batch import Tokens
from tests.commands import Command

LINES = [
    "1 Mary moved to the hall.",
    "2 Where is Mary? \thall\t1",
    "3 John got milk.",
    "4 What has John? \tmilk,hat\t3",
]


def test_stories_and_questions() -> None:
    told = list(babi.questions([*LINES, *LINES[:2]]))
    assert told == [
        ("Mary moved to the hall . ||| Where is Mary ?", "hall"),
        ("Mary moved to the hall . ||| John got milk . ||| What has John ?", "milk+hat"),
        ("Mary moved to the hall . ||| Where is Mary ?", "hall"),
    ]


def test_one_task_from_the_archive_to_the_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    archive, results = tmp_path / "babi.tar.gz", tmp_path / "babi.json"
    with tarfile.open(archive, "w:gz") as files:
        for part in ("train", "test"):
            content = "\n".join(LINES * 6).encode()
            entry = tarfile.TarInfo(f"./qa7_counting_{part}.txt")
            entry.size = len(content)
            files.addfile(entry, io.BytesIO(content))

    def in_this_process(arguments: list[str], threads: int) -> str:
        done = command(*arguments)
        assert done.code == 0, done.err
        return done.out

    monkeypatch.setattr(babi, "sightline", in_this_process)
    options = ["--tasks", "7", "--arms", "2", "--updates", "2", "--set", "model.embedding=8"]
    monkeypatch.setattr(sys, "argv", ["babi.py", "--data", str(archive), *options, "--runs", str(tmp_path / "runs")])
    sys.argv += ["--results", str(results)]
    babi.main()
    found = json.loads(results.read_text())["task 7, seq2seq, 2 hops"]
    assert found["questions"] == 12
    assert 0 <= found["accuracy"] <= 100
    assert str(tmp_path) not in found["command"]


def test_a_keyword_stands_where_it_is_said_to() -> None:
    batch, sentence, place = planted(3, 5, 20)
    (source,) = batch.sources
    assert isinstance(source, Tokens)
    assert batch.targets is not None
    for row in range(20):
        assert source.ids[row, 6 * sentence[row] + place[row]] == batch.targets.ids[row, 0]
        assert (source.ids[row] == batch.targets.ids[row, 0]).sum() == 1
        assert (source.ids[row] == MARKER).sum() == 2


def test_arrows_lead_to_the_answer_in_two_steps() -> None:
    batch = arrows(20)
    (source,) = batch.sources
    assert isinstance(source, Tokens)
    assert batch.targets is not None
    first = MARKER + 1
    for row, answer in zip(source.ids.tolist(), batch.targets.ids[:, 0].tolist(), strict=True):
        facts = {row[3 * n] - first: row[3 * n + 1] - first - ENTITIES for n in range(ARROWS)}
        assert facts[facts[row[3 * ARROWS] - first - 2 * ENTITIES]] == answer - first


def test_arms_report_and_are_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "TESTED", 10)
    torch.manual_seed(0)
    for found in (documents.keyword("mean", 2, 3, updates=1), documents.chain(2, updates=1)):
        assert 0 <= found["right"] <= 100
    monkeypatch.setattr(documents, "TASKS", {"chain": {"1 hops": partial(documents.chain, 1, updates=1)}})
    given = ["--only", "chain", "--results", str(tmp_path / "documents.json"), "--pictures", str(tmp_path)]
    documents.main(given)
    assert json.loads((tmp_path / "documents.json").read_text())["chain"]["1 hops"]["updates"] == 1
    assert (tmp_path / "documents-chain-1-hops.svg").read_text().count("→") >= ARROWS


@pytest.mark.parametrize("kind", documents.KINDS)
def test_where_each_kind_looks(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "TESTED", 10)
    picture = tmp_path / "seen.svg"
    found = documents.keyword(kind, 2, 3, updates=1, picture=picture)
    assert all(0 <= found[f"highest at the {place}"] <= 100 for place in ("sentence", "word"))
    assert "sentence 2" in picture.read_text()
    model = documents.made("bahdanau", documents.FIRST_FILLER + documents.FILLERS, documents.KINDS[kind])
    weights = documents.looks(model.eval(), planted(2, 3, 7)[0], 2)
    assert weights.shape == (7, 2, 4)
    torch.testing.assert_close(weights.sum((1, 2)), torch.ones(7))


def test_what_is_drawn_of_a_document() -> None:
    batch, sentence, place = planted(2, 3, 5)
    weights = torch.tensor([[[0.1, 0.2, 0.1, 0.0], [0.3, 0.3, 0.0, 0.0]]]).expand(5, 2, 4)
    drawn = documents.seen(batch, weights)
    (keyword,) = (place for place, word in enumerate(drawn.source) if word.startswith("KEY"))
    assert keyword == 4 * sentence[0] + place[0]
    assert drawn.target == ["sentence 1", "sentence 2", drawn.source[keyword]]
    assert [*drawn.links] == [(keyword, 2)]
    assert drawn.source[3::4] == ["|||", "end"]
    expected = [[0.25, 0.5, 0.25, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0.5, 0.5, 0, 0], [0.1, 0.2, 0.1, 0, 0.3, 0.3, 0, 0]]
    np.testing.assert_allclose(drawn.weights, expected, atol=1e-6)


def test_what_is_drawn_of_a_story(monkeypatch: pytest.MonkeyPatch) -> None:
    model = documents.made(
        "seq2seq",
        MARKER + 1 + 3 * ENTITIES,
        {"encoder": {"kind": "hops"}, "documents": {"hops": 2, "word_order": False}},
    )
    batch = arrows(1)
    drawn = documents.followed(model.eval(), batch)
    asked = drawn.title[0]
    (first,) = (arrow for arrow in drawn.source if arrow.startswith(asked))
    (second,) = (arrow for arrow in drawn.source if arrow.startswith(first[-1]))
    assert batch.targets is not None
    assert second[-1] == documents.letter(int(batch.targets.ids[0, 0]) - MARKER - 1)
    assert drawn.target == ["look 1", "look 2"]
    np.testing.assert_allclose(drawn.weights.sum(1), [1, 1], atol=1e-6)


def test_a_learned_query_finds_the_keyword(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small dose of the benchmark: few words that may decide, in short sentences, learnt in seconds."""
    monkeypatch.setattr(documents, "FIRST_FILLER", MARKER + 1 + 4)
    monkeypatch.setattr(documents, "FILLERS", 10)
    monkeypatch.setattr(documents, "TESTED", 200)
    monkeypatch.setattr(documents, "GOOD", 101.0)  # it goes on: the weights grow sharp after the answers are right
    found = documents.keyword("attention", 2, 4, updates=120)
    assert found["right"] >= 98
    assert found["highest at the word"] >= 98
