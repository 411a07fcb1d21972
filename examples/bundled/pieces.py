"""A vocabulary whose numbers are spelled digit by digit, out of one that has pieces such as 19 and :30."""

from __future__ import annotations

from dataclasses import replace

from sightline.folder import Tokenizers
from sightline.tokenizers import META, SubwordTokenizer


def digits_apart(tokenizers: Tokenizers) -> Tokenizers:
    """The same entries under the same ids; those of a digit and more are never used again.

    So a model goes on with its weights where its first vocabulary had no `text.split_digits`.
    """
    from sentencepiece.sentencepiece_model_pb2 import ModelProto

    joint = tokenizers.source
    assert isinstance(joint, SubwordTokenizer)
    assert tokenizers.target is joint
    model = ModelProto.FromString(joint.content())
    kinds = ModelProto.SentencePiece
    for piece in model.pieces:
        letters = piece.piece.replace(META, "")
        if piece.type == kinds.NORMAL and len(letters) > 1 and any(character.isdigit() for character in letters):
            piece.type = kinds.UNUSED
    apart = SubwordTokenizer(model.SerializeToString(), joint._normalization, joint._lowercase)
    return replace(tokenizers, source=apart, target=apart)
