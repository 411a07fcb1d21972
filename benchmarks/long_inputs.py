"""Long inputs: time and memory against length for full, hashed and linear attention, and the 0w0w task.

    python benchmarks/long_inputs.py [--parts growth,duplication] [--lengths 256,512,…,16384] [--threads 1]
        [--trained full,lsh-4,lsh-2,lsh-1] [--length 256] [--steps 3000]

growth: one encoder layer of width 256 with 4 heads reads one sequence, forward alone and forward and backward, each in
a process of its own, so that its highest memory is its own too. Full attention goes through torch's fused kernel, as it
does in a model. About 15 minutes on one processor with lengths up to 16,384.
duplication: a one-layer language model (recipe `lm`) learns 0w0w with each attention and is looked at with all of them,
beside the paper's table. With strings of 256 symbols and 3,000 updates about 15 minutes for each attention on one
processor; the paper has 1,024 symbols and many more updates (--length 1024). Each attention is recorded as soon as it
is done, and left out if it is recorded with the same sizes and seed.
Results go to `benchmarks/results/long_inputs.json`, part by part, with a figure beside it;
where a model of 0w0w looks goes to `docs/attention/heat-maps`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.mechanisms.pictures import PICTURES, picture_name
from benchmarks.mechanisms.records import alone, is_done, read_record
from benchmarks.mechanisms.records import record as record_part
from benchmarks.speed.common import environment, machine, say, without_paths

RESULTS = Path(__file__).parent / "results"
RECORD = "long_inputs.json"
PARTS = ("growth", "duplication")
LENGTHS = tuple(2**power for power in range(8, 15))
KINDS = ("full", "lsh", "linear")
WIDTH, HEADS = 256, 4
REPEATS = 3


def measure(kind: str, length: int, repeats: int = REPEATS, width: int = WIDTH, heads: int = HEADS) -> dict[str, Any]:
    """One layer in this process: median seconds, and bytes by which its highest memory exceeds that before."""
    import torch

    from sightline.config import build_config
    from sightline.encoders import TransformerEncoderLayer
    from sightline.layer_parts import make_feedforward, make_self_attention
    from sightline.performance import peak_memory

    torch.manual_seed(1)
    model = build_config({"model": {"encoder": {"attention": kind}}}, "transformer").model
    attention = make_self_attention(model, kind, width, heads, 0)
    layer = TransformerEncoderLayer(attention, make_feedforward(model, width, 4 * width), "layer", "pre", 0.0)
    states = torch.randn(1, length, width, requires_grad=True)
    before = peak_memory()

    def read() -> None:
        with torch.no_grad():
            layer(states, None)

    def learn() -> None:
        layer(states, None).sum().backward()

    found: dict[str, Any] = {"length": length}
    for name, work in (("forward", read), ("both", learn)):
        times = []
        for _ in range(repeats):
            start = time.perf_counter()
            work()
            times.append(time.perf_counter() - start)
        found[f"{name}_seconds"] = round(statistics.median(times), 5)
        found[f"{name}_bytes"] = max(0, peak_memory() - before)
    return found


def apart(kind: str, length: int, threads: int) -> dict[str, Any]:
    """The same in a process of its own; what did not end well says so."""
    command = [sys.executable, __file__, "--measure", kind, str(length)]
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True, env=environment(threads))
    if done.returncode:
        return {"length": length, "failed": f"exit code {done.returncode}: it needs more memory than there is"}
    row: dict[str, Any] = json.loads(done.stdout)
    say(f"{kind}, {length:,} positions: {row['both_seconds']:.3f} s, {row['both_bytes'] / 2**20:,.0f} MiB")
    return row


def growth(lengths: Sequence[int], threads: int) -> dict[str, list[dict[str, Any]]]:
    """Every attention at every length."""
    return {kind: [apart(kind, length, threads) for length in lengths] for kind in KINDS}


def draw(found: dict[str, list[dict[str, Any]]], path: Path) -> None:
    """Time and memory of learning, side by side."""
    from sightline.plot import growth_figure

    panels = {
        label: {kind: [(row["length"], row[key]) for row in rows if row.get(key)] for kind, rows in found.items()}
        for label, key in (("seconds, forward and backward", "both_seconds"), ("bytes at the highest", "both_bytes"))
    }
    growth_figure(panels, path, "positions", "One encoder layer")


def record(results: Path, part: str, values: dict[str, Any], given: Sequence[str]) -> None:
    """Puts one part's result into the file, the other staying as it is."""
    command = ["python", "benchmarks/long_inputs.py", *without_paths(given)]
    record_part(results / RECORD, part, {"command": command, "machine": machine(), **values}, PARTS)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures what was asked for, records and draws."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--lengths", default=",".join(map(str, LENGTHS)))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--trained", default="full,lsh-4,lsh-2,lsh-1")
    parser.add_argument("--length", type=int, default=256, help="symbols of 0w0w")
    parser.add_argument("--chunk", type=int, default=16, help="and of a chunk")
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--pictures", type=Path, default=PICTURES)
    parser.add_argument("--measure", nargs=2, metavar=("KIND", "LENGTH"), help="one layer, printed as JSON")
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = parser.parse_args(given)
    if options.measure:
        print(json.dumps(measure(options.measure[0], int(options.measure[1]))))
        return
    parts = options.parts.split(",")
    if "growth" in parts:
        layers = growth([int(each) for each in options.lengths.split(",")], options.threads)
        record(options.results, "growth", {"width": WIDTH, "heads": HEADS, "layers": layers}, given)
        draw(layers, options.results / "long_inputs.png")
    if "duplication" in parts:
        import torch

        from benchmarks.duplication import Size, row

        torch.set_num_threads(options.threads)
        size = replace(Size(), length=options.length, chunk=options.chunk, steps=options.steps, batch=options.batch)
        about = {"size": asdict(size), "seed": options.seed}

        def recorded() -> dict[str, Any]:
            before = read_record(options.results / RECORD).get("duplication", {})
            return before["trained_with"] if is_done(before, about) else {}

        for way in options.trained.split(","):
            if way not in recorded():
                name = picture_name(RECORD, ["duplication", "trained_with", way, "accuracy"])
                found = row(way, size, options.seed, say, options.pictures / f"{name}.svg")
                with alone(options.results / RECORD):
                    rows = {**recorded(), way: found}
                    record(options.results, "duplication", {**about, "trained_with": rows}, given)


if __name__ == "__main__":
    main()
