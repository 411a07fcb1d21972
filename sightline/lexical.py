"""Outside knowledge in the output: a lexicon's probabilities, mixed by attention (Arthur et al. 2016).

`p_lexicon(w) = Σ_j α_j p(w | x_j)` either shifts the logits, `softmax(W f + b + log(p_lexicon + ε))`, or is mixed with
the words' distribution, `λ p_lexicon + (1 - λ) softmax(W f + b)`.
Shapes: B sentences, T target positions (decoding: the hypotheses of a sentence), S source positions, N tokens, d width
of a feature, V target vocabulary, M most targets of a source token.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from sightline.batch import Memory
from sightline.lexicon import Lexicon
from sightline.mixtures import mixed
from sightline.output_layer import Named
from sightline.outputs import CHUNK, Output
from sightline.views import View, ViewedOutput

IDS, PROBABILITIES = "lexicon.ids", "lexicon.probabilities"


@dataclass(frozen=True)
class Told:
    """Features `(…, d)`, weights `(…, S)` and each token's sentence `(…)`; and what the lexicon tells of these.

    `ids` and `probabilities` `(B, S, M)`: for each source position what it may become.
    """

    features: Tensor
    weights: Tensor
    sentences: Tensor
    ids: Tensor
    probabilities: Tensor

    def __getitem__(self, which: Any) -> Told:
        """Those of some tokens, as with a tensor."""
        tokens = (self.features[which], self.weights[which], self.sentences[which])
        return replace(self, features=tokens[0], weights=tokens[1], sentences=tokens[2])

    def lexical(self, vocabulary: int) -> Tensor:
        """`p_lexicon`, `(…, V)`."""
        shares = self.weights[..., None] * self.probabilities[self.sentences]  # (…, S, M)
        ids = self.ids[self.sentences].flatten(-2)
        return shares.new_zeros(*self.sentences.shape, vocabulary).scatter_add(-1, ids, shares.flatten(-2))


class LexiconView(View):
    """Looks the source tokens up."""

    ids: Tensor
    probabilities: Tensor

    def __init__(self, lexicon: Lexicon, vocabulary: int) -> None:
        """`vocabulary` is the source's size."""
        super().__init__()
        ids, probabilities = lexicon.table(vocabulary)
        # The lexicon has a file of its own in the model folder.
        self.register_buffer("ids", torch.from_numpy(ids), persistent=False)  # (V_source, M)
        self.register_buffer("probabilities", torch.from_numpy(probabilities), persistent=False)

    def prepare(self, memory: Memory, ids: Tensor) -> Named:
        return {IDS: self.ids[ids], PROBABILITIES: self.probabilities[ids]}

    def forward(self, features: Tensor, weights: Tensor | None, embedded: Tensor | None, shared: Named) -> Told:
        assert weights is not None, "checked when the configuration was read"
        batch, length = features.shape[:2]
        sentences = torch.arange(batch, device=features.device)[:, None].expand(-1, length)
        return Told(features, weights, sentences, shared[IDS], shared[PROBABILITIES])


class LexiconOutput(ViewedOutput):
    """`mode` bias: the smaller `epsilon`, the stronger the lexicon. `mode` linear: λ = σ(share) is learnt.

    What a lexicon does not know, such as the end symbol, adds nothing: with mode linear the sum of a distribution is
    below 1 by so much of λ as attention gives it.
    """

    def __init__(self, vocabulary: Output, view: LexiconView, mode: str, epsilon: float) -> None:
        super().__init__(vocabulary, view)
        self.epsilon = epsilon
        self.share = nn.Parameter(torch.zeros(())) if mode == "linear" else None

    def log_probs(self, features: Told) -> Tensor:
        """The distribution of the next token, `(…, V)`."""
        logits = self.vocabulary.logits(features.features)
        lexical = features.lexical(logits.size(-1)).to(logits.dtype)
        if self.share is None:
            return (logits + (lexical + self.epsilon).log()).log_softmax(-1)
        return mixed(logits.log_softmax(-1) + F.logsigmoid(-self.share), torch.sigmoid(self.share) * lexical)

    def nll(self, features: Told, targets: Tensor, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
        """Features and target ids `(N,)` to two sums over tokens: smoothed, for training, and plain.

        In parts whose distributions are worked out again for the gradient, so that they are not all kept.
        """

        def sums(part: slice) -> tuple[Tensor, Tensor]:
            log_probs = self.log_probs(features[part])
            return -log_probs.gather(1, targets[part, None]).sum(), -log_probs.mean(-1).sum()

        with torch.autocast(targets.device.type, enabled=False):
            whole = replace(features, features=features.features.float()) if _is_half(features.features) else features
            features = replace(whole, weights=whole.weights.to(whole.features.dtype))
            parts = [slice(start, start + CHUNK) for start in range(0, len(targets), CHUNK)]
            found = [checkpoint(sums, part, use_reentrant=False) for part in parts]
        zero = self.vocabulary.bias.new_zeros(())
        plain, uniform = (sum((one[place] for one in found), zero) for place in (0, 1))
        return (1 - smoothing) * plain + smoothing * uniform, plain.detach()


def _is_half(values: Tensor) -> bool:
    return values.dtype in (torch.bfloat16, torch.float16)
