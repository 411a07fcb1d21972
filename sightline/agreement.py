"""Two models that translate both ways and are trained together, so that they see the same (Cohn et al. 2016).

Shapes: B sentences, S source positions, T target positions.
"""

from __future__ import annotations

from torch import Tensor, nn

from sightline.batch import Batch
from sightline.losses import agreement
from sightline.writer import Writer


class Agreement(nn.Module):
    """`there` translates the batch as it is, `back` the other way round.

    What is minimised is the mean loss of both directions' tokens, minus `weight` times `Tr(A B)` over the most that it
    can be. A `(T, S)` and B `(S, T)` are where each looks to predict a word, so that the product needs no shift.
    """

    def __init__(self, there: Writer, back: Writer, weight: float) -> None:
        super().__init__()
        self.there, self.back = there, back
        self.loss_weights = {**there.loss_weights, "agreement": weight}

    def loss(self, batch: Batch) -> dict[str, tuple[Tensor, Tensor | int]]:
        """Sums and counts of both directions together, and as "agreement" minus what they agree on."""
        assert batch.targets is not None
        losses, seen = self.there.loss_and_weights(batch)
        others, seen_back = self.back.loss_and_weights(batch.turned())
        assert seen is not None
        assert seen_back is not None
        agreed, most = agreement(seen, seen_back, batch.sources[0].mask, batch.targets.mask)
        both = {name: (total + others[name][0], count + others[name][1]) for name, (total, count) in losses.items()}
        return {**both, "agreement": (-agreed, most)}
