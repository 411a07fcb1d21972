"""Beam search over all sentences of a batch at once.

Shapes: B sentences, A of them still searched, K hypotheses a sentence (one before the first token), C = 2K candidates,
S source positions, V outcomes, N the n best. Steps are numbered from 0; at step t live hypotheses have t tokens.

The rules:
- Live hypotheses have one length, so they are pruned by plain log-probability; penalties rank only what is finished.
- Of each sentence's 2K best continuations, those that end and are among the first K are finished (with K = 1 that is
  greedy search); the first K that do not end live on. One end a hypothesis at most, so K always remain.
- A sentence's search stops when it has as many finished hypotheses as `stopping` wants, when no live one can still
  enter the n best, or at its length limit. What is alive then was cut: it ranks after everything finished, by score.
- Where controls steer, their scores stand for log-probabilities in all of this, but not in what is reported.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from sightline.batch import Batch
from sightline.hypothesis import Hypothesis, Request, SearchOptions
from sightline.search.candidates import next_tokens
from sightline.search.lengths import length_limits
from sightline.search.processors import Ranking
from sightline.search.protocol import Step, StepModel
from sightline.search.steering import Steering
from sightline.search.trace import Ending, Trace
from sightline.state import State


def beam_search(
    model: StepModel,
    batch: Batch,
    options: SearchOptions | None = None,
    requests: Sequence[Request] | None = None,
) -> list[list[Hypothesis]]:
    """Up to `n_best` different hypotheses a sentence (fewer only if there are no more), best first, in batch order."""
    beam = Beam(model, batch, options or SearchOptions(), requests)
    for _ in beam.steps():
        pass
    return beam.results()


@dataclass(frozen=True)
class Continuations:
    """Hypotheses one token on, best first: total score, last token's log-probability, last token, parent's slot.

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


