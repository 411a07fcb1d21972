"""Other names in the place of the corpus's few: every third of its sentences is about Tom, Mary or Boston.

A name that stands on both sides is exchanged for another on both. Some are made up, so that a name is learnt to be
something that is copied, and not a thing to know.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from sightline.data import Pair

_LISTS = json.loads(Path(__file__).with_name("names.json").read_text(encoding="utf-8"))
MEN, WOMEN, FAMILIES = _LISTS["men"], _LISTS["women"], _LISTS["families"]
Both = tuple[str, str]
"""A pair as English and German, whichever is the source."""
# As English and German write them: most of them alike.
TOWNS = [*((town, town) for town in _LISTS["towns"]), *_LISTS["towns_in_german"].items()]
# What is exchanged, as each side writes it.
MAN, WOMAN = ("Tom", "Tom"), ("Mary", "Maria")
PEOPLE = (MAN, WOMAN)
KNOWN_TOWNS = (*((town, town) for town in ("Boston", "London", "Paris", "Chicago", "Berlin")), ("Tokyo", "Tokio"))
BEGINNINGS = (
    "B",
    "Br",
    "D",
    "F",
    "Fr",
    "G",
    "Gr",
    "H",
    "J",
    "K",
    "Kl",
    "L",
    "M",
    "N",
    "P",
    "R",
    "S",
    "Sch",
    "St",
    "T",
    "Th",
    "V",
    "W",
    "Z",
)
MIDDLES = ("a", "e", "i", "o", "u", "ai", "ei", "au", "ee", "ie", "oo")
ENDINGS = (
    "bach",
    "ck",
    "da",
    "ff",
    "ger",
    "ks",
    "la",
    "ler",
    "lin",
    "lo",
    "man",
    "mi",
    "n",
    "na",
    "ndo",
    "nn",
    "ra",
    "rt",
    "ski",
    "son",
    "tt",
    "ven",
    "vic",
    "xon",
    "zer",
)
WHOLE_NAME, MADE_UP = 0.3, 0.2
"""Shares: a first and a family name; a name of nobody."""


def renamed(pairs: Sequence[Pair], generator: random.Random, german_source: bool) -> Iterator[Pair]:
    """Pairs with other people in them, where both sides name them equally often."""
    for both in _both_sides(generator.sample(pairs, len(pairs)), german_source):
        made = exchanged(both, PEOPLE, generator)
        if made != both:
            yield _pair(made, german_source)


def elsewhere(pairs: Sequence[Pair], generator: random.Random, german_source: bool) -> Iterator[Pair]:
    """The names of towns, then pairs with other towns in them, without end where any are named."""
    yield from (_pair(town, german_source) for town in TOWNS)
    fitting = [
        both
        for both in _both_sides(pairs, german_source)
        if any(english in both[0] and german in both[1] for english, german in KNOWN_TOWNS)
    ]
    fitting = [both for both in fitting if exchanged(both, KNOWN_TOWNS, generator) != both]
    while fitting:
        moved = exchanged(generator.choice(fitting), KNOWN_TOWNS, generator)
        yield _pair(exchanged(moved, PEOPLE, generator), german_source)


def _both_sides(pairs: Sequence[Pair], german_source: bool) -> list[Both]:
    return [(pair.target, pair.source) if german_source else (pair.source, pair.target) for pair in pairs]


def _pair(both: Both, german_source: bool) -> Pair:
    return Pair(both[1], both[0]) if german_source else Pair(*both)


def exchanged(both: Both, names: Sequence[Both], generator: random.Random) -> Both:
    """Both sides with others in the place of those of some names that both name equally often."""
    english, german = both
    for known in names:
        found = [
            re.findall(rf"\b{name}(s?)\b(?!['’-])", side) for name, side in zip(known, (english, german), strict=True)
        ]
        # Tom's dog, Toms Hund: of names that end in a hissing sound German has no such form.
        owned = len(re.findall(rf"\b{known[0]}['’]s\b", english))
        if len(found[0]) + owned == len(found[1]) > 0:
            new = _another(known, generator, owned > 0 or "s" in found[1])
            english = re.sub(rf"\b{known[0]}\b", new[0], english)
            german = re.sub(rf"\b{known[1]}(s?)\b", rf"{new[1]}\1", german)
    return english, german


def _another(known: Both, generator: random.Random, owner: bool) -> Both:
    while True:
        if known in KNOWN_TOWNS:
            both = generator.choice(TOWNS)
        else:
            name = generator.choice(MEN if known == MAN else WOMEN)
            if generator.random() < MADE_UP:
                name = made_up(generator)
            if generator.random() < WHOLE_NAME:
                name += " " + (made_up(generator) if generator.random() < MADE_UP else generator.choice(FAMILIES))
            both = name, name
        if not (owner and both[1][-1] in "sxzß"):
            return both


def made_up(generator: random.Random) -> str:
    """A name that nobody has, or hardly anybody."""
    middle = generator.choice(MIDDLES) + (generator.choice(["l", "m", "n", "r", "t"]) + generator.choice(MIDDLES)) * (
        generator.random() < 0.5
    )
    return generator.choice(BEGINNINGS) + middle + generator.choice(ENDINGS)
