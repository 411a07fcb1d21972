"""Watching a run: what it adds to a validation, and that it changes nothing else."""

from __future__ import annotations

import io
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

from sightline import links
from sightline.align import force
from sightline.config import build_config, merge
from sightline.data import Pair
from sightline.errors import SightlineError
from sightline.folder import load_folder
from sightline.preparing import prepare
from sightline.recordings import load_attention, load_facts, load_translations
from sightline.training.checkpoint_names import latest
from sightline.training.progress import Lines, sample_lines
from sightline.training.run import Scorer, Trained, train
from sightline.training.tensorboard import Board
from sightline.training.watch import Sample
from sightline.training.watching import LONGEST, SENTENCES, watched
from tests.commands import RECIPES, tiny

Run = Callable[..., Trained]


@pytest.fixture
def run(toy_pairs: Path, tmp_path: Path) -> Run:
    """`run(name, recipe, **training)`: a tiny run into a folder of that name."""

    def make(name: str, recipe: str = "transformer", resume: bool = False, **training: Any) -> Trained:
        data = {"pairs": str(toy_pairs), "batch_tokens": 200, "held_out": 40}
        own = {"max_steps": 6, "validate_every": 2, "log_every": 2, "warmup": 2, "schedule": "inverse_sqrt", **training}
        return train(
            build_config(merge(tiny(recipe), {"data": data, "training": own}), recipe), tmp_path / name, resume
        )

    return make


def rows(run: Trained, kind: str = "validation") -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if line["kind"] == kind]


def tensors(folder: Path) -> dict[str, torch.Tensor]:
    found = latest(folder / "checkpoints")
    assert found is not None
    return {
        f"{path.name}/{name}": value
        for path in (*sorted(found.glob("*.safetensors")), folder / "model.safetensors")
        for name, value in safetensors.torch.load_file(path).items()
    }


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_watched_run_is_the_same_to_the_bit(recipe: str, run: Run) -> None:
    """Weights, moments, random states and losses; dropout is on."""
    seen = run("seen", recipe, tensorboard=True, samples=3)
    unseen = run("unseen", recipe, watch=0, samples=0, report=False)
    one, other = tensors(seen.folder), tensors(unseen.folder)
    assert one.keys() == other.keys()
    assert all(torch.equal(value, other[name]) for name, value in one.items())
    assert [row["nll"] for row in rows(seen, "training")] == [row["nll"] for row in rows(unseen, "training")]
    assert [row["loss"] for row in rows(seen)] == [row["loss"] for row in rows(unseen)]
    assert not (unseen.folder / "report.html").exists()
    assert not (unseen.folder / "watch" / "attention").exists()
    assert all({"samples", "sharpness"}.isdisjoint(row) for row in rows(unseen))


def test_sharpness_is_that_of_the_alignment(run: Run) -> None:
    """The same number from the finished model, by hand: the average over layers and heads, the end row included."""
    found = run("run")
    folder = load_folder(found.folder)
    held = prepare(found.config, 250, texts=50).texts
    told = [
        links.sharpness(np.mean([layer.mean(axis=0) for layer in forced.sentence.layers], axis=0))
        for forced in force(folder, held[:SENTENCES])
    ]
    best = next(row for row in reversed(rows(found)) if row["best"])
    assert best["sharpness"] == pytest.approx(float(np.concatenate(told).mean()), abs=1e-6)
    assert 0 <= best["sharpness"] <= 1
    assert found.result.best is not None
    assert found.result.best["sharpness"] == best["sharpness"]


def test_a_model_without_attention_has_none(run: Run) -> None:
    found = run("run", "seq2seq")
    assert all("sharpness" not in row for row in rows(found))
    assert load_attention(found.folder) == {}


def test_attention_is_kept_at_each_validation(run: Run) -> None:
    found = run("run", watch=3)
    kept = load_attention(found.folder)
    assert list(kept) == [2, 4, 6]
    assert [len(sentences) for sentences in kept.values()] == [3, 3, 3]
    last = kept[6][-1]
    assert [layer.shape for layer in last.layers] == [(2, len(last.target), len(last.source))]
    assert last.target == [word.upper() for word in last.source]
    assert not np.array_equal(kept[2][0].layers[0], kept[6][0].layers[0])


def test_samples_and_translations(run: Run) -> None:
    found = run("run", samples=2)
    held = prepare(found.config, 250, texts=50).texts
    for row in rows(found):
        assert [(one["source"], one["reference"]) for one in row["samples"]] == [tuple(pair) for pair in held[:2]]
    kept = load_translations(found.folder)
    assert kept is not None
    assert kept.step == found.result.best_step
    assert kept.sources == [pair.source for pair in held[:4]]
    shown = next(row for row in rows(found) if row["step"] == kept.step)
    assert [one["output"] for one in shown["samples"]] == kept.translations[:2]
    assert load_facts(found.folder)["recipe"] == "transformer"


