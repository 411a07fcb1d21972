"""Recipes: plain functions that put parts together.

Shapes: B sentences, S source positions, T target positions, R hypotheses, V vocabulary, u width of what a step needs of
a token.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sightline.architecture import ModelConfig
from sightline.assembly import (
    embeddings,
    make_attention,
    make_bridge,
    make_encoder,
    make_heads,
    make_output,
    make_penalties,
    make_pointing,
    make_view,
    number,
    read_width,
)
from sightline.batch import Batch, Memory, Tokens
from sightline.copying import SCORES, Seen, SelectiveRead
from sightline.decoders import (
    BahdanauDecoder,
    CellStack,
    Decoded,
    Decoder,
    FixedContextDecoder,
    LuongDecoder,
    Readout,
    TransformerDecoder,
    TransformerDecoderLayer,
)
from sightline.encoders import (
    Encoder,
)
from sightline.errors import SightlineError
from sightline.layers import Embedding, FeedForward
from sightline.losses import Penalty
from sightline.outputs import Output
from sightline.search.protocol import Step
from sightline.state import State
from sightline.text import BOS, EOS, PAD, Sizes
from sightline.views import OutputLayer, View

TOKENS_AT_ONCE = 1024


class Reading(NamedTuple):
    """A full pass over a batch's targets: what the output layer foretells from, tensors `(B, T, …)`; the memory; and
    where a decoder has them its weights over the source `(B, T, S)`."""

    features: Any
    memory: Memory
    weights: Tensor | None = None


class EncoderDecoder(nn.Module):
    """Reads a source, writes a target: `loss` for training, `start` and `step` for search.

    With `view` the output layer knows more than the decoder's features, as when it copies words of the source: it
    foretells from what the view makes of them. `reader` adds to a step's input what was copied in the one before.
    """

    output: OutputLayer
    table: Tensor | None

    def __init__(
        self,
        source_embedding: Embedding,
        target_embedding: Embedding,
        encoder: Encoder,
        decoder: Decoder,
        output: Output,
        smoothing: float = 0.0,
        penalties: Mapping[str, tuple[float, Penalty]] | None = None,
        view: View | None = None,
        reader: SelectiveRead | None = None,
    ) -> None:
        super().__init__()
        self.source_embedding, self.target_embedding = source_embedding, target_embedding
        self.encoder, self.decoder = encoder, decoder
        self.output = output if view is None else view.over(output)
        self.view, self.reader = view, reader
        self.smoothing = smoothing
        penalties = penalties or {}
        self.penalties = nn.ModuleDict({name: penalty for name, (_, penalty) in penalties.items()})
        self.loss_weights = {"cross_entropy": 1.0} | {name: weight for name, (weight, _) in penalties.items()}
        self.pad, self.bos, self.eos = PAD, BOS, EOS
        self.precision = torch.float32  # of the products in `loss`
        self.register_buffer("table", None, persistent=False)  # (V, u), see `tabulate`

    def source(self, batch: Batch) -> Tokens:
        """The batch's only source."""
        (source,) = batch.sources
        assert isinstance(source, Tokens)
        return source

    def encode(self, batch: Batch) -> Memory:
        """The batch's only source as a memory of states `(B, S, d)`."""
        source = self.source(batch)
        known = source.ids if self.view is None else self.view.known_source(source.ids)
        return self.encoder(self.source_embedding(known), source.mask)

    def embed(self, tokens: Tensor, offset: int = 0) -> Tensor:
        """Target tokens `(B, T)`, the first at position `offset`, to `(B, T, e)`."""
        known = tokens if self.view is None else self.view.known_target(tokens)
        return self.target_embedding(known, offset=offset)

    def shifted(self, targets: Tokens) -> Tensor:
        """What the decoder reads: the start symbol, then the targets but the last, `(B, T)`."""
        first = torch.full_like(targets.ids[:, :1], self.bos)
        return torch.cat([first, targets.ids[:, :-1]], 1)

    def read(self, batch: Batch) -> Reading:
        """The full pass over the targets."""
        assert batch.targets is not None
        memory, tokens = self.encode(batch), self.shifted(batch.targets)
        if self.reader is not None:  # what a step reads depends on the one before
            return self.read_stepwise(memory, batch, tokens)
        embedded = self.embed(tokens)
        decoded = self.decoder(memory, embedded)
        if self.view is None:
            return Reading(decoded.features, memory, decoded.weights)
        shared = self.view.prepare(memory, self.source(batch).ids)
        return Reading(self.view(decoded.features, decoded.weights, embedded, shared), memory, decoded.weights)

    def read_stepwise(self, memory: Memory, batch: Batch, tokens: Tensor) -> Reading:
        """The full pass over tokens `(B, T)`, step by step."""
        state = self.begin(memory, batch)
        seen, weights = [], []
        for token in tokens.unbind(1):
            features, state, weight = self.advance(token, state)
            seen.append(features)
            weights += [] if weight is None else [weight]
        return Reading(Seen.joined(seen), memory, torch.stack(weights, 1) if weights else None)

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
        state = self.begin(self.encode(batch), batch)
        if prefix is not None:
            first = torch.full_like(prefix[:, :1], self.bos)
            for tokens in torch.cat([first, prefix[:, :-1]], 1).unbind(1):
                state = self.advance(tokens, state)[1]
        return state

    def begin(self, memory: Memory, batch: Batch) -> State:
        """The state before the first token of a batch that was encoded."""
        state = self.decoder.start(memory)
        if self.view is None:
            return state
        shared = self.view.prepare(memory, self.source(batch).ids)
        own = {} if self.reader is None else {SCORES: memory.states.new_zeros(memory.mask.shape)}
        return replace(state, shared={**state.shared, **shared}, own={**state.own, **own})

    def advance(self, tokens: Tensor, state: State) -> tuple[Any, State, Tensor | None]:
        """One token a row, `(R,)`: features `(R, d)`, the next state, and weights `(R, S)` or None.

        With a view, what it makes of the features: tensors `(B, K, …)`.
        """
        if self.view is None:
            decoded = self.decoded(tokens, None, state)
            return decoded.features, decoded.state, decoded.weights
        inputs = self.embed(tokens[:, None], state.position)[:, 0]
        if self.reader is not None:
            scores = _by_sentence(state.own[SCORES], state.width)
            copied = self.reader(_by_sentence(tokens, state.width), scores, state.shared)
            inputs = torch.cat([inputs, copied.flatten(0, 1).to(inputs.dtype)], -1)
        decoded = self.decoded(tokens, inputs, state)
        weights = None if decoded.weights is None else _by_sentence(decoded.weights, state.width)
        features, inputs = (_by_sentence(part, state.width) for part in (decoded.features, inputs))
        seen, after = self.view(features, weights, inputs, state.shared), decoded.state
        if self.reader is not None:
            after = replace(after, own={**after.own, SCORES: seen.weights.flatten(0, 1)})
        return seen, after, decoded.weights

    def decoded(self, tokens: Tensor, inputs: Tensor | None, state: State) -> Decoded:
        """The decoder's step from one token a row, `(R,)`; `inputs` `(R, e)` are the embedded tokens, where known."""
        if self.table is not None:
            known = tokens if self.view is None else self.view.known_target(tokens)
            return self.decoder.go_on(F.embedding(known, self.table), state)
        if inputs is None:
            inputs = self.embed(tokens[:, None], state.position)[:, 0]
        return self.decoder.step(inputs, state)

    @torch.no_grad()
    def tabulate(self, most: int) -> None:
        """Lets steps look up what they need of a token, instead of working it out; for a model that learns no more.

        Nothing is done where more than the token counts, as its position, nor for a table of more than `most` numbers.
        """
        embedding = self.target_embedding
        if embedding.positions is not None or self.reader is not None:
            return
        ids = torch.arange(embedding.weight.size(0), device=embedding.weight.device)
        width = self.decoder.of_tokens(embedding(ids[None, :1])).size(-1)
        if len(ids) * width <= most:
            self.table = self.decoder.of_tokens(embedding(ids[None]))[0]

    def step(self, tokens: Tensor, state: State) -> Step:
        """Reads `(R,)` and predicts what follows, `(R, V)`; see `search.protocol.StepModel`."""
        features, state, weights = self.advance(tokens, state)
        return Step(self.output.log_probs(features).flatten(0, -2), state, weights)

    def source_lengths(self, batch: Batch) -> Tensor:
        """`(B,)`: real source tokens, the end symbol included."""
        return batch.sources[0].mask.sum(-1)


