"""The output layer over attention that is summed over: chances at each position, weighed by the chance to be there.

The sum is one of probabilities, not of logits: `p(y_t) = Σ_j p(a_t = j) p(y_t | h_j)`.
Shapes: B sentences, T target positions, S source positions, R rows, N tokens, d width of a feature, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from sightline.attention.latent import posterior
from sightline.decoders.base import Decoded
from sightline.decoders.latent import FEATURES, PLACE, PRIOR
from sightline.output_layer import Given, Reading
from sightline.outputs import OverVocabulary
from sightline.state import State

# Numbers of a chunk's distributions at all positions: 16 MiB.
LARGEST = 2**22


@dataclass(frozen=True)
class Placed:
    """Vectors `(…, S, d)` at each position, the log-chances `priors` `(…, S)` of being there before the token is known.

    `emissions` `(…, S)`, where the tokens are known, are their log-chances there.
    """

    features: Tensor
    priors: Tensor
    emissions: Tensor | None = None

    def __getitem__(self, which: Any) -> Placed:
        """Those of some tokens, as with a tensor."""
        emissions = None if self.emissions is None else self.emissions[which]
        return Placed(self.features[which], self.priors[which], emissions)

    def summed(self) -> Tensor:
        """The log-probabilities of the known tokens, `(…)`."""
        assert self.emissions is not None, "only a full pass knows what follows"
        return (self.priors + self.emissions).logsumexp(-1)


class MarginalOutput(OverVocabulary):
    """`Output` at every position and the sum over them."""

    def emissions(self, features: Tensor, tokens: Tensor, real: Tensor) -> Tensor:
        """Log-chances of tokens `(…)` at each position, `(…, S, d)` to `(…, S)`; 0 where `real` `(…, S)` is not."""
        wanted = tokens[..., None].expand(real.shape)[real]
        scores = self.vocabulary.token_scores(features[real], wanted)
        found = scores.right - scores.normaliser
        return torch.zeros(real.shape, dtype=found.dtype, device=found.device).masked_scatter(real, found)

    def see(self, decoded: Decoded, given: Given) -> Reading:
        """Where the decoder may stand depends on the targets: each tells of the positions before the next."""
        assert decoded.priors is not None
        real = decoded.state.shared["mask"][:, None].expand(decoded.features.shape[:3])
        emissions = self.emissions(decoded.features, given.targets, real)
        priors = decoded.priors(emissions)
        return Reading(Placed(decoded.features, priors, emissions), decoded.state, priors.exp())

    def see_step(self, decoded: Decoded, tokens: Tensor, embedded: Tensor | None) -> Reading:
        return Reading.of(decoded, Placed(decoded.features, decoded.state.own[PRIOR]))

    def told(self, tokens: Tensor, state: State) -> State:
        """A token tells where its hypothesis, which it now belongs to, may stand."""
        if state.position == 0 or FEATURES not in state.own:
            return state
        own = dict(state.own)
        mask = state.shared["mask"].repeat_interleave(state.width, 0)
        emissions = self.emissions(own.pop(FEATURES), tokens, mask)
        own[PLACE] = posterior(own[PRIOR], emissions)
        return replace(state, own=own)

    def log_probs(self, features: Placed) -> Tensor:
        """The summed distribution, `(…, V)`."""
        vectors, priors = features.features.flatten(0, -3), features.priors.flatten(0, -2)
        found = torch.cat([self.mixed(vectors[part], priors[part]) for part in self.parts(priors)])
        return found.view(*features.priors.shape[:-1], -1)

    def parts(self, priors: Tensor) -> Iterator[slice]:
        """Log-chances `(N, S)` in slices, so that the distributions at the positions of each are not too large."""
        size = max(1, LARGEST // (priors.size(1) * self.vocabulary.weight.size(0)))
        return (slice(start, start + size) for start in range(0, priors.size(0), size))

    def mixed(self, features: Tensor, priors: Tensor) -> Tensor:
        """Vectors `(N, S, d)` at positions of log-chances `(N, S)` to log-probabilities `(N, V)`."""
        with torch.autocast(features.device.type, enabled=False):
            each = self.vocabulary.log_probs(features.to(priors.dtype))
            return torch.logsumexp(each + priors[..., None], 1)

    def nll(self, features: Placed, targets: Tensor, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
        """A smoothed target is compared with the summed distribution, as anywhere else."""
        plain = -features.summed().sum()
        if not smoothing:
            return plain, plain.detach()
        # Worked out anew for the gradient: kept, the distributions at all positions would fill the memory.
        kept_out = partial(checkpoint, self._uniform, use_reentrant=False, preserve_rng_state=False)
        parts = self.parts(features.priors)
        total = torch.stack([kept_out(features.features[part], features.priors[part]) for part in parts]).sum()
        smoothed = (1 - smoothing) * plain - smoothing / self.vocabulary.weight.size(0) * total
        return smoothed, plain.detach()

    def _uniform(self, features: Tensor, priors: Tensor) -> Tensor:
        return self.mixed(features, priors).sum()

    def token_log_probs(self, features: Placed, targets: Tensor) -> Tensor:
        return features.summed()
