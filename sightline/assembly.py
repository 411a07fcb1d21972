"""The parts that a configuration names, built: what recipes are put together from."""

from __future__ import annotations

import math
from collections.abc import Callable
from importlib import import_module

from torch import Tensor

from sightline.architecture import KNOW_ORDER, ModelConfig
from sightline.attention.clues import (
    Clue,
    Coverage,
    EmbeddedCoverage,
    LocalFertility,
    MarkovBias,
    NeuralCoverage,
    PositionBias,
)
from sightline.attention.hard import OnlineMonotonicAttention, SampledAttention
from sightline.attention.hierarchical import HierarchicalAttention
from sightline.attention.joined import JoinedAttention
from sightline.attention.kinds import CrossAttention
from sightline.attention.latent import (
    ExactAttention,
    ExactJumpsAttention,
    ExactMonotonicAttention,
    LatentAttention,
    SegmentAttention,
)
from sightline.attention.scores import Score
from sightline.attention.soft import GlobalAttention, LocalMonotonicAttention, LocalPredictiveAttention, SoftAttention
from sightline.batch import Memory
from sightline.choices import SUMMED
from sightline.copying import (
    AttentionPointer,
    Copyable,
    CopyHead,
    CopyOutput,
    CopyScores,
    CopyView,
    SelectiveRead,
)
from sightline.decoders import (
    Bridge,
    CellStack,
    Decoder,
    TransformerDecoder,
    TransformerDecoderLayer,
)
from sightline.decoders.base import Start, backward_state, first_state, last_state, mean_state, top_state
from sightline.document_parts import make_document_encoder
from sightline.document_settings import DOCUMENT_KINDS
from sightline.documents import HierarchicalEncoder
from sightline.encoders import (
    ConvolutionalEncoder,
    Encoder,
    PositionEncoder,
    RecurrentEncoder,
    TransformerEncoder,
    TransformerEncoderLayer,
)
from sightline.errors import SightlineError
from sightline.heads import pointing_head, taught_head
from sightline.hops import HopsEncoder
from sightline.layer_parts import make_feedforward, make_heads, make_self_attention
from sightline.layers import Embedding
from sightline.lexical import LexiconOutput, LexiconView
from sightline.losses import (
    AttentionLoss,
    Certainty,
    CoverageLeft,
    GlobalFertility,
    GuidedAttention,
    OneLookEach,
    Reinforce,
    RepeatedLooks,
)
from sightline.many_sources import Reader, joined_attention, joined_cross, joined_start
from sightline.marginal import MarginalOutput
from sightline.output_layer import OutputLayer
from sightline.outputs import Output
from sightline.positions import LearnedPositions, Positions, SinusoidalPositions
from sightline.practice import Practice
from sightline.score_choices import SCORES
from sightline.text import PAD, Sizes


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
    source_positions = None if config.encoder.kind in KNOW_ORDER else make_positions(config, width)
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


def make_transformer_decoder(config: ModelConfig, width: int, cross: bool = True) -> TransformerDecoder:
    """The Transformer's decoder, its layers with or without attention to a memory."""
    decoder = config.decoder
    if decoder.width not in (None, width):
        raise SightlineError(f"model.decoder.width={decoder.width}: in a transformer it is model.embedding ({width})")
    layers: list[TransformerDecoderLayer] = []
    for place in range(number(decoder.layers)):
        heads = number(decoder.heads)
        parts = (
            make_self_attention(config, decoder.attention, width, heads, place),
            make_cross(config, width, heads) if cross else None,
            make_feedforward(config, width, number(decoder.feedforward)),
        )
        layers.append(TransformerDecoderLayer(*parts, config.norm, config.norm_position, config.dropout))
    pointing = pointing_head(config)
    stack = TransformerDecoder(layers, config.norm, config.norm_position, pointing, config.reversible)
    if config.guided.weight:
        stack.taught = taught_head(config)
    return stack


def make_cross(config: ModelConfig, width: int, heads: int) -> CrossAttention:
    """A Transformer layer's attention to the source, or to each of several."""
    kind = config.decoder.cross_attention
    return joined_cross(config, lambda: make_heads(config, kind, width, heads), width, heads)


def make_readers(
    config: ModelConfig, sizes: Sizes, source: Embedding, target: Embedding, encoder: Encoder
) -> list[Reader]:
    """A reader for each of several sources, the first one of parts that are made already.

    With a shared encoder they also share the embedding, if the sources have one vocabulary.
    """
    shared = config.sources.encoder == "shared"
    readers = [Reader(source, encoder, shared)]
    for vocabulary in sizes.others:
        if not (shared and sizes.joint):
            positions = None if source.positions is None else make_positions(config, source.width)
            source = Embedding(vocabulary, source.width, PAD, positions, config.dropout)
            if config.tie == "all":
                source.weight = target.weight
        readers.append(Reader(source, encoder if shared else make_encoder(config, sizes, source.width), shared))
    return readers


