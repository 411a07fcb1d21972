"""The benchmark of alignments: that its arms can be run, its text is what it says, and its numbers are error rates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import alignment
from benchmarks.alignment import ARMS, Text, measure, prepare, read_gold, read_test, run_eflomal
from benchmarks.mechanisms import running
from sightline.alignments import Gold
from sightline.config import build_config
from sightline.data import Pair
from sightline.errors import SightlineError
from sightline.guidance import check_guidance
from tests.commands import Command, arms_within, letters, write_lines


@pytest.fixture
def data(tmp_path: Path) -> Path:
    pairs = letters(6, seed=5)
    write_lines(tmp_path / "test.de", [pair[0] for pair in pairs])
    write_lines(tmp_path / "test.en", [pair[1] for pair in pairs])
    gold = [" ".join(f"{place}-{place}" for place in range(len(pair[0].split()))) for pair in pairs]
    write_lines(tmp_path / "test.de-en.gold", gold)
    return tmp_path


@pytest.mark.parametrize("arm", ARMS)
def test_every_arm_can_be_configured(arm: str) -> None:
    check_guidance(build_config(alignment.config(*ARMS[arm], Path("links"))))


def test_text_of_all_arms(data: Path, tmp_path: Path) -> None:
    """German first, cut and lower-cased, without what is empty or long; the test comes last."""
    corpus = write_lines(
        tmp_path / "c.tsv",
        ["Hello, World!\tHallo, Welt!", "\tleer", f"{'x ' * 61}\tlang", "EU-budget\tEU-Haushalt", "a\tb"],
    )
    text = prepare([corpus], read_test(data), 2, tmp_path / "runs")
    assert text.train == [Pair("hallo , welt !", "hello , world !"), Pair("eu-haushalt", "eu-budget")]
    assert text.every == [*text.train, *read_test(data)]
    assert (tmp_path / "runs" / "text.de").read_text().splitlines()[:2] == ["hallo , welt !", "eu-haushalt"]


def test_every_corpus_gives_its_share(data: Path, tmp_path: Path) -> None:
    corpora = [
        write_lines(tmp_path / f"{letter}.tsv", [f"{letter}{number}\t{letter}{number}" for number in range(count)])
        for letter, count in (("e", 20), ("t", 10))
    ]
    text = prepare(corpora, read_test(data), 6, tmp_path / "runs")
    assert [pair.source for pair in text.train] == ["e0", "e5", "e10", "e15", "t0", "t5"]
    text.links.write_text("0-0\n")
    assert prepare(corpora, read_test(data), 6, tmp_path / "runs").links.exists()
    assert not prepare(corpora, read_test(data), 5, tmp_path / "runs").links.exists(), "they are of another text"


def test_a_link_to_a_word_that_is_not_there_is_left_out(data: Path, tmp_path: Path) -> None:
    """The gold that everybody has has one; and where there is none, nothing is left out."""
    given, text = data / "test.de-en.gold", Text([], read_test(data), tmp_path / "runs")
    text.folder.mkdir()
    before = given.read_text()
    assert read_gold(given, text).sure == Gold(given, text.test).sure
    assert given.read_text() == before
    write_lines(given, [f"{before.splitlines()[0]} 0-99 0p1", *before.splitlines()[1:]])
    with pytest.raises(SightlineError, match="link 0-99"):
        Gold(given, text.test)
    found, expected = read_gold(given, text), read_gold(write_lines(given, before.splitlines()), text)
    assert found.sure == expected.sure
    assert found.possible == [expected.possible[0] | {(0, 1)}, *expected.possible[1:]]


def test_a_model_is_measured(data: Path, trained: Any) -> None:
    test = read_test(data)
    gold = Gold(data / "test.de-en.gold", test)
    silver = (test, gold.sure)
    rates = measure(trained("transformer"), test, gold, silver)
    assert list(rates) == ["predicts", "consumes", "chosen on eflomal's links"]
    assert rates["chosen on eflomal's links"] <= min(rates["predicts"], rates["consumes"])
    assert all(0 <= rate <= 100 for rate in rates.values())


def diagonal(sources: Any, targets: Any) -> Any:
    """In the place of eflomal."""
    links = [{(place, place) for place in range(len(one.split()))} for one in sources]
    return links, [set(one) for one in links]


def test_eflomal_is_measured_and_leaves_links(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    test = read_test(data)
    monkeypatch.setattr(alignment, "eflomal_aligner", lambda: diagonal)
    text = Text([Pair("a b", "A B")], test, tmp_path)
    result = run_eflomal(text, Gold(data / "test.de-en.gold", test))
    assert set(result["error_rates"].values()) == {0.0}
    assert text.links.read_text().splitlines()[0] == "0-0 1-1"
    assert "intersection 0.0" in alignment.told(result)


def test_arms_are_recorded_one_by_one_and_go_on_past_what_fails(
    data: Path, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = write_lines(tmp_path / "c.tsv", [f"{target}\t{source}" for source, target in letters(60)])
    options = ["--data", str(data), "--corpus", str(corpus), "--pairs", "40", "--updates", "2", "--threads", "1"]
    options += ["--runs", str(tmp_path / "runs"), "--results", str(tmp_path / "alignment.json")]
    small = ["model.embedding=8", "model.encoder.width=4", "model.encoder.layers=1", "model.decoder.width=8"]
    for setting in (*small, "text.tokenizer=word", "training.warmup=1"):
        options += ["--set", setting]
    trained: list[str] = []
    monkeypatch.setattr(running, "commands", arms_within(command, trained))

    def missing() -> Any:
        raise SightlineError("eflomal is not there")

    monkeypatch.setattr(alignment, "eflomal_aligner", missing)
    chosen = ["--arms", "guided-bahdanau,plain-bahdanau"]
    assert alignment.main([*options, *chosen]) == 1
    found = json.loads((tmp_path / "alignment.json").read_text())
    assert [*found] == ["eflomal", "plain-bahdanau", "guided-bahdanau"]
    assert {name for name in found if "failed" in found[name]} == {"eflomal", "guided-bahdanau"}
    assert "eflomal is not there" in found["guided-bahdanau"]["failed"]
    assert trained == ["plain-bahdanau"]
    monkeypatch.setattr(alignment, "eflomal_aligner", lambda: diagonal)
    assert alignment.main([*options, *chosen]) == 0
    assert trained == ["plain-bahdanau", "guided-bahdanau"]
    found = json.loads((tmp_path / "alignment.json").read_text())
    assert {*found["guided-bahdanau"]["error_rates"]} == {"predicts", "consumes"}
    assert found["guided-bahdanau"]["updates"] == 2
    assert str(tmp_path) not in json.dumps(found)
    # What is recorded is left out; its links are made again for an arm that needs them.
    (tmp_path / "runs" / alignment.LINKS).unlink()
    assert alignment.main([*options, "--arms", "guided-product-bahdanau"]) == 0
    assert trained[2:] == ["guided-product-bahdanau"]
    assert (tmp_path / "runs" / alignment.LINKS).is_file()
