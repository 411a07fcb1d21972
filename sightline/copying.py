"""Copying: the next token may be a word of the source, whatever the vocabulary says of it.

All three kinds give the same mixture, with weights κ over source positions x_i:
    p(w) = g P_vocabulary(w) + (1 - g) Σ_{i: x_i = w} κ_i
- pointer-generator (See et al. 2017): κ are attention's own weights, g a gate of context, state and input;
- copy head (Allamanis et al. 2016): κ and 1 - g are of kernels of their own over features of the positions;
- CopyNet (Gu et al. 2016): scores of copying and the vocabulary's logits share one softmax, so g is what the logits
  have of the sum.
Shapes: B sentences, T target positions (decoding: the hypotheses of a sentence), S source positions, N tokens, d width
of a feature, d_m of a memory state, e of an embedded token, c channels, V target vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sightline.attention.capture import Tapped
from sightline.attention.core import masked_softmax
from sightline.batch import Batch, Memory, Tokens, side_by_side
from sightline.decoders.base import Decoded
from sightline.mixtures import mixture_log_probs, mixture_nll
from sightline.output_layer import Given, Named, Reading
from sightline.outputs import Output
from sightline.practice import Practice
from sightline.state import State
from sightline.text import UNK, Sizes
from sightline.views import View, ViewedOutput, by_sentence

IDS, MASK, STATES, KEYS = (f"copying.{name}" for name in ("ids", "mask", "states", "keys"))
SCORES = "copying.scores"
# Added to the probability of a right token in training: one that attention's window leaves out may have none at all.
EPSILON = 1e-10


class Copyable(nn.Module):
    """What source ids are in the target vocabulary: the ids of the entries of the same name.

    With open words (see `sightline.open_words`) ids may lie past both vocabularies; embeddings then see them as the
    vocabularies do.
    """

    table: Tensor | None

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.source, self.target, self.open = sizes.source, sizes.target, sizes.open_words
        same = None if sizes.joint else torch.tensor(sizes.same)
        self.register_buffer("table", same, persistent=False)  # (V_source,)

    def known_source(self, ids: Tensor) -> Tensor:
        """Source ids as the source embedding knows them."""
        return ids % self.source if self.open else ids

    def known_target(self, ids: Tensor) -> Tensor:
        """Target ids as the target embedding knows them."""
        return torch.where(ids < self.target, ids, UNK) if self.open else ids

    def targets(self, ids: Tensor) -> Tensor:
        """The target ids that copying source ids `(B, S)` writes."""
        known = self.known_source(ids)
        same = known if self.table is None else self.table[known]
        if not self.open:
            return same
        number = ids // self.source - 1
        return torch.where(number >= 0, self.target + number, same)


@dataclass(frozen=True)
class Seen:
    """All that the next tokens are foretold from: features `(…, d)` and, for each source position, `ids` `(…, S)`.

    With `gate` `(…)`, the logit of generating, `weights` `(…, S)` are those of copying. Without, they are scores,
    minus infinity on padding, that share the softmax with the vocabulary's.
    """

    features: Tensor
    ids: Tensor
    weights: Tensor
    gate: Tensor | None = None

    def __getitem__(self, which: Any) -> Seen:
        """Those of some tokens, as with a tensor."""
        gate = None if self.gate is None else self.gate[which]
        return Seen(self.features[which], self.ids[which], self.weights[which], gate)

    @staticmethod
    def joined(steps: Sequence[Seen]) -> Seen:
        """Steps `(B, 1, …)` as a sequence `(B, T, …)`."""
        gates = [step.gate for step in steps if step.gate is not None]
        return Seen(
            torch.cat([step.features for step in steps], 1),
            torch.cat([step.ids for step in steps], 1),
            torch.cat([step.weights for step in steps], 1),
            torch.cat(gates, 1) if gates else None,
        )

    def shares(self, normaliser: Tensor) -> tuple[Tensor, Tensor]:
        """The log-probability of generating `(…)` and the probability of copying each position `(…, S)`.

        `normaliser` `(…)` is `log Σ exp` of the vocabulary's logits.
        """
        if self.gate is not None:
            gate = self.gate.to(normaliser.dtype)
            return F.logsigmoid(gate), torch.sigmoid(-gate)[..., None] * self.weights
        weights = self.weights.to(normaliser.dtype)
        total = torch.logaddexp(normaliser, weights.logsumexp(-1))
        return normaliser - total, (weights - total[..., None]).exp()


class CopyView(View):
    """What copying looks at; the kinds differ in their weights and in how they are mixed."""

    def __init__(self, copyable: Copyable) -> None:
        super().__init__()
        self.copyable = copyable

    def prepare(self, memory: Memory, ids: Tensor) -> Named:
        return {IDS: self.copyable.targets(ids), MASK: memory.mask, STATES: memory.states}

    def known_source(self, ids: Tensor) -> Tensor:
        return self.copyable.known_source(ids)

    def known_target(self, ids: Tensor) -> Tensor:
        return self.copyable.known_target(ids)


def _of_each(ids: Tensor, features: Tensor) -> Tensor:
    """A sentence's ids `(B, S)` for each of its targets: `(B, T, S)`."""
    return ids[:, None].expand(-1, features.size(1), -1)


