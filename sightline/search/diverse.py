"""Diverse beam search (Vijayakumar et al. 2016): a beam in groups that avoid one another's tokens.

Shapes: B sentences, A of them still searched, G groups, K hypotheses a sentence in all, W = K / G in a group,
V outcomes, S source positions. Slots lie group by group: hypothesis w of group g is slot g * W + w of its sentence.

The rules:
- Each group is a beam search of its own, W wide, by the rules of `beam.py`. All take the same steps, one group after
  the other: for each time that an earlier group has just gone on with a token, `diversity` is taken off that token's
  log-probability (Hamming diversity).
- That penalty counts at its own step and only steers. Totals and scores stay the model's.
- A group that is done steers no more; a sentence is done when all its groups are.
- Each group gives its n best (at most W). Of these come the n best of the sentence, what several groups found once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from sightline.batch import Batch
from sightline.hypothesis import Hypothesis, Request, SearchOptions
from sightline.search.beam import Beam, BestFirst, Continuations
from sightline.search.protocol import Step, StepModel
from sightline.state import State


@torch.no_grad()
def diverse_beam_search(
    model: StepModel,
    batch: Batch,
    options: SearchOptions | None = None,
    requests: Sequence[Request] | None = None,
) -> list[list[Hypothesis]]:
    """Up to `n_best` different hypotheses a sentence, best first, in batch order; with one group it is beam search.

    There are fewer when groups came to the same ones.
    """
    groups = _Groups(model, batch, options or SearchOptions(), requests)
    tokens = torch.full((batch.size,), model.bos, device=batch.sources[0].mask.device)
    state = model.start(batch)
    while groups.going:
        tokens, state = groups.advance(model.step(tokens, state))
    return groups.results()


class _Groups:
    """The search of one batch, a beam for each group. All beams have the same sentences, in the same order."""

    def __init__(
        self, model: StepModel, batch: Batch, options: SearchOptions, requests: Sequence[Request] | None
    ) -> None:
        self.options = options
        self.width = options.beam // options.groups  # W
        part = replace(options, groups=1, beam=self.width, n_best=min(options.n_best, self.width))
        self.choices = [BestFirst(model, self.width) for _ in range(options.groups)]
        self.beams = [Beam(model, batch, part, requests, choice) for choice in self.choices]

    @property
    def going(self) -> bool:
        """Whether there is a sentence still to be searched."""
        return len(self.beams[0].sentences) > 0

    def advance(self, step: Step) -> tuple[Tensor, State]:
        """Takes one step of the model; gives the next tokens `(A * K,)` and the state of what goes on."""
        lives, done = self._choose(step)
        going = (~done.all(1)).nonzero()[:, 0]
        state = step.state if len(going) == len(done) else step.state.keep(going)
        for beam, live in zip(self.beams, lives, strict=True):
            beam.keep(going, live)
        tokens = torch.cat([live.tokens for live in lives], 1)  # (A, K)
        slots = torch.cat([live.parents + group * self.width for group, live in enumerate(lives)], 1)
        # A group that is done repeats the first that is not, so that a model never reads what it forbade.
        first = (~done).int().argmax(1, keepdim=True) * self.width  # (A, 1), a slot
        silent = done.repeat_interleave(self.width, 1)
        tokens = torch.where(silent, tokens.gather(1, first), tokens)[going]
        slots = torch.where(silent, slots.gather(1, first), slots)[going]
        if state.width == 1:
            return tokens.flatten(), state.expand(self.options.beam)
        offsets = torch.arange(len(going), device=going.device)[:, None] * self.options.beam
        return tokens.flatten(), state.reorder((offsets + slots).flatten())

    def _choose(self, step: Step) -> tuple[list[Continuations], Tensor]:
        """What lives on in each group, `(A, W)`, nothing where it is done; and `(A, G)`: where it is."""
        lives, dones = [], []
        count = len(self.beams[0].sentences)
        taken = step.log_probs.new_zeros(count, step.log_probs.size(1))  # (A, V), how often by the groups before
        for group, beam in enumerate(self.beams):
            log_probs = self._rows(step.log_probs, group, count)
            weights = None if step.weights is None else self._rows(step.weights, group, count)
            if group and self.options.diversity:
                penalty = self.options.diversity * taken
                self.choices[group].penalty = penalty.repeat_interleave(len(log_probs) // count, 0)
            live, done = beam.choose(log_probs, weights)
            taken.scatter_add_(1, live.tokens, (live.totals > -torch.inf).to(taken.dtype))
            # What has a total of minus infinity neither ends nor lives on nor is cut: from now on the group is silent.
            lives.append(replace(live, totals=live.totals.masked_fill(done[:, None], -torch.inf)))
            dones.append(done)
        return lives, torch.stack(dones, 1)

    def _rows(self, values: Tensor, group: int, count: int) -> Tensor:
        """A group's rows, `(A * W, ·)`, of `values` `(A * K, ·)`; before the first token all groups share `(A, ·)`."""
        if len(values) == count:
            return values
        return values.reshape(count, len(self.beams), self.width, -1)[:, group].flatten(0, 1)

    def results(self) -> list[list[Hypothesis]]:
        """The n best of each sentence."""
        found = []
        for parts in zip(*(beam.results() for beam in self.beams), strict=True):
            pool = sorted((one for part in parts for one in part), key=lambda one: (not one.finished, -one.score))
            different: dict[tuple[int, ...], Hypothesis] = {}
            for one in pool:
                different.setdefault(tuple(one.tokens), one)
            found.append(list(different.values())[: self.options.n_best])
        return found
