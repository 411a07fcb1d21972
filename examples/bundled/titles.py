"""People with titles, of whom the corpus has hardly any: Mr. Smith and Herr Schmidt in the place of Tom.

German says Herr of one who acts and Herrn of one something happens to. Only where it is certain which of them a Tom is
does one take his place: at the beginning of a sentence that both sides begin with him, after is and was, after a
preposition, and in a clause whose subject is a pronoun. Who is greeted may be a woman as well. Somebody's wife stays
what she is, with other first names around her, so that not every Frau is a Mrs.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence

from examples.bundled.names import FAMILIES, MADE_UP, PEOPLE, Both, exchanged, made_up
from sightline.data import Pair

FIRST = re.compile(r"Tom (?!and\b|und\b|or\b|oder\b)")
BEING = re.compile(r"(?i)(?:\bis|\bwas|['’]s) Tom\b"), re.compile(r"(?i)\b(?:ist|war) Tom\b(?!.*\bzu [a-zß-ü]+[.?!])")
AFTER = re.compile(r"\b(aus|bei|für|gegen|hinter|mit|nach|neben|ohne|über|um|von|vor|zu|an|auf) Tom\b(?!s|['’-])")
NOT_OBJECTS = re.compile(r"[,;]|\b(und|oder|als|wie|statt|außer)\b")
OF_A_PRONOUN = re.compile(r"(Ich|Wir|Er) (?!bin|sind|ist|war|werde|w[iu]rd|heiß|blieb|bleib).*\bTom\b(?!['’-])")
ADDRESSED = re.compile(r", Tom(?=[.!?]$)")
# Of whom something is so, without his doing: Tom gefällt es, Tom geht es gut.
BEFALLEN = re.compile(
    r"\b(gef(ä|ie)l\w*|[gt](eht|ing|ut|at) es|es (gut|besser|schlecht)|leid|egal|geraten|übel|schlecht|schwindlig|kalt|"
    r"warm|(wurde|worden|wird)\b.*\b(gesagt|geholfen|gegeben|gestohlen|erlaubt|verboten|befohlen)|"
    r"(fehlte?|gelang|gelingt|passte?|schmeckte?|reichte?|tat|scheint es|war es|ist es|fiel|fällt|blieb|bleibt)"
    r" (es|das|der|die|eine?|keine?|nichts|etwas|seine?|auf))\b"
)
WORDS_OF_GREETING = (
    r"Hallo|Hi|Guten? (?:Tag|Morgen|Abend|Nacht|Nachmittag)|Auf Wiedersehen|(?:Vielen )?Danke?|Danke \w+|Willkommen|"
    r"Entschuldig\w+(?: Sie)?|Frohe \w+"
)
GREETING = re.compile(rf"({WORDS_OF_GREETING}|Ja|Nein)(?=[.!?]$)")
NOT_AN_ORDER = re.compile(rf"({WORDS_OF_GREETING}|Ja|Nein|Was|W[io]e?|Das|Es|Ich|Wir|Ist|Stimmt)\b")
COUPLE = re.compile(r"\bTom (?:and|und) (?:Mary|Maria)\b(?!s|['’-])")
WIFE = re.compile(r"\bTom['’]?s (?:wife|Frau)\b")
TOM, WOMAN = re.compile(r"\bTom\b"), re.compile(r"\b(Maria|Mary)\b")
FAMILIAR = re.compile(r"(?i)\b(du|dich|dir|deine?[mnrs]?|ihr|euch|eure?[mnrs]?|bist|hast|kannst|willst|warst)\b")
MEN, WOMEN = ("Mr.", "Mr.", "Mr"), ("Mrs.", "Mrs.", "Ms.", "Miss")
MOST_OF_A_PAIR = 20


def titled(pairs: Sequence[Pair], generator: random.Random, german_source: bool) -> Iterator[Pair]:
    """Pairs with a title and a family name where a first name was, one kind of place after the other."""
    kinds: tuple[Callable[[str, str, random.Random], Both | None], ...] = (
        _acting,
        _being,
        _object,
        _woman,
        _couple,
        _greeted,
        _wife,
    )
    sides = [(pair.target, pair.source) if german_source else tuple(pair) for pair in pairs]
    fitting = [[both for both in sides if kind(*both, generator)] for kind in kinds]
    shuffled = [generator.sample(them * MOST_OF_A_PAIR, len(them) * MOST_OF_A_PAIR) for them in fitting]
    for place in range(max(map(len, shuffled))):
        for kind, them in zip(kinds, shuffled, strict=True):
            if place < len(them) and (made := kind(*them[place], generator)):
                yield Pair(*(reversed(made) if german_source else made))


def _acting(english: str, german: str, generator: random.Random) -> Both | None:
    """Mr. Smith, who is the subject of a sentence that begins with him."""
    if _only_tom(english, german) and FIRST.match(english) and FIRST.match(german) and not BEFALLEN.search(german):
        return _renamed(*_places(TOM, english, german), MEN, "Herr", generator)
    return None


def _being(english: str, german: str, generator: random.Random) -> Both | None:
    """Mr. Smith, who is or was something, or somewhere."""
    if _only_tom(english, german) and BEING[0].search(english) and BEING[1].search(german):
        return _renamed(*_places(TOM, english, german), MEN, "Herr", generator)
    return None


def _object(english: str, german: str, generator: random.Random) -> Both | None:
    """Mr. Smith, who is something else than the subject: Herrn Smith."""
    if not _only_tom(english, german):
        return None
    if AFTER.search(german) or (OF_A_PRONOUN.match(german) and not NOT_OBJECTS.search(german)):
        return _renamed(*_places(TOM, english, german), MEN, "Herrn", generator)
    return None


def _woman(english: str, german: str, generator: random.Random) -> Both | None:
    """Mrs. Smith: Frau is the same in all cases. Whom one calls so, one does not say du to."""
    if [len(WOMAN.findall(side)) for side in (english, german)] != [1, 1] or FAMILIAR.search(german):
        return None
    if re.search(r"\b(Mary|Marias?)['’-]|Marias\b", f"{english} {german}") or COUPLE.search(german):
        return None
    return _renamed(*_places(WOMAN, english, german), WOMEN, "Frau", generator)


def _couple(english: str, german: str, generator: random.Random) -> Both | None:
    """Mr. and Mrs. Smith, where it is certain that they act or that they do not."""
    if [len(COUPLE.findall(side)) for side in (english, german)] != [1, 1] or FAMILIAR.search(german):
        return None
    first, after = COUPLE.match(english) and COUPLE.match(german), AFTER.search(german)
    if not first and not after:
        return None
    title = "Herr und Frau" if first else "Herrn und Frau"
    return _renamed(*_places(COUPLE, english, german), ("Mr. and Mrs.", "Mr and Mrs"), title, generator)


def _wife(english: str, german: str, generator: random.Random) -> Both | None:
    """Somebody's wife, who has no title."""
    return exchanged((english, german), PEOPLE, generator) if WIFE.search(english) and WIFE.search(german) else None


