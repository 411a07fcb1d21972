"""Search: from a model's steps to its best translations. It knows the step protocol and nothing else of a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sightline.batch import Batch
from sightline.hypothesis import Hypothesis, Request, SearchOptions
from sightline.search.beam import beam_search
from sightline.search.diverse import diverse_beam_search
from sightline.search.greedy import greedy_search
from sightline.search.protocol import Step, StepModel
from sightline.search.sampling import sample_search

__all__ = [
    "Hypothesis",
    "Request",
    "SearchOptions",
    "Step",
    "StepModel",
    "beam_search",
    "diverse_beam_search",
    "greedy_search",
    "sample_search",
    "search",
]


def search(
    model: StepModel,
    batch: Batch,
    options: SearchOptions | None = None,
    requests: Sequence[Request] | None = None,
) -> list[list[Hypothesis]]:
    """The hypotheses of each sentence that `options.strategy` finds, in the batch's order; `requests`, one a sentence.

    Best first; samples in the order drawn. For "mbr" they are all the candidates: choosing among them needs their text.
    """
    options = options or SearchOptions()
    if options.sampled:
        return sample_search(model, batch, options, requests)
    if options.strategy == "mbr":
        options = replace(options, strategy="beam", n_best=options.beam)
    if options.width == 1:
        return [[hypothesis] for hypothesis in greedy_search(model, batch, options)]
    if options.groups > 1:
        return diverse_beam_search(model, batch, options)
    return beam_search(model, batch, options)
