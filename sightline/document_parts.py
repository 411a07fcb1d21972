"""The encoders of documents that a configuration names, built."""

from __future__ import annotations

from sightline.architecture import ModelConfig
from sightline.documents import HierarchicalEncoder, WordPooling
from sightline.encoders import Encoder, RecurrentEncoder
from sightline.errors import SightlineError
from sightline.hops import HopsEncoder
from sightline.text import UNK, Sizes


def make_document_encoder(config: ModelConfig, sizes: Sizes, inputs: int) -> Encoder:
    """The encoder of documents the config names, for embeddings `inputs` wide."""
    encoder, documents, dropout = config.encoder, config.documents, config.dropout
    if sizes.marker in (None, UNK):
        raise SightlineError(
            f"model.encoder.kind={encoder.kind} needs text.sentence_marker as one token of the source vocabulary: "
            "train a tokenizer with it"
        )
    assert sizes.marker is not None
    if encoder.kind == "hops":
        if encoder.width not in (None, inputs):
            raise SightlineError(f"model.encoder.width={encoder.width}: with hops it is model.embedding ({inputs})")
        return HopsEncoder(
            sizes.source, inputs, documents.hops, sizes.marker, documents.word_order, documents.max_age, dropout
        )
    if encoder.width is None or encoder.layers is None:
        raise SightlineError("the configuration leaves a size of the model open (null): sightline.sizes chooses them")
    ways = (encoder.width, encoder.layers, encoder.bidirectional, encoder.reverse, dropout)
    words = RecurrentEncoder("gru", inputs, *ways)
    sentences = RecurrentEncoder("gru", words.width, *ways)
    pooling = WordPooling(words.width, documents.pooling == "attention")
    return HierarchicalEncoder(words, sentences, pooling, sizes.marker, documents.memory == "words")
