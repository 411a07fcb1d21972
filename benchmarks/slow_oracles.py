"""Oracles that take too long to be tests: what the papers say must happen, measured.

    python benchmarks/slow_oracles.py [--only adding,norm] [--arm NAME]... [--threads N]

adding  Two marked numbers among 50 must be summed: an LSTM and a GRU learn it, a plain RNN does not.
norm    12+12 layers at a high rate from the first update on. Pre-norm learns; post-norm from Xavier's weights stalls,
        with a warm-up too; post-norm that starts small, as ours does, learns.
blocks  Heads that see one, two or three of four blocks of their input's features, beside heads that see all of it.

Results go to `benchmarks/results/slow_oracles.json`, arm by arm, each with the command that makes it again.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.speed.common import command, machine
from sightline.batch import Batch, Tokens
from sightline.config import build_config
from sightline.encoders import RecurrentEncoder
from sightline.models import EncoderDecoder, build_model
from sightline.text import Sizes

RATE = 5e-4
RESULTS = Path(__file__).parent / "results" / "slow_oracles.json"
VOCABULARY, SPECIAL, LENGTH, BATCH = 24, 4, 8, 32  # of the copy task

Result = dict[str, Any]


def adding(kind: str, length: int = 50, updates: int = 3000) -> Result:
    """The adding problem: of `length` random numbers the two marked ones must be summed at the end.

    Whoever answers 1 has an error of 1/6.
    """
    torch.manual_seed(1)
    encoder = RecurrentEncoder(kind, 2, 64)
    head = nn.Linear(64, 1)
    parameters = [*encoder.parameters(), *head.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=3e-3)
    mask = torch.ones(64, length, dtype=torch.bool)
    errors = []
    for _ in range(updates):
        values = torch.rand(64, length)
        marks = torch.zeros(64, length).scatter(1, torch.rand(64, length).topk(2).indices, 1.0)
        memory = encoder(torch.stack([values, marks], -1), mask)
        loss = F.mse_loss(head(memory.final.hidden[:, -1]).squeeze(-1), (values * marks).sum(1))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        errors.append(float(loss.detach()))
    return {"error": round(sum(errors[-100:]) / 100, 4), "knowing_nothing": round(1 / 6, 4), "updates": updates}


def norm(position: str, warmup: int, xavier: bool = False, updates: int = 800) -> Result:
    """The copy task with 12+12 narrow layers; with `xavier`, a post-norm stack does not start small."""
    model = narrow(12, {"norm_position": position})
    if xavier:
        enlarge(model)
    return copying(model, warmup, updates)


def blocks(seen: int, updates: int = 800) -> Result:
    """The copy task with 2+2 narrow layers whose four heads see `seen` of four blocks, each head others."""
    chosen = [[(head + further) % 4 for further in range(seen)] for head in range(4)]
    return copying(narrow(2, {"attention": {"blocks": 4, "head_blocks": chosen}}), 0, updates)


def narrow(layers: int, changes: dict[str, Any]) -> EncoderDecoder:
    """A Transformer 64 wide with so many layers on each side, always from the same random numbers."""
    torch.manual_seed(1)
    part = {"layers": layers, "heads": 4, "feedforward": 128}
    values = {"model": {"embedding": 64, "dropout": 0.0, "encoder": part, "decoder": part, **changes}}
    return build_model(build_config(values, "transformer").model, Sizes(VOCABULARY, VOCABULARY, True)).train()


def enlarge(model: EncoderDecoder) -> None:
    """Takes back that post-norm stacks start small: their last matrices become again what Xavier's rule made them."""
    with torch.no_grad():
        for stack in (model.encoder, model.decoder):
            matrices = [matrix for layer in stack.layers for matrix in layer.last_matrices()]
            for matrix in matrices:
                matrix.weight.mul_(len(matrices) ** 0.5)


def copying(model: EncoderDecoder, warmup: int, updates: int) -> Result:
    """The loss after `updates` of copying random strings, against ln V for knowing nothing."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.0, betas=(0.9, 0.98), eps=1e-9)
    mask = torch.ones(BATCH, LENGTH + 1, dtype=torch.bool)
    losses = []
    for update in range(1, updates + 1):
        letters = torch.randint(SPECIAL, VOCABULARY, (BATCH, LENGTH))
        tokens = Tokens(torch.cat([letters, torch.full((BATCH, 1), model.eos)], 1), mask)
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1.0, update / max(warmup, 1))
        total, count = model.loss(Batch((tokens,), tokens))["cross_entropy"]
        optimizer.zero_grad()
        (total / count).backward()
        optimizer.step()
        losses.append(float(total.detach()) / count)
    nothing = float(torch.tensor(float(VOCABULARY - SPECIAL)).log())
    last = losses[-20:]
    return {"loss": round(sum(last) / len(last), 3), "knowing_nothing": round(nothing, 3), "updates": updates}


TASKS: dict[str, dict[str, Callable[[], Result]]] = {
    "adding": {kind: partial(adding, kind) for kind in ("rnn", "gru", "lstm")},
    "norm": {
        "pre, no warm-up": partial(norm, "pre", 0),
        "post, no warm-up": partial(norm, "post", 0),
        "post, warm-up of 400": partial(norm, "post", 400),
        "post from Xavier's weights, no warm-up": partial(norm, "post", 0, xavier=True),
        "post from Xavier's weights, warm-up of 400": partial(norm, "post", 400, xavier=True),
    },
    "blocks": {f"{seen} of 4 blocks": partial(blocks, seen) for seen in (4, 3, 2, 1)},
}


def main() -> None:
    """Runs the chosen oracles and records them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(TASKS))
    parser.add_argument("--arm", action="append", metavar="NAME", help="only this arm, such as 'post, no warm-up'")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    for task in options.only.split(","):
        for name, measure in TASKS[task].items():
            if options.arm is None or name in options.arm:
                began = time.monotonic()
                result = {**measure(), "seconds": round(time.monotonic() - began), "threads": options.threads}
                record(task, name, {**result, "command": command(), "machine": machine()})
                print(f"{task}, {name}: {json.dumps(result)}", flush=True)


def record(task: str, name: str, result: Result) -> None:
    """Puts one arm's result into the file, the others staying as they are."""
    everything = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    arms = {**everything.get(task, {}), name: result}
    everything[task] = {name: arms[name] for name in TASKS[task] if name in arms}
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(everything, indent=1) + "\n")


if __name__ == "__main__":
    main()
