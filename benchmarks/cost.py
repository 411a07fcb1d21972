"""What a layer costs against the length of its input: multiply-adds, counted, and seconds, measured. One figure.

    python benchmarks/cost.py [--lengths 64,128,…] [--width 256] [--heads 4] [--repeats 5] [--threads 1]

A layer is what reads a whole sequence once: a recurrent network, a convolution, or the self-attention of a Transformer
with its projections, full, hashed or linear; the feed-forward layer, which all Transformers share, is left out. The
multiply-adds are those of matrix products, as torch counts them, and a closed form stands beside each; a test holds
both equal. Seconds are the median of a forward and backward pass over one sequence, with memory kept from one to the
next, as in training.
With the lengths as they are, 64 to 8,192, it takes 3 to 10 minutes on one processor. Results go to
`benchmarks/results/cost.json`, the figure beside it.
Letters: n positions, d width, H heads, k the filter's positions, m a chunk, r rounds, b buckets.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.speed.common import machine, say, without_paths
from sightline.attention.linear import CHUNK, EluFeatures, LinearAttention
from sightline.attention.lsh import LshAttention, Settings, buckets_for, factors
from sightline.attention.multihead import MultiHeadAttention
from sightline.encoders import ConvolutionalEncoder, RecurrentEncoder
from sightline.performance import tune_allocator
from sightline.products import by_onednn

RESULTS = Path(__file__).parent / "results"
LENGTHS = tuple(2**power for power in range(6, 14))
KERNEL = 3
HASHED = Settings(rounds=2, chunk=64)
KINDS = ("recurrent", "convolution", "full attention", "hashed attention", "linear attention")
FORMULAS = {
    "recurrent": "2nd²",
    "convolution": "nd² + 2knd²",
    "full attention": "4nd² + 2n²d",
    "hashed attention": "3nd² + 4rmnd + rnd Σb/2",
    "linear attention": "4nd² + 2nd(d/H + 1)",
}


def make(kind: str, width: int, heads: int, hashed: Settings = HASHED) -> Callable[[Tensor], Tensor]:
    """A layer: `(1, n, d)` to `(1, n, d)`."""
    if kind in ("recurrent", "convolution"):
        recurrent = kind == "recurrent"
        encoder = RecurrentEncoder("rnn", width, width) if recurrent else ConvolutionalEncoder(width, width, 1, KERNEL)
        encoder.eval()
        return lambda states: encoder(states, torch.ones(states.shape[:2], dtype=torch.bool)).states
    module: nn.Module = {
        "full attention": lambda: MultiHeadAttention(width, heads),
        "hashed attention": lambda: LshAttention(width, heads, hashed),
        "linear attention": lambda: LinearAttention(width, heads, EluFeatures(width // heads)),
    }[kind]()
    module.eval()
    return lambda states: module(states)


def counted(layer: Callable[[Tensor], Tensor], length: int, width: int) -> int:
    """Multiply-adds of a forward pass, by torch's counter; its fused kernel is taken apart for it.

    The counter does not know oneDNN's products, so torch's own stand in for them.
    """
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), by_onednn(False), FlopCounterMode(display=False) as counter:
        layer(torch.randn(1, length, width))
    return int(counter.get_total_flops()) // 2


def expected(kind: str, n: int, d: int, heads: int, hashed: Settings = HASHED) -> int:
    """The same by `FORMULAS`."""
    if kind == "recurrent":
        return 2 * n * d * d
    if kind == "convolution":
        return n * d * d + 2 * KERNEL * n * d * d
    if kind == "full attention":
        return 4 * n * d * d + 2 * n * n * d
    if kind == "linear attention":
        return 4 * n * d * d + 2 * n * d * (d // heads + 1)
    buckets = hashed.buckets or int(buckets_for(torch.tensor([n]), hashed.chunk))
    chunk = min(hashed.chunk, n)
    whole = math.ceil(n / chunk) * chunk
    seen = chunk if whole == chunk else 2 * chunk  # a single chunk has none before it
    hashing = hashed.rounds * n * d * sum(size // 2 for size in factors(buckets))
    return 3 * n * d * d + 2 * hashed.rounds * whole * seen * d + hashing


def seconds(layer: Callable[[Tensor], Tensor], length: int, width: int, repeats: int) -> float:
    """The median time of a forward and backward pass; one before does not count."""
    states = torch.randn(1, length, width, requires_grad=True)
    times = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        layer(states).sum().backward()
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


def measure(lengths: Sequence[int], width: int, heads: int, repeats: int) -> dict[str, list[dict[str, Any]]]:
    """For each kind of layer its lengths with what they cost."""
    found: dict[str, list[dict[str, Any]]] = {}
    for kind in KINDS:
        layer = make(kind, width, heads)
        rows = found.setdefault(kind, [])
        for length in lengths:
            row = {
                "length": length,
                "multiply_adds": counted(layer, length, width),
                "by_formula": expected(kind, length, width, heads),
                "seconds": round(seconds(layer, length, width, repeats), 6),
            }
            rows.append(row)
            say(f"{kind}, {length:,} positions: {row['multiply_adds']:,} multiply-adds, {row['seconds']:.4f} s")
    return found


def slope(rows: Sequence[dict[str, Any]], key: str) -> float:
    """How a cost grows between the two largest lengths: 1 with the length, 2 with its square."""
    one, other = rows[-2:]
    return math.log(other[key] / one[key]) / math.log(other["length"] / one["length"])


def draw(found: dict[str, list[dict[str, Any]]], path: Path) -> None:
    """Both costs, side by side."""
    from sightline.plot import growth_figure

    panels = {
        label: {kind: [(row["length"], row[key]) for row in rows] for kind, rows in found.items()}
        for label, key in (("multiply-adds, forward", "multiply_adds"), ("seconds, forward and backward", "seconds"))
    }
    growth_figure(panels, path, "positions", "What a layer costs")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures, records and draws."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", default=",".join(map(str, LENGTHS)))
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--results", type=Path, default=RESULTS)
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = parser.parse_args(given)
    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    tune_allocator()
    found = measure([int(each) for each in options.lengths.split(",")], options.width, options.heads, options.repeats)
    result = {
        "command": ["python", "benchmarks/cost.py", *without_paths(given)],
        "machine": machine(),
        "settings": {
            "width": options.width,
            "heads": options.heads,
            "kernel": KERNEL,
            "hashed": HASHED._asdict(),
            "linear_chunk": CHUNK,
            "threads": options.threads,
        },
        "formulas": FORMULAS,
        "layers": found,
        "slopes": {
            kind: {key: round(slope(rows, key), 2) for key in ("multiply_adds", "seconds")}
            for kind, rows in found.items()
            if len(rows) > 1
        },
    }
    options.results.mkdir(exist_ok=True, parents=True)
    (options.results / "cost.json").write_text(json.dumps(result, indent=1) + "\n")
    draw(found, options.results / "cost.png")


if __name__ == "__main__":
    main()