class AttentionPointer(CopyView):
    """κ = α, `g = σ(w_s · s + w_h · c + w_x · x + b)` with `c = Σ α h` (See et al. 2017, equations 8 and 9)."""

    reads_tokens = True

    def __init__(self, copyable: Copyable, width: int, memory_width: int, input_width: int) -> None:
        super().__init__(copyable)
        self.gate = nn.Linear(width + memory_width + input_width, 1)

    def forward(self, features: Tensor, weights: Tensor | None, embedded: Tensor | None, shared: Named) -> Seen:
        assert weights is not None, "checked when the configuration was read"
        assert embedded is not None
        context = weights.to(features.dtype) @ shared[STATES].to(features.dtype)
        gate = self.gate(torch.cat([features, context, embedded.to(features.dtype)], -1)).squeeze(-1)
        return Seen(features, _of_each(shared[IDS], features), weights, gate)


class CopyScores(CopyView):
    """`ψ(x_j) = tanh(W h_j) · s`, in one softmax with the vocabulary's logits (Gu et al. 2016, equation 8)."""

    def __init__(self, copyable: Copyable, width: int, memory_width: int) -> None:
        super().__init__(copyable)
        self.key = nn.Linear(memory_width, width, bias=False)

    def prepare(self, memory: Memory, ids: Tensor) -> Named:
        return {**super().prepare(memory, ids), KEYS: torch.tanh(self.key(memory.states))}

    def forward(self, features: Tensor, weights: Tensor | None, embedded: Tensor | None, shared: Named) -> Seen:
        scores = features @ shared[KEYS].transpose(1, 2).to(features.dtype)  # (B, T, S)
        # Their softmax is not attention's: the vocabulary's logits are in it.
        scores = scores.masked_fill(~shared[MASK][:, None], -torch.inf)
        return Seen(features, _of_each(shared[IDS], features), scores)


