"""Two toy tasks that show what attention is for, through the command line.

    python benchmarks/toy_tasks.py [--tasks reverse,copy] [--arms transformer,bahdanau] [--threads N] [--runs DIR]

reverse: ten different letters, to be written backwards. The attention models must do it without a mistake, and their
heat-maps must be the anti-diagonal; a Transformer that is told no positions cannot know the order, and must fail.
copy: random strings of 5 to 30 letters in training, 5 to 50 in the test. One fixed vector holds less of a string the
longer it is, while attention stays as good up to the longest string it was trained on.

The data are made here from a fixed seed, and training ends after a number of updates, so that no result depends on
the speed of the machine. Results go to `benchmarks/results/toy_tasks.json`, arm by arm and each with the command that
makes it again, with figures beside it. The exit code is 1 if an arm that ran misses its goal.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import string
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.speed.common import command, machine

RESULTS = Path(__file__).parent / "results"
SYMBOLS = string.ascii_lowercase
SEED = 1
REVERSED = 10  # letters of a string of the reverse task
TRAINED, TESTED = (5, 30), (5, 50)  # shortest and longest string of the copy task
BUCKETS = ((5, 10), *((first, first + 4) for first in range(11, 50, 5)))

Example = tuple[list[str], list[str]]

COMMON = ("text.tokenizer=word", "model.dropout=0", "training.label_smoothing=0", "training.learning_rate=0.003",
          "training.validate_bleu=0", f"training.seed={SEED}")  # fmt: skip
TRANSFORMER = ("model.embedding=64", "model.encoder.layers=2", "model.encoder.feedforward=128",
               "model.decoder.layers=2", "model.decoder.feedforward=128")  # fmt: skip
RECURRENT = ("model.embedding=32", "model.decoder.width=128")
# Twice as wide as the others: its one vector shall not be too narrow by choice of ours.
FIXED = ("model.embedding=32", "model.decoder.width=256")


@dataclass(frozen=True)
class Arm:
    """One model on one task."""

    recipe: str
    settings: tuple[str, ...]


@dataclass(frozen=True)
class Task:
    """What all arms of a task share."""

    updates: int
    batch_tokens: int
    arms: dict[str, Arm]


ATTENTION = {
    "transformer": Arm("transformer", TRANSFORMER),
    "bahdanau": Arm("bahdanau", RECURRENT),
    "luong": Arm("luong", RECURRENT),
}
NO_POSITIONS = "transformer without positions"
TASKS = {
    "reverse": Task(400, 2048, {**ATTENTION, NO_POSITIONS: Arm("transformer", (*TRANSFORMER, "model.positions=none"))}),
    "copy": Task(1500, 1024, {"seq2seq": Arm("seq2seq", FIXED), **ATTENTION}),
}


def main() -> None:
    """Makes the data, trains, measures and records; then draws from all that is recorded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--arms", default="", help="only these models, such as bahdanau,luong")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--runs", type=Path, default=Path("runs/toy_tasks"), help="where data and models go")
    options = parser.parse_args()
    chosen = options.arms.split(",") if options.arms else None
    missed = False
    for task in options.tasks.split(","):
        folder = options.runs / task
        make_data(task, folder)
        for name, arm in TASKS[task].arms.items():
            if chosen is None or name in chosen:
                result = run(task, name, arm, folder, options.threads)
                record(task, name, result)
                missed = missed or not result["goal"]["reached"]
    draw()
    sys.exit(int(missed))


# The data


def reverse_pairs(
    generator: random.Random, count: int, symbols: str = SYMBOLS, length: int = REVERSED
) -> list[Example]:
    """Strings of different symbols, and the same backwards."""
    strings = [generator.sample(symbols, length) for _ in range(count)]
    return [(letters, letters[::-1]) for letters in strings]


def copy_pairs(generator: random.Random, lengths: Sequence[int], symbols: str = SYMBOLS) -> list[Example]:
    """A random string of each length, symbols repeating freely, and the same again."""
    strings = [generator.choices(symbols, k=length) for length in lengths]
    return [(letters, letters) for letters in strings]


