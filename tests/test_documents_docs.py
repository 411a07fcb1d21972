"""The examples of docs/documents.md: every command is run, from top to bottom."""

from __future__ import annotations

import random
import re
import shlex
from pathlib import Path

import pytest

from sightline.document_settings import DocumentsConfig
from tests.commands import Command, write_tsv

PAGE = (Path(__file__).parent.parent / "docs" / "documents.md").read_text(encoding="utf-8")
SMALL = ("text.tokenizer=word", "model.embedding=8", "training.watch=1", "model.decoder.width=8")


def stories(count: int) -> list[tuple[str, str]]:
    draw, pairs = random.Random(count), []
    for _ in range(count):
        where = {name: draw.choice(["hall", "garden"]) for name in ("Mary", "John")}
        asked = draw.choice(list(where))
        told = [f"{name} went to the {place} ." for name, place in where.items()]
        pairs.append((" ||| ".join([*told, f"Where is {asked} ?"]), where[asked]))
    return pairs


def test_examples(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands that train get sizes that a test can afford, and make no more than a few updates."""
    monkeypatch.chdir(tmp_path)
    write_tsv(tmp_path / "stories.tsv", stories(40))
    write_tsv(tmp_path / "valid.tsv", stories(4))
    commands = "".join(re.findall(r"^```sh\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)).splitlines()
    assert len(commands) == 9
    for line in commands:
        given, _, rest = line.rpartition(" | sightline")
        words = shlex.split(rest)
        words = words[1:] if words[0] == "sightline" else words
        if words[0] == "train":
            words = [word if word != "20" else "2" for word in words]
            words += [part for setting in SMALL for part in ("--set", setting)]
        done = command(*words, stdin=" ".join(shlex.split(given)[1:]).encode() + b"\n" if given else b"")
        assert done.code == 0, (line, done.err)
        if words[0] == "align":
            assert re.fullmatch(r"(\d+-\d+ ?)*\n" * 4, done.out), done.out
            page = (tmp_path / words[-1]).read_text(encoding="utf-8")
            assert "|||" in page
    assert "hop" not in done.err


def test_keys_are_told() -> None:
    told = set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE))
    assert told == set(DocumentsConfig.model_fields)
