"""The commands from end to end, as a user runs them."""

from __future__ import annotations

import gzip
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from sightline import demo
from sightline.cli import app
from sightline.config import RunConfig, build_config, merge
from sightline.recipes import RECIPES as DESCRIBED
from tests.commands import RECIPES, Command, finish, letters, settings, start, tiny, write_lines, write_tsv

COMMANDS = (
    *("train", "translate", "evaluate", "align", "score", "export", "import", "average", "report"),
    *("compare", "recipes", "config", "demo", "lexicon", "generate", "convert", "models"),
)
TASK = "a b c d\n\nh g\na\n"


# Asking what there is


def test_help_and_lists_answer_without_torch() -> None:
    """They must not wait for it: it takes longer to import than all they do."""
    code = """if True:
        import sys
        from sightline.cli import main
        lines = [["--help"], [], ["--version"], ["recipes"], *([name, "--help"] for name in sys.argv[1:])]
        lines += [["config", name] for name in ("seq2seq", "bahdanau", "luong", "transformer")]
        for line in lines:
            sys.argv = ["sightline", *line]
            try:
                main()
            except SystemExit as end:
                assert end.code == 0, line
            heavy = {"torch", "numpy", "sacrebleu", "sentencepiece", "matplotlib"} & sys.modules.keys()
            assert not heavy, (line, heavy)
    """
    done = finish(start(*COMMANDS, code=code))
    assert (done.code, done.err) == (0, "")
    assert "sightline 0." in done.out


def test_every_option_has_help() -> None:
    group: Any = typer.main.get_command(app)
    assert set(group.commands) == set(COMMANDS)
    for name, command in group.commands.items():
        assert command.help
        for parameter in command.params:
            assert getattr(parameter, "help", None), f"{name} {parameter.name}"


