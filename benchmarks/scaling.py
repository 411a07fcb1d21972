"""The arithmetic behind `docs/scaling.md`: memory, traffic, efficiency and storage of large runs. Nothing is trained.

    python benchmarks/scaling.py [--tflops 109] [--tokens 8192] [--balance 0.94] [--hop-us 5]

It prints the tables of the page, then its sentences with numbers in them; a test holds the page to both. Every number
that is not a size of the model is an assumption, and an option here or a constant below. The first one to replace is
`--tflops`: train on one GPU, take tokens per second from `metrics.jsonl`, and multiply by the model's operations per
token. Two numbers are counted by running small parts of the program on this machine: what layers keep for the backward
pass, and what the order of an epoch takes.
Letters: d width, f feed-forward width, L layers a side, V vocabulary, P parameters, W GPUs; n sentences, c workers,
r sentences a second of one of them, s lines of a shard.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.counted import planned, saved

GPUS_PER_NODE = 8
NUMBER = 4  # bytes of a weight, a gradient, a moment: all are kept in float32
# Kept for the backward pass by a layer of each side: vectors of width d for a source token and for a target token,
# vectors of width f (what comes out of the activation), and masks of dropout, one for each sublayer.
KEPT = {"before normalising": (2, 3), "normalised": (2, 3), "queries, keys, values": (3 + 2, 3 + 1), "mixed": (1, 2)}
KEPT_INNER, MASKS = 2, 5
NVLINK = 300e9  # bytes a second, one way, of one GPU
NETWORKS = {"200 Gb/s a node": 25e9, "8 x 400 Gb/s a node": 400e9}  # bytes a second, one way
BUCKET = 25e6  # bytes of gradients that ddp sends at once
A100, A100_FLOAT32 = 312e12, 19.5e12  # operations a second by its data sheet, in bfloat16 and in float32
DISK = 1e9  # bytes a second that the first rank writes
HASH = 1e9  # and puts through SHA-256
GRACE = 30  # seconds that torchrun leaves after Ctrl-C
YEAR, DAY, HOUR = 365 * 86400, 86400, 3600
PAIRS, LENGTH, EPOCHS = 100_000_000, 30, 10  # of the corpus that is reckoned with: its pairs and their tokens a side
LARGE_VOCABULARY = 2**16  # up to here an id takes two bytes, beyond it four
SENTENCES, CORES = 1_000_000_000, 64  # to translate; of a node
SOURCE, TARGET, PACKED = 60, 70, 1 / 3  # bytes of a sentence, and what packing leaves of them
JOINING, SMALL_READS, SHARED, MODEL_FILE = 0.3e9, 5_000, 5e9, 250e6  # bytes or reads a second; bytes of a model


@dataclass(frozen=True)
class Model:
    """A Transformer with tied embeddings."""

    name: str
    d: int
    f: int
    L: int
    V: int

    @property
    def encoder_layer(self) -> int:
        return 4 * self.d**2 + 2 * self.d * self.f + self.f + 9 * self.d

    @property
    def decoder_layer(self) -> int:
        return 8 * self.d**2 + 2 * self.d * self.f + self.f + 15 * self.d

    @property
    def embedding(self) -> int:
        return self.V * self.d

    @property
    def parameters(self) -> int:
        """P: layers, the tied matrix, the output's bias, two last normalisations."""
        return self.L * (self.encoder_layer + self.decoder_layer) + self.embedding + self.V + 4 * self.d

    @property
    def operations(self) -> float:
        """Forward and backward, of one target token and one source token: 6 for each weight it meets."""
        return 6.0 * (self.L * (self.encoder_layer + self.decoder_layer) + self.embedding)

    def activations(self, tokens: int) -> float:
        """Bytes kept for the backward pass by a batch of so many token pairs."""
        return self.L * tokens * (NUMBER * (kept() * self.d + KEPT_INNER * self.f) + MASKS * self.d)

    def replicated(self) -> float:
        """Bytes on each GPU: weights, gradients and Adam's two moments."""
        return 4 * NUMBER * self.parameters

    def sharded(self, W: int) -> float:
        """Bytes on each GPU: a W-th of these, and in full the embeddings and two layers, weights and gradients."""
        return self.replicated() / W + 2 * NUMBER * (self.embedding + 2 * self.decoder_layer)

    def checkpoint(self) -> float:
        """Bytes on disk: weights and moments."""
        return 3 * NUMBER * self.parameters

    def saving(self) -> float:
        """Seconds."""
        return self.checkpoint() * (1 / DISK + 1 / HASH)