class CopyHead(CopyView):
    """κ and the share of copying from the same features of positions, by two kernels (Allamanis et al. 2016).

    `L = (K * h) ∘ (W s)`, normalised at each position; `κ = softmax(K_κ * L)`, `1 - g = max_i σ(K_g * L)_i`, where *
    is a convolution over source positions.
    """

    def __init__(self, copyable: Copyable, width: int, memory_width: int, channels: int, kernel: int) -> None:
        super().__init__(copyable)
        self.of_memory = nn.Conv1d(memory_width, channels, kernel, padding=kernel // 2)
        self.of_state = nn.Linear(width, channels)
        self.kernels = nn.Conv1d(channels, 2, kernel, padding=kernel // 2)

    def prepare(self, memory: Memory, ids: Tensor) -> Named:
        states = memory.states.masked_fill(~memory.mask[..., None], 0.0)
        return {**super().prepare(memory, ids), KEYS: self.of_memory(states.transpose(1, 2)).transpose(1, 2)}

    def forward(self, features: Tensor, weights: Tensor | None, embedded: Tensor | None, shared: Named) -> Seen:
        mask = shared[MASK][:, None]  # (B, 1, S)
        seen = shared[KEYS][:, None] * self.of_state(features)[:, :, None]  # (B, T, S, c)
        seen = F.normalize(seen, dim=-1).masked_fill(~mask[..., None], 0.0)
        batch, targets, sources, channels = seen.shape
        found = self.kernels(seen.reshape(-1, sources, channels).transpose(1, 2)).view(batch, targets, 2, sources)
        # The largest logit is that of the largest σ; g is 1 - σ, so its logit has the other sign.
        share = found[:, :, 1].masked_fill(~mask, -torch.inf).amax(-1)
        return Seen(features, _of_each(shared[IDS], features), masked_softmax(found[:, :, 0], mask), -share)


class SelectiveRead(nn.Module):
    """What stands where the last token was copied from, for the next step: `ζ = Σ ρ_j h_j` (Gu et al. 2016).

    ρ are the shares of the scores of copying among the positions that hold the token; zero where none does.
    """

    def forward(self, tokens: Tensor, scores: Tensor, shared: Named) -> Tensor:
        """Tokens `(B, K)` and the scores `(B, K, S)` of the step that predicted them to `(B, K, d_m)`."""
        same = (tokens[..., None] == shared[IDS][:, None]) & shared[MASK][:, None]
        states = shared[STATES]
        return masked_softmax(scores.masked_fill(~same, 0.0), same).to(states.dtype) @ states


class CopyOutput(ViewedOutput, Tapped):
    """The mixture of generating and copying, over the vocabulary and the open words of each sentence.

    `reader` adds to a step's input what was copied in the one before. Whoever looks at its weights sees those of the
    mixture, `(1 - g) κ_i`: the probability that the next token is copied from position i.

    With open words `<unk>` is no answer, unless `unknown` allows it: where it is the target, training would teach to
    give up on just those words of the source that are there to be copied.
    """

    view: CopyView

    def __init__(
        self,
        vocabulary: Output,
        view: CopyView,
        reader: SelectiveRead | None = None,
        practice: Practice | None = None,
        unknown: bool = False,
    ) -> None:
        super().__init__(vocabulary, view)
        self.practice = practice
        self.open, self.reader = view.copyable.open, reader
        self.writes_unknown = unknown or not self.open
        self.stepwise = reader is not None
        self.reads_tokens = self.reads_tokens or self.stepwise

    def practised(self, batch: Batch) -> Batch:
        if self.practice is None:
            return batch
        ids = side_by_side([source.ids for source in batch.sources if isinstance(source, Tokens)])
        return self.practice.hidden(batch, self.view.copyable.targets(ids))

    def begin(self, memory: Memory) -> Named:
        return {} if self.reader is None else {SCORES: memory.states.new_zeros(memory.mask.shape)}

    def read(self, tokens: Tensor, embedded: Tensor, state: State) -> Tensor:
        if self.reader is None:
            return embedded
        scores = by_sentence(state.own[SCORES], state.width)
        copied = self.reader(by_sentence(tokens, state.width), scores, state.shared)
        return torch.cat([embedded, copied.flatten(0, 1).to(embedded.dtype)], -1)

    def see(self, decoded: Decoded, given: Given) -> Reading:
        seen = super().see(decoded, given)
        if self.tap is not None:
            self.tap.record(self.copies(seen.features)[:, None])
        return seen

    def see_step(self, decoded: Decoded, tokens: Tensor, embedded: Tensor | None) -> Reading:
        seen = super().see_step(decoded, tokens, embedded)
        if self.tap is not None:
            self.tap.record(self.copies(seen.features)[:, None])
        if self.reader is None:
            return seen
        own = {**seen.state.own, SCORES: seen.features.weights.flatten(0, 1)}
        return seen._replace(state=replace(seen.state, own=own))

    def copies(self, seen: Seen) -> Tensor:
        """The probability of copying each source position, `(B, T, S)`; a row sums to what generating leaves."""
        # Sentence by sentence: the logits of a whole batch would be the largest tensor of all.
        normaliser = torch.stack([self.vocabulary.logits(features).logsumexp(-1) for features in seen.features])
        return seen.shares(normaliser)[1]

    def joined(self, steps: Sequence[Seen]) -> Seen:
        return Seen.joined(steps)

    def log_probs(self, features: Seen) -> Tensor:
        """The distribution of the next token, `(…, V)`, or `(…, V + S)` with open words."""
        more = features.ids.size(-1) if self.open else 0  # at most as many as there are positions
        return mixture_log_probs(features, self.vocabulary, more)

    def nll(self, features: Seen, targets: Tensor, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
        return mixture_nll(features, self.vocabulary, targets, smoothing, EPSILON)
