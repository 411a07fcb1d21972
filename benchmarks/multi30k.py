"""Multi30k, English to German: each recipe trained for the same minutes through the command line, and compared.

    python benchmarks/multi30k.py --data DIR [--recipes transformer,bahdanau] [--minutes 25] [--threads 2]

DIR holds `train.tok.en.gz`, `val.tok.en.gz`, `test2016.tok.en.gz` and their `.de` sides: the lower-cased, tokenised
release that papers score on, so BLEU runs with `tokenize=none`. Results go to `benchmarks/results/multi30k.json`,
recipe by recipe and each with the command that makes it again; the figures beside it are drawn from all of them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.speed.common import command, machine

RESULTS = Path(__file__).parent / "results"
RECIPES = ("seq2seq", "bahdanau", "luong", "transformer")
# Small batches: in a few minutes many small updates learn more than few large ones.
# Validations often enough for a point of the curve in at most two minutes, where 130 updates take one.
COMMON = ["data.batch_tokens=1024", "training.bleu_tokenize=none", "training.validate_every=250"]
SETTINGS: dict[str, list[str]] = {
    "seq2seq": ["model.dropout=0.3"],
    "bahdanau": ["model.dropout=0.3"],
    "luong": ["model.dropout=0.3"],
    "transformer": ["model.dropout=0.2", "training.learning_rate=0.002"],
}


def main() -> None:
    """Trains, scores and records."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the .tok files")
    parser.add_argument("--recipes", default=",".join(RECIPES))
    parser.add_argument("--minutes", type=float, default=25.0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=Path, default=Path("runs/multi30k"), help="where the models go")
    options = parser.parse_args()
    for recipe in options.recipes.split(","):
        record(recipe, run(recipe, options))
    draw()


def run(recipe: str, options: argparse.Namespace) -> dict[str, Any]:
    """One recipe: train, then evaluate on test2016."""
    folder = options.runs / recipe
    settings = [*COMMON, *SETTINGS[recipe]]
    train = ["train", "--recipe", recipe, "--output", str(folder), "--max-minutes", str(options.minutes)]
    for part, name in (("", "train"), ("valid-", "val")):
        train += [f"--{part}source", str(options.data / f"{name}.tok.en.gz")]
        train += [f"--{part}target", str(options.data / f"{name}.tok.de.gz")]
    for setting in settings:
        train += ["--set", setting]
    sightline(train, options.threads)
    test = ["--source", str(options.data / "test2016.tok.en.gz"), "--target", str(options.data / "test2016.tok.de.gz")]
    began = time.monotonic()
    found = sightline(["evaluate", str(folder), *test, "--tokenize", "none", "--by-length", "--json"], options.threads)
    seconds = time.monotonic() - began
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    training = [line for line in lines if line["kind"] == "training"]
    return {
        "minutes": options.minutes,
        "threads": options.threads,
        "settings": settings,
        "updates": training[-1]["step"],
        "epochs": training[-1]["epoch"],
        "tokens_per_second": sorted(line["tokens_per_second"] for line in training)[len(training) // 2],
        "test2016": json.loads(found),
        "evaluate_seconds": round(seconds, 1),
        "validation": [
            {"minutes": round(line["seconds"] / 60, 2), "bleu": line["bleu"], "perplexity": line["perplexity"]}
            for line in lines
            if line["kind"] == "validation"
        ],
    }


def sightline(arguments: list[str], threads: int) -> str:
    """Runs a command as a user would; its progress goes to stderr."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    command = [sys.executable, "-m", "sightline", *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout


def record(recipe: str, result: dict[str, Any]) -> None:
    """Puts one recipe's result into the file, the others staying as they are."""
    path = RESULTS / "multi30k.json"
    everything = json.loads(path.read_text()) if path.exists() else {}
    everything[recipe] = {**result, "command": command(), "machine": machine()}
    path.write_text(json.dumps(everything, indent=1) + "\n")
    scores = result["test2016"]
    print(
        f"{recipe}: BLEU {scores['bleu']['value']:.2f}, chrF {scores['chrf']['value']:.2f}, {result['updates']} updates"
    )


def draw() -> None:
    """The two figures: BLEU over the minutes, and BLEU by source length."""
    from sightline.plot import curve_figure, length_figure

    everything = json.loads((RESULTS / "multi30k.json").read_text())
    curves = {
        name: [(point["minutes"], point["bleu"]) for point in result["validation"]]
        for name, result in everything.items()
    }
    curve_figure(curves, RESULTS / "multi30k-minutes.png", "Multi30k en-de: validation BLEU (greedy) over training")
    lengths = {
        name: [(bucket["label"], bucket["bleu"]) for bucket in result["test2016"]["by_length"]]
        for name, result in everything.items()
    }
    length_figure(lengths, RESULTS / "multi30k-length.png", "Multi30k test2016: BLEU by source length")


if __name__ == "__main__":
    main()
