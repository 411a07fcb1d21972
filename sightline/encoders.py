"""From embedded source tokens to the memory that a decoder reads.

Every encoder is padding-exact: a sentence gets the same states in a padded batch as alone.
Shapes: B sentences, S positions, e width of the input, n of one direction's state, d of a memory state, L layers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from sightline.attention.kinds import SelfAttention
from sightline.attention.masks import padding_mask
from sightline.batch import Final, Memory, Tokens
from sightline.layers import Dropout, Embedding, FeedForward, Residual, make_norm, start_small
from sightline.products import linear
from sightline.recurrence import scan
from sightline.reversible import Sublayer, pass_through
from sightline.stack import Stack


class Encoder(nn.Module, ABC):
    """Embedded tokens to a `Memory`; `width` is d, the width of its states."""

    width: int

    def read(self, embedding: Embedding, source: Tokens) -> Memory:
        """Tokens `(B, S)`, as the embedding knows them, to a memory that tells what it was made of."""
        return replace(self(embedding(source.ids), source.mask), source=source)

    @abstractmethod
    def forward(self, embedded: Tensor, mask: Tensor) -> Memory:
        """Embedded tokens `(B, S, e)` and their mask `(B, S)` to a memory of states `(B, S, d)`."""


def reverse(states: Tensor, mask: Tensor) -> Tensor:
    """Turns the real positions of `(B, S, e)` around; the padding stays where it is."""
    length = mask.sum(-1, keepdim=True)
    position = torch.arange(mask.size(1), device=mask.device)
    index = torch.where(mask, length - 1 - position, position)
    return states.gather(1, index[..., None].expand_as(states))


class RecurrentEncoder(Encoder):
    """Stacked RNN, LSTM or GRU, one way or both ways, over packed sequences.

    With `backwards` it reads the source from its end, as Sutskever et al. (2014) did; the states are put back in
    the order of the tokens.
    """

    KINDS = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}  # noqa: RUF012

    def __init__(
        self,
        kind: str,
        inputs: int,
        width: int,
        layers: int = 1,
        bidirectional: bool = False,
        backwards: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.kind, self.layers, self.directions, self.backwards = kind, layers, 1 + bidirectional, backwards
        self.width = width * self.directions
        between = dropout if layers > 1 else 0.0  # torch warns of dropout that has no layer to follow
        self.network = self.KINDS[kind](
            inputs, width, layers, batch_first=True, bidirectional=bidirectional, dropout=between
        )
        self.between = Dropout(between)
        self.dropout = Dropout(dropout)

    def forward(self, embedded: Tensor, mask: Tensor) -> Memory:
        if self.backwards:
            embedded = reverse(embedded, mask)
        run = self.walk if embedded.device.type == "cpu" else self.packed
        states, hidden, cell = run(embedded, mask)
        if self.backwards:
            # Read from the end, the second direction is the one that goes forward: it takes the first half.
            states = torch.cat(reverse(states, mask).chunk(self.directions, -1)[::-1], -1)
        final = Final(self.join(hidden), None if cell is None else self.join(cell), self.directions == 2)
        return Memory(self.dropout(states), mask, final)

    def push(self, embedded: Tensor, last: tuple[Tensor, Tensor] | Tensor | None) -> tuple[Memory, Any]:
        """A memory of what comes next, `(B, S, e)`, alone, and what a further one goes on from; None: from nothing.

        For an encoder that reads one way, in the order in which its source comes, where nothing is padding.
        """
        states, last = self.network(embedded, last)
        hidden, cell = last if isinstance(last, tuple) else (last, None)
        final = Final(self.join(hidden), None if cell is None else self.join(cell))
        mask = torch.ones(states.shape[:2], dtype=torch.bool, device=states.device)
        return Memory(self.dropout(states), mask, final), last

    def packed(self, embedded: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """torch's network: states `(B, S, d)`, last hidden states and cells `(L · directions, B, n)`."""
        lengths = mask.sum(-1).cpu()
        packed = pack_padded_sequence(embedded, lengths, batch_first=True, enforce_sorted=False)
        outputs, last = self.network(packed)
        states, _ = pad_packed_sequence(outputs, batch_first=True, total_length=mask.size(1))
        hidden, cell = last if isinstance(last, tuple) else (last, None)
        return states, hidden, cell

    def walk(self, embedded: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """The same with the network's own weights, layer by layer and direction by direction; faster on a CPU."""
        real = mask[..., None]
        rows, last = torch.arange(mask.size(0)), mask.sum(-1) - 1
        hiddens: list[Tensor] = []
        cells: list[Tensor] = []
        for layer in range(self.layers):
            embedded = self.between(embedded) if layer else embedded
            ways = []
            for suffix in ("", "_reverse")[: self.directions]:
                given = reverse(embedded, mask) if suffix else embedded
                outputs, memories = self.one_way(given.transpose(0, 1), f"_l{layer}{suffix}")
                hiddens.append(outputs[last, rows])
                if memories is not None:
                    cells.append(memories[last, rows])
                outputs = outputs.transpose(0, 1)
                ways.append(reverse(outputs, mask) if suffix else outputs)
            embedded = (torch.cat(ways, -1) if len(ways) > 1 else ways[0]).where(real, 0.0)
        return embedded, torch.stack(hiddens), torch.stack(cells) if cells else None

    def one_way(self, given: Tensor, name: str) -> tuple[Tensor, Tensor | None]:
        """One layer in one direction, `(S, B, e)` to hidden states and cells `(S, B, n)`."""
        parts = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        enter, weight, bias, bias_hidden = (getattr(self.network, part + name) for part in parts)
        if self.kind != "gru":
            bias = bias + bias_hidden
        zeros = given.new_zeros(given.size(1), weight.size(1))
        projected = linear(given, enter, bias)
        return scan(self.kind, projected, weight, bias_hidden, zeros, zeros if self.kind == "lstm" else None)

    def join(self, last: Tensor) -> Tensor:
        """torch's `(L · directions, B, n)` to `(B, L, d)`, the forward half first."""
        batch = last.size(1)
        apart = last.view(self.layers, self.directions, batch, -1)
        ordered = apart.flip(1) if self.backwards else apart
        return ordered.permute(2, 0, 1, 3).reshape(batch, self.layers, -1)


class ConvolutionalEncoder(Encoder):
    """Stacked convolutions with gates and residuals, no pooling (Gehring et al. 2017).

    A state sees `layers * (kernel - 1) / 2` neighbours on each side. The padding is set to zero before every layer:
    to a filter, the end of a sentence must look the same in any batch.
    """

    def __init__(self, inputs: int, width: int, layers: int, kernel: int, dropout: float = 0.0) -> None:
        super().__init__()
        if kernel % 2 == 0:
            raise ValueError(f"a kernel of {kernel} has no middle: choose an odd one")
        self.width = width
        self.enter = nn.Linear(inputs, width)
        self.convolutions = Stack(nn.Conv1d(width, 2 * width, kernel, padding=kernel // 2) for _ in range(layers))
        self.dropout = Dropout(dropout)

    def forward(self, embedded: Tensor, mask: Tensor) -> Memory:
        real = mask[:, None, :].to(embedded.dtype)
        states = self.enter(embedded).transpose(1, 2)  # (B, d, S), as convolutions want it
        for convolution in self.convolutions:
            changed = F.glu(convolution(self.dropout(states * real)), dim=1)
            states = (states + changed) * 0.5**0.5
        return Memory((states * real).transpose(1, 2), mask)


class PositionEncoder(Encoder):
    """No encoder at all: embeddings with their positions, no context ("concatenation"; cf. Tang et al. 2019)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    def forward(self, embedded: Tensor, mask: Tensor) -> Memory:
        return Memory(embedded, mask)


class TransformerEncoderLayer(nn.Module):
    """Self-attention, then feed-forward, each with its residual."""

    def __init__(
        self, attention: SelfAttention, feedforward: FeedForward, norm: str, norm_position: str, dropout: float
    ) -> None:
        super().__init__()
        self.self_attention = attention
        self.feedforward = feedforward
        self.around_attention = Residual(attention.width, norm, norm_position, dropout)
        self.around_feedforward = Residual(attention.width, norm, norm_position, dropout)

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        """States `(B, S, d)` and a mask broadcastable to `(B, H, S, S)` to states `(B, S, d)`."""
        states = self.around_attention(states, lambda x: self.self_attention(x, mask=mask))
        return self.around_feedforward(states, self.feedforward)

    def sublayers(self, mask: Tensor | None) -> list[Sublayer]:
        """The same in its parts."""
        return [
            Sublayer(self.around_attention, self.self_attention, lambda x, memory: self.self_attention(x, mask=mask)),
            Sublayer(self.around_feedforward, self.feedforward, lambda x, memory: self.feedforward(x)),
        ]

    def last_matrices(self) -> list[nn.Linear]:
        """What each sublayer ends with."""
        return [self.self_attention.output, self.feedforward.outer]


class TransformerEncoder(Encoder):
    """A stack of layers; pre-norm stacks end with one more normalisation, post-norm stacks start small.

    With `reversible`, for pre-norm stacks, activations are computed again instead of being kept.
    """

    def __init__(
        self, layers: list[TransformerEncoderLayer], norm: str, norm_position: str, reversible: bool = False
    ) -> None:
        super().__init__()
        self.layers, self.reversible = Stack(layers), reversible
        self.width = layers[0].self_attention.width
        self.norm = make_norm(norm, self.width) if norm_position == "pre" else nn.Identity()
        if norm_position == "post":
            start_small([matrix for layer in layers for matrix in layer.last_matrices()])

    def forward(self, embedded: Tensor, mask: Tensor) -> Memory:
        # A batch without padding needs no mask, and the kernel is faster without one.
        allowed = None if bool(mask.all()) else padding_mask(mask)
        if self.reversible:
            sublayers = [sublayer for layer in self.layers for sublayer in layer.sublayers(allowed)]
            return Memory(self.norm(pass_through(sublayers, embedded)), mask)
        states = embedded
        for layer in self.layers:
            states = layer(states, allowed)
        return Memory(self.norm(states), mask)
