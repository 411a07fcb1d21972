"""The atlas of attention: every mechanism that a config can name is in it, and what it names is there."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import numpy as np
import pytest
import yaml

from benchmarks import alignment, copying, duplication, inflection, long_inputs, repeating, scitldr
from benchmarks.mechanisms.entries import Measured, Page, read_atlas
from benchmarks.mechanisms.rendering import MAPS, RECORD, lookup, page_text, read_records, render
from sightline.architecture import ModelConfig
from sightline.config import RunConfig, Section, build_config
from sightline.document_settings import DocumentsConfig
from sightline.hypothesis import SearchOptions
from sightline.lexicon import Lexicon
from sightline.models import build_model
from sightline.recipes import RECIPES
from sightline.sizes import Corpus, fill
from sightline.text import Sizes

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs" / "attention"
RESULTS = ROOT / "benchmarks" / "results"
ATLAS = read_atlas()
PAGES = [*ATLAS.pages.values()]
ROWS = [*(row for page in PAGES for row in page.rows), *ATLAS.others]
FILES = sorted(path.name for path in DOCS.glob("*.md"))
# Sections of a model that are about attention, and keys elsewhere that are.
SECTIONS = (
    "attention",
    "penalties",
    "guided",
    "copying",
    "lexicon",
    "pointer",
    "sources",
    "documents",
    "lsh",
    "linear",
)
KEYS = (
    "encoder.kind",
    "encoder.attention",
    "decoder.attention",
    "decoder.cross_attention",
    "decoder.context",
    "decoder.input_feeding",
    "decoder.kind",
    "positions",
    "reversible",
    "feedforward_chunk",
)
# The arms of benchmarks, where they lie in their records; a record may not have all of them yet.
ARMS_OF: dict[str, set[tuple[str, ...]]] = {
    record: {(arm,) for arm in arms}
    for record, arms in {
        RECORD: ATLAS.arms,
        "inflection.json": inflection.ARMS,
        "alignment.json": [alignment.EFLOMAL, *alignment.ARMS],
        "copying.json": copying.ARMS,
        "scitldr.json": scitldr.ARMS,
        "repeating.json": repeating.ARMS,
        long_inputs.RECORD: long_inputs.PARTS,
    }.items()
}
ARMS_OF[long_inputs.RECORD] |= {("duplication", "trained_with", way) for way in duplication.PAPER}
# Those outside the model's sections.
OUTSIDE = ("training.agreement", "search.coverage_penalty")
# What names a mechanism that is not there.
NOTHING = {"none"}
# Words of equations that need not be in the code.
MATHEMATICS = {"softmax", "sqrt"}


def keys(section: type[Section], prefix: str = "") -> Iterator[str]:
    for name, field in section.model_fields.items():
        yield f"{prefix}{name}"
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            yield from keys(field.annotation, f"{prefix}{name}.")


def choices() -> Iterator[str]:
    """`key: value` for every choice of a key about attention, and `key` for those that are no choice of words."""
    for section in SECTIONS:
        kind = ModelConfig.model_fields[section].annotation
        assert isinstance(kind, type)
        assert issubclass(kind, Section)
        for name, field in kind.model_fields.items():
            yield from values(f"{section}.{name}", field.annotation)
    for key in KEYS:
        section, _, name = key.rpartition(".")
        kind = ModelConfig.model_fields[section].annotation if section else ModelConfig
        assert isinstance(kind, type)
        assert issubclass(kind, Section)
        yield from values(key, kind.model_fields[name].annotation)
    yield from (f"recipe: {name}" for name in RECIPES)
    yield from OUTSIDE


def values(key: str, kind: Any) -> Iterator[str]:
    words = get_args(kind) if get_origin(kind) is Literal else ()
    yield from (f"{key}: {word}" for word in words if word not in NOTHING) if words else [key]


def links(name: str) -> list[str]:
    return re.findall(r"\]\(([^)\s]+)\)", (DOCS / name).read_text(encoding="utf-8"))


def table(name: str) -> list[list[str]]:
    """The rows of a page's tables, without their heads."""
    found = re.findall(r"(?:^\|.*\n)+", (DOCS / name).read_text(encoding="utf-8"), re.MULTILINE)
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for one in found for row in one.splitlines()[2:]]


