"""The benchmark of dropping and repeating: what it counts, its arms and text, its tables, and a run on a few pairs."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import repeating
from benchmarks.mechanisms import running
from benchmarks.mechanisms.entries import read_atlas, resolved
from benchmarks.mechanisms.rendering import render
from benchmarks.mechanisms.repeating_page import page
from benchmarks.mechanisms.repetition import again, beyond, phrases, rates, relative_length, repeated, words_of
from sightline.readers import Pair
from sightline.translation import Translation
from tests.commands import Command

BUDGET = running.Budget(pairs=40, held_out=2, minutes=None, max_updates=2, threads=1)
PAGES = read_atlas().arms
WORDS = st.lists(st.sampled_from("abc"), max_size=12)
SIZES = st.integers(1, 4)


# ---- what is counted ----


def test_words_have_no_capitals_and_no_marks() -> None:
    assert words_of("Der EU-Haushalt, der „Haushalt“ – 2,5!") == ["der", "eu-haushalt", "der", "haushalt", "2", "5"]


def test_repetitions_by_hand() -> None:
    found = phrases([*"ababac"], 2)
    assert found == {("a", "b"): 2, ("b", "a"): 2, ("a", "c"): 1}
    assert again(found) == 2
    assert repeated([found, phrases(["d", "e"], 2)]) == pytest.approx(100 * 2 / 6)
    assert beyond(found, phrases([*"abcab"], 2)) == 1  # the reference has "a b" twice too
    assert beyond(phrases(["x"] * 5, 1), phrases(["x"] * 3, 1)) == 2
    assert beyond(phrases(["x"] * 5, 1), phrases(["y"], 1)) == 4  # the first is right or wrong, but not again


def test_rates_by_hand() -> None:
    found = rates(["A, b. A b a", "c"], ["a b c a", "c c"])
    # Of 6 words 3 are again, of which the reference has one a; of 4 pairs 2 and of 3 triples 1, all beyond it.
    assert found["repeated"] == pytest.approx({"1": 50, "2": 50, "3": 100 / 3, "4": 0})
    assert found["beyond"] == pytest.approx({"1": 100 * 2 / 6, "2": 50, "3": 100 / 3, "4": 0})
    assert found["reference"] == pytest.approx({"1": 100 * 2 / 6, "2": 0, "3": 0, "4": 0})
    assert relative_length(["a b, c"], ["a . b"]) == 150


def test_no_text_repeats_nothing() -> None:
    found = rates([""], ["a a"])
    assert set(found["repeated"].values()) == set(found["beyond"].values()) == {0}
    assert relative_length([""], [""]) == 0


@given(text=WORDS, reference=WORDS, size=SIZES)
def test_beyond_is_a_part_of_what_is_repeated(text: list[str], reference: list[str], size: int) -> None:
    found, wanted = phrases(text, size), phrases(reference, size)
    assert 0 <= beyond(found, wanted) <= again(found) <= max(0, found.total() - 1)
    assert beyond(found, found) == 0
    assert beyond(found, phrases([], size)) == again(found)
    # A reference that has more can only excuse more.
    assert beyond(found, wanted + found) == 0


@given(text=st.lists(st.sampled_from("abc"), min_size=1, max_size=6), times=st.integers(1, 4), size=SIZES)
def test_a_loop_has_no_more_phrases_than_one_round_has_places(text: list[str], times: int, size: int) -> None:
    found = phrases(text * times, size)
    assert again(found) >= found.total() - len(text)
    assert again(phrases(text * (times + 1), size)) >= again(found)


# ---- arms ----


def flat(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


@pytest.mark.parametrize("name", repeating.ARMS)
def test_an_arm_has_one_thing_more_than_its_twin(name: str) -> None:
    arm = repeating.ARMS[name]
    own = resolved(repeating.settings(name, PAGES, [], BUDGET)["config"]).model_dump(mode="json")
    if arm.twin is None:
        assert own["model"]["attention"]["coverage"] == "none"
        assert not any(own["model"]["penalties"].values())
        return
    twin = resolved(repeating.settings(arm.twin, PAGES, [], BUDGET)["config"]).model_dump(mode="json")
    different = {key for (key, one), (_, other) in zip(flat(own), flat(twin), strict=True) if one != other}
    # A penalty of the search is not of the model's.
    assert len(different) == (0 if name == "coverage_penalty" else 1)
    assert bool(arm.betas) == (name == "coverage_penalty")


# ---- text ----


def sentence(words: int, side: str, number: int) -> str:
    return " ".join(f"{side}{number}.{place}" for place in range(words))


def pairs_of(lengths: list[int]) -> list[Pair]:
    return [Pair(sentence(words, "s", place), sentence(words, "t", place)) for place, words in enumerate(lengths)]


def test_lengths_are_told_apart() -> None:
    assert [repeating.bucket(words) for words in (0, 1, 10, 11, 60, 61, 99)] == [
        *(["1-10"] * 3),
        *("11-20", "51-60", "61+", "61+"),
    ]
    assert repeating.BUCKETS == ("1-10", "11-20", "21-30", "31-40", "41-50", "51-60", "61+")


def test_passages_are_neighbours_each_in_one() -> None:
    pairs = pairs_of([30, 31, 31, 5, 60, 40, 50])
    found = repeating.passages(pairs)
    # 30 + 31 fits; 31 + 5 is too short; 5 + 60 fits; 40 + 50 fits.
    assert [repeating.length(pair) for pair in found] == [61, 65, 90]
    assert found[0] == Pair(f"{pairs[0].source} {pairs[1].source}", f"{pairs[0].target} {pairs[1].target}")
    assert repeating.passages(pairs_of([50, 41])) == []
    assert repeating.passages([]) == []


def test_as_many_of_each_length() -> None:
    pairs = pairs_of([3, 12, 4, 5, 6, 25])
    assert [repeating.length(pair) for pair in repeating.by_bucket(pairs, 2)] == [3, 5, 12, 25]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Sentences of 4 to 48 words, which are numbers; one of the test was trained on."""
    lengths = {"train": [4, 20, 48] * 16, "dev": [5, 45, 30] * 2, "test": [4, 6, 46, 29, 13]}
    for part, name in repeating.FILES.items():
        rows = [(" ".join(map(str, range(words))), "x " * (words - 1) + "x") for words in lengths[part]]
        with gzip.open(tmp_path / name, "wt", encoding="utf-8") as file:
            file.write("".join(f"{source}\t{target}\n" for source, target in rows))
    return tmp_path


