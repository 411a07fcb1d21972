"""What every model that writes a target offers: `loss` for training, `start` and `step` for search.

Shapes: B sentences, T target positions, R hypotheses, S source positions, V vocabulary, N real target tokens, d width
of a feature, u of what a step needs of a token.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sightline.batch import Batch, Memory, Tokens
from sightline.decoders import Decoded, Decoder
from sightline.layers import Embedding
from sightline.losses import Penalty
from sightline.search.protocol import Step
from sightline.state import State
from sightline.text import BOS, EOS, PAD

TOKENS_AT_ONCE = 1024


class Predictor(Protocol):
    """An output layer. Its features are what `Writer.read` and `Writer.advance` of its model give, a tensor as a rule.

    Whatever they are, `features[mask]` are those of some tokens, as with a tensor.
    """

    def log_probs(self, features: Any) -> Tensor:
        """Features `(…, d)` to log-probabilities `(…, V)`."""
        ...

    def nll(self, features: Any, targets: Tensor, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
        """Features `(N, d)` and target ids `(N,)` to two sums over tokens: smoothed, for training, and plain."""
        ...

    def quantise(self) -> None:
        """From now on `log_probs` multiplies in int8: faster, not to the last digit, and without gradients."""
        ...


class Reading(NamedTuple):
    """The full pass over a batch's targets: the output layer's features `(B, T, d)`, the memory that was looked at, and
    where a decoder has them its weights over the source `(B, T, S)`."""

    features: Any
    memory: Memory
    weights: Tensor | None = None


class Writer(nn.Module, ABC):
    """Writes a target token by token. What it writes about, if anything, is the memory that `encode` makes."""

    target_embedding: Embedding
    decoder: Decoder
    output: Predictor
    table: Tensor | None

    def __init__(self, smoothing: float = 0.0, penalties: Mapping[str, tuple[float, Penalty]] | None = None) -> None:
        super().__init__()
        self.smoothing = smoothing
        penalties = penalties or {}
        self.penalties = nn.ModuleDict({name: penalty for name, (_, penalty) in penalties.items()})
        self.loss_weights = {"cross_entropy": 1.0} | {name: weight for name, (weight, _) in penalties.items()}
        self.pad, self.bos, self.eos = PAD, BOS, EOS
        self.precision = torch.float32  # of the products in `loss`
        self.register_buffer("table", None, persistent=False)  # (V, u), see `tabulate`

    @abstractmethod
    def encode(self, batch: Batch) -> Memory:
        """What the decoder may look at."""

    @abstractmethod
    def read(self, batch: Batch) -> Reading:
        """The full pass over the targets."""

    @abstractmethod
    def advance(self, tokens: Tensor, state: State) -> tuple[Any, State, Tensor | None]:
        """One token a row, `(R,)`: features `(R, d)`, the next state, and weights `(R, S)` or None."""

    @abstractmethod
    def source_lengths(self, batch: Batch) -> Tensor:
        """`(B,)`: how long each sentence's input is; see `search.protocol.StepModel`."""

    def shifted(self, targets: Tokens) -> Tensor:
        """What the decoder reads: the start symbol, then the targets but the last, `(B, T)`."""
        first = torch.full_like(targets.ids[:, :1], self.bos)
        return torch.cat([first, targets.ids[:, :-1]], 1)

    def decoded(self, batch: Batch) -> tuple[Memory, Decoded]:
        """The memory, and the decoder's full pass over the targets."""
        assert batch.targets is not None
        memory = self.encode(batch)
        return memory, self.decoder(memory, self.target_embedding(self.shifted(batch.targets)))

    def decoded_step(self, tokens: Tensor, state: State) -> Decoded:
        """The decoder's step from one token a row, `(R,)`."""
        if self.table is not None:
            return self.decoder.go_on(F.embedding(tokens, self.table), state)
        return self.decoder.step(self.target_embedding(tokens[:, None], offset=state.position)[:, 0], state)

    @torch.no_grad()
    def tabulate(self, most: int) -> None:
        """Lets steps look up what they need of a token, instead of working it out; for a model that learns no more.

        Nothing is done where a token's position counts as well, nor for a table of more than `most` numbers.
        """
        embedding = self.target_embedding
        if embedding.positions is not None:
            return
        ids = torch.arange(embedding.weight.size(0), device=embedding.weight.device)
        width = self.decoder.of_tokens(embedding(ids[None, :1])).size(-1)
        if len(ids) * width <= most:
            self.table = self.decoder.of_tokens(embedding(ids[None]))[0]

    def loss(self, batch: Batch) -> dict[str, tuple[Tensor, Tensor | int]]:
        """Sums over real target tokens, and their count: the smoothed loss, the plain one, and the penalties'.

        `loss_weights` tells what of it to minimise.
        """
        assert batch.targets is not None
        real = batch.targets.mask
        with torch.autocast(real.device.type, self.precision, enabled=self.precision != torch.float32):
            reading = self.read(batch)
        targets = batch.targets.ids[real]
        smoothed, plain = self.output.nll(reading.features[real], targets, self.smoothing)
        losses: dict[str, tuple[Tensor, Tensor | int]] = {
            "cross_entropy": (smoothed, targets.numel()),
            "nll": (plain, targets.numel()),
        }
        if self.penalties and reading.weights is not None:
            weights = reading.weights.float()
            losses |= {name: penalty(weights, real, reading.memory) for name, penalty in self.penalties.items()}
        return losses

    def token_log_probs(self, batch: Batch) -> Tensor:
        """The log-probability of each target token, teacher-forced: `(B, T)`, zero on padding."""
        assert batch.targets is not None
        real = batch.targets.mask
        features, wanted = self.read(batch).features[real], batch.targets.ids[real][:, None]
        # In parts: the distributions of all tokens at once would be the largest tensor of all.
        starts = range(0, wanted.size(0), TOKENS_AT_ONCE)
        parts = [slice(start, start + TOKENS_AT_ONCE) for start in starts]
        found = torch.cat(
            [self.output.log_probs(features[part]).gather(-1, wanted[part]).squeeze(-1) for part in parts]
        )
        return torch.zeros(real.shape, dtype=found.dtype, device=real.device).masked_scatter(real, found)

    def start(self, batch: Batch, prefix: Tensor | None = None) -> State:
        """The state before the first token; see `search.protocol.StepModel`."""
        state = self.decoder.start(self.encode(batch))
        if prefix is not None:
            first = torch.full_like(prefix[:, :1], self.bos)
            for tokens in torch.cat([first, prefix[:, :-1]], 1).unbind(1):
                state = self.advance(tokens, state)[1]
        return state

    def step(self, tokens: Tensor, state: State) -> Step:
        """Reads `(R,)` and predicts what follows, `(R, V)`; see `search.protocol.StepModel`."""
        features, state, weights = self.advance(tokens, state)
        return Step(self.output.log_probs(features), state, weights)
