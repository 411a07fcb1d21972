"""The configuration's sections about the model. `sightline.config` puts all sections together."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from sightline.document_settings import DOCUMENT_KINDS, DocumentsConfig
from sightline.efficient import CrossAttention, LinearConfig, LshConfig, SelfAttention
from sightline.score_choices import SCORES
from sightline.sections import Section

Blocks = Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]
# The rows' names: pydantic reads them as they are now, a type checker cannot.
if TYPE_CHECKING:
    Score = str
else:
    Score = Literal[tuple(SCORES)]
Choice = Literal["soft", "sampled", "online_monotonic", "exact", "exact_monotonic", "exact_jumps", "segments"]


# Encoders that need not be told where a token stands.
KNOW_ORDER = ("lstm", "gru", "rnn", *DOCUMENT_KINDS)


class EncoderConfig(Section):
    """From source tokens to the memory that the decoder attends to."""

    kind: Literal["lstm", "gru", "rnn", "convolution", "positions", "transformer", "hierarchical", "hops"] = Field(
        "transformer",
        description="recurrent (lstm, gru, rnn), convolution, positions (no context), or transformer; for documents: "
        "hierarchical (GRUs over words, then sentences) or hops (a story, asked several times by its last sentence)",
    )
    width: int | None = Field(None, ge=2, description="width of a state (of one direction, when recurrent)")
    layers: int | None = Field(None, ge=1, description="number of layers")
    bidirectional: bool = Field(True, description="recurrent, hierarchical: read in both directions")
    reverse: bool = Field(False, description="recurrent, hierarchical: read backwards (Sutskever et al. 2014)")
    kernel: int = Field(3, ge=1, description="convolution: positions one filter sees (odd)")
    heads: int | None = Field(None, ge=1, description="transformer: attention heads")
    feedforward: int | None = Field(None, ge=1, description="transformer: width inside the feed-forward layer")
    attention: SelfAttention = Field("full", description="transformer: full, lsh or linear; for long sources")


class SourcesConfig(Section):
    """Several sources of one target: how they are read, and how what they say is put together."""

    count: int | None = Field(None, ge=1, description="how many; null: as many files as data.source names, else 1")
    encoder: Literal["separate", "shared"] = Field(
        "separate", description="an encoder for each source, or one for all, told which source it reads"
    )
    start: Literal["flat", "child_sum"] = Field(
        "flat", description="recurrent: the decoder's first state, tanh(W [h1; h2]) and c1 + c2, or a child-sum LSTM's"
    )
    context: Literal["flat", "concatenated", "hierarchical"] = Field(
        "flat",
        description="one attention over all positions; one for each source, contexts side by side; or a second "
        "attention that weighs them",
    )


class AttentionConfig(Section):
    """How a recurrent decoder looks at the memory, and what the Transformer's heads (all scaled dot) see."""

    score: Score = Field(
        "additive",
        description="how well a query and a key match; additive is Luong's 'concat', bilinear his 'general'",
    )
    choice: Choice = Field(
        "soft",
        description="soft: the mean of all positions; sampled, online_monotonic: one of them; exact, exact_monotonic, "
        "exact_jumps, segments: one, summed over all ways to choose",
    )
    max_jump: int = Field(5, ge=1, description="exact_jumps: from this length on all jumps are alike but for the score")
    stop_bias: float = Field(
        -1.0, description="segments, online_monotonic: at first, what is added to the score of stopping at a position"
    )
    sample_soft: float = Field(
        0.5, ge=0, le=1, description="sampled: share of looks that take the mean of all positions while learning"
    )
    sample_reward: float = Field(1.0, gt=0, description="sampled: weight of the loss that teaches where to look")
    span: Literal["global", "local-m", "local-p"] = Field(
        "global",
        description="all positions, a window that moves on step by step, or a window the model places",
    )
    window: int = Field(10, ge=1, description="local spans: positions on each side of the centre (D)")
    width: int | None = Field(
        None, ge=1, description="additive, convolution, exact_jumps: hidden units; null takes the decoder's width"
    )
    max_source: int = Field(250, ge=1, description="location score: longest source it can address")
    kernel: int = Field(3, ge=1, description="convolution score: positions that one filter sees (odd)")
    position_bias: bool = Field(False, description="the score knows how far along source and target are")
    markov_bias: int | None = Field(
        None, ge=0, description="the score knows the last step's weights, so many positions on each side; null: no"
    )
    fertility_bias: int | None = Field(
        None, ge=0, description="the score knows the sum of all weights so far, positions on each side; null: no"
    )
    coverage: Literal["none", "sum", "fertility", "neural", "embedded"] = Field(
        "none",
        description="the score knows what was covered: sum of weights, over a learned fertility, by a GRU (neural), or "
        "by a vector of each word that what is written uses up (embedded)",
    )
    max_fertility: float = Field(2.0, gt=0, description="coverage=fertility: most looks that a word may be due")
    coverage_width: int = Field(10, ge=1, description="coverage=neural, embedded: units at each position")
    coverage_update: Literal["gru", "subtract"] = Field(
        "gru", description="coverage=embedded: a target word moves the vectors by a GRU, or is subtracted from them"
    )
    blocks: int = Field(1, ge=1, description="transformer: blocks of features of which a head sees only some; 1: all")
    head_blocks: Annotated[list[Blocks], Field(min_length=1)] | None = Field(
        None, description="transformer: each head's blocks, from 0, in turns, as in [[0], [1], [0, 1]]; null: one each"
    )


