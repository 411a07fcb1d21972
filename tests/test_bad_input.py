"""What a user can do wrong: each mistake gets one line, exit code 2, and no traceback."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.commands import Command, finish, letters, settings, start, write_lines, write_tsv

LONG = {"one word": "x" * 100_000, "many words": "x " * 50_000}


@pytest.fixture
def model(trained: Any) -> Path:
    folder: Path = trained("transformer")
    return folder


@pytest.fixture
def own_model(trained: Any, tmp_path: Path) -> Path:
    """A copy that may be broken."""
    return Path(shutil.copytree(trained("transformer"), tmp_path / "own"))


# Files that are given


@pytest.mark.parametrize(
    "line",
    [
        ["train", "--pairs", "no.tsv"],
        ["train", "--source", "no.tsv", "--target", "no.tsv"],
        ["translate", "MODEL", "no.tsv"],
        ["evaluate", "MODEL", "--pairs", "no.tsv"],
        ["align", "MODEL", "--pairs", "no.tsv"],
        ["align", "MODEL", "--source", "no.tsv"],
    ],
)
def test_missing_file(line: list[str], command: Command, model: Path, tmp_path: Path) -> None:
    given = [model if part == "MODEL" else tmp_path / part if part == "no.tsv" else part for part in line]
    if line[0] == "train":
        given += ["--output", tmp_path / "model"]
    assert command(*given).mistake().endswith("no.tsv: no such file")
    assert not (tmp_path / "model").exists()


def test_places_that_are_not_what_they_should_be(command: Command, model: Path, tmp_path: Path) -> None:
    pairs = write_tsv(tmp_path / "pairs.tsv", letters(10))
    told = command("train", "--pairs", pairs, "--output", pairs / "below" / "model").mistake()
    assert "cannot make the folder: pairs.tsv is a file; choose another place" in told
    told = command("train", "--pairs", tmp_path, "--output", tmp_path / "out").mistake()
    assert told.endswith("this is a folder; name a file of pairs in it")
    told = command("translate", model, pairs, "--output", pairs / "out.txt").mistake()
    assert "cannot write: what should be its folder is a file" in told
    told = command("translate", model.parent).mistake()
    assert "not a model folder: it has no config.yaml; did you mean" in told
    told = command("align", model, "--pairs", pairs, "--compare", model).mistake()
    assert "--compare needs --html FILE" in told


@pytest.mark.parametrize("name", ["train", "evaluate", "align"])
def test_unequal_line_counts(name: str, command: Command, model: Path, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "s", ["a", "b", "c"])
    target = write_lines(tmp_path / "t", ["A", "B"])
    where = ["--output", tmp_path / "out"] if name == "train" else [model]
    told = command(name, *where, "--source", source, "--target", target).mistake()
    assert told.endswith(f"{source} has 3 lines, {target} 2: line 3 of {source} has no partner")


@pytest.mark.parametrize("name", ["train", "translate", "evaluate", "align"])
def test_invalid_utf8(name: str, command: Command, model: Path, tmp_path: Path) -> None:
    path = tmp_path / "latin.tsv"
    path.write_bytes("a\tA\ngroß\tA\n".encode("latin-1"))
    given = {
        "train": ["--pairs", path, "--output", tmp_path / "out"],
        "translate": [model, path],
    }.get(name, [model, "--pairs", path])
    assert f"{path}, line 2: not valid UTF-8 (byte 0xdf at column 4)" in command(name, *given).mistake()


def test_invalid_utf8_from_a_pipe_comes_after_the_lines_before_it(command: Command, model: Path) -> None:
    done = command("translate", model, stdin=b"a b\n\nc\xff\nd\n")
    assert done.out == "A B\n\n"
    assert "standard input, line 3: not valid UTF-8" in done.mistake()


def test_empty_files(command: Command, model: Path, tmp_path: Path) -> None:
    path = tmp_path / "empty.tsv"
    path.touch()
    assert "empty.tsv: the file is empty" in command("train", "--pairs", path, "--output", tmp_path / "o").mistake()
    assert "empty.tsv: the file is empty" in command("evaluate", model, "--pairs", path).mistake()
    assert "empty.tsv: the file is empty" in command("align", model, "--source", path).mistake()
    done = command("translate", model, path)  # nothing in, nothing out
    assert (done.code, done.out, done.err) == (0, "", "")


@pytest.mark.parametrize("kind", LONG)
def test_a_line_of_100000_characters_is_refused(kind: str, command: Command, model: Path, tmp_path: Path) -> None:
    given = write_lines(tmp_path / "long.txt", ["a b", LONG[kind], "c"])
    short = write_lines(tmp_path / "short.txt", ["A B", "C", "C"])
    tokens = "50,000" if kind == "many words" else "1"
    if tokens == "1":  # to a vocabulary of words it is one unknown word
        assert command("translate", model, given).out == "A B\n" + command("translate", model, stdin=b"x\n").out + "C\n"
        return
    done = command("translate", model, given)
    assert done.out == ""  # a file is looked through before the work begins
    refusal = f"long.txt, line 2: {tokens} tokens, more than the 1,000 that this model takes at once: split the line"
    assert refusal in done.mistake()
    streamed = command("translate", model, stdin=given.read_bytes())
    assert streamed.out == "A B\n"  # of a stream, what came before is answered
    assert "standard input, line 2: 50,000" in streamed.mistake()
    written = command("translate", model, "--output", tmp_path / "out", stdin=given.read_bytes()).mistake()
    assert written.endswith(f"; the lines before it are in {tmp_path / 'out.partial'}")
    assert (tmp_path / "out.partial").read_text() == "A B\n"
    assert not (tmp_path / "out").exists()
    for name in ("evaluate", "align"):
        for sides in ((given, short), (short, given)):
            done = command(name, model, "--source", sides[0], "--target", sides[1])
            assert done.out == ""
            assert refusal in done.mistake()


@pytest.mark.parametrize("tokenizer", ["unigram", "char"])
def test_training_drops_a_line_of_100000_characters(tokenizer: str, command: Command, tmp_path: Path) -> None:
    rows = [*letters(12), (LONG["one word"], "A"), ("a", LONG["many words"]), ("", "A"), ("a", " ")]
    pairs, model = write_tsv(tmp_path / "pairs.tsv", rows), tmp_path / "model"
    options = [*settings(), "--set", f"text.tokenizer={tokenizer}", "--set", "training.validate_bleu=0"]
    done = command("train", "--pairs", pairs, "--output", model, "--max-steps", 1, *options)
    assert done.code == 0, done.err
    assert "training on 11 pairs; dropped 2 with an empty side, 2 too long" in done.err
    for long in LONG.values():
        done = command("translate", model, stdin=f"a\n{long}\n".encode())
        assert done.out.count("\n") == 1
        assert re.search(r"standard input, line 2: \d+,\d+ tokens, more than the 1,000", done.mistake())


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("x.tsv", "a\tb\nc\n", "x.tsv, line 2: expected two columns"),
        ("x.tsv", "a\tb\tc\n", "x.tsv, line 1: expected two columns"),
        ("x.jsonl", '{"source": "a", "target": "b"}\n5\n', "x.jsonl, line 2: expected an object"),
        ("x.jsonl", '{"source": "a"}\n', "x.jsonl, line 1: 'target' is missing"),
        ("x.jsonl", "{\n", "x.jsonl, line 1: not valid JSON"),
        ("x.csv", "a,b,c\n", "x.csv, line 1: expected two columns"),
        ("x.txt", "a,b\n", "x.txt: a file of pairs must end in .tsv"),
        ("x.tmx", "<tmx/>", "x.tmx: a .tmx file may hold many languages: set data.source_language"),
        ("x.parquet", "a,b\n", "x.parquet: broken Parquet data"),
        ("x.csv.zst", "a,b\n", "x.csv.zst: broken zstd data"),
        ("x.tsv.gz", "a\tb\n", "x.tsv.gz: broken gzip data"),
    ],
)
def test_files_of_another_kind(name: str, content: str, told: str, command: Command, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    assert told in command("train", "--pairs", tmp_path / name, "--output", tmp_path / "model").mistake()


def test_gzip_without_its_name(command: Command, tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_bytes(gzip.compress(b"a\tb\n"))
    told = command("train", "--pairs", tmp_path / "x.tsv", "--output", tmp_path / "model").mistake()
    assert "this is gzipped data; give the file a name that ends in .gz" in told


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ([], "no training data: give --pairs FILE, or --source FILE and --target FILE"),
        (["--source", "a"], "a is one side only"),
        (["--target", "a"], "a is one side only"),
        (["--pairs", "p.tsv", "--source", "a"], "not both"),
        (["--pairs", "p.tsv", "--valid-source", "a"], "a is one side only"),
        (["--pairs", "."], ".: this is a folder; name a file of pairs in it"),
        (["--source", ".", "--target", "."], "this is a folder, name a file"),
    ],
)
def test_data_that_do_not_go_together(
    options: list[str], told: str, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_tsv(Path("p.tsv"), letters(9))
    write_lines(Path("a"), ["a"])
    assert told in command("train", *options, "--output", "model").mistake()
    assert not Path("model").exists()


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([("a", "A")], "too little to train on: 1 pair, and one must be held out"),
        ([("a", "A")] * 20, "repeated sentences tie them all together; give validation files"),
        ([("", "A"), ("a", "")], "nothing is left to train on: 0 pairs; dropped 2 with an empty side"),
    ],
)
def test_a_corpus_that_is_none(rows: list[tuple[str, str]], told: str, command: Command, tmp_path: Path) -> None:
    pairs = write_tsv(tmp_path / "p.tsv", rows)
    assert told in command("train", "--pairs", pairs, "--output", tmp_path / "model").mistake()


@pytest.mark.parametrize("count", [2, 3, 10])
def test_a_corpus_that_is_tiny_is_trained_on(count: int, command: Command, tmp_path: Path) -> None:
    pairs = write_tsv(tmp_path / "p.tsv", [(f"{number} {number * 7}", f"{number * 3}") for number in range(count)])
    options = [*settings(), "--set", "text.tokenizer=unigram"]
    done = command("train", "--pairs", pairs, "--output", tmp_path / "model", "--max-steps", 2, *options)
    assert done.code == 0, done.err
    assert f"held out 1 of {count} pairs" in done.err
    assert command("translate", tmp_path / "model", stdin=b"1 7\n").code == 0


def test_nothing_to_validate_with(command: Command, toy_pairs: Path, tmp_path: Path) -> None:
    valid = write_tsv(tmp_path / "v.tsv", [("", "A")])
    done = command("train", "--pairs", toy_pairs, "--valid-pairs", valid, "--output", tmp_path / "m", *settings())
    assert "nothing is left to validate with: 0 pairs; dropped 1 with an empty side" in done.last_word()


# Options and keys


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--recipe", "transfomer"], "unknown recipe 'transfomer'; did you mean 'transformer'?"),
        (
            ["--set", "training.sed=1"],
            "--set training.sed=1: unknown key 'training.sed'; did you mean 'training.seed'",
        ),
        (["--set", "modle.dropout=0"], "unknown key 'modle'; did you mean 'model'?"),
        (["--set", "attention.score=dot"], "unknown key 'attention'; did you mean 'model.attention.score'?"),
        (["--set", "model.encoder.hats=2"], "unknown key 'model.encoder.hats'; did you mean 'model.encoder.heads'?"),
        (["--set", "training.seed"], "expected section.key=value"),
        (["--set", "training.seed=[1"], "the value is not valid YAML"),
        (["--set", "training.seed=2026-02-30"], "the value is not valid YAML"),
        (["--set", "training.schedule=cosin"], "training.schedule = 'cosin': expected 'inverse_sqrt', 'noam'"),
        (["--set", "training.learning_rate=.nan"], "training.learning_rate = nan: expected a finite number"),
        (["--set", "training.betas=[0.9, 1]"], "training.betas.1 = 1: expected less than 1"),
        (["--set", "data.pairs=5"], "data.pairs = 5: expected the name of a file"),
        (["--set", "model=5"], "'model' must be a section"),
        (["--set", "data.held_out=400"], "cannot hold out 400 of 400 pairs"),
        (["--set", "training.bleu_tokenize=13b"], "unknown BLEU tokenizer '13b'; did you mean '13a'?"),
        (["--set", "training.metric=bleu", "--set", "training.validate_bleu=0"], "needs training.validate_bleu"),
        (["--max-minutes", "0"], "training.max_minutes = 0.0: expected more than 0"),
        (["--max-minutes", "nan"], "training.max_minutes = nan"),
        (["--max-steps", "0"], "Invalid value for '--max-steps'"),
        (["--max-steps", "x"], "Invalid value for '--max-steps'"),
        (["--seed", "-1"], "training.seed = -1"),
        (["--seed", str(2**70)], "training.seed = "),
        (["--outptu", "x"], "No such option: --outptu; did you mean --output? (see sightline train --help)"),
        (["--bogus"], "No such option: --bogus (see sightline train --help)"),
        (["no.yaml"], "no.yaml: no such file; `sightline config RECIPE > no.yaml` writes one to start from"),
        (["--recipe", "seq2seq", "--set", "model.attention.score=dot"], "has no such choice, only bahdanau and luong"),
        (["--set", "model.decoder.input_feeding=false"], "the recipe transformer has no such choice, only luong"),
        (["my.tsv"], "my.tsv: not a configuration (.yaml); text to train on goes after --pairs or --source"),
        (["bad.yaml"], "bad.yaml: unknown key 'trainig'; did you mean 'training'?"),
        (["broken.yaml"], "broken.yaml, line 2: not valid YAML"),
        (["list.yaml"], "list.yaml: expected sections with keys"),
        (["."], ".: cannot read the configuration: Is a directory"),
    ],
)
def test_options_and_keys(
    options: list[str],
    told: str,
    command: Command,
    toy_pairs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad.yaml").write_text("trainig: {seed: 1}\n")
    Path("broken.yaml").write_text("training:\n  seed: 1: 2\n")
    Path("list.yaml").write_text("- a\n")
    assert told in command("train", *options, "--pairs", toy_pairs, "--output", "model").mistake()
    assert not Path("model").exists()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--set", "model.decoder.heads=3"], "3 attention heads do not divide the width 8"),
        (["--set", "text.joint=false"], "model.tie=all needs one vocabulary"),
        (["--set", "model.embedding=1000000000000"], "the model does not fit in memory"),
        (["--set", "training.learning_rate=1e30"], "no validation gave a number, so there is no model"),
        (["--set", "training.max_minutes=1e-9"], "no validation gave a number, so there is no model"),
    ],
)
def test_settings_that_cannot_work(
    options: list[str], told: str, command: Command, toy_pairs: Path, tmp_path: Path
) -> None:
    line = ["train", "--pairs", toy_pairs, "--output", tmp_path / "model", "--max-steps", 2, *settings()]
    assert told in command(*line, *options).last_word()


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (["translate", "MODEL", "--beam", "0"], "Invalid value for '--beam'"),
        (["translate", "MODEL", "--n-best", "-1"], "Invalid value for '--n-best'"),
        (["align", "MODEL", "--limit", "0"], "Invalid value for '--limit'"),
        (["evaluate", "MODEL", "--pairs", "p.tsv", "--tokenize", "13b"], "did you mean '13a'?"),
        (["evaluate", "MODEL"], "no text: give --pairs FILE"),
        (["align", "MODEL", "--pairs", "p.tsv", "--choose"], "--choose needs --gold"),
        (["demo", "--minutes", "0"], "Invalid value for '--minutes'"),
        (["config", "lung"], "unknown recipe 'lung'; did you mean 'luong'?"),
        (["config"], "Missing argument 'RECIPE'"),
        (["tranlate"], "No such command 'tranlate'"),
    ],
)
def test_other_commands(line: list[str], told: str, command: Command, model: Path) -> None:
    assert told in command(*[model if part == "MODEL" else part for part in line]).mistake()


# Model folders


@pytest.mark.parametrize("name", ["translate", "evaluate", "align"])
def test_what_is_no_model(name: str, command: Command, toy_pairs: Path, tmp_path: Path) -> None:
    options = [] if name == "translate" else ["--pairs", toy_pairs]
    (tmp_path / "empty").mkdir()
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "config.yaml").write_text("name: something else\n")
    assert "missing: no such folder" in command(name, tmp_path / "missing", *options).mistake()
    assert "letters.tsv: this is a file" in command(name, toy_pairs, *options).mistake()
    assert "empty: not a model folder" in command(name, tmp_path / "empty", *options).mistake()
    assert "its 'sightline' section is missing" in command(name, tmp_path / "foreign", *options).mistake()


def test_another_version_of_the_format(command: Command, own_model: Path) -> None:
    config = own_model / "config.yaml"
    config.write_text(config.read_text().replace("format: 1", "format: 99"))
    told = command("translate", own_model).mistake()
    assert re.search(r"format 99, but this Sightline \(.*\) reads format 1: use version", told)


def test_truncated_weights(command: Command, own_model: Path) -> None:
    weights = own_model / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    assert f"{weights}: not a safetensors file, or cut short" in command("translate", own_model).mistake()
    weights.unlink()
    assert "no model.safetensors yet" in command("translate", own_model).mistake()


def test_a_foreign_tokenizer(command: Command, own_model: Path) -> None:
    vocabulary = own_model / "joint.vocab"
    values = json.loads(vocabulary.read_text())
    vocabulary.write_text(json.dumps({**values, "entries": values["entries"][::-1]}))
    assert "not the tokenizer this model was trained with" in command("translate", own_model).mistake()
    vocabulary.unlink()
    assert "the tokenizer joint.vocab is missing" in command("translate", own_model).mistake()


def test_a_process_of_its_own_says_the_same() -> None:
    done = finish(start("config", "lung"))
    assert done.mistake() == "sightline: command line: unknown recipe 'lung'; did you mean 'luong'?"
