"""What a translation is: no torch here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sightline import links


@dataclass(frozen=True)
class Translation:
    """What became of one line.

    `score` ranks translations of one source (penalties included), `log_prob` is the sum over tokens. `ids` and
    `tokens` are the model's pieces. `links` are pairs (source word, target word) of `source_words` and `words`; they
    and `weights`, the attention (words, source words) they were read from, are there when an alignment was asked for.
    `others` are the rest of the n best.
    """

    source: str
    text: str
    score: float
    log_prob: float
    ids: list[int]
    tokens: list[str]
    token_log_probs: list[float]
    finished: bool
    words: list[str] = field(default_factory=list)
    source_words: list[str] = field(default_factory=list)
    links: list[tuple[int, int]] | None = None
    weights: NDArray[np.float64] | None = None
    others: list[Translation] = field(default_factory=list)

    @property
    def alignment(self) -> str | None:
        """The links as Pharaoh's `0-0 1-2`, source first."""
        return None if self.links is None else links.to_pharaoh(self.links)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        values: dict[str, Any] = {
            "source": self.source,
            "text": self.text,
            "score": self.score,
            "log_prob": self.log_prob,
            "tokens": self.tokens,
            "token_log_probs": self.token_log_probs,
            "finished": self.finished,
        }
        if self.links is not None:
            values |= {"source_words": self.source_words, "words": self.words, "alignment": self.alignment}
        if self.others:
            values["others"] = [other.as_dict() for other in self.others]
        return values


def nothing(source: str, align: bool) -> Translation:
    """The translation of a line that holds nothing, or that gets none."""
    return Translation(source, "", 0.0, 0.0, [], [], [], True, links=[] if align else None)
