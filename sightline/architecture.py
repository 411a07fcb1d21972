"""The configuration's sections about the model. `sightline.config` puts all sections together."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from sightline.efficient import CrossAttention, LinearConfig, LshConfig, SelfAttention
from sightline.sections import Section

Blocks = Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]


class EncoderConfig(Section):
    """From source tokens to the memory that the decoder attends to."""

    kind: Literal["lstm", "gru", "rnn", "convolution", "positions", "transformer"] = Field(
        "transformer",
        description="recurrent (lstm, gru, rnn), convolution, positions (no context), or transformer",
    )
    width: int | None = Field(None, ge=2, description="width of a state (of one direction, when recurrent)")
    layers: int | None = Field(None, ge=1, description="number of layers")
    bidirectional: bool = Field(True, description="recurrent: read in both directions")
    reverse: bool = Field(False, description="recurrent: read the source backwards (Sutskever et al. 2014)")
    kernel: int = Field(3, ge=1, description="convolution: positions one filter sees (odd)")
    heads: int | None = Field(None, ge=1, description="transformer: attention heads")
    feedforward: int | None = Field(None, ge=1, description="transformer: width inside the feed-forward layer")
    attention: SelfAttention = Field("full", description="transformer: full, lsh or linear; for long sources")


class AttentionConfig(Section):
    """How a recurrent decoder looks at the memory, and what the Transformer's heads (all scaled dot) see."""

    score: Literal["dot", "scaled_dot", "bilinear", "additive", "cosine", "location"] = Field(
        "additive",
        description="how well a query and a key match; additive is Luong's 'concat', bilinear his 'general'",
    )
    span: Literal["global", "local-m", "local-p"] = Field(
        "global",
        description="all positions, a window that moves on step by step, or a window the model places",
    )
    window: int = Field(10, ge=1, description="local spans: positions on each side of the centre (D)")
    width: int | None = Field(None, ge=1, description="additive: hidden units; null takes the decoder's width")
    max_source: int = Field(250, ge=1, description="location score: longest source it can address")
    position_bias: bool = Field(False, description="the score knows how far along source and target are")
    markov_bias: int | None = Field(
        None, ge=0, description="the score knows the last step's weights, so many positions on each side; null: no"
    )
    fertility_bias: int | None = Field(
        None, ge=0, description="the score knows the sum of all weights so far, positions on each side; null: no"
    )
    coverage: Literal["none", "sum", "fertility", "neural"] = Field(
        "none",
        description="the score knows what was covered: sum of weights, over a learned fertility, or by a GRU",
    )
    max_fertility: float = Field(2.0, gt=0, description="coverage=fertility: most looks that a word may be due")
    coverage_width: int = Field(10, ge=1, description="coverage=neural: units at each position")
    blocks: int = Field(1, ge=1, description="transformer: blocks of features of which a head sees only some; 1: all")
    head_blocks: Annotated[list[Blocks], Field(min_length=1)] | None = Field(
        None, description="transformer: each head's blocks, from 0, in turns, as in [[0], [1], [0, 1]]; null: one each"
    )


class PenaltiesConfig(Section):
    """Weights of losses over attention beside the words' own; 0 leaves one out."""

    repeated_looks: float = Field(0.0, ge=0, description="looking again at what was looked at (See et al. 2017: 1)")
    one_look_each: float = Field(0.0, ge=0, description="source words that do not get about one look in all")
    fertility: float = Field(0.0, ge=0, description="looks other than the learned fertility of a word lets expect")
    blocks: int = Field(1, ge=1, description="transformer: blocks of features of which a head sees only some; 1: all")
    head_blocks: Annotated[list[Blocks], Field(min_length=1)] | None = Field(
        None, description="transformer: each head's blocks, from 0, in turns, as in [[0], [1], [0, 1]]; null: one each"
    )


class DecoderConfig(Section):
    """From the memory to the target, token by token."""

    cell: Literal["lstm", "gru", "rnn"] = Field("lstm", description="recurrent: kind of cell")
    width: int | None = Field(None, ge=2, description="width of a state")
    layers: int | None = Field(None, ge=1, description="number of layers")
    context: Literal["last", "mean", "sum", "concatenation"] = Field(
        "last", description="seq2seq: the fixed vector made of the encoder's states"
    )
    max_source: int = Field(50, ge=1, description="seq2seq with concatenation: longest source, longer ones are refused")
    readout_state: Literal["previous", "updated"] = Field(
        "previous", description="bahdanau: the state the output layer reads; the paper's is the one before the update"
    )
    input_feeding: bool = Field(True, description="luong: the attentional vector enters the next step")
    heads: int | None = Field(None, ge=1, description="transformer: attention heads")
    feedforward: int | None = Field(None, ge=1, description="transformer: width inside the feed-forward layer")
    attention: SelfAttention = Field("full", description="transformer: to what was written; full, lsh or linear")
    cross_attention: CrossAttention = Field("full", description="transformer: to the memory; full or linear")


class ModelConfig(Section):
    """The recipe and its parts."""

    recipe: str = Field("transformer", description="seq2seq, bahdanau, luong or transformer")
    embedding: int | None = Field(None, ge=2, description="width of a token's vector (transformer: its width)")
    tie: Literal["none", "output", "all"] = Field(
        "all",
        description="share weights: output = target embedding; all = source embedding too (joint vocabulary)",
    )
    dropout: float = Field(0.1, ge=0, lt=1, description="share of activations dropped while training")
    activation_dropout: float = Field(
        0.0, ge=0, lt=1, description="transformer: share dropped inside the feed-forward layer too (the paper: none)"
    )
    attention_dropout: float = Field(0.0, ge=0, lt=1, description="share of attention weights dropped while training")
    positions: Literal["sinusoidal", "learned", "none"] = Field("sinusoidal", description="how a position is told")
    max_positions: int = Field(1024, ge=1, description="learned positions: the longest sequence")
    norm: Literal["layer", "rms"] = Field("layer", description="transformer: kind of normalisation")
    norm_position: Literal["pre", "post"] = Field(
        "pre", description="transformer: normalise before or after a sublayer"
    )
    activation: Literal["relu", "gelu", "gelu_tanh", "silu", "geglu", "swiglu"] = Field(
        "relu", description="transformer: feed-forward's"
    )
    feedforward_chunk: int | None = Field(None, ge=1, description="transformer: positions at once in feed-forward")
    reversible: bool = Field(False, description="transformer: compute activations again instead of keeping them")
    encoder: EncoderConfig = Field(default_factory=EncoderConfig, description=EncoderConfig.__doc__)
    attention: AttentionConfig = Field(default_factory=AttentionConfig, description=AttentionConfig.__doc__)
    decoder: DecoderConfig = Field(default_factory=DecoderConfig, description=DecoderConfig.__doc__)
    lsh: LshConfig = Field(default_factory=LshConfig, description=LshConfig.__doc__)
    linear: LinearConfig = Field(default_factory=LinearConfig, description=LinearConfig.__doc__)
    penalties: PenaltiesConfig = Field(default_factory=PenaltiesConfig, description=PenaltiesConfig.__doc__)
