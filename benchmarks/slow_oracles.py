"""Oracles that take too long to be tests: what the papers say must happen, measured.

    python benchmarks/slow_oracles.py [--only adding,norm]

adding  Two marked numbers among 50 must be summed: an LSTM and a GRU learn it, a plain RNN does not.
norm    12+12 layers at a high rate from the first update on: pre-norm learns, and post-norm, which starts small, too.

Results go to `benchmarks/results/slow_oracles.json`.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from sightline.batch import Batch, Tokens
from sightline.config import build_config
from sightline.encoders import RecurrentEncoder
from sightline.models import build_model
from sightline.text import Sizes

RATE = 5e-4
RESULTS = Path(__file__).parent / "results" / "slow_oracles.json"


def adding(kind: str, length: int = 50, updates: int = 3000) -> dict[str, Any]:
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


def norm(position: str, warmup: int, updates: int = 800) -> dict[str, Any]:
    """The copy task with 12+12 narrow layers: loss after `updates`, against ln V for knowing nothing."""
    torch.manual_seed(1)
    part = {"layers": 12, "heads": 4, "feedforward": 128}
    values = {"model": {"embedding": 64, "dropout": 0.0, "norm_position": position, "encoder": part, "decoder": part}}
    vocabulary, length = 24, 8
    model = build_model(build_config(values, "transformer").model, Sizes(vocabulary, vocabulary, True)).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.0, betas=(0.9, 0.98), eps=1e-9)
    mask = torch.ones(32, length + 1, dtype=torch.bool)
    losses = []
    for update in range(1, updates + 1):
        ids = torch.cat([torch.randint(4, vocabulary, (32, length)), torch.full((32, 1), 3)], 1)
        tokens = Tokens(ids, mask)
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1.0, update / max(warmup, 1))
        total, count = model.loss(Batch((tokens,), tokens))["cross_entropy"]
        optimizer.zero_grad()
        (total / count).backward()
        optimizer.step()
        losses.append(float(total.detach()) / count)
    last = sum(losses[-20:]) / 20
    return {"loss": round(last, 3), "knowing_nothing": round(float(torch.tensor(vocabulary - 4.0).log()), 3)}


TASKS = {
    "adding": lambda: {kind: adding(kind) for kind in ("rnn", "gru", "lstm")},
    "norm": lambda: {
        "pre, no warm-up": norm("pre", 0),
        "post, no warm-up": norm("post", 0),
        "post, warm-up of 400": norm("post", 400),
    },
}


def main() -> None:
    """Runs the chosen oracles and records them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(TASKS))
    options = parser.parse_args()
    for name in options.only.split(","):
        began = time.monotonic()
        result = {**TASKS[name](), "seconds": round(time.monotonic() - began)}
        print(name, json.dumps(result, indent=1))
        results = {**(json.loads(RESULTS.read_text()) if RESULTS.exists() else {}), name: result}
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
