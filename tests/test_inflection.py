"""The benchmark of inflection: its data, its arms, and one run of it on a handful of forms."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from benchmarks import inflection
from benchmarks.mechanisms import running
from sightline.config import build_config
from sightline.models import build_model
from sightline.sizes import Corpus, fill
from sightline.text import Sizes
from tests.commands import Command, arms_within

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
    values = inflection.config(name, 7)
    config = build_config(values)
    assert config.training.seed == 7
    copies = name in ("pointer_generator", "copynet", "copy_head")
    assert config.model.copying.kind == (name if copies else "none")
    if not copies and not name.startswith("soft"):
        assert config.model.attention.choice == name
    sizes = Sizes(17, 17, True)
    assert build_model(fill(config, Corpus(pairs=1_000, target_tokens=10_000)).model, sizes) is not None


def test_accuracy_counts_whole_forms() -> None:
    assert inflection.accuracy(["a b", "a", "c"], ["a b", "a b", "c"]) == 66.67


SMALL = ["model.embedding=8", "model.encoder.width=4", "model.encoder.layers=1", "model.decoder.width=8"]


def options(data: Path, arms: str, *more: str) -> list[str]:
    """A run of two updates."""
    found = ["--data", str(data), "--arms", arms, "--updates", "2", "--beam", "2", "--runs", str(data / "runs")]
    found += ["--results", str(data / "results.json"), *more]
    for setting in (*SMALL, "training.warmup=1"):
        found += ["--set", setting]
    return found


def test_runs_are_recorded_one_by_one_and_not_made_again(
    data: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: list[str] = []
    monkeypatch.setattr(running, "commands", arms_within(command, trained))
    assert inflection.main(options(data, "copy_head", "--seeds", "1")) == 0
    assert inflection.main(options(data, "copy_head", "--seeds", "1,2")) == 0
    assert trained == ["copy_head-1", "copy_head-2"]
    found = json.loads((data / "results.json").read_text(encoding="utf-8"))["copy_head"]
    assert [one["seed"] for one in found["runs"]] == [1, 2]
    assert all(one["updates"] == 2 and one["forms"] == 3 for one in found["runs"])
    assert found["accuracy"] == round(sum(one["accuracy"] for one in found["runs"]) / 2, 2)
    assert found["deviation"] is not None
    assert inflection.main(options(data, "copy_head", "--seeds", "2", "--again")) == 0
    assert trained[2:] == ["copy_head-2"]


def test_one_that_fails_does_not_stop_the_others(data: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    trained: list[str] = []
    within = arms_within(command, trained)

    def commands(threads: int) -> running.Run:
        run = within(threads)

        def sometimes(arguments: list[str], log: Path) -> int:
            if "exact-1" in str(arguments):
                log.write_text("sightline: no memory is left\n", encoding="utf-8")
                return 3
            return run(arguments, log)

        return sometimes

    monkeypatch.setattr(running, "commands", commands)
    assert inflection.main(options(data, "exact,soft", "--seeds", "1")) == 1
    found = json.loads((data / "results.json").read_text(encoding="utf-8"))
    assert [*found] == ["soft", "exact"]
    assert "no memory is left" in found["exact"]["failed"]
    assert found["soft"]["accuracy"] >= 0
    monkeypatch.setattr(running, "commands", within)
    assert inflection.main(options(data, "exact,soft", "--seeds", "1")) == 0
    assert trained == ["soft-1", "exact-1"]
    assert "failed" not in json.loads((data / "results.json").read_text(encoding="utf-8"))["exact"]