class PenaltiesConfig(Section):
    """Weights of losses over attention beside the words' own; 0 leaves one out."""

    repeated_looks: float = Field(0.0, ge=0, description="looking again at what was looked at (See et al. 2017: 1)")
    one_look_each: float = Field(0.0, ge=0, description="source words that do not get about one look in all")
    certainty: float = Field(0.0, ge=0, description="looking at few positions: a bonus for entropy (sampled: 0.01)")
    coverage_left: float = Field(
        0.0, ge=0, description="coverage=embedded: what the last target leaves of the vectors (squared length)"
    )
    fertility: float = Field(0.0, ge=0, description="looks other than the learned fertility of a word lets expect")


class CopyingConfig(Section):
    """Writing words of the source as they are, beside those of the vocabulary."""

    kind: Literal["none", "pointer_generator", "copynet", "copy_head"] = Field(
        "none",
        description="by attention's weights and a gate, by scores in one softmax with the words', or by its own head",
    )
    selective_read: bool = Field(
        True, description="copynet, recurrent decoders: the next step reads what stands where the last word came from"
    )
    channels: int = Field(32, ge=1, description="copy_head: features of a source position")
    kernel: int = Field(3, ge=1, description="copy_head: positions one filter sees (odd)")
    layer: int | None = Field(
        None, ge=0, description="pointer_generator, transformer: the layer whose head points, from 0; null: the last"
    )
    head: int = Field(0, ge=0, description="pointer_generator, transformer: the head that points, from 0")
    practice: float = Field(
        0.2,
        ge=0,
        lt=1,
        description="words, training: chance that a word of both sides is hidden from the vocabulary, to be copied",
    )
    unknown: bool = Field(
        False,
        description="words: <unk> is learnt and written too, where the right word is neither known nor in the source",
    )


class LexiconConfig(Section):
    """A lexicon's knowledge in the output, looked up through attention."""

    mode: Literal["none", "bias", "linear"] = Field(
        "none", description="add to the words' logits, or mix with their probabilities by a learned share"
    )
    file: Path | None = Field(None, description="source<TAB>target<TAB>probability; `sightline lexicon` makes one")
    epsilon: float = Field(0.001, gt=0, description="bias: added to the lexicon's probability; smaller is stronger")
    layer: int | None = Field(
        None, ge=0, description="transformer: the layer whose head looks words up, from 0; null: the last"
    )
    head: int = Field(0, ge=0, description="transformer: the head that looks words up, from 0")


