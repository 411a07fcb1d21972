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

# Of the tests of the atlas those that see whether one more page is whole.
ATLAS = (
    "test_every_choice_has_a_row",
    "test_rows_are_whole_and_their_keys_exist",
    "test_a_named_value_is_one_that_its_key_has[Gaussian score: by distance]",
    "test_links_lead_somewhere[gaussian.md]",
    "test_a_row_links_its_code_its_tests_and_its_page",
    "test_pages_are_what_texts_and_records_make_of_them",
    "test_a_page_has_all_its_parts[gaussian]",
    "test_an_equation_speaks_in_the_names_of_its_code[gaussian]",
    "test_a_configuration_builds_a_model[gaussian]",
)


def blocks(language: str) -> list[str]:
    every = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    return [text for marked, text in every if marked == language]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources, with what the page adds to them and nothing else."""
    folder = tmp_path_factory.mktemp("copy")
    unneeded = shutil.ignore_patterns("__pycache__", "*.gz")
    for name in ("sightline", "tests", "docs", "benchmarks"):
        shutil.copytree(ROOT / name, folder / name, ignore=unneeded)
    shutil.copy(ROOT / "pyproject.toml", folder)
    assert re.findall(r"^`([\w/]+\.py)`:$", PAGE, re.MULTILINE) == [FILE, TABLE, TEST]
    added, row, tests = blocks("python")
    (folder / FILE).write_text(added, encoding="utf-8")
    (folder / TEST).write_text(tests, encoding="utf-8")
    table = (folder / TABLE).read_text(encoding="utf-8")
    assert table.endswith("}\n")
    (folder / TABLE).write_text(table.removesuffix("}\n") + row + "}\n", encoding="utf-8")
    for name, added in zip(("scores", "papers"), blocks("yaml"), strict=True):
        with (folder / "benchmarks" / "mechanisms" / "texts" / f"{name}.yaml").open("a", encoding="utf-8") as texts:
            texts.write(added)
    run(folder, sys.executable, "benchmarks/atlas.py", "--pages")
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
    atlas = [f"tests/test_mechanisms.py::{name}" for name in ATLAS]
    widths = [
        f"tests/test_models.py::test_scores_that_need_one_width_say_so[{recipe}-gaussian]"
        for recipe in ("bahdanau", "luong")
    ]
    draws = "tests/test_mixing.py::test_the_draws_reach_every_part"
    chosen = [TEST, "tests/contributed.py", *atlas, *widths, draws, "tests/test_imports.py"]
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