def make_encoder(config: ModelConfig, sizes: Sizes, inputs: int) -> Encoder:
    """The encoder the config names, for embeddings `inputs` wide."""
    encoder, dropout = config.encoder, config.dropout
    if encoder.kind in DOCUMENT_KINDS:
        return make_document_encoder(config, sizes, inputs)
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


def make_bridge(config: ModelConfig, encoder: Encoder, cells: CellStack, backward: bool = False) -> Start:
    """How the encoder's end becomes the decoder's beginning; `backward` asks for Bahdanau's choice if there is one."""
    recurrent = isinstance(encoder, RecurrentEncoder | HierarchicalEncoder | HopsEncoder)
    both = config.encoder.bidirectional and not isinstance(encoder, HopsEncoder)
    width = encoder.width
    alike = isinstance(encoder, RecurrentEncoder) and (encoder.kind, encoder.width, encoder.layers) == (
        cells.kind,
        cells.width,
        cells.layers,
    )
    summarise: Callable[[Memory], Tensor] | None
    online = config.attention.choice == "online_monotonic" and not (
        config.encoder.bidirectional or config.encoder.reverse
    )
    if isinstance(encoder, RecurrentEncoder) and online:
        summarise = first_state  # the decoder may begin before the source has ended
    elif recurrent and backward and both:
        summarise, width = backward_state, encoder.width // 2
    elif alike:
        summarise = None
    elif recurrent:
        summarise = top_state
    else:
        fixed = config.recipe == "seq2seq" and config.decoder.context == "last"
        summarise = last_state if fixed else mean_state
    bridges = [Bridge(summarise, width, cells.layers, cells.width, cells.has_cell) for _ in range(config.source_count)]
    return joined_start(config, bridges, cells)


def make_attention(
    config: ModelConfig, sizes: Sizes, query_width: int, key_width: int, token_width: int
) -> SoftAttention | JoinedAttention:
    """Attention to the source, or to each of several; embedded target tokens are `token_width` wide."""

    def make() -> SoftAttention:
        return make_soft_attention(config, sizes, query_width, key_width, token_width)

    return joined_attention(config, make, query_width, key_width)


def make_soft_attention(
    config: ModelConfig, sizes: Sizes, query_width: int, key_width: int, token_width: int
) -> SoftAttention:
    """The score, the choice and the span the config names."""
    attention, dropout = config.attention, config.attention_dropout
    score = make_score(config, query_width, key_width)
    clues = make_clues(config, sizes, query_width, key_width, token_width)
    if config.documents.memory == "words":
        return HierarchicalAttention(score, make_score(config, query_width, key_width), dropout, clues)
    if attention.choice == "sampled":
        return SampledAttention(score, attention.sample_soft, dropout, clues)
    if attention.choice == "online_monotonic":
        return OnlineMonotonicAttention(score, attention.stop_bias, dropout, clues)
    if attention.span == "local-m":
        return LocalMonotonicAttention(score, attention.window, dropout, clues)
    if attention.span == "local-p":
        return LocalPredictiveAttention(score, query_width, attention.window, dropout, clues)
    return GlobalAttention(score, dropout, clues)


def make_latent_attention(config: ModelConfig, sizes: Sizes, query_width: int, key_width: int) -> LatentAttention:
    """Attention to one position at a time, summed over all ways to choose them."""
    attention = config.attention
    score, clues = make_score(config, query_width, key_width), make_clues(config, sizes, query_width, key_width, 0)
    if attention.choice == "exact_monotonic":
        return ExactMonotonicAttention(score, clues)
    if attention.choice == "exact_jumps":
        width = attention.width or query_width
        return ExactJumpsAttention(score, query_width, key_width, width, attention.max_jump, clues)
    if attention.choice == "segments":
        return SegmentAttention(score, attention.stop_bias, clues)
    return ExactAttention(score, clues)


def make_clues(config: ModelConfig, sizes: Sizes, query_width: int, key_width: int, token_width: int) -> list[Clue]:
    """What the config lets the score know beside query and key."""
    attention = config.attention
    clues: list[Clue] = []
    if attention.position_bias:
        clues.append(PositionBias())
    if attention.markov_bias is not None:
        clues.append(MarkovBias(attention.markov_bias))
    if attention.fertility_bias is not None:
        clues.append(LocalFertility(attention.fertility_bias))
    if attention.coverage == "neural":
        clues.append(NeuralCoverage(query_width, key_width, attention.coverage_width))
    elif attention.coverage == "embedded":
        gru = attention.coverage_update == "gru"
        clues.append(EmbeddedCoverage(sizes.source, attention.coverage_width, token_width, gru))
    elif attention.coverage != "none":
        clues.append(Coverage(key_width, attention.max_fertility if attention.coverage == "fertility" else None))
    return clues


