"""A corpus of millions of pairs through the command line: how long until it trains, and how much memory it takes.

    python benchmarks/big_corpus.py --work DIR [--pairs 5000000] [--steps 300] [--processors 2]

A made-up language of 50,000 words (frequencies after Zipf's law) is translated word by word into another, with its
sentences turned round in pairs of words. `sightline train` runs on it with an empty cache, for a few updates, then with
a full one, then on a corpus a tenth of the size with a full one: memory should not tell the two corpora apart. An epoch
of millions of pairs has more updates than there is time for, so from a full cache an epoch ends after `--epoch-updates`
of them, with all that belongs to it: the order of all pairs is made anew. The run's processes are looked at in /proc
several times a second, so this needs Linux. Then the orders of a few epochs are made, and checked for being what they
should: every pair once, anywhere, the same for the same seed and epoch.

Five million pairs take some 2 GB of DIR. Results go to `benchmarks/results/big_corpus.json`: times in seconds, memory
and files in megabytes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.speed.common import command, machine
from benchmarks.speed.watched import Watched
from sightline.data import EncodedPairs, batches
from sightline.folder import read_config
from sightline.limits import most_tokens
from sightline.preparing import prepare

RESULTS = Path(__file__).parent / "results" / "big_corpus.json"
WORDS, AT_ONCE = 50_000, 50_000
SYLLABLES = ("ba", "ke", "ri", "mo", "tu", "sa", "le", "ni", "do", "fu", "wa", "pe", "zi", "go", "hu", "ya")
GLANCE = 0.1  # seconds between looks at the process
MARKS = 10  # updates at which memory is told, the first one apart
FEW = 20  # updates of the run with an empty cache, at most
PART = 10  # the other corpus is so much smaller
# What the command says, and the phase that begins with it.
SIGNS = (
    ("learning the tokenizer", "learning the tokenizer"),
    ("tokenizer: ", "tokenising"),
    ("transformer: ", "training"),
)
SETTINGS = {
    "model.embedding": 128,
    "model.encoder.layers": 2,
    "model.decoder.layers": 2,
    "model.encoder.feedforward": 256,
    "model.decoder.feedforward": 256,
    "training.validate_bleu": 0,
    "training.log_every": 1,
}
BYTES_A_PAIR = 450  # of text and token ids, and some to spare
# `sightline` whose epochs end early; nothing else of it has been imported before.
SHORT_EPOCHS = """
import sys
from sightline import data
whole = data.batches
data.batches = lambda *given: whole(*given)[:{updates}]
from sightline.cli import main
sys.argv[0] = "sightline"
main()
"""


def words(offset: int) -> np.ndarray[Any, np.dtype[np.object_]]:
    """The words of a language: numbers spelled in syllables, the frequent ones short."""
    base = len(SYLLABLES)

    def spelled(number: int) -> str:
        parts = []
        while True:
            number, digit = divmod(number, base)
            parts.append(SYLLABLES[(digit + offset) % base])
            if not number:
                return "".join(parts) + "n" * (offset % 2)

    return np.array([spelled(number) for number in range(WORDS)], dtype=object)


def write_corpus(path: Path, pairs: int) -> None:
    """A TSV file of made-up pairs, always the same for the same number."""
    generator = np.random.default_rng(0)
    source, target = words(0), words(5)
    chances = 1 / np.arange(1, WORDS + 1)
    bounds = np.cumsum(chances / chances.sum())
    with open(path, "w", encoding="utf-8") as stream:
        for start in range(0, pairs, AT_ONCE):
            count = min(AT_ONCE, pairs - start)
            lengths = generator.integers(3, 21, count)
            drawn = np.minimum(np.searchsorted(bounds, generator.random(int(lengths.sum()))), WORDS - 1)
            ends = np.cumsum(lengths)
            starts = np.repeat(ends - lengths, lengths)
            places = np.arange(len(drawn)) - starts
            partners = np.where(places ^ 1 < np.repeat(lengths, lengths), places ^ 1, places)
            left, right = source[drawn].tolist(), target[drawn[starts + partners]].tolist()
            sentences = pairwise([0, *ends.tolist()])
            lines = [f"{' '.join(left[a:b])}\t{' '.join(right[a:b])}\n" for a, b in sentences]
            stream.writelines(lines)


class Phases:
    """Seconds and peak megabytes of each phase of a run, and its memory from update to update."""

    def __init__(self, steps: int) -> None:
        self.phase, self.began = "starting and reading", 0.0
        self.seconds: dict[str, float] = {}
        self.peaks: dict[str, dict[str, float]] = {}
        self.marks = sorted({1, *(max(1, steps * part // MARKS) for part in range(1, MARKS + 1))})
        self.by_update: dict[int, dict[str, float]] = {}

    def heard(self, second: float, text: str) -> None:
        """A line that the process has said."""
        for sign, name in SIGNS:
            if text.startswith(sign) and name != self.phase:
                self.seconds[self.phase] = second - self.began
                self.phase, self.began = name, second

    def seen(self, memory: dict[str, float], updates: int) -> None:
        """A look at the process: what it holds, and how many updates are done."""
        peak = self.peaks.setdefault(self.phase, {})
        for name, value in memory.items():
            peak[name] = max(peak.get(name, 0.0), value)
        reached = [mark for mark in self.marks if mark <= updates]
        if memory and reached:
            self.by_update.setdefault(reached[-1], memory)

    def told(self, end: float) -> dict[str, Any]:
        """All of it, rounded."""
        seconds = {**self.seconds, self.phase: end - self.began}
        return {
            "seconds": {name: round(value, 1) for name, value in seconds.items()},
            "peak_megabytes": {name: _rounded(peak) for name, peak in self.peaks.items()},
            "megabytes_after_updates": {str(mark): _rounded(memory) for mark, memory in self.by_update.items()},
        }


def _rounded(values: dict[str, float]) -> dict[str, int]:
    return {name: round(value) for name, value in values.items()}


@dataclass(frozen=True)
class Corpus:
    """A file of pairs, where its token ids are kept, and how it is trained on."""

    pairs: int
    file: Path
    cache: Path
    vocabulary: int
    processors: int

    def write(self) -> None:
        """Writes the file, unless it is there."""
        if not self.file.exists():
            print(f"writing {self.pairs:,} pairs", flush=True)
            partial = self.file.with_suffix(".partial")
            write_corpus(partial, self.pairs)
            partial.rename(self.file)


def run(corpus: Corpus, output: Path, steps: int, epoch_updates: int | None = None) -> dict[str, Any]:
    """One training run, watched from outside; its epochs end after so many updates, if that is told."""
    shutil.rmtree(output, ignore_errors=True)
    arguments: list[object] = ["train", "--recipe", "transformer", "--pairs", corpus.file, "--output", output]
    arguments += ["--max-steps", steps]
    for name, value in {**SETTINGS, "data.cache": corpus.cache, "text.vocabulary": corpus.vocabulary}.items():
        arguments += ["--set", f"{name}={value}"]
    phases, first = Phases(steps), None
    code = None if epoch_updates is None else SHORT_EPOCHS.format(updates=epoch_updates)
    with Watched(arguments, output, corpus.processors, code) as process:
        while process.running():
            for second, text in process.news():
                phases.heard(second, text)
            updates = process.updates()
            if updates and first is None:
                first = process.elapsed()
            phases.seen(process.memory(), updates)
            time.sleep(GLANCE)
        end = process.elapsed()
    lines = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    updates = [line for line in lines if line["kind"] == "training"]
    return {
        "pairs": corpus.pairs,
        "updates": len(updates),
        "epochs_ended": updates[-1]["epoch"],
        "seconds_to_the_first_update": round(first or end, 1),
        **phases.told(end),
        "target_tokens_per_second": round(statistics.median(line["tokens_per_second"] for line in updates)),
    }


def orders(model: Path, corpus: Corpus, epochs: int = 3) -> dict[str, Any]:
    """What the orders of some epochs are like; the data are mapped as a run maps them."""
    config = read_config(model)
    data = config.data.model_copy(update={"pairs": corpus.file, "cache": str(corpus.cache)})
    given = config.model_copy(update={"data": data})
    prepared = prepare(given, min(data.max_length, *most_tokens(config.model)))
    assert data.batch_tokens is not None
    return described(prepared.train, data.batch_tokens, config.training.seed, epochs)


def described(pairs: EncodedPairs, batch_tokens: int, seed: int, epochs: int) -> dict[str, Any]:
    """Checks of the orders of the first epochs.

    `mean_distance` is how far a pair stands from its place in the file, over the number of pairs: 1/3 for a full
    permutation, next to nothing for a shuffle within a window.
    """
    digests, distances, seconds, whole = [], [], [], True
    for epoch in range(epochs):
        began = time.monotonic()
        order = _order(pairs, batch_tokens, seed, epoch)
        seconds.append(round(time.monotonic() - began, 1))
        whole &= len(order) == len(pairs) and bool((np.bincount(order, minlength=len(pairs)) == 1).all())
        distances.append(round(float(np.abs(order - np.arange(len(order))).mean() / len(order)), 4))
        digests.append(_digest(order))
    return {
        "epochs": epochs,
        "every_pair_once": whole,
        "the_same_again": _digest(_order(pairs, batch_tokens, seed, 0)) == digests[0],
        "all_different": len(set(digests)) == epochs,
        "another_with_another_seed": _digest(_order(pairs, batch_tokens, seed + 1, 0)) not in digests,
        "mean_distance": distances,
        "seconds_to_make_one": seconds,
    }


def _order(pairs: EncodedPairs, batch_tokens: int, seed: int, epoch: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.concatenate(batches(pairs, batch_tokens, seed, epoch))


def _digest(order: np.ndarray[Any, np.dtype[np.int64]]) -> str:
    return hashlib.sha256(order.tobytes()).hexdigest()


def sizes(folder: Path) -> dict[str, int]:
    """Megabytes of the files of at least one, those of the cache by their kind."""
    files = [file for file in folder.rglob("*") if file.is_file()]
    return {file.name: round(file.stat().st_size / 2**20) for file in sorted(files) if file.stat().st_size >= 2**20}


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="a folder with room for 450 bytes a pair")
    parser.add_argument("--pairs", type=int, default=5_000_000)
    parser.add_argument("--steps", type=int, default=300, help="updates of a run from a full cache")
    parser.add_argument("--epoch-updates", type=int, help="end an epoch after so many; default: a third of --steps")
    parser.add_argument("--vocabulary", type=int, default=32_000, help="the same for both corpora")
    parser.add_argument("--processors", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    if options.epoch_updates is None:
        options.epoch_updates = max(1, options.steps // 3)
    if min(options.steps, options.epoch_updates) < 1 or options.pairs < PART:
        parser.error(f"--steps and --epoch-updates must be at least 1, --pairs at least {PART}")
    return options


def measured(corpus: Corpus, tenth: Corpus, output: Path, steps: int, epoch_updates: int) -> dict[str, Any]:
    """All runs, and what else is told of the larger corpus."""
    for one in (corpus, tenth):
        one.write()
        shutil.rmtree(one.cache, ignore_errors=True)
    runs = {
        "empty cache": run(corpus, output, min(FEW, steps)),
        "full cache": run(corpus, output, steps, epoch_updates),
    }
    checked = orders(output, corpus)
    run(tenth, output, 1)  # fills its cache
    runs["full cache, a tenth of the pairs"] = run(tenth, output, steps, epoch_updates)
    print(json.dumps(runs, indent=1), flush=True)
    return {
        "corpus_megabytes": round(corpus.file.stat().st_size / 2**20),
        "cache_megabytes": sizes(corpus.cache),
        "runs": runs,
        "orders": checked,
    }


def main() -> None:
    """Measures and records."""
    options = parse(sys.argv[1:])
    work = options.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    if shutil.disk_usage(work).free < options.pairs * BYTES_A_PAIR:
        raise SystemExit(f"{work}: {options.pairs:,} pairs need {options.pairs * BYTES_A_PAIR / 1e9:.1f} GB")
    corpus, tenth = (
        Corpus(pairs, work / f"corpus-{pairs}.tsv", work / f"cache-{pairs}", options.vocabulary, options.processors)
        for pairs in (options.pairs, options.pairs // PART)
    )
    found = {
        "command": command(),
        "pairs": options.pairs,
        "steps": options.steps,
        "epoch_updates": options.epoch_updates,
        "processors": options.processors,
        **measured(corpus, tenth, work / "model", options.steps, options.epoch_updates),
        "load_at_the_end": round(os.getloadavg()[0], 1),
        "machine": machine(),
    }
    options.results.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
