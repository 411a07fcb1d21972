"""Recipes: plain functions that put parts together.

Shapes: B sentences, S source positions, T target positions, R hypotheses, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from sightline.attention import scores
from sightline.attention.soft import GlobalAttention, LocalMonotonicAttention, LocalPredictiveAttention, SoftAttention
from sightline.batch import Batch, Memory, Tokens
from sightline.config import ModelConfig
from sightline.decoders import (
    BahdanauDecoder,
    Bridge,
    CellStack,
    Decoder,
    FixedContextDecoder,
    LuongDecoder,
    Readout,
    TransformerDecoder,
    TransformerDecoderLayer,
)
from sightline.decoders.base import backward_state, last_state, mean_state, top_state
from sightline.encoders import (
    ConvolutionalEncoder,
    Encoder,
    PositionEncoder,
    RecurrentEncoder,
    TransformerEncoder,
    TransformerEncoderLayer,
)
from sightline.errors import SightlineError
from sightline.layer_parts import make_feedforward, make_heads, make_self_attention
from sightline.layers import Embedding
from sightline.outputs import Output
from sightline.positions import LearnedPositions, Positions, SinusoidalPositions
from sightline.search.protocol import Step
from sightline.state import State
from sightline.text import BOS, EOS, PAD, Sizes

TOKENS_AT_ONCE = 1024


class EncoderDecoder(nn.Module):
    """Reads a source, writes a target: `loss` for training, `start` and `step` for search."""

    def __init__(
        self,
        source_embedding: Embedding,
        target_embedding: Embedding,
        encoder: Encoder,
        decoder: Decoder,
        output: Output,
        smoothing: float = 0.0,
    ) -> None:
        super().__init__()
        self.source_embedding, self.target_embedding = source_embedding, target_embedding
        self.encoder, self.decoder, self.output = encoder, decoder, output
        self.smoothing = smoothing
        self.pad, self.bos, self.eos = PAD, BOS, EOS
        self.precision = torch.float32  # of the products in `loss`

    def encode(self, batch: Batch) -> Memory:
        """The batch's only source as a memory of states `(B, S, d)`."""
        (source,) = batch.sources
        assert isinstance(source, Tokens)
        return self.encoder(self.source_embedding(source.ids), source.mask)

    def shifted(self, targets: Tokens) -> Tensor:
        """What the decoder reads: the start symbol, then the targets but the last, `(B, T)`."""
        first = torch.full_like(targets.ids[:, :1], self.bos)
        return torch.cat([first, targets.ids[:, :-1]], 1)

    def loss(self, batch: Batch) -> dict[str, tuple[Tensor, int]]:
        """Sums over real target tokens, and their count: the smoothed loss and the plain one."""
        assert batch.targets is not None
        real = batch.targets.mask
        with torch.autocast(real.device.type, self.precision, enabled=self.precision != torch.float32):
            decoded = self.decoder(self.encode(batch), self.target_embedding(self.shifted(batch.targets)))
        targets = batch.targets.ids[real]
        smoothed, plain = self.output.nll(decoded.features[real], targets, self.smoothing)
        return {"cross_entropy": (smoothed, targets.numel()), "nll": (plain, targets.numel())}

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
        embedded = self.target_embedding(tokens[:, None], offset=state.position)[:, 0]
        decoded = self.decoder.step(embedded, state)
        return decoded.features, decoded.state, decoded.weights

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
    return EncoderDecoder(source, target, encoder, decoder, make_output(config, decoder.width, target))


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
    return EncoderDecoder(source, target, encoder, decoder, make_output(config, width, target))


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


def number(value: int | None) -> int:
    """A size that must have been chosen by now."""
    if value is None:
        raise SightlineError("the configuration leaves a size of the model open (null): sightline.sizes chooses them")
    return value


def embeddings(config: ModelConfig, sizes: Sizes) -> tuple[Embedding, Embedding]:
    """The source's and the target's, one object where they are tied.

    Positions go where no recurrence tells them: to every source but a recurrent encoder's, and to the target of a
    transformer.
    """
    width = number(config.embedding)
    recurrent = config.encoder.kind in ("lstm", "gru", "rnn")
    source_positions = None if recurrent else make_positions(config, width)
    target_positions = make_positions(config, width) if config.recipe == "transformer" else None

    def make(vocabulary: int, positions: Positions | None) -> Embedding:
        return Embedding(vocabulary, width, PAD, positions, config.dropout)

    source = make(sizes.source, source_positions)
    target = make(sizes.target, target_positions)
    if config.tie == "all":
        if not sizes.joint:
            raise SightlineError("model.tie=all needs one vocabulary for both sides: set text.joint=true or tie=output")
        source.weight = target.weight
    return source, target


