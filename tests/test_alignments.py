"""Aligning a corpus: links, error rate, the best head, and pictures."""

from __future__ import annotations

import json
import re
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sightline
from sightline.alignments import align_corpus, look
from sightline.config import AlignmentConfig, build_config, merge
from sightline.data import Pair
from sightline.folder import read_config
from sightline.links import Choice, align, to_pharaoh
from sightline.metrics import alignment_error_rate, parse_links
from sightline.training.run import train
from tests.commands import Command, letters, tiny, write_lines, write_tsv
from tests.test_decoding_docs import examples

PAIRS = letters(12, seed=4)
GOLD = [" ".join(f"{place}-{place}" for place in range(len(source.split()))) for source, _ in PAIRS]


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    return write_tsv(tmp_path / "p.tsv", PAIRS)


@pytest.fixture
def gold(tmp_path: Path) -> Path:
    return write_lines(tmp_path / "gold", GOLD)


@pytest.fixture
def own(trained: Any, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained("transformer"), tmp_path / "own"))


def page_data(path: Path) -> Any:
    found = re.search(r'<script[^>]*type="application/json"[^>]*>(.*?)</script>', path.read_text(), re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def test_pharaoh_lines(command: Command, trained: Any, pairs: Path) -> None:
    done = command("align", trained("bahdanau"), "--pairs", pairs)
    assert (done.code, done.err) == (0, "")
    lines = done.out.split("\n")[:-1]
    assert len(lines) == len(PAIRS)
    for line, (source, target) in zip(lines, PAIRS, strict=True):
        for left, right in (link.split("-") for link in line.split()):
            assert int(left) < len(source.split())
            assert int(right) < len(target.split())
    forced = list(align_corpus(sightline.load(trained("bahdanau")), [Pair(*pair) for pair in PAIRS]))
    assert lines == [to_pharaoh(one.word_links(AlignmentConfig()) or set()) for one in forced]


def test_error_rate(command: Command, trained: Any, pairs: Path, gold: Path) -> None:
    done = command("align", trained("bahdanau"), "--pairs", pairs, "--gold", gold)
    assert done.code == 0
    predicted = [parse_links(line)[0] for line in done.out.split("\n")[:-1]]
    rate = alignment_error_rate(predicted, [parse_links(line)[0] for line in GOLD])
    first, second = done.err.splitlines()
    assert first == f"alignment error rate {100 * rate:.2f}% (all layers, all heads, the row that predicts the token)"
    assert second.endswith("% (all layers, all heads, the row that consumes the token)")
    turned = command("align", trained("bahdanau"), "--pairs", pairs, "--gold", gold, "--reading", "consumes")
    assert turned.err.splitlines() == [second, first]


def test_gold_may_count_from_one(command: Command, trained: Any, pairs: Path, gold: Path, tmp_path: Path) -> None:
    shifted = [re.sub(r"\d+", lambda found: str(int(found[0]) + 1), line) for line in GOLD]
    path = write_lines(tmp_path / "from-one", shifted)
    options = ["align", trained("bahdanau"), "--pairs", pairs, "--gold"]
    assert command(*options, path, "--gold-from-one").err == command(*options, gold).err
    assert "say --gold-from-one" in command(*options, path).mistake()


def test_wrong_gold_chooses_nothing(command: Command, own: Path, pairs: Path, tmp_path: Path) -> None:
    before = (own / "config.yaml").read_bytes()
    path = write_lines(tmp_path / "gold", [*GOLD[:-1], "0-99"])
    assert "link 0-99" in command("align", own, "--pairs", pairs, "--gold", path, "--choose").mistake()
    assert (own / "config.yaml").read_bytes() == before


def test_the_best_head_is_kept_in_the_model(command: Command, own: Path, pairs: Path, gold: Path) -> None:
    before = command("align", own, "--pairs", pairs, "--gold", gold)
    done = command("align", own, "--pairs", pairs, "--gold", gold, "--choose")
    assert done.code == 0
    assert "the best on these sentences" in done.err
    assert "kept in the model's config.yaml" in done.err
    chosen = read_config(own).alignment
    assert f"the row that {chosen.reading} the token" in done.err
    again = command("align", own, "--pairs", pairs, "--gold", gold)
    assert again.out == done.out  # what was chosen was used at once, and is used from now on

    def rate(text: str) -> float:
        found = re.search(r"rate ([\d.]+)%", text)
        assert found is not None
        return float(found[1])

    assert rate(again.err) == rate(done.err) <= rate(before.err)
    assert command("translate", own, stdin=b"a b\n").out == "A B\n"


def test_pictures(command: Command, trained: Any, pairs: Path, tmp_path: Path) -> None:
    paths = {kind: tmp_path / f"picture.{kind}" for kind in ("html", "svg", "png")}
    options = [part for kind, path in paths.items() for part in (f"--{kind}", path)]
    done = command("align", trained("transformer"), "--pairs", pairs, "--limit", 3, *options)
    assert (done.code, done.err, done.out.count("\n")) == (0, "", len(PAIRS))
    assert len(page_data(paths["html"])["sentences"]) == 3
    assert paths["svg"].read_text().count("<g transform") == 3
    assert paths["png"].read_bytes().startswith(b"\x89PNG")


def test_models_side_by_side(command: Command, trained: Any, pairs: Path, tmp_path: Path) -> None:
    others = [part for recipe in ("luong", "seq2seq") for part in ("--compare", trained(recipe))]
    done = command("align", trained("bahdanau"), "--pairs", pairs, *others, "--html", tmp_path / "page.html")
    assert (done.code, done.err) == (0, "")
    models = page_data(tmp_path / "page.html")["sentences"][0]["models"]
    assert [model["name"] for model in models] == ["bahdanau", "luong", "seq2seq"]
    assert models[0]["note"] == "each word's row: as it was about to be written"
    assert models[2]["note"] == "this model has no attention to show"
    assert models[0]["heads"] == [1]
    assert [model["beside"] for model in models] == [[], [], []]  # none of them copies


@pytest.fixture(scope="module")
def copying(tmp_path_factory: pytest.TempPathFactory, toy_pairs: Path) -> Any:
    """`copying(recipe, kind)`: a model that copies and knows little."""

    @cache
    def folder(recipe: str, kind: str) -> Path:
        values = merge(tiny(recipe), {"data": {"pairs": str(toy_pairs)}, "training": {"max_steps": 2}})
        selective = {"selective_read": recipe != "transformer"} if kind == "copynet" else {}
        values = merge(values, {"model": {"copying": {"kind": kind, **selective}}})
        output = tmp_path_factory.mktemp("copying") / f"{recipe}-{kind}"
        train(build_config(values, recipe), output)
        return output

    return folder


@pytest.mark.parametrize(
    ("recipe", "kind"), [("bahdanau", "copynet"), ("luong", "pointer_generator"), ("transformer", "copy_head")]
)
def test_what_was_copied_is_one_map_more(
    recipe: str, kind: str, command: Command, copying: Any, pairs: Path, tmp_path: Path
) -> None:
    model, paths = copying(recipe, kind), [tmp_path / "page.html", tmp_path / "maps.svg"]
    done = command("align", model, "--pairs", pairs, "--limit", 2, "--html", paths[0], "--svg", paths[1])
    assert (done.code, done.err) == (0, "")
    (view,) = page_data(paths[0])["sentences"][0]["models"]
    assert (view["beside"], view["chosen"]) == (["Copying"], [None, None])
    forced = list(align_corpus(sightline.load(model), [Pair(*pair) for pair in PAIRS]))
    assert view["heads"] == [*(len(layer) for layer in forced[0].sentence.layers), 1]
    assert paths[1].read_text().count("<g transform") == 2 * 2
    # The links are attention's alone.
    attention = [one.sentence._replace(copied=None) for one in forced]
    expected = [to_pharaoh(align(one, Choice())) for one in attention]
    assert done.out.split("\n")[:-1] == expected
    shown = command("align", model, "--pairs", pairs, "--limit", 2, "--show")
    assert shown.out.count("Copying") == 2
    for one in forced:
        copies = one.word_copies()
        assert copies is not None
        assert copies.shape == (len(one.target_words), len(one.source_words))
        assert (copies >= 0).all()
        assert (copies.sum(1) < 1).all()


@pytest.mark.parametrize("kind", ["copynet", "copy_head"])
def test_without_attention_what_was_copied_tells_the_links(
    kind: str, command: Command, copying: Any, pairs: Path, gold: Path, tmp_path: Path
) -> None:
    model = copying("seq2seq", kind)
    done = command("align", model, "--pairs", pairs, "--html", tmp_path / "page.html")
    assert (done.code, done.err) == (0, "")
    forced = list(align_corpus(sightline.load(model), [Pair(*pair) for pair in PAIRS]))
    for line, one in zip(done.out.split("\n")[:-1], forced, strict=True):
        assert not one.sentence.layers
        copies = one.word_copies()
        assert copies is not None
        links = {(int(row.argmax()), target) for target, row in enumerate(copies)}
        assert line == to_pharaoh(links)
    (view,) = page_data(tmp_path / "page.html")["sentences"][0]["models"]
    assert (view["heads"], view["beside"], view["chosen"]) == ([1], ["Copying"], [0, None])
    assert view["note"] == "each word's row: as it was about to be written"
    assert command("align", model, "--pairs", pairs, "--limit", 1, "--show").out.count("Copying") == 1
    measured = command("align", model, "--pairs", pairs, "--gold", gold)
    assert [line.split("%")[0].rsplit(" ", 1)[0] for line in measured.err.splitlines()] == ["alignment error rate"] * 2
    translated = sightline.load(model).translate("a b c d", check=True, align=True)
    assert translated.weights is not None
    # What was copied is no sign of what was seen.
    assert not {flag.name for flag in translated.flags or []} & {"dropped", "scattered"}
    assert "\t" in command("translate", model, "--align", stdin=b"a b\n").out


def test_lines_in_parts_show_what_was_copied(copying: Any) -> None:
    for recipe in ("bahdanau", "seq2seq"):
        whole = sightline.load(copying(recipe, "copynet"), split=True)
        (found,), alone = look(whole, ["a b\n\nc d e"]), look(whole, ["a b", "c d e"])
        copies, parts = found.word_copies(), [one.word_copies() for one in alone]
        assert copies is not None
        rows = columns = 0
        for part in parts:
            assert part is not None
            np.testing.assert_allclose(copies[rows : rows + part.shape[0], columns : columns + part.shape[1]], part)
            rows, columns = rows + part.shape[0], columns + part.shape[1]
        assert copies.shape == (rows, columns)


def test_the_page_on_copying_tells_how_to_look(
    copying: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = Path(__file__).parent.parent / "docs" / "copying.md"
    (code,) = [text for language, text in examples(page) if language == "python"]
    monkeypatch.chdir(tmp_path)
    shutil.copytree(copying("luong", "pointer_generator"), "model")
    exec(compile(code, page.name, "exec"), {})
    assert capsys.readouterr().out.count("tensor(") == 2


def test_sources_alone_are_translated(command: Command, trained: Any, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "s", ["a b c", "", "d"])
    done = command("align", trained("transformer"), "--source", source, "--html", tmp_path / "page.html")
    assert (done.code, done.err) == (0, "")
    assert done.out.count("\n") == 3
    assert done.out.split("\n")[1] == ""
    sentences = page_data(tmp_path / "page.html")["sentences"]
    assert [one["models"][0]["target"] for one in sentences] == [["A", "B", "C"], [], ["D"]]
    both = command("translate", trained("transformer"), source, "--align").out
    assert [line.split("\t")[1] for line in both.split("\n")[:-1]] == done.out.split("\n")[:-1]


def test_in_the_terminal(command: Command, trained: Any, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "s", ["a b c"])
    done = command("align", trained("transformer"), "--source", source, "--show")
    assert done.code == 0
    assert "a" in done.out
    assert "C" in done.out
    assert "-" not in done.out.split("\n")[1]


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (GOLD[:-1], "gold: 11 lines of links for 12 sentence pairs"),
        (["0-0", "x", *GOLD[2:]], "gold, line 2: 'x' is not a link"),
        ([*GOLD[:-1], "0-99"], "gold, line 12: link 0-99 (from 0), but the sentences have"),
    ],
)
def test_gold_that_does_not_fit(
    lines: list[str], told: str, command: Command, trained: Any, pairs: Path, tmp_path: Path
) -> None:
    path = write_lines(tmp_path / "gold", lines)
    done = command("align", trained("bahdanau"), "--pairs", pairs, "--gold", path)
    assert done.out == ""
    assert told in done.mistake()


def test_a_head_that_is_not_there(command: Command, own: Path, pairs: Path) -> None:
    config = own / "config.yaml"
    config.write_text(re.sub(r"  layer: null", "  layer: 7", config.read_text()))
    assert "alignment.layer = 7: this model has layers 0 to 0" in command("align", own, "--pairs", pairs).mistake()


def test_the_reading_can_be_asked_for(command: Command, own: Path, pairs: Path) -> None:
    config = (own / "config.yaml").read_bytes()
    plain = command("align", own, "--pairs", pairs)
    predicts = command("align", own, "--pairs", pairs, "--reading", "predicts")
    consumes = command("align", own, "--pairs", pairs, "--reading", "consumes")
    assert plain.out == predicts.out != consumes.out
    assert (own / "config.yaml").read_bytes() == config
    wrong = command("align", own, "--pairs", pairs, "--reading", "consume")
    assert wrong.code == 2
    assert "did you mean 'consumes'?" in wrong.err
