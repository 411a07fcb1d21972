"""One run: what is held out, what is chosen, and that a resumed run is the run that never stopped."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

import sightline
from sightline.config import build_config, merge
from sightline.errors import SightlineError
from sightline.evaluate import evaluate
from sightline.preparing import prepare
from sightline.training.checkpoint_names import latest
from sightline.training.run import Trained, train
from tests.commands import RECIPES, Command, letters, settings, tiny, write_tsv

Values = dict[str, Any]


@pytest.fixture
def run(toy_pairs: Path, tmp_path: Path) -> Callable[..., Trained]:
    """`run(name, values, recipe)`: a tiny run into a folder of that name."""

    def make(name: str, values: Values | None = None, recipe: str = "transformer", **options: Any) -> Trained:
        base = merge(tiny(recipe), {"data": {"pairs": str(toy_pairs)}, "training": {"max_steps": 2}})
        return train(build_config(merge(base, values or {}), recipe), tmp_path / name, **options)

    return make


def checkpoint(folder: Path) -> dict[str, torch.Tensor]:
    """All tensors of the last checkpoint."""
    found = latest(folder / "checkpoints")
    assert found is not None
    return {
        f"{path.name}/{name}": value
        for path in sorted(found.glob("*.safetensors"))
        for name, value in safetensors.torch.load_file(path).items()
    }


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(value, other[name]) for name, value in one.items())


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_resumed_run_is_the_run_that_never_stopped(
    recipe: str, command: Command, toy_pairs: Path, tmp_path: Path
) -> None:
    """Through the command line, to the last bit of weights, moments and random states; dropout is on."""
    options = [*settings(recipe), "--set", "training.schedule=inverse_sqrt", "--set", "data.batch_tokens=200"]
    options += ["--set", "training.log_every=2", "--set", "training.warmup=2"]
    begin = ["train", "--recipe", recipe, "--pairs", toy_pairs, *options]
    assert command(*begin, "--output", tmp_path / "whole", "--max-steps", 9).code == 0
    assert command(*begin, "--output", tmp_path / "parts", "--max-steps", 4).code == 0
    for steps in (7, 9):
        done = command("train", "--output", tmp_path / "parts", "--resume", "--max-steps", steps)
        assert done.code == 0, done.err
    assert same(checkpoint(tmp_path / "whole"), checkpoint(tmp_path / "parts"))
    told = [
        [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        for name in ("whole", "parts")
    ]
    losses = [[(row["step"], row["nll"]) for row in rows if row["kind"] == "training"] for rows in told]
    assert losses[0] == losses[1]
    assert [step for step, _ in losses[0]] == [2, 4, 6, 8]


def test_the_same_seed_is_the_same_run(run: Callable[..., Trained]) -> None:
    runs = [run(name, {"training": {"seed": seed}}) for name, seed in (("a", 1), ("b", 1), ("c", 2))]
    first, second, other = [checkpoint(one.folder) for one in runs]
    assert same(first, second)
    assert not same(first, other)


def test_the_metrics_file(run: Callable[..., Trained]) -> None:
    found = run("run", {"training": {"max_steps": 5, "log_every": 2, "validate_every": 3}})
    rows = [json.loads(line) for line in (found.folder / "metrics.jsonl").read_text().splitlines()]
    assert [(row["kind"], row["step"]) for row in rows] == [
        ("training", 2), ("validation", 3), ("training", 4), ("validation", 5),
    ]  # fmt: skip
    assert {"loss", "perplexity", "bleu", "best", "seconds"} <= rows[1].keys()
    assert {"cross_entropy", "learning_rate", "tokens_per_second", "gradient_norm"} <= rows[0].keys()
    assert found.result.best is not None
    assert found.result.best["loss"] == min(row["loss"] for row in rows if row["kind"] == "validation")


def test_bleu_is_that_of_greedy_translations(run: Callable[..., Trained], toy_pairs: Path) -> None:
    """Validation's BLEU is what `evaluate --beam 1` says of the same sentences."""
    found = run("run", {"training": {"max_steps": 60, "validate_bleu": 20, "learning_rate": 0.02}})
    held = prepare(found.config, 250, texts=100).texts
    translator = sightline.load(found.folder)
    scores = evaluate(translator, held, translator.stream([pair.source for pair in held], beam=1))
    assert found.result.best is not None
    assert found.result.best["bleu"] == pytest.approx(scores.bleu.value)
    assert found.result.best["perplexity"] == pytest.approx(scores.perplexity, rel=1e-4)


