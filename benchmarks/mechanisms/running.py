"""One arm of the atlas: trained through the command line, measured, drawn, and put into the record."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import yaml

import sightline
from benchmarks.mechanisms import repetition
from benchmarks.mechanisms.entries import Values, resolved
from benchmarks.mechanisms.material import Given, Material
from benchmarks.mechanisms.pictures import write_picture
from benchmarks.mechanisms.records import ArmError, Result
from sightline import links
from sightline.alignments import align_corpus
from sightline.evaluate import evaluate, measure_text
from sightline.forced import has_attention
from sightline.gallery import heatmap
from sightline.models import parameter_count
from sightline.readers import Pair
from sightline.translation import Translation
from sightline.translator import Translator

SEEN = 0.25  # of weight in all, or a source word counts as missed

# Arguments and a file for what it says, to an exit code.
Run = Callable[[list[str], Path], int]


@dataclass(frozen=True)
class Budget:
    """What every arm has alike."""

    pairs: int
    held_out: int
    minutes: float | None
    max_updates: int | None
    threads: int

    @property
    def limit(self) -> list[str]:
        """As options of `sightline train`."""
        return limit(self.minutes, self.max_updates)


def limit(minutes: float | None, max_updates: int | None) -> list[str]:
    """Where training ends, as options of `sightline train`: after so many updates, or else minutes."""
    return ["--max-minutes", str(minutes)] if max_updates is None else ["--max-steps", str(max_updates)]


def commands(threads: int) -> Run:
    """Runs commands as a user would, in processes of their own."""

    def run(arguments: list[str], log: Path) -> int:
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
        with log.open("a", encoding="utf-8") as said:
            whole = [sys.executable, "-m", "sightline", *arguments]
            return subprocess.run(whole, check=False, stdout=said, stderr=said, env=environment).returncode

    return run


def checked(run: Run, log: Path) -> Callable[[list[str]], None]:
    """Runs commands that must come to a good end; else the last line that one said is the reason of an `ArmError`."""

    def whole(arguments: list[str]) -> None:
        if code := run(arguments, log):
            said = log.read_text(encoding="utf-8").split("\n") if log.exists() else []
            last = next((line.strip() for line in reversed(said) if line.strip()), "it said nothing")
            raise ArmError(f"`sightline {arguments[0]}` ended with code {code}: {last}")

    return whole


def settings(config: Values, budget: Budget) -> Result:
    """What decides an arm's result: if it is as recorded, the arm need not be trained again."""
    return {"config": config, **vars(budget)}


def fresh(runs: Path, name: str) -> tuple[Path, Path]:
    """An arm's folder and log among the runs, both empty."""
    folder, log = runs / name, runs / f"{name}.log"
    # What a run that was broken off has left would not have had the same minutes.
    shutil.rmtree(folder, ignore_errors=True)
    log.unlink(missing_ok=True)
    return folder, log


def train(config: Values, options: list[str], sure: Callable[[list[str]], None], folder: Path) -> None:
    """Trains a model into `folder` through the command line; `options` name its text and say when it ends."""
    written = folder.with_name(f"{folder.name}.yaml")
    written.write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    sure(["train", str(written), *options, "--output", str(folder)])


def run_arm(name: str, config: Values, material: Material, budget: Budget, run: Run, maps: Path) -> Result:
    """Trains an arm, measures it and draws it into `maps`; any reason why it cannot be done is a `ArmError`."""
    folder, log = fresh(material.folder, name)
    sure = checked(run, log)
    given = material.given(resolved(config), sure)
    train(config, [*given.options, *budget.limit], sure, folder)
    both = folder / "forward"  # of two directions the one that all other arms have
    result = {**trained(folder), **measured(both if both.is_dir() else folder, given, maps / f"{name}.svg")}
    shutil.rmtree(folder / "checkpoints", ignore_errors=True)
    return result


def trained(folder: Path) -> Result:
    """How far training came, and how fast: the median of the lines of its metrics, of which a short run has none."""
    lines = metrics_of(folder)
    training = [line for line in lines if line["kind"] == "training"]
    speeds = sorted(line["tokens_per_second"] for line in training)
    return {
        "updates": lines[-1]["step"],
        "epochs": training[-1]["epoch"] if training else None,
        "seconds": round(lines[-1]["seconds"], 1),
        "tokens_per_second": round(speeds[len(speeds) // 2]) if speeds else None,
    }


def metrics_of(folder: Path) -> list[Result]:
    """What a run told of itself, line by line."""
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


def lowest_perplexity(folder: Path) -> float | None:
    """The best of all validations; None if there was none."""
    found = [line["perplexity"] for line in metrics_of(folder) if line["kind"] == "validation"]
    return min(found, default=None)


def measured(folder: Path, given: Given, picture: Path) -> Result:
    """What a model's translations of the test part are worth, and where it looked; of a language model, its text."""
    translator = sightline.load(folder, engine="pytorch")
    parameters = {"parameters": parameter_count(translator.engines.inside().model)}
    if not translator.config.model.has_source:
        found = measure_text(translator, given.lines)
        return {**parameters, "word_perplexity": found.word_perplexity, "bits_per_character": found.bits}
    attends = has_attention(translator.config.model)
    written = list(translator.stream([pair.source for pair in given.test], align=attends))
    scores = evaluate(translator, given.test, written).as_dict()
    result = {**parameters, **scores, "repeated": repeated([one.text for one in written])}
    if attends:
        result |= looks(written)
        draw(translator, given.shown, picture)
    return result


def repeated(texts: Sequence[str]) -> float:
    """The percentage of pairs of neighbouring words that stood in the same text before."""
    return repetition.repeated(repetition.phrases(text.split(), 2) for text in texts)


def looks(translations: Sequence[Translation]) -> Result:
    """How sharp the rows of weights are, from 0 to 1, and the percentage of source words that got next to no weight."""
    rows, words, missed = [], 0, 0
    for one in translations:
        if one.weights is None or not len(one.weights):
            continue
        own = np.delete(one.weights, list(one.dividers), axis=1)
        rows.append(links.sharpness(own))
        words += own.shape[1]
        missed += int((own.sum(0) < SEEN).sum())
    every = np.concatenate(rows) if rows else np.zeros(0)
    return {"sharpness": float(every.mean()) if every.size else None, "missed": 100 * missed / max(words, 1)}


def draw(translator: Translator, pairs: Sequence[Pair], picture: Path) -> None:
    """Where the model looks when it is given the right words, one below the other."""
    seen = align_corpus(translator, list(pairs))
    write_picture(picture, [heatmap(one, translator.config.alignment) for one in seen])
