"""From the command to the first update on the bundled corpus: with an empty cache (cold) and with a full one (warm).

    python benchmarks/startup.py [--rounds 5] [--helps 7] [--results FILE]

`sightline train --recipe transformer` runs on the English-German corpus that comes with Sightline, cold and warm in
turn. The clock starts just before the process does and stops when the line of the first update is in `metrics.jsonl`;
then the process is killed. What it says on the way tells how the time is spent. A start that is not counted comes
first, so that the system has the files of Python and torch in its memory, as on any but the first start of a day.
Before that `sightline --help` is timed from the start of its process to its end, after one that is not counted either.

Results go to `benchmarks/results/startup.json`, times in seconds. `processor_seconds` are what the processors spent on
a start, all of them together: on a busy machine they tell more than the clock, which a start then shares with others.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.speed.common import command, machine
from benchmarks.speed.watched import Watched
from sightline.data import bundled

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "startup.json"
GLANCE = 0.005  # seconds between looks at the metrics file
# What the command says, and what is done by then.
SIGNS = {
    "learning the tokenizer": "imports, and a first reading",
    "tokenizer: ": "a tokenizer learnt, or found",
    "transformer: ": "tokenised, or mapped, and a model built",
}
FIRST, SPENT = "the first update", "processor_seconds"


def helped() -> float:
    """Seconds that `sightline --help` takes, from nothing to its end."""
    line = [sys.executable, "-m", "sightline", "--help"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    began = time.monotonic()
    subprocess.run(line, check=True, stdout=subprocess.DEVNULL, env=environment)
    return time.monotonic() - began


def asked(times: int) -> dict[str, Any]:
    """`--help` so many times, and once before that, which is not counted: each time, and the median."""
    _, *seconds = (round(helped(), 3) for _ in range(times + 1))
    print(f"--help: {seconds}", flush=True)
    return {"median": statistics.median(seconds), "seconds": seconds}


def start(cache: Path, output: Path) -> dict[str, float]:
    """One start: the seconds until each sign, and until the first update; and the processors' seconds."""
    before = spent()
    shutil.rmtree(output, ignore_errors=True)
    arguments = ["train", "--recipe", "transformer", "--pairs", bundled("train"), "--output", output]
    arguments += ["--set", f"data.cache={cache}", "--set", "training.log_every=1"]
    seconds: dict[str, float] = {}
    with Watched(arguments, output) as process:
        while not process.updates():
            if not process.running():
                raise SystemExit("the run ended before its first update")
            time.sleep(GLANCE)
        done = process.elapsed()
        for second, text in process.news():
            seconds |= {name: second for sign, name in SIGNS.items() if text.startswith(sign)}
    return {name: round(second, 2) for name, second in {**seconds, FIRST: done, SPENT: spent() - before}.items()}


def spent() -> float:
    """Seconds of all processors on the processes that were started here and are over."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measured(rounds: int, work: Path) -> dict[str, Any]:
    """All rounds: for each kind of start the median of each time, and every time of the first update."""
    full, empty, output = work / "full", work / "empty", work / "model"
    print(f"not counted: {start(full, output)[FIRST]:.2f} s", flush=True)
    found: dict[str, list[dict[str, float]]] = {"cold": [], "warm": []}
    for _ in range(rounds):
        for kind, cache in (("cold", empty), ("warm", full)):
            shutil.rmtree(empty, ignore_errors=True)
            found[kind].append(start(cache, output))
            print(f"{kind}: {found[kind][-1]}", flush=True)
    return {
        kind: {
            "median": {name: statistics.median(one[name] for one in starts) for name in starts[0]},
            "first_updates": [one[FIRST] for one in starts],
        }
        for kind, starts in found.items()
    }


def main() -> None:
    """Measures and records."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--helps", type=int, default=7)
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="startup-") as folder:
        found = {"help": asked(options.helps), **measured(options.rounds, Path(folder))}
    load = round(os.getloadavg()[0], 1)
    about = {"command": command(), "machine": machine(), "rounds": options.rounds, "load_at_the_end": load}
    options.results.write_text(json.dumps({**about, **found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
