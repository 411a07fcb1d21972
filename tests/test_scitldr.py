"""The benchmark of summaries: its text, its measures by hand, its arms, its table, and a run on a few papers."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import scitldr
from benchmarks.mechanisms import running
from benchmarks.mechanisms.entries import resolved
from benchmarks.scitldr import Paper
from tests.commands import Command, arms_within

PAPERS = [
    {"source": [f"We study N{number}, a net. ", "It is\tgood."], "target": [f"N{number} is a good net.", "A net"]}
    for number in range(12)
]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for name in scitldr.FILES.values():
        with gzip.open(tmp_path / name, "wt", encoding="utf-8") as file:
            file.write("".join(f"{json.dumps(paper)}\n" for paper in PAPERS))
    return tmp_path


# ---- text and measures ----


def test_abstracts_in_small_letters_and_not_too_long(data: Path) -> None:
    first = scitldr.read(data / scitldr.FILES["train"])[0]
    assert first.sentences == ["We study N0, a net.", "It is\tgood."]
    assert scitldr.pairs([first]) == "we study n0 , a net . it is good .\tn0 is a good net .\n"
    assert len(Paper(["word, "] * 300, []).source.split()) == scitldr.LONGEST


def test_measures_by_hand() -> None:
    papers = [Paper(["A B c d."], ["a b", "x y z"]), Paper(["e"], ["e f"])]
    found = scitldr.measured(papers, ["a b <unk>", "E g h ."])
    # Of 3 words and 2, two alike, 2*2/5, pairs 2*1/3; of 3 and 2 one alike, 2*1/5, no pair.
    assert found["rouge"]["rouge_1"] == pytest.approx(100 * (4 / 5 + 2 / 5) / 2)
    assert found["rouge"]["rouge_2"] == pytest.approx(100 * (2 / 3) / 2, abs=0.01)
    assert found["rouge"]["rouge_l"] == pytest.approx(60)
    assert (found["words"], found["copied"], found["unknown"]) == (3.0, 50.0, 16.7)


WORDS = st.lists(st.sampled_from(["Nets", "are", "good", "2", ",", "<unk>"]), min_size=1, max_size=6).map(" ".join)


@given(WORDS, st.lists(WORDS, min_size=1, max_size=3))
@settings(deadline=None, max_examples=50)
def test_properties(output: str, summaries: list[str]) -> None:
    """A further reference makes ROUGE-1 no worse; a reference as output is best; an abstract is copied from itself."""
    one = scitldr.measured([Paper([output], summaries)], [output])
    fewer = scitldr.measured([Paper([output], summaries[:1])], [output])
    assert one["rouge"]["rouge_1"] >= fewer["rouge"]["rouge_1"]
    same = scitldr.measured([Paper([output], [*summaries, output])], [output])["rouge"]
    assert same["rouge_1"] == 100 or not any(character.isalnum() for character in output)
    if one["copied"] is not None:
        assert one["copied"] + one["unknown"] == pytest.approx(100, abs=0.11)


# ---- arms ----


def test_arms_differ_in_copying_alone() -> None:
    plain, pointing, unknown, covering = (resolved(scitldr.ARMS[name]) for name in [*scitldr.ARMS][1:])
    assert scitldr.ARMS[scitldr.LEAD] == {}
    assert plain.model.copying.kind == "none"
    assert pointing.model.copying.kind == covering.model.copying.kind == "pointer_generator"
    assert pointing.model.model_copy(update={"copying": plain.model.copying}) == plain.model
    without = {"attention": pointing.model.attention, "penalties": pointing.model.penalties}
    assert covering.model != pointing.model
    assert covering.model.model_copy(update=without) == pointing.model
    assert (pointing.model.copying.unknown, unknown.model.copying.unknown) == (False, True)
    same = {"copying": unknown.model.copying.model_copy(update={"unknown": False})}
    assert unknown.model.model_copy(update=same) == pointing.model
    for one in (pointing, unknown, covering):
        assert (one.text, one.data, one.training) == (plain.text, plain.data, plain.training)


# ---- the table ----


def test_table_from_a_record() -> None:
    about: dict[str, Any] = {
        "pairs": 1992,
        "held_out": 619,
        "search": [],
        "minutes": 20.0,
        "max_updates": None,
        "threads": 2,
        "papers": 618,
        "machine": {"cpu": "abacus"},
        "command": "python benchmarks/scitldr.py --data PATH",
        "rouge": {"rouge_1": 20.5, "rouge_2": 3.0, "rouge_l": 15.25, "signature": "sealed"},
        "words": 22.0,
        "copied": 75.0,
        "unknown": 0.0,
    }
    record = {
        "lead": about,
        "plain": {**about, "updates": 2000, "best_update": 450},
        "pointer-generator": {"failed": "no electricity"},
    }
    text = scitldr.tables(record)
    assert "| `lead` | 20.50 | 3.00 | 15.25 | 22.0 | 75.0 | 0.0 | – | – |" in text
    assert "| `plain` | 20.50 | 3.00 | 15.25 | 22.0 | 75.0 | 0.0 | 2,000 | 450 |" in text
    assert "`pointer-generator` failed: no electricity" in text
    told = text.replace("\n", " ")
    assert "1,992 papers to train on, 20 minutes of training for each arm on 2 threads (abacus)" in told
    assert "(`sealed`)" in text
    assert "other settings" not in text
    assert "the record tells: `plain`." in scitldr.tables({**record, "plain": {**record["plain"], "minutes": 5.0}})
    for one in scitldr.PUBLISHED:
        assert f"| {one.name} | CNN/Daily Mail | {one.status} | {one.rouge[0]:.2f} |" in text


# ---- a run ----


def test_lead_and_an_arm_from_end_to_end(
    data: Path, command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    trained: list[str] = []
    monkeypatch.setattr(running, "commands", arms_within(command, trained))
    results = tmp_path / "scitldr.json"
    arguments = ["--data", str(data), "--runs", str(tmp_path / "runs"), "--results", str(results), "--updates", "2"]
    arguments += ["--tested", "5", "--arms", "lead,pointer-generator-coverage"]
    small = ["model.embedding=8", "model.encoder.width=4", "model.decoder.width=8", "training.warmup=1"]
    for setting in (*small, "text.vocabulary=12", "training.validate_every=1"):
        arguments += ["--set", setting]
    assert scitldr.main(arguments) == 0
    record = json.loads(results.read_text(encoding="utf-8"))
    assert [*record] == ["lead", "pointer-generator-coverage"]
    # "we study n0 a net" and "n0 is a good net": of 5 words and 5 three are alike; no pair but one of "a net".
    assert record["lead"]["rouge"]["rouge_1"] == pytest.approx(60)
    assert record["lead"]["copied"] == 100
    one = record["pointer-generator-coverage"]
    assert (one["updates"], one["papers"], one["pairs"]) == (2, 5, 12)
    assert one["best_update"] in (1, 2)
    assert str(tmp_path) not in json.dumps(record)
    assert "`pointer-generator-coverage`" in results.with_suffix(".md").read_text(encoding="utf-8")
    assert scitldr.main(arguments) == 0
    assert trained == ["pointer-generator-coverage"], "what is recorded is not trained again"


def test_mistakes_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = ["--results", str(tmp_path / "none.json")]
    for arguments, message in ((["--arms", "telepathy"], "unknown telepathy"), ([], "--data DIR")):
        with pytest.raises(SystemExit):
            scitldr.main([*arguments, *results])
        assert message in capsys.readouterr().err
    with pytest.raises(SystemExit, match=r"there is no train\.jsonl\.gz"):
        scitldr.main(["--data", str(tmp_path), *results])