def curves(run: Path) -> dict[str, list[tuple[int, float]]]:
    """TensorBoard's own reading of the event files: the points of each curve."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    board = EventAccumulator(str(run / "tensorboard"))
    board.Reload()
    return {name: [(one.step, one.value) for one in board.Scalars(name)] for name in board.Tags()["scalars"]}


@pytest.mark.parametrize("better", [True, False])
def test_the_report_is_about_the_weights_in_the_folder(better: bool, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Translations and attention are the mean's where the mean became the model."""
    score = Scorer.__call__
    losses = iter([3.0, 2.0, 2.5, 1.0 if better else 4.0])
    monkeypatch.setattr(Scorer, "__call__", lambda self, model: {**score(self, model), "loss": next(losses)})
    done = run("mean", average="last", average_count=2, learning_rate=0.05)
    assert bool(done.result.average_of) == better
    translations, frames = load_translations(done.folder), load_attention(done.folder)
    assert translations is not None
    assert translations.step == done.result.best_step == (6 if better else 4)
    folder = load_folder(done.folder)
    shown = frames[6][0]
    (now,) = force(folder, [Pair(" ".join(shown.source), " ".join(shown.target))])
    exact = np.allclose(now.word_layers(done.config.alignment.reading)[0], shown.layers[0], atol=1e-3)
    assert exact == better


def test_a_run_that_was_killed_and_goes_on_has_everything_once(run: Run, tmp_path: Path) -> None:
    """It was killed after step 6, and goes on from the checkpoint of step 4."""
    whole = run("whole", max_steps=8, tensorboard=True)
    killed = run("killed", max_steps=4, tensorboard=True)
    shutil.copytree(killed.folder / "checkpoints", tmp_path / "aside")
    run("killed", resume=True, max_steps=6, tensorboard=True)
    shutil.rmtree(killed.folder / "checkpoints")
    shutil.move(tmp_path / "aside", killed.folder / "checkpoints")
    run("killed", resume=True, max_steps=8, tensorboard=True)

    kept = [sorted((one.folder / "watch" / "attention").iterdir()) for one in (whole, killed)]
    assert [path.name for path in kept[0]] == [f"step-000000{step}.safetensors" for step in (2, 4, 6, 8)]
    assert [path.read_bytes() for path in kept[0]] == [path.read_bytes() for path in kept[1]]
    drawn, again = curves(whole.folder), curves(killed.folder)
    assert [step for step, _ in drawn["validation/sharpness"]] == [2, 4, 6, 8]
    for name in ("validation/loss", "validation/bleu", "validation/sharpness", "training/nll"):
        assert drawn[name] == again[name], name


def test_the_curves_are_those_of_the_metrics_file(run: Run) -> None:
    found = run("run", tensorboard=True)
    drawn = curves(found.folder)
    assert {name for name in drawn if name.startswith("validation")} == {
        f"validation/{name}" for name in ("loss", "perplexity", "bleu", "sharpness")
    }
    assert {"training/loss", "training/learning_rate", "training/tokens_per_second"} <= drawn.keys()
    rates = [(row["step"], row["learning_rate"]) for row in rows(found, "training")]
    assert drawn["training/learning_rate"] == [(step, pytest.approx(rate)) for step, rate in rates]


def test_without_tensorboard_the_extra_is_named_before_training(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(SightlineError, match=r"pip install 'sightline\[tensorboard\]'"):
        run("run", tensorboard=True)
    run("other")


def test_a_board_leaves_out_what_is_no_number(tmp_path: Path) -> None:
    board = Board(tmp_path)
    board.start(0)
    sample = {"source": "# a\n*b*", "reference": "", "output": "<script>"}
    board.line({"kind": "validation", "step": 1, "loss": float("nan"), "bleu": 3, "best": True, "samples": [sample]})
    board.stop()
    assert curves(tmp_path) == {"validation/bleu": [(1, 3.0)]}
    Board(tmp_path / "never started").stop()


def test_a_head_that_is_not_there_is_told_before_training(toy_pairs: Path, tmp_path: Path) -> None:
    values = merge(tiny("transformer"), {"data": {"pairs": str(toy_pairs)}, "alignment": {"layer": 3}})
    with pytest.raises(SightlineError, match=r"alignment\.layer = 3: this model has layers 0 to 0"):
        train(build_config(values, "transformer"), tmp_path / "run")
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


def test_which_pairs_are_looked_at() -> None:
    lengths = np.array([LONGEST + 1, 5, LONGEST, *[7] * SENTENCES])
    assert watched(lengths) == list(range(1, SENTENCES + 1))
    assert watched(np.array([90, 80, 80])) == [1]  # all are long: one must do


def test_samples_under_a_validation() -> None:
    stream = io.StringIO()
    lines = Lines(stream)
    sample = Sample("ein\tsehr\x1b[1m langer Satz", "日本語 日本語", "")
    lines.validated(5, {"loss": 1.23456, "sharpness": 0.012345}, False, [sample])
    assert stream.getvalue().splitlines() == [
        "validation at step 5: loss 1.235  sharpness 0.012",
        "    (sharpness of the attention: 0 is spread evenly over the source, 1 is on one place)",
        "    source     ein sehr\ufffd[1m langer Satz",
        "    reference  日本語 日本語",
        "    output",
    ]
    assert sample_lines([sample], 24) == ["    source     ein sehr…", "    reference  日本語 …", "    output"]


def test_a_report_that_cannot_be_written_does_not_undo_the_run(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(folder: Path, page: Path) -> None:
        raise SightlineError(f"{page}: cannot write: the disk is full")

    monkeypatch.setattr("sightline.training.watching.write_report", full)
    assert run("run").result.best is not None