def make_data(task: str, folder: Path, training: int = 50_000) -> None:
    """Writes `train.tsv`, `valid.tsv` and `test.tsv`; no string of the last two is in the first."""
    generator = random.Random(SEED)
    if task == "reverse":
        train, valid, test = (reverse_pairs(generator, count) for count in (training, 500, 1000))
    else:
        train, valid = (
            copy_pairs(generator, [generator.randint(*TRAINED) for _ in range(count)]) for count in (training, 500)
        )
        test = copy_pairs(generator, [length for length in range(TESTED[0], TESTED[1] + 1) for _ in range(40)])
    seen = {tuple(source) for source, _ in train}
    folder.mkdir(parents=True, exist_ok=True)
    write_pairs(folder / "train.tsv", train)
    for name, pairs in (("valid", valid), ("test", test)):
        write_pairs(folder / f"{name}.tsv", [pair for pair in pairs if tuple(pair[0]) not in seen])


def write_pairs(path: Path, pairs: Sequence[Example]) -> None:
    """One pair a line, its sides divided by a tab, their symbols by spaces."""
    path.write_text("".join(f"{' '.join(source)}\t{' '.join(target)}\n" for source, target in pairs))


def read_sides(path: Path) -> Iterator[tuple[str, str]]:
    """The lines of `write_pairs`, each as its two sides."""
    for line in path.read_text().splitlines():
        source, _, target = line.partition("\t")
        yield source, target


# One arm


def run(task: str, name: str, arm: Arm, folder: Path, threads: int) -> dict[str, Any]:
    """Trains one model, translates the test strings greedily, and measures."""
    model = folder / name.replace(" ", "-")
    shared = TASKS[task]
    settings = [*COMMON, f"data.batch_tokens={shared.batch_tokens}", *arm.settings]
    command = ["train", "--recipe", arm.recipe, "--output", str(model), "--max-steps", str(shared.updates)]
    command += ["--pairs", str(folder / "train.tsv"), "--valid-pairs", str(folder / "valid.tsv")]
    for setting in settings:
        command += ["--set", setting]
    before = os.times().children_user
    sightline(command, threads)
    processor = os.times().children_user - before
    sources, targets = zip(*read_sides(folder / "test.tsv"), strict=True)
    strings = folder / "test.source"
    strings.write_text("".join(f"{source}\n" for source in sources))
    found = sightline(["translate", str(model), str(strings), "--beam", "1"], threads).splitlines()
    lines = [json.loads(line) for line in (model / "metrics.jsonl").read_text().splitlines()]
    result = {
        "settings": settings,
        "updates": lines[-1]["step"],
        "threads": threads,
        "seconds": round(lines[-1]["seconds"], 1),
        "processor_seconds": round(processor, 1),
        "validation_loss": next(line["loss"] for line in reversed(lines) if line["kind"] == "validation"),
        **accuracy(found, targets),
    }
    if task == "copy":
        return {**result, **measure_copy(name, found, targets)}
    if name == NO_POSITIONS:
        return {**result, **measure_ablation(result)}
    return {**result, **measure_reverse(name, result, model, folder, threads)}