def test_the_best_weights_are_kept_not_the_last(run: Callable[..., Trained]) -> None:
    values = {"training": {"max_steps": 12, "validate_every": 4, "learning_rate": 5.0, "warmup": 8}}
    found = run("run", values)
    assert found.result.best_step < 12  # it went to ruin
    weights = safetensors.torch.load_file(found.folder / "model.safetensors")
    last = {
        name.removeprefix("model.safetensors/"): value
        for name, value in checkpoint(found.folder).items()
        if name.startswith("model.safetensors/")
    }
    assert weights.keys() == last.keys()
    assert not same(weights, last)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (["--set", "model.dropout=0.5"], "model.dropout was 0.1 and is now 0.5; set it back"),
        (["--set", "training.seed=5"], "training.seed was 1 and is now 5"),
        (["--set", "text.lowercase=true"], "text.lowercase was False and is now True"),
        (["--recipe", "luong"], "cannot resume: the recipe was transformer and is now luong"),
        (["--pairs", "OTHER"], "the data differs from what the run began with"),
    ],
)
def test_a_resume_that_is_refused_leaves_the_run_as_it_was(
    change: list[str], told: str, run: Callable[..., Trained], command: Command, tmp_path: Path
) -> None:
    folder = run("run").folder
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    other = write_tsv(tmp_path / "other.tsv", letters(30, seed=8))
    options = [other if part == "OTHER" else part for part in change]
    assert told in command("train", "--output", folder, "--resume", "--max-steps", 3, *options).last_word()
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before
    assert command("train", "--output", folder, "--resume", "--max-steps", 3).code == 0


def test_resuming_with_the_command_that_began_it(command: Command, toy_pairs: Path, tmp_path: Path) -> None:
    """The same line with --resume: what a configuration leaves open was chosen when the run began."""
    (tmp_path / "run.yaml").write_text(command("config", "transformer").out)
    line = ["train", tmp_path / "run.yaml", "--pairs", toy_pairs, "--output", tmp_path / "run", *settings()]
    assert command(*line, "--max-steps", 2).code == 0
    done = command(*line, "--max-steps", 3, "--resume")
    assert done.code == 0, done.err
    assert "all 3 updates are done" in done.err
    moved = toy_pairs.rename(tmp_path / "moved.tsv")  # what counts is the text, not where it lies
    try:
        done = command(*line[:2], "--pairs", moved, *line[4:], "--max-steps", 4, "--resume")
    finally:
        moved.rename(toy_pairs)
    assert done.code == 0, done.err


def test_without_bleu(run: Callable[..., Trained]) -> None:
    found = run("run", {"training": {"validate_bleu": 0}})
    assert found.result.best is not None
    assert found.result.best.keys() == {"loss", "perplexity", "sharpness"}
    assert "BLEU" not in (found.folder / "README.md").read_text()


def test_patience_and_bleu_as_the_metric(run: Callable[..., Trained]) -> None:
    values = {
        "training": {"metric": "bleu", "patience": 1, "max_steps": 50, "validate_every": 1, "learning_rate": 1e-9}
    }
    found = run("run", values)
    assert found.result.reason == "patience"


def test_what_validation_needs_is_checked_first(run: Callable[..., Trained], tmp_path: Path) -> None:
    with pytest.raises(SightlineError, match="unknown BLEU tokenizer 'x'"):
        run("run", {"training": {"bleu_tokenize": "x"}})
    assert not (tmp_path / "run").exists()


def test_scores_are_told_with_their_signature(run: Callable[..., Trained]) -> None:
    card = (run("run").folder / "README.md").read_text()
    assert "4 validation sentences, greedy, nrefs:1|" in card
