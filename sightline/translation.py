"""What a translation is: no torch here."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sightline import links

if TYPE_CHECKING:
    from sightline.glossary import TermOutcome


@dataclass(frozen=True)
class Flag:
    """A sign that a translation is bad: the `name` of the check that found it, `detail` for a person, and the `value`
    that went over its threshold."""

    name: str
    detail: str
    value: float


@dataclass(frozen=True)
class Translation:
    """What became of one line.

    `score` ranks translations of one source (penalties included), `log_prob` is the sum over tokens. `ids` and
    `tokens` are the model's pieces. `links` are pairs (source word, target word) of `source_words` and `words`; they
    and `weights`, the attention (words, source words) they were read from, are there when an alignment was asked for.
    `others` are the rest of the n best. `terms` tells what became of a glossary's terms. `flags` are the signs that it
    is bad; None when nobody looked for them. Where such a line was translated once more and that was better, `first`
    is the first attempt; where it was no better, `retry` is the second. Where there are several sources, `source` has
    tabs between them, and `source_words` words that divide them, at the places `dividers`.
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
    terms: list[TermOutcome] | None = None
    flags: list[Flag] | None = None
    first: Translation | None = None
    retry: Translation | None = None
    dividers: tuple[int, ...] = ()

    @property
    def alignment(self) -> str | None:
        """The links as Pharaoh's `0-0 1-2`, source first; of several sources each has a column, with tabs between."""
        return None if self.links is None else links.to_pharaoh(self.links, self.dividers)

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
        if self.terms is not None:
            values["terms"] = [
                {"term": one.term.source, "text": one.text, "honoured": one.honoured} for one in self.terms
            ]
        if self.flags is not None:
            values["flags"] = [asdict(flag) for flag in self.flags]
        for name, attempt in (("first", self.first), ("retry", self.retry)):
            if attempt is not None:
                values[name] = attempt.as_dict()
        return values


def nothing(source: str, align: bool) -> Translation:
    """The translation of a line that holds nothing, or that gets none."""
    return Translation(source, "", 0.0, 0.0, [], [], [], True, links=[] if align else None)