def test_text_of_all_arms(data: Path, tmp_path: Path) -> None:
    text = repeating.make_text(data, tmp_path / "runs", BUDGET)
    train = [len(line.split("\t")[0].split()) for line in (tmp_path / "runs" / "train.tsv").read_text().splitlines()]
    assert len(train) == 40 + 40 // repeating.PASSAGES
    assert {*train} == {4, 20, 48, 68}
    assert [repeating.length(pair) for pair in text.test] == [6, 13, 29, 46, 75]
    assert all(repeating.length(pair) > repeating.LONG for pair in text.tune)
    with pytest.raises(SystemExit, match=r"there is no ep\.en-de\.train\.tsv\.gz"):
        repeating.make_text(tmp_path / "runs", tmp_path, BUDGET)


# ---- figures and tables ----


def written(pair: Pair, text: str, weights: list[list[float]]) -> Translation:
    return Translation(pair.source, text, 0.0, 0.0, [], [], [], True, weights=np.array(weights))


def test_figures_by_hand() -> None:
    short, long = Pair("s s s s", "a b c d"), Pair("s " * 41, "a b")
    looped = written(short, "a b a b a b a b", [[0.7, 0.1, 0.1, 0.1]] * 8)
    sound = written(long, "a b", [[0.02] * 41] * 2)
    found = repeating.measured([short, long], [looped, sound])
    assert {label: one["sentences"] for label, one in found["lengths"].items()} == {"1-10": 1, "41-50": 1}
    assert found["long"] == found["lengths"]["41-50"]
    first = found["lengths"]["1-10"]
    assert first["length"] == 200
    assert first["repeated"] == pytest.approx({"1": 75, "2": 100 * 5 / 7, "3": 100 * 4 / 6, "4": 60})
    assert first["beyond"] == first["repeated"]
    assert (first["loops"], first["reference_loops"], first["cut"], first["missed"]) == (100, 0, 0, 0)
    assert found["long"]["missed"] == 100  # 0.04 of weight for each word
    assert found["all"]["loops"] == 50


def one_arm(title: str, **more: Any) -> dict[str, Any]:
    scores = {"sentences": 7, "bleu": 10.25, "chrf": 30.0, "length": 95.0}
    flags = {"missed": 20.0, "dropped": 3.0, "loops": 2.5, "cut": 0.5, "reference_loops": 0.125}
    phrases = {
        "repeated": {"1": 5.0, "2": 6.0, "3": 7.0, "4": 8.0},
        "beyond": {"1": 1.0, "2": 2.0, "3": 3.0, "4": 4.0},
        "reference": {"1": 9.0, "2": 1.0, "3": 0.5, "4": 0.25},
    }
    figures = {**scores, **flags, **phrases}
    parts = {"all": figures, "long": {**figures, "bleu": 4.5}, "lengths": {"1-10": figures, "61+": {"bleu": 2.0}}}
    budget = {"pairs": 60_000, "held_out": 200, "minutes": 5.0, "max_updates": None, "threads": 2}
    about = {"command": "python benchmarks/repeating.py --data PATH", "machine": {"cpu": "a processor"}}
    rest = {"title": title, "updates": 1500, "long_above": 40, "signatures": ["tok:13a"]}
    return {**rest, **parts, **budget, **about, **more}


