"""Recipes: plain functions that put parts together.

Shapes: B sentences, S source positions, T target positions, R hypotheses, V vocabulary, u width of what a step needs of
a token.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sightline.architecture import ModelConfig
from sightline.assembly import (
    embeddings,
    make_attention,
    make_bridge,
    make_encoder,
    make_output,
    make_penalties,
    number,
)
from sightline.batch import Batch, Memory, Tokens
from sightline.decoders import (
    BahdanauDecoder,
    CellStack,
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
from sightline.layer_parts import make_feedforward, make_heads, make_self_attention
from sightline.layers import Embedding
from sightline.losses import Penalty
from sightline.outputs import Output
from sightline.search.protocol import Step
from sightline.state import State
from sightline.text import BOS, EOS, PAD, Sizes

TOKENS_AT_ONCE = 1024


class EncoderDecoder(nn.Module):
    """Reads a source, writes a target: `loss` for training, `start` and `step` for search."""

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
    ) -> None:
        super().__init__()
        self.source_embedding, self.target_embedding = source_embedding, target_embedding
        self.encoder, self.decoder, self.output = encoder, decoder, output
        self.smoothing = smoothing
        penalties = penalties or {}
        self.penalties = nn.ModuleDict({name: penalty for name, (_, penalty) in penalties.items()})
        self.loss_weights = {"cross_entropy": 1.0} | {name: weight for name, (weight, _) in penalties.items()}
        self.pad, self.bos, self.eos = PAD, BOS, EOS
        self.precision = torch.float32  # of the products in `loss`
        self.register_buffer("table", None, persistent=False)  # (V, u), see `tabulate`

    def encode(self, batch: Batch) -> Memory:
        """The batch's only source as a memory of states `(B, S, d)`."""
        (source,) = batch.sources
        assert isinstance(source, Tokens)
        return self.encoder(self.source_embedding(source.ids), source.mask)

    def shifted(self, targets: Tokens) -> Tensor:
        """What the decoder reads: the start symbol, then the targets but the last, `(B, T)`."""
        first = torch.full_like(targets.ids[:, :1], self.bos)
        return torch.cat([first, targets.ids[:, :-1]], 1)

    def loss(self, batch: Batch) -> dict[str, tuple[Tensor, Tensor | int]]:
        """Sums over real target tokens, and their count: the smoothed loss, the plain one, and the penalties'.

        `loss_weights` tells what of it to minimise.
        """
        assert batch.targets is not None
        real = batch.targets.mask
        with torch.autocast(real.device.type, self.precision, enabled=self.precision != torch.float32):
            memory = self.encode(batch)
            decoded = self.decoder(memory, self.target_embedding(self.shifted(batch.targets)))
        targets = batch.targets.ids[real]
        smoothed, plain = self.output.nll(decoded.features[real], targets, self.smoothing)
        losses: dict[str, tuple[Tensor, Tensor | int]] = {
            "cross_entropy": (smoothed, targets.numel()),
            "nll": (plain, targets.numel()),
        }
        if self.penalties and decoded.weights is not None:
            weights = decoded.weights.float()
            losses |= {name: penalty(weights, real, memory) for name, penalty in self.penalties.items()}
        return losses

    def token_log_probs(self, batch: Batch) -> Tensor:
        """The log-probability of each target token, teacher-forced: `(B, T)`, zero on padding."""
        assert batch.targets is not None
        decoded = self.decoder(self.encode(batch), self.target_embedding(self.shifted(batch.targets)))
        real = batch.targets.mask
        features, wanted = decoded.features[real], batch.targets.ids[real][:, None]
        # In parts: the distributions of all tokens at once would be the largest tensor of all.
        starts = range(0, features.size(0), TOKENS_AT_ONCE)
        parts = [slice(start, start + TOKENS_AT_ONCE) for start in starts]
        found = [self.output.log_probs(features[part]).gather(-1, wanted[part]).squeeze(-1) for part in parts]
        return torch.zeros(real.shape, dtype=features.dtype, device=real.device).masked_scatter(real, torch.cat(found))

    def start(self, batch: Batch, prefix: Tensor | None = None) -> State:
        """The state before the first token; see `search.protocol.StepModel`."""
        state = self.decoder.start(self.encode(batch))
        if prefix is not None:
            first = torch.full_like(prefix[:, :1], self.bos)
            for tokens in torch.cat([first, prefix[:, :-1]], 1).unbind(1):
                state = self.advance(tokens, state)[1]
        return state

    def advance(self, tokens: Tensor, state: State) -> tuple[Tensor, State, Tensor | None]:
        """One token a row, `(R,)`: features `(R, d)`, the next state, and weights `(R, S)` or None."""
        if self.table is not None:
            decoded = self.decoder.go_on(F.embedding(tokens, self.table), state)
        else:
            decoded = self.decoder.step(self.target_embedding(tokens[:, None], offset=state.position)[:, 0], state)
        return decoded.features, decoded.state, decoded.weights

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

    def step(self, tokens: Tensor, state: State) -> Step:
        """Reads `(R,)` and predicts what follows, `(R, V)`; see `search.protocol.StepModel`."""
        features, state, weights = self.advance(tokens, state)
        return Step(self.output.log_probs(features), state, weights)

    def source_lengths(self, batch: Batch) -> Tensor:
        """`(B,)`: real source tokens, the end symbol included."""
        return batch.sources[0].mask.sum(-1)


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
    cells = CellStack(decoder.cell, target.width, extra, width, number(decoder.layers), config.dropout)
    bridge = make_bridge(config, encoder, cells)
    fixed = FixedContextDecoder(cells, bridge, decoder.context, encoder.width, decoder.max_source, config.dropout)
    return EncoderDecoder(source, target, encoder, fixed, make_output(config, fixed.width, target))


