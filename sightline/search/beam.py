"""Beam search over all sentences of a batch at once.

Shapes: B sentences, A of them still searched, K hypotheses a sentence (one before the first token), C = 2K candidates,
S source positions, N the n best. Steps are numbered from 0; at step t live hypotheses have t tokens.

The rules:
- Live hypotheses have one length, so they are pruned by plain log-probability; penalties rank only what is finished.
- Of each sentence's 2K best continuations, those that end and are among the first K are finished (with K = 1 that is
  greedy search); the first K that do not end live on. One end a hypothesis at most, so K always remain.
- A sentence's search stops when it has as many finished hypotheses as `stopping` wants, when no live one can still
  enter the n best, or at its length limit. What is alive then was cut: it ranks after everything finished, by score.
- What steers a choice (see `diverse.py`) enters no total: totals and scores are the model's own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from sightline.batch import Batch
from sightline.hypothesis import Hypothesis, SearchOptions
from sightline.search.candidates import next_tokens
from sightline.search.lengths import length_limits
from sightline.search.processors import Ranking
from sightline.search.protocol import Step, StepModel
from sightline.search.trace import Ending, Trace
from sightline.state import State


@torch.no_grad()
def beam_search(model: StepModel, batch: Batch, options: SearchOptions | None = None) -> list[list[Hypothesis]]:
    """Up to `n_best` different hypotheses a sentence (fewer only if there are no more), best first, in batch order."""
    beam = Beam(model, batch, options or SearchOptions())
    tokens = torch.full((batch.size,), model.bos, device=beam.sentences.device)
    state = model.start(batch)
    while len(beam.sentences):
        tokens, state = beam.advance(model.step(tokens, state))
    return beam.results()


@dataclass(frozen=True)
class Continuations:
    """Hypotheses one token on, best first: total and last token's log-probability, last token, parent's slot.

    `(A, C)` or `(A, K)` each. A total of minus infinity is a free place, not a hypothesis.
    """

    totals: Tensor
    log_probs: Tensor
    tokens: Tensor
    parents: Tensor

    def take(self, places: Tensor) -> Continuations:
        """The continuations at `places` `(A, K)`."""
        parts = (self.totals, self.log_probs, self.tokens, self.parents)
        return Continuations(*(part.gather(1, places) for part in parts))

    def living(self, eos: int, beam: int) -> Continuations:
        """The first K that do not end. A free place repeats the first, so that a model never reads what it forbade."""
        order = (self.tokens == eos).to(torch.uint8).sort(dim=1, stable=True).indices
        live = self.take(order[:, :beam])
        free = live.totals == -torch.inf
        tokens = torch.where(free, live.tokens[:, :1], live.tokens)
        parents = torch.where(free, live.parents[:, :1], live.parents)
        return Continuations(live.totals, live.log_probs, tokens, parents)


def _continue(
    model: StepModel, log_probs: Tensor, steered: Tensor, totals: Tensor, beam: int, may_end: bool
) -> Continuations:
    """The 2K best continuations of hypotheses with `totals` `(A, K)`, given the step's `log_probs` `(A * K, V)`.

    Which are best is decided with `steered` `(A * K, V)` in the place of `log_probs`, often the same tensor.
    Sums are taken in double precision of each row's own best, so that rounding makes no ties; ties that remain go to
    the better hypothesis, then to the lower id.
    """
    merits, ids = next_tokens(model, steered, 2 * beam, may_end)
    values = merits if steered is log_probs else log_probs.gather(1, ids).where(merits > -torch.inf, -torch.inf)
    each, shape = ids.size(1), (len(totals), -1)
    merits, values, ids = merits.double().reshape(shape), values.double().reshape(shape), ids.reshape(shape)
    before = totals.repeat_interleave(each, 1)
    order = (before + merits).sort(dim=1, descending=True, stable=True).indices[:, : 2 * beam]
    sums, missing = (before + values).gather(1, order), 2 * beam - order.size(1)
    sums, order = functional.pad(sums, (0, missing), value=-torch.inf), functional.pad(order, (0, missing))
    return Continuations(sums, values.gather(1, order), ids.gather(1, order), order // each)


class Beam:
    """The search of one batch. What is indexed by A shrinks as sentences are done.

    `advance` is a whole step. Its halves, `choose` and `keep`, are for a search that has several beams.
    """

    def __init__(self, model: StepModel, batch: Batch, options: SearchOptions) -> None:
        self.model = model
        self.options = options
        self.ranking = Ranking(options)
        wanted = {"first": options.n_best, "enough": options.beam * options.patience, "hopeless": math.inf}
        self.enough = max(options.n_best, wanted[options.stopping])
        self.trace = Trace()
        self.endings: list[list[Ending]] = [[] for _ in range(batch.size)]
        mask = self.mask = batch.sources[0].mask  # (B, S)
        limits = length_limits(model, batch, options).to(mask.device)
        # Log-probabilities only fall and length penalties only rise, so dividing by the longest bounds what can come.
        longest = [self.ranking.length(limit + 1) for limit in limits.tolist()]
        self.sentences = torch.arange(batch.size, device=mask.device)  # (A,)
        self.limits = limits  # (A,)
        self.ceilings = torch.tensor(longest, dtype=torch.double, device=mask.device)  # (A,)
        self.totals = torch.zeros(batch.size, 1, dtype=torch.double, device=mask.device)  # (A, K)
        self.coverage: Tensor | None = None  # (A, K, S), only with a coverage penalty
        if self.ranking.coverage is not None:
            self.coverage = torch.zeros(batch.size, 1, mask.size(1), device=mask.device)
        self.best = self.totals.new_full((batch.size, options.n_best), -torch.inf)  # (A, N), scores of the finished
        self.finished = torch.zeros_like(limits)  # (A,), how many

    def advance(self, step: Step) -> tuple[Tensor, State]:
        """Takes one step of the model; gives the next tokens `(A * K,)` and the state of what goes on."""
        live, done = self.choose(step.log_probs, step.log_probs, step.weights)
        going = (~done).nonzero()[:, 0]
        state = step.state if len(going) == len(done) else step.state.keep(going)
        self.keep(going, live)
        if state.width == 1:
            state = state.expand(self.options.beam)
        else:
            offsets = torch.arange(len(going), device=going.device)[:, None] * self.options.beam
            state = state.reorder((offsets + live.parents[going]).flatten())
        return live.tokens[going].flatten(), state

    def choose(self, log_probs: Tensor, steered: Tensor, weights: Tensor | None) -> tuple[Continuations, Tensor]:
        """Notes the hypotheses that a step ends; gives what lives on, `(A, K)`, and `(A,)`: which sentences are done.

        `log_probs` and `steered` are `(A * K, V)`, as for `_continue`; `weights` `(A * K, S)`, as the step has them.
        """
        self.ranking.check(weights, self.mask)
        may_end = len(self.trace) >= self.options.min_length
        reached = _continue(self.model, log_probs, steered, self.totals, self.options.beam, may_end)
        coverage = self._cover(weights)
        ended = self._finish(reached, coverage)
        live = reached.living(self.model.eos, self.options.beam)
        done = self._done(live)
        self._cut(done, ended)
        self.trace.add(self.sentences, live.parents, live.tokens, live.log_probs, weights)
        self.coverage = coverage
        return live, done

    def keep(self, going: Tensor, live: Continuations) -> None:
        """Goes on with the sentences at places `going` and their live continuations."""
        self.sentences, self.limits, self.ceilings = self.sentences[going], self.limits[going], self.ceilings[going]
        self.best, self.finished = self.best[going], self.finished[going]
        self.totals = live.totals[going]
        if self.coverage is not None:
            self.coverage = self.coverage[going[:, None], live.parents[going]]

    def results(self) -> list[list[Hypothesis]]:
        """The n best of each sentence."""
        chosen = [
            sorted(endings, key=lambda ending: (ending.end_log_prob is None, -ending.score))[: self.options.n_best]
            for endings in self.endings
        ]
        found = iter(self.trace.hypotheses([ending for endings in chosen for ending in endings], self.mask))
        return [[next(found) for _ in endings] for endings in chosen]

    def _cover(self, weights: Tensor | None) -> Tensor | None:
        """The attention source positions got from each live hypothesis, this step's included: `(A, K, S)`."""
        if self.coverage is None or weights is None:
            return None
        return self.coverage + weights.reshape(self.coverage.shape)

    def _finish(self, reached: Continuations, coverage: Tensor | None) -> Tensor:
        """Notes the continuations that end; `(A, K)`, True for the slots they come from."""
        ended = torch.zeros_like(self.totals, dtype=torch.bool)
        first = self.options.beam
        ends = (reached.tokens[:, :first] == self.model.eos) & (reached.totals[:, :first] > -torch.inf)
        if not ends.any():
            return ended
        places, ranks = ends.nonzero(as_tuple=True)
        slots = reached.parents[places, ranks]
        scores = self._note(places, slots, reached.totals[places, ranks], coverage, reached.log_probs[places, ranks])
        table = torch.full_like(reached.totals[:, :first], -torch.inf)
        table[places, ranks] = scores
        self.best = torch.cat([self.best, table], 1).topk(self.options.n_best, dim=1).values
        self.finished = self.finished + ends.sum(1)
        ended[places, slots] = True
        return ended

    def _done(self, live: Continuations) -> Tensor:
        """`(A,)`: True for sentences whose search is over."""
        # With fewer than n finished the least of the best is minus infinity, which only a beam without life falls to.
        # Steered continuations are not in the order of their totals.
        hopeless = live.totals.amax(1) / self.ceilings <= self.best[:, -1]
        return hopeless | (self.finished >= self.enough) | (self.limits <= len(self.trace))

    def _cut(self, done: Tensor, ended: Tensor) -> None:
        """Notes, where a search is over with fewer than n finished, the hypotheses that were alive before this step."""
        short = done & (self.finished < self.options.n_best)
        if short.any():
            alive = short[:, None] & ~ended & (self.totals > -torch.inf)
            places, slots = alive.nonzero(as_tuple=True)
            self._note(places, slots, self.totals[places, slots], self.coverage, None)

    def _note(
        self, places: Tensor, slots: Tensor, totals: Tensor, coverage: Tensor | None, ends: Tensor | None
    ) -> Tensor:
        """Adds endings, given their sentences' places, slots, totals and end log-probs; their scores, `(n,)` each."""
        number = len(self.trace)
        sentences = self.sentences[places]
        covered = None if coverage is None else coverage[places, slots]
        scores = self.ranking.score(totals, number + (ends is not None), covered, self.mask[sentences])
        end_log_probs = [None] * len(places) if ends is None else ends.tolist()
        for sentence, slot, end, score in zip(
            sentences.tolist(), slots.tolist(), end_log_probs, scores.tolist(), strict=True
        ):
            self.endings[sentence].append(Ending(sentence, number, slot, end, score))
        return scores
