"""Several sources: comparing configurations of them, and making a Transformer of them recurrent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sightline.translator import load
from tests.commands import Command, settings, write_lines
from tests.test_many_sources_commands import interleaved, write


def test_comparing(command: Command, tmp_path: Path) -> None:
    """Two configs on the same text of two sources: parts are held out of all of it, and scored as `evaluate` does."""
    rows = [
        (f"{a} {n}", f"{b} {n // 2}" if n % 3 else "", f"{c} {n}") for n, (a, b, c) in enumerate(interleaved(80, 1))
    ]
    first, second, target = write(tmp_path, rows, ("a", "b", "c"))
    text = ["--source", first, "--source", second, "--target", target]
    small = ["--max-steps", 2, *settings("luong"), "--set", "search.beam=2", "--set", "data.held_out=8"]
    output = tmp_path / "which"
    hierarchical = ["--set", "model.sources.context=hierarchical"]
    arguments = ["compare", "luong", "bahdanau", *text, *small, *hierarchical, "--output", output]
    done = command(*arguments)
    assert done.code == 0, done.err

    parts = {
        name: [json.loads(line) for line in (output / "data" / f"{name}.jsonl").read_text().splitlines()]
        for name in ("train", "valid", "test")
    }
    assert all(parts.values())
    found = [(row["source"], row["source2"], row["target"]) for part in parts.values() for row in part]
    assert sorted(found) == sorted(rows)
    for side in ("source", "source2", "target"):
        train, valid, test = ({row[side] for row in part} - {""} for part in parts.values())
        assert not (train & valid | train & test | valid & test), side

    report = json.loads((output / "report.json").read_bytes())
    assert [arm["name"] for arm in report["arms"]] == ["luong", "bahdanau"]
    run = output / "runs" / "luong" / "seed-1"
    scored = command("evaluate", run, "--pairs", output / "data" / "test.jsonl", "--beam", 2, "--json")
    expected, (told,) = json.loads(scored.out), report["arms"][0]["runs"]
    assert told["bleu"] == pytest.approx(expected["bleu"]["value"])
    assert told["perplexity"] == pytest.approx(expected["perplexity"])
    sources = [row["source"].split("\t") for row in report["examples"]]
    one, other = next((one, other) for one, other in sources if other)
    for name in ("report.html", "report.md"):
        assert f"{one} │ {other}" in (output / name).read_text(encoding="utf-8"), name

    again = command(*arguments)
    assert (again.code, again.out) == (0, done.out)
    assert again.err.count("is trained already") == 2


def test_comparing_on_test_files_of_each_source(command: Command, tmp_path: Path) -> None:
    first, second, target = write(tmp_path, interleaved(40, 1), ("a", "b", "c"))
    tests = write(tmp_path, interleaved(3, 2), ("d", "e", "f"))
    arguments = ["compare", "luong", "--source", first, "--source", second, "--target", target, "--max-steps", 1]
    arguments += ["--test-source", tests[0], "--test-source", tests[1], "--test-target", tests[2]]
    done = command(*arguments, *settings("luong"), "--output", tmp_path / "out")
    assert done.code == 0, done.err
    report = json.loads((tmp_path / "out" / "report.json").read_bytes())
    assert report["sentences"] == 3
    assert {row["source"] for row in report["examples"]} == {"\t".join(row[:2]) for row in interleaved(3, 2)}


def test_mistakes_are_told_in_a_line(command: Command, tmp_path: Path) -> None:
    first, second, target = write(tmp_path, interleaved(4, 5), ("a", "b", "c"))
    links, pairs = write_lines(tmp_path / "links", ["0-0"]), write_lines(tmp_path / "wide.tsv", ["a\tb\tc"])
    two = ("--source", first, "--source", second, "--target", target)
    output = ("--output", tmp_path / "out")
    told = command("compare", "luong", *two, "--test-source", first, "--test-target", target, *output).mistake()
    assert "1 source file" in told
    told = command("compare", "luong", *two, "--gold", links, "--test-pairs", pairs, *output).mistake()
    assert f"{links}: word links tell of one source only, and the configs read 2" in told
    one, other = (tmp_path / f"{name}.yaml" for name in ("one", "other"))
    one.write_text("model: {recipe: luong}")
    other.write_text("model: {recipe: luong, sources: {count: 2}}")
    told = command("compare", one, other, "--pairs", pairs, *output).mistake()
    assert "one and other differ in model.sources.count (1 and 2): a comparison needs the same text" in told
    assert not (tmp_path / "out").exists()


def test_converting(command: Command, tmp_path: Path) -> None:
    """A Transformer of two sources becomes recurrent as one of one source does, in both of its attentions."""
    first, second, target = write(tmp_path, interleaved(40, 1), ("a", "b", "c"))
    two = ["--source", first, "--source", second, "--target", target]
    context = ["--set", "model.sources.context=concatenated"]
    done = command("train", *two, *settings(), *context, "--max-steps", 2, "--output", tmp_path / "m")
    assert done.code == 0, done.err
    done = command("convert", tmp_path / "m", "--to", "rnn", "--cross", "--features", 4, *two, "--max-steps", 1)
    assert done.code == 0, done.err
    config = load(tmp_path / "m-rnn").config
    assert config.model.source_count == 2
    assert (config.model.decoder.attention, config.model.decoder.cross_attention) == ("linear", "linear")
    assert command("translate", tmp_path / "m-rnn", stdin=b"a b\tc d\n").code == 0
    told = command("convert", tmp_path / "m", "--to", "rnn", "--source", first, "--target", target).mistake()
    assert "data.source names 1 file, and the model reads 2 sources" in told
