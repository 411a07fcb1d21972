"""The arithmetic behind `docs/scaling.md`: memory, traffic and efficiency of training on many GPUs. Nothing is run.

    python benchmarks/scaling.py [--tflops 109] [--tokens 8192] [--balance 0.94] [--hop-us 5]

Every number that is not a size of the model is an assumption, and an option here or a constant below. The first one to
replace is `--tflops`: train on one GPU, take tokens per second from `metrics.jsonl`, and multiply by the model's
operations per token.
Letters: d width, f feed-forward width, L layers a side, V vocabulary, P parameters, W GPUs.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from dataclasses import dataclass

GPUS_PER_NODE = 8
NUMBER = 4  # bytes of a weight, a gradient, a moment: all are kept in float32
SAVED = 168  # bytes kept for the backward pass, per token pair, layer and unit of width
NVLINK = 300e9  # bytes a second, one way, of one GPU
NETWORKS = {"200 Gb/s a node": 25e9, "8 x 400 Gb/s a node": 400e9}  # bytes a second, one way
BUCKET = 25e6  # bytes of gradients that ddp sends at once
DISK = 1e9  # bytes a second that the first rank writes
HASH = 1e9  # and puts through SHA-256


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
        return SAVED * self.L * self.d * tokens

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


def amount(bytes_: float) -> str:
    """In GB of 10^9."""
    return f"{bytes_ / 1e9:.1f}" if bytes_ < 99.5e9 else f"{bytes_ / 1e9:.0f}"


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


def table(rows: Iterator[list[str]]) -> str:
    """As Markdown."""
    head, *body = rows
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def tables(plan: Plan) -> list[str]:
    """The tables of `docs/scaling.md`."""
    return [table(size_rows()), table(efficiency_rows(plan)), table(checkpoint_rows())]


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
    print("\n\n".join(tables(plan_from())))
