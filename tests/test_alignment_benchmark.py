"""The benchmark of alignments: that its arms can be run, its text is what it says, and its numbers are error rates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import alignment
from benchmarks.alignment import ARMS, COMMON, measure, prepare, read_test, record, run_eflomal
from sightline.alignments import Gold
from sightline.config import assignment, build_config, merge
from sightline.data import Pair
from sightline.guidance import check_guidance
from tests.commands import letters, write_lines


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
    recipe, settings = ARMS[arm]
    values: dict[str, Any] = {}
    for setting in [*COMMON, *settings]:
        values = merge(values, assignment(setting.format(links="links")))
    check_guidance(build_config(values, recipe))


def test_text_of_all_arms(data: Path, tmp_path: Path) -> None:
    """German first, cut and lower-cased, without what is empty or long; the test comes last."""
    corpus = write_lines(
        tmp_path / "c.tsv",
        ["Hello, World!\tHallo, Welt!", "\tleer", f"{'x ' * 61}\tlang", "EU-budget\tEU-Haushalt", "a\tb"],
    )
    test = read_test(data)
    text = prepare([corpus], test, 2, tmp_path / "runs")
    assert text[:2] == [Pair("hallo , welt !", "hello , world !"), Pair("eu-haushalt", "eu-budget")]
    assert text[2:] == test
    assert (tmp_path / "runs" / "text.de").read_text().splitlines()[:2] == ["hallo , welt !", "eu-haushalt"]


def test_a_model_is_measured(data: Path, trained: Any) -> None:
    test = read_test(data)
    gold = Gold(data / "test.de-en.gold", test)
    silver = (test, gold.sure)
    rates = measure(trained("transformer"), test, gold, silver)
    assert list(rates) == ["predicts", "consumes", "chosen on eflomal's links"]
    assert rates["chosen on eflomal's links"] <= min(rates["predicts"], rates["consumes"])
    assert all(0 <= rate <= 100 for rate in rates.values())


def test_eflomal_is_measured_and_leaves_links(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    test = read_test(data)
    gold = Gold(data / "test.de-en.gold", test)

    def diagonal(sources: Any, targets: Any) -> Any:
        links = [{(place, place) for place in range(len(one.split()))} for one in sources]
        return links, [set(one) for one in links]

    monkeypatch.setattr(alignment, "eflomal_aligner", lambda: diagonal)
    result = run_eflomal([Pair("a b", "A B"), *test], test, gold, tmp_path)
    assert set(result["error_rates"].values()) == {0.0}
    assert (tmp_path / alignment.LINKS).read_text().splitlines()[0] == "0-0 1-1"
    monkeypatch.setattr(alignment, "RESULTS", tmp_path)
    record("eflomal", result)
    written = json.loads((tmp_path / "alignment.json").read_text())["eflomal"]
    assert {"error_rates", "command", "machine"} <= written.keys()
    assert "grow-diag 0.0" in capsys.readouterr().out