def make_losses(
    config: ModelConfig, vocabulary: int, memory_width: int, decoder: Decoder
) -> dict[str, tuple[float, AttentionLoss]]:
    """The losses over attention that the config weighs, with their weights; the vocabulary is the target's."""
    weights, guided, made = config.penalties, config.guided, dict[str, tuple[float, AttentionLoss]]()
    if weights.repeated_looks:
        made["repeated_looks"] = weights.repeated_looks, RepeatedLooks()
    if weights.one_look_each:
        made["one_look_each"] = weights.one_look_each, OneLookEach()
    if weights.certainty:
        made["certainty"] = weights.certainty, Certainty()
    if weights.fertility:
        made["fertility"] = weights.fertility, GlobalFertility(memory_width)
    if weights.coverage_left:
        (clue,) = (part for part in decoder.modules() if isinstance(part, EmbeddedCoverage))
        made["coverage_left"] = weights.coverage_left, CoverageLeft(clue)
    if guided.weight:
        made["guided"] = guided.weight, GuidedAttention(guided.loss, guided.reading == "consumes")
    if config.attention.choice == "sampled":
        made["reinforce"] = config.attention.sample_reward, Reinforce(-math.log(vocabulary))
    return made


def make_score(config: ModelConfig, query_width: int, key_width: int) -> Score:
    """The score function the config names, for queries and keys of these widths."""
    attention, name = config.attention, config.attention.score
    row = SCORES[name]
    if row.one_width and query_width != key_width:
        raise SightlineError(
            f"model.attention.score={name} needs queries and keys of one width, but the decoder's are {query_width} "
            f"and the encoder's {key_width} wide: set model.decoder.width={key_width}, or choose bilinear or additive"
        )
    if "kernel" in row.given and attention.kernel % 2 == 0:
        raise SightlineError(
            f"model.attention.kernel={attention.kernel}: choose an odd number, so that it has a middle"
        )
    given = {
        "query_width": query_width,
        "key_width": key_width,
        "width": attention.width or query_width,
        "kernel": attention.kernel,
        "max_source": attention.max_source,
    }
    module, _, kind = row.part.rpartition(".")
    part: type[Score] = getattr(import_module(f"sightline.attention.{module}"), kind)
    return part(*(given[argument] for argument in row.given))


def read_width(config: ModelConfig, encoder: Encoder) -> int:
    """How wide what a selective read adds to each input of the decoder is: 0 without one."""
    return encoder.width if config.copying.kind == "copynet" and config.copying.selective_read else 0


def make_output(config: ModelConfig, sizes: Sizes, width: int, encoder: Encoder, target: Embedding) -> OutputLayer:
    """The output layer for features of this width: of the vocabulary alone, or one that sums, copies or looks up."""
    copying, lexicon = config.copying, config.lexicon
    vocabulary = make_vocabulary(config, width, target)
    if config.attention.choice in SUMMED:
        return MarginalOutput(vocabulary)
    if lexicon.mode != "none":
        if sizes.lexicon is None:
            raise SightlineError("model.lexicon.mode needs a lexicon: name its file in model.lexicon.file")
        return LexiconOutput(vocabulary, LexiconView(sizes.lexicon, sizes.source), lexicon.mode, lexicon.epsilon)
    if copying.kind == "none":
        return vocabulary
    reader = SelectiveRead() if read_width(config, encoder) else None
    practice = Practice(sizes, copying.practice) if sizes.open_words and copying.practice else None
    view = make_copying(config, sizes, width, encoder, target)
    return CopyOutput(vocabulary, view, reader, practice, copying.unknown)


def make_copying(config: ModelConfig, sizes: Sizes, width: int, encoder: Encoder, target: Embedding) -> CopyView:
    """What the kind of copying that the config names looks at."""
    copying, copyable = config.copying, Copyable(sizes)
    if copying.kind == "pointer_generator":
        return AttentionPointer(copyable, width, encoder.width, target.width)
    if copying.kind == "copynet":
        return CopyScores(copyable, width, encoder.width)
    if copying.kernel % 2 == 0:
        raise SightlineError(f"model.copying.kernel={copying.kernel}: choose an odd number, so that it has a middle")
    return CopyHead(copyable, width, encoder.width, copying.channels, copying.kernel)


def make_vocabulary(config: ModelConfig, width: int, target: Embedding) -> Output:
    """The output layer of the vocabulary alone, its matrix the target embedding's where the config ties them."""
    if config.tie == "none":
        return Output(width, target.weight.size(0))
    if width != target.width:
        raise SightlineError(
            f"model.tie={config.tie} shares the embedding ({target.width} wide) with the output layer ({width} wide): "
            f"set model.embedding={width} or model.tie=none"
        )
    return Output(width, target.weight.size(0), target.weight, target.padding)
