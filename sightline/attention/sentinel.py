"""The pointer sentinel's weights: how much to trust a pointer to recent words, and which of them it points at.

Merity et al. 2017, with q = tanh(W h_t + b) and the sentinel s, a learnt vector:
    z_i = q · h_i,  [a; g] = softmax([z; q · s])
a points at the words x_i that were read, h_i being the state after reading x_i; g, the gate, is what is left for the
vocabulary. The two sum to 1 together.
Shapes: B rows, T queries, S positions that can be pointed at, d width of a state.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sightline.attention.capture import Tapped
from sightline.attention.core import masked_scores


class Sentinel(Tapped):
    """The query's projection and the sentinel, for states `width` wide.

    Whoever looks at its weights sees those of pointing, `(B, 1, T, S)`: what a row lacks of 1 is the gate.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query = nn.Linear(width, width)
        self.sentinel = nn.Parameter(torch.randn(width) * width**-0.5)

    def forward(self, states: Tensor, past: Tensor, mask: Tensor) -> Tensor:
        """Logarithms of the weights, `(B, T, S + 1)`: of pointing at each position, and last of the gate.

        States `(B, T, d)` ask, the past `(B, S, d)` is asked, where the mask, broadcastable to `(B, T, S)`, is True.
        """
        queries = torch.tanh(self.query(states))
        pointed = masked_scores(queries @ past.transpose(-1, -2), mask)
        result = torch.cat([pointed, (queries @ self.sentinel)[..., None]], -1).log_softmax(-1)
        if self.tap is not None:
            self.tap.record(result[..., :-1].exp()[:, None])
        return result
