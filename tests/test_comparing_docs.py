"""The examples of docs/comparing.md, in their order, on a small corpus and with few updates."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from sightline.cli import app
from sightline.comparison import run as comparing
from tests.commands import Command, letters, write_tsv
from tests.test_compare import write_config

PAGE = (Path(__file__).parent.parent / "docs" / "comparing.md").read_text(encoding="utf-8")
FEWER = re.compile(r'(max.steps"?:? )3000')  # the page trains to the end; two updates show that it works


def test_the_examples_run(tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_tsv(tmp_path / "my.tsv", letters(100))
    for score in ("additive", "bilinear"):
        write_config(tmp_path / f"{score}.yaml", "bahdanau", {"model": {"attention": {"score": score}}})
    for language, text in re.findall(
        r"^```(sh|python)\n(.*?)^```$", FEWER.sub(r"\g<1>2", PAGE), re.DOTALL | re.MULTILINE
    ):
        if language == "sh":
            done = command(*shlex.split(text)[1:])
            assert done.code == 0, done.err
            continue
        names: dict[str, Any] = {}
        monkeypatch.setattr(comparing, "train", None)  # the command has trained all that this asks for
        exec(compile(text, "comparing.md", "exec"), names)
        assert names["bleu"].name == "BLEU"
    seeds = json.loads((tmp_path / "runs" / "scores" / "report.json").read_bytes())["seeds"]
    assert seeds == [1]  # what the Python example asks for


def test_every_option_is_told() -> None:
    found = typer.main.get_command(app)
    options = {name for option in found.commands["compare"].params for name in option.opts if name.startswith("--")}
    hidden = {"--valid-source", "--valid-target", "--valid-pairs"}  # told as --valid-…
    assert [option for option in sorted(options - hidden) if f"`{option}" not in PAGE] == []
