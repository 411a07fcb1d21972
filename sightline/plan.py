"""What is asked of the lines of a call, read and checked once, before any work. No torch here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sightline.config import RunConfig
from sightline.engines.base import Task
from sightline.errors import SightlineError, nearest
from sightline.folder import Tokenizers
from sightline.hypothesis import Request, SearchOptions, check_kinds
from sightline.limits import most_tokens
from sightline.sentences import Part, Preparation
from sightline.source_texts import longest_part, wrong_count
from sightline.text import EOS
from sightline.translation import Translation, nothing
from sightline.wishes import NAMES, Wishes, no_room

LONG = 10
"""How many times as long as the longest line that is taken a translation may have to be."""


@dataclass(frozen=True)
class Asked:
    """A line that can be translated: its `place`, from 0, in the lists of wishes; its ids with their end symbol; and
    what it alone is asked for, if anything. A sentence in capitals that is translated in small letters is in `line` as
    the model is given it, and in `capitals` as it was; its translation will be in capitals.

    A line that is translated in parts has no ids; `parts` are they, each with what it is asked for, or with None if it
    is copied.
    """

    line: str
    place: int
    ids: list[int]
    request: Request | None = None
    parts: tuple[tuple[Part, Asked | None], ...] = ()
    capitals: str = ""

    @property
    def every(self) -> list[Asked]:
        """What is translated of it: its parts, or itself."""
        return [one for _, one in self.parts if one is not None] if self.parts else [self]

    @property
    def holds_nothing(self) -> bool:
        """Whether there is no word in it: that is nothing in any language."""
        return len(self.ids) == 1


@dataclass(frozen=True)
class Plan:
    """How lines are translated.

    `task` is what engines are told of all lines. `align` and `token_scores` say what a translation has at once (True),
    never (False) or when it is first looked at (None). `most` is how many tokens a line may have. `lists` are the
    names of the wishes that have an entry for each line, and `begins` is the number of the line that their first
    entries are for. `preparation` tells how lines are cut into parts, if they are. `enlarged` is what is forbidden
    beside the rest where a translation will be written in capitals.
    """

    tokenizers: Tokenizers
    wishes: Wishes
    task: Task
    most: int
    align: bool | None = False
    token_scores: bool | None = False
    lists: tuple[str, ...] = ()
    begins: int = 1
    preparation: Preparation | None = None
    enlarged: tuple[tuple[int, ...], ...] = ()

    def read(self, line: str, number: int) -> Asked:
        """A line by its number; what is wrong with it is an error, which does not tell where."""
        place = number - self.begins
        if self.preparation is None or self.wishes.whole(place):
            return self._read(line, place)
        parts = self.preparation.parts(line)
        if not parts or (len(parts) == 1 and parts[0].told == parts[0].text):
            return self._read(line, place)
        return Asked(line, place, [], None, tuple((part, self._read_part(part, place)) for part in parts))

    def _read_part(self, part: Part, place: int) -> Asked | None:
        if part.told is None:
            return None
        return self._read(part.told, place, part.text if part.large else "")

    def _read(self, line: str, place: int, capitals: str = "") -> Asked:
        tokenizers = self.tokenizers.opened(line)
        ids = tokenizers.source.encode(line)
        reason = wrong_count(line, len(tokenizers.source.parts)) or too_long(ids, self.most)
        if reason is not None:
            raise SightlineError(reason)
        ids = [*ids, EOS]
        if not self.wishes.of_sentences:
            return Asked(line, place, ids, capitals=capitals)
        request = self.wishes.request(capitals or line, place, tokenizers.target, bool(capitals))
        asked = Asked(line, place, ids, request, capitals=capitals)
        if not asked.holds_nothing:
            reason = no_room(request, self.task.options, len(ids), tokenizers.target)
            if reason is not None:
                raise SightlineError(reason)
        return asked

    def enlarging(self, task: Task) -> Task:
        """The task for sentences whose translations will be written in capitals."""
        options = replace(task.options, forbidden=(*task.options.forbidden, *self.enlarged))
        return replace(task, options=options)

    def told(self, asked: Sequence[Asked]) -> Task:
        """What engines are told of these lines."""
        if not self.wishes.of_sentences:
            return self.task
        return replace(self.task, requests=tuple(one.request or Request() for one in asked))

    def for_lines(self, first: int, lists: dict[str, Any]) -> Plan:
        """The same for lines from number `first` on, which have these entries of their own."""
        return replace(self, wishes=replace(self.wishes, **lists), begins=first, lists=tuple(lists)) if lists else self

    def check_count(self, lines: int) -> None:
        """Refuses lists that have not one entry for each of so many lines."""
        self.wishes.check_count(lines, self.lists)

    def begun(self, asked: Asked) -> str:
        """What a line's translation begins with whatever comes of it: the prefix that somebody typed."""
        tokenizer = self.tokenizers.opened(asked.line).target
        return tokenizer.decode(list(asked.request.prefix)) if asked.request else ""

    def nothing(self, asked: Asked) -> Translation:
        """The translation of a line that holds nothing: what was typed for it. Its record has the fields of others."""
        text = self.begun(asked)
        tokenizer = self.tokenizers.opened(asked.line).target
        fields: dict[str, Any] = {"flags": []} if self.wishes.checks else {}
        fields |= self.wishes.outcomes(asked.line, asked.place, text, tokenizer)
        return nothing(asked.line, self.align is not False, fields, text)


def search_options(config: RunConfig, options: dict[str, Any]) -> SearchOptions:
    """The search section with the caller's options on top, and no longer than the model's parts can write."""
    fields = SearchOptions.__dataclass_fields__
    for name in options:
        if name not in fields:
            valid = ["align", "token_scores", *fields, *NAMES]
            raise SightlineError(f"unknown option '{name}' for translating; {nearest(name, valid)}")
    given = {name: value for name, value in options.items() if value is not None}
    check_kinds(given)
    chosen = {name: value for name, value in config.search.model_dump().items() if name in fields} | given
    strategy = chosen.get("strategy")
    if strategy == "greedy":
        SearchOptions(**chosen)  # tells what greedy search cannot do by its own name
        # The rest is the same by another name, which every engine knows.
        chosen |= {"strategy": "beam", "beam": 1}
    elif strategy == "sample":
        chosen["samples"] = chosen["n_best"] = _samples(given)
    elif strategy in (None, "beam", "mbr") and 1 <= chosen["beam"] < chosen.get("n_best", 1):
        chosen["beam"] = chosen["n_best"]
    _, most = most_tokens(config.model)
    # No length of a source bounds what must be written whatever the source is, so this does.
    least = min(most, LONG * config.search.max_source)
    if chosen["min_length"] > least:
        raise SightlineError(f"min_length is {chosen['min_length']:,}: give at most {least:,} for this model")
    chosen["max_length"] = min(most, chosen.get("max_length", most))
    return SearchOptions(**chosen)


def _samples(given: dict[str, Any]) -> int:
    """How many are drawn: all of them are given, so `n_best` says the same as `samples`."""
    counts = {int(given[name]) for name in ("samples", "n_best") if name in given and (name, given[name]) != ONE}
    if len(counts) > 1:
        raise SightlineError(
            f"samples={given['samples']} and n_best={given['n_best']}: all that is drawn is given, so say one of them"
        )
    return counts.pop() if counts else 1


ONE = ("n_best", 1)  # as good as not given


def too_long(ids: list[int], most: int) -> str | None:
    """Why a line with these ids is not taken; None when it is."""
    if (length := longest_part(ids)) <= most:
        return None
    return f"{length:,} tokens, more than the {most:,} that this model takes at once: split the line into sentences"
