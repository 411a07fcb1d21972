"""Oracles that take too long to be tests: what the papers say must happen, measured.

    python benchmarks/slow_oracles.py [--only recall,norm]

recall  A symbol must be remembered over 50 others: an LSTM and a GRU learn it, a plain RNN does not.
norm    12+12 layers at a high rate from the first update on: pre-norm learns, post-norm needs the warm-up.

Results go to `benchmarks/results/slow_oracles.json`.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sightline.batch import Batch, Tokens
from sightline.config import build_config
from sightline.encoders import RecurrentEncoder
from sightline.models import Sizes, build_model

RATE = 1e-3
RESULTS = Path(__file__).parent / "results" / "slow_oracles.json"


def recall(kind: str, gap: int = 50, symbols: int = 8, updates: int = 1500) -> dict[str, Any]:
    """Accuracy at naming the one symbol that stands `gap` tokens back, among others that do not count.

    In training the symbol stands anywhere in the sequence: short gaps teach the gates what long gaps then need.
    """
    torch.manual_seed(1)
    encoder = RecurrentEncoder(kind, 2 * symbols, 64)
    head = nn.Linear(64, symbols)
    parameters = [*encoder.parameters(), *head.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=3e-3)
    mask = torch.ones(64, gap + 1, dtype=torch.bool)
    rows = torch.arange(64)

    def answers(places: Tensor) -> tuple[Tensor, Tensor]:
        wanted = torch.randint(0, symbols, (64,))
        ids = torch.randint(symbols, 2 * symbols, (64, gap + 1))
        ids[rows, places] = wanted
        memory = encoder(F.one_hot(ids, 2 * symbols).float(), mask)
        return head(memory.final.hidden[:, -1]), wanted

    for _ in range(updates):
        logits, wanted = answers(torch.randint(0, gap + 1, (64,)))
        optimizer.zero_grad()
        F.cross_entropy(logits, wanted).backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
    with torch.no_grad():
        tried = [answers(torch.zeros(64, dtype=torch.long)) for _ in range(16)]
    right = sum(float((logits.argmax(-1) == wanted).float().mean()) for logits, wanted in tried) / len(tried)
    return {"accuracy": round(right, 3), "chance": round(1 / symbols, 3), "updates": updates}


def norm(position: str, warmup: int, updates: int = 250) -> dict[str, Any]:
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
    "recall": lambda: {kind: recall(kind) for kind in ("rnn", "gru", "lstm")},
    "norm": lambda: {
        "pre, no warm-up": norm("pre", 0),
        "post, no warm-up": norm("post", 0),
        "post, warm-up of 500": norm("post", 500, 1000),
    },
}


def main() -> None:
    """Runs the chosen oracles and records them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(TASKS))
    options = parser.parse_args()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in options.only.split(","):
        began = time.monotonic()
        results[name] = {**TASKS[name](), "seconds": round(time.monotonic() - began)}
        print(name, json.dumps(results[name], indent=1))
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
