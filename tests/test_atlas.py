"""The benchmark behind the atlas: its arms and twins, its text, what it measures, and a run as small as can be."""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import atlas as benchmark
from benchmarks.mechanisms import running
from benchmarks.mechanisms.entries import Page, Values, read_atlas, resolved
from benchmarks.mechanisms.material import SHOWN, Dictionary, divide, lines_of_text, spaced, spread
from benchmarks.mechanisms.rendering import render
from sightline.config import merge
from sightline.data import Pair
from sightline.recipes import RECIPES
from sightline.translation import Translation
from tests.commands import Command, arms_within, letters

ATLAS = read_atlas()
TRAINED = [page for page in ATLAS.pages.values() if page.arm]
SMALL = {
    "model": {"embedding": 8, "encoder": {"width": 4, "layers": 1}, "decoder": {"width": 8, "layers": 1}},
    "training": {"warmup": 1},
}


def flat(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def whole(name: str) -> dict[str, Any]:
    return dict(flat(resolved(ATLAS.arms[name]).model_dump(mode="json")))


# ---- arms ----


def test_there_are_not_too_many_arms() -> None:
    assert len(ATLAS.arms) <= 50
    used = {name for page in ATLAS.pages.values() for name in benchmark.shown(page)}
    assert used == {*ATLAS.arms}
    every = [json.dumps(whole(name), sort_keys=True) for name in ATLAS.arms]
    assert len({*every}) == len(every), "two arms are the same: let one page name the other's"


def test_a_page_trains_what_it_shows_beside_its_twin() -> None:
    parser = argparse.ArgumentParser()
    assert {*benchmark.choose(ATLAS, "coverage_embedded", parser)} == {
        "bahdanau",
        "coverage_embedded",
        "coverage_subtract",
    }
    assert {*benchmark.choose(ATLAS, "sources_flat", parser)} == {"luong", "sources_flat", "sources_child_sum"}
    assert {*benchmark.choose(ATLAS, None, parser)} == {*ATLAS.arms}


def test_arms_share_what_is_not_theirs() -> None:
    configs = [resolved(values) for values in ATLAS.arms.values()]
    assert {config.training.seed for config in configs} == {1}
    assert {config.data.batch_tokens for config in configs} == {1024}
    assert {config.training.schedule for config in configs} == {"cosine"}
    assert {config.text.vocabulary for config in configs} == {4000}


@pytest.mark.parametrize("page", TRAINED, ids=lambda page: page.name)
def test_a_twin_differs_only_in_what_the_page_is_about(page: Page) -> None:
    assert page.arm
    assert page.twin
    arm, twin = whole(page.arm), whole(page.twin)
    different = {key.removeprefix("model.") for key in arm if arm[key] != twin[key]}
    assert different
    told = {key for row in page.rows for key in row.named()}
    if "recipe" in different:
        recipes = (arm["model.recipe"], twin["model.recipe"])
        for recipe in recipes:
            told |= {key.removeprefix("model.") for key, _ in flat(RECIPES[recipe][1])}
            told |= {"encoder.width", "decoder.width"}
    looked_at = {"alignment.head"}  # no part of training
    assert different - looked_at <= told


@pytest.mark.parametrize("page", TRAINED, ids=lambda page: page.name)
def test_an_arm_has_what_its_page_shows(page: Page) -> None:
    assert page.arm
    assert page.config
    arm = whole(page.arm)
    assert all(arm[key] == value for key, value in flat(page.config))


# ---- text ----


def test_spread_takes_the_first_and_goes_evenly() -> None:
    assert spread(range(10), 5) == [0, 2, 4, 6, 8]
    assert spread(range(3), 5) == [0, 1, 2]


def test_parts_share_no_sentence() -> None:
    pairs = [Pair(f"s{number // 2}", f"t{number}") for number in range(200)] + [*SHOWN]
    parts = divide(pairs, 40, 20)
    assert {name: len(part) for name, part in parts.items()} == {"train": 40, "valid": 20, "test": 20}
    sides = [{side for pair in part for side in pair} for part in (*parts.values(), SHOWN)]
    assert sum(map(len, sides)) == len(set.union(*sides))
    with pytest.raises(SystemExit, match="too few"):
        divide(pairs, 200, 20)


def test_lines_of_text_are_neighbours_each_once() -> None:
    texts = lines_of_text([Pair(f"{number // 2}.", "") for number in range(320)], 64, 16)
    assert {name: len(lines) for name, lines in texts.items()} == {"train": 8, "valid": 2, "test": 2}
    every = [line for lines in texts.values() for line in lines]
    assert len({word for line in every for word in line.split()}) == 12 * 8
    numbers = [int(word[:-1]) for word in every[0].split()]
    assert numbers == [*range(numbers[0], numbers[0] + 8)]


def test_a_dictionary_glosses_and_links() -> None:
    known = Dictionary([Pair("the house", "das Haus"), Pair("the book", "das Buch"), Pair("a book", "ein Buch")])
    assert known.gloss("The book, Tom") == "das buch Tom"
    assert known.links(Pair("the book", "Buch das Tom")) == "1-0 0-1"


def test_words_and_punctuation_apart() -> None:
    assert spaced("Don't go, Tom.") == "Don't go , Tom ."


# ---- figures ----


def test_repeated_pairs_of_words() -> None:
    assert running.repeated(["a b a b", "c", "a b"]) == pytest.approx(100 * 1 / 4)


def test_looks_by_hand() -> None:
    weights = np.array([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]])
    one = Translation("s", "t", 0.0, 0.0, [], [], [], True, weights=weights)
    found = running.looks([one])
    assert found["missed"] == pytest.approx(100 / 3)
    assert found["sharpness"] == pytest.approx((1 + (1 - np.log(2) / np.log(3))) / 2)
    divided = running.looks([replace(one, dividers=(1,))])
    assert divided["missed"] == pytest.approx(50)


