"""Several sources from files to translations: the toy task, the command line as a user runs it, the page's examples.

The task: the first source holds the odd words of the target, the second the even ones.
"""

from __future__ import annotations

import json
import random
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from sightline.architecture import SourcesConfig
from sightline.config import build_config
from sightline.data import Pair, encode_pairs
from sightline.errors import SightlineError
from sightline.filters import Filters, Verdict
from sightline.preparing import prepare
from sightline.readers import TextFiles
from sightline.source_texts import SeveralTokenizer, dividers
from sightline.text import WordTokenizer
from sightline.training.run import train
from sightline.translator import Translator, load
from tests.commands import Command, settings, write_lines

PAGE = (Path(__file__).parent.parent / "docs" / "many_sources.md").read_text(encoding="utf-8")
LETTERS = "abcdef"
Row = tuple[str, str, str]


def interleaved(count: int, seed: int) -> list[Row]:
    draw = random.Random(seed)
    rows = []
    for _ in range(count):
        length = draw.randint(1, 3)
        odd, even = ([draw.choice(LETTERS) for _ in range(length)] for _ in range(2))
        rows.append(
            (" ".join(odd), " ".join(even), " ".join(word for both in zip(odd, even, strict=True) for word in both))
        )
    return rows


def write(folder: Path, rows: list[Row], names: tuple[str, str, str]) -> list[Path]:
    return [write_lines(folder / name, [row[side] for row in rows]) for side, name in enumerate(names)]


def trained(folder: Path, sources: list[Path], target: Path, model: dict[str, Any], steps: int) -> Translator:
    values = {
        "text": {"tokenizer": "word"},
        "data": {"source": [*map(str, sources)], "target": str(target), "batch_tokens": 256, "held_out": 40},
        "model": {
            "embedding": 32,
            "dropout": 0.0,
            "encoder": {"layers": 1, "width": 16},
            "decoder": {"layers": 1, "width": 32},
            **model,
        },
        "training": {
            "max_steps": steps,
            "learning_rate": 1e-2,
            "warmup": 10,
            "label_smoothing": 0.0,
            "validate_bleu": 10,
            "validate_every": 1000,
        },
    }
    train(build_config(values, "luong"), folder)
    return load(folder)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return write(tmp_path_factory.mktemp("text"), interleaved(1200, 0), ("first", "second", "target"))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, files: list[Path]) -> Path:
    """Knows the task, with two workers in training."""
    output = tmp_path_factory.mktemp("models") / "two"
    sources = {"sources": {"context": "hierarchical", "encoder": "shared"}}
    trained(output, files[:2], files[2], sources, 350)
    return output


def accuracy(translator: Translator, rows: list[Row], sources: int) -> tuple[float, float]:
    """The share of right words at odd and at even places, with what comes before given."""
    right: tuple[list[bool], list[bool]] = ([], [])
    for row in rows:
        words = row[2].split()
        given = row[0] if sources == 1 else "\t".join(row[:2])
        for place in range(len(words)):
            begun = " ".join(words[:place])
            found = translator.translate(given, align=False, beam=1, prefix=begun or None).text.split()
            right[place % 2].append(found[place : place + 1] == [words[place]])
    return sum(right[0]) / len(right[0]), sum(right[1]) / len(right[1])


def test_two_sources_tell_all_and_one_of_them_half(tmp_path: Path, model: Path, files: list[Path]) -> None:
    rows = interleaved(60, 7)
    translator = load(model)
    found = translator.translate([row[:2] for row in rows], align=False)
    words = [(one, two) for one, row in zip(found, rows, strict=True) for two in [row[2]]]
    assert sum(one.text == two for one, two in words) >= 0.98 * len(rows)
    assert min(accuracy(translator, rows[:25], 2)) >= 0.98
    alone = trained(tmp_path / "one", files[:1], files[2], {}, 150)
    odd, even = accuracy(alone, rows[:25], 1)
    assert odd > 0.9
    assert even < 0.4  # chance is 1 in 6


