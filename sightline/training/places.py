"""Where in its files an example stands: for messages, so the files are read again only when one is needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache

from sightline.config import DataConfig
from sightline.data import Pair, read_pairs
from sightline.errors import SightlineError


def line_finder(data: DataConfig, pairs: Sequence[Pair]) -> Callable[[int], str]:
    """`where(number)`: file and line of `pairs[number]`; `pairs` are some of those that `data` names, in any order.

    Dropping and holding out have changed the numbering, so the line is found by its text (the first, if it is there
    several times).
    """

    @cache
    def lines() -> dict[Pair, int]:
        found: dict[Pair, int] = {}
        with suppress(SightlineError):  # the file may have gone since; that is not what the message is about
            for number, pair in enumerate(read_pairs(data.source, data.target, data.pairs), start=1):
                found.setdefault(pair, number)
        return found

    def where(number: int) -> str:
        return f"{data.pairs or data.source}, line {lines().get(pairs[number], 'unknown')}"

    return where
