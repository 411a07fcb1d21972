"""The output layer over attention that is summed over: chances at each position, weighed by the chance to be there.

The sum is one of probabilities, not of logits: `p(y_t) = Σ_j p(a_t = j) p(y_t | h_j)`.
Shapes: B sentences, T target positions, S source positions, R rows, d width of a feature, V vocabulary.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from sightline.attention.latent import posterior
from sightline.batch import Tokens
from sightline.chunked import chunks, token_log_probs
from sightline.decoders.base import Decoded
from sightline.decoders.latent import FEATURES, PLACE, PRIOR
from sightline.outputs import Output, Predicted
from sightline.state import State

# Numbers of a chunk's distributions at all positions: 16 MiB.
LARGEST = 2**22


class MarginalOutput(nn.Module):
    """`Output` at every position and the sum over them; it offers the same as an `Output` to a model."""

    def __init__(self, output: Output) -> None:
        super().__init__()
        self.output = output

    @property
    def bias(self) -> nn.Parameter:
        """The inner layer's."""
        return self.output.bias

    def quantise(self) -> None:
        """See `Output.quantise`."""
        self.output.quantise()

    def emissions(self, features: Tensor, tokens: Tensor, real: Tensor) -> Tensor:
        """Log-chances of tokens `(…)` at each position, `(…, S, d)` to `(…, S)`; 0 where `real` `(…, S)` is not."""
        wanted = tokens[..., None].expand(real.shape)[real]
        output = self.output
        found = token_log_probs(features[real], output.weight, output.bias, wanted, output.fixed_row)
        return torch.zeros(real.shape, dtype=found.dtype, device=found.device).masked_scatter(real, found)

    def _priors(self, decoded: Decoded, targets: Tokens) -> tuple[Tensor, Tensor]:
        """Of a full pass: log-chances of each position before its target is known, and with the target, `(B, T, S)`."""
        assert decoded.priors is not None
        real = decoded.state.shared["mask"][:, None].expand(decoded.features.shape[:3])
        emissions = self.emissions(decoded.features, targets.ids, real)
        priors = decoded.priors(emissions)
        return priors, priors + emissions

    def predict(self, decoded: Decoded, targets: Tokens, smoothing: float = 0.0) -> Predicted:
        """See `Output.predict`. A smoothed target is compared with the summed distribution, as anywhere else."""
        priors, joint = self._priors(decoded, targets)
        real = targets.mask
        plain = -joint[real].logsumexp(-1).sum()
        smoothed = plain
        if smoothing:
            features, here = decoded.features[real], priors[real]
            parts = list(chunks(here.size(0), here.size(1) * self.output.weight.size(0), LARGEST))
            # Worked out anew for the gradient: kept, the distributions at all positions would fill the memory.
            kept_out = partial(checkpoint, self._uniform, use_reentrant=False, preserve_rng_state=False)
            total = torch.stack([kept_out(features[part], here[part]) for part in parts]).sum()
            smoothed = (1 - smoothing) * plain - smoothing / self.output.weight.size(0) * total
        return Predicted(smoothed, plain.detach(), priors.exp())

    def _uniform(self, features: Tensor, priors: Tensor) -> Tensor:
        return self.mixed(features, priors).sum()

    def token_log_probs(self, decoded: Decoded, targets: Tokens) -> Tensor:
        """See `Output.token_log_probs`."""
        _, joint = self._priors(decoded, targets)
        return joint.logsumexp(-1) * targets.mask

    def mixed(self, features: Tensor, priors: Tensor) -> Tensor:
        """Vectors `(N, S, d)` at positions of log-chances `(N, S)` to log-probabilities `(N, V)`."""
        with torch.autocast(features.device.type, enabled=False):
            each = self.output.log_probs(features.to(priors.dtype))
            return torch.logsumexp(each + priors[..., None], 1)

    def next_log_probs(self, decoded: Decoded) -> Tensor:
        """See `Output.next_log_probs`."""
        features, priors = decoded.features, decoded.state.own[PRIOR]
        parts = chunks(priors.size(0), priors.size(1) * self.output.weight.size(0), LARGEST)
        return torch.cat([self.mixed(features[part], priors[part]) for part in parts])

    def read(self, tokens: Tensor, state: State) -> State:
        """See `Output.read`: the token tells where its hypothesis, which it now belongs to, may stand."""
        if state.position == 0 or FEATURES not in state.own:
            return state
        own = dict(state.own)
        mask = state.shared["mask"].repeat_interleave(state.width, 0)
        emissions = self.emissions(own.pop(FEATURES), tokens, mask)
        own[PLACE] = posterior(own[PRIOR], emissions)
        return replace(state, own=own)