def test_translating(command: Command, model: Path, tmp_path: Path) -> None:
    rows = interleaved(6, 3)
    first, second, _ = write(tmp_path, rows, ("a", "b", "c"))
    by_files = command("translate", model, "--source", first, "--source", second)
    assert by_files.code == 0, by_files.err
    lines = "".join(f"{row[0]}\t{row[1]}\n" for row in rows)
    assert command("translate", model, stdin=lines.encode()).out == by_files.out
    joined = tmp_path / "joined.txt"
    joined.write_text(lines, encoding="utf-8")
    output = tmp_path / "out.txt"
    assert command("translate", model, joined, "--output", output, "--shard-lines", "2", "--workers", "1").code == 0
    assert output.read_text(encoding="utf-8") == by_files.out
    python = load(model).translate([row[:2] for row in rows], align=False)
    assert [one.text for one in python] == by_files.out.splitlines()
    live = command("translate", model, "--live", "--beam", "1", stdin=lines.encode())
    assert live.code == 0
    assert len(live.out.splitlines()) == 6


def test_a_missing_source(command: Command, model: Path) -> None:
    done = command("translate", model, stdin=b"a b\t\n\td\n\t\n\nc\td\n")
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert len(lines) == 5
    assert lines[2:4] == ["", ""]
    assert all(lines[place] for place in (0, 1, 4))


@pytest.mark.parametrize(("line", "told"), [("a b", "1 source where"), ("a\tb\tc", "3 sources where")])
def test_a_line_of_other_sources(command: Command, model: Path, line: str, told: str) -> None:
    assert (
        f"standard input, line 1: {told} the model reads 2"
        in command("translate", model, stdin=f"{line}\n".encode()).mistake()
    )


def test_alignments(command: Command, model: Path, tmp_path: Path) -> None:
    first, second = write_lines(tmp_path / "a", ["a b", "c", ""]), write_lines(tmp_path / "b", ["d e", "", "f"])
    target = write_lines(tmp_path / "c", ["a d b e", "c c", "f f"])
    page, picture = tmp_path / "page.html", tmp_path / "maps.svg"
    done = command(
        "align", model, "--source", first, "--source", second, "--target", target, "--html", page, "--svg", picture
    )
    assert done.code == 0, done.err
    lines = [line.split("\t") for line in done.out.splitlines()]
    assert [len(columns) for columns in lines] == [2, 2, 2]
    assert {link.split("-")[1] for column in lines[0] for link in column.split()} == {"0", "1", "2", "3"}
    assert all(int(link.split("-")[0]) < 2 for column in lines[0] for link in column.split())
    assert lines[1][1] == ""
    assert lines[2][0] == ""
    assert "│" in page.read_text(encoding="utf-8")
    shown = command("align", model, "--source", first, "--source", second, "--target", target, "--show")
    assert "│" in shown.out
    told = command("translate", model, "--align", "--json", stdin=b"a b\td e\n")
    record = json.loads(told.out)
    assert record["source"] == "a b\td e"
    assert record["source_words"] == ["a", "b", "│", "d", "e"]
    assert record["alignment"].count("\t") == 1
    gold = command("align", model, "--source", first, "--source", second, "--target", target, "--gold", target)
    assert "one source only" in gold.mistake()