def _greeted(english: str, german: str, generator: random.Random) -> Both | None:
    """A man or a woman who is spoken to, though not with du."""
    titles, title = generator.choice(((MEN, "Herr"), (WOMEN, "Frau")))
    if GREETING.match(german) and re.fullmatch(r"[\w ]+[.!?]", english):
        english, german = (f"{side[:-1]}, Tom{side[-1]}" for side in (english, german))
    elif not (ADDRESSED.search(english) and ADDRESSED.search(german) and NOT_AN_ORDER.match(german)):
        return None
    if FAMILIAR.search(german) or not _only_tom(english, german):
        return None
    return _renamed(*_places(TOM, english, german), titles, title, generator)


def _only_tom(english: str, german: str) -> bool:
    """Whether both sides have one Tom, alone and with nothing of his."""
    alone = [len(re.findall(r"\bTom", side)) for side in (english, german)] == [1, 1]
    return alone and not re.search(r"\bTom(s|['’-]| (and|or)\b)", english)


def _renamed(english: str, german: str, titles: Sequence[str], title: str, generator: random.Random) -> Both:
    """Somebody with a title where the two sides have a place for one."""
    name = made_up(generator) if generator.random() < MADE_UP else generator.choice(FAMILIES)
    return english.format(f"{generator.choice(titles)} {name}"), german.format(f"{title} {name}")


def _places(pattern: re.Pattern[str], *sides: str) -> Iterator[str]:
    """The sides with a place for another name where they have one."""
    return (pattern.sub("{}", re.sub(r"[{}]", "", side)) for side in sides)
