"""What a translation is: no torch here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sightline import links

if TYPE_CHECKING:
    from sightline.glossary import TermOutcome
    from sightline.required import RequiredOutcome

LATER = "_later"
"""Where a translation keeps what tells the rest of it: see `Translation.with_later`."""

Later = Mapping[tuple[str, ...], Callable[[int], tuple[Any, ...]]]


@dataclass(frozen=True)
class Flag:
    """A sign that a translation is bad: the `name` of the check that found it, `detail` for a person, and the `value`
    that went over its threshold. On a line that is translated in parts, `sentence` is the number of the part that it is
    about, from 1; what is copied is not counted."""

    name: str
    detail: str
    value: float
    sentence: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def _none() -> Any:
    return None


@dataclass(frozen=True)
class Translation:
    """What became of one line.

    `score` ranks translations of one source (penalties included), `log_prob` is the sum over tokens. `ids` and
    `tokens` are the model's pieces. `links` are pairs (source word, target word) of `source_words` and `words`; they
    and `weights`, the attention (words, source words) they were read from, are there when an alignment was asked for.
    `others` are the rest of the n best. `terms` tells what became of a glossary's terms, `required` of words that must
    be there. `flags` are the signs that it is bad; None when nobody looked for them. Where such a line was translated
    once more and that was better, `first` is the first attempt; where it was no better, `retry` is the second. `error`
    says why a line of a file has no translation.

    Where there are several sources, `source` has tabs between them, and `source_words` words that divide them, at the
    places `dividers`.

    Some of it may be worked out when it is first looked at: scores and log-probabilities, links and weights.
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
    # By factories, since a default would be found on the class where an attribute is left for later.
    links: list[tuple[int, int]] | None = field(default_factory=_none)
    weights: NDArray[np.float64] | None = field(default_factory=_none)
    others: list[Translation] = field(default_factory=list)
    terms: list[TermOutcome] | None = None
    flags: list[Flag] | None = None
    first: Translation | None = None
    retry: Translation | None = None
    required: list[RequiredOutcome] | None = None
    error: str | None = None
    dividers: tuple[int, ...] = ()

    @property
    def alignment(self) -> str | None:
        """The links as Pharaoh's `0-0 1-2`, source first; of several sources each has a column, with tabs between."""
        return None if self.links is None else links.to_pharaoh(self.links, self.dividers)

    def changed(self, **values: Any) -> Translation:
        """The same but for these; what was left for later is left for later still, unlike by `dataclasses.replace`."""
        new = object.__new__(type(self))
        new.__dict__.update({**self.__dict__, **values})
        return new

    def with_later(self, later: Later, place: int = 0) -> Translation:
        """The same with some attributes left until they are looked at.

        Attributes that are told together are a key of `later`; its value is called once, with `place`, and gives theirs
        in order. So translations that are worked out together can share one `later`: there may be very many of them.
        """
        new = object.__new__(type(self))
        new.__dict__.update(self.__dict__)
        for names in later:
            for name in names:
                new.__dict__.pop(name, None)
        new.__dict__[LATER] = later, place
        return new

    if not TYPE_CHECKING:  # else a mistyped attribute would look like one that comes later

        def __getattr__(self, name: str) -> Any:
            later, place = self.__dict__.get(LATER, ({}, 0))
            for names, tell in later.items():
                if name in names:
                    for one, value in zip(names, tell(place), strict=True):
                        self.__dict__.setdefault(one, value)
                    return self.__dict__[name]
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __getstate__(self) -> dict[str, Any]:
        """All that it has, worked out: another process has no model to ask."""
        for name in type(self).__dataclass_fields__:
            getattr(self, name)
        return {name: value for name, value in self.__dict__.items() if name != LATER}

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
        if self.required is not None:
            values["required"] = [asdict(one) for one in self.required]
        if self.flags is not None:
            values["flags"] = [flag.as_dict() for flag in self.flags]
        for name, attempt in (("first", self.first), ("retry", self.retry)):
            if attempt is not None:
                values[name] = attempt.as_dict()
        if self.error is not None:
            values["error"] = self.error
        return values


def nothing(source: str, align: bool, fields: dict[str, Any] | None = None, text: str = "") -> Translation:
    """The translation of a line that holds nothing, or that gets none, with the `fields` that others have too.

    `text` is what was typed for it: no model had a part in it, so it has no tokens.
    """
    sight: dict[str, Any] = {"links": [], "words": text.split()} if align else {}
    plain = Translation(source, text, 0.0, 0.0, [], [], [], True, **sight)
    return plain.changed(**(fields or {}))
