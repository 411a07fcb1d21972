"""Search: from a model's steps to its best translations. It knows the step protocol and nothing else of a model."""

from __future__ import annotations

from sightline.batch import Batch
from sightline.hypothesis import Hypothesis, Request, SearchOptions
from sightline.search.beam import beam_search
from sightline.search.greedy import greedy_search
from sightline.search.protocol import Step, StepModel

__all__ = ["Hypothesis", "Request", "SearchOptions", "Step", "StepModel", "beam_search", "greedy_search", "search"]


def search(model: StepModel, batch: Batch, options: SearchOptions | None = None) -> list[list[Hypothesis]]:
    """The n best hypotheses of each sentence, best first: by greedy search with a beam of 1, by beam search else."""
    options = options or SearchOptions()
    if options.beam == 1:
        return [[hypothesis] for hypothesis in greedy_search(model, batch, options)]
    return beam_search(model, batch, options)
