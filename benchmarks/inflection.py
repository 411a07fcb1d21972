"""German inflection (SIGMORPHON 2016, task 1): kinds of attention on one task, through the command line.

    python benchmarks/inflection.py --data DIR [--arms soft,exact_jumps] [--seeds 1,2,3] [--updates 2000] [--threads 1]

DIR holds `german-task1-train.gz`, `-dev.gz` and `-test.gz`, lines of `lemma<TAB>features<TAB>form`. A source is the
lemma letter by letter and then its features, one token each; a target is the form, letter by letter. The features come
last so that a model that never goes back can still read them when the ending is due. Every arm has the same data,
sizes, updates and seeds: in minutes a machine that is slower in the second hour would decide which arm is better. How
fast each arm was stands beside its accuracy. Accuracy is the share of forms of the test that are right to the last
letter. The best that was published by 2017 is about 96 (recalled, not read again).

With the defaults an arm takes 3 to 10 minutes with each seed, all of them some three and a half hours. On two
processors half of it: the models are so small that a second thread hardly helps, so start it twice, with other `--arms`
and another `--runs`; both fill one record. Results go to `benchmarks/results/inflection.json`, arm by arm and seed by
seed, each as soon as it is there and with the command that makes it again. Runs that are recorded with the same
settings are left out, so that one that was broken off goes on, and `--again` trains them too. One that fails is
recorded with its reason, the others go on, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import gzip
import shutil
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.mechanisms import running
from benchmarks.mechanisms.entries import Values
from benchmarks.mechanisms.records import Result, divided, fill, read_record, record
from sightline.config import assignment, merge

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


def copying(kind: str) -> Arm:
    """Soft attention that may also copy a letter of the lemma."""
    # Most letters of a form are the lemma's: there is enough to copy without hiding any.
    return Arm("luong", (f"model.copying.kind={kind}", "model.copying.practice=0"))


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
    "pointer_generator": copying("pointer_generator"),
    "copynet": copying("copynet"),
    "copy_head": copying("copy_head"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Makes the data, trains, measures and records; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the three files")
    parser.add_argument("--arms", default=",".join(ARMS))
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--updates", type=int, default=2000, help="of training for each arm and seed")
    parser.add_argument("--minutes", type=float, help="end after so many minutes instead")
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--again", action="store_true", help="train what is recorded too")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="for every arm; repeatable")
    parser.add_argument("--runs", type=Path, default=Path("runs/inflection"), help="where data and models go")
    parser.add_argument("--results", type=Path, default=RESULTS / "inflection.json")
    options = parser.parse_args(arguments)
    arms, seeds = options.arms.split(","), [int(seed) for seed in options.seeds.split(",")]
    if unknown := sorted(set(arms) - set(ARMS)):
        parser.error(f"--arms: unknown {', '.join(unknown)}; there are {', '.join(ARMS)}")
    return run_all([(name, seed) for seed in seeds for name in arms], options)


def run_all(chosen: Sequence[tuple[str, int]], options: argparse.Namespace) -> int:
    """Trains, measures and records each arm with each seed that is not recorded yet; 1 if one failed."""
    updates = options.updates if options.minutes is None else None
    more = {"beam": options.beam, "minutes": options.minutes, "max_updates": updates, "threads": options.threads}
    wanted = {
        told_run(name, seed): {"seed": seed, "config": config(name, seed, options.set), **more} for name, seed in chosen
    }
    run = running.commands(options.threads)

    @cache
    def data() -> Path:
        make_data(options.data, options.runs)
        return options.runs

    def measure(name: str) -> Result:
        return run_arm(name, wanted[name], data(), run)

    return fill(
        options.results,
        wanted,
        [*ARMS],
        measure,
        told,
        (options.runs, options.data),
        (options.minutes or options.updates / 500) + 0.5,  # half a minute to measure
        options.again,
        read=read_runs,
        write=record_run,
    )


def told_run(name: str, seed: int) -> str:
    """What one training is called."""
    return f"{name}, seed {seed}"


def config(name: str, seed: int, given: Sequence[str] = ()) -> Values:
    """The whole configuration of an arm with a seed."""
    settings = [*COMMON, *ARMS[name].settings, f"training.seed={seed}", *given]
    return reduce(merge, map(assignment, settings), {"model": {"recipe": ARMS[name].recipe}})


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


def run_arm(name: str, wanted: Result, data: Path, run: running.Run) -> Result:
    """Trains one model from one seed, inflects the test's lemmas, and measures."""
    folder, log = running.fresh(data, name.replace(", seed ", "-").replace(" ", "-"))
    sure = running.checked(run, log)
    text = ["--pairs", str(data / "train.tsv"), "--valid-pairs", str(data / "valid.tsv")]
    running.train(wanted["config"], [*text, *running.limit(wanted["minutes"], wanted["max_updates"])], sure, folder)
    pairs = [line.split("\t") for line in (data / "test.tsv").read_text(encoding="utf-8").splitlines()]
    lemmas, output = data / "test.source", folder.with_suffix(".txt")
    lemmas.write_text("".join(f"{source}\n" for source, _ in pairs), encoding="utf-8")
    sure(["translate", str(folder), str(lemmas), "--beam", str(wanted["beam"]), "--output", str(output)])
    found = output.read_text(encoding="utf-8").splitlines()
    shutil.rmtree(folder / "checkpoints", ignore_errors=True)
    right = accuracy(found, [target for _, target in pairs])
    return {"accuracy": right, "forms": len(pairs), **running.trained(folder)}


def accuracy(found: Sequence[str], expected: Sequence[str]) -> float:
    """The percentage of forms that are right to the last letter."""
    right = sum(one.split() == other.split() for one, other in zip(found, expected, strict=True))
    return round(100 * right / len(expected), 2)


def told(result: Result) -> str:
    """The most important figures."""
    return f"{result['accuracy']}% right, {result['updates']} updates"


# Results: of each arm its runs, and their mean


def read_runs(path: Path) -> dict[str, Result]:
    """All runs so far, by what they are called."""
    return {told_run(name, one["seed"]): one for name, found in read_record(path).items() for one in found["runs"]}


def record_run(path: Path, name: str, result: Result, order: Sequence[str]) -> None:
    """Puts one arm's result for one seed into the file, the others staying as they are."""
    arm = name.rpartition(", seed ")[0]
    everything = read_record(path)
    runs = {one["seed"]: one for one in everything.get(arm, {}).get("runs", [])}
    runs[result["seed"]] = result
    done, failed = divided({told_run(arm, seed): runs[seed] for seed in sorted(runs)})
    scores = [one["accuracy"] for one in done.values()]
    of_all: Result = {"accuracy": round(statistics.mean(scores), 2)} if scores else {"failed": " ".join(failed)}
    of_all["deviation"] = round(statistics.stdev(scores), 2) if len(scores) > 1 else None
    record(path, arm, {**of_all, "runs": [runs[seed] for seed in sorted(runs)]}, order)


if __name__ == "__main__":
    sys.exit(main())