# ---- the index ----


def test_every_choice_has_a_row() -> None:
    named = {key.removeprefix("model.") for row in ROWS for key in row.config}
    told = named | {key.partition(":")[0] for key in named}
    missing = [choice for choice in choices() if choice not in (named if ":" in choice else told)]
    assert not missing, "these have no row in benchmarks/mechanisms/texts"


def test_the_choices_are_those_of_the_configuration() -> None:
    """So that the test above does not pass because it asks for nothing."""
    found = set(choices())
    assert {"attention.score: cosine", "attention.choice: segments", "penalties.fertility", "lsh.rounds"} <= found
    assert {"copying.kind: copynet", "decoder.cross_attention: linear", "sources.start: child_sum"} <= found
    assert {f"documents.{name}" for name in DocumentsConfig.model_fields} == {
        choice.partition(":")[0] for choice in found if choice.startswith("documents.")
    }
    assert {"reversible", "feedforward_chunk", "training.agreement", "search.coverage_penalty"} <= found
    assert "copying.kind: none" not in found
    assert {*OUTSIDE} <= {*keys(RunConfig)}


def test_rows_are_whole_and_their_keys_exist() -> None:
    rows = table("README.md")
    assert len(rows) == len(ROWS)
    assert {len(row) for row in rows} == {6}
    assert all(cell for row in rows for cell in row)
    assert len({row[0] for row in rows}) == len(rows)
    known = {*keys(RunConfig)}
    known |= {name.removeprefix("model.") for name in known} | {field.name for field in fields(SearchOptions)}
    for row in ROWS:
        assert {key.removesuffix(".*") for key in row.named()} <= known, row.mechanism
        assert row.code, row.mechanism
        assert row.tests, row.mechanism


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.mechanism)
def test_a_named_value_is_one_that_its_key_has(row: Any) -> None:
    for key, _, value in (name.partition(": ") for name in row.config if ": " in name):
        if key == "recipe":
            assert value in RECIPES
            continue
        section, _, name = key.rpartition(".")
        for start in (RunConfig, ModelConfig):
            if section in start.model_fields:
                field = start.model_fields[section].annotation.model_fields[name]  # type: ignore[union-attr]
                assert f"'{value}'" in str(field.annotation), f"{key}: {value}"


@pytest.mark.parametrize("name", FILES)
def test_links_lead_somewhere(name: str) -> None:
    found = links(name)
    assert found
    for link in found:
        assert link.startswith("https://") or (DOCS / link).exists(), link


def test_a_row_links_its_code_its_tests_and_its_page() -> None:
    text = {row[0]: row for row in table("README.md")}
    for page in PAGES:
        for row in page.rows:
            cells = text[row.mechanism]
            assert re.findall(r"\]\(\.\./\.\./sightline/([^)]+)\)", cells[2]) == [*row.code]
            assert re.findall(r"\]\(\.\./\.\./tests/([^)]+)\)", cells[3]) == [*row.tests]
            assert f"({page.name}.md)" in cells[4]


def test_the_notes_name_what_is_there() -> None:
    text = (DOCS / "notes.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(test_\w+\.py|benchmarks/\w+\.py)`", text))
    assert len(named) > 10
    for name in named:
        assert (ROOT / (name if "/" in name else f"tests/{name}")).is_file(), name
    assert all(len(row) in (2, 3) and all(row) for row in table("notes.md"))


# ---- the pages ----


def test_pages_are_what_texts_and_records_make_of_them() -> None:
    pictures = {path.stem for path in (DOCS / MAPS).glob("*.svg")}
    made = render(ATLAS, read_records(RESULTS, ATLAS), pictures)
    assert {*made} | {"notes.md"} == {*FILES}
    for name, text in made.items():
        assert (DOCS / name).read_text(encoding="utf-8") == text, "run: python benchmarks/atlas.py --pages"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_has_all_its_parts(page: Page) -> None:
    assert page.problem
    assert page.avoid
    assert page.arm or page.measured or page.unmeasured
    assert page.papers or page.name in ("masks", "feature_blocks")
    assert not page.arm or (page.twin in ATLAS.arms and page.arm in ATLAS.arms and page.lacks)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_an_equation_speaks_in_the_names_of_its_code(page: Page) -> None:
    """The left part of each line is code: names of four letters or more are to be found in the page's files."""
    files = [ROOT / "sightline" / name for name in page.code]
    source = "\n".join(path.read_text(encoding="utf-8") for path in files)
    spoken = "\n".join(re.split(r"\s{4,}", line.strip())[0] for line in page.equation.splitlines())
    names = set(re.findall(r"[A-Za-z][A-Za-z_]{3,}", spoken)) - MATHEMATICS
    assert names
    missing = sorted(name for name in names if not re.search(rf"\b{re.escape(name)}\b", source))
    assert not missing


