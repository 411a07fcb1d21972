"""Other numbers, times, prices and dates in sentences that have some: the corpus has figures in one line of a hundred.

Each is written as its language writes it: 1,250 and 1.250, 2.5 and 2,5, $20 and 20 Dollar, March 3rd and 3. März,
5:30 p.m. and 17:30 Uhr. Telephone numbers are the same in both.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from sightline.data import Pair

MONTHS = {
    "January": "Januar", "February": "Februar", "March": "März", "April": "April", "May": "Mai", "June": "Juni",
    "July": "Juli", "August": "August", "September": "September", "October": "Oktober", "November": "November",
    "December": "Dezember",
}  # fmt: skip
NUMBER = re.compile(r"(?<![\w.,:$€£-])\d+(?:[.,]\d{3})*(?![\w:-]|[.,]\d)")
TIME = re.compile(r"(?<![\w.,:])\d{1,2}[:.]\d\d(?![\w:]|[.,]\d)")
PRICE = re.compile(r"\$\s?\d+(?:,\d{3})*(?:\.\d\d)?(?![\w:-]|[.,]\d)")
GERMAN_PRICE = re.compile(r"(?<![\w.,:])(\d+(?:\.\d{3})*(?:,\d\d)?) (?:Dollars?|\$)(?!\w)")
DATE = re.compile(rf"\b({'|'.join(MONTHS)}) (\d{{1,2}})(?:st|nd|rd|th)?\b(?:, (\d{{4}}))?")
GERMAN_DATE = re.compile(rf"\b(\d{{1,2}})\. ({'|'.join(MONTHS.values())})\b(?: (\d{{4}}))?")
ON_A_DAY, AM_TAG = re.compile(rf"\bon {DATE.pattern[2:]}"), re.compile(rf"\bam {GERMAN_DATE.pattern[2:]}")
HOUR = re.compile(r"(?i)o['’]clock|\b[ap]\.?m\b")
HALF_OF_A_DAY = re.compile(r"(?i)\b[ap]\.?m\b|morning|afternoon|evening|tonight|night")
GERMAN_HALF = re.compile(r"(?i)mittag|morgen|abend|nacht")
AT_A_TIME = re.compile(r"\b(at|by|until|before|after|around|about) \d{1,2}[:.]\d\d(?=[.!?])")
UHR = re.compile(r"\d{1,2}[:.]\d\d Uhr\b")
TELEPHONE = re.compile(r"(?<![\w.,:-])\d{3,}(?:-\d{3,})+\b")
MEASURED = re.compile(
    r"(?i)\s*(%|percent|prozent|meter|metre|kilo|mile|meile|feet|fuß|pound|degree|grad|yen|dollar|euro)"
)
SHARE_OF_HALVES = 4  # times that of another kind
WHOLE_HOUR = 0.2  # of times with their half of the day
CURRENCIES = (("$", "Dollar", "$"), ("€", "Euro", "€"), ("£", "Pfund", "£"))
MOST_OF_A_PAIR, MOST_OF_A_NUMBER = 40, 400
"""Times that one pair serves; the corpus has two telephone numbers."""
Both = tuple[str, str]
Rewritten = Both | None


def numbered(pairs: Sequence[Pair], generator: random.Random, german_source: bool) -> Iterator[Pair]:
    """Pairs whose figures are others, one kind of figure after the other; none comes from a pair too often."""
    # Each of 24 hours has to be learnt by itself. Into English a time of 24 hours stays one, which is never wrong.
    halves = () if german_source else (_half,) * SHARE_OF_HALVES
    kinds: tuple[Callable[[str, str, random.Random], Rewritten], ...] = (
        _number,
        _time,
        *halves,
        _price,
        partial(_date, timed=of_24_hours if german_source else halved),
        _telephone,
    )
    sides = [(pair.target, pair.source) if german_source else tuple(pair) for pair in pairs]
    with_figures = [both for both in sides if any(character.isdigit() for character in both[0])]
    fitting = [
        [both for both in with_figures if kind(*both, generator)]
        * (MOST_OF_A_NUMBER if kind is _telephone else MOST_OF_A_PAIR)
        for kind in kinds
    ]
    for those in fitting:
        generator.shuffle(those)
    while any(fitting):
        for kind, those in zip(kinds, fitting, strict=True):
            made = kind(*those.pop(), generator) if those else None
            if made:
                yield Pair(made[1], made[0]) if german_source else Pair(*made)


def _number(english: str, german: str, generator: random.Random) -> Rewritten:
    """A number that is the only one on both sides, and alike there."""
    found = [NUMBER.findall(side) for side in (english, german)]
    alike = len(found[0]) == len(found[1]) == 1 and re.sub(r"\D", "", found[0][0]) == re.sub(r"\D", "", found[1][0])
    if not alike or DATE.search(english) or GERMAN_DATE.search(german) or HOUR.search(english) or " Uhr" in german:
        return None
    old = int(re.sub(r"\D", "", found[0][0]))
    measured = MEASURED.match(english[NUMBER.search(english).end() :])  # type: ignore[union-attr]
    if 1000 <= old < 2100 and "," not in found[0][0] and not measured:  # a year
        value: float = generator.randint(1000, 2050)
        new = (str(int(value)),) * 2
    elif measured and old != 1 and generator.random() < 0.3:
        new = written(generator.randint(11, 999) / 10, 1)
    else:
        # One thing is no two of them: what is one stays one.
        value = 1 if old == 1 else generator.randint(2, 10 ** generator.choice([1, 2, 2, 3, 3, 4, 5, 6]) + 1)
        new = written(value) if value >= 10_000 or generator.random() < 0.5 else (str(int(value)),) * 2
    return NUMBER.sub(new[0], english), NUMBER.sub(new[1], german)


def written(value: float, places: int = 0) -> tuple[str, str]:
    """A number as English and as German write it."""
    english = f"{value:,.{places}f}"
    return english, english.translate(str.maketrans(",.", ".,"))


def _time(english: str, german: str, generator: random.Random) -> Rewritten:
    found = [TIME.findall(side) for side in (english, german)]
    if len(found[0]) != 1 or len(found[1]) != 1 or found[0][0].replace(".", ":") != found[1][0].replace(".", ":"):
        return None
    half = HALF_OF_A_DAY.search(english) or generator.random() < 0.6
    hour = generator.randint(1, 12) if half else generator.randint(0, 23)
    new = f"{hour}:{generator.randrange(0, 60, generator.choice([1, 5, 15])):02}"
    return TIME.sub(new, english), TIME.sub(new, german)


def _half(english: str, german: str, generator: random.Random) -> Rewritten:
    """A time with its half of the day, which German tells by counting on to 24."""
    if not _time(english, german, generator) or not AT_A_TIME.search(english) or not UHR.search(german):
        return None
    if HALF_OF_A_DAY.search(english) or GERMAN_HALF.search(german):
        return None
    return TIME.sub((new := halved(generator))[0], english).replace("m..", "m."), UHR.sub(new[1], german)


def halved(generator: random.Random) -> Both:
    """A time of the day, as English writes it with its half, and as German does."""
    hour, minute = generator.randint(0, 23), generator.randrange(0, 60, generator.choice([1, 5, 15, 30]))
    half = generator.choice((" {}m", " {}.m.", "{}m")).format("ap"[hour // 12])
    half = half.upper() if "." not in half and generator.random() < 0.4 else half
    if generator.random() < WHOLE_HOUR:
        return f"{hour % 12 or 12}{half}", f"{hour} Uhr"
    return f"{hour % 12 or 12}:{minute:02}{half}", f"{hour}:{minute:02} Uhr"


def of_24_hours(generator: random.Random) -> Both:
    """A time of the day that is alike in both."""
    hour, minute = generator.randint(0, 23), generator.randrange(0, 60, 5)
    if generator.random() < WHOLE_HOUR:
        return f"{hour} o'clock" if 0 < hour <= 12 else f"{hour}:00", f"{hour} Uhr"
    return f"{hour}:{minute:02}", f"{hour}:{minute:02} Uhr"


def _telephone(english: str, german: str, generator: random.Random) -> Rewritten:
    """A telephone number, which is to be copied as it is."""
    if not TELEPHONE.findall(english) or TELEPHONE.findall(english) != TELEPHONE.findall(german):
        return None
    lengths = generator.choice(((3, 4), (3, 3, 4), (4, 6), (3, 7), (5, 5)))
    new = "-".join(str(generator.randrange(10**length)).zfill(length) for length in lengths)
    return TELEPHONE.sub(new, english), TELEPHONE.sub(new, german)


def _price(english: str, german: str, generator: random.Random) -> Rewritten:
    found = PRICE.findall(english), GERMAN_PRICE.findall(german)
    if len(found[0]) != 1 or len(found[1]) != 1:
        return None
    if re.sub(r"\D", "", found[0][0]) != re.sub(r"\D", "", found[1][0]):
        return None
    if generator.random() < 0.3:
        new = written(generator.randint(101, 99_999) / 100, 2)
    else:
        new = written(generator.randint(2, 10 ** generator.choice([1, 2, 2, 3, 4, 5]) + 1))
    sign, word, german_sign = CURRENCIES[0] if generator.random() < 0.6 else generator.choice(CURRENCIES)
    german_word = german_sign if german[GERMAN_PRICE.search(german).end() - 1] == "$" else word  # type: ignore[union-attr]
    return PRICE.sub(lambda _: sign + new[0], english), GERMAN_PRICE.sub(lambda _: f"{new[1]} {german_word}", german)


def _date(english: str, german: str, generator: random.Random, timed: Callable[[random.Random], Both]) -> Rewritten:
    here, there = DATE.findall(english), GERMAN_DATE.findall(german)
    if len(here) != 1 or len(there) != 1 or here[0] != (_english_month(there[0][1]), there[0][0], there[0][2]):
        return None
    day, month = generator.randint(1, 28), generator.choice(list(MONTHS))
    year = here[0][2] and str(generator.randint(1700, 2040))
    if not year and generator.random() < 0.3 and english.rstrip(".!?").endswith(DATE.search(english)[0]):  # type: ignore[index]
        year = str(generator.randint(1900, 2040))
    suffix = generator.choice(["", "th" if 10 < day < 20 else {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")])
    new = (
        f"{month} {day}{suffix}" + (f", {year}" if year else ""),
        f"{day}. {MONTHS[month]}" + (f" {year}" if year else ""),
    )
    if generator.random() < 0.2 and _on_a_day(english, german):
        hour = timed(generator)
        new = f"{new[0]} at {hour[0]}", f"{new[1]} um {hour[1]}"
    return DATE.sub(new[0], english).replace("m..", "m."), GERMAN_DATE.sub(new[1], german)


def _on_a_day(english: str, german: str) -> bool:
    """Whether something happens on the date that a sentence names, at no time that it names."""
    timed = HOUR.search(english) or " Uhr" in german or TIME.search(english) or TIME.search(german)
    return bool(ON_A_DAY.search(english) and AM_TAG.search(german)) and not timed


def _english_month(german: str) -> str:
    return next(english for english, other in MONTHS.items() if other == german)
