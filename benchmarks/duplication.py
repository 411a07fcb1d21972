"""The task of the Reformer's Table 2: 0w0w, a string of symbols and the same once more (Kitaev et al. 2020).

w is random, so that nothing of it can be guessed; all of the second half can be known by who finds the right place in
the first. Whoever cannot look back so far is right once in 127 times. The model is a language model of one layer, as
the recipe `lm` makes it.
Shapes: B sequences, L symbols of one, N symbols of all second halves, d width.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.mechanisms.pictures import write_picture
from benchmarks.speed.common import Say
from sightline.attention.capture import capture
from sightline.attention.lsh import LshAttention, Settings
from sightline.batch import Batch, Tokens, pad
from sightline.config import build_config
from sightline.models import build_model
from sightline.plot import Heatmap
from sightline.text import EOS, PAD, Sizes
from sightline.tokenizers import SPECIAL_PIECES
from sightline.writer import Writer

SYMBOLS = 128  # 0 stands before each w, which is of the others
FIRST = len(SPECIAL_PIECES)  # the id of symbol 0
CHANCE = 1 / (SYMBOLS - 1)
# Per cent by the paper's table: trained with, then looked at with.
PAPER = {
    "full": {"full": 100, "lsh-8": 94.8, "lsh-4": 92.5, "lsh-2": 76.9, "lsh-1": 52.5},
    "lsh-4": {"full": 0.8, "lsh-8": 100, "lsh-4": 99.9, "lsh-2": 99.4, "lsh-1": 91.9},
    "lsh-2": {"full": 0.8, "lsh-8": 100, "lsh-4": 99.9, "lsh-2": 98.1, "lsh-1": 86.8},
    "lsh-1": {"full": 0.8, "lsh-8": 99.9, "lsh-4": 99.6, "lsh-2": 94.8, "lsh-1": 77.9},
}
DRAWN = 24  # symbols of w
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


def make(size: Size) -> Writer:
    """The recipe `lm`: one causal layer over symbols and positions, which predicts the next symbol."""
    decoder = {"kind": "transformer", "layers": 1, "heads": size.heads, "feedforward": 4 * size.width}
    values = {
        "embedding": size.width,
        "dropout": 0.0,
        "tie": "none",
        "positions": "learned",
        "max_positions": size.length,
        "decoder": {**decoder, "attention": "lsh"},
        "lsh": settings("full", size)._asdict(),
    }
    count = FIRST + SYMBOLS
    model = build_model(build_config({"model": values}, "lm").model, Sizes(count, count, joint=True))
    with torch.no_grad():  # of the size of the positions, which are what the task is about
        model.target_embedding.weight.mul_(size.width**-0.5)
    return model


def look_with(model: nn.Module, way: str, size: Size) -> None:
    """Lets the model attend in this way from now on."""
    (attention,) = (module for module in model.modules() if isinstance(module, LshAttention))
    attention.settings = settings(way, size)


def second_half(model: Writer, symbols: Tensor) -> tuple[Tensor, Tensor]:
    """Features `(N, d)` and ids `(N,)` of the symbols of the second w, in all sequences: the rest cannot be known."""
    ids = symbols + FIRST
    nothing = pad([[EOS]] * len(ids), PAD)  # a language model has no source
    features = model.read(Batch((nothing,), Tokens(ids, torch.ones_like(ids, dtype=torch.bool)))).features
    start = symbols.size(1) // 2 + 1
    return features[:, start:].flatten(0, 1), ids[:, start:].flatten()


def train(way: str, size: Size, seed: int, say: Say) -> Writer:
    """A model that learnt with this attention."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    model = make(size).train()
    look_with(model, way, size)
    optimizer = torch.optim.Adam(model.parameters(), size.rate)
    for step in range(1, size.steps + 1):
        share = step / size.steps
        for group in optimizer.param_groups:  # up for a tenth of the time, then down to nothing
            group["lr"] = size.rate * min(10 * share, (1 - share) / 0.9)
        features, wanted = second_half(model, sequences(size.batch, size.length, generator))
        loss = model.output.nll(features, wanted)[0] / len(wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % max(1, size.steps // 10) == 0:
            say(f"trained with {way}: step {step:,}, loss {float(loss.detach()):.3f}")
    return model


def accuracy(model: Writer, way: str, size: Size, count: int = 32) -> float:
    """Per cent of the second half's symbols that come out right with this attention, on fresh sequences."""
    model.eval()
    look_with(model, way, size)
    with torch.no_grad():
        features, wanted = second_half(model, sequences(count, size.length, torch.Generator().manual_seed(10**6)))
        found = model.output.log_probs(features).argmax(-1)
    return 100 * float((found == wanted).double().mean())


@torch.no_grad()
def looks(model: Writer, way: str, size: Size) -> Heatmap:
    """Where it looks, the mean of its heads, as it is about to write the first symbols of a second w.

    The columns are the first symbols of the first w, each as it was read; the right one is framed.
    """
    look_with(model.eval(), way, size)
    symbols = sequences(1, size.length, torch.Generator().manual_seed(10**6))
    with capture(model) as maps:
        second_half(model, symbols)
    (weights,) = maps.values()
    half = size.length // 2
    shown = min(DRAWN, half - 1)
    # A row is of the symbol to be written; what is read stands one place later, behind what a text begins with.
    rows = weights[0].mean(0)[half + 1 : half + 1 + shown, 1 : shown + 2].double().numpy()
    names = [str(symbol) for symbol in symbols[0, : shown + 1].tolist()]
    return Heatmap(names, names[1:], rows, links=[(place + 1, place) for place in range(shown)])


def row(way: str, size: Size, seed: int, say: Say, picture: Path | None = None) -> dict[str, Any]:
    """Accuracies of a model that was trained with this attention by what it is looked at with, beside the paper's.

    Where it looks is drawn.
    """
    started = time.perf_counter()
    model = train(way, size, seed, say)
    seconds = time.perf_counter() - started
    found = {seen: round(accuracy(model, seen, size), 1) for seen in WAYS}
    say(f"trained with {way}: {found}")
    if picture is not None:
        write_picture(picture, looks(model, way, size))
    return {"accuracy": found, "paper": PAPER.get(way, {}), "seconds": round(seconds, 1)}
