"""Attention to what hashes alike (Reformer: Kitaev, Kaiser & Levskaya 2020).

One vector is a position's query and, at length 1, its key. Vectors that point the same way probably fall into the same
bucket, so each round of hashing sorts the positions by (bucket, position), cuts the row into chunks, and lets each
position attend to its own chunk and the one before. Several rounds find what one has missed.
Shapes: B sentences, R rows, H heads, n rounds, T and S positions, L = T = S, P = L filled up to whole chunks, C chunks
of m positions, w = m or 2m positions that a chunk sees, d width, d_k width of a head, b buckets.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from sightline.attention.core import attend, attend_in_part, attention_weights
from sightline.attention.multihead import Heads
from sightline.products import linear
from sightline.randomness import current_generator

# What a position's score for itself is lowered by: as a last resort it is still there.
LAST_RESORT = -1e5
# More buckets than these are pairs of two hashes: b / 2 products a vector would soon cost more than attending.
MOST_AT_ONCE = 64
# The bucket of padding, behind all others.
BEHIND = 2**30


class Settings(NamedTuple):
    """`rounds` of hashing, positions of a `chunk`, `buckets` (None: as a sentence's length needs, see `buckets_for`).

    With `same_bucket` a position sees of its chunks only what is in its own bucket.
    """

    rounds: int = 4
    chunk: int = 64
    buckets: int | None = None
    same_bucket: bool = True


def buckets_for(lengths: Tensor, chunk: int) -> Tensor:
    """`(B,)` lengths to numbers of buckets: 1 for what fits in a chunk, else the power of two from 2L/m on."""
    wanted = 2 ** (2 * lengths / chunk).clamp(min=1).log2().ceil().long()
    return wanted.where(lengths > chunk, 1)


def hashes(vectors: Tensor, buckets: int, rounds: int, seed: int) -> Tensor:
    """Buckets of vectors `(B, H, L, d_k)` in each round, `(B, H, n, L)`: the largest entry of `[x R; -x R]`.

    R is random, and always the same for a seed and a number of buckets, a power of two.
    """
    batch, heads, length, width = vectors.shape
    generator = torch.Generator().manual_seed(seed)
    found = torch.zeros(batch, heads, rounds, length, dtype=torch.long, device=vectors.device)
    for size in factors(buckets):
        rotations = torch.randn(heads, rounds, width, size // 2, generator=generator).to(vectors)
        turned = vectors.detach()[:, :, None] @ rotations  # (B, H, n, L, b/2)
        found = found * size + torch.cat([turned, -turned], -1).argmax(-1)
    return found


def factors(buckets: int) -> list[int]:
    """The hashes that so many buckets, a power of two, are made of: none, one or two."""
    if buckets == 1:
        return []
    if buckets <= MOST_AT_ONCE:
        return [buckets]
    power = buckets.bit_length() - 1
    return [2 ** (power - power // 2), 2 ** (power // 2)]


class Sorted(NamedTuple):
    """One sorting a round, `(B, H, n, L)` each.

    `order` tells the position at each place; `places` the place of each position, `chunks` its chunk, `buckets` its
    bucket.
    """

    order: Tensor
    places: Tensor
    chunks: Tensor
    buckets: Tensor


def sort(buckets: Tensor, chunk: int) -> Sorted:
    """Positions by (bucket, position): `buckets` are `(B, H, n, L)`."""
    length = buckets.size(-1)
    order = (buckets * length + torch.arange(length, device=buckets.device)).argsort(-1)
    places = order.argsort(-1)
    return Sorted(order, places, places // chunk, buckets)


def seen_together(asking: Sorted, asked: Sorted, same_bucket: bool) -> Tensor:
    """In which rounds which positions T see which S, by chunks and buckets alone: `(…, n, T, S)`."""
    apart = asking.chunks[..., :, None] - asked.chunks[..., None, :]
    seen = (apart == 0) | (apart == 1)
    if same_bucket:
        seen = seen & (asking.buckets[..., :, None] == asked.buckets[..., None, :])
    return seen


def visible(
    order: Sorted, same_bucket: bool, mask: Tensor | None = None, causal: bool = False, last: int | None = None
) -> Tensor:
    """What hashed attention lets each position see, `(B, H, T, S)`: what it is, written out.

    `mask` `(B, 1, 1, S)` is that of padding; `last` asks for the rows of so many of the last positions.
    """
    length = order.places.size(-1)
    first = 0 if last is None else length - last
    asking = Sorted(*(part[..., first:] for part in order))
    position = torch.arange(length, device=order.places.device)
    others = position[first:, None] != position
    if causal:
        others = others & (position <= position[first:, None])
    if mask is not None:
        others = others & mask
    seen = seen_together(asking, order, same_bucket).any(-3) & others
    itself = position[first:, None] == position
    last_resort = ~seen.any(-1, keepdim=True) & (itself if mask is None else itself & mask)
    return seen | last_resort


def attend_hashed(
    vectors: Tensor,
    values: Tensor,
    order: Sorted,
    chunk: int,
    same_bucket: bool,
    mask: Tensor | None = None,
    causal: bool = False,
    drop: float = 0.0,
) -> Tensor:
    """Vectors and values `(B, H, L, d_k)` to `(B, H, L, d_k)`: what attention under `visible` gives, chunk by chunk.

    The work grows with L · m · n, not with L². L must be a multiple of the chunk m. `mask` `(B, 1, 1, L)`.
    """

    def taken(given: Tensor) -> Tensor:
        """`(B, H, 1 or n, L, x)` in each round's order, in chunks: `(B, H, n, C, m, x)`."""
        index = order.order[..., None].expand(*order.order.shape, given.size(-1))
        return torch.unflatten(given.expand(*index.shape).gather(-2, index), -2, (-1, chunk))

    position = torch.arange(vectors.size(-2), device=vectors.device)
    real = torch.ones_like(position, dtype=torch.bool).expand(vectors.size(0), 1, 1, -1) if mask is None else mask
    asking = taken(position.view(1, 1, 1, -1, 1))
    asked = window(asking).mT  # (B, H, n, C, 1, w)
    allowed = window(taken(real.mT[:, :, None])).mT
    if causal:
        allowed = allowed & (asked <= asking)
    if same_bucket:
        buckets = taken(order.buckets[..., None])
        allowed = allowed & (buckets == window(buckets).mT)
    bias = torch.where(asked == asking, LAST_RESORT, 0.0).to(torch.promote_types(vectors.dtype, torch.float32))
    if order.order.size(2) > 1:
        bias = bias - _times_seen(order, taken, same_bucket).to(bias).log()
    keys, mixed = (window(taken(part[:, :, None])) for part in (unit(vectors), values))
    contexts, masses = attend_in_part(taken(vectors[:, :, None]), keys, mixed, allowed, bias, drop)
    back = order.places[..., None]
    masses = masses.flatten(3, 4).gather(-2, back)
    contexts = contexts.flatten(3, 4).gather(-2, back.expand(*back.shape[:-1], contexts.size(-1)))
    return (masses.softmax(2) * contexts).sum(2)


def unit(vectors: Tensor) -> Tensor:
    """Keys: vectors at length 1. Else a vector would look at itself, and at long ones, whatever they say."""
    return F.normalize(vectors, dim=-1)


def window(chunks: Tensor) -> Tensor:
    """`(…, C, m, x)` to what each chunk sees, `(…, C, 2m, x)`: the one before (zeros before the first) and its own."""
    if chunks.size(-3) == 1:
        return chunks
    return torch.cat([F.pad(chunks[..., :-1, :, :], (0, 0, 0, 0, 1, 0)), chunks], -2)


def _times_seen(order: Sorted, taken: Callable[[Tensor], Tensor], same_bucket: bool) -> Tensor:
    """In how many rounds two positions see each other, `(B, H, n, C, m, w)`, at least 1: each may count once in all."""
    chunks, buckets = (taken(part.mT[:, :, None]) for part in (order.chunks, order.buckets))  # (B, H, n, C, m, n)
    near, alike = window(chunks).mT, window(buckets).mT  # (B, H, n, C, n, w)
    times = torch.zeros((), dtype=torch.long, device=chunks.device)
    for number in range(order.order.size(2)):
        apart = chunks[..., number, None] - near[..., number, None, :]
        seen = (apart == 0) | (apart == 1)
        if same_bucket:
            seen = seen & (buckets[..., number, None] == alike[..., number, None, :])
        times = times + seen
    return times.clamp(min=1)


class LshAttention(Heads):
    """Self-attention of many heads, each hashing for itself; causal or not.

    While it learns, each pass draws new hashes, by a seed from the generator that dropout draws from. Otherwise they
    are those of its own `seed`, the same every time. Padding is sorted behind all else, and the number of buckets goes
    by a sentence's own length, so that no sentence depends on its neighbours.
    """

    never_compiled = "attention that hashes (lsh)"

    def __init__(
        self,
        width: int,
        heads: int,
        settings: Settings,
        dropout: float = 0.0,
        sees: Tensor | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(width, heads, dropout, sees, parts=2)
        self.settings, self.seed = settings, seed

    def project(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """States `(B, T, d)` to vectors and values `(B, H, T, d_k)`."""
        vectors, values = linear(states, self.projections(), self.bias).chunk(2, -1)
        return self.split(vectors), self.split(values)

    def buckets(self, vectors: Tensor, mask: Tensor | None) -> Tensor:
        """Those of vectors `(B, H, L, d_k)` in each round, `(B, H, n, L)`; `mask` `(B, 1, 1, L)`."""
        rounds, chunk, count, _ = self.settings
        seed = self.seed
        if self.training:
            seed = int(torch.randint(2**62, (1,), generator=current_generator()))
        if count is not None:
            found = hashes(vectors, count, rounds, seed)
        else:
            lengths = torch.tensor(vectors.size(2)) if mask is None else mask.sum(-1, keepdim=True)  # (B, 1, 1, 1)
            counts = buckets_for(lengths.to(vectors.device), chunk)
            found = torch.zeros((), dtype=torch.long, device=vectors.device)
            for size in torch.unique(counts).tolist():
                found = hashes(vectors, size, rounds, seed).where(counts == size, found)
        return found if mask is None else found.where(mask, BEHIND)

    def forward(self, states: Tensor, mask: Tensor | None = None, causal: bool = False) -> Tensor:
        """States `(B, L, d)` to `(B, L, d)`; `mask` is that of padding, `(B, 1, 1, L)`."""
        if causal and self.settings.buckets is None:
            raise ValueError("a causal pass does not know how long its text becomes: it needs a number of buckets")
        vectors, values = self.project(states)
        buckets = self.buckets(vectors, mask)
        length, same = states.size(1), self.settings.same_bucket
        chunk = min(self.settings.chunk, length)
        if self.tap is not None:
            seen = visible(sort(buckets, chunk), same, mask, causal)
            self.tap.record(attention_weights(vectors, unit(vectors), seen))
        if missing := -length % chunk:
            vectors, values = (F.pad(part, (0, 0, 0, missing)) for part in (vectors, values))
            buckets = F.pad(buckets, (0, missing), value=BEHIND)
            mask = buckets.new_ones(states.size(0), 1, 1, length, dtype=torch.bool) if mask is None else mask
            mask = F.pad(mask, (0, missing))
        drop = self.dropout if self.training else 0.0
        heads = attend_hashed(vectors, values, sort(buckets, chunk), chunk, same, mask, causal, drop)
        return self.join(heads[:, :, :length])

    def begin(self, batch: int) -> dict[str, Tensor]:
        """No vectors and values `(B, H, 0, d_k)`, and no buckets of theirs `(B, H, n, 0)`."""
        empty = self.weight.new_zeros(batch, self.heads, 0, self.width // self.heads)
        buckets = empty.new_zeros(batch, self.heads, self.settings.rounds, 0, dtype=torch.long)
        return {"vectors": empty, "values": empty, "buckets": buckets}

    def advance(self, states: Tensor, past: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """One more token `(R, 1, d)`, with what a pass over the text so far would let it see."""
        vectors, values = self.project(states)
        new = {"vectors": vectors, "values": values, "buckets": self.buckets(vectors, None)}
        cache = {name: torch.cat([past[name], part], -1 if name == "buckets" else 2) for name, part in new.items()}
        order = sort(cache["buckets"], self.settings.chunk)
        seen, keys = visible(order, self.settings.same_bucket, causal=True, last=1), unit(cache["vectors"])
        if self.tap is not None:
            self.tap.record(attention_weights(vectors, keys, seen))
        return self.join(attend(vectors, keys, cache["values"], seen)), cache
