"""Which attentions fit where in a Transformer's layers."""

from sightline.attention.joined import JoinedCross, PlainCross
from sightline.attention.linear import LinearAttention
from sightline.attention.lsh import LshAttention
from sightline.attention.multihead import MultiHeadAttention

SelfAttention = MultiHeadAttention | LshAttention | LinearAttention
# Hashing needs queries that are keys too, which no memory has.
CrossAttention = PlainCross | JoinedCross
