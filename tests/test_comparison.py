"""The parts of a comparison on their own: text that is held out, time that is left, and reports made by hand."""

from __future__ import annotations

import gzip
import io
import json
import re
from itertools import chain
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from sightline import metrics, significance
from sightline.comparison.configs import differences, read_configs
from sightline.comparison.course import Course
from sightline.comparison.markdown import markdown
from sightline.comparison.page import page
from sightline.comparison.parts import prepare_parts
from sightline.comparison.results import Arm, Comparison, told
from sightline.comparison.run import write_report
from sightline.comparison.scores import Scores, load_scores, save_scores, spread
from sightline.comparison.tables import tables
from sightline.config import build_config
from sightline.errors import SightlineError
from sightline.plot.lengths import lengths_svg
from sightline.readers import Pair, TextFiles
from sightline.sections import DataConfig
from sightline.training.progress import Limits, Lines, Report
from tests.commands import letters, write_lines, write_tsv
from tests.test_report import HOSTILE, parsed


def scores(translations: list[str], **changes: Any) -> Scores:
    """Of one run; four cells of attention for each sentence shown."""
    seen = {
        "source": ["a", "b"],
        "target": ["A", "B"],
        "weights": [[1.0, 0.0], [0.25, 0.75]],
        "links": [[0, 0], [1, 1]],
    }
    values: dict[str, Any] = {
        "perplexity": 4.5,
        "parameters": 12_345,
        "tokenizer": "t",
        "updates": 100,
        "minutes": 2.0,
        "tokens": 5_000,
        "rate": 2_500.0,
        "seconds": 2.0,
        "written": 60,
        "error_rates": {},
        "maps": [seen],
        "machine": "a machine",
        "measured": "2026-01-02T03:04+00:00",
    }
    return Scores(translations=translations, **(values | changes))


def made(systems: dict[str, list[list[str]]], references: list[str], **changes: Any) -> Comparison:
    """A comparison of these translations, system by system and seed by seed."""
    pairs = [Pair(reference.lower(), reference) for reference in references]
    recipes = ("bahdanau", "luong", "transformer")
    arms = [
        Arm(name, build_config({}, recipe), {seed: scores(run, **changes) for seed, run in enumerate(runs, 1)})
        for (name, runs), recipe in zip(systems.items(), recipes, strict=False)
    ]
    return Comparison(arms, pairs, [0], "13a", "pytorch", ["made by hand"])


REFERENCES = [target for _, target in letters(30, seed=4)]
GOOD = [text if number % 3 else "A" for number, text in enumerate(REFERENCES)]
BAD = [text if number % 4 == 0 else "A B" for number, text in enumerate(REFERENCES)]


def test_with_one_seed_the_test_is_the_plain_one() -> None:
    comparison = made({"good": [GOOD], "bad": [BAD]}, REFERENCES)
    assert comparison.tested == {"bad": significance.compare(GOOD, BAD, REFERENCES)}
    row = dict(zip(tables(comparison)["scores"].headings, tables(comparison)["scores"].rows[0], strict=True))
    assert row["BLEU"] == f"{metrics.bleu(GOOD, REFERENCES).value:.2f}"
    assert row["parameters"] == "12,345"
    (against,) = tables(comparison)["significance"].rows
    bleu, chrf = comparison.tested["bad"]
    assert against[0] == "bad"
    assert (against[1], against[3]) == (f"{bleu.difference:+.2f}", f"{bleu.p_value:.3f}")
    assert (against[4], against[6]) == (f"{chrf.difference:+.2f}", f"{chrf.p_value:.3f}")


def test_several_seeds_are_a_mean_and_its_deviation() -> None:
    comparison = made({"one": [GOOD, BAD]}, REFERENCES)
    values = [metrics.bleu(system, REFERENCES).value for system in (GOOD, BAD)]
    assert tables(comparison)["scores"].rows[0][1] == told(values)
    assert told([1.0, 3.0]) == "2.00 ± 1.41"
    assert (told([1.0]), told([])) == ("1.00", "–")
    counts = [row[1] for row in tables(comparison)["lengths"].rows]
    assert sum(map(int, counts)) == len(REFERENCES)  # a sentence counts once, however many seeds translate it