def test_scores(command: Command, model: Path, tmp_path: Path) -> None:
    rows = interleaved(20, 11)
    first, second, target = write(tmp_path, rows, ("a", "b", "c"))
    table = write_lines(tmp_path / "all.tsv", ["\t".join(row) for row in rows])
    given = ("--source", first, "--source", second, "--target", target)
    done = command("evaluate", model, *given, "--by-length", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["bleu"]["value"] > 90
    assert json.loads(command("evaluate", model, "--pairs", table, "--by-length", "--json").out) == json.loads(done.out)
    scored = command("score", model, *given)
    assert scored.code == 0, scored.err
    assert command("score", model, "--pairs", table).out == scored.out
    # The sources the other way round make what was right improbable.
    other = command("score", model, "--source", second, "--source", first, "--target", target)
    assert sum(map(float, other.out.split())) < 5 * sum(map(float, scored.out.split()))
    wrong = write_lines(tmp_path / "wrong", [f"{row[1]} {row[0]}" for row in rows])
    contrastive = command("score", model, *given, "--contrastive", wrong)
    assert contrastive.code == 0
    assert "first" in contrastive.out


def test_mistakes_are_told_in_a_line(command: Command, model: Path, tmp_path: Path) -> None:
    rows = interleaved(4, 5)
    first, second, target = write(tmp_path, rows, ("a", "b", "c"))
    short = write_lines(tmp_path / "short", ["a"])
    told = command("evaluate", model, "--source", first, "--source", short, "--target", target).mistake()
    assert f"{first} has 4 lines, {short} 1: line 2 of {first} has no partner" in told
    assert "1 lines" not in told.replace("has 4 lines", "")
    told = command("translate", model, "--source", first, "--source", short).mistake()
    assert f"{first} has 4 lines, {short} 1" in told
    told = command("evaluate", model, "--source", first, "--target", target).mistake()
    assert "1 source file" in told
    assert "reads 2 sources: give a file for each" in told
    told = command("translate", model, "--source", first, "--source", second, "--source", target).mistake()
    assert "3 source files" in told
    told = command("translate", model, first, "--source", second).mistake()
    assert "not both" in told
    told = command("export", model, tmp_path / "out", "--to", "ctranslate2", "--pairs", tmp_path / "x.tsv").mistake()
    assert "several sources" in told
    told = command("translate", model, "--engine", "ctranslate2", stdin=b"a\tb\n").mistake()
    assert "several sources" in told
    told = command("train", "--source", first, "--source", second, "--output", tmp_path / "m").mistake()
    assert "2 --source and 0 --target" in told
    told = command(
        "train", "--source", first, "--target", target, "--set", "model.sources.context=hierarchical", "--output",
        tmp_path / "m", "--recipe", "luong",
    ).last_word()  # fmt: skip
    assert "is for several sources, and there is one" in told
    wide = write_lines(tmp_path / "wide.tsv", ["a\tb"])
    told = command("evaluate", model, "--pairs", wide).mistake()
    assert "expected three columns, 2 sources and the target with tabs between them, found 2 columns" in told


def test_examples(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command of the page; those that train get sizes that a test can afford, and make only a few updates."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path, interleaved(60, 1), ("first.txt", "second.txt", "target.txt"))
    rows = interleaved(4, 2)
    write(tmp_path, rows, ("heldout.first", "heldout.second", "heldout.target"))
    for name, some in (("heldout.tsv", rows), ("three_columns.tsv", interleaved(60, 3))):
        write_lines(tmp_path / name, ["\t".join(row) for row in some])
    commands = "".join(re.findall(r"^```sh\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)).splitlines()
    assert len(commands) == 8
    for line in commands:
        given, _, rest = line.rpartition(" | ")
        words = shlex.split(rest)[1:]
        if words[0] in ("train", "compare"):
            words = [*(word if word != "300" else "2" for word in words), *settings("luong")]
        stdin = shlex.split(given)[1].encode().decode("unicode_escape").encode() if given else b""
        done = command(*words, stdin=stdin)
        assert done.code == 0, (line, done.err)
    (python,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    namespace: dict[str, Any] = {}
    exec(f"import sightline\n{python}", namespace)
    card = (tmp_path / "runs" / "two" / "README.md").read_text(encoding="utf-8")
    assert "It turns 2 source sentences, with tabs between them, into one target sentence" in card


def test_keys_are_told() -> None:
    told = set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE))
    assert told == set(SourcesConfig.model_fields)


def test_a_run_with_vocabularies_of_its_own_goes_on(command: Command, files: list[Path], tmp_path: Path) -> None:
    given = ["--source", files[0], "--source", files[1], "--target", files[2]]
    valid = ["--valid-source", files[0], "--valid-source", files[1], "--valid-target", files[2]]
    options = [
        *settings("luong"),
        "--set",
        "text.joint=false",
        "--set",
        "training.workers=2",
        "--output",
        tmp_path / "m",
    ]
    done = command("train", "--recipe", "luong", *given, *valid, *options, "--max-steps", "2")
    assert done.code == 0, done.err
    assert {path.name for path in (tmp_path / "m").glob("*.vocab")} == {"source.vocab", "source2.vocab", "target.vocab"}
    assert command("translate", tmp_path / "m", stdin=b"a b\tc\n").code == 0
    more = command("train", "--resume", "--more-steps", "2", "--output", tmp_path / "m")
    assert more.code == 0, more.err


def three(folder: Path) -> dict[str, Path]:
    """The same pairs in every format."""
    rows = [("a", "x\ty", "A"), ("", "z", "B")]
    plain = [(one, two.replace("\t", " "), three) for one, two, three in rows]
    names = ("source", "source2", "target")
    return {
        "tsv": write_lines(folder / "p.tsv", ["\t".join(row) for row in plain]),
        "csv": write_lines(folder / "p.csv", ["target,source2,source", *(f"{t},{s},{f}" for f, s, t in plain)]),
        "plain csv": write_lines(folder / "q.csv", [",".join(row) for row in plain]),
        "jsonl": write_lines(folder / "p.jsonl", [json.dumps(dict(zip(names, row, strict=True))) for row in rows]),
    }


def test_readers_of_several_sources(tmp_path: Path) -> None:
    expected = [Pair("a\tx y", "A"), Pair("\tz", "B")]
    for path in three(tmp_path).values():
        assert TextFiles.given(pairs=path, sources=2).all() == expected
    sources = [write_lines(tmp_path / "one", ["a", ""]), write_lines(tmp_path / "two", ["x\ty", "z"])]
    target = write_lines(tmp_path / "target", ["A", "B"])
    assert TextFiles.given(sources, target, sources=2).all() == expected
    with pytest.raises(SightlineError, match="one source, and the model reads 2"):
        TextFiles.given(pairs=tmp_path / "m.tmx", languages=("en", "de"), sources=2)


def test_tokens_of_several_sources() -> None:
    words = WordTokenizer([*"abc"], "nfc", False)
    both = SeveralTokenizer([words, words])
    assert both.encode("a b\tc") == [4, 5, 3, 6]
    assert both.encode("\tc") == [3, 6]
    assert both.encode("a\t") == [4, 3]
    assert both.encode("\t") == both.encode("") == []
    assert both.encode_words("a b\tc") == ([4, 5, 3, 6], ["a", "b", "│", "c"], [0, 1, -1, 3])
    assert dividers(both, "a b\tc") == (2,)
    pairs = [Pair("a b\tc", "c"), Pair("\t", "c"), Pair("a\t", "c"), Pair("a a a\tb b", "c")]
    encoded, account = encode_pairs(pairs, both, words, max_length=2)
    assert account.kept == 2
    assert account.dropped == {Verdict.EMPTY: 1, Verdict.TOO_LONG: 1}
    assert encoded.source.lengths.tolist() == [5, 3]


def test_filters_ask_each_source() -> None:
    judge = Filters(10, ratio=3, identical=True, sources=2).judge()
    assert judge(Pair("ab\tcd", "ef")) == Verdict.TRAIN
    assert judge(Pair("\tcd", "ef")) == Verdict.TRAIN
    assert judge(Pair("\t", "ef")) == Verdict.EMPTY
    assert judge(Pair("ab\tcdcdcdcd", "ef")) == Verdict.RATIO
    assert judge(Pair("ab\tef", "ef")) == Verdict.IDENTICAL


def test_no_sentence_of_any_source_is_in_both_parts(tmp_path: Path) -> None:
    """The second source has few sentences, which tie pairs together; empty ones do not."""
    draw = random.Random(0)
    rows = [(f"s {n}", draw.choice(["", f"t {n // 4}"]), f"u {n}") for n in range(200)]
    first, second, target = write(tmp_path, rows, ("a", "b", "c"))
    data = {
        "source": [str(first), str(second)],
        "target": str(target),
        "held_out": 30,
        "cache": str(tmp_path / "cache"),
    }
    config = build_config({"data": data, "text": {"tokenizer": "word"}}, "luong")
    prepared = prepare(config, 50, texts=1000)
    held = {pair.source.split("\t")[1] for pair in prepared.texts} - {""}
    texts = {row[0]: row[1] for row in rows}
    kept = {*texts} - {pair.source.split("\t")[0] for pair in prepared.texts}
    assert len(prepared.texts) > 15
    assert held
    assert not held & {texts[name] for name in kept}
    again = prepare(config, 50, texts=1000)
    assert again.digest == prepared.digest
    batch = prepared.train.batch(prepared.train.numbers[:3] * 0)
    assert len(batch.sources) == 2
    # The same files as one source each are another text.
    swapped = build_config(
        {"data": {**data, "source": [str(second), str(first)]}, "text": {"tokenizer": "word"}}, "luong"
    )
    assert prepare(swapped, 50, texts=1000).digest != prepared.digest