class GuidedConfig(Section):
    """Attention that is taught by word links, those of data.alignments or data.align_with."""

    weight: float | None = Field(
        None, ge=0, description="of this loss beside the words' own; null: 0.5 where links are given; 0 leaves it out"
    )
    loss: Literal["cross_entropy", "squared_error", "product"] = Field(
        "cross_entropy",
        description="how weights are compared with links; product asks only to see some linked word",
    )
    reading: Literal["predicts", "consumes"] = Field(
        "predicts", description="the row that is taught a token's links: the one that predicts it, or that reads it"
    )
    layer: int | None = Field(
        None, ge=0, description="transformer: decoder layer of the head that is taught, from 0; null: the last but one"
    )
    head: int = Field(0, ge=0, description="transformer: the head that is taught, from 0")


class DecoderConfig(Section):
    """From the memory to the target, token by token."""

    kind: Literal["recurrent", "transformer"] = Field("recurrent", description="lm: recurrent or transformer")
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


class PointerConfig(Section):
    """Looking back at the text's own words, to write one of them again."""

    kind: Literal["none", "sentinel"] = Field(
        "none", description="lm: sentinel mixes the vocabulary with a pointer to recent words (Merity et al. 2017)"
    )
    window: int = Field(100, ge=1, description="sentinel: so many of the last tokens can be pointed at")


class ModelConfig(Section):
    """The recipe and its parts."""

    recipe: str = Field("transformer", description="seq2seq, bahdanau, luong, transformer or lm")
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
    sources: SourcesConfig = Field(default_factory=SourcesConfig, description=SourcesConfig.__doc__)
    attention: AttentionConfig = Field(default_factory=AttentionConfig, description=AttentionConfig.__doc__)
    decoder: DecoderConfig = Field(default_factory=DecoderConfig, description=DecoderConfig.__doc__)
    pointer: PointerConfig = Field(default_factory=PointerConfig, description=PointerConfig.__doc__)
    documents: DocumentsConfig = Field(default_factory=DocumentsConfig, description=DocumentsConfig.__doc__)
    lsh: LshConfig = Field(default_factory=LshConfig, description=LshConfig.__doc__)
    linear: LinearConfig = Field(default_factory=LinearConfig, description=LinearConfig.__doc__)
    penalties: PenaltiesConfig = Field(default_factory=PenaltiesConfig, description=PenaltiesConfig.__doc__)
    copying: CopyingConfig = Field(default_factory=CopyingConfig, description=CopyingConfig.__doc__)
    lexicon: LexiconConfig = Field(default_factory=LexiconConfig, description=LexiconConfig.__doc__)
    guided: GuidedConfig = Field(default_factory=GuidedConfig, description=GuidedConfig.__doc__)

    @property
    def copies(self) -> bool:
        """Whether source words can be copied."""
        return self.copying.kind != "none"

    @property
    def has_source(self) -> bool:
        """Whether the model reads a source; a language model has only the text itself."""
        return self.recipe != "lm"

    @property
    def source_count(self) -> int:
        """How many sources it reads."""
        return self.sources.count or 1

    @property
    def looks_apart(self) -> bool:
        """Whether it looks at each of several sources with an attention of its own."""
        return self.source_count > 1 and self.sources.context != "flat"

    @property
    def has_transformer(self) -> bool:
        """Whether any of its layers are a Transformer's."""
        return self.has_transformer_decoder or (self.has_source and self.encoder.kind == "transformer")

    @property
    def has_transformer_decoder(self) -> bool:
        """Whether the decoder is a Transformer's."""
        return self.recipe == "transformer" or (self.recipe == "lm" and self.decoder.kind == "transformer")
