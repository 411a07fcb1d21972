"""docs/contributing.md: its worked example is carried out, block by block, on a copy of the sources."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sightline import assembly, layer_parts
from tests.commands import WAITS, environment

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "contributing.md").read_text(encoding="utf-8")
FILE, TEST, TABLE = "sightline/attention/gaussian.py", "tests/test_gaussian_score.py", "sightline/score_choices.py"


def blocks(language: str) -> list[str]:
    every = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    return [text for marked, text in every if marked == language]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources, with what the page adds to them and nothing else."""
    folder = tmp_path_factory.mktemp("copy")
    unneeded = shutil.ignore_patterns("__pycache__", "*.gz")
    for name in ("sightline", "tests", "docs"):
        shutil.copytree(ROOT / name, folder / name, ignore=unneeded)
    shutil.copy(ROOT / "pyproject.toml", folder)
    assert re.findall(r"^`([\w/]+\.py)`:$", PAGE, re.MULTILINE) == [FILE, TABLE, TEST]
    added, row, tests = blocks("python")
    (folder / FILE).write_text(added, encoding="utf-8")
    (folder / TEST).write_text(tests, encoding="utf-8")
    table = (folder / TABLE).read_text(encoding="utf-8")
    assert table.endswith("}\n")
    (folder / TABLE).write_text(table.removesuffix("}\n") + row + "}\n", encoding="utf-8")
    mechanisms = (folder / "docs" / "mechanisms.md").read_text(encoding="utf-8")
    (told,) = (block for block in blocks("") if block.startswith("| "))
    first = "| dot score |"
    assert first in mechanisms
    (folder / "docs" / "mechanisms.md").write_text(mechanisms.replace(first, told + first, 1), encoding="utf-8")
    (folder / "commands.sh").write_text("".join(blocks("sh")), encoding="utf-8")
    return folder


def run(copy: Path, *arguments: str) -> None:
    done = subprocess.run(
        arguments,
        cwd=copy,
        env={**environment(), "PYTHONPATH": str(copy)},
        capture_output=True,
        text=True,
        timeout=WAITS,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_example_works(copy: Path) -> None:
    """The page's own tests, those that go by the rows, and its commands: in one process, since starting costs most."""
    rows = "tests/test_mechanisms.py::test_every_row_is_whole"
    row = "tests/test_mechanisms.py::test_files_and_keys_exist[Gaussian score: by distance]"
    widths = [
        f"tests/test_models.py::test_scores_that_need_one_width_say_so[{recipe}-gaussian]"
        for recipe in ("bahdanau", "luong")
    ]
    draws = "tests/test_mixing.py::test_the_draws_reach_every_part"
    chosen = [TEST, "tests/contributed.py", rows, row, *widths, draws, "tests/test_imports.py"]
    run(copy, sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-x", *chosen)


def test_its_code_is_in_the_projects_style(copy: Path) -> None:
    ruff = str(Path(sys.executable).with_name("ruff"))
    run(copy, ruff, "check", "--no-cache", FILE, TABLE, TEST)
    run(copy, ruff, "format", "--no-cache", "--check", FILE, TABLE, TEST)


def test_what_else_it_names_exists() -> None:
    for link in re.findall(r"\]\(([\w/.-]+?)(?:#[\w-]+)?\)", PAGE):
        assert (ROOT / "docs" / link).exists(), link
    kinds = PAGE.split("## Other kinds")[1]
    for name in re.findall(r"`([\w/]+(?:\.py|/))`", kinds):
        assert (ROOT / name).exists() or (ROOT / "sightline" / name).exists(), name
    for name in re.findall(r"`(?:assembly\.|layer_parts\.)?(make_\w+)`", kinds):
        assert hasattr(assembly, name) or hasattr(layer_parts, name), name
