"""What the translator asks of an engine: no torch here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from sightline.config import AlignmentConfig
from sightline.hypothesis import Hypothesis, Request, SearchOptions

Ids = Sequence[int]
Watch = Callable[[int], None]


@dataclass(frozen=True)
class Task:
    """All that an engine is told beside the sources.

    `requests` has one for each source, or none at all. `align`: hypotheses should carry the weights that tell the
    alignment under `alignment`, where that costs no second pass. `token_scores`: hypotheses must carry the
    log-probability of each token, and scores must be exact. Without it `token_log_probs` may be empty, and scores a
    little off (by less than 0.01, by more with a shortlist) or, of a greedy search, not a number: which spares some
    engines a second pass and a softmax. Text alone needs neither.
    """

    options: SearchOptions
    alignment: AlignmentConfig
    requests: tuple[Request, ...] = ()
    align: bool = False
    token_scores: bool = False


class Engine(Protocol):
    """Searches for translations of token ids."""

    name: str

    def refuses(self, task: Task) -> str | None:
        """What this engine cannot do of the task, as in "it cannot …"; None when it can do all of it."""
        ...

    def search(self, sources: Sequence[Ids], task: Task, watch: Watch) -> list[list[Hypothesis]]:
        """Hypotheses of each source (ids with their end symbol), best first, in the sources' order.

        Sources may be many: the engine makes its own batches, and tells `watch` how many sources more are done.
        """
        ...

    def token_log_probs(self, pairs: Sequence[tuple[Ids, Ids]]) -> list[list[float]]:
        """The log-probability of each target token given its source, both with their end symbols."""
        ...
