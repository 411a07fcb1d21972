"""What every model that writes a target offers: `loss` for training, `start` and `step` for search.

Shapes: B sentences, T target positions, R hypotheses, S source positions, V vocabulary, N real target tokens, d width
of a feature, u of what a step needs of a token.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sightline.batch import Batch, Memory, Tokens, side_by_side
from sightline.decoders import Decoder
from sightline.layers import Embedding
from sightline.losses import AttentionLoss, Outcome
from sightline.output_layer import Given, OutputLayer, Reading
from sightline.search.protocol import Step
from sightline.state import State
from sightline.text import BOS, EOS, PAD, UNK

SPANS = "spans"  # in a state: from weights over the memory's positions to those over source tokens, (B, N, S)


class Writer(nn.Module, ABC):
    """Writes a target token by token. What it writes about, if anything, is the memory that `encode` makes."""

    target_embedding: Embedding
    decoder: Decoder
    output: OutputLayer
    table: Tensor | None

    def __init__(self, smoothing: float = 0.0, losses: Mapping[str, tuple[float, AttentionLoss]] | None = None) -> None:
        """`losses` beside that of the words, with their weights."""
        super().__init__()
        self.smoothing = smoothing
        losses = losses or {}
        self.penalties = nn.ModuleDict({name: loss for name, (_, loss) in losses.items()})
        self.loss_weights = {"cross_entropy": 1.0} | {name: weight for name, (weight, _) in losses.items()}
        self.pad, self.bos, self.eos = PAD, BOS, EOS
        self.precision = torch.float32  # of the products in `loss`
        self.register_buffer("table", None, persistent=False)  # (V, u), see `tabulate`

    @abstractmethod
    def encode(self, batch: Batch) -> Memory:
        """What the decoder may look at."""

    @abstractmethod
    def source_lengths(self, batch: Batch) -> Tensor:
        """`(B,)`: how long each sentence's input is; see `search.protocol.StepModel`."""

    def source_ids(self, batch: Batch) -> Tensor:
        """The tokens of the batch's sources, `(B, S)`, side by side as in the memory."""
        return side_by_side([source.ids for source in batch.sources if isinstance(source, Tokens)])

    def embed(self, tokens: Tensor, offset: int = 0) -> Tensor:
        """Target tokens `(B, T)`, the first at position `offset`, to `(B, T, e)`."""
        return self.target_embedding(self.output.known_target(tokens), offset=offset)

    def shifted(self, targets: Tokens) -> Tensor:
        """What the decoder reads: the start symbol, then the targets but the last, `(B, T)`."""
        first = torch.full_like(targets.ids[:, :1], self.bos)
        return torch.cat([first, targets.ids[:, :-1]], 1)

    def read(self, batch: Batch) -> Reading:
        """The full pass over the targets."""
        return self.read_from(self.encode(batch), batch)

    def read_from(self, memory: Memory, batch: Batch) -> Reading:
        """The same of a batch that was encoded."""
        assert batch.targets is not None
        tokens = self.shifted(batch.targets)
        if self.output.stepwise:
            return self.read_stepwise(memory, batch, tokens)
        embedded = self.embed(tokens)
        shared = self.output.prepare(memory, self.source_ids(batch))
        decoded = self.decoder(memory, embedded)
        if memory.spans is not None and decoded.weights is not None:
            over_tokens = decoded.weights @ memory.spans.matrix(decoded.weights.dtype)
            decoded = replace(decoded, weights=over_tokens)
        return self.output.see(decoded, Given(tokens, embedded, batch.targets.ids, shared))

    def read_stepwise(self, memory: Memory, batch: Batch, tokens: Tensor) -> Reading:
        """The full pass over tokens `(B, T)`, step by step."""
        state, steps = self.begin(memory, batch), list[Reading]()
        for token in tokens.unbind(1):
            steps.append(self.advance(token, state))
            state = steps[-1].state
        return Reading(
            self.output.joined([step.features for step in steps]),
            state,
            _stacked([step.weights for step in steps]),
            _stacked([step.log_chances for step in steps]),
        )

    def loss(self, batch: Batch) -> dict[str, tuple[Tensor, Tensor | int]]:
        """Sums over real target tokens, and their count: the smoothed loss, the plain one, and those over attention.

        Where the output layer never writes `<unk>`, targets that are `<unk>` are neither learnt nor counted.

        `loss_weights` tells what of it to minimise.
        """
        return self.loss_and_weights(batch)[0]

    def loss_and_weights(self, batch: Batch) -> tuple[dict[str, tuple[Tensor, Tensor | int]], Tensor | None]:
        """The same, and where the decoder looked, `(B, T, S)`, if its full pass tells."""
        if self.training:
            batch = self.output.practised(batch)
        assert batch.targets is not None
        real = batch.targets.mask
        with self._products():
            memory = self.encode(batch)
            reading = self.read_from(memory, batch)
        learnt = real if self.output.writes_unknown else real & (batch.targets.ids != UNK)
        targets = batch.targets.ids[learnt]
        smoothed, plain = self.output.nll(reading.features[learnt], targets, self.smoothing)
        losses: dict[str, tuple[Tensor, Tensor | int]] = {
            "cross_entropy": (smoothed, targets.numel()),
            "nll": (plain, targets.numel()),
        }
        weights = None if reading.weights is None else reading.weights.float()
        if self.penalties:
            assert weights is not None

            def rewards() -> Tensor:
                with torch.no_grad(), self._products():
                    return self._log_probs(reading, batch)

            found = (weights, real, memory, rewards, self.output.changing(), batch.links, reading.log_chances, learnt)
            outcome = Outcome(*found, partial(self.embed, batch.targets.ids))
            for name, loss in self.penalties.items():
                assert isinstance(loss, AttentionLoss)
                losses[name] = loss.of(outcome)
        return losses, weights

    def _products(self) -> torch.autocast:
        """Inside, products are made in the precision of training."""
        device = self.target_embedding.weight.device.type
        return torch.autocast(device, self.precision, enabled=self.precision != torch.float32)

    def token_log_probs(self, batch: Batch, memory: Memory | None = None) -> Tensor:
        """The log-probability of each target token, teacher-forced: `(B, T)`, zero on padding.

        `memory` is for a batch that was encoded.
        """
        return self._log_probs(self.read_from(self.encode(batch) if memory is None else memory, batch), batch)

    def _log_probs(self, reading: Reading, batch: Batch) -> Tensor:
        assert batch.targets is not None
        real = batch.targets.mask
        found = self.output.token_log_probs(reading.features[real], batch.targets.ids[real])
        return torch.zeros(real.shape, dtype=found.dtype, device=real.device).masked_scatter(real, found)

    def start(self, batch: Batch, prefix: Tensor | None = None) -> State:
        """The state before the first token; see `search.protocol.StepModel`."""
        state = self.begin(self.encode(batch), batch)
        if prefix is not None:
            first = torch.full_like(prefix[:, :1], self.bos)
            for tokens in torch.cat([first, prefix[:, :-1]], 1).unbind(1):
                state = self.advance(tokens, state).state
        return state

    def begin(self, memory: Memory, batch: Batch) -> State:
        """The state before the first token of a batch that was encoded."""
        state = self.decoder.start(memory)
        shared, own = self.output.prepare(memory, self.source_ids(batch)), self.output.begin(memory)
        if memory.spans is not None:
            shared = {**shared, SPANS: memory.spans.matrix(memory.states.dtype)}
        return replace(state, shared={**state.shared, **shared}, own={**state.own, **own})

    def advance(self, tokens: Tensor, state: State) -> Reading:
        """One token a row, `(R,)`."""
        state = self.output.told(tokens, state)
        embedded: Tensor | None = None
        if self.table is None or self.output.reads_tokens:
            embedded = self.output.read(tokens, self.embed(tokens[:, None], state.position)[:, 0], state)
        if self.table is not None:
            decoded = self.decoder.go_on(F.embedding(self.output.known_target(tokens), self.table), state)
        else:
            assert embedded is not None
            decoded = self.decoder.step(embedded, state)
        spans = state.shared.get(SPANS)
        if spans is not None and decoded.weights is not None:
            grouped = decoded.weights.view(-1, state.width, decoded.weights.size(-1))  # (B, K, positions)
            decoded = replace(decoded, weights=(grouped @ spans.to(grouped.dtype)).flatten(0, 1))
        return self.output.see_step(decoded, tokens, embedded)

    @torch.no_grad()
    def tabulate(self, most: int) -> None:
        """Lets steps look up what they need of a token, instead of working it out; for a model that learns no more.

        Nothing is done where more than the token counts, as its position, nor for a table of more than `most` numbers.
        """
        embedding = self.target_embedding
        if embedding.positions is not None or self.output.stepwise:
            return
        ids = torch.arange(embedding.weight.size(0), device=embedding.weight.device)
        width = self.decoder.of_tokens(embedding(ids[None, :1])).size(-1)
        if len(ids) * width <= most:
            self.table = self.decoder.of_tokens(embedding(ids[None]))[0]

    def step(self, tokens: Tensor, state: State) -> Step:
        """Reads `(R,)` and predicts what follows, `(R, V)`; see `search.protocol.StepModel`."""
        reading = self.advance(tokens, state)
        log_probs = self.output.log_probs(reading.features).flatten(0, -2)
        if not self.output.writes_unknown:
            log_probs = log_probs.clone()
            log_probs[:, UNK] = -torch.inf
        return Step(log_probs, reading.state, reading.weights)


def _stacked(steps: Sequence[Tensor | None]) -> Tensor | None:
    """What steps report, `(B, …)` each, as `(B, T, …)`, if they do."""
    found = [step for step in steps if step is not None]
    return torch.stack(found, 1) if found else None