def test_speeds_and_what_differs() -> None:
    comparison = made({"one": [GOOD], "two": [GOOD]}, REFERENCES)
    assert tables(comparison)["speed"].rows[0] == ["one", "100", "2.0", "2,500", "15.0", "30"]
    assert "a machine; 2026-01-02T03:04+00:00" in tables(comparison)["speed"].notes[0]
    assert comparison.differing["model.recipe"] == ["bahdanau", "luong"]
    assert tables(comparison)["significance"].rows[0][1:4] == ["±0.00", "the same in all", "–"]
    same = build_config({"training": {"seed": 1}, "data": {"pairs": "a.tsv"}})
    assert differences([same, build_config({"training": {"seed": 2}, "data": {"pairs": "b.tsv"}})]) == {}


def test_perplexities_of_different_tokens_are_not_compared() -> None:
    comparison = made({"one": [GOOD], "two": [GOOD]}, REFERENCES)
    assert not any("Perplexity" in note for note in tables(comparison)["scores"].notes)
    other = Arm("two", comparison.arms[1].config, {1: scores(GOOD, tokenizer="another", perplexity=None)})
    comparison = Comparison([comparison.first, other], comparison.pairs, [0], "13a", "pytorch", [])
    assert any("only where the tokens are the same (one; two)" in note for note in tables(comparison)["scores"].notes)
    assert tables(comparison)["scores"].rows[1][3] == "–"


def test_no_sentence_and_no_name_becomes_markup(tmp_path: Path) -> None:
    texts = [*HOSTILE, "| a | b |", "*c* _d_ `e` [f](g)"]
    seen = {"source": HOSTILE, "target": ["x"], "weights": [[0.1] * len(HOSTILE)], "links": []}
    comparison = made({"<i>|*one*": [texts], "two": [texts[::-1]]}, texts, maps=[seen])
    text = page(comparison)
    found = parsed(text)
    assert not {"i", "b", "script"} & {tag for tag, _ in found.seen}
    assert "\x1b" not in text
    lines = markdown(comparison)
    assert "\x1b" not in lines
    assert "<i>" not in lines
    assert "\\| a \\| b \\|" in lines
    write_report(comparison, tmp_path)
    for file in (tmp_path / "bleu-by-length.svg", tmp_path / "heat-maps" / "1.svg"):
        ElementTree.parse(file)
    assert json.loads((tmp_path / "report.json").read_bytes())["examples"][0]["source"] == texts[0].lower()


def test_the_figure_has_a_point_for_every_value() -> None:
    labels, series = ["1-5", "6-10"], {f"system {number}": [10.0, 5.0 + number] for number in range(8)}
    drawn = ElementTree.fromstring(lengths_svg(labels, series, alone=True))
    titles = [element.text for element in drawn.iter() if element.tag.endswith("title")]
    assert len(titles) == 16
    assert titles[:2] == ["system 0, 1-5 words: 10.0", "system 0, 6-10 words: 5.0"]
    strokes = [(e.get("stroke"), e.get("stroke-dasharray")) for e in drawn.iter() if e.get("stroke")]
    assert len(set(strokes)) == 8  # no two lines look the same
    ElementTree.fromstring(lengths_svg([], {}))


def test_scores_are_kept_as_they_are_and_forgotten_when_something_else_is_asked(tmp_path: Path) -> None:
    kept = scores(["a", "ü"], perplexity=None)
    save_scores(tmp_path, kept, {"beam": 5})
    assert load_scores(tmp_path, {"beam": 5}) == kept
    assert load_scores(tmp_path, {"beam": 1}) is None
    (tmp_path / "scores.json").write_text('{"key": {"beam": 5}, "scores": {}}')
    assert load_scores(tmp_path, {"beam": 5}) is None


def test_sentences_are_evenly_spread() -> None:
    assert spread(range(100), 4) == [12, 37, 62, 87]
    assert spread([7, 8], 4) == [7, 8]
    assert spread([], 4) == []


# Seeds that are pooled


def test_the_same_translations_twice_are_no_more_certain() -> None:
    single = significance.compare(GOOD, BAD, REFERENCES, resamples=100)
    twice = significance.compare_pooled([GOOD, GOOD], [BAD, BAD], REFERENCES, resamples=100)
    for one, other in zip(single, twice, strict=True):
        assert other.interval == pytest.approx(one.interval)
        assert (other.first, other.second, other.p_value) == pytest.approx((one.first, one.second, one.p_value))


