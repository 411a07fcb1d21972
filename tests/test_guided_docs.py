"""The examples of docs/guided.md: every command is run, from top to bottom."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from sightline.architecture import GuidedConfig
from tests.commands import Command, settings, write_lines, write_tsv
from tests.test_guided import reversed_letters

PAGE = (Path(__file__).parent.parent / "docs" / "guided.md").read_text(encoding="utf-8")


def test_examples(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands that train get sizes that a test can afford, and make no more than a few updates."""
    monkeypatch.chdir(tmp_path)
    for name, links, count in (("pairs.tsv", "links.txt", 60), ("heldout.tsv", "heldout.links", 5)):
        pairs, lines = reversed_letters(count, seed=count)
        write_tsv(tmp_path / name, pairs)
        write_lines(tmp_path / links, lines)
    commands = "".join(re.findall(r"^```sh\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)).splitlines()
    assert len(commands) == 6
    for line in commands:
        given, _, rest = line.rpartition(" | ")
        words = shlex.split(rest)[1:]
        if words[0] == "train":
            words = [*(word if word != "20" else "2" for word in words), *settings(words[2])]
        done = command(*words, stdin=" ".join(shlex.split(given)[1:]).encode() + b"\n" if given else b"")
        assert done.code == 0, (line, done.err)
        if words[0] == "align":
            assert "alignment error rate" in done.err


def test_keys_are_told() -> None:
    told = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.*?) \|", PAGE, re.MULTILINE))))
    assert told == set(GuidedConfig.model_fields)
