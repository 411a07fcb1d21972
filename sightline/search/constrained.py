"""Beam search that must write given words: dynamic beam allocation (Post and Vilar 2018).

Shapes: B sentences, A of them still searched, K hypotheses a sentence (one before the first token), V outcomes.

The beam's seats are shared among banks, one for each number of tokens that the constraints still need, so that
hypotheses which have written some of them do not have to compete with those that have written none. Candidates are the
continuations of plain beam search, every live hypothesis's best continuation, and every token that brings one of its
constraints nearer. Nothing ends that still needs a token, and those that need nothing are a beam of their own when ends
are judged. A search does not stop while a hypothesis that still needs something does better than the best finished one,
which may have written its words too early. With no constraints there is one bank, and this is plain beam search.
Candidates are handled sentence by sentence in lists: they are few beside the model's work.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import cycle

import torch
from torch import Tensor

from sightline.batch import Batch
from sightline.hypothesis import Hypothesis, Request, SearchOptions
from sightline.search.beam import Beam, Continuations, best_continuations
from sightline.search.candidates import next_tokens
from sightline.search.constraints import Constraints, Progress, check_constraints
from sightline.search.lengths import length_limits
from sightline.search.protocol import StepModel
from sightline.search.steering import check_width, checked_requests

# A seat for each bank is what a beam should have; steps between widths would only split batches into smaller ones.
WIDTHS = (4, 8, 16)


def constrained_search(
    model: StepModel, batch: Batch, options: SearchOptions, requests: Sequence[Request]
) -> list[list[Hypothesis]]:
    """As `beam_search`, every hypothesis with the words its sentence's request asks for.

    If they cannot all be written within the length limit, the first is the best of those that have most. `honoured`
    tells of each constraint.
    """
    beam = constrained_beam(model, batch, options, requests)
    for _ in beam.steps():
        pass
    return [
        [with_honoured(one, request, model.bos) for one in found]
        for found, request in zip(beam.results(), requests, strict=True)
    ]


def constrained_beam(
    model: StepModel, batch: Batch, options: SearchOptions, requests: Sequence[Request], remember: bool = False
) -> Beam:
    """The search of one batch with constraints, not yet begun; `remember` as for `Beam`."""
    requests = checked_requests(model, batch, requests)
    check_constraints(model, requests, length_limits(model, batch, options, requests).tolist())
    return Beam(model, batch, options, requests, Banks(model, options.beam, requests), remember)


def widened(options: SearchOptions, request: Request, bos: int) -> SearchOptions:
    """The options with the beam that this request's constraints need: a seat a bank, as far as `WIDTHS` go."""
    if not request.constraints:
        return options
    constraints = Constraints(request, bos)
    banks = constraints.need(constraints.start) + 1
    width = next((width for width in WIDTHS if width >= banks), WIDTHS[-1])
    return replace(options, beam=max(options.beam, width))


def with_honoured(hypothesis: Hypothesis, request: Request, bos: int) -> Hypothesis:
    """The hypothesis, told which constraints of its request it has met."""
    return replace(hypothesis, honoured=Constraints(request, bos).honoured(hypothesis.tokens))


_Continuation = tuple[int, int, float, float]
"""Slot, token, total score and the token's log-probability."""


@dataclass(frozen=True)
class _Candidate:
    """A continuation of the hypothesis in `slot` by `token`, and what it needs after it."""

    total: float
    log_prob: float
    token: int
    slot: int
    progress: Progress
    need: int


