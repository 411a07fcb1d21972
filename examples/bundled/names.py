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
# As English and German write them: most of them alike.
TOWNS = [*((town, town) for town in _LISTS["towns"]), *_LISTS["towns_in_german"].items()]
# What is exchanged, as each side writes it, and for what.
MAN, WOMAN, TOWN = ("Tom", "Tom"), ("Mary", "Maria"), ("Boston", "Boston")
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
    """Pairs with other people and towns in them, where both sides name them equally often."""
    for pair in generator.sample(pairs, len(pairs)):
        sides = pair.target if german_source else pair.source, pair.source if german_source else pair.target
        english, german = _exchanged(*sides, generator)
        if (english, german) != sides:
            yield Pair(german, english) if german_source else Pair(english, german)


def _exchanged(english: str, german: str, generator: random.Random) -> tuple[str, str]:
    for known in (MAN, WOMAN, TOWN):
        found = [
            re.findall(rf"\b{name}(s?)\b(?!['’-])", side) for name, side in zip(known, (english, german), strict=True)
        ]
        # Tom's dog, Toms Hund: of names that end in a hissing sound German has no such form.
        owned = len(re.findall(rf"\b{known[0]}['’]s\b", english))
        if len(found[0]) + owned == len(found[1]) > 0:
            new = _another(known, generator, owned > 0)
            english = re.sub(rf"\b{known[0]}\b", new[0], english)
            german = re.sub(rf"\b{known[1]}(s?)\b", rf"{new[1]}\1", german)
    return english, german


def _another(known: tuple[str, str], generator: random.Random, owner: bool) -> tuple[str, str]:
    if known == TOWN:
        return generator.choice(TOWNS)
    while True:
        name = generator.choice(MEN if known == MAN else WOMEN)
        if generator.random() < MADE_UP:
            name = made_up(generator)
        if generator.random() < WHOLE_NAME:
            name += " " + (made_up(generator) if generator.random() < MADE_UP else generator.choice(FAMILIES))
        if not (owner and name[-1] in "sxzß"):
            return name, name


def made_up(generator: random.Random) -> str:
    """A name that nobody has, or hardly anybody."""
    middle = generator.choice(MIDDLES) + (generator.choice(["l", "m", "n", "r", "t"]) + generator.choice(MIDDLES)) * (
        generator.random() < 0.5
    )
    return generator.choice(BEGINNINGS) + middle + generator.choice(ENDINGS)
