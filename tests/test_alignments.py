"""Aligning a corpus: links, error rate, the best head, and pictures."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

import sightline
from sightline.alignments import align_corpus
from sightline.config import AlignmentConfig
from sightline.data import Pair
from sightline.folder import read_config
from sightline.links import to_pharaoh
from sightline.metrics import alignment_error_rate, parse_links
from tests.commands import Command, letters, write_lines, write_tsv

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
