"""The configurations of examples/multi30k run to their end, and how well they translate.

    python benchmarks/multi30k_examples.py --data DIR --runs DIR [--configs transformer,bahdanau,luong] [--max-steps N]

DIR holds the `.tok` files of Multi30k. A run that was begun goes on, also past its configuration's end if `--max-steps`
says so (the rate then rises again to where a longer run's would be); one that is over is only scored: test2016, beam 5,
BLEU with `tokenize=none`, as papers do on this release. Results go to `benchmarks/results/multi30k_examples.json`, each
as soon as it is there.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.speed.common import machine

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "multi30k_examples.json"
CONFIGS = ("transformer", "bahdanau", "luong")


def main() -> None:
    """Trains, scores and records."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the .tok files")
    parser.add_argument("--runs", type=Path, required=True, help="where the models are made")
    parser.add_argument("--configs", default=",".join(CONFIGS))
    parser.add_argument("--max-steps", type=int, help="go on to so many updates")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    for name in options.configs.split(","):
        train(name, options.data, options.runs / name, options.max_steps)
        found = score(options.data, options.runs / name)
        known = json.loads(options.results.read_text()) if options.results.is_file() else {}
        command = f"python benchmarks/multi30k_examples.py --data DIR --runs DIR --configs {name}"
        if options.max_steps:
            command = f"{command} && {command} --max-steps {options.max_steps}"
        known[name] = {"command": command, "machine": machine(), **found}
        options.results.write_text(json.dumps(known, indent=1) + "\n")
        print(f"{name}: BLEU {found['bleu']['value']:.2f} after {found['minutes']:.0f} minutes", flush=True)


def sightline(*arguments: object) -> str:
    """Runs the command line; its progress goes to the terminal, its output comes back."""
    line = [sys.executable, "-m", "sightline", *map(str, arguments)]
    return subprocess.run(line, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def files(data: Path, part: str) -> tuple[Path, Path]:
    """A part's source and target."""
    return data.resolve() / f"{part}.tok.en.gz", data.resolve() / f"{part}.tok.de.gz"


def train(name: str, data: Path, run: Path, steps: int | None) -> None:
    """To the end, from where it stands."""
    if (run / "checkpoints").is_dir():
        further = ["--max-steps", steps] if steps else []
        sightline("train", "--output", run.resolve(), "--resume", *further)
        return
    (source, target), (valid_source, valid_target) = files(data, "train"), files(data, "val")
    given = ["--source", source, "--target", target, "--valid-source", valid_source, "--valid-target", valid_target]
    sightline("train", ROOT / "examples" / "multi30k" / f"{name}.yaml", "--output", run.resolve(), *given)


def score(data: Path, run: Path) -> dict[str, Any]:
    """The scores on test2016, and what the run took."""
    source, target = files(data, "test2016")
    options = ["--source", source, "--target", target, "--tokenize", "none", "--beam", 5, "--by-length", "--json"]
    found = json.loads(sightline("evaluate", run.resolve(), *options))
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    last = [line for line in lines if "seconds" in line][-1]
    return {**found, "updates": last["step"], "minutes": round(last["seconds"] / 60, 1)}


if __name__ == "__main__":
    main()
