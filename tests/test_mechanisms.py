"""The page of mechanisms: what it names is there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from sightline.config import RunConfig, Section
from sightline.hypothesis import SearchOptions

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "mechanisms.md").read_text(encoding="utf-8")


def tables() -> list[list[list[str]]]:
    """The page's tables: rows of cells, the heading and the line below it left out."""
    found = re.findall(r"(?:^\|.*\n)+", PAGE, re.MULTILINE)
    return [[[cell.strip() for cell in row.strip("|").split("|")] for row in one.splitlines()[2:]] for one in found]


def code(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def keys(section: type[Section], prefix: str = "") -> Iterator[str]:
    for name, field in section.model_fields.items():
        yield f"{prefix}{name}"
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            yield from keys(field.annotation, f"{prefix}{name}.")


def test_every_row_is_whole() -> None:
    assert [len(table[0]) for table in tables()] == [5, 2, 3]
    for table in tables():
        assert {len(row) for row in table} == {len(table[0])}
        assert all(cell for row in table for cell in row)
        assert len({row[0] for row in table}) == len(table)


@pytest.mark.parametrize("row", tables()[0], ids=lambda row: row[0])
def test_files_and_keys_exist(row: list[str]) -> None:
    _, config, files, tests, _ = row
    assert code(files)
    assert code(tests)
    assert all((ROOT / "sightline" / name).exists() for name in code(files))
    known = {*keys(RunConfig)}
    known |= {name.removeprefix("model.") for name in known} | {field.name for field in fields(SearchOptions)}
    assert {name.partition(":")[0].removesuffix(".*") for name in code(config)} <= known


@pytest.mark.parametrize("name", sorted({*re.findall(r"`(test_\w+\.py|benchmarks/\w+\.py)`", PAGE)}))
def test_tests_and_benchmarks_exist(name: str) -> None:
    assert (ROOT / (name if "/" in name else f"tests/{name}")).is_file()
