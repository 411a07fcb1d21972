"""Greedy search: the most probable token at every step; and the walk that it shares with other ways to choose one.

Shapes: B sentences, A of them not yet ended, V outcomes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Protocol

import torch
from torch import Tensor

from sightline.batch import Batch
from sightline.hypothesis import Hypothesis, Request, SearchOptions
from sightline.search.candidates import next_tokens
from sightline.search.lengths import length_limits
from sightline.search.processors import Ranking
from sightline.search.protocol import StepModel
from sightline.search.steering import Steering
from sightline.search.trace import Ending, Trace


def greedy_search(
    model: StepModel,
    batch: Batch,
    options: SearchOptions | None = None,
    requests: Sequence[Request] | None = None,
) -> list[Hypothesis]:
    """One hypothesis a sentence, in the batch's order; `beam`, `n_best` and `patience` play no part.

    Among equally probable tokens the lowest id is taken.
    """
    walk = Walk(model, batch, options or SearchOptions(), requests)
    for _ in walk.steps():
        pass
    return walk.results()


class Choose(Protocol):
    """Chooses a token for each of A rows: its score (minus infinity: there is none) and its id, both `(A,)`.

    It gets the scores of all tokens `(A, V)`, each row's sentence `(A,)`, and whether the end may be chosen.
    """

    def __call__(self, model: StepModel, scores: Tensor, sentences: Tensor, may_end: bool) -> tuple[Tensor, Tensor]: ...


def most_probable(model: StepModel, scores: Tensor, sentences: Tensor, may_end: bool) -> tuple[Tensor, Tensor]:
    """The token with the best score of each row: that score and the id, both `(A,)`; see `Choose`."""
    values, ids = next_tokens(model, scores, 1, may_end)
    place = values.argmax(1, keepdim=True)  # the first, so the lowest id, among equals
    return values.gather(1, place)[:, 0].double(), ids.gather(1, place)[:, 0]


class Walk:
    """One hypothesis a sentence, token by token. Each stops at its end symbol or limit, and then leaves the batch."""

    def __init__(
        self,
        model: StepModel,
        batch: Batch,
        options: SearchOptions,
        requests: Sequence[Request] | None = None,
        choose: Choose = most_probable,
    ) -> None:
        self.model, self.batch, self.options, self.choose = model, batch, options, choose
        self.ranking = Ranking(options)
        self.steering = Steering(model, batch, options, requests)
        self.mask = batch.source_mask
        self.limits = length_limits(model, batch, options, requests).to(self.mask.device)  # (B,)
        self.trace = Trace()
        self.endings: list[Ending] = []

    @torch.no_grad()
    def steps(self) -> Iterator[Tensor]:
        """Goes on until all have stopped; gives, after each step, the new tokens `(A,)` of those that have not."""
        model, trace = self.model, self.trace
        sentences = torch.arange(self.batch.size, device=self.mask.device)  # (A,)
        tokens = torch.full_like(sentences, model.bos)
        totals = torch.zeros_like(sentences, dtype=torch.double)  # (A,), sums of scores
        state = model.start(self.batch)
        while len(sentences):
            number = len(trace)  # of this step, from 0, and so of the tokens before it
            step = model.step(tokens, state)
            self.ranking.check(step.weights, self.mask)
            may_end = number >= self.options.min_length
            scores, tokens = self.choose(model, self.steering(step.log_probs), sentences, may_end)
            log_probs = step.log_probs.gather(1, tokens[:, None]).double()  # (A, 1)
            trace.add(sentences, torch.zeros_like(tokens)[:, None], tokens[:, None], log_probs, step.weights)
            ended = (tokens == model.eos) & (scores > -torch.inf)
            stopped = ended | (scores == -torch.inf) | (self.limits[sentences] <= number)
            reached = totals + scores
            if stopped.any():
                self._note(stopped, ended, sentences, log_probs[:, 0], torch.where(ended, reached, totals))
            going = (~stopped).nonzero()[:, 0]
            state = step.state if len(going) == len(sentences) else step.state.keep(going)
            sentences, tokens, totals = sentences[going], tokens[going], reached[going]
            self.steering.follow(going, tokens)
            yield tokens

    def _note(self, stopped: Tensor, ended: Tensor, sentences: Tensor, log_probs: Tensor, totals: Tensor) -> None:
        """Remembers the rows that `stopped`, by their end symbol where they `ended`: `(A,)` each, as all the rest."""
        parts = (sentences, ended, log_probs, totals)
        for sentence, ends, log_prob, total in zip(*(part[stopped].tolist() for part in parts), strict=True):
            self.endings.append(Ending(sentence, len(self.trace) - 1, 0, log_prob if ends else None, total))

    def results(self) -> list[Hypothesis]:
        """The hypothesis of each sentence, in the batch's order, when all have stopped."""
        endings = sorted(self.endings, key=lambda ending: ending.sentence)
        found = self.trace.hypotheses(endings, self.mask)
        return [replace(one, score=self.ranking.score_of(one, total=one.score)) for one in found]
