"""What a search asks at every step: which scores its rows' next tokens have.

Shapes: B sentences, K hypotheses a sentence at the start, R rows, V outcomes.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from sightline.batch import Batch
from sightline.errors import SightlineError
from sightline.hypothesis import Request, SearchOptions
from sightline.search.controls import Written, make_controls
from sightline.search.prefixes import Prefixes
from sightline.search.protocol import StepModel


class Steering:
    """The controls of a batch, and the memory of what its rows have written.

    When nothing is asked for, scores are the log-probabilities and nothing is remembered, unless `remember` is set.
    Rows are one a sentence at the start, or `width`; `follow` tells how they go on.
    """

    def __init__(
        self,
        model: StepModel,
        batch: Batch,
        options: SearchOptions,
        requests: Sequence[Request] | None = None,
        remember: bool = False,
        width: int = 1,
    ) -> None:
        device = batch.sources[0].mask.device
        requests = checked_requests(model, batch, requests)
        self.controls = make_controls(options, model.bos, device)
        self.prefixes = Prefixes(requests, device) if any(request.prefix for request in requests) else None
        given = [*options.forbidden, *(request.prefix for request in requests)]
        self.highest = max((id for ids in given for id in ids), default=0)
        self.written: Written | None = None
        if remember or self.controls or self.prefixes is not None:
            sentences = torch.arange(batch.size, device=device).repeat_interleave(width)
            self.written = Written(sentences.new_zeros(len(sentences), 0), sentences)

    def __call__(self, log_probs: Tensor) -> Tensor:
        """The scores `(R, V)` to choose next tokens by, from the model's log-probabilities `(R, V)`."""
        if self.written is None:
            return log_probs
        check_width(self.highest, log_probs, "a forbidden sequence or a prefix")
        scores = log_probs
        for control in self.controls:
            scores = control(scores, self.written)
        return scores if self.prefixes is None else self.prefixes(log_probs, scores, self.written)

    def follow(self, rows: Tensor, tokens: Tensor) -> None:
        """One step on: these of the rows `(R',)`, each with its next of `tokens` `(R',)`."""
        if self.written is not None:
            self.written = self.written.follow(rows, tokens)


def checked_requests(model: StepModel, batch: Batch, requests: Sequence[Request] | None) -> Sequence[Request]:
    """One request for each sentence, without any empty ones; refuses what no model can go on from."""
    if requests is None:
        return [Request()] * batch.size
    if len(requests) != batch.size:
        raise SightlineError(f"{len(requests)} requests for {batch.size} sentences: give one for each")
    special = {model.pad, model.bos, model.eos}
    for number, request in enumerate(requests, 1):
        if special & set(request.prefix):
            raise SightlineError(f"the prefix of sentence {number} holds padding, a start or an end symbol: drop it")
    return requests


def check_width(highest: int, log_probs: Tensor, where: str) -> None:
    """Raises when an id that `where` holds is not among the outcomes of `log_probs` `(R, V)`."""
    if highest >= log_probs.size(1):
        raise SightlineError(
            f"{where} holds the id {highest}, and this model has {log_probs.size(1)} outcomes: "
            "use the tokenizer of the model"
        )
