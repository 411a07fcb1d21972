"""Search: from a model's steps to its best translations. It knows the step protocol and nothing else of a model."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from sightline.batch import Batch
from sightline.hypothesis import Hypothesis, Request, SearchOptions, Streamed
from sightline.search.beam import beam_search
from sightline.search.constrained import constrained_search, widened
from sightline.search.constraints import check_constraints
from sightline.search.greedy import greedy_search
from sightline.search.lengths import length_limits
from sightline.search.protocol import Step, StepModel
from sightline.search.steering import checked_requests
from sightline.search.streaming import stream

__all__ = [
    "Hypothesis",
    "Request",
    "SearchOptions",
    "Step",
    "StepModel",
    "Streamed",
    "beam_search",
    "constrained_search",
    "greedy_search",
    "search",
    "stream",
]


def search(
    model: StepModel,
    batch: Batch,
    options: SearchOptions | None = None,
    requests: Sequence[Request] | None = None,
) -> list[list[Hypothesis]]:
    """The n best hypotheses of each sentence, best first: by greedy search with a beam of 1, by beam search else.

    `requests` has one for each sentence. Sentences with constraints get the constrained beam search, with a beam as
    wide as their constraints need; the others are not touched by it, so that a sentence's result does not depend on
    what else is in the batch.
    """
    options = options or SearchOptions()
    requests = checked_requests(model, batch, requests)
    if not any(request.constraints for request in requests):
        return _unconstrained(model, batch, options, requests)
    check_constraints(model, requests, length_limits(model, batch, options, requests).tolist())
    groups: defaultdict[int | None, list[int]] = defaultdict(list)  # by the width of the constrained beam
    for place, request in enumerate(requests):
        groups[widened(options, request, model.bos).beam if request.constraints else None].append(place)
    found: dict[int, list[Hypothesis]] = {}
    for width, places in groups.items():
        part, asked = batch.rows(places), [requests[place] for place in places]
        if width is None:
            results = _unconstrained(model, part, options, asked)
        else:
            results = constrained_search(model, part, replace(options, beam=width), asked)
        found |= dict(zip(places, results, strict=True))
    return [found[place] for place in range(batch.size)]


def _unconstrained(
    model: StepModel, batch: Batch, options: SearchOptions, requests: Sequence[Request]
) -> list[list[Hypothesis]]:
    if options.beam == 1:
        return [[hypothesis] for hypothesis in greedy_search(model, batch, options, requests)]
    return beam_search(model, batch, options, requests)
