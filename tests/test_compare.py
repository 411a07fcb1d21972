"""`sightline compare` from a first call that is interrupted to its report, and mistakes before anything is trained."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from sightline.cli import main
from sightline.comparison import run as comparing
from sightline.comparison.scores import Scores, load_scores
from sightline.config import merge
from sightline.significance import compare_pooled
from sightline.training.loop import Host
from sightline.training.progress import Report, Silent
from sightline.training.run import train
from sightline.translator import load
from tests.commands import Command, Done, letters, tiny, write_lines, write_tsv
from tests.test_report import parsed

STEPS = 4
RUNS = [(name, seed) for seed in (1, 2) for name in ("look", "fixed")]


@dataclass(frozen=True)
class Compared:
    """A comparison of two configs with two seeds: three calls of the same command, and the runs each trained."""

    folder: Path
    calls: list[Done]
    trained: list[list[tuple[str, bool]]]
    arguments: list[str]

    @property
    def output(self) -> Path:
        return self.folder / "out"

    def report(self) -> Any:
        return json.loads((self.output / "report.json").read_bytes())

    def scores(self, name: str, seed: int) -> Scores:
        folder = self.output / "runs" / name / f"seed-{seed}"
        found = load_scores(folder, json.loads((folder / "scores.json").read_bytes())["key"])
        assert found is not None
        return found


class Interrupting(Silent):
    """Ctrl-C after the second update."""

    def update(self, report: Report) -> None:
        if report.step == 2:
            os.kill(os.getpid(), signal.SIGINT)


def called(arguments: list[str]) -> Done:
    """The command line in this process, with its own streams; what an interruption does to the signal is undone."""
    before = signal.getsignal(signal.SIGINT)
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as out:
        patch.setattr(sys, "argv", ["sightline", *arguments])
        with redirect_stderr(io.StringIO()) as err, pytest.raises(SystemExit) as ended:
            main()
    signal.signal(signal.SIGINT, before)
    assert isinstance(ended.value.code, int)
    return Done(ended.value.code, out.getvalue(), err.getvalue())


def write_config(path: Path, recipe: str, changes: dict[str, Any] | None = None) -> Path:
    small = {"model": {"recipe": recipe}, "training": {"log_every": 2, "validate_bleu": 2, "watch": 1, "workers": 1}}
    path.write_text(yaml.safe_dump(merge(merge(tiny(recipe), small), changes or {})), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Compared:
    folder = tmp_path_factory.mktemp("compared")
    test = [(f"{source} a b c", f"{target} A B C") for source, target in letters(12, seed=9)]
    write_config(folder / "look.yaml", "bahdanau")
    write_config(folder / "fixed.yaml", "seq2seq", {"model": {"dropout": 0.1}})
    gold = [" ".join(f"{place}-{place}" for place in range(len(source.split()))) for source, _ in test]
    arguments = ["compare", str(folder / "look.yaml"), str(folder / "fixed.yaml"), "--seeds", "2"]
    arguments += ["--pairs", str(write_tsv(folder / "pairs.tsv", letters(200)))]
    arguments += ["--test-pairs", str(write_tsv(folder / "test.tsv", test))]
    arguments += ["--gold", str(write_lines(folder / "gold.txt", gold))]
    arguments += ["--output", str(folder / "out"), "--max-steps", str(STEPS), "--set", "search.beam=2"]
    trained: list[list[tuple[str, bool]]] = []
    calls = []

    def noted(config: Any, output: Path, resume: bool, host: Host, say: Any) -> Any:
        trained[-1].append((f"{output.parent.name} {output.name}", resume))
        if len(trained) == 1 and len(trained[0]) == 2:
            host = Host(Interrupting())
        return train(config, output, resume, host, say)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(comparing, "train", noted)
        for _ in range(3):
            trained.append([])
            calls.append(called(arguments))
    return Compared(folder, calls, trained, arguments)


def test_what_is_done_is_not_done_again(compared: Compared) -> None:
    first, second, third = compared.calls
    assert first.code == 130
    assert compared.trained[0] == [("look seed-1", False), ("fixed seed-1", False)]
    last = first.err.splitlines()[-1]
    assert "interrupted; what is done is kept. Go on with: " in last
    assert last.endswith(" ".join(compared.arguments))
    assert second.code == 0, second.err
    assert compared.trained[1] == [("fixed seed-1", True), ("look seed-2", False), ("fixed seed-2", False)]
    assert "look, seed 1 (run 1 of 4): is trained already" in second.err
    assert re.search(r"fixed, seed 1 \(run 2 of 4\): going on, about \d+:\d\d left for all", second.err)
    assert third.code == 0, third.err
    assert compared.trained[2] == []
    assert third.out == second.out
    for name, seed in RUNS:
        assert compared.scores(name, seed).updates == STEPS


def test_its_files(compared: Compared) -> None:
    found = {path.name for path in compared.output.iterdir()}
    assert found == {"data", "runs", "heat-maps", "bleu-by-length.svg", "report.html", "report.json", "report.md"}
    assert {path.name for path in (compared.output / "data").iterdir()} == {"parts.json", "train.jsonl", "valid.jsonl"}
    markdown = (compared.output / "report.md").read_text(encoding="utf-8")
    for target in re.findall(r"!\[.*?\]\((.*?)\)", markdown):
        assert (compared.output / target).is_file()
    assert compared.calls[1].out.strip() == markdown.split("\n## Side by side")[0].strip()


def test_the_significance_is_that_of_the_translations(compared: Compared) -> None:
    references = [line.split("\t")[1] for line in (compared.folder / "test.tsv").read_text().splitlines()]
    one, other = ([compared.scores(name, seed).translations for seed in (1, 2)] for name in ("look", "fixed"))
    first, second = compared.report()["arms"]
    assert first["against_the_first"] == []
    for told, expected in zip(second["against_the_first"], compare_pooled(one, other, references), strict=True):
        assert told["name"] == expected.name
        assert (told["p_value"], told["difference"]) == (expected.p_value, expected.difference)
        assert tuple(told["interval"]) == expected.interval


def test_a_run_is_scored_as_evaluate_scores_it(compared: Compared, command: Command) -> None:
    options = ("--pairs", compared.folder / "test.tsv", "--beam", 2, "--by-length", "--json")
    done = command("evaluate", compared.output / "runs" / "look" / "seed-2", *options)
    expected = json.loads(done.out)
    run = compared.report()["arms"][0]["runs"][1]
    assert run["seed"] == 2
    assert run["bleu"] == pytest.approx(expected["bleu"]["value"])
    assert run["chrf"] == pytest.approx(expected["chrf"]["value"])
    assert run["perplexity"] == pytest.approx(expected["perplexity"])
    lengths = compared.report()["arms"][0]["by_length"]
    assert [bucket["label"] for bucket in lengths] == [bucket["label"] for bucket in expected["by_length"]]
    assert [bucket["sentences"] for bucket in lengths] == [2 * bucket["sentences"] for bucket in expected["by_length"]]


def test_the_alignment_error_rate_is_that_of_align(compared: Compared, command: Command) -> None:
    files = ("--pairs", compared.folder / "test.tsv", "--gold", compared.folder / "gold.txt")
    done = command("align", compared.output / "runs" / "look" / "seed-1", *files)
    rates = [float(rate) for rate in re.findall(r"error rate ([\d.]+)%", done.err)]
    found = compared.scores("look", 1).error_rates
    assert [100 * found[reading] for reading in ("predicts", "consumes")] == pytest.approx(rates, abs=0.005)
    assert compared.scores("fixed", 1).error_rates == {}


def test_it_tells_what_differs_and_nothing_else(compared: Compared) -> None:
    told = compared.report()["differences"]
    assert told["model.recipe"] == {"look": "bahdanau", "fixed": "seq2seq"}
    assert told["model.dropout"] == {"look": 0.2, "fixed": 0.1}
    assert not [key for key in told if key.startswith(("data.", "text.", "search.")) or key.endswith(".seed")]
    assert not [key for key, values in told.items() if values["look"] == values["fixed"]]


def test_the_page_shows_all_of_it_in_one_file(compared: Compared) -> None:
    page = (compared.output / "report.html").read_text(encoding="utf-8")
    assert not re.search(r"https?:|\ssrc=|href=|@import|url\(|<script", page)
    assert not re.search(r'\sstyle="|\son\w+="', page)
    found = parsed(page)
    told = " ".join(" ".join(found.text).split())
    for text in (
        *("Scores", "Against look", "BLEU by source length", "Speed", "What differs", "Side by side"),
        *(
            "12 test sentences",
            "± their standard deviation",
            "Seeds are pooled by sentence",
            "of this machine and moment",
        ),
        *("AER, predicts", "AER, consumes", "model.recipe", "seq2seq", "no attention weights to show"),
        *("trained on pairs.tsv", "held out 10 for validation"),
    ):
        assert text in told, text
    maps = [attributes for tag, attributes in found.seen if attributes.get("class") == "heat-map"]
    assert len(maps) == len(compared.scores("look", 1).maps) == 4
    assert compared.scores("fixed", 1).maps == [None] * 4


def test_the_model_is_an_ordinary_one(compared: Compared) -> None:
    translator = load(compared.output / "runs" / "fixed" / "seed-2")
    test = [line.split("\t")[0] for line in (compared.folder / "test.tsv").read_text().splitlines()]
    found = [one.text for one in translator.stream(test, beam=2)]
    assert found == compared.scores("fixed", 2).translations


def test_a_comparison_that_was_begun_stays_what_it_is(compared: Compared, tmp_path: Path) -> None:
    changed = [*compared.arguments[:-3], "5", *compared.arguments[-2:]]
    assert "was begun with training.max_steps = 4, and it is now 5" in called(changed).mistake()
    pairs = str(compared.folder / "pairs.tsv")
    other = str(write_tsv(tmp_path / "pairs.tsv", letters(201)))
    changed = [other if argument == pairs else argument for argument in compared.arguments]
    assert f"{compared.output}: holds a comparison on other text" in called(changed).mistake()


def test_mistakes_are_told_before_anything_is_trained(tmp_path: Path, command: Command) -> None:
    pairs = write_tsv(tmp_path / "pairs.tsv", letters(40))
    one = write_config(tmp_path / "one.yaml", "bahdanau")
    (tmp_path / "other").mkdir()
    same = write_config(tmp_path / "other" / "one.yaml", "bahdanau")
    away = write_config(tmp_path / "away.yaml", "bahdanau", {"data": {"pairs": "elsewhere.tsv"}})
    narrow = write_config(
        tmp_path / "narrow.yaml", "luong", {"model": {"attention": {"score": "dot"}, "decoder": {"width": 6}}}
    )
    tongue = tmp_path / "tongue.yaml"
    tongue.write_text(yaml.safe_dump({"model": {"recipe": "lm"}, "data": {"text": str(pairs)}}))
    (tmp_path / "wrong.yaml").write_text("model: {recipe: bahdanau, widht: 3}\n")
    links = write_lines(tmp_path / "gold.txt", ["0-0"])
    output = ("--output", tmp_path / "out", "--max-steps", 2)
    cases: list[tuple[tuple[object, ...], str]] = [
        ((one, same, "--pairs", pairs), "a second config of the name 'one'"),
        (
            (one, "bahdanu", "--pairs", pairs),
            "bahdanu: neither a configuration file nor a recipe; did you mean 'bahdanau'",
        ),
        ((one, tmp_path / "wrong.yaml", "--pairs", pairs), "wrong.yaml: "),
        ((one, tmp_path / "absent.yaml", "--pairs", pairs), "absent.yaml: no such file"),
        ((one, "luong"), "no training data: give --pairs FILE"),
        ((one, "luong", "--pairs", tmp_path / "absent.tsv"), "absent.tsv: no such file"),
        ((away, one), "away and one differ in data.pairs"),
        ((one, "--pairs", pairs, "--gold", links), "gold.txt: links of which sentences?"),
        ((one, "--pairs", pairs, "--gold", links, "--gold-pairs", pairs), "1 lines of links for 40 sentence pairs"),
        ((one, "--pairs", pairs, "--test-source", pairs), "is one side only"),
        ((one, "--pairs", pairs, "--tokenize", "13b"), "unknown BLEU tokenizer '13b'"),
        ((one, "--pairs", pairs, "--set", "training.sed=1"), "--set training.sed=1: "),
        ((tongue, "lm"), "tongue: a comparison is of translations, and a language model makes none"),
        ((one, "lm", "--pairs", pairs), "lm: a comparison is of translations"),
    ]
    for arguments, told in cases:
        done = command("compare", *arguments, *output)
        assert told in done.mistake(), (told, done)
    mistaken = command("compare", one, "--pairs", pairs, "--engine", "ctranslate2", *output).last_word()
    assert mistaken.startswith("sightline: one: the ctranslate2 engine cannot run ")
    told = command("compare", one, narrow, "--pairs", pairs, *output).last_word()
    assert told.startswith("sightline: narrow: model.attention.score=dot needs")
    assert not (tmp_path / "out" / "runs").exists()


def test_of_two_directions_the_one_that_translates_is_compared(tmp_path: Path, command: Command) -> None:
    both = write_config(tmp_path / "both.yaml", "luong", {"training": {"agreement": 1.0}})
    plain = write_config(tmp_path / "plain.yaml", "luong")
    output = tmp_path / "out"
    arguments = ("--pairs", write_tsv(tmp_path / "pairs.tsv", letters(60)), "--output", output, "--max-steps", 2)
    done = command("compare", plain, both, *arguments)
    assert done.code == 0, done.err
    arms = json.loads((output / "report.json").read_text(encoding="utf-8"))["arms"]
    assert [arm["name"] for arm in arms] == ["plain", "both"]
    assert arms[0]["parameters"] == arms[1]["parameters"]
    assert all(arm["runs"][0]["updates"] == 2 for arm in arms)
    translated = load(output / "runs" / "both" / "seed-1" / "forward").translate("a b", align=False).text
    assert isinstance(translated, str)
    again = command("compare", plain, both, *arguments)
    assert "both, seed 1 (run 2 of 2): is trained already" in again.err


def test_a_config_with_links_is_taught_on_what_is_left(tmp_path: Path, command: Command) -> None:
    """Parts are held out here, so that links line by line with the text as given are not those of the training part."""
    rows = letters(60)
    links = [" ".join(f"{place}-{place}" for place in range(len(source.split()))) for source, _ in rows]
    given = {"data": {"alignments": str(write_lines(tmp_path / "links.txt", links))}}
    taught = write_config(tmp_path / "taught.yaml", "bahdanau", given)
    plain = write_config(tmp_path / "plain.yaml", "bahdanau")
    output = tmp_path / "out"
    arguments = ("--pairs", write_tsv(tmp_path / "pairs.tsv", rows), "--output", output, "--max-steps", 2)
    done = command("compare", taught, plain, *arguments)
    assert done.code == 0, done.err
    models = {name: load(output / "runs" / name / "seed-1").config for name in ("taught", "plain")}
    assert models["plain"].data.alignments is None
    kept = models["taught"].data.alignments
    assert kept is not None
    assert len(kept.read_text().splitlines()) == len((output / "data" / "train.jsonl").read_text().splitlines()) < 60
    assert models["taught"].model.guided.weight == 0.5