def test_tables_of_a_record() -> None:
    record = {
        "bahdanau": one_arm("plain"),
        "coverage_penalty": one_arm("penalty", beta=0.05, lengths={}),
        "coverage_sum": {"failed": "no room"},
    }
    text = page(record)
    assert "| plain | 1,500 | 10.25 | 30.00 | 95.00 | 20.00 | 3.00 | 2.50 | 0.50 |" in text
    assert "| penalty, beta 0.05 | 1,500 | 4.50 | 30.00 |" in text
    assert "| plain | 5.00 | 6.00 | 7.00 | 8.00 | 1.00 | 2.00 | 3.00 | 4.00 |" in text
    assert "| the references | 9.00 | 1.00 | 0.50 | 0.25 | – | – | – | – |" in text
    assert "| the references | – | – | – | – | – | – | 0.12 | – |" in text
    assert "| arm | 1-10 | 61+ |" in text
    assert "| plain | 10.25 | 2.00 |" in text
    assert "| penalty, beta 0.05 | – | – |" in text
    assert text.endswith("`coverage_sum` failed: no room.\n")
    assert max(len(line) for line in text.splitlines() if not line.startswith("|")) <= 120


def test_tables_of_short_sentences_alone() -> None:
    assert "## Long" not in page({"bahdanau": one_arm("plain", long=None)})
    assert page({"bahdanau": {"failed": "no room"}}).count("|") == 0


def test_pages_of_the_atlas_show_the_record() -> None:
    record = {name: one_arm(arm.title) for name, arm in repeating.ARMS.items()}
    atlas = read_atlas()
    shown = {
        name: [one for one in page.measured if one.record == "repeating.json"] for name, page in atlas.pages.items()
    }
    shown = {name: found for name, found in shown.items() if found}
    assert len(shown) == 9
    pages = render(atlas, {"repeating.json": record}, ())
    for name, (measured, *_) in shown.items():
        text = pages[f"{name}.md"]
        trained = f"--only {name}`" in text.replace("\n", " ")
        assert trained == (name != "coverage_penalty"), "what was trained for the page is told too"
        assert text.count("| 4.5 | 95 | 4 | 2.5 | 20 | 1,500 |") == len(measured.rows)
        assert "[The record](../../benchmarks/results/repeating.json)" in text.replace("\n", " ")


# ---- a run ----


def test_arms_are_trained_once_and_recorded(
    data: Path, command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    trained: list[str] = []

    def within(threads: int) -> running.Run:
        def run(arguments: list[str], log: Path) -> int:
            trained.append(Path(arguments[1]).stem)
            done = command(*arguments)
            log.write_text(done.err, encoding="utf-8")
            return done.code

        return run

    monkeypatch.setattr(running, "commands", within)
    results = tmp_path / "results" / "repeating.json"
    small = ["text.tokenizer=word", "model.embedding=8", "model.encoder.width=4", "model.decoder.width=8"]
    given = ["--data", str(data), "--runs", str(tmp_path / "runs"), "--results", str(results), "--threads", "1"]
    given += ["--updates", "2", "--pairs", "40", "--each", "2"]
    for setting in (*small, "training.warmup=1", "search.max_extra=3", "search.max_ratio=1"):
        given += ["--set", setting]

    def once(arms: str) -> dict[str, Any]:
        trained.clear()
        assert repeating.main([*given, "--arms", arms]) == 0
        found: dict[str, Any] = json.loads(results.read_text(encoding="utf-8"))
        return found

    found = once("coverage_left")
    assert trained == ["coverage_left"]
    assert found["coverage_left"]["updates"] == 2
    assert found["coverage_left"]["all"]["sentences"] == 5
    assert {*found["coverage_left"]["lengths"]} == {"1-10", "11-20", "21-30", "41-50", "61+"}
    assert str(tmp_path) not in json.dumps(found)
    once("coverage_left")
    assert trained == [], "what is recorded is passed over"
    found = once("coverage_penalty")
    assert trained == ["bahdanau"], "a search needs the plain model"
    assert found["coverage_penalty"]["beta"] in repeating.BETAS
    assert [one["beta"] for one in found["coverage_penalty"]["tried"]] == [0, *repeating.BETAS]
    found = once("bahdanau")
    assert trained == [], "the model is there already"
    assert [*found] == ["bahdanau", "coverage_left", "coverage_penalty"]
    text = results.with_suffix(".md").read_text(encoding="utf-8")
    assert text.count("| plain | 2 |") == 2


def test_arms_that_are_none_are_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        repeating.main(["--data", str(tmp_path), "--arms", "bahdanau,magic"])
    assert "unknown magic; there are bahdanau, " in capsys.readouterr().err
