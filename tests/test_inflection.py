"""The benchmark of inflection: its data, its arms, and one run of it on a handful of forms."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import pytest

from benchmarks import inflection
from sightline.config import assignment, build_config, merge
from tests.commands import Command

LINES = ["sehen\tpos=V,num=SG,per=3\tsieht", "Haus\tpos=N,num=PL\tHäuser", "rot\tpos=ADJ,gen=MASC\troter"]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for name in inflection.FILES.values():
        with gzip.open(tmp_path / name, "wt", encoding="utf-8") as file:
            file.write("".join(f"{line}\n" for line in LINES))
    return tmp_path


def test_letters_then_features(data: Path) -> None:
    first = next(inflection.read(data / inflection.FILES["train"]))
    assert first == (["s", "e", "h", "e", "n", "pos=V", "num=SG", "per=3"], ["s", "i", "e", "h", "t"])


@pytest.mark.parametrize("name", inflection.ARMS)
def test_every_arm_is_a_valid_configuration(name: str) -> None:
    values: dict[str, object] = {}
    for setting in (*inflection.COMMON, *inflection.ARMS[name].settings):
        values = merge(values, assignment(setting))
    config = build_config(values, inflection.ARMS[name].recipe)
    if name not in ("soft", "soft without input feeding"):
        assert config.model.attention.choice == name


def test_accuracy_counts_whole_forms() -> None:
    assert inflection.accuracy(["a b", "a", "c"], ["a b", "a b", "c"]) == 66.67


def test_a_run_is_recorded(data: Path, command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def within(arguments: list[str], threads: int) -> str:
        done = command(*arguments)
        assert done.code == 0, done.err
        return done.out

    results = tmp_path / "results.json"
    monkeypatch.setattr(inflection, "sightline", within)
    small = ["model.embedding=8", "model.encoder.width=4", "model.encoder.layers=1", "model.decoder.width=8"]
    arguments = ["inflection.py", "--data", str(data), "--arms", "exact_jumps", "--seeds", "1,2", "--updates", "2"]
    arguments += ["--runs", str(tmp_path / "runs"), "--results", str(results), "--beam", "2"]
    for setting in (*small, "training.warmup=1"):
        arguments += ["--set", setting]
    monkeypatch.setattr(sys, "argv", arguments)
    inflection.main()
    found = json.loads(results.read_text(encoding="utf-8"))["exact_jumps"]
    assert [one["seed"] for one in found["runs"]] == [1, 2]
    assert all(one["updates"] == 2 and one["forms"] == 3 for one in found["runs"])
