"""Numerals, times as people say them, and what everybody says and the corpus hardly has; sentences of our own.

Twenty-three is dreiundzwanzig, and half past three is halb vier: each number and each hour has to be met.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from examples.bundled.figures import halved, of_24_hours
from examples.bundled.names import Both
from sightline.data import Pair, read_pairs

PHRASES = Path(__file__).with_name("phrases.tsv")
ONES = {
    "en": "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen",
    "de": "null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn "
    "siebzehn achtzehn neunzehn",
}
TENS = {
    "en": "twenty thirty forty fifty sixty seventy eighty ninety",
    "de": "zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig",
}
MANY = (
    ("I'm {} years old.", "Ich bin {} Jahre alt."),
    ("She is {} years old.", "Sie ist {} Jahre alt."),
    ("There were {} people there.", "Es waren {} Leute da."),
    ("I have {} books.", "Ich habe {} Bücher."),
    ("It takes {} minutes.", "Es dauert {} Minuten."),
    ("Tom has {} chickens.", "Tom hat {} Hühner."),
    ("We need {} chairs.", "Wir brauchen {} Stühle."),
)
TOLD = (
    ("It's {}.", "Es ist {}."),
    ("It is {}.", "Es ist {}."),
    ("It's already {}.", "Es ist schon {}."),
    ("It was {}.", "Es war {}."),
    ("{}.", "{}."),
    ("{}", "{}"),
)
AT = (
    ("I got up at {}.", "Ich bin um {} aufgestanden."),
    ("We're meeting at {}.", "Wir treffen uns um {}."),
    ("Let's meet at {}.", "Treffen wir uns um {}."),
    ("The train leaves at {}.", "Der Zug fährt um {} ab."),
    ("The movie starts at {}.", "Der Film fängt um {} an."),
    ("Dinner is at {}.", "Das Abendessen ist um {}."),
    ("See you at {}.", "Wir sehen uns um {}."),
    ("Wake me up at {}.", "Weck mich um {}!"),
    ("I'll be there at {}.", "Ich werde um {} da sein."),
    ("The shop closes at {}.", "Das Geschäft schließt um {}."),
    ("I worked until {}.", "Ich habe bis {} gearbeitet."),
)


def numeral(number: int) -> Both:
    """A number below 100, in words of both languages."""
    english, german = ONES["en"].split(), ONES["de"].split()
    if number < len(english):
        return english[number], german[number]
    tens, ones = divmod(number, 10)
    ten = tuple(TENS[language].split()[tens - 2] for language in ("en", "de"))
    if not ones:
        return ten[0], ten[1]
    return f"{ten[0]}-{english[ones]}", f"{'ein' if ones == 1 else german[ones]}und{ten[1]}"


def counted(generator: random.Random, german_source: bool) -> Iterator[Pair]:
    """One to five numerals, one after the other or any, alone or in a sentence that says how many; without end."""
    while True:
        if generator.random() < 0.4:
            english, german = generator.choice(MANY)
            number = numeral(generator.randint(2, 99))
            yield _turned((english.format(number[0]), german.format(number[1])), german_source)
            continue
        many = generator.randint(1, 5)
        begin = generator.choice((generator.randint(0, 15), generator.randint(0, 100 - many)))
        any_of_them = generator.choices(range(generator.choice((13, 100))), k=many)
        numbers = range(begin, begin + many) if generator.random() < 0.5 else any_of_them
        comma, end = generator.choice((" ", " ", ", ")), generator.choice(("", "", "", ".", "!"))
        words = [comma.join(side) + end for side in zip(*map(numeral, numbers), strict=True)]
        capital = generator.random() < 0.3
        yield _turned(tuple(_capital(text) if capital else text for text in words), german_source)


def told_times(generator: random.Random, german_source: bool) -> Iterator[Pair]:
    """Times in words and figures, in a sentence or alone; without end."""
    while True:
        places = generator.choice((TOLD, AT))
        time = _in_words(generator, places is TOLD)
        if generator.random() < 0.4:
            time = of_24_hours(generator) if german_source else halved(generator)
        english, german = (place.format(said) for place, said in zip(generator.choice(places), time, strict=True))
        yield _turned((_capital(english).replace("m..", "m."), _capital(german)), german_source)


def _in_words(generator: random.Random, alone: bool) -> Both:
    """A time as people say it; whole hours have an Uhr."""
    hour, minute = generator.randint(1, 12), generator.choice((0, 15, 15, 30, 30, 45, 45, 5, 10, 20, 40, 50, 55))
    this, following = numeral(hour), numeral(hour % 12 + 1)
    if minute == 0:
        return f"{this[0]} o'clock", f"{'ein' if hour == 1 else this[1]} Uhr"
    if minute == 30:
        return f"half past {this[0]}", f"halb {following[1]}"
    quarter = (generator.choice(("a quarter", "a quarter", "quarter")), "Viertel")
    if minute < 30:
        much = quarter if minute == 15 else numeral(minute)
        return f"{much[0]} past {this[0]}", f"{much[1]} nach {this[1]}"
    much = quarter if minute == 45 else numeral(60 - minute)
    return f"{much[0]} to {following[0]}", f"{much[1]} vor {following[1]}"


def phrases(generator: random.Random, german_source: bool) -> Iterator[Pair]:
    """Greetings, wishes, signs and answers, as they are, without their last mark and in small letters; without end."""
    known = read_pairs(pairs=PHRASES)
    while True:
        for pair in generator.sample(known, len(known)):
            source, target = _turned(pair, german_source)
            plain = Pair(source.rstrip(".!"), target.rstrip(".!"))
            yield from (Pair(source, target), plain, Pair(plain.source.lower(), plain.target))


def _turned(both: Both | tuple[str, ...], german_source: bool) -> Pair:
    return Pair(*(reversed(both) if german_source else both))


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
