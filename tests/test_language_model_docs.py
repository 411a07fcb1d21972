"""The page on language models: its commands and its code run, in their order."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.commands import Command, write_lines
from tests.test_decoding_docs import examples, run

PAGE = Path(__file__).parent.parent / "docs" / "language_models.md"
# The page trains to the end; a few updates of a small model show that its commands work.
QUICK = " --max-steps 2 --set model.embedding=16 --set model.decoder.layers=1 --set text.tokenizer=char"
QUICK += " --set data.cache=null --set training.workers=1 --set training.report=false"


def test_the_examples_run(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    draw = random.Random(0)
    for name in ("my.txt", "valid.txt", "right.txt", "wrong.txt"):
        animals = [draw.choice(["cat", "dog", "mouse"]) for _ in range(20)]
        write_lines(tmp_path / name, [f"The {animal} ran {place}." for place, animal in enumerate(animals)])
    blocks = examples(PAGE)
    assert {language for language, _ in blocks} == {"sh", "python"}
    for language, text in blocks:
        if language == "python":
            exec(compile(text, PAGE.name, "exec"), {})
            continue
        for line in text.splitlines():
            run(line + QUICK if " train " in line else line, command)
