"""Greedy search: the most probable token at every step.

Shapes: B sentences, A of them not yet ended.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from sightline.batch import Batch
from sightline.hypothesis import Hypothesis, SearchOptions
from sightline.search.candidates import next_tokens
from sightline.search.lengths import length_limits
from sightline.search.processors import Ranking
from sightline.search.protocol import StepModel
from sightline.search.trace import Ending, Trace


@torch.no_grad()
def greedy_search(model: StepModel, batch: Batch, options: SearchOptions | None = None) -> list[Hypothesis]:
    """One hypothesis a sentence, in the batch's order; `beam`, `n_best` and `patience` play no part.

    Every sentence stops on its own, at its end symbol or its length limit, and then leaves the batch.
    Among equally probable tokens the lowest id is taken.
    """
    options = options or SearchOptions()
    ranking, mask = Ranking(options), batch.sources[0].mask
    limits = length_limits(model, batch, options).to(mask.device)
    sentences = torch.arange(batch.size, device=mask.device)  # (A,)
    tokens = torch.full_like(sentences, model.bos)
    state, trace = model.start(batch), Trace()
    endings: list[Ending] = []
    while len(sentences):
        number = len(trace)  # of this step, from 0, and so of the tokens before it
        step = model.step(tokens, state)
        ranking.check(step.weights, mask)
        log_probs, tokens = _best(model, step.log_probs, may_end=number >= options.min_length)
        trace.add(sentences, torch.zeros_like(tokens)[:, None], tokens[:, None], log_probs[:, None], step.weights)
        ended = (tokens == model.eos) & (log_probs > -torch.inf)
        stopped = ended | (log_probs == -torch.inf) | (limits[sentences] <= number)
        for place in stopped.nonzero()[:, 0].tolist():
            end_log_prob = float(log_probs[place]) if ended[place] else None
            endings.append(Ending(int(sentences[place]), number, 0, end_log_prob))
        going = (~stopped).nonzero()[:, 0]
        state = step.state if len(going) == len(sentences) else step.state.keep(going)
        sentences, tokens = sentences[going], tokens[going]
    endings.sort(key=lambda ending: ending.sentence)
    return [replace(found, score=ranking.score_of(found)) for found in trace.hypotheses(endings, mask)]


def _best(model: StepModel, log_probs: Tensor, may_end: bool) -> tuple[Tensor, Tensor]:
    """The most probable allowed token of each row: log-probability and id, both `(A,)`."""
    values, ids = next_tokens(model, log_probs, 1, may_end)
    place = values.argmax(1, keepdim=True)  # the first, so the lowest id, among equals
    return values.gather(1, place)[:, 0].double(), ids.gather(1, place)[:, 0]
