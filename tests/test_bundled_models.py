"""Models that come with Sightline, found by name: a toy model's export stands in for them."""

from __future__ import annotations

import json
import shutil
import stat
import tomllib
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

import sightline
from sightline import bundled_models, demo, first_look
from sightline.config import AlignmentConfig
from sightline.errors import SightlineError
from sightline.folder import open_files, save_config
from sightline.interop.verified import write_ctranslate2
from tests.commands import Command, letters, write_lines, write_tsv

ROOT = Path(sightline.__file__).parent
MOST_BYTES = 20_000_000


@pytest.fixture(scope="module")
def shipped(trained: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two models, as it will lie in the package: nobody may write into it."""
    place = tmp_path_factory.mktemp("package") / "bundled"
    for name, title in (("en-de", "English to German"), ("de-en", "German to English")):
        folder = place / name
        folder.mkdir(parents=True)
        write_ctranslate2(open_files(trained("transformer")), folder, "int8")
        (folder / "README.md").write_text(f"# {title}\n")
        config = open_files(folder).config
        search = config.search.model_copy(update={"split_sentences": True, "copy_symbols": True})
        alignment = AlignmentConfig(layer=0)  # a single head in the export's terms: the mean of its one layer
        save_config(folder, config.model_copy(update={"search": search, "alignment": alignment}))
        for path in [*folder.iterdir(), folder]:
            path.chmod(path.stat().st_mode & ~(stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH))
    return place


@pytest.fixture
def named(shipped: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(bundled_models, "FOLDER", shipped)
    monkeypatch.chdir(tmp_path)
    return shipped


def everything(place: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(place.rglob("*")) if path.is_file()}


def test_every_command_knows_the_names(named: Path, tmp_path: Path, command: Command) -> None:
    before = everything(named)
    pairs, source = write_tsv(tmp_path / "pairs.tsv", letters(5)), write_lines(tmp_path / "in.txt", ["a b", "c"])
    assert sightline.load("en-de").files.path == named / "en-de"
    assert command("translate", "en-de", "--align", stdin=b"a b\n").out == "A B\t0-0 1-1\n"
    assert json.loads(command("evaluate", "de-en", "--pairs", pairs, "--json").out)["bleu"]["value"] > 50
    assert len(command("score", "en-de", "--pairs", pairs).out.splitlines()) == 5
    done = command("align", "en-de", "--source", source, "--html", tmp_path / "page.html", "--compare", "de-en")
    assert (done.code, done.out) == (0, "0-0 1-1\n0-0\n")
    shards = command("translate", "en-de", source, "--workers", 1, "--output", tmp_path / "out.txt")
    assert shards.code == 0, shards
    assert (tmp_path / "out.txt").read_text() == "A B\nC\n"
    checked = command("translate", "en-de", "--engine", "pytorch", "--check", "--json", stdin=b"a b\n")
    assert json.loads(checked.out)["text"] == "A B"
    assert everything(named) == before


def test_a_bundled_model_is_not_changed(named: Path, tmp_path: Path, command: Command) -> None:
    pairs, gold = write_tsv(tmp_path / "pairs.tsv", [("a b", "A B")]), write_lines(tmp_path / "gold", ["0-0 1-1"])
    told = command("align", "en-de", "--pairs", pairs, "--gold", gold, "--choose").mistake()
    assert "a model that comes with Sightline is not changed: copy its folder" in told


def test_a_model_folder_goes_before_a_bundled_one(named: Path, trained: Any, tmp_path: Path) -> None:
    (tmp_path / "en-de").mkdir()
    (tmp_path / "en-de" / "train.tsv").write_text("a\tA\n")
    assert bundled_models.locate("en-de") == named / "en-de"  # a folder of text is no model
    shutil.copytree(trained("transformer"), tmp_path / "en-de", dirs_exist_ok=True)
    assert sightline.load("en-de").files.path == Path("en-de")
    for other in ("elsewhere/en-de", tmp_path / "en-de", "en-fr", ""):
        assert bundled_models.locate(other) == Path(other)
    (tmp_path / "de-en" / "forward").mkdir(parents=True)
    (tmp_path / "de-en" / "forward" / "config.yaml").write_text("")
    with pytest.raises(SightlineError, match=r"not a model folder: .* did you mean de-en/forward"):
        sightline.load("de-en")


@pytest.mark.parametrize("wrong", [None, 5, b"Hello."])
def test_what_is_no_text_is_refused(named: Path, wrong: Any) -> None:
    with pytest.raises(SightlineError, match=f"or a list of texts, to translate, not {type(wrong).__name__}"):
        sightline.load("en-de").translate(wrong)


def test_text_in_the_place_of_a_file(named: Path, command: Command) -> None:
    for text, quoted in (("Hello world", "'Hello world'"), ("Hello", "Hello"), ("Hello.", "Hello.")):
        told = command("translate", "en-de", text).mistake()
        assert told.endswith(
            f"{text}: no such file; to translate a text, pipe it: echo {quoted} | sightline translate en-de"
        )
    assert "echo" not in command("translate", "en-de", "my/input.txt").mistake()
    told = command("translate", "Where is the station?").mistake()
    assert told.endswith("pipe it: echo 'Where is the station?' | sightline translate MODEL")
    told = command("translate", "en-de", "Where", "is", "it?").mistake()
    assert told.endswith("to translate a text, pipe it: echo 'Where is it?' | sightline translate en-de")


def test_a_name_that_is_none(named: Path, command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    told = command("translate", "en-fr").mistake()
    assert "en-fr: no such folder; name a model folder" in told
    assert told.endswith("or a model that comes with Sightline: de-en, en-de")
    for mistyped in ("en-ed", "EN_DE", "endde"):
        told = command("translate", mistyped).mistake()
        assert told.endswith("or did you mean en-de, which comes with Sightline?"), told
    assert command("models").out == "de-en        German to English\nen-de        English to German\n"
    monkeypatch.setattr(bundled_models, "FOLDER", tmp_path / "nowhere")
    assert command("translate", "en-fr").mistake().endswith("as `sightline train --output` makes one")
    done = command("models")
    assert (done.code, done.out) == (0, "")
    assert "no models come with this install" in done.err


def test_the_demo_shows_them_at_once(named: Path, tmp_path: Path, command: Command) -> None:
    done = command("demo", "--output", tmp_path / "shown")
    assert done.code == 0, done
    assert all(f"  {line}" in done.out for lines in first_look.LINES.values() for line in lines)
    assert "Where en-de looked while it wrote each word" in done.out
    assert "sightline demo train" in done.out
    assert 'echo "Good morning!" | sightline translate en-de' in done.out.replace("'", '"')
    assert (tmp_path / "shown" / "alignment.html").stat().st_size > 10_000
    assert not (tmp_path / "shown" / "model").exists()


def test_the_demo_trains_where_there_are_none(
    named: Path, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[tuple[Path, float]] = []
    monkeypatch.setattr(demo, "run_demo", lambda folder, minutes, say: called.append((folder, minutes)))
    assert command("demo", "train", "--output", "here", "--minutes", 2).code == 0
    assert command("demo", "--minutes", 3).code == 0  # minutes are for training only
    monkeypatch.setattr(bundled_models, "FOLDER", tmp_path / "nowhere")
    assert command("demo").code == 0
    assert called == [(Path("here"), 2.0), (Path("demo"), 3.0), (Path("demo"), 6.0)]
    assert "demo walk: valid: train" in command("demo", "walk").mistake()


def test_they_are_part_of_the_package() -> None:
    """Every file in the folders of models is named by the package's data; together they stay small."""
    values = tomllib.loads((ROOT.parent / "pyproject.toml").read_text())
    patterns = values["tool"]["setuptools"]["package-data"]["sightline"]
    assert any(fnmatch("bundled/en-de/model.bin", pattern) for pattern in patterns if pattern.count("/") == 2)
    sizes = [path.stat().st_size for folder in bundled_models.bundled_models().values() for path in folder.iterdir()]
    assert sum(sizes) <= MOST_BYTES
    assert all(not path.name.startswith(".") for path in (ROOT / "bundled").iterdir())


def test_a_title(tmp_path: Path) -> None:
    assert bundled_models.title(tmp_path) == ""
    (tmp_path / "README.md").write_text("# English to German\n\nmore\n")
    assert bundled_models.title(tmp_path) == "English to German"


@pytest.mark.parametrize(
    ("option", "told"), [("--html", "sightline align MODEL --html"), ("--sample", "--strategy sample")]
)
def test_options_that_are_looked_for_elsewhere(named: Path, command: Command, option: str, told: str) -> None:
    assert told in command("translate", "en-de", option).mistake()