def test_recipes_are_listed_with_what_they_are(command: Command) -> None:
    done = command("recipes")
    assert [line.split()[0] for line in done.out.splitlines()] == list(DESCRIBED)
    assert all(description in done.out for description, _ in DESCRIBED.values())


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_closed_standard_streams(stream: str) -> None:
    closed = {"stdout": ">&-", "stderr": "2>&-"}[stream]
    name = "nothing" if stream == "stderr" else "luong"  # a mistake, whose line goes nowhere
    line = f'exec "{sys.executable}" -W error -m sightline config {name} {closed}'
    done = subprocess.run(["sh", "-c", line], capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (2 if stream == "stderr" else 0, b"", b"")


# Training


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe_trains_translates_scores_and_aligns(
    recipe: str, command: Command, toy_pairs: Path, tmp_path: Path
) -> None:
    model = tmp_path / "a model, größer"
    done = command(
        "train", "--recipe", recipe, "--pairs", toy_pairs, "--output", model, "--max-steps", 3, *settings(recipe)
    )
    assert (done.code, done.out) == (0, "")
    assert "held out 20 of 400 pairs" in done.err
    assert f"sightline translate '{model}'" in done.err
    assert {"config.yaml", "model.safetensors", "joint.vocab", "README.md"} <= {path.name for path in model.iterdir()}
    done = command("translate", model, stdin=TASK.encode())
    assert (done.code, done.err) == (0, "")
    assert done.out.count("\n") == 4
    done = command("evaluate", model, "--pairs", write_tsv(tmp_path / "few.tsv", letters(5)))
    assert (done.code, done.err) == (0, "")
    assert [line.split()[0] for line in done.out.splitlines()] == ["BLEU", "chrF", "perplexity"]
    done = command("align", model, "--pairs", tmp_path / "few.tsv")
    if recipe == "seq2seq":
        assert "has no attention, so it has no alignment" in done.mistake()
        assert "no attention" in command("translate", model, "--align", stdin=b"a\n").mistake()
    else:
        assert (done.code, done.err, len(done.out.splitlines())) == (0, "", 5)


def test_a_run_needs_no_yaml(command: Command, toy_pairs: Path, tmp_path: Path) -> None:
    output = tmp_path / "runs" / "mine"
    line = ["train", "--recipe", "transformer", "--pairs", toy_pairs, "--output", output, "--max-steps", 5]
    done = command(*line, "--set", "data.cache=null")
    assert (done.code, done.out) == (0, "")
    lines = done.err.splitlines()
    assert lines[0] == "held out 20 of 400 pairs for validation (no sentence is in both parts)"
    assert lines[1] == "learning the tokenizer from 380 pairs"
    assert lines[2].startswith("tokenizer: unigram, ")
    assert lines[3].startswith("transformer: 1,8")
    assert lines[3].endswith("parameters; 5 updates, batches of 2,048 tokens, highest learning rate 0.003")
    config = (output / "config.yaml").read_text()
    assert "embedding: 128" in config
    assert "batch_tokens: 2048" in config


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_printed_configuration_trains(recipe: str, command: Command, toy_pairs: Path, tmp_path: Path) -> None:
    printed = command("config", recipe)
    assert (printed.code, printed.err) == (0, "")
    (tmp_path / "run.yaml").write_text(printed.out)
    options = ["--pairs", toy_pairs, "--output", tmp_path / "model", "--max-steps", 2, *settings(recipe)]
    done = command("train", tmp_path / "run.yaml", *options)
    assert done.code == 0, done.err
    assert f"{recipe}: " in done.err


def test_a_yaml_file_alone_is_a_run(
    command: Command, toy_pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    write_tsv(tmp_path / "pairs.tsv", letters(30))
    (tmp_path / "elsewhere" / "run.yaml").write_text(
        "data: {pairs: pairs.tsv}\ntext: {tokenizer: word}\nsearch:\ntraining: {max_steps: 1, validate_bleu: 0}\n"
        "model: {recipe: luong, embedding: 8, encoder: {width: 4}, decoder: {width: 8}}\n"
    )
    monkeypatch.chdir(tmp_path)  # paths are relative to here, not to the file
    done = command("train", "elsewhere/run.yaml")
    assert done.code == 0, done.err
    assert (tmp_path / "runs" / "model" / "model.safetensors").exists()
    # Files on the command line take the place of the other kind of files in the configuration.
    sides = [write_lines(tmp_path / name, [pair[side] for pair in letters(30)]) for side, name in enumerate("st")]
    done = command("train", "elsewhere/run.yaml", "--source", "s", "--target", "t", "--output", "two")
    assert done.code == 0, done.err
    assert "pairs: null" in (tmp_path / "two" / "config.yaml").read_text()
    assert sides[0].exists()


def test_a_models_own_configuration_trains_another(
    command: Command, trained: Any, tmp_path: Path, toy_pairs: Path
) -> None:
    given = trained("luong") / "config.yaml"
    done = command("train", given, "--output", tmp_path / "again", "--max-steps", 2, "--seed", 7)
    assert done.code == 0, done.err


def test_validation_files_and_windows_line_ends(command: Command, tmp_path: Path) -> None:
    rows = "".join(f"{source}\t{target}\r\n" for source, target in letters(20))
    (tmp_path / "windows.tsv").write_bytes(b"\xef\xbb\xbf" + rows.encode())
    pairs = write_tsv(tmp_path / "valid.tsv", letters(4, seed=1))
    options = ["--valid-pairs", pairs, "--output", tmp_path / "model", "--max-steps", 1, *settings()]
    done = command("train", "--pairs", tmp_path / "windows.tsv", *options)
    assert done.code == 0, done.err
    assert "held out" not in done.err
    assert "\\r" not in (tmp_path / "model" / "joint.vocab").read_text()


def test_names_that_are_not_utf8(command: Command, tmp_path: Path) -> None:
    pairs = write_tsv(tmp_path / b"b\xff.tsv".decode(errors="surrogateescape"), letters(9))
    model = tmp_path / b"m\xff".decode(errors="surrogateescape")
    done = command("train", "--pairs", pairs, "--output", model, "--max-steps", 1, *settings())
    assert done.code == 0, done.err
    assert command("translate", model, stdin=b"a\n").code == 0


# Translating


def test_lines_come_out_in_order_and_empty_ones_stay(command: Command, trained: Any) -> None:
    done = command("translate", trained("transformer"), stdin=TASK.encode())
    assert (done.code, done.out, done.err) == (0, "A B C D\n\nH G\nA\n", "")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (b"a b\r\n\r\nc d\r\n", "A B\n\nC D\n"),
        (b"a b\nc d", "A B\nC D\n"),
        ("a b\u2028c d\n".encode(), "A B C D\n"),
        (b"\xef\xbb\xbfa b\n", "A B\n"),
        (b"  a \t b  \n", "A B\n"),
        (b"\n", "\n"),
        (b"", ""),
    ],
)
def test_line_ends(given: bytes, expected: str, command: Command, trained: Any) -> None:
    done = command("translate", trained("transformer"), stdin=given)
    assert (done.code, done.out, done.err) == (0, expected, "")


