"""What someone meets in their first hours with the program, and would stumble over."""

from __future__ import annotations

import errno
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

from sightline.config import RunConfig, dump_yaml
from sightline.errors import SightlineError
from sightline.files import check_folder
from tests.commands import Command, letters, write_lines, write_tsv


def test_the_page_is_there_though_nobody_reads_the_links(
    command: Command, trained: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, pairs = tmp_path / "page.html", write_tsv(tmp_path / "pairs.tsv", letters(30))

    def closed(*values: object, **options: object) -> None:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr("builtins.print", closed)
    assert command("align", trained("bahdanau"), "--pairs", pairs, "--html", page).code != 0
    assert "<html" in page.read_text(encoding="utf-8")


def test_links_are_of_all_sentences_and_drawings_of_the_first(command: Command, trained: Any, tmp_path: Path) -> None:
    pairs = write_tsv(tmp_path / "pairs.tsv", letters(30))
    assert len(command("align", trained("bahdanau"), "--pairs", pairs, "--limit", 3).out.splitlines()) == 30
    shown = command("align", trained("bahdanau"), "--pairs", pairs, "--limit", 3, "--show").out
    assert shown.count("░ from") == 3  # each drawing ends with its legend


def test_records_have_the_same_fields_for_empty_lines(command: Command, trained: Any, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in.txt", ["a b", "", "c"])
    terms = write_lines(tmp_path / "terms.tsv", ["a\tA"])
    done = command("translate", trained("transformer"), source, "--check", "--glossary", terms, "--json")
    records = [json.loads(line) for line in done.out.splitlines()]
    assert [record["flags"] for record in records if not record["source"]] == [[]]
    assert all({"flags", "terms"} <= record.keys() for record in records)


def test_too_many_columns_are_told_how_to_go(command: Command, tmp_path: Path) -> None:
    pairs = write_lines(tmp_path / "pairs.tsv", ["a\tA\tby someone"])
    told = command("train", "--pairs", pairs, "--output", tmp_path / "model").last_word()
    assert told.endswith("found 3 columns; keep two, as with: cut -f1,2")


@pytest.mark.parametrize(
    ("recipe", "to", "told"),
    [
        ("transformer", "ctranslate", "did you mean 'ctranslate2'?"),
        ("bahdanau", "ctranslate2", "CTranslate2 cannot run a recurrent decoder (bahdanau)"),
    ],
)
def test_an_export_that_cannot_be_asks_for_no_text(
    recipe: str, to: str, told: str, command: Command, trained: Any, tmp_path: Path
) -> None:
    assert told in command("export", trained(recipe), tmp_path / "out", "--to", to).mistake()


def test_a_folder_that_cannot_be_written_in_is_told_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*, dir: Path) -> str:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(tempfile, "mkdtemp", refused)
    with pytest.raises(SightlineError, match=r"cannot write in .*: Operation not permitted; choose another place"):
        check_folder(tmp_path / "new" / "model")


def test_the_configuration_names_the_values_of_a_choice() -> None:
    lines = {line.split(":")[0].strip(): line for line in dump_yaml(RunConfig()).splitlines()}
    assert lines["span"].endswith("(global, local-m, local-p)")
    assert lines["coverage"].endswith("(none, sum, fertility, neural, embedded)")
