"""Controls: what steers the choice of the next token, given what each row has written.

Shapes: B sentences, R rows (hypotheses), t tokens written so far, V outcomes, P the longest prefix, n a gram's length.

A control makes new scores of old ones, which at first are the model's log-probabilities: minus infinity for what must
not be chosen, less for what should rather not be. Search chooses, prunes and ranks by scores; the log-probabilities it
reports stay the model's own. Scores never exceed 0, so that a hypothesis can only get worse as it grows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from sightline.hypothesis import SearchOptions


@dataclass(frozen=True)
class Written:
    """What rows have written: `tokens` `(R, t)` without the start symbol, and `sentences` `(R,)`, each row's own."""

    tokens: Tensor
    sentences: Tensor

    @property
    def length(self) -> int:
        """t, the same for all rows."""
        return self.tokens.size(1)

    def follow(self, rows: Tensor, tokens: Tensor) -> Written:
        """One token later: `rows` `(R',)` of the rows go on, each with its next of `tokens` `(R',)`."""
        return Written(torch.cat([self.tokens[rows], tokens[:, None]], 1), self.sentences[rows])


class Control(Protocol):
    """Gives the scores `(R, V)` of next tokens that rows with this history should have; leaves its input alone."""

    def __call__(self, scores: Tensor, written: Written) -> Tensor: ...


class RepetitionPenalty:
    """Multiplies the scores of tokens that the row has written by `penalty`, once, however often it wrote them.

    That is the rule of CTRL (Keskar et al. 2019, section 4.1), which divides such a token's logit by the penalty,
    for log-probabilities: these are never positive, so dividing would reward, and multiplying makes p into
    p^penalty. The others are not rescaled: a penalty on one token lifts no other. The end symbol is never penalised.
    """

    def __init__(self, penalty: float) -> None:
        self.penalty = penalty

    def __call__(self, scores: Tensor, written: Written) -> Tensor:
        again = scores.gather(1, written.tokens)  # (R, t)
        return scores.scatter(1, written.tokens, again * self.penalty)


class NoRepeat:
    """Forbids every token that would make the row's last n tokens ones that it has written before, in this order."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __call__(self, scores: Tensor, written: Written) -> Tensor:
        if written.length < self.size:
            return scores
        grams = written.tokens.unfold(1, self.size, 1)  # (R, t - n + 1, n)
        latest = written.tokens[:, written.length - self.size + 1 :]  # (R, n - 1)
        repeated = (grams[..., :-1] == latest[:, None]).all(-1)  # (R, t - n + 1)
        rows, places = repeated.nonzero(as_tuple=True)
        return _forbid(scores, rows, grams[rows, places, -1])


class ForbiddenPhrases:
    """Forbids the last token of a phrase to every row that has just written the others.

    A phrase may begin with the start symbol, which stands before everything written, and end with the end symbol.
    """

    def __init__(self, phrases: Sequence[Sequence[int]], bos: int, device: torch.device) -> None:
        self.bos = bos
        lasts: defaultdict[tuple[int, ...], set[int]] = defaultdict(set)
        for *others, last in phrases:
            lasts[tuple(others)].add(last)
        self.always = torch.tensor(sorted(lasts.pop((), ())), dtype=torch.long, device=device)
        self.lasts = {others: sorted(ids) for others, ids in lasts.items()}
        self.lengths = sorted({len(others) for others in lasts})
        # Only rows whose latest token is one of these can be about to complete a phrase: mostly few.
        self.watched = torch.tensor(sorted({others[-1] for others in lasts}), dtype=torch.long, device=device)

    def __call__(self, scores: Tensor, written: Written) -> Tensor:
        if len(self.always):
            scores = scores.index_fill(1, self.always, -torch.inf)
        if not self.lengths:
            return scores
        history = functional.pad(written.tokens, (1, 0), value=self.bos)
        candidates = torch.isin(history[:, -1], self.watched).nonzero()[:, 0]
        tails = history[candidates, -self.lengths[-1] :].tolist()
        rows, ids = [], []
        for row, tail in zip(candidates.tolist(), tails, strict=True):
            for length in self.lengths:
                # A length beyond the tail's looks the tail up once more: what it finds is forbidden anyway.
                for last in self.lasts.get(tuple(tail[-length:]), ()):
                    rows.append(row)
                    ids.append(last)
        return _forbid(scores, _indices(rows, scores), _indices(ids, scores))


def make_controls(options: SearchOptions, bos: int, device: torch.device) -> list[Control]:
    """The controls that the options ask for, in the order in which they apply; none costs nothing."""
    controls: list[Control] = []
    if options.repetition_penalty != 1:
        controls.append(RepetitionPenalty(options.repetition_penalty))
    if options.no_repeat:
        controls.append(NoRepeat(options.no_repeat))
    if options.forbidden:
        controls.append(ForbiddenPhrases(options.forbidden, bos, device))
    return controls


def _forbid(scores: Tensor, rows: Tensor, ids: Tensor) -> Tensor:
    """The scores with minus infinity at the places `(rows, ids)`, which may repeat."""
    return scores.index_put((rows, ids), scores.new_tensor(-torch.inf)) if len(rows) else scores


def _indices(values: list[int], like: Tensor) -> Tensor:
    return torch.tensor(values, dtype=torch.long, device=like.device)