MODELS = (
    Model("base", 512, 2048, 6, 32_000),
    Model("big", 1024, 4096, 6, 32_000),
    Model("1.5 B", 2048, 8192, 12, 64_000),
    Model("3.3 B", 2048, 8192, 24, 256_000),
)
BIG, LARGEST = MODELS[1], MODELS[-1]


@dataclass(frozen=True)
class Plan:
    """What is assumed: `rate` operations a second of one GPU in practice, `hop` seconds from one GPU to the next."""

    rate: float
    tokens: int
    balance: float
    hop: float

    def compute(self, model: Model) -> float:
        """Seconds of one update's forward and backward pass."""
        return self.tokens * model.operations / self.rate

    def exposed(self, model: Model, kind: str, W: int, bandwidth: float) -> float:
        """Seconds of an update in which a GPU waits for the network.

        A third of the computing is forward, two thirds backward. ddp sends each gradient twice round the ring behind
        the backward pass; the tied embedding's, complete only at the end, has nothing left to hide behind. fsdp
        fetches all weights twice and sends each gradient once; the embedding's fetch and send are in the open. A
        message takes a hop for each level of a tree, up and down (ddp), or for each GPU of the ring (fsdp).
        """
        compute, once_round = self.compute(model), NUMBER * (W - 1) / W / bandwidth
        layers, embedding = (model.parameters - model.embedding) * once_round, model.embedding * once_round
        tree, ring = 2 * math.log2(W) * self.hop, (W - 1) * self.hop
        open_ = 2 * embedding + 2 * tree  # and the two small sums of an update
        if kind == "ddp":
            buckets = math.ceil(NUMBER * model.parameters / BUCKET)
            return max(0.0, 2 * layers + buckets * tree - compute * 2 / 3) + open_
        forward = layers + 2 * model.L * ring
        return max(0.0, forward - compute / 3) + max(0.0, 2 * forward - compute * 2 / 3) + open_ + 2 * ring

    def efficiency(self, model: Model, kind: str, W: int, bandwidth: float) -> float:
        """The share of W times one GPU's speed that is left."""
        compute = self.compute(model)
        return self.balance * compute / (compute + self.exposed(model, kind, W, bandwidth))


def kept() -> int:
    """Vectors of width d that a layer of each side keeps for the backward pass."""
    return sum(source + target for source, target in KEPT.values())


# Tables


def amount(bytes_: float) -> str:
    """In GB of 10^9."""
    return f"{bytes_ / 1e9:.1f}" if bytes_ < 99.5e9 else f"{bytes_ / 1e9:.0f}"