class Banks:
    """The choice of continuations bank by bank; see `sightline.search.beam.Choice`."""

    def __init__(self, model: StepModel, beam: int, requests: Sequence[Request]) -> None:
        self.model, self.beam = model, beam
        self.constraints = [Constraints(request, model.bos) for request in requests]  # A
        self.progress = [[constraints.start] for constraints in self.constraints]  # A lists of K
        self.coming = self.progress
        self.hopes: Tensor | None = None
        every = [id for request in requests for constraint in request.constraints for ids in constraint for id in ids]
        self.highest = max(every, default=0)

    def __call__(
        self, log_probs: Tensor, scores: Tensor, totals: Tensor, may_end: bool
    ) -> tuple[Continuations, Continuations]:
        """See `Choice`. Ends are judged among the continuations of those that need nothing, a beam of their own."""
        check_width(self.highest, log_probs, "a constraint")
        needs = [
            [constraints.need(progress) for progress in among]
            for constraints, among in zip(self.constraints, self.progress, strict=True)
        ]
        needy = torch.tensor(needs, device=totals.device) > 0  # (A, K)
        eos = torch.tensor([self.model.eos], device=scores.device)
        ends = scores.index_select(1, eos).masked_fill(needy.flatten()[:, None], -torch.inf)
        scores = scores.index_copy(1, eos, ends)
        ending, reached = (
            best_continuations(self.model, log_probs, scores, among, self.beam, may_end)
            for among in (totals.masked_fill(needy, -torch.inf), totals)
        )
        extra = self._wanted(log_probs, scores, totals, may_end)
        living = [
            share(self._living(place, [*_listed(ending, place), *_listed(reached, place), *extra[place]]), self.beam)
            for place in range(len(totals))
        ]
        self.coming = [[one.progress for one in _filled(among, self.beam)] for among in living]
        needing = [[one.total for one in among if one.need] for among in living]
        self.hopes = totals.new_tensor([max(among, default=-torch.inf) for among in needing])
        return ending, self._continuations(living, totals)

    def keep(self, going: Tensor) -> None:
        """See `Choice`."""
        places = going.tolist()
        self.constraints = [self.constraints[place] for place in places]
        self.progress = [self.coming[place] for place in places]

    def met(self, place: int, slot: int) -> int:
        """See `Choice`."""
        return sum(self.constraints[place].met(self.progress[place][slot]))

    def _living(self, place: int, found: list[_Continuation]) -> list[_Candidate]:
        """The different ones of a sentence's continuations that are possible and do not end, best first.

        Ties go as in plain beam search: to the better hypothesis, then to the lower id.
        """
        constraints, among = self.constraints[place], self.progress[place]
        kept = {}
        for slot, token, total, log_prob in found:
            if total > -torch.inf and token != self.model.eos and (slot, token) not in kept:
                progress = constraints.advance(among[slot], token)
                kept[slot, token] = _Candidate(total, log_prob, token, slot, progress, constraints.need(progress))
        return sorted(kept.values(), key=lambda one: (-one.total, one.slot, one.token))

    def _wanted(self, log_probs: Tensor, scores: Tensor, totals: Tensor, may_end: bool) -> list[list[_Continuation]]:
        """For each sentence every hypothesis's best continuation, and those its constraints want."""
        values, ids = next_tokens(self.model, scores, 1, may_end)
        best = ids.gather(1, values.argmax(1, keepdim=True))[:, 0].tolist()
        alive = (values > -torch.inf).any(1).tolist()
        width = totals.size(1)
        rows, tokens = [], []
        for place, (constraints, among) in enumerate(zip(self.constraints, self.progress, strict=True)):
            for row, progress in enumerate(among, start=place * width):
                chosen = constraints.wanted(progress) | ({best[row]} if alive[row] else set())
                rows += [row] * len(chosen)
                tokens += sorted(chosen)
        where = tuple(torch.tensor(part, dtype=torch.long, device=scores.device) for part in (rows, tokens))
        sums = (totals.flatten()[where[0]] + scores[where].double()).tolist()
        own = log_probs[where].double().tolist()
        found: list[list[_Continuation]] = [[] for _ in self.constraints]
        for row, token, total, log_prob in zip(rows, tokens, sums, own, strict=True):
            found[row // width].append((row % width, token, total, log_prob))
        return found

    def _continuations(self, chosen: list[list[_Candidate]], totals: Tensor) -> Continuations:
        """Lists of candidates as tensors `(A, K)`; free places repeat the first, with minus infinity."""
        free = [[-torch.inf] * (self.beam - len(among)) for among in chosen]
        sums = [[*(one.total for one in among), *rest] for among, rest in zip(chosen, free, strict=True)]
        filled = [_filled(among, self.beam) for among in chosen]
        own = [[one.log_prob for one in among] for among in filled]
        tokens = [[one.token for one in among] for among in filled]
        slots = [[one.slot for one in among] for among in filled]
        floats = [torch.tensor(part, dtype=torch.double, device=totals.device) for part in (sums, own)]
        integers = [torch.tensor(part, dtype=torch.long, device=totals.device) for part in (tokens, slots)]
        return Continuations(*floats, *integers)


def share(candidates: list[_Candidate], seats: int) -> list[_Candidate]:
    """The candidates that get one of the seats, in their order, best first.

    Banks take a seat each in turn, the one that needs least first, as long as they have candidates; with more banks
    than seats, those that need most get none.
    """
    left = Counter(one.need for one in candidates)
    given: Counter[int] = Counter()
    for bank in cycle(sorted(left)):
        if given.total() == min(seats, len(candidates)):
            break
        if given[bank] < left[bank]:
            given[bank] += 1
    chosen = []
    for one in candidates:
        if given[one.need]:
            given[one.need] -= 1
            chosen.append(one)
    return chosen


def _listed(found: Continuations, place: int) -> list[_Continuation]:
    """The continuations of one sentence."""
    parts = (found.parents, found.tokens, found.totals, found.log_probs)
    return list(zip(*(part[place].tolist() for part in parts), strict=True))


def _filled(candidates: list[_Candidate], count: int) -> list[_Candidate]:
    """`count` candidates, the first again where there are fewer; where there are none, ones that are never read."""
    first = candidates[0] if candidates else _Candidate(-torch.inf, -torch.inf, 0, 0, (), 0)
    return candidates + [first] * (count - len(candidates))