def test_files_in_and_out(command: Command, trained: Any, tmp_path: Path) -> None:
    model = trained("transformer")
    (tmp_path / "in.txt.gz").write_bytes(gzip.compress(TASK.encode()))
    done = command("translate", model, tmp_path / "in.txt.gz", "--output", tmp_path / "out put.txt")
    assert (done.code, done.out, done.err) == (0, "", "")
    assert (tmp_path / "out put.txt").read_text() == "A B C D\n\nH G\nA\n"
    assert command("translate", model, tmp_path / "out put.txt", "--output", "/dev/null").code == 0


def test_n_best_with_alignment(command: Command, trained: Any) -> None:
    done = command("translate", trained("transformer"), "--n-best", 3, "--align", stdin=b"a b\n\n")
    rows = [line.split(" ||| ") for line in done.out.splitlines()]
    assert [row[0] for row in rows] == ["0", "0", "0", "1"]
    assert rows[0][1] == "A B"
    assert len(rows[0][2].split()) == 2  # links, then Marian's features and the score
    totals = [float(row[3].removeprefix("F0= ")) for row in rows[:3]]
    scores = [float(row[4]) for row in rows[:3]]
    assert scores == sorted(scores, reverse=True)
    assert scores[0] == pytest.approx(totals[0] / 3, rel=1e-4)  # two tokens and the end
    assert len({row[1] for row in rows[:3]}) == 3
    assert rows[3] == ["1", "", "", "F0= 0", "0"]
    plain = command("translate", trained("transformer"), "--n-best", 2, stdin=b"a b\n").out.splitlines()
    assert [line.count(" ||| ") for line in plain] == [3, 3]


def test_alignment_follows_a_tab(command: Command, trained: Any) -> None:
    done = command("translate", trained("bahdanau"), "--align", stdin=b"a b c\n\n")
    text, links = done.out.splitlines()[0].split("\t")
    assert text == "A B C"
    assert all(0 <= int(part) < 3 for link in links.split() for part in link.split("-"))
    assert done.out.splitlines()[1] == "\t"


def test_json_lines(command: Command, trained: Any) -> None:
    done = command("translate", trained("luong"), "--json", "--align", "--n-best", 2, stdin="a ü\n\nb c\n".encode())
    first, empty, last = [json.loads(line) for line in done.out.splitlines()]
    assert first["source"] == "a ü"
    assert last["text"] == "B C"
    assert last["tokens"] == ["B", "C"]
    assert last["log_prob"] == pytest.approx(sum(last["token_log_probs"]))
    assert len(last["others"]) == 1
    assert empty["text"] == empty["alignment"] == ""


