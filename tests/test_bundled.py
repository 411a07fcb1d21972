"""The corpus that comes with Sightline: its parts are apart, its licence travels with it, it is small."""

from __future__ import annotations

import gzip
import importlib.util
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Literal

import pytest

from sightline.data import Pair, bundled, read_pairs

Part = Literal["train", "valid", "test"]
PARTS: list[Part] = ["train", "valid", "test"]
SCRIPT = Path(__file__).resolve().parent.parent / "benchmarks" / "make_bundled_corpus.py"


@cache
def part(name: Part) -> list[Pair]:
    return read_pairs(pairs=bundled(name))


@cache
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_bundled_corpus", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_sizes() -> None:
    assert len(part("train")) > 100_000
    assert len(part("valid")) == 500
    assert len(part("test")) == 1000
    assert sum(path.stat().st_size for path in bundled("train").parent.iterdir()) <= 2_000_000


@pytest.mark.parametrize("side", [0, 1])
def test_no_sentence_is_in_two_parts(side: int) -> None:
    sentences = [{" ".join(script().words(pair[side])) for pair in part(name)} for name in PARTS]
    assert [len(found) for found in sentences[1:]] == [500, 1000]
    assert sum(map(len, sentences)) == len(set().union(*sentences))


@pytest.mark.parametrize("name", PARTS)
def test_every_pair_is_suitable_and_there_once(name: Part) -> None:
    assert all(map(script().suitable, part(name)))
    assert len(set(part(name))) == len(part(name))


def test_attribution_and_counts_are_told() -> None:
    readme = bundled("train").with_name("README.md").read_text(encoding="utf-8")
    assert "Sentences from tatoeba.org, CC BY 2.0 FR, by way of manythings.org/anki" in readme
    for name in PARTS:
        assert f"`{bundled(name).name}` | {len(part(name)):,} |" in readme


def test_suitable() -> None:
    suitable = script().suitable
    assert suitable(Pair("Tom loves Mary's cat.", "Tom liebt Marias Katze."))
    assert suitable(Pair("Come here!", "Komm her."))
    assert not suitable(Pair("Tom left.", "Er ging."))
    assert not suitable(Pair("Who is it?", "Da ist wer."))
    assert not suitable(Pair("I like it.", "Ich mag’s."))
    assert not suitable(Pair("one two three four five six seven eight nine.", "Zu lang."))
    assert not suitable(Pair("Go.", "Das ist viel zu lang für so wenig."))


def test_the_script_writes_the_same_bytes_again(tmp_path: Path) -> None:
    data = tmp_path / "tatoeba" / "train.en-de.tsv.gz"
    data.parent.mkdir()
    lines = [
        f"{count} cats sleep in house {place}.\t{count} Katzen schlafen in Haus {place}."
        for count in range(2, 60)
        for place in range(2, 60)
    ]
    data.write_bytes(gzip.compress("\n".join(lines).encode()))
    written = []
    for number in range(2):
        output = tmp_path / f"output{number}"
        output.mkdir()
        command = [sys.executable, str(SCRIPT), "--data", str(tmp_path), "--output", str(output)]
        subprocess.run(command, check=True, capture_output=True, cwd=SCRIPT.parent.parent, env={"PYTHONPATH": "."})
        written.append({path.name: path.read_bytes() for path in output.iterdir()})
    assert written[0] == written[1]
    assert sorted(written[0]) == [bundled(name).name for name in sorted(PARTS)]
