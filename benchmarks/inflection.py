"""German inflection (SIGMORPHON 2016, task 1): kinds of attention on one task, through the command line.

    python benchmarks/inflection.py --data DIR [--arms soft,exact_jumps] [--seeds 1,2,3] [--minutes 5] [--threads 2]

DIR holds `german-task1-train.gz`, `-dev.gz` and `-test.gz`, lines of `lemma<TAB>features<TAB>form`. A source is the
lemma letter by letter and then its features, one token each; a target is the form, letter by letter. The features come
last so that a model that never goes back can still read them when the ending is due. Every arm has the same data,
sizes, minutes and seeds. Accuracy is the share of forms of the test that are right to the last letter.

With the defaults this takes `arms * seeds * minutes`, 8 * 3 * 5 = 120 minutes, and some seconds for each test. Results
go to `benchmarks/results/inflection.json`, arm by arm and seed by seed, each with the command that makes it again.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.speed.common import command, machine

RESULTS = Path(__file__).parent / "results"
FILES = {"train": "german-task1-train.gz", "valid": "german-task1-dev.gz", "test": "german-task1-test.gz"}
COMMON = (
    "text.tokenizer=word",
    "model.embedding=128",
    "model.encoder.width=128",
    "model.encoder.layers=2",
    "model.decoder.width=256",
    "model.dropout=0.3",
    "data.batch_tokens=1024",
    "training.label_smoothing=0",
    "training.learning_rate=0.002",
    "training.validate_bleu=0",
    "training.validate_every=250",
    "training.average=last",
    "training.watch=0",
)

Example = tuple[list[str], list[str]]


@dataclass(frozen=True)
class Arm:
    """A recipe and its settings."""

    recipe: str
    settings: tuple[str, ...] = ()


NO_FEEDING = "model.decoder.input_feeding=false"


def summed(choice: str) -> Arm:
    """Attention that is summed over all ways to choose positions."""
    return Arm("luong", (f"model.attention.choice={choice}", NO_FEEDING))


# One line an arm; all else is in COMMON.
ARMS = {
    "soft": Arm("luong"),
    "soft without input feeding": Arm("luong", (NO_FEEDING,)),
    "sampled": Arm("luong", ("model.attention.choice=sampled", "model.penalties.certainty=0.01")),
    "online_monotonic": Arm("luong", ("model.attention.choice=online_monotonic", "model.attention.score=additive")),
    "exact": summed("exact"),
    "exact_monotonic": summed("exact_monotonic"),
    "exact_jumps": summed("exact_jumps"),
    "segments": summed("segments"),
}


def main() -> None:
    """Makes the data, trains, measures and records."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the three files")
    parser.add_argument("--arms", default=",".join(ARMS))
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--minutes", type=float, default=5.0, help="of training for each arm and seed")
    parser.add_argument("--updates", type=int, help="end after so many updates instead")
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="for every arm; repeatable")
    parser.add_argument("--runs", type=Path, default=Path("runs/inflection"), help="where data and models go")
    parser.add_argument("--results", type=Path, default=RESULTS / "inflection.json")
    options = parser.parse_args()
    arms, seeds = options.arms.split(","), [int(seed) for seed in options.seeds.split(",")]
    if unknown := sorted(set(arms) - set(ARMS)):
        parser.error(f"--arms: unknown {', '.join(unknown)}; there are {', '.join(ARMS)}")
    if options.updates is None:
        print(f"about {len(arms) * len(seeds) * options.minutes:.0f} minutes", file=sys.stderr)
    make_data(options.data, options.runs)
    for seed in seeds:
        for name in arms:
            record(options.results, name, run(name, seed, options))


# The data


def read(path: Path) -> Iterator[Example]:
    """Sources and targets of one file, in symbols."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            parts = line.rstrip("\n").split("\t")
            if len(parts) != 3:
                sys.exit(f"{path.name}, line {number}: expected lemma, features and form, divided by tabs")
            lemma, features, form = parts
            yield [*lemma, *features.split(",")], [*form]


def make_data(data: Path, folder: Path) -> None:
    """Writes `train.tsv`, `valid.tsv` and `test.tsv`, symbols divided by spaces."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, file in FILES.items():
        lines = [f"{' '.join(source)}\t{' '.join(target)}\n" for source, target in read(data / file)]
        (folder / f"{name}.tsv").write_text("".join(lines), encoding="utf-8")


# One arm


def run(name: str, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """Trains one model from one seed, inflects the test's lemmas, and measures."""
    arm, folder = ARMS[name], options.runs
    model = folder / f"{name.replace(' ', '-')}-{seed}"
    settings = [*COMMON, *arm.settings, f"training.seed={seed}", *options.set]
    limit = (
        ["--max-minutes", str(options.minutes)] if options.updates is None else ["--max-steps", str(options.updates)]
    )
    arguments = ["train", "--recipe", arm.recipe, "--output", str(model), *limit]
    arguments += ["--pairs", str(folder / "train.tsv"), "--valid-pairs", str(folder / "valid.tsv")]
    for setting in settings:
        arguments += ["--set", setting]
    sightline(arguments, options.threads)
    pairs = [line.split("\t") for line in (folder / "test.tsv").read_text(encoding="utf-8").splitlines()]
    lemmas = folder / "test.source"
    lemmas.write_text("".join(f"{source}\n" for source, _ in pairs), encoding="utf-8")
    found = sightline(["translate", str(model), str(lemmas), "--beam", str(options.beam)], options.threads)
    lines = [json.loads(line) for line in (model / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return {
        "seed": seed,
        "accuracy": accuracy(found.splitlines(), [target for _, target in pairs]),
        "forms": len(pairs),
        "beam": options.beam,
        "settings": settings,
        "updates": lines[-1]["step"],
        "seconds": round(lines[-1]["seconds"], 1),
        "threads": options.threads,
    }


def sightline(arguments: list[str], threads: int) -> str:
    """Runs a command as a user would; its progress goes to stderr."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    whole = [sys.executable, "-m", "sightline", *arguments]
    return subprocess.run(whole, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout


def accuracy(found: Sequence[str], expected: Sequence[str]) -> float:
    """The percentage of forms that are right to the last letter."""
    right = sum(one.split() == other.split() for one, other in zip(found, expected, strict=True))
    return round(100 * right / len(expected), 2)


# Results


def record(path: Path, name: str, result: dict[str, Any]) -> None:
    """Puts one arm's result for one seed into the file, the others staying as they are."""
    path.parent.mkdir(parents=True, exist_ok=True)
    everything = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    runs = {one["seed"]: one for one in everything.get(name, {}).get("runs", [])}
    runs[result["seed"]] = {**result, "command": command(), "machine": machine()}
    scores = [one["accuracy"] for one in runs.values()]
    spread = round(statistics.stdev(scores), 2) if len(scores) > 1 else None
    everything[name] = {
        "accuracy": round(statistics.mean(scores), 2),
        "deviation": spread,
        "runs": [runs[seed] for seed in sorted(runs)],
    }
    ordered = {arm: everything[arm] for arm in (*ARMS, *everything) if arm in everything}
    path.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")
    print(f"{name}, seed {result['seed']}: {result['accuracy']}% right, {result['updates']} updates")


if __name__ == "__main__":
    main()
