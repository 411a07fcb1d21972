"""Language models through the command line: from a file of text to a model that writes, scores and goes on learning."""

from __future__ import annotations

import gzip
import json
import math
import random
from dataclasses import replace
from pathlib import Path

import pytest

import sightline
from sightline.config import build_config
from sightline.errors import SightlineError
from sightline.evaluate import measure_text
from sightline.generating import generate, live
from sightline.preparing import prepare
from sightline.sizes import Corpus, fill
from sightline.training.estimate import estimated
from sightline.training.run import train
from tests.commands import Command, write_lines

TINY = {
    "text": {"tokenizer": "word"},
    "data": {"cache": None},
    "model": {"embedding": 8, "decoder": {"layers": 1}},
    "training": {"max_steps": 3, "workers": 1},
}
NAMES, VERBS = ("Anna", "Ben", "Carla"), ("sees", "hears", "likes")


def sentences(count: int, seed: int = 0) -> list[str]:
    """Small talk, each line another."""
    draw = random.Random(seed)
    return [f"{draw.choice(NAMES)} {draw.choice(VERBS)} {draw.choice(NAMES)} {number} ." for number in range(count)]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A packed file of text, one of its lines empty."""
    path = tmp_path_factory.mktemp("text") / "text.txt.gz"
    path.write_bytes(gzip.compress("\n".join(["", *sentences(60)]).encode()))
    return path


@pytest.fixture(scope="module")
def model(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that has learnt nearly nothing."""
    folder = tmp_path_factory.mktemp("models") / "lm"
    train(build_config({**TINY, "data": {"cache": None, "text": str(text)}}, "lm"), folder)
    return folder


def test_a_run_from_text_to_text(command: Command, text: Path, tmp_path: Path) -> None:
    folder, valid = tmp_path / "model", write_lines(tmp_path / "valid.txt", sentences(5, seed=1))
    small = ["--set", "text.tokenizer=word", "--set", "model.embedding=8", "--set", "data.cache=null"]
    begin = ["train", "--recipe", "lm", "--text", text, "--valid-text", valid, "--output", folder, *small]
    done = command(*begin, "--set", "model.pointer.kind=sentinel", "--max-steps", 2)
    assert done.code == 0, done
    assert "training on 60 lines; dropped 1 empty" in done.err
    assert f"sightline generate {folder}" in done.err
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert "It goes on with a text" in card
    assert "60 training lines, 5 validation lines" in card
    assert "translate" not in card
    assert (folder / "report.html").is_file()
    done = command("train", "--output", folder, "--resume", "--more-steps", 1)
    assert done.code == 0, done
    assert "going on after update 2" in done.err
    done = command("evaluate", folder, "--text", valid, "--json", "--sentences")
    found = json.loads(done.out)
    assert (found["lines"], found["tokens"], found["words"]) == (5, 30, 30)  # of words, and of an end each
    assert 1 < found["perplexity"] == pytest.approx(found["word_perplexity"])
    assert len(found["by_line"]) == 5
    scores = command("score", folder, "--text", valid).out.split()
    total = -sum(map(float, scores))
    assert found["perplexity"] == pytest.approx(math.exp(total / 30), rel=1e-4)
    assert found["bits_per_character"] == pytest.approx(total / math.log(2) / found["characters"], rel=1e-4)
    done = command("generate", folder, "--prefix", "Anna sees", "--count", 3, "--seed", 5, "--max-length", 4)
    assert all(line.startswith("Anna sees") and len(line.split()) <= 6 for line in done.out.splitlines())
    assert len(done.out.splitlines()) == 3


def test_strategies(model: Path, command: Command) -> None:
    greedy = command("generate", model, "--strategy", "greedy", "--max-length", 5).out
    assert greedy == command("generate", model, "--strategy", "greedy", "--max-length", 5, "--live").out
    assert greedy == command("generate", model, "--temperature", 0, "--max-length", 5).out
    best = command("generate", model, "--strategy", "beam", "--count", 2, "--json", "--max-length", 5).out
    first, second = map(json.loads, best.splitlines())
    assert first["score"] >= second["score"]
    assert first["log_prob"] == pytest.approx(sum(first["token_log_probs"]))
    translator = sightline.load(model)
    once, again = (generate(translator, "Ben", 4, seed=3, max_length=6) for _ in range(2))
    assert [one.text for one in once] == [one.text for one in again]
    assert "".join(live(translator, "Ben", seed=3, max_length=6)) == once[0].text
    assert all("Anna" not in one.text for one in generate(translator, count=10, max_length=6, forbid=["Anna"]))
    one_word = generate(translator, count=10, max_length=6, forbid="Anna")
    assert one_word == generate(translator, count=10, max_length=6, forbid=["Anna"])
    with pytest.raises(SightlineError, match="max_length is '6': give a whole number"):
        generate(translator, max_length="6")
    long = " ".join(["Anna"] * 250)
    (after,) = generate(translator, long, max_length=2)
    assert after.text.startswith(long)