def _by_sentence(rows: Tensor, width: int) -> Tensor:
    """Rows `(R, …)` as `(B, K, …)`."""
    return rows.reshape(-1, width, *rows.shape[1:])


def seq2seq(config: ModelConfig, sizes: Sizes) -> EncoderDecoder:
    """Everything the decoder knows of the source goes through one fixed vector (Sutskever et al. 2014)."""
    source, target = embeddings(config, sizes)
    encoder = make_encoder(config, source.width)
    decoder, width = config.decoder, number(config.decoder.width)
    if decoder.context == "last" and config.encoder.kind == "positions":
        raise SightlineError(
            "model.decoder.context=last makes no sense with model.encoder.kind=positions: "
            "the last state would be the end symbol's own vector; choose mean, sum or concatenation"
        )
    extra = FixedContextDecoder.context_width(decoder.context, encoder.width, width)
    inputs = target.width + read_width(config, encoder)
    cells = CellStack(decoder.cell, inputs, extra, width, number(decoder.layers), config.dropout)
    bridge = make_bridge(config, encoder, cells)
    fixed = FixedContextDecoder(cells, bridge, decoder.context, encoder.width, decoder.max_source, config.dropout)
    return _put_together(config, sizes, source, target, encoder, fixed)


def bahdanau(config: ModelConfig, sizes: Sizes) -> EncoderDecoder:
    """Attention before the update, context in the cell and in a maxout output layer (Bahdanau et al. 2015)."""
    source, target = embeddings(config, sizes)
    encoder = make_encoder(config, source.width)
    width = number(config.decoder.width)
    inputs = target.width + read_width(config, encoder)
    cells = CellStack(config.decoder.cell, inputs, encoder.width, width, number(config.decoder.layers), config.dropout)
    decoder = BahdanauDecoder(
        cells,
        make_bridge(config, encoder, cells, backward=True),
        make_attention(config, width, encoder.width),
        Readout(width, inputs, encoder.width, target.width),
        target.width,
        config.decoder.readout_state,
        config.dropout,
    )
    return _put_together(config, sizes, source, target, encoder, decoder)