def bahdanau(config: ModelConfig, sizes: Sizes) -> EncoderDecoder:
    """Attention before the update, context in the cell and in a maxout output layer (Bahdanau et al. 2015)."""
    source, target = embeddings(config, sizes)
    encoder = make_encoder(config, source.width)
    width = number(config.decoder.width)
    cells = CellStack(
        config.decoder.cell, target.width, encoder.width, width, number(config.decoder.layers), config.dropout
    )
    decoder = BahdanauDecoder(
        cells,
        make_bridge(config, encoder, cells, backward=True),
        make_attention(config, width, encoder.width),
        Readout(width, target.width, encoder.width, target.width),
        target.width,
        config.decoder.readout_state,
        config.dropout,
    )
    return EncoderDecoder(
        source,
        target,
        encoder,
        decoder,
        make_output(config, decoder.width, target),
        penalties=make_penalties(config, encoder.width),
    )


def luong(config: ModelConfig, sizes: Sizes) -> EncoderDecoder:
    """Attention after the update, an attentional vector, input feeding (Luong et al. 2015)."""
    source, target = embeddings(config, sizes)
    encoder = make_encoder(config, source.width)
    width = number(config.decoder.width)
    feeding = config.decoder.input_feeding
    cells = CellStack(
        config.decoder.cell,
        target.width,
        width if feeding else 0,
        width,
        number(config.decoder.layers),
        config.dropout,
    )
    attention = make_attention(config, width, encoder.width)
    decoder = LuongDecoder(
        cells, make_bridge(config, encoder, cells), attention, encoder.width, feeding, config.dropout
    )
    return EncoderDecoder(
        source,
        target,
        encoder,
        decoder,
        make_output(config, width, target),
        penalties=make_penalties(config, encoder.width),
    )


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
        attention = make_self_attention(config, decoder.attention, width, number(decoder.heads), len(layers))
        cross = make_heads(config, decoder.cross_attention, width, number(decoder.heads))
        feedforward = make_feedforward(config, width, number(decoder.feedforward))
        layers.append(
            TransformerDecoderLayer(attention, cross, feedforward, config.norm, config.norm_position, config.dropout)
        )
    stack = TransformerDecoder(layers, config.norm, config.norm_position, config.reversible)
    return EncoderDecoder(source, target, encoder, stack, make_output(config, width, target))


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