def test_pooled_scores_are_those_of_all_translations_together() -> None:
    bleu, chrf = significance.compare_pooled([GOOD, BAD], [BAD, REFERENCES], REFERENCES, resamples=10)
    assert bleu.first == pytest.approx(metrics.bleu([*GOOD, *BAD], REFERENCES * 2).value)
    assert chrf.second == pytest.approx(metrics.chrf([*BAD, *REFERENCES], REFERENCES * 2).value)
    with pytest.raises(SightlineError, match="29 and 30 translations for 30 references"):
        significance.compare_pooled([GOOD[1:]], [BAD], REFERENCES)


# Text


def read(path: Path) -> list[tuple[str, str]]:
    return [(row["source"], row["target"]) for row in map(json.loads, path.read_text(encoding="utf-8").splitlines())]


def test_no_sentence_is_in_two_parts_and_none_is_lost(tmp_path: Path) -> None:
    files = [write_tsv(tmp_path / f"{name}.tsv", letters(100, seed)) for seed, name in enumerate("ab")]
    corpora = [{"pairs": files[0], "weight": 2.0}, {"pairs": files[1], "name": "second"}]
    data = DataConfig.model_validate({"corpora": corpora, "held_out": 12})
    parts = prepare_parts(data, None, tmp_path / "out")
    assert parts.valid is not None
    every = [read(path) for path in (*parts.training, parts.valid, parts.test.paths[0])]
    assert sorted(chain(*every)) == sorted(letters(100, 0) + letters(100, 1))
    assert (len(every[2]), len(every[3])) == (12, 12)
    sentences = [{text for pair in part for text in pair} for part in (every[0] + every[1], every[2], every[3])]
    assert not sentences[0] & sentences[1]
    assert not sentences[0] & sentences[2]
    assert not sentences[1] & sentences[2]
    fitted = parts.fitted(data)
    assert [(corpus.name, corpus.weight) for corpus in fitted.corpora] == [("a.tsv", 2.0), ("second", 1.0)]
    assert [corpus.pairs for corpus in fitted.corpora] == list(parts.training)
    assert fitted.valid_pairs == parts.valid
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / "data").iterdir()}
    assert prepare_parts(data, None, tmp_path / "out") == parts
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / "data").iterdir()} == before


def own_links(pairs: list[tuple[str, str]]) -> list[str]:
    """Word by word; that of the last word is left out for every third pair, so that lines are not all as their text."""
    return [
        " ".join(f"{place}-{place}" for place in range(len(source.split()) - (number % 3 == 0)))
        for number, (source, _) in enumerate(pairs)
    ]


def test_links_go_with_the_pairs_that_are_left(tmp_path: Path) -> None:
    given = [letters(60, 0), letters(60, 1)]
    files = [write_tsv(tmp_path / f"{number}.tsv", pairs) for number, pairs in enumerate(given)]
    every = [pair for pairs in given for pair in pairs]
    links = write_lines(tmp_path / "links.txt", own_links(every))
    packed = tmp_path / "links.gz"
    packed.write_bytes(gzip.compress(links.read_bytes()))
    corpora = [{"pairs": file} for file in files]
    data = DataConfig.model_validate({"corpora": corpora, "held_out": 12, "alignments": links})
    parts = prepare_parts(data, None, tmp_path / "out", links=[links])
    kept = parts.fitted(data).alignments
    assert kept is not None
    assert kept.parent == tmp_path / "out" / "data"
    of_pair: dict[tuple[str, str], list[str]] = {}
    for pair, line in zip(every, own_links(every), strict=True):
        of_pair.setdefault(pair, []).append(line)
    lines = kept.read_text().splitlines()
    left = [pair for path in parts.training for pair in read(path)]
    assert len(lines) == len(left) < len(every)
    assert lines == [of_pair[pair].pop(0) for pair in left]  # those of the same pair in their order
    # Another config may come to a comparison that was begun, with the same links or with others.
    other = data.model_copy(update={"alignments": packed})
    again = prepare_parts(data, None, tmp_path / "out", links=[links, packed])
    assert again.fitted(data).alignments == kept
    beside = again.fitted(other).alignments
    assert beside is not None
    assert beside.read_text() == kept.read_text()
    assert again.fitted(data.model_copy(update={"alignments": None})).alignments is None