def luong(config: ModelConfig, sizes: Sizes) -> EncoderDecoder:
    """Attention after the update, an attentional vector, input feeding (Luong et al. 2015)."""
    source, target = embeddings(config, sizes)
    encoder = make_encoder(config, source.width)
    width = number(config.decoder.width)
    feeding = config.decoder.input_feeding
    cells = CellStack(
        config.decoder.cell,
        target.width + read_width(config, encoder),
        width if feeding else 0,
        width,
        number(config.decoder.layers),
        config.dropout,
    )
    attention = make_attention(config, width, encoder.width)
    decoder = LuongDecoder(
        cells, make_bridge(config, encoder, cells), attention, encoder.width, feeding, config.dropout
    )
    return _put_together(config, sizes, source, target, encoder, decoder)


def transformer(config: ModelConfig, sizes: Sizes) -> EncoderDecoder:
    """Multi-head attention in encoder and decoder (Vaswani et al. 2017)."""
    source, target = embeddings(config, sizes)
    encoder = make_encoder(config, source.width)
    decoder, width = config.decoder, target.width
    if decoder.width not in (None, width):
        raise SightlineError(f"model.decoder.width={decoder.width}: in a transformer it is model.embedding ({width})")
    if encoder.width != width:
        raise SightlineError(
            f"the encoder's states are {encoder.width} wide, the transformer decoder's {width}: "
            "make them equal with model.encoder.width (half of it for each direction) or model.embedding"
        )
    layers = []
    for _ in range(number(decoder.layers)):
        attention = make_heads(config, width, number(decoder.heads))
        cross = make_heads(config, width, number(decoder.heads))
        feedforward = FeedForward(width, number(decoder.feedforward), config.activation, config.activation_dropout)
        layers.append(
            TransformerDecoderLayer(attention, cross, feedforward, config.norm, config.norm_position, config.dropout)
        )
    stack = TransformerDecoder(layers, config.norm, config.norm_position, make_pointing(config))
    return _put_together(config, sizes, source, target, encoder, stack)


def _put_together(
    config: ModelConfig, sizes: Sizes, source: Embedding, target: Embedding, encoder: Encoder, decoder: Decoder
) -> EncoderDecoder:
    """The model of these parts, with the output layer and the losses that the config asks for."""
    output, view = make_output(config, decoder.width, target), make_view(config, sizes, decoder.width, encoder, target)
    penalties = make_penalties(config, encoder.width)
    reader = SelectiveRead() if read_width(config, encoder) else None
    return EncoderDecoder(source, target, encoder, decoder, output, penalties=penalties, view=view, reader=reader)


RECIPES: dict[str, Callable[[ModelConfig, Sizes], EncoderDecoder]] = {
    "seq2seq": seq2seq,
    "bahdanau": bahdanau,
    "luong": luong,
    "transformer": transformer,
}


def build_model(config: ModelConfig, sizes: Sizes, smoothing: float = 0.0) -> EncoderDecoder:
    """The model that the config's recipe makes; initial weights come from torch's random state."""
    model = RECIPES[config.recipe](config, sizes)
    model.smoothing = smoothing
    return model


def parameter_count(model: nn.Module) -> int:
    """Learned numbers, tied ones counted once."""
    return sum(parameter.numel() for parameter in model.parameters())