def test_a_text_is_as_probable_as_its_tokens(model: Path) -> None:
    translator = sightline.load(model)
    lines = ["Anna sees Ben .", "", "Carla"]
    found = measure_text(translator, lines)
    assert (found.lines, found.tokens, found.words, found.characters) == (2, 7, 7, 22)
    (_, first), (_, second) = found.by_line
    assert found.nll == pytest.approx(5 * math.log(first) + 2 * math.log(second))
    with pytest.raises(SightlineError, match="every line is empty"):
        measure_text(translator, ["", " "])


@pytest.mark.parametrize("kind", ["recurrent", "transformer"])
def test_what_is_chosen_for_a_text(kind: str, text: Path) -> None:
    values = {"text": {"tokenizer": "word"}, "data": {"cache": None, "text": str(text)}}
    config = build_config({**values, "model": {"embedding": 8, "decoder": {"kind": kind, "layers": 1}}}, "lm")
    prepared = prepare(config, 1000, texts=5)
    assert (len(prepared.train), len(prepared.valid)) == (57, 3)
    assert {*prepared.train.source.lengths.tolist()} == {1}  # an end symbol stands for a source
    assert {source for source, _ in prepared.texts} == {""}
    assert {target for _, target in prepared.texts} < {*sentences(60)}
    filled = fill(config, Corpus(57, 400)).model
    assert filled.encoder.layers is None
    assert (filled.decoder.width, filled.decoder.heads) == ((8, None) if kind == "recurrent" else (None, 1))
    if kind == "transformer":
        return
    told = str(estimated(config.model_copy(update={"training": config.training.model_copy(update={"max_steps": 2})})))
    assert told.startswith("lines             57\n")


REFUSED = {
    "pairs": (["train", "--recipe", "lm", "--pairs", "P"], "a language model has no source: give its text, --text"),
    "text": (["train", "--text", "T"], "text without a source is for language models"),
    "both": (["train", "--recipe", "lm", "--text", "T", "--pairs", "P"], "not both"),
    "nothing": (["train", "--recipe", "lm"], "no training data: give --text FILE"),
    "encoder": (["train", "--recipe", "lm", "--text", "T", "--set", "model.encoder.layers=2"], "has no such choice"),
    "bleu": (["train", "--recipe", "lm", "--text", "T", "--set", "training.validate_bleu=3"], "text and no source"),
    "tie": (["train", "--recipe", "lm", "--text", "T", "--set", "model.tie=all"], "text and no source"),
    "copying": (["train", "--recipe", "lm", "--text", "T", "--set", "model.copying.kind=copy_head"], "no such choice"),
    "pointer": (["train", "--pairs", "P", "--set", "model.pointer.kind=sentinel"], "only lm"),
    "missing": (["train", "--recipe", "lm", "--text", "nowhere.txt"], "nowhere.txt"),
    "translate": (["translate", "M"], "`sightline generate` writes with it"),
    "align": (["align", "M", "--pairs", "P"], "no attention"),
    "evaluate": (["evaluate", "M", "--pairs", "P"], "a language model has no source: give its text, --text FILE"),
    "evaluate nothing": (["evaluate", "M"], "no text: give --text FILE"),
    "evaluate beam": (["evaluate", "M", "--text", "T", "--beam", "2"], "has no translations"),
    "score": (["score", "M", "--pairs", "P"], "a language model has no source"),
    "export": (["export", "M", "--to", "ctranslate2", "O"], "cannot run a decoder without an encoder"),
    "lexicon": (["lexicon", "--pairs", "P", "--model", "M", "--output", "O"], "has no source, so no lexicon"),
    "strategy": (["generate", "M", "--strategy", "mbr"], "unknown strategy 'mbr' for generating"),
    "greedy": (["generate", "M", "--strategy", "greedy", "--count", "2"], "greedy search finds one"),
    "live": (["generate", "M", "--live", "--count", "2"], "leave out --json and --count"),
    "cover": (["generate", "M", "--strategy", "beam", "--top-p", "0"], "top_p is 0"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str, model: Path, text: Path, command: Command, tmp_path: Path) -> None:
    arguments, told = REFUSED[case]
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("a\tA\nb\tB\n", encoding="utf-8")
    places = {"M": model, "T": text, "P": pairs, "O": tmp_path / "out"}
    given = [places.get(argument, argument) for argument in arguments]
    if "train" in arguments:
        given += ["--output", tmp_path / "run", "--set", "data.cache=null"]
    done = command(*given, stdin=b"a\n")
    assert told in done.last_word()


def test_translation_models_do_not_generate(model: Path) -> None:
    """Told from the configuration alone."""
    translator = sightline.load(model)
    other = translator.config.model_copy(update={"model": build_config({}, "seq2seq").model})
    translator.files = replace(translator.files, config=other)
    with pytest.raises(SightlineError, match="use `sightline translate`"):
        generate(translator)
