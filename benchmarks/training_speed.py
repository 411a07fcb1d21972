"""Training speed, Sightline and its peers side by side: the same batches, the same sizes, in turns in one run.

    python benchmarks/training_speed.py --data DIR [--peer-python marian=PATH --peer-python opennmt=PATH …]

DIR holds `train.tok.en.gz` and `train.tok.de.gz` of Multi30k. Each contender trains in a process of its own, which
waits while the others compute. A peer runs in the Python named by `--peer-python` or by the environment variable
`SIGHTLINE_PEER_OPENNMT` and so on, else in this one; what is not installed is left out with a line that says so, but
for MarianMT (`pip install 'sightline[benchmarks]'`), without which there is no comparison. Results go to
`benchmarks/results/training_speed.json` and `.md`. `--curves 500` also trains for so many updates and puts loss curves
next to each other: of Sightline and MarianMT from the same initial weights, and of Sightline's RNN and OpenNMT-py's
from different ones. With `--rounds 0` it does only that, on a machine that may be busy, and puts them into the record
that is there.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.speed import flops, plan, report
from benchmarks.speed.arena import LEAD, Arena
from benchmarks.speed.common import command, machine, pythons, say
from benchmarks.speed.contenders import CONTENDERS
from benchmarks.speed.job import SIZES, Job
from benchmarks.speed.processes import Failed
from sightline.errors import SightlineError
from sightline.performance import available_processors

RESULTS = Path(__file__).parent / "results"
COMMON = ("dropout", "smoothing", "clip", "peak", "warmup", "betas", "epsilon", "seed")
NOTES = (
    "Every contender's tokens are counted the same way: target tokens with their end symbol, no padding.",
    "Sightline trains through its own trainer. A peer's model, loss and optimizer (in OpenNMT-py also its trainer) are "
    "its own, driven on the same token ids; none runs through its own reading of files.",
    "The first update of a turn does not count: while the others computed, the processor forgot what this contender "
    "works with.",
    "times the fastest peer: to the fastest peer as it comes out of the box, the median of the rounds' own ratios.",
    "share of matmul rate: the model's arithmetic over real tokens, 6 operations for each multiply-add of the forward "
    "pass, as a share of what this machine does on a 1024-cube product in the same round, by the faster of torch's two "
    "libraries for it.",
    "Sightline and MarianMT drop nothing inside their feed-forward layers (their default); OpenNMT-py, JoeyNMT and "
    "Sockeye do. Attention weights are not dropped, but in JoeyNMT, which has one rate for both. MarianMT normalises "
    "after a sublayer, the others before.",
    "The peers' RNN is Luong's with input feeding and additive scores: its output layer is as wide as the decoder, "
    "Bahdanau's as wide as an embedding. MFLOP a token tells the difference; sightline-input-feeding is "
    "built like theirs.",
)


def main() -> None:
    """Measures and records."""
    options = parse(sys.argv[1:])
    with tempfile.TemporaryDirectory(prefix="training-speed-") as folder:
        try:
            results = (run if options.rounds else run_curves)(options, options.work or Path(folder))
        except (Failed, SightlineError) as error:
            print(f"training_speed: {error}", file=sys.stderr)
            sys.exit(2)
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "training_speed.json").write_text(json.dumps(results, indent=1) + "\n")
    page = report.markdown(results)
    (options.output / "training_speed.md").write_text(page)
    print(page)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the .tok files")
    parser.add_argument("--sizes", default=",".join(SIZES))
    parser.add_argument("--contenders", default=",".join(contender.name for contender in CONTENDERS))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--batches", type=int, default=4, help="updates of a turn")
    parser.add_argument("--warmup", type=int, default=8, help="updates before the first round, not counted")
    parser.add_argument("--batch-tokens", type=int, default=4096)
    parser.add_argument("--vocabulary", type=int, default=8000)
    parser.add_argument("--threads", type=int, help="default: the processors this process may use")
    parser.add_argument("--curves", type=int, default=0, metavar="UPDATES", help="0: no loss curves")
    parser.add_argument("--peer-python", action="append", default=[], metavar="NAME=PATH")
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--work", type=Path, help="keep the batches and the contenders' logs in this folder")
    options = parser.parse_args(arguments)
    options.sizes, options.contenders = options.sizes.split(","), options.contenders.split(",")
    known = {contender.name for contender in CONTENDERS}
    for wrong in [*set(options.sizes) - set(SIZES), *set(options.contenders) - known]:
        parser.error(f"unknown name '{wrong}': sizes are {', '.join(SIZES)}, contenders {', '.join(sorted(known))}")
    if not options.rounds and not (options.curves and (options.output / "training_speed.json").exists()):
        parser.error("--rounds 0 goes with --curves, and needs a record of the speeds to put them into")
    if min(options.batches, options.warmup) < 1 or options.rounds < 0:
        parser.error("--rounds, --batches and --warmup must be at least 1")
    if options.work:
        options.work.mkdir(parents=True, exist_ok=True)
    names = {contender.adaptor for contender in CONTENDERS if contender.peer}
    options.pythons = pythons(names, options.peer_python, parser)
    return options


def run(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Everything that is recorded."""
    arena = make_arena(options, folder)
    sizes = {}
    for size in options.sizes:
        wanted = [one for one in CONTENDERS if one.name in options.contenders and size in one.sizes]
        sizes[size] = {
            "what": str(SIZES[size]),
            **arena.measure(size, wanted, options.rounds, options.batches, options.warmup),
        }
    names = ("rounds", "batches", "batch_tokens", "vocabulary")
    return {
        "command": command(),
        "machine": machine(),
        "settings": {
            **{name: getattr(options, name) for name in names},
            "threads": arena.threads,
            "warmup_updates": options.warmup,
            "lead_updates": LEAD,
            # What every job has in common are the fields with a default.
            **{one.name: one.default for one in fields(Job) if one.name in COMMON},
        },
        "formulas": {"operations": "6 * multiply-adds of a pair of s source and t target tokens", **flops.FORMULAS},
        "sizes": sizes,
        "curves": curves(arena, options) if options.curves else {},
        "notes": list(NOTES),
    }


def run_curves(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """The record that is there, with new loss curves."""
    found: dict[str, Any] = json.loads((options.output / "training_speed.json").read_text())
    new = curves(make_arena(options, folder), options)
    return {**found, "curves": {**found["curves"], **new}, "curves_command": command()}


def make_arena(options: argparse.Namespace, folder: Path) -> Arena:
    """Where the contenders meet, with its batches."""
    updates = max(options.warmup + options.rounds * (LEAD + options.batches), options.curves)
    say(f"learning a vocabulary of {options.vocabulary:,} and making {updates} batches")
    files = [options.data / f"train.tok.{language}.gz" for language in ("en", "de")]
    batches = plan.make(*files, options.vocabulary, options.batch_tokens, updates)
    return Arena(batches, folder, options.threads or available_processors(), options.pythons, say)


def curves(arena: Arena, options: argparse.Namespace) -> dict[str, Any]:
    """Loss curves of Sightline and a peer, for the sizes whose peer is there."""
    found = {size: arena.curves(size, options.curves) for size in options.sizes}
    return {size: curves for size, curves in found.items() if curves}


if __name__ == "__main__":
    main()
