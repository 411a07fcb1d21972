"""Decoders: from the memory to the target, token by token."""

from sightline.decoders.bahdanau import BahdanauDecoder, Readout
from sightline.decoders.base import Bridge, Decoded, Decoder
from sightline.decoders.cells import CellStack
from sightline.decoders.fixed import FixedContextDecoder
from sightline.decoders.latent import LatentDecoder
from sightline.decoders.luong import LuongDecoder
from sightline.decoders.recurrent import RecurrentDecoder
from sightline.decoders.transformer import TransformerDecoder, TransformerDecoderLayer

__all__ = [
    "BahdanauDecoder",
    "Bridge",
    "CellStack",
    "Decoded",
    "Decoder",
    "FixedContextDecoder",
    "LatentDecoder",
    "LuongDecoder",
    "Readout",
    "RecurrentDecoder",
    "TransformerDecoder",
    "TransformerDecoderLayer",
]