def make_positions(config: ModelConfig, width: int) -> Positions | None:
    """The positions the config names."""
    if config.positions == "learned":
        return LearnedPositions(width, config.max_positions)
    return SinusoidalPositions(width) if config.positions == "sinusoidal" else None


def make_encoder(config: ModelConfig, inputs: int) -> Encoder:
    """The encoder the config names, for embeddings `inputs` wide."""
    encoder, dropout = config.encoder, config.dropout
    if encoder.kind == "positions":
        return PositionEncoder(inputs)
    layers = number(encoder.layers)
    if encoder.kind == "convolution":
        if encoder.kernel % 2 == 0:
            raise SightlineError(
                f"model.encoder.kernel={encoder.kernel}: choose an odd number, so that it has a middle"
            )
        return ConvolutionalEncoder(inputs, number(encoder.width), layers, encoder.kernel, dropout)
    if encoder.kind == "transformer":
        if encoder.width not in (None, inputs):
            raise SightlineError(
                f"model.encoder.width={encoder.width}: in a transformer it is model.embedding ({inputs})"
            )
        stack = [
            TransformerEncoderLayer(
                make_self_attention(config, encoder.attention, inputs, number(encoder.heads), layer),
                make_feedforward(config, inputs, number(encoder.feedforward)),
                config.norm,
                config.norm_position,
                dropout,
            )
            for layer in range(layers)
        ]
        return TransformerEncoder(stack, config.norm, config.norm_position, config.reversible)
    return RecurrentEncoder(
        encoder.kind, inputs, number(encoder.width), layers, encoder.bidirectional, encoder.reverse, dropout
    )


def make_bridge(config: ModelConfig, encoder: Encoder, cells: CellStack, backward: bool = False) -> Bridge:
    """How the encoder's end becomes the decoder's beginning; `backward` asks for Bahdanau's choice if there is one."""
    recurrent = isinstance(encoder, RecurrentEncoder)
    kind = config.encoder.kind
    width = encoder.width
    alike = recurrent and (kind == cells.kind) and encoder.width == cells.width and encoder.layers == cells.layers
    summarise: Callable[[Memory], Tensor] | None
    if recurrent and backward and config.encoder.bidirectional:
        summarise, width = backward_state, encoder.width // 2
    elif alike:
        summarise = None
    elif recurrent:
        summarise = top_state
    else:
        fixed = config.recipe == "seq2seq" and config.decoder.context == "last"
        summarise = last_state if fixed else mean_state
    return Bridge(summarise, width, cells.layers, cells.width, cells.has_cell)


def make_attention(config: ModelConfig, query_width: int, key_width: int) -> SoftAttention:
    """The score and the span the config names."""
    attention = config.attention
    score = make_score(config, query_width, key_width)
    if attention.span == "local-m":
        return LocalMonotonicAttention(score, attention.window, config.attention_dropout)
    if attention.span == "local-p":
        return LocalPredictiveAttention(score, query_width, attention.window, config.attention_dropout)
    return GlobalAttention(score, config.attention_dropout)


def make_score(config: ModelConfig, query_width: int, key_width: int) -> scores.Score:
    """The score function the config names, for queries and keys of these widths."""
    name = config.attention.score
    if name in ("dot", "scaled_dot", "cosine") and query_width != key_width:
        raise SightlineError(
            f"model.attention.score={name} needs queries and keys of one width, but the decoder's are {query_width} "
            f"and the encoder's {key_width} wide: set model.decoder.width={key_width}, or choose bilinear or additive"
        )
    if name == "bilinear":
        return scores.Bilinear(query_width, key_width)
    if name == "additive":
        return scores.Additive(query_width, key_width, config.attention.width or query_width)
    if name == "location":
        return scores.Location(query_width, config.attention.max_source)
    return {"dot": scores.Dot, "scaled_dot": scores.ScaledDot, "cosine": scores.Cosine}[name]()


def make_output(config: ModelConfig, width: int, target: Embedding) -> Output:
    """The output layer, its matrix the target embedding's where the config ties them."""
    if config.tie == "none":
        return Output(width, target.weight.size(0))
    if width != target.width:
        raise SightlineError(
            f"model.tie={config.tie} shares the embedding ({target.width} wide) with the output layer ({width} wide): "
            f"set model.embedding={width} or model.tie=none"
        )
    return Output(width, target.weight.size(0), target.weight, target.padding)


def build_model(config: ModelConfig, sizes: Sizes, smoothing: float = 0.0) -> EncoderDecoder:
    """The model that the config's recipe makes; initial weights come from torch's random state."""
    model = RECIPES[config.recipe](config, sizes)
    model.smoothing = smoothing
    return model


def parameter_count(model: nn.Module) -> int:
    """Learned numbers, tied ones counted once."""
    return sum(parameter.numel() for parameter in model.parameters())