def test_a_beam_wider_than_the_vocabulary(command: Command, trained: Any) -> None:
    done = command("translate", trained("transformer"), "--beam", 1000, stdin=b"a b\n")
    assert (done.code, done.out) == (0, "A B\n")


def test_an_answer_comes_before_the_next_line_and_ctrl_c_is_quiet(
    trained: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")  # what we print is UTF-8 all the same
    process = start("translate", trained("transformer"), "--json")
    assert process.stdin is not None
    assert process.stdout is not None
    for line in ("a b", "ü", "", "c"):
        process.stdin.write(f"{line}\n".encode())
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["source"] == line
    process.send_signal(signal.SIGINT)
    rest = process.stdout.read()
    assert process.stderr is not None
    assert (process.wait(timeout=60), rest, process.stderr.read()) == (130, b"", b"")
    for stream in (process.stdin, process.stdout, process.stderr):
        stream.close()


def test_the_input_is_not_written_over(command: Command, trained: Any, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in.txt", ["a b", "c"])
    (tmp_path / "link.txt").symlink_to(source)
    for output in (source, tmp_path / "link.txt"):
        told = command("translate", trained("transformer"), source, "--output", output).mistake()
        assert "is the file to translate: name another" in told
    assert source.read_text() == "a b\nc\n"


def test_a_dash_is_standard_input(command: Command, trained: Any) -> None:
    model = trained("transformer")
    plain = command("translate", model, stdin=b"a b\nc\n").out
    assert command("translate", model, "-", stdin=b"a b\nc\n").out == plain
    assert command("translate", model, "--source", "-", stdin=b"a b\nc\n").out == plain


@pytest.mark.parametrize("name", ["out.txt.gz", "out.zst", "out.jsonl.GZ"])
def test_output_is_not_packed(command: Command, trained: Any, tmp_path: Path, name: str) -> None:
    """Text under the name of a packed file could not be read again."""
    source = write_lines(tmp_path / "in.txt", ["a b", "c"])
    told = command("translate", trained("transformer"), source, "--output", tmp_path / name).mistake()
    assert "output is not packed; leave out" in told
    assert not (tmp_path / name).exists()


def test_a_reader_that_leaves(trained: Any, tmp_path: Path) -> None:
    # More than a pipe holds, so that the writer is still at it when the reader has gone.
    source = write_lines(tmp_path / "many", ["a b c d"] * 600)
    process = start("translate", trained("transformer"), source, "--json", "--beam", 1)
    assert process.stdout is not None
    assert process.stderr is not None
    assert json.loads(process.stdout.readline())["text"] == "A B C D"
    process.stdout.close()
    assert (process.wait(timeout=60), process.stderr.read()) == (141, b"")
    process.stderr.close()
    assert process.stdin is not None
    process.stdin.close()


# The demo


def test_the_demo_does_its_job_and_does_not_repeat_it(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("train", "valid", "test")
    parts = {name: write_tsv(tmp_path / f"{name}.tsv", letters(20, seed)) for seed, name in enumerate(names)}

    def small(minutes: float) -> RunConfig:
        data = {"pairs": str(parts["train"]), "valid_pairs": str(parts["valid"])}
        return build_config(merge(tiny("transformer"), {"data": data, "training": {"max_steps": 2}}))

    monkeypatch.setattr(demo, "bundled", parts.__getitem__)
    monkeypatch.setattr(demo, "demo_config", small)
    monkeypatch.chdir(tmp_path)
    first = command("demo", "train")
    assert first.code == 0, first.err
    for part in ("BLEU", "nrefs:1", "chrF", "Where is the station?", "alignment.html", "translate demo/model"):
        assert part in first.out
    assert "training a small English-German Transformer" in first.err
    page = (tmp_path / "demo" / "alignment.html").read_text()
    assert page.startswith("<!doctype html>")
    again = command("demo", "train")
    assert again.code == 0
    assert "is trained already" in again.err
    assert again.out == first.out