def duration(seconds: float) -> str:
    """In seconds up to 99, in minutes up to 99, in hours beyond."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 99.5 * 60 else f"{seconds / HOUR:.1f} h"


def size_rows() -> Iterator[list[str]]:
    yield ["model", "d, f, L, V", "P", "GFLOP a token pair", "ddp", "fsdp, 8", "fsdp, 64", "fsdp, 512", "8,192 tokens"]
    for model in MODELS:
        sizes = f"{model.d}, {model.f}, {model.L}, {model.V // 1000}k"
        memory = [model.replicated(), *(model.sharded(W) for W in (8, 64, 512)), model.activations(8192)]
        operations = f"{model.operations / 1e9:.2f}"
        yield [model.name, sizes, f"{model.parameters / 1e6:,.0f} M", operations, *map(amount, memory)]


def efficiency_rows(plan: Plan) -> Iterator[list[str]]:
    yield ["model", "between nodes", "compute, ms", "ddp 8", "64", "512", "fsdp 8", "64", "512"]
    for model in MODELS:
        for name, bandwidth in NETWORKS.items():
            cells = []
            for kind in ("ddp", "fsdp"):
                for W in (8, 64, 512):
                    link = NVLINK if W <= GPUS_PER_NODE else min(NVLINK, bandwidth)
                    cells.append(f"{plan.efficiency(model, kind, W, link):.0%}")
            yield [model.name, name, f"{1000 * plan.compute(model):.0f}", *cells]


def checkpoint_rows() -> Iterator[list[str]]:
    yield ["model", "on disk, GB", "seconds to write", "host memory of the first rank, GB"]
    for model in MODELS:
        # All tensors, and the largest file once more as it is written.
        memory = model.checkpoint() + 2 * NUMBER * model.parameters
        yield [model.name, amount(model.checkpoint()), f"{model.saving():.0f}", amount(memory)]


def translation_rows() -> Iterator[list[str]]:
    yield ["r (put in yours)", "core-hours for 10⁹", "nodes of 64 cores for one day", "a shard of 4,000", "of 40,000"]
    for r in (5, 20, 100, 500):
        hours = SENTENCES / HOUR / r
        nodes = math.ceil(hours / CORES / 24)
        alone = f" ({hours / CORES:.0f} h)" if hours < CORES * 12 else ""
        yield [f"{r}", f"{hours:,.0f}", f"{nodes}{alone}", duration(4_000 / r), duration(40_000 / r)]


def table(rows: Iterator[list[str]], first: str = "---") -> str:
    """As Markdown; `first` is how the first column is set."""
    head, *body = rows
    lines = [head, [first, *["---:"] * (len(head) - 1)], *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def tables(plan: Plan) -> list[str]:
    """The tables of `docs/scaling.md`."""
    rows = (size_rows(), efficiency_rows(plan), checkpoint_rows())
    return [*map(table, rows), table(translation_rows(), "---:")]


# Sentences


def power(value: float, digits: int = 0) -> str:
    """`3·10⁹`; with digits, `1.25·10⁹`."""
    exponent = math.floor(math.log10(value) + 1e-9)
    mantissa = f"{value / 10**exponent:.{digits}f}"
    return f"{mantissa}·10{''.join('⁰¹²³⁴⁵⁶⁷⁸⁹'[int(digit)] for digit in str(exponent))}"


def tera(value: float) -> str:
    """`109·10¹²`."""
    return f"{value / 1e12:g}·10¹²"


def rough(value: float) -> str:
    """Two digits that count."""
    return f"{float(f'{value:.1e}'):,.0f}"


def memory_sentences() -> Iterator[str]:
    yield f"weights {NUMBER}P bytes, gradients {NUMBER}P, Adam's moments {2 * NUMBER}P, together {4 * NUMBER}P"
    vectors = NUMBER * (kept() + 4 * KEPT_INNER)
    yield (
        f"{kept()} vectors of width d and {KEPT_INNER} of width f, {NUMBER} bytes a number, and {MASKS} masks of "
        f"dropout, a byte a number: with f = 4d together {vectors + MASKS}·L·d bytes"
    )
    yield f"they add up to {saved(0.1):.0f}, and without dropout to {saved(0.0):.0f}"


def traffic_sentences(plan: Plan) -> Iterator[str]:
    yield f"every gradient twice round the ring, {2 * NUMBER}P bytes"
    yield f"all weights twice (forward, backward) and every gradient once, {3 * NUMBER}P bytes"
    yield f"nodes of {GPUS_PER_NODE} GPUs, NVLink of {NVLINK / 1e9:.0f} GB/s one way"
    yield f"buckets of {BUCKET / 1e6:.0f} MB"
    share = f"{plan.rate / A100:.0%} of the {tera(A100)} in bfloat16"
    yield f"A GPU does {tera(plan.rate)} operations a second in practice: {share} that the A100's data sheet names"
    yield f"In plain float32 ({tera(A100_FLOAT32)} at most) it computes {plan.rate / A100_FLOAT32:.1f} times as long"
    yield f"A batch has {plan.tokens:,} target tokens"
    yield f"{plan.balance:.0%} balance"
    yield f"A message needs {plan.hop * 1e6:g} µs"
    updates = [W * plan.tokens for W in (8, 64, 512)]
    yield f"{updates[0]:,} tokens on 8 GPUs, {updates[1]:,} on 64, {updates[2] / 1e6:.1f} million on 512"
    tokens, efficiency = PAIRS * LENGTH, round(plan.efficiency(BIG, "ddp", 64, NETWORKS["200 Gb/s a node"]), 2)
    seconds = EPOCHS * tokens * BIG.operations / (64 * plan.rate * efficiency)
    yield f"{PAIRS // 10**6} million pairs of {LENGTH} tokens has {power(tokens)}"
    yield (
        f"with the big model on 64 GPUs at {efficiency:.0%}: {power(EPOCHS * tokens)} × {power(BIG.operations, 2)} / "
        f"(64 × {tera(plan.rate)} × {efficiency:.2f}) = {rough(seconds)} s, {seconds / HOUR:.1f} hours"
    )
    yield f"an epoch has {rough(tokens / updates[1])} updates"


def data_sentences() -> Iterator[str]:
    ids, places = 2 * PAIRS * LENGTH * 2, 3 * 8 * PAIRS
    yield f"{PAIRS // 10**6} million pairs of {LENGTH} tokens a side are {ids / 1e9:.0f} GB and {places / 1e9:.1f} GB"
    yield f"more than {LARGE_VOCABULARY:,} entries"
    yield f"at 64 GPUs {ids / 64 / 1e9:.1f} GB"
    bytes_ = round(planned(), -1)
    yield f"some {bytes_:.0f} bytes a pair"
    yield f"{bytes_ * PAIRS / 1e9:.0f} GB for {PAIRS // 10**6} million pairs"


def checkpoint_sentences() -> Iterator[str]:
    yield f"Weights and moments are {3 * NUMBER}P bytes"
    yield f"At {DISK / 1e9:.0f} GB/s for each of the two"
    between = YEAR / 64
    best = math.sqrt(2 * LARGEST.saving() * between)
    yield f"one of 64 fails every {between / DAY:.1f} days"
    yield f"with {LARGEST.saving():.0f} s, every {best / HOUR:.1f} hours"
    fits = GRACE / (3 * NUMBER * (1 / DISK + 1 / HASH))
    yield f"{GRACE} seconds after Ctrl-C are enough to save up to {fits / 1e9:.2f} billion parameters"


def translation_sentences() -> Iterator[str]:
    yield f"{SENTENCES // 4_000:,} parts of 4,000 lines"
    yield f"`--shard-lines 40000` makes {SENTENCES // 40_000:,}"
    c, r = 1_024, 100
    lost = [c * s / (2 * r) / HOUR for s in (40_000, 4_000)]
    total = SENTENCES / HOUR / r
    yield (
        f"With c = {c:,}, r = {r} and s = 40,000 that is {lost[0]:.0f} core-hours of {total:,.0f}; with 4,000 it is "
        f"{lost[1]:.0f}."
    )
    given, made = SENTENCES * SOURCE, SENTENCES * TARGET
    yield (
        f"With {SOURCE} bytes a source sentence and {TARGET} a translation: {given / 1e9:.0f} GB in "
        f"({given * PACKED / 1e9:.0f} where packing leaves a third), {made / 1e9:.0f} GB of parts, and while they are "
        f"joined {made / 1e9:.0f} GB more"
    )
    yield f"({given / 1e9:.0f} GB at {HASH / 1e9:.0f} GB/s: a minute; packed, less)"
    yield f"{made / 1e9:.0f} GB at {JOINING / 1e9:.1f} GB/s, {made / JOINING / 60:.0f} minutes"
    reads = SENTENCES // 4_000
    yield f"{reads:,} small reads, at {SMALL_READS:,} a second {reads / SMALL_READS:.0f} seconds"
    speed = 100_000
    hours = SENTENCES / speed / HOUR
    yield (
        f"{SOURCE + TARGET} bytes a sentence. At c·r = {speed:,} sentences a second (the {total:,.0f} core-hours of "
        f"the table in {hours:.1f} hours) that is {speed * (SOURCE + TARGET) / 1e6:.0f} MB/s"
    )
    read = c * MODEL_FILE
    yield (
        f"{c:,} actors read {c:,} times its size from the shared file system: {MODEL_FILE / 1e6:.0f} MB each are "
        f"{read / 1e9:.0f} GB, which at {SHARED / 1e9:.0f} GB/s takes {read / SHARED:.0f} seconds"
    )


def sentences(plan: Plan) -> list[str]:
    """What `docs/scaling.md` says in numbers outside its tables, as it says it."""
    parts = (memory_sentences(), traffic_sentences(plan), data_sentences(), checkpoint_sentences())
    return [sentence for part in (*parts, translation_sentences()) for sentence in part]


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tflops", type=float, default=109, help="operations a second (10^12) of one GPU in practice")
    parser.add_argument("--tokens", type=int, default=8192, help="target tokens of a batch on one GPU")
    parser.add_argument("--balance", type=float, default=0.94, help="mean cost of a batch over the largest's")
    parser.add_argument("--hop-us", type=float, default=5, help="microseconds of a message from one GPU to the next")
    return parser


def plan_from(arguments: list[str] | None = None) -> Plan:
    """The assumptions that the command line gives."""
    given = options().parse_args(arguments)
    return Plan(given.tflops * 1e12, given.tokens, given.balance, given.hop_us / 1e6)


if __name__ == "__main__":
    chosen = plan_from()
    print("\n\n".join(tables(chosen)), end="\n\n")
    print("\n".join(sentences(chosen)))