# ---- a run ----


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The atlas with arms that a test can afford, some of them with other settings still."""

    def cut(**other: Values) -> None:
        arms = {}
        for name, values in ATLAS.arms.items():
            config = resolved(values)
            tokenizer = "word" if config.text.tokenizer == "word" else "char"
            own = merge(merge(values, SMALL), {"text": {"tokenizer": tokenizer}})
            if not config.model.has_source:
                del own["model"]["encoder"]
            arms[name] = merge(own, other.get(name, {}))
        monkeypatch.setattr(benchmark, "read_atlas", lambda: replace(ATLAS, arms=arms))

    return cut


@pytest.fixture
def run(tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`run("guided")`: the benchmark on a few pairs in this process; its exit code, and the names of trained arms."""
    pairs = [*dict.fromkeys(letters(120))]
    with gzip.open(tmp_path / "train.en-de.tsv.gz", "wt", encoding="utf-8") as file:
        file.write("".join(f"{source}\t{target}\n" for source, target in pairs))
    trained: list[str] = []
    monkeypatch.setattr(running, "commands", arms_within(command, trained))

    def once(only: str, *more: str) -> tuple[int, list[str]]:
        trained.clear()
        folders = [f"--{name}={tmp_path / name}" for name in ("runs", "results", "docs")]
        budget = ["--updates", "2", "--pairs", "40", "--held-out", "8", "--threads", "1"]
        code = benchmark.main(["--data", str(tmp_path), "--only", only, *budget, *folders, *more])
        return code, [*trained]

    return once


def recorded(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "results" / "atlas.json").read_text(encoding="utf-8"))
    return found


def test_arms_are_trained_once_and_recorded(small: Any, run: Any, tmp_path: Path) -> None:
    small()
    assert run("guided") == (0, ["bahdanau", "guided"])
    found = recorded(tmp_path)
    for one in found.values():
        assert one["updates"] == 2
        assert one["sentences"] == 8
        assert 0 <= one["missed"] <= 100
        assert str(tmp_path) not in json.dumps(one)
    assert (tmp_path / "docs" / "heat-maps" / "guided.svg").read_text(encoding="utf-8").startswith("<svg")
    page = (tmp_path / "docs" / "guided.md").read_text(encoding="utf-8")
    assert "| **with it** |" in page
    assert "![Heat-map of bahdanau](heat-maps/bahdanau.svg)" in page
    assert run("guided") == (0, [])
    assert run("guided,lexicon_bias") == (0, ["lexicon_bias", "words"])
    assert run("words", "--again") == (0, ["words"])


def test_two_sources_and_text(small: Any, run: Any, tmp_path: Path) -> None:
    small()
    assert run("sources_hierarchical,pointer_sentinel,agreement")[0] == 0
    found = recorded(tmp_path)
    assert found["pointer_sentinel"]["word_perplexity"] > 1
    assert "│" in (tmp_path / "docs" / "heat-maps" / "sources_flat.svg").read_text(encoding="utf-8")
    assert "bits a character" in (tmp_path / "docs" / "pointer_sentinel.md").read_text(encoding="utf-8")


def test_an_arm_that_fails_is_told_and_the_rest_goes_on(small: Any, run: Any, tmp_path: Path) -> None:
    small(bahdanau={"model": {"decoder": {"width": 7}, "attention": {"score": "dot"}}})
    code, trained = run("bahdanau")
    assert (code, trained) == (1, ["fixed_vector", "bahdanau"])
    found = recorded(tmp_path)
    assert found["fixed_vector"]["updates"] == 2
    assert "failed" not in found["fixed_vector"]
    assert "bleu" not in found["bahdanau"]
    assert found["bahdanau"]["failed"].startswith("`sightline train` ended with code 2: sightline: ")
    assert "`bahdanau` failed" in (tmp_path / "docs" / "bahdanau.md").read_text(encoding="utf-8")
    small()
    assert run("bahdanau") == (0, ["bahdanau"]), "what failed is tried again, what did not is not"


def test_models_of_inflection_are_drawn(trained: Any, tmp_path: Path) -> None:
    runs, docs, results = (tmp_path / name for name in ("runs", "docs", "results"))
    for folder in (runs, results):
        folder.mkdir()
    (runs / "exact-1").symlink_to(trained("luong"))
    (runs / "test.tsv").write_text("a b\tA B\nc\tC\nd\tD\n", encoding="utf-8")
    (results / "inflection.json").write_text(json.dumps({"exact": {"accuracy": 90.5, "deviation": None}}))
    assert benchmark.main(["--inflection", str(runs), "--docs", str(docs), "--results", str(results)]) == 0
    assert [path.name for path in (docs / "heat-maps").iterdir()] == ["inflection-exact.svg"]
    page = (docs / "exact.md").read_text(encoding="utf-8")
    assert "| exact, any position | 90.5 | – |" in page
    assert "(heat-maps/inflection-exact.svg)" in page


def test_without_a_record_a_page_tells_how_to_make_it() -> None:
    for page in TRAINED:
        text = render(ATLAS, {}, ())[f"{page.name}.md"]
        assert f"`python benchmarks/atlas.py --data DIR --only {page.name}`" in text.replace("\n", " ")
        assert "Not measured yet" in text


def test_names_that_are_none_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        benchmark.main(["--data", ".", "--only", "telepathy"])
    assert "no such page or arm" in capsys.readouterr().err
