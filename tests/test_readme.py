"""The README's own commands, run as they stand there, on a small corpus."""

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sightline.data import bundled
from sightline.files import read_lines
from sightline.recipes import RECIPES
from sightline.tokenizers import MarianTokenizer, SubwordTokenizer, WordTokenizer
from tests.commands import Command, environment
from tests.test_decoding_docs import run

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")


def commands() -> list[str]:
    """Every command line of the README that calls the program, in order, without its comment; not those of records."""
    written = re.sub(r"<!-- table: .*?<!-- end -->", "", README, flags=re.DOTALL)
    lines = [line for block in re.findall(r"```\n(.*?)```", written, re.DOTALL) for line in block.splitlines()]
    return [line.split("  #")[0].strip() for line in lines if ".venv/bin/sightline " in line]


def test_the_commands_work_in_their_order(tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process, and the first one in a shell, as it stands: each process of its own would import torch first."""
    lines = list(read_lines(bundled("test")))
    (tmp_path / "my.tsv").write_text("".join(f"{line}\n" for line in lines[:200]), encoding="utf-8")
    (tmp_path / "test.tsv").write_text("".join(f"{line}\n" for line in lines[200:230]), encoding="utf-8")
    (tmp_path / "input.txt").write_text("".join(line.split("\t")[0] + "\n" for line in lines[:5]), encoding="utf-8")
    found = commands()
    assert [line.split(".venv/bin/sightline ")[1].split()[0] for line in found] == [
        "translate",
        "train",
        "translate",
        "translate",
        "evaluate",
        "align",
    ]
    monkeypatch.chdir(tmp_path)
    first, *inside = found
    first = first.replace(".venv/bin/sightline ", f"{shlex.quote(sys.executable)} -m sightline ")
    done = subprocess.run(first, shell=True, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "Wo ist der Bahnhof?\t0-0 1-1 2-2 3-3\n"
    for line in inside:
        # The README trains to the end; four updates of a small model show that the command works.
        line += " --max-steps 4 --set model.embedding=16" if " train " in line else ""
        run(line.replace(".venv/bin/sightline ", "sightline "), command)
    assert len((tmp_path / "output.txt").read_text(encoding="utf-8").splitlines()) == 5
    assert "<title>Sightline" in (tmp_path / "alignment.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe_is_in_the_readme_with_its_description(recipe: str) -> None:
    assert f"| `{recipe}` | {RECIPES[recipe][0]} |" in README


def test_files_named_in_the_readme_exist() -> None:
    root = Path(__file__).parent.parent
    for link in re.findall(r"\]\(([\w/.-]+)\)", README):
        assert (root / link).exists(), link
    tree = README.split("Text goes through the files")[1].split("```")[1]
    for name in re.findall(r"\b(\w+(?:\.py|/))", tree):
        assert list((root / "sightline").rglob(name.rstrip("/"))), name


def test_the_files_of_a_model_folder_are_in_the_readme(trained: Any) -> None:
    """Of a run as the program leaves it, and of one with a kept conversion and other tokenizers."""
    section = README.split("## A model is a folder")[1].split("\n## ")[0]
    named = set(re.findall(r"`([\w.]+)/?`", section))
    found = {path.name for path in trained("transformer").iterdir()}
    assert {"config.yaml", "checkpoints", "dropped.json"} <= found
    assert {Path(name).with_suffix(".spm").name if name.endswith(".vocab") else name for name in found} <= named
    suffixes = {kind.suffix for kind in (SubwordTokenizer, WordTokenizer, MarianTokenizer)}
    assert suffixes <= {Path(name).suffix for name in named} | named
