"""No model: this machine's rate of multiplying matrices, the yardstick of all others. One update is one product.

It is that of the library which is the faster one on this processor, whichever the contenders use.
"""

from __future__ import annotations

import torch

from benchmarks.speed.flops import MATRIX
from benchmarks.speed.job import Job
from benchmarks.speed.plan import Plan
from benchmarks.speed.turns import Turns
from sightline.products import product


def train(job: Job, plan: Plan, turns: Turns) -> None:
    """Multiplies two square matrices, again and again, where it can into the same place."""
    torch.set_num_threads(job.threads)
    left, right, room = (torch.rand(MATRIX, MATRIX) for _ in range(3))
    turns.ready(version=f"torch {torch.__version__}")
    while True:
        product(left, right.T, room)
        turns.done(0.0, tokens=0)
