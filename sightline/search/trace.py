"""The way back: what search chose at each step, from which finished hypotheses are read at the end.

Shapes: A sentences still searched at a step, K hypotheses a sentence, S source positions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sightline.hypothesis import Hypothesis


@dataclass(frozen=True)
class Ending:
    """Where a hypothesis ends: in slot `slot` of `sentence`, having chosen a token at each step before `step`.

    `end_log_prob` is that of the end symbol, predicted at `step`, or None when the hypothesis was cut there.
    `score` is what ranks it, or what is to be known of it for that; `met` is how many constraints it has met.
    """

    sentence: int
    step: int
    slot: int
    end_log_prob: float | None
    score: float = 0.0
    met: int = 0


class Trace:
    """The choices of all steps. Nothing is copied from step to step: hypotheses are followed back by their parents."""

    def __init__(self) -> None:
        self._sentences: list[Tensor] = []
        self._choices: list[tuple[Tensor, Tensor, Tensor]] = []
        self._weights: list[Tensor] = []

    def __len__(self) -> int:
        """How many steps were taken."""
        return len(self._sentences)

    def add(
        self, sentences: Tensor, parents: Tensor, tokens: Tensor, log_probs: Tensor, weights: Tensor | None
    ) -> None:
        """One step: for `sentences` `(A,)` the slots' `parents`, `tokens` and those tokens' `log_probs`, `(A, K)` each.

        `weights` `(A * K', S)` are those the parents' rows predicted with, K' = 1 at the first step, then K.
        """
        self._sentences.append(sentences)
        self._choices.append((parents, tokens, log_probs))
        if weights is not None:
            self._weights.append(weights)

    def hypotheses(self, endings: list[Ending], mask: Tensor) -> list[Hypothesis]:
        """The hypotheses with these endings; `mask` `(B, S)` tells which columns of their weights are padding."""
        places = [{sentence: place for place, sentence in enumerate(step.tolist())} for step in self._sentences]
        choices = [tuple(part.tolist() for part in step) for step in self._choices]
        paths = [_follow(ending, places, choices) for ending in endings]
        weights = self._gather_weights(paths, endings, mask) if self._weights else [None] * len(paths)
        return [
            Hypothesis(
                path.tokens, end.score, sum(path.log_probs), path.log_probs, rows, finished=end.end_log_prob is not None
            )
            for end, path, rows in zip(endings, paths, weights, strict=True)
        ]

    def _gather_weights(
        self, paths: list[_Path], endings: list[Ending], mask: Tensor
    ) -> list[NDArray[np.float32] | None]:
        """`(T, S)` for each path, without padding's columns (kept when the weights are not over the source tokens)."""
        starts, widths, start = [], [], 0
        for step, sentences in zip(self._weights, self._sentences, strict=True):
            starts.append(start)
            widths.append(len(step) // len(sentences))
            start += len(step)
        rows = [starts[t] + place * widths[t] + slot for path in paths for t, (place, slot) in enumerate(path.rows)]
        gathered = torch.cat(self._weights)[torch.tensor(rows, dtype=torch.long, device=mask.device)].float().cpu()
        parts = [part.numpy() for part in torch.split(gathered, [len(path.rows) for path in paths])]
        if gathered.size(1) != mask.size(1):
            return [*parts]
        real = mask.cpu().numpy()
        return [part[:, real[end.sentence]] for part, end in zip(parts, endings, strict=True)]


@dataclass(frozen=True)
class _Path:
    """A hypothesis from its start: tokens, log-probabilities, and the place and slot each prediction was made in."""

    tokens: list[int]
    log_probs: list[float]
    rows: list[tuple[int, int]]


def _follow(ending: Ending, places: list[dict[int, int]], choices: list[tuple[Any, ...]]) -> _Path:
    """Walks from the ending to the start by the parents; `choices` are each step's parents, tokens and log-probs."""
    path = _Path([], [], [])
    slot = ending.slot
    if ending.end_log_prob is not None:
        path.log_probs.append(ending.end_log_prob)
        path.rows.append((places[ending.step][ending.sentence], slot))
    for step in reversed(range(ending.step)):
        place = places[step][ending.sentence]
        parents, tokens, log_probs = choices[step]
        path.tokens.append(tokens[place][slot])
        path.log_probs.append(log_probs[place][slot])
        slot = parents[place][slot]
        path.rows.append((place, slot))
    for part in (path.tokens, path.log_probs, path.rows):
        part.reverse()
    return path