def test_links_that_do_not_belong_to_the_text_are_refused_by_their_own_lines(tmp_path: Path) -> None:
    pairs = letters(40)
    data = DataConfig(pairs=write_tsv(tmp_path / "a.tsv", pairs))
    lines = own_links(pairs)
    wrong = write_lines(tmp_path / "wrong.txt", [*lines[:36], "9-9", *lines[37:]])
    short, long = write_lines(tmp_path / "short.txt", lines[:-1]), write_lines(tmp_path / "long.txt", [*lines, ""])
    for links, mistake in (
        (wrong, "wrong.txt, line 37: link 9-9"),
        (short, "short.txt has 39 lines, and the training text more pairs"),
        (long, "long.txt has 41 lines, and the training text 40 pairs"),
        (tmp_path / "absent.txt", "absent.txt: no such file"),
    ):
        with pytest.raises(SightlineError, match=re.escape(mistake)):
            prepare_parts(data, None, tmp_path / "out", links=[links])
    assert not [*(tmp_path / "out" / "data").glob("links-*")]


def test_what_is_given_is_left_alone(tmp_path: Path) -> None:
    file = write_tsv(tmp_path / "a.tsv", letters(30))
    data = DataConfig(pairs=file, valid_pairs=file)
    linked = data.model_copy(update={"alignments": write_lines(tmp_path / "links.txt", own_links(letters(30)))})
    parts = prepare_parts(data, TextFiles.given(pairs=file), tmp_path / "out", links=[tmp_path / "links.txt"])
    assert parts.fitted(data) == data
    assert parts.fitted(linked) == linked
    assert [path.name for path in (tmp_path / "out" / "data").iterdir()] == ["parts.json"]
    (tmp_path / "out" / "runs").mkdir()
    with pytest.raises(SightlineError, match="other text, or with other parts held out"):
        prepare_parts(data, None, tmp_path / "out")
    (tmp_path / "out" / "runs").rmdir()  # nothing is trained yet: what the first attempt left does not count
    assert len(prepare_parts(data, None, tmp_path / "out").pairs()) == 1
    few = DataConfig(pairs=write_tsv(tmp_path / "few.tsv", [("a", "A"), ("", "B"), ("c", "C")]))
    with pytest.raises(SightlineError, match="2 usable pairs are too few"):
        prepare_parts(few, None, tmp_path / "few")


def test_configs_are_called_by_their_files_or_recipes(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("model: {recipe: luong, attention: {score: dot}}\n")
    found = read_configs([str(tmp_path / "mine.yaml"), "bahdanau"], {"training": {"max_steps": 3}}, ["search.beam=2"])
    assert list(found) == ["mine", "bahdanau"]
    assert [config.model.recipe for config in found.values()] == ["luong", "bahdanau"]
    assert {(config.training.max_steps, config.search.beam) for config in found.values()} == {(3, 2)}


# Time


def test_the_time_that_is_left() -> None:
    course = Course(["a", "b", "a", "b"])
    assert course.left() is None
    assert course.told() == ""
    assert course.beyond(5, None) == ""
    assert course.beyond(10, 20) == ", 1:50 for all"  # 20 of the first, and three of 30 like it
    course.trained("a", 30)
    course.measured("a", 6)
    assert course.left() == 3 * 36
    assert course.beyond(10, 50) == ", 2:26 for all"  # 50 of this one, 36 and 60
    course.trained("b", 60)
    assert course.told() == "about 1:36 left for all"
    course.trained("a", 30)
    assert course.beyond(10, 50) == ""  # the last one: its own time is told already


def test_the_time_for_all_stands_behind_that_of_the_run() -> None:
    stream = io.StringIO()
    lines = Lines(stream, beyond=Course(["a", "a"]).beyond)
    lines.start(Limits(10, None))
    lines.update(Report(5, 0, 40.0, 1.0, 1e-3, 100.0))
    assert stream.getvalue().rstrip().endswith("0:40 left, 2:00 for all")
