"""Oracles that take too long to be tests: what the papers say must happen, measured.

    python benchmarks/slow_oracles.py [--only recall,norm]

recall  A symbol must be remembered over 50 blanks: an LSTM and a GRU learn it, a plain RNN does not.
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
from torch import nn
from torch.nn import functional as F

from sightline.batch import Batch, Tokens
from sightline.config import build_config
from sightline.encoders import RecurrentEncoder
from sightline.models import Sizes, build_model

RESULTS = Path(__file__).parent / "results" / "slow_oracles.json"


def recall(kind: str, gap: int = 50, symbols: int = 8, updates: int = 800) -> dict[str, Any]:
    """Accuracy at naming the first symbol after `gap` blanks."""
    torch.manual_seed(1)
    encoder = RecurrentEncoder(kind, symbols + 1, 64)
    head = nn.Linear(64, symbols)
    parameters = [*encoder.parameters(), *head.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=3e-3)
    mask = torch.ones(64, gap + 1, dtype=torch.bool)
    right = []
    for update in range(updates):
        wanted = torch.randint(0, symbols, (64,))
        ids = torch.full((64, gap + 1), symbols)
        ids[:, 0] = wanted
        last = encoder(F.one_hot(ids, symbols + 1).float(), mask).final.hidden[:, -1]
        loss = F.cross_entropy(head(last), wanted)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        if update >= updates - 20:
            right.append(float((head(last).argmax(-1) == wanted).float().mean()))
    return {"accuracy": round(sum(right) / len(right), 3), "chance": round(1 / symbols, 3), "updates": updates}


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
            group["lr"] = 1e-3 * min(1.0, update / max(warmup, 1))
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
        "post, warm-up of 200": norm("post", 200, 450),
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
