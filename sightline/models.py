"""Recipes: plain functions that put parts together.

Shapes: B sentences, S source positions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from torch import Tensor, nn

from sightline.architecture import ModelConfig
from sightline.assembly import (
    embeddings,
    make_attention,
    make_bridge,
    make_encoder,
    make_latent_attention,
    make_losses,
    make_output,
    make_positions,
    make_readers,
    make_transformer_decoder,
    make_vocabulary,
    number,
    read_width,
)
from sightline.batch import Batch, Memory, Tokens
from sightline.choices import SUMMED
from sightline.decoders import (
    BahdanauDecoder,
    CellStack,
    Decoder,
    FixedContextDecoder,
    LatentDecoder,
    LuongDecoder,
    Readout,
    RecurrentDecoder,
)
from sightline.encoders import (
    Encoder,
)
from sightline.errors import SightlineError
from sightline.language_model import LanguageModel
from sightline.layers import Embedding
from sightline.losses import AttentionLoss
from sightline.many_sources import SeveralSources, context_width
from sightline.output_layer import OutputLayer
from sightline.pointing import Pointer, PointerOutput
from sightline.text import PAD, Sizes
from sightline.writer import Writer


class EncoderDecoder(Writer):
    """Reads a source, writes a target: `loss` for training, `start` and `step` for search."""

    def __init__(
        self,
        source_embedding: Embedding,
        target_embedding: Embedding,
        encoder: Encoder,
        decoder: Decoder,
        output: OutputLayer,
        smoothing: float = 0.0,
        losses: Mapping[str, tuple[float, AttentionLoss]] | None = None,
    ) -> None:
        super().__init__(smoothing, losses)
        self.source_embedding, self.target_embedding = source_embedding, target_embedding
        self.encoder, self.decoder, self.output = encoder, decoder, output

    def encode(self, batch: Batch) -> Memory:
        """The batch's only source as a memory of states `(B, S, d)`."""
        (source,) = batch.sources
        assert isinstance(source, Tokens)
        known = replace(source, ids=self.output.known_source(source.ids))
        return self.encoder.read(self.source_embedding, known)

    def source_lengths(self, batch: Batch) -> Tensor:
        """`(B,)`: real source tokens, the end symbol included."""
        return batch.sources[0].mask.sum(-1)


def seq2seq(config: ModelConfig, sizes: Sizes) -> Writer:
    """Everything the decoder knows of the source goes through one fixed vector (Sutskever et al. 2014)."""
    source, target = embeddings(config, sizes)
    encoder = make_encoder(config, sizes, source.width)
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


def bahdanau(config: ModelConfig, sizes: Sizes) -> Writer:
    """Attention before the update, context in the cell and in a maxout output layer (Bahdanau et al. 2015)."""
    source, target = embeddings(config, sizes)
    encoder = make_encoder(config, sizes, source.width)
    width, context = number(config.decoder.width), context_width(config, encoder.width)
    inputs = target.width + read_width(config, encoder)
    cells = CellStack(config.decoder.cell, inputs, context, width, number(config.decoder.layers), config.dropout)
    decoder = BahdanauDecoder(
        cells,
        make_bridge(config, encoder, cells, backward=True),
        make_attention(config, sizes, width, encoder.width, target.width),
        Readout(width, inputs, context, target.width),
        target.width,
        config.decoder.readout_state,
        config.dropout,
    )
    return _put_together(config, sizes, source, target, encoder, decoder)


def luong(config: ModelConfig, sizes: Sizes) -> Writer:
    """Attention after the update, an attentional vector, input feeding (Luong et al. 2015)."""
    source, target = embeddings(config, sizes)
    encoder = make_encoder(config, sizes, source.width)
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
    bridge = make_bridge(config, encoder, cells)
    decoder: Decoder
    if config.attention.choice in SUMMED:
        summed = make_latent_attention(config, sizes, width, encoder.width)
        decoder = LatentDecoder(cells, bridge, summed, encoder.width, config.dropout)
    else:
        attention = make_attention(config, sizes, width, encoder.width, target.width)
        context = context_width(config, encoder.width)
        decoder = LuongDecoder(cells, bridge, attention, context, feeding, config.dropout)
    return _put_together(config, sizes, source, target, encoder, decoder)


def transformer(config: ModelConfig, sizes: Sizes) -> Writer:
    """Multi-head attention in encoder and decoder (Vaswani et al. 2017)."""
    source, target = embeddings(config, sizes)
    encoder = make_encoder(config, sizes, source.width)
    width = target.width
    if encoder.width != width:
        raise SightlineError(
            f"the encoder's states are {encoder.width} wide, the transformer decoder's {width}: "
            "make them equal with model.encoder.width (half of it for each direction) or model.embedding"
        )
    decoder = make_transformer_decoder(config, width)
    return _put_together(config, sizes, source, target, encoder, decoder)


def _put_together(
    config: ModelConfig, sizes: Sizes, source: Embedding, target: Embedding, encoder: Encoder, decoder: Decoder
) -> Writer:
    """The model of these parts, with the output layer and the losses that the config asks for."""
    output = make_output(config, sizes, decoder.width, encoder, target)
    losses = make_losses(config, sizes.target, encoder.width, decoder)
    if config.source_count > 1:
        readers = make_readers(config, sizes, source, target, encoder)
        return SeveralSources(readers, target, decoder, output, losses=losses)
    return EncoderDecoder(source, target, encoder, decoder, output, losses=losses)


def lm(config: ModelConfig, sizes: Sizes) -> LanguageModel:
    """A decoder alone, recurrent (Mikolov et al. 2010) or a Transformer's (Radford et al. 2018)."""
    transformer = config.decoder.kind == "transformer"
    width = number(config.embedding)
    embedding = Embedding(
        sizes.target, width, PAD, make_positions(config, width) if transformer else None, config.dropout
    )
    decoder: Decoder
    if transformer:
        decoder = make_transformer_decoder(config, width, cross=False)
    else:
        layers = number(config.decoder.layers)
        cells = CellStack(config.decoder.cell, width, 0, number(config.decoder.width), layers, config.dropout)
        decoder = RecurrentDecoder(cells, config.dropout)
    vocabulary = make_vocabulary(config, decoder.width, embedding)
    if config.pointer.kind == "none":
        return LanguageModel(embedding, decoder, vocabulary)
    return LanguageModel(embedding, decoder, PointerOutput(vocabulary, Pointer(decoder.width, config.pointer.window)))


RECIPES: dict[str, Callable[[ModelConfig, Sizes], Writer]] = {
    "seq2seq": seq2seq,
    "bahdanau": bahdanau,
    "luong": luong,
    "transformer": transformer,
    "lm": lm,
}


def build_model(config: ModelConfig, sizes: Sizes, smoothing: float = 0.0) -> Writer:
    """The model that the config's recipe makes; initial weights come from torch's random state."""
    model = RECIPES[config.recipe](config, sizes)
    model.smoothing = smoothing
    return model


def parameter_count(model: nn.Module) -> int:
    """Learned numbers, tied ones counted once."""
    return sum(parameter.numel() for parameter in model.parameters())