def best_continuations(
    model: StepModel,
    log_probs: Tensor,
    scores: Tensor,
    totals: Tensor,
    beam: int,
    may_end: bool,
    merits: Tensor | None = None,
) -> Continuations:
    """The 2K best continuations of hypotheses with `totals` `(A, K)`, given the step's `scores` `(A * K, V)`.

    Sums are taken in double precision of each row's own best, so that rounding makes no ties; ties that remain go to
    the better hypothesis, then to the lower id. `log_probs` `(A * K, V)` are the model's own. With `merits`
    `(A * K, V)`, these decide which are best, and only that: sums are of the scores all the same.
    """
    values, ids = next_tokens(model, scores if merits is None else merits, 2 * beam, may_end)
    own = values if merits is None and scores is log_probs else log_probs.gather(1, ids)
    each, before = values.size(1), totals.repeat_interleave(values.size(1), 1)
    own, values, ids = (part.reshape(len(totals), -1) for part in (own.double(), values.double(), ids))
    sums, order = (before + values).sort(dim=1, descending=True, stable=True)
    if merits is not None:
        earned = scores.gather(1, ids.view(len(scores), -1)).double().reshape(values.shape)
        sums = (before + earned.where(values > -torch.inf, -torch.inf)).gather(1, order)
    sums, order = sums[:, : 2 * beam], order[:, : 2 * beam]
    missing = 2 * beam - order.size(1)
    sums, order = functional.pad(sums, (0, missing), value=-torch.inf), functional.pad(order, (0, missing))
    return Continuations(sums, own.gather(1, order), ids.gather(1, order), order // each)


class Choice(Protocol):
    """Which continuations are taken. It may keep something for each live hypothesis, which follows them by `keep`.

    `hopes` `(A,)`: the best total among those chosen to live on that are still to meet a constraint; None without any.
    """

    hopes: Tensor | None

    def __call__(
        self, log_probs: Tensor, scores: Tensor, totals: Tensor, may_end: bool
    ) -> tuple[Continuations, Continuations]:
        """Those that may finish, in the first K places, and the K that live on, best first, free places as `living`'s.

        From log-probabilities and scores `(A * K, V)` and the totals so far `(A, K)`.
        """
        ...

    def keep(self, going: Tensor) -> None:
        """The sentences at the places `going` go on with those that live on."""
        ...

    def met(self, place: int, slot: int) -> int:
        """How many constraints a hypothesis had met before this step."""
        ...


class BestFirst:
    """The choice of plain beam search: by score alone, but for a penalty `(A * K, V)` that may be set for a step."""

    hopes: Tensor | None = None
    penalty: Tensor | None = None

    def __init__(self, model: StepModel, beam: int) -> None:
        self.model, self.beam = model, beam

    def __call__(
        self, log_probs: Tensor, scores: Tensor, totals: Tensor, may_end: bool
    ) -> tuple[Continuations, Continuations]:
        """See `Choice`."""
        merits = None if self.penalty is None else scores - self.penalty
        reached = best_continuations(self.model, log_probs, scores, totals, self.beam, may_end, merits)
        return reached, reached.living(self.model.eos, self.beam)

    def keep(self, going: Tensor) -> None:
        """See `Choice`."""

    def met(self, place: int, slot: int) -> int:
        """See `Choice`."""
        return 0


class Beam:
    """The search of one batch. What is indexed by A shrinks as sentences are done.

    `remember`: keeps what live hypotheses have written in `steering.written`, whether or not a control needs it.
    `steps` searches to the end. `choose` and `keep`, the halves of a step, are for a search that has several beams.
    """

    def __init__(
        self,
        model: StepModel,
        batch: Batch,
        options: SearchOptions,
        requests: Sequence[Request] | None = None,
        choice: Choice | None = None,
        remember: bool = False,
    ) -> None:
        self.model = model
        self.batch = batch
        self.options = options
        self.choice = choice or BestFirst(model, options.beam)
        self.steering = Steering(model, batch, options, requests, remember)
        self.ranking = Ranking(options)
        wanted = {"first": options.n_best, "enough": options.beam * options.patience, "hopeless": math.inf}
        self.enough = max(options.n_best, wanted[options.stopping])
        self.trace = Trace()
        self.endings: list[list[Ending]] = [[] for _ in range(batch.size)]
        mask = self.mask = batch.source_mask  # (B, S)
        limits = length_limits(model, batch, options, requests).to(mask.device)
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

    @torch.no_grad()
    def steps(self) -> Iterator[None]:
        """Searches until all sentences are done, and stops for a moment after each step."""
        tokens = torch.full((self.batch.size,), self.model.bos, device=self.mask.device)
        state = self.model.start(self.batch)
        while len(self.sentences):
            tokens, state = self._advance(self.model.step(tokens, state))
            yield

    def results(self) -> list[list[Hypothesis]]:
        """The n best of each sentence."""
        chosen = [
            sorted(endings, key=lambda ending: (ending.end_log_prob is None, -ending.met, -ending.score))
            for endings in self.endings
        ]
        chosen = [endings[: self.options.n_best] for endings in chosen]
        found = iter(self.trace.hypotheses([ending for endings in chosen for ending in endings], self.mask))
        return [[next(found) for _ in endings] for endings in chosen]

    def _advance(self, step: Step) -> tuple[Tensor, State]:
        """Takes one step of the model; gives the next tokens `(A * K,)` and the state of what goes on."""
        live, done = self.choose(step.log_probs, step.weights)
        going = (~done).nonzero()[:, 0]
        state = step.state if len(going) == len(done) else step.state.keep(going)
        self.keep(going, live)
        tokens = live.tokens[going].flatten()
        if state.width == 1:
            return tokens, state.expand(self.options.beam)
        offsets = torch.arange(len(going), device=going.device)[:, None] * self.options.beam
        return tokens, state.reorder((offsets + live.parents[going]).flatten())

    def choose(self, log_probs: Tensor, weights: Tensor | None) -> tuple[Continuations, Tensor]:
        """Notes the hypotheses that a step ends; gives what lives on, `(A, K)`, and `(A,)`: which sentences are done.

        `log_probs` `(A * K, V)` and `weights` `(A * K, S)` are the step's.
        """
        self.ranking.check(weights, self.mask)
        may_end = len(self.trace) >= self.options.min_length
        reached, live = self.choice(log_probs, self.steering(log_probs), self.totals, may_end)
        coverage = self._cover(weights)
        ended = self._finish(reached, coverage)
        done = self._done(live)
        self._cut(done, ended)
        self.trace.add(self.sentences, live.parents, live.tokens, live.log_probs, weights)
        self.coverage = coverage
        return live, done

    def keep(self, going: Tensor, live: Continuations) -> None:
        """Goes on with the sentences at places `going` and their live continuations."""
        rows = (going[:, None] * self.totals.size(1) + live.parents[going]).flatten()
        self.steering.follow(rows, live.tokens[going].flatten())
        self.sentences, self.limits, self.ceilings = self.sentences[going], self.limits[going], self.ceilings[going]
        self.best, self.finished = self.best[going], self.finished[going]
        self.totals = live.totals[going]
        self.choice.keep(going)
        if self.coverage is not None:
            self.coverage = self.coverage[going[:, None], live.parents[going]]

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
        # Continuations that a penalty has steered are not in the order of their totals.
        hopeless = live.totals.amax(1) / self.ceilings <= self.best[:, -1]
        enough = self.finished >= self.enough
        if self.choice.hopes is not None:
            enough = enough & (self.choice.hopes / self.ranking.length(len(self.trace) + 1) <= self.best[:, 0])
        return hopeless | enough | (self.limits <= len(self.trace))

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
        for place, sentence, slot, end, score in zip(
            places.tolist(), sentences.tolist(), slots.tolist(), end_log_probs, scores.tolist(), strict=True
        ):
            met = self.choice.met(place, slot)
            self.endings[sentence].append(Ending(sentence, number, slot, end, score, met))
        return scores
