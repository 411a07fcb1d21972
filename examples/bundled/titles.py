"""People with titles, of whom the corpus has hardly any: Mr. Smith and Herr Schmidt in the place of Tom.

German says Herr of one who acts and Herrn of one something happens to. Only where it is certain which of them a Tom is
does one take his place: at the beginning of a sentence that both sides begin with him, and after a preposition.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence

from examples.bundled.names import FAMILIES, MADE_UP, Both, made_up
from sightline.data import Pair

FIRST = re.compile(r"Tom (?!and\b|und\b|or\b|oder\b)")
AFTER = re.compile(r"\b(aus|bei|für|gegen|hinter|mit|nach|neben|ohne|über|um|von|vor|zu|an|auf) Tom\b(?!s|['’-])")
ADDRESSED = re.compile(r", Tom(?=[.!?]$)")
WOMAN = re.compile(r"\bMaria\b(?!s|['’-])"), re.compile(r"\bMary\b(?!['’-])")
FAMILIAR = re.compile(r"(?i)\b(du|dich|dir|deine?[mnrs]?|ihr|euch|eure?[mnrs]?|bist|hast|kannst|willst|warst)\b")
WOMEN = ("Mrs. ", "Mrs. ", "Ms. ", "Miss ")


def titled(pairs: Sequence[Pair], generator: random.Random, german_source: bool) -> Iterator[Pair]:
    """Pairs with a title and a family name where a first name was, on both sides."""
    for pair in generator.sample(pairs, len(pairs)):
        english, german = (pair.target, pair.source) if german_source else (pair.source, pair.target)
        if made := _man(english, german, generator) or _woman(english, german, generator):
            yield Pair(*(reversed(made) if german_source else made))


def _man(english: str, german: str, generator: random.Random) -> Both | None:
    """The pair with a Mr. in it, if its only Tom is one that German surely calls Herr, or surely Herrn."""
    if [len(re.findall(r"\bTom", side)) for side in (english, german)] != [1, 1] or re.search(r"Tom['’-]", english):
        return None
    name = _family(generator)
    written = english.replace("Tom", f"{generator.choice(('Mr. ', 'Mr. ', 'Mr '))}{name}")
    if FIRST.match(english) and FIRST.match(german):
        return written, german.replace("Tom", f"Herr {name}")
    if ADDRESSED.search(english) and ADDRESSED.search(german) and not FAMILIAR.search(german):
        return written, german.replace("Tom", f"Herr {name}")
    if AFTER.search(german):
        return written, AFTER.sub(rf"\1 Herrn {name}", german)
    return None


def _woman(english: str, german: str, generator: random.Random) -> Both | None:
    """The pair with a Mrs. in it: Frau is the same in all cases. Whom one calls so, one does not say du to."""
    if [len(one.findall(side)) for one, side in zip(WOMAN, (german, english), strict=True)] != [1, 1]:
        return None
    if FAMILIAR.search(german):
        return None
    name = _family(generator)
    return WOMAN[1].sub(generator.choice(WOMEN) + name, english), WOMAN[0].sub(f"Frau {name}", german)


def _family(generator: random.Random) -> str:
    return made_up(generator) if generator.random() < MADE_UP else generator.choice(FAMILIES)
