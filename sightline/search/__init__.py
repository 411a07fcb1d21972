"""Search: from a model's steps to its best translations. It knows the step protocol and nothing else of a model."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from sightline.batch import Batch
from sightline.errors import SightlineError
from sightline.hypothesis import Hypothesis, Request, SearchOptions, Streamed
from sightline.search.beam import beam_search
from sightline.search.constrained import constrained_search, widened
from sightline.search.constraints import check_constraints
from sightline.search.diverse import diverse_beam_search
from sightline.search.greedy import greedy_search
from sightline.search.lengths import length_limits
from sightline.search.protocol import Step, StepModel
from sightline.search.sampling import sample_search
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
    "diverse_beam_search",
    "greedy_search",
    "sample_search",
    "search",
    "stream",
]


def search(
    model: StepModel,
    batch: Batch,
    options: SearchOptions | None = None,
    requests: Sequence[Request] | None = None,
) -> list[list[Hypothesis]]:
    """The hypotheses of each sentence that `options.strategy` finds, in the batch's order; `requests`, one a sentence.

    Best first; samples in the order drawn. For "mbr" they are all the candidates: choosing among them needs their text.
    Sentences with constraints get the constrained beam search, with a beam as wide as their constraints need; the
    others are not touched by it, so that a sentence's result does not depend on what else is in the batch.
    """
    options = options or SearchOptions()
    if options.strategy == "mbr" and not options.sampled:
        options = replace(options, strategy="beam", n_best=options.beam)
    requests = checked_requests(model, batch, requests)
    if not any(request.constraints for request in requests):
        return _unconstrained(model, batch, options, requests)
    if options.sampled or options.groups > 1:
        raise SightlineError("words that must occur need a beam search with one group: sampling cannot promise them")
    check_constraints(model, requests, length_limits(model, batch, options, requests).tolist())
    widths: defaultdict[int | None, list[int]] = defaultdict(list)  # of the constrained beam
    for place, request in enumerate(requests):
        widths[widened(options, request, model.bos).beam if request.constraints else None].append(place)
    found: dict[int, list[Hypothesis]] = {}
    for width, places in widths.items():
        part, asked = batch.rows(places), [requests[place] for place in places]
        if width is None:
            results = _unconstrained(model, part, options, asked)
        else:
            results = constrained_search(model, part, replace(options, strategy="beam", beam=width), asked)
        found |= dict(zip(places, results, strict=True))
    return [found[place] for place in range(batch.size)]


def _unconstrained(
    model: StepModel, batch: Batch, options: SearchOptions, requests: Sequence[Request]
) -> list[list[Hypothesis]]:
    if options.sampled:
        return sample_search(model, batch, options, requests)
    if options.width == 1:
        return [[hypothesis] for hypothesis in greedy_search(model, batch, options, requests)]
    if options.groups > 1:
        return diverse_beam_search(model, batch, options, requests)
    return beam_search(model, batch, options, requests)
