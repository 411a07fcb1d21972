"""What is trained: the sizes of the models, and one contender's orders as they travel to its process."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class TransformerSize:
    """Layers on each side, width of the model, of its feed-forward layers, and heads."""

    layers: int
    width: int
    feedforward: int
    heads: int

    def __str__(self) -> str:
        layers = f"{self.layers}+{self.layers} layers"
        return f"Transformer, {layers}, width {self.width}, feed-forward {self.feedforward}, {self.heads} heads"


@dataclass(frozen=True)
class RecurrentSize:
    """One GRU layer a side: width of a token's vector, of the encoder's states (both directions), of the decoder's."""

    embedding: int
    encoder: int
    decoder: int

    def __str__(self) -> str:
        encoder = f"bidirectional {self.encoder} = 2 x {self.encoder // 2}"
        return f"GRUs with additive attention, {encoder}, decoder {self.decoder}, embeddings {self.embedding}"


SIZES: dict[str, TransformerSize | RecurrentSize] = {
    "tiny": TransformerSize(layers=4, width=128, feedforward=256, heads=4),
    "small": TransformerSize(layers=3, width=256, feedforward=1024, heads=4),
    "rnn": RecurrentSize(embedding=256, encoder=512, decoder=512),
}


@dataclass(frozen=True)
class Job:
    """A contender's orders. `plan` is the file of the batches, `folder` is for whatever it must write.

    `norm_position` is for Sightline, which has both; a peer normalises where it always does.
    With `start`, a folder, MarianMT leaves its initial weights there, and Sightline begins with them.
    """

    adaptor: str
    size: str
    plan: str
    folder: str
    threads: int
    tuned: bool = False
    input_feeding: bool = False
    compiled: bool = False
    start: str = ""
    dropout: float = 0.1
    norm_position: str = "pre"
    smoothing: float = 0.1
    clip: float = 1.0
    peak: float = 1e-3
    warmup: int = 200
    betas: tuple[float, float] = (0.9, 0.98)
    epsilon: float = 1e-9
    seed: int = 1

    def rate(self, step: int) -> float:
        """The learning rate of update `step`, from 1: what Sightline calls inverse_sqrt."""
        return self.peak * min(step / self.warmup, math.sqrt(self.warmup / step))

    def transformer(self) -> TransformerSize:
        """The size, when it is a Transformer's."""
        size = SIZES[self.size]
        assert isinstance(size, TransformerSize), self.size
        return size

    def recurrent(self) -> RecurrentSize:
        """The size, when it is an RNN's."""
        size = SIZES[self.size]
        assert isinstance(size, RecurrentSize), self.size
        return size

    @property
    def is_recurrent(self) -> bool:
        return isinstance(SIZES[self.size], RecurrentSize)

    def dumps(self) -> str:
        """As text for a command line."""
        return json.dumps(asdict(self))

    @staticmethod
    def loads(text: str) -> Job:
        """The job that `dumps` wrote."""
        values = json.loads(text)
        return Job(**{**values, "betas": tuple(values["betas"])})


def of_size(sizes: dict[str, int], threads: int) -> Job:
    """A job for a model of these sizes (layers, width, feedforward, heads), whatever is done with it."""
    chosen = {name: value for name, value in sizes.items() if name != "vocabulary"}
    SIZES["as told"] = TransformerSize(**chosen)
    return Job("", "as told", "", "", threads)
