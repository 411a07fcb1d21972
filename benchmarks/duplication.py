"""The task of the Reformer's Table 2: 0w0w, a string of symbols and the same once more (Kitaev et al. 2020).

w is random, so that nothing of it can be guessed; all of the second half can be known by who finds the right place in
the first. Whoever cannot look back so far is right once in 127 times.
Shapes: B sequences, L symbols of one, d width, V symbols.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.speed.common import Say
from sightline.attention.lsh import LshAttention, Settings
from sightline.layers import FeedForward, Residual
from sightline.positions import LearnedPositions

SYMBOLS = 128  # 0 stands before each w, which is of the others
CHANCE = 1 / (SYMBOLS - 1)
# Per cent by the paper's table: trained with, then looked at with.
PAPER = {
    "full": {"full": 100, "lsh-8": 94.8, "lsh-4": 92.5, "lsh-2": 76.9, "lsh-1": 52.5},
    "lsh-4": {"full": 0.8, "lsh-8": 100, "lsh-4": 99.9, "lsh-2": 99.4, "lsh-1": 91.9},
    "lsh-2": {"full": 0.8, "lsh-8": 100, "lsh-4": 99.9, "lsh-2": 98.1, "lsh-1": 86.8},
    "lsh-1": {"full": 0.8, "lsh-8": 99.9, "lsh-4": 99.6, "lsh-2": 94.8, "lsh-1": 77.9},
}
WAYS = ("full", "lsh-8", "lsh-4", "lsh-2", "lsh-1")


@dataclass(frozen=True)
class Size:
    """The model's and the task's; the paper has one layer of width 256 with 4 heads, and 1,024 symbols."""

    length: int = 256
    width: int = 128
    heads: int = 4
    chunk: int = 16
    steps: int = 3000
    batch: int = 16
    rate: float = 1e-3


def settings(way: str, size: Size) -> Settings:
    """`full` sees all, as one bucket in one chunk; `lsh-N` hashes N times, into 2L/m buckets."""
    if way == "full":
        return Settings(1, size.length, 1)
    return Settings(int(way.removeprefix("lsh-")), size.chunk, 2 ** (2 * size.length // size.chunk - 1).bit_length())


def sequences(count: int, length: int, generator: torch.Generator) -> Tensor:
    """`(B, L)` of the form 0w0w."""
    word = torch.randint(1, SYMBOLS, (count, length // 2 - 1), generator=generator)
    half = F.pad(word, (1, 0))
    return torch.cat([half, half], 1)


class Duplicator(nn.Module):
    """One causal layer over symbols and positions, which predicts the next symbol."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.symbols = nn.Embedding(SYMBOLS, size.width)
        self.positions = LearnedPositions(size.width, size.length)
        self.attention = LshAttention(size.width, size.heads, settings("full", size))
        self.feedforward = FeedForward(size.width, 4 * size.width)
        self.around_attention, self.around_feedforward = (Residual(size.width, "layer", "pre", 0.0) for _ in range(2))
        self.norm, self.output = nn.LayerNorm(size.width), nn.Linear(size.width, SYMBOLS)
        with torch.no_grad():  # both of the size of what they are added to
            self.symbols.weight.mul_(size.width**-0.5)

    def forward(self, symbols: Tensor) -> Tensor:
        """`(B, L)` to the logits of each next one, `(B, L, V)`."""
        states = self.symbols(symbols) + self.positions(symbols.size(1))
        states = self.around_attention(states, lambda x: self.attention(x, causal=True))
        return self.output(self.norm(self.around_feedforward(states, self.feedforward)))

    def second_half(self, symbols: Tensor) -> tuple[Tensor, Tensor]:
        """Logits and symbols of the second w: the rest cannot be known."""
        start = symbols.size(1) // 2
        return self(symbols[:, :-1])[:, start:], symbols[:, start + 1 :]


def train(way: str, size: Size, seed: int, say: Say) -> Duplicator:
    """A model that learnt with this attention."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    model = Duplicator(size).train()
    model.attention.settings = settings(way, size)
    optimizer = torch.optim.Adam(model.parameters(), size.rate)
    for step in range(1, size.steps + 1):
        share = step / size.steps
        for group in optimizer.param_groups:  # up for a tenth of the time, then down to nothing
            group["lr"] = size.rate * min(10 * share, (1 - share) / 0.9)
        logits, wanted = model.second_half(sequences(size.batch, size.length, generator))
        loss = F.cross_entropy(logits.flatten(0, 1), wanted.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % max(1, size.steps // 10) == 0:
            say(f"trained with {way}: step {step:,}, loss {float(loss.detach()):.3f}")
    return model


def accuracy(model: Duplicator, way: str, size: Size, count: int = 32) -> float:
    """Per cent of the second half's symbols that come out right with this attention, on fresh sequences."""
    model.eval()
    model.attention.settings = settings(way, size)
    with torch.no_grad():
        logits, wanted = model.second_half(sequences(count, size.length, torch.Generator().manual_seed(10**6)))
    return 100 * float((logits.argmax(-1) == wanted).double().mean())


def table(trained: Sequence[str], size: Size, seed: int, say: Say) -> dict[str, Any]:
    """Accuracies by what a model was trained with and looked at with, beside the paper's."""
    rows: dict[str, Any] = {}
    for way in trained:
        started = time.perf_counter()
        model = train(way, size, seed, say)
        seconds = time.perf_counter() - started
        found = {seen: round(accuracy(model, seen, size), 1) for seen in WAYS}
        rows[way] = {"accuracy": found, "paper": PAPER.get(way, {}), "seconds": round(seconds, 1)}
        say(f"trained with {way}: {found}")
    return rows
