"""Toy tasks learnt end to end through the command line: small versions of `benchmarks/toy_tasks.py`."""

import itertools
import json
import math
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.toy_tasks import Example, accuracy, copy_pairs, mirrored, write_pairs
from sightline.cli import app

SYMBOLS = "abcdefgh"
LENGTH = 5
COMMON = ("text.tokenizer=word", "model.dropout=0", "training.label_smoothing=0", "training.validate_bleu=0",
          "training.validate_every=1000", "training.report=false", "training.watch=0",
          "data.batch_tokens=512")  # fmt: skip
TRANSFORMER = ("model.embedding=64", "model.encoder.layers=1", "model.encoder.feedforward=64",
               "model.decoder.layers=1", "model.decoder.feedforward=64", "training.learning_rate=0.005")  # fmt: skip
RECURRENT = ("model.embedding=16", "model.decoder.width=48", "training.learning_rate=0.01")


class Learnt:
    """A model trained in `folder` on `train`, and what it makes of strings it has not seen."""

    def __init__(
        self,
        folder: Path,
        recipe: str,
        updates: int,
        train: Sequence[Example],
        valid: Sequence[Example],
        settings: Sequence[str] = (),
    ) -> None:
        self.folder, self.model = folder, folder / recipe
        write_pairs(folder / "train.tsv", train)
        write_pairs(folder / "valid.tsv", valid)
        sizes = TRANSFORMER if recipe == "transformer" else RECURRENT
        assign = [word for setting in (*COMMON, *sizes, *settings) for word in ("--set", setting)]
        data = ["--pairs", str(folder / "train.tsv"), "--valid-pairs", str(folder / "valid.tsv")]
        command(["train", "--recipe", recipe, "--output", str(self.model), "--max-steps", str(updates), *data, *assign])
        self.loss = json.loads((self.model / "metrics.jsonl").read_text().splitlines()[-1])["loss"]

    def exact(self, test: Sequence[Example]) -> float:
        """The percentage of strings translated without a mistake."""
        path = self.folder / "test.source"
        path.write_text("".join(f"{' '.join(source)}\n" for source, _ in test))
        found = command(["translate", str(self.model), str(path), "--beam", "1"])
        return float(accuracy(found, sides(test))["exact"])

    def mirrored(self, test: Sequence[Example], reading: str) -> float:
        """The share of symbols whose strongest weight is on the mirrored one."""
        write_pairs(self.folder / "test.tsv", test)
        align = ["align", str(self.model), "--pairs", str(self.folder / "test.tsv"), "--reading", reading]
        return mirrored(command(align), sides(test))


def command(arguments: list[str]) -> list[str]:
    """Runs `sightline` in this process; its lines on standard output."""
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout.splitlines()


def sides(test: Sequence[Example]) -> list[str]:
    return [" ".join(target) for _, target in test]


def reversals() -> tuple[list[Example], list[Example], list[Example]]:
    """All strings of different symbols, reversed, cut into three parts: no string is in two."""
    strings = [list(letters) for letters in itertools.permutations(SYMBOLS, LENGTH)]
    random.Random(1).shuffle(strings)
    pairs = [(letters, letters[::-1]) for letters in strings]
    return pairs[400:], pairs[300:400], pairs[:300]


@pytest.mark.parametrize("recipe", ["transformer", "bahdanau", "luong"])
def test_reversing_is_learnt_and_the_alignment_is_the_anti_diagonal(tmp_path: Path, recipe: str) -> None:
    train, valid, test = reversals()
    learnt = Learnt(tmp_path, recipe, 250, train, valid)
    assert learnt.exact(test) >= 97
    assert learnt.mirrored(test, "predicts") >= 0.97
    # Read one row later, the alignment is one letter off: only the end of the string can still be right.
    assert learnt.mirrored(test, "consumes") <= 0.4


def test_without_positions_only_the_order_is_missing(tmp_path: Path) -> None:
    train, valid, test = reversals()
    learnt = Learnt(tmp_path, "transformer", 250, train, valid, ["model.positions=none"])
    assert learnt.exact(test) <= 3  # one of 5! orders: 0.8%
    # Whoever knows the letters guesses one of 5, one of 4 and so on; the end symbol is certain.
    floor = math.log(math.factorial(LENGTH)) / (LENGTH + 1)
    assert 0.98 * floor <= learnt.loss <= 1.15 * floor


def test_copying_long_strings_needs_attention(tmp_path: Path) -> None:
    generator = random.Random(1)
    train, valid = (
        copy_pairs(generator, [generator.randint(4, 12) for _ in range(count)], SYMBOLS) for count in (6000, 100)
    )
    fresh = (
        [pair for pair in copy_pairs(generator, [length] * 100, SYMBOLS) if pair not in train] for length in (5, 12)
    )
    short, long = fresh
    attention, fixed = (Learnt(tmp_path, recipe, 350, train, valid) for recipe in ("luong", "seq2seq"))
    assert attention.exact(long) >= 95
    assert attention.exact(short) >= 95
    assert fixed.exact(long) <= 20
    assert fixed.exact(short) - fixed.exact(long) >= 40


def test_measures_by_hand() -> None:
    assert accuracy(["a b c", "a b", ""], ["a b c", "a c b", "a"]) == {"strings": 3, "exact": 33.33, "symbols": 57.14}
    assert mirrored(["0-2 1-1 2-0", "0-0 1-1"], ["c b a", "b a"]) == 0.6
