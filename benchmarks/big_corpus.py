"""A corpus of millions of pairs through the command line: how long until it trains, and how much memory it takes.

    python benchmarks/big_corpus.py --work DIR [--pairs 5000000] [--steps 100] [--processors 2]

A made-up language of 50,000 words (frequencies after Zipf's law) is translated word by word into another, with its
sentences turned round in pairs of words. `sightline train` runs on it twice: with an empty cache, then with a full one.
The run's processes are looked at in /proc several times a second, so this needs Linux.

Results go to `benchmarks/results/big_corpus.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import queue
import resource
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).parent / "results" / "big_corpus.json"
WORDS, AT_ONCE = 50_000, 50_000
SYLLABLES = ("ba", "ke", "ri", "mo", "tu", "sa", "le", "ni", "do", "fu", "wa", "pe", "zi", "go", "hu", "ya")
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


def words(offset: int) -> np.ndarray[Any, np.dtype[np.str_]]:
    """The words of a language: numbers spelled in syllables, the frequent ones short."""
    base = len(SYLLABLES)

    def spelled(number: int) -> str:
        parts = []
        while True:
            number, digit = divmod(number, base)
            parts.append(SYLLABLES[(digit + offset) % base])
            if not number:
                return "".join(parts) + "n" * (offset % 2)

    return np.array([spelled(number) for number in range(WORDS)])


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
            lines = []
            for sentence in np.split(drawn, np.cumsum(lengths)[:-1]):
                turned = sentence.copy()
                even = len(turned) // 2 * 2
                turned[:even] = turned[:even].reshape(-1, 2)[:, ::-1].reshape(-1)
                lines.append(f"{' '.join(source[sentence])}\t{' '.join(target[turned])}\n")
            stream.writelines(lines)


def memory(process: int) -> dict[str, float]:
    """Megabytes of a process: all that is resident, and its own part (without mapped files)."""
    try:
        text = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return {}
    fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    names = {"resident": "VmRSS", "own": "RssAnon"}
    return {name: int(fields[key].split()[0]) / 1024 for name, key in names.items() if key in fields}


def family(process: int) -> list[int]:
    """The process and those it started."""
    try:
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except OSError:
        children = []
    return [process, *map(int, children)]


def told(stream: Any) -> queue.Queue[tuple[float, str]]:
    """A process's lines with their times, as they come."""
    lines: queue.Queue[tuple[float, str]] = queue.Queue()

    def read() -> None:
        for line in stream:
            lines.put((time.monotonic(), line.rstrip("\n")))

    threading.Thread(target=read, daemon=True).start()
    return lines


def new_lines(lines: queue.Queue[tuple[float, str]]) -> Iterator[tuple[float, str]]:
    while not lines.empty():
        yield lines.get()


def run(corpus: Path, work: Path, steps: int, processors: int) -> dict[str, Any]:
    """One training run, watched from outside: seconds and peak megabytes of each phase."""
    output = work / "model"
    shutil.rmtree(output, ignore_errors=True)
    options = [part for name, value in SETTINGS.items() for part in ("--set", f"{name}={value}")]
    line = [sys.executable, "-m", "sightline", "train", "--pairs", str(corpus), "--output", str(output)]
    line += ["--max-steps", str(steps), "--set", f"data.cache={work / 'cache'}", *options]
    begun = time.monotonic()
    process = subprocess.Popen(
        line, stderr=subprocess.PIPE, text=True, preexec_fn=lambda: os.sched_setaffinity(0, range(processors))
    )
    lines, said = told(process.stderr), []
    phase, started = "starting and reading", begun
    seconds: dict[str, float] = {}
    peaks: dict[str, dict[str, float]] = {}
    trace: list[float] = []
    while process.poll() is None:
        for moment, text in new_lines(lines):
            said.append(text)
            for sign, name in SIGNS:
                if text.startswith(sign) and name != phase:
                    seconds[phase] = round(moment - started, 1)
                    phase, started = name, moment
        found = [one for one in map(memory, family(process.pid)) if one]
        if found:
            peak = peaks.setdefault(phase, {"resident": 0.0, "own": 0.0, "own_with_helpers": 0.0})
            peak["resident"] = max(peak["resident"], found[0].get("resident", 0.0))
            peak["own"] = max(peak["own"], found[0].get("own", 0.0))
            peak["own_with_helpers"] = max(peak["own_with_helpers"], sum(one.get("own", 0.0) for one in found))
            if phase == "training":
                trace.append(found[0].get("own", 0.0))
        time.sleep(0.1)
    seconds[phase] = round(time.monotonic() - started, 1)
    if process.returncode:
        raise SystemExit("\n".join([*said, *(text for _, text in new_lines(lines))]))
    first = json.loads((output / "metrics.jsonl").read_text().splitlines()[0])
    return {
        "seconds": seconds,
        "seconds_to_the_first_update": round(started - begun + first["seconds"], 1),
        "peak_megabytes": {name: {key: round(value) for key, value in peak.items()} for name, peak in peaks.items()},
        "own_megabytes_while_training": [round(trace[place * (len(trace) - 1) // 4]) for place in range(5)],
    }


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="a folder with room for a few gigabytes")
    parser.add_argument("--pairs", type=int, default=5_000_000)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--processors", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    corpus = arguments.work / f"corpus-{arguments.pairs}.tsv"
    if not corpus.exists():
        print(f"writing {arguments.pairs:,} pairs", flush=True)
        partial = corpus.with_suffix(".partial")
        write_corpus(partial, arguments.pairs)
        partial.rename(corpus)
    shutil.rmtree(arguments.work / "cache", ignore_errors=True)
    runs = {}
    for name in ("empty cache", "full cache"):
        runs[name] = run(corpus, arguments.work, arguments.steps, arguments.processors)
        print(name, json.dumps(runs[name], indent=1), flush=True)
    cached = sum(file.stat().st_size for file in (arguments.work / "cache").rglob("*") if file.is_file())
    found = {
        "pairs": arguments.pairs,
        "corpus_megabytes": round(corpus.stat().st_size / 2**20),
        "cache_megabytes": round(cached / 2**20),
        "steps": arguments.steps,
        "processors": arguments.processors,
        "machine": platform.processor() or platform.machine(),
        "largest_child_megabytes": round(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024),
        "runs": runs,
    }
    arguments.results.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