@pytest.mark.parametrize("page", [page for page in PAGES if page.config], ids=lambda page: page.name)
def test_a_configuration_builds_a_model(page: Page) -> None:
    assert page.config is not None
    config = fill(build_config(page.config), Corpus(pairs=1_000, target_tokens=10_000))
    words = np.arange(4, 17)
    lexicon = Lexicon(words, words[::-1].copy(), np.ones(len(words)))
    assert build_model(config.model, Sizes(17, 17, True, lexicon=lexicon, marker=4)) is not None
    text = (DOCS / f"{page.name}.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    assert yaml.safe_load(shown) == page.config


def missing(measured: Measured, record: Any) -> list[tuple[str, ...]]:
    """Where a record has no figures; an arm that it has not got yet, or that failed, is not looked into."""
    arms = ARMS_OF.get(measured.record, set())
    undone = {arm for arm in arms if not lies_in(record, arm) or "failed" in lookup(record, arm)}
    rows = [row for row in map(tuple, measured.rows.values()) if not any(row[: len(arm)] == arm for arm in undone)]
    return [
        (*row, *column) for row in rows for column in measured.columns.values() if not lies_in(record, (*row, *column))
    ]


def lies_in(found: Any, path: Sequence[str]) -> bool:
    try:
        lookup(found, path)
    except KeyError:
        return False
    return True


@pytest.mark.parametrize("page", [page for page in PAGES if page.measured], ids=lambda page: page.name)
def test_figures_of_other_benchmarks_lie_where_the_page_looks(page: Page) -> None:
    for measured in page.measured:
        script, *options = shlex.split(measured.command)[1:]
        text = (ROOT / script).read_text(encoding="utf-8")
        assert all(f'"{option}"' in text for option in options if option.startswith("--"))
        assert f"{Path(measured.record).stem}.json" in text
        arms = ARMS_OF.get(measured.record)
        assert arms is None or {(path[0],) for path in measured.rows.values()} <= arms
        record = read_records(RESULTS, ATLAS).get(measured.record)
        assert record is None or not missing(measured, record)


def test_a_record_may_be_unfinished_but_a_wrong_path_is_none() -> None:
    rows = {"with it": ["copynet"], "the twin": ["soft"], "copied": ["copy_head"]}
    measured = Measured("inflection.json", "python benchmarks/inflection.py", "About.", rows, {"right": ["accuracy"]})
    record = {"soft": {"accuracy": 90.25}, "copy_head": {"failed": "no memory"}}
    assert missing(measured, record) == []
    assert missing(measured, {**record, "copynet": {"acuracy": 91}}) == [("copynet", "accuracy")]
    assert missing(replace(measured, columns={"right": ["list", "a=1", "b"]}), {"soft": {"list": [{"a": 2, "b": 3}]}})
    assert not missing(
        replace(measured, columns={"right": ["list", "a=2", "b"]}), {"soft": {"list": [{"a": 2, "b": 3}]}}
    )
    assert missing(replace(measured, rows={"any": ["copynett"]}), record) == [("copynett", "accuracy")]
    page = replace(PAGES[0], arm=None, measured=(measured,))
    told = page_text(page, ATLAS, {"inflection.json": record}, [])
    assert "| with it | not measured yet |" in told
    assert "| the twin | 90.25 |" in told
    assert "| copied | failed |" in told


def test_what_was_trained_has_its_picture() -> None:
    record = read_records(RESULTS, ATLAS).get(RECORD, {})
    assert {*record} <= {*ATLAS.arms}
    for name, found in record.items():
        assert found.get("sharpness") is None or (DOCS / MAPS / f"{name}.svg").is_file(), name