def sightline(arguments: list[str], threads: int) -> str:
    """Runs a command as a user would; its progress goes to stderr."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    command = [sys.executable, "-m", "sightline", *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout


def accuracy(found: Sequence[str], expected: Sequence[str]) -> dict[str, Any]:
    """Percentages of strings that are right to the last symbol, and of symbols that stand in their right place."""
    pairs = [(one.split(), other.split()) for one, other in zip(found, expected, strict=True)]
    right = sum(one == two for ones, others in pairs for one, two in zip(ones, others, strict=False))
    return {
        "strings": len(pairs),
        "exact": round(100 * sum(one == other for one, other in pairs) / len(pairs), 2),
        "symbols": round(100 * right / sum(len(other) for _, other in pairs), 2),
    }


# What each task measures


def measure_reverse(name: str, result: dict[str, Any], model: Path, folder: Path, threads: int) -> dict[str, Any]:
    """How far the alignment is the anti-diagonal under both readings, and the heat-map of the first string."""
    pairs, picture = folder / "test.tsv", RESULTS / f"toy_tasks-reverse-{name}"
    RESULTS.mkdir(exist_ok=True)
    command = ["align", str(model), "--pairs", str(pairs), "--limit", "1"]
    command += ["--png", f"{picture}.png", "--svg", f"{picture}.svg"]
    targets = [target for _, target in read_sides(pairs)]
    shares = {}
    for reading in ("consumes", "predicts"):  # the pictures show the last one
        found = sightline([*command, "--reading", reading], threads).splitlines()
        shares[reading] = round(100 * mirrored(found, targets), 2)
    goal = "99% of strings exact, 99% of the strongest weights on the mirrored letter"
    reached = result["exact"] >= 99 and shares["predicts"] >= 99
    return {"anti_diagonal": shares, "goal": {"text": goal, "reached": reached}}


def measure_ablation(result: dict[str, Any]) -> dict[str, Any]:
    """Whether a model without positions is as lost as it must be.

    Whoever knows the letters but not their order guesses one of 10, then one of 9, and so on, and only the end symbol
    is certain: the loss cannot fall below that.
    """
    floor = math.log(math.factorial(REVERSED)) / (REVERSED + 1)
    chance = 100 / math.factorial(REVERSED)
    goal = f"no exact string (chance gives {chance:.5f}%) and a loss of at least {floor:.3f}"
    reached = result["exact"] <= 0.1 and result["validation_loss"] > 0.99 * floor
    return {"loss_floor": round(floor, 4), "goal": {"text": goal, "reached": reached}}


def mirrored(alignments: Sequence[str], targets: Sequence[str]) -> float:
    """The share of target symbols linked to the mirrored source symbol, of Pharaoh lines."""
    hits = total = 0
    for line, target in zip(alignments, targets, strict=True):
        length = len(target.split())
        total += length
        links = (tuple(map(int, link.split("-"))) for link in line.split())
        hits += sum(source == length - 1 - position for source, position in links)
    return hits / total


def measure_copy(name: str, found: Sequence[str], targets: Sequence[str]) -> dict[str, Any]:
    """Accuracy by length, and whether it stays flat (with attention) or falls (without) within the trained lengths."""
    by_length = []
    for first, last in BUCKETS:
        inside = [number for number, target in enumerate(targets) if first <= len(target.split()) <= last]
        scores = accuracy([found[number] for number in inside], [targets[number] for number in inside])
        by_length.append({"label": f"{first}-{last}", "longest": last, **scores})
    exact = [bucket["exact"] for bucket in by_length if bucket["longest"] <= TRAINED[1]]
    if name == "seq2seq":
        goal, reached = "exact strings fall by 20 points or more", exact[0] - exact[-1] >= 20
    else:
        goal, reached = "exact strings of all lengths within 2 points, 97% or more", max(exact) - min(exact) <= 2
        reached = reached and min(exact) >= 97
    return {"by_length": by_length, "goal": {"text": f"{goal}, up to length {TRAINED[1]}", "reached": reached}}


# Results


def record(task: str, name: str, result: dict[str, Any]) -> None:
    """Puts one arm's result into the file, the others staying as they are."""
    path = RESULTS / "toy_tasks.json"
    path.parent.mkdir(exist_ok=True)
    everything = json.loads(path.read_text()) if path.exists() else {}
    about = {"command": command(), "machine": machine()}
    arms = {**everything.get(task, {}), name: {**result, **about}}
    everything[task] = {name: arms[name] for name in TASKS[task].arms if name in arms}
    path.write_text(json.dumps(everything, indent=1) + "\n")
    told = "reached" if result["goal"]["reached"] else "MISSED"
    print(f"{task}, {name}: {result['exact']}% exact, {result['seconds']} s; goal {told}: {result['goal']['text']}")


def draw() -> None:
    """Accuracy over length on the copy task, a line for each model."""
    from sightline.plot import line_chart

    everything = json.loads((RESULTS / "toy_tasks.json").read_text())
    series = {
        name: [(bucket["longest"], bucket["exact"]) for bucket in result["by_length"]]
        for name, result in everything.get("copy", {}).items()
    }
    if series:
        title = f"Copying random strings (trained on lengths {TRAINED[0]} to {TRAINED[1]})"
        line_chart(series, RESULTS / "toy_tasks-copy.png", "length up to", "exact strings, %", title)


if __name__ == "__main__":
    main()
