"""Attention to several sources: each has an attention of its own, and what they see is put together.

Recurrent decoders have `JoinedAttention`, Transformers `JoinedCross`. Both put contexts side by side ("concatenated",
Zoph & Knight 2016: `h̃ = tanh(W [h; c¹; c²])`) or let a second attention weigh the sources ("hierarchical", Libovický &
Helcl 2017). A source that is missing has no position to look at: it adds nothing and gets no weight.
Shapes: B sentences, K hypotheses a sentence, T queries, N sources, S_k positions of source k, S all of them, H heads,
d_q, d_k widths, d width of a Transformer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from sightline.attention.capture import Tapped
from sightline.attention.core import masked_softmax
from sightline.attention.linear import LinearAttention
from sightline.attention.masks import padding_mask
from sightline.attention.multihead import MultiHeadAttention
from sightline.attention.soft import MEMORY, Attended, Mix, Readable, SoftAttention
from sightline.stack import Stack

Named = dict[str, Tensor]
PlainCross = MultiHeadAttention | LinearAttention


def numbered(number: int, values: Mapping[str, Tensor], before: str = "") -> Named:
    """Tensors of one source under names of their own: its number goes after what they begin with."""
    return {f"{before}{number}.{name.removeprefix(before)}": value for name, value in values.items()}


def of_number(number: int, values: Mapping[str, Tensor], before: str = "") -> Named:
    """The way back."""
    start = f"{before}{number}."
    return {before + name.removeprefix(start): value for name, value in values.items() if name.startswith(start)}


class SourceWeights(nn.Module):
    """A second attention, over the contexts of the sources (Libovický & Helcl 2017).

    `e_k = vᵀ tanh(W q + U_k c_k)`, `β = softmax(e)`, `c = Σ_k β_k V_k c_k`.
    """

    def __init__(self, sources: int, query_width: int, width: int) -> None:
        super().__init__()
        self.query = nn.Linear(query_width, width)
        self.keys = Stack(nn.Linear(width, width, bias=False) for _ in range(sources))
        self.values = Stack(nn.Linear(width, width, bias=False) for _ in range(sources))
        self.score = nn.Linear(width, 1, bias=False)

    def forward(self, queries: Tensor, contexts: Sequence[Tensor], present: Tensor) -> tuple[Tensor, Tensor]:
        """Queries `(B, T, d_q)`, contexts `(B, T, d_k)` and which sources there are, `(B, N)`.

        To a context `(B, T, d_k)` and the weights of the sources `(B, T, N)`.
        """
        keys = torch.stack([key(context) for key, context in zip(self.keys, contexts, strict=True)], 2)
        scores = self.score(torch.tanh(self.query(queries)[:, :, None] + keys)).squeeze(-1)
        weights = masked_softmax(scores, present[:, None])
        values = torch.stack([value(context) for value, context in zip(self.values, contexts, strict=True)], 2)
        return (weights[..., None] * values).sum(2), weights


class JoinedAttention(Tapped):
    """An attention for each source, all asked by the same queries.

    Without `sources` the context is the sources' contexts side by side, N · d_k wide. Weights are over the positions of
    all sources, side by side: each source's sum to 1, or with `sources` to the source's own weight.
    """

    def __init__(self, parts: Sequence[SoftAttention], sources: SourceWeights | None = None) -> None:
        super().__init__()
        self.parts, self.sources = Stack(parts), sources

    @property
    def remembers(self) -> bool:
        """Whether a look depends on the ones before."""
        return any(part.remembers for part in self.parts)

    @property
    def token_width(self) -> int:
        """How wide what looks want of a token is: they want nothing, see `sightline.source_settings`."""
        return 0

    def of_tokens(self, embedded: Tensor) -> Tensor:
        """What looks want of the tokens that are read before them, `(…, e)` to `(…, 0)`."""
        return embedded[..., :0]

    def open(self, memory: Readable) -> tuple[Named, Named]:
        """What every step shares of a memory of several sources, and what is remembered before the first look."""
        shared: Named = {}
        begun: Named = {}
        for number, (part, source) in enumerate(zip(self.parts, memory.parts, strict=True)):
            prepared, remembered = part.open(source)
            shared |= numbered(number, prepared)
            begun |= numbered(number, remembered, MEMORY)
        return shared, begun

    def mixer(self, shared: Mapping[str, Tensor], repeated: Callable[[Tensor], Mix]) -> Mix:
        """Weights over all sources, `(B, T, S)`, to their contexts side by side, `(B, T, N · d_k)`."""
        mixes = [part.mixer(of_number(number, shared), repeated) for number, part in enumerate(self.parts)]
        widths = [shared[f"{number}.mask"].size(1) for number in range(len(self.parts))]

        def mix(weights: Tensor) -> Tensor:
            pieces = zip(mixes, torch.split(weights, widths, -1), strict=True)
            return torch.cat([one(piece) for one, piece in pieces], -1)

        return mix

    def forward(
        self,
        queries: Tensor,
        shared: Mapping[str, Tensor],
        positions: Tensor,
        mix: Mix | None = None,
        state: Mapping[str, Tensor] | None = None,
        tokens: Tensor | None = None,
    ) -> Attended:
        """Queries `(B, T, d_q)` at target positions `(T,)` look at what `open` made: see `SoftAttention.forward`."""
        looks = []
        for number, part in enumerate(self.parts):
            own = of_number(number, shared)
            carried = of_number(number, state or {}, MEMORY)
            # What a loop mixes all sources with, a part gets for its own weights.
            looks.append(part(queries, own, positions, None if mix is None else _unmixed, carried))
        contexts = [look.context for look in looks]
        if mix is not None:
            contexts = list(mix(torch.cat(contexts, -1)).chunk(len(looks), -1))
        kept: Named = {}
        for number, look in enumerate(looks):
            kept |= numbered(number, look.state, MEMORY)
        weights = [look.weights for look in looks]
        if self.sources is None:
            context = torch.cat(contexts, -1)
        else:
            present = torch.stack([shared[f"{number}.mask"].any(1) for number in range(len(looks))], 1)
            context, shares = self.sources(queries, contexts, present)
            weights = [one * share[..., None] for one, share in zip(weights, shares.unbind(-1), strict=True)]
        joined = torch.cat(weights, -1)
        if self.tap is not None:
            self.tap.record(joined[:, None])
        return Attended(context, joined, kept)


def _unmixed(weights: Tensor) -> Tensor:
    """The weights as they are: they are mixed with those of the other sources."""
    return weights


class JoinedCross(Tapped):
    """A Transformer's attention to several sources: heads of their own for each.

    Side by side, what the sources give is added up: each has an output matrix, and together these are one matrix over
    all contexts. With `sources`, an attention of the same queries over the sources' contexts, how much a source counts
    depends on what is asked (Libovický et al. 2018, "parallel" and "hierarchical").
    """

    def __init__(self, parts: Sequence[PlainCross], sources: MultiHeadAttention | None = None) -> None:
        super().__init__()
        self.parts, self.sources = Stack(parts), sources

    @property
    def outputs(self) -> list[nn.Linear]:
        """The matrices that it ends with."""
        return [part.output for part in self.parts] if self.sources is None else [self.sources.output]

    def forward(self, queries: Tensor, memory: Tensor, masks: Sequence[Tensor]) -> Tensor:
        """Queries `(B, T, d)` attend to a memory `(B, S, d)`, whose sources have the masks `(B, 1, 1, S_k)`."""
        pieces = torch.split(memory, [mask.size(-1) for mask in masks], 1)
        contexts = [part(queries, *one) for part, *one in zip(self.parts, pieces, masks, strict=True)]
        present = present_sources(masks)
        if self.tap is not None:
            seen = [_weights(part, queries, *one) for part, *one in zip(self.parts, pieces, masks, strict=True)]
            self.tap.record(self._weighted(queries, contexts, present, seen))
        return self._together(queries, contexts, present)

    def remember(self, memory: Tensor, masks: Sequence[Tensor]) -> Named:
        """What attention needs of a memory `(B, S, d)`, once a sentence; the masks are kept with it, `(B, S_k)`."""
        found: Named = {}
        pieces = torch.split(memory, [mask.size(-1) for mask in masks], 1)
        for number, (part, piece, mask) in enumerate(zip(self.parts, pieces, masks, strict=True)):
            found |= numbered(number, {**part.remember(piece, mask), "mask": mask[:, 0, 0]})
        return found

    def recall(self, states: Tensor, memory: Mapping[str, Tensor], mask: Tensor | None = None) -> Tensor:
        """Attention of `(B, K, d)` to what `remember` gave."""
        contexts, masks = self._recalled(states, memory)
        return self._together(states, contexts, present_sources(masks))

    def recall_weights(self, states: Tensor, memory: Mapping[str, Tensor], mask: Tensor | None = None) -> Tensor | None:
        """The weights `(B, H, K, S)` of `recall`, or None where there are none to be had."""
        contexts, masks = self._recalled(states, memory)
        seen = [
            part.recall_weights(states, of_number(number, memory), masks[number])
            for number, part in enumerate(self.parts)
        ]
        found = [one for one in seen if one is not None]
        return None if len(found) < len(seen) else self._weighted(states, contexts, present_sources(masks), found)

    def _recalled(self, states: Tensor, memory: Mapping[str, Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """Each source's context `(B, K, d)` and mask `(B, 1, 1, S_k)`."""
        masks = [padding_mask(memory[f"{number}.mask"]) for number in range(len(self.parts))]
        contexts = [
            part.recall(states, of_number(number, memory), masks[number]) for number, part in enumerate(self.parts)
        ]
        return contexts, masks

    def _together(self, queries: Tensor, contexts: Sequence[Tensor], present: Tensor) -> Tensor:
        """Contexts `(B, T, d)` and which sources there are, `(B, N)`, to one `(B, T, d)`."""
        if self.sources is None:
            # What an attention gives for nothing is its bias.
            there = present[:, :, None, None].to(queries.dtype).unbind(1)
            return sum((one * here for one, here in zip(contexts[1:], there[1:], strict=True)), contexts[0] * there[0])
        return self.sources(*_asked(queries, contexts, present)).view_as(queries)

    def _weighted(
        self, queries: Tensor, contexts: Sequence[Tensor], present: Tensor, weights: Sequence[Tensor]
    ) -> Tensor:
        """The sources' weights `(B, H, T, S_k)`, side by side; the weight of a source is the mean over its heads."""
        if self.sources is None:
            return torch.cat([*weights], -1)
        asked, answers, mask = _asked(queries, contexts, present)
        found = [self.sources.head_weights(head, asked, answers, mask) for head in range(self.sources.heads)]
        shares = torch.stack(found).mean(0).view(*queries.shape[:2], -1)  # (B, T, N)
        pieces = zip(weights, shares.unbind(-1), strict=True)
        return torch.cat([one * share[:, None, :, None] for one, share in pieces], -1)


def present_sources(masks: Sequence[Tensor]) -> Tensor:
    """Masks `(B, 1, 1, S_k)` to which sources there are, `(B, N)`."""
    return torch.stack([mask[:, 0, 0].any(-1) for mask in masks], 1)


def _asked(queries: Tensor, contexts: Sequence[Tensor], present: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries `(B T, 1, d)`, contexts `(B T, N, d)` and mask `(B T, 1, 1, N)`: each query has sources of its own."""
    answers = torch.stack([*contexts], 2).flatten(0, 1)
    mask = padding_mask(present.repeat_interleave(queries.size(1), 0))
    return queries.flatten(0, 1)[:, None], answers, mask


def _weights(part: PlainCross, queries: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
    """Where all heads look: `(B, T, d)` and `(B, S_k, d)` to `(B, H, T, S_k)`."""
    return torch.stack([part.head_weights(head, queries, memory, mask) for head in range(part.heads)], 1)
