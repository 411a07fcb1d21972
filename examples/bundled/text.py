"""The text of the bundled models: a validation part that shares no sentence with training, and pairs made of pairs.

Users type what the corpus does not have: single words, greetings, no full stop, small letters, two sentences at once, a
bare name, a line that is in the target's language already. A small share of pairs made so teaches it.
"""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice

from examples.bundled.figures import numbered
from examples.bundled.names import elsewhere, renamed
from examples.bundled.spoken import counted, phrases, told_times
from examples.bundled.titles import titled
from examples.bundled.words import WORD, word_pairs
from sightline.data import Pair
from sightline.holdout import groups
from sightline.sentences import sentence_spans

SEED = 1
LARGEST_GROUP = 8
FEW_WORDS, FEWEST_WORDS = 3, 2
AGAIN = 3  # how often the fewest words come once more
SOME, OFTEN, PHRASES, TIMES = 120_000, 10, 50_000, 30_000  # of a last round
MOST_TARGETS = 4  # of one source: many sentences have a dozen translations
NAME = re.compile(r"(?<=[a-z,] )[A-ZÄÖÜ][\w-]+")
ADDRESSED = re.compile(r"(?P<rest>[^,]*\w), (?P<name>[A-ZÄÖÜ]\w+)(?P<end>[.!?])")
QUOTED = re.compile('["„“”]')
BETWEEN_SENTENCES = re.compile(r"(?<=[.!?]) (?=[A-ZÄÖÜ])")

# How many pairs of each kind are made, as a share of all pairs.
SHARES = {
    "small letters": 0.05,
    "no full stop": 0.08,
    "small letters, no full stop": 0.04,
    "two sentences": 0.06,
    "one sentence of several": 0.02,
    "not addressed": 0.01,
    "words": 0.04,
    "few words": 0.08,
    "names": 0.005,
    "other names": 0.08,
    "other towns": 0.03,
    "titles": 0.06,
    "other figures": 0.12,
    "counting": 0.02,
    "times in words": 0.04,
    "phrases": 0.04,
    "as typed": 0.04,
    "already translated": 0.015,
}


def plain(sentence: str) -> str:
    """A sentence without case and punctuation: what must not be in two parts."""
    return " ".join(WORD.findall(sentence.casefold())) or sentence


def divide(pairs: Sequence[Pair], held_out: int) -> tuple[list[Pair], list[Pair]]:
    """Training and validation pairs: no sentence of one is in the other, on either side, whatever its case.

    Pairs that share a sentence, directly or by way of others, stay together; of those that are held out one is kept.
    Greetings and the like go back into training: nothing else teaches them.
    """
    together = groups([Pair(plain(pair.source), plain(pair.target)) for pair in pairs])
    random.Random(SEED).shuffle(together)
    # The largest groups, of hundreds of pairs, are for training; with them validation would cost much text.
    together.sort(key=lambda numbers: len(numbers) > LARGEST_GROUP)
    validation = [pairs[numbers[0]] for numbers in together[:held_out] if not short(pairs[numbers[0]])]
    brief = [numbers for numbers in together[:held_out] if short(pairs[numbers[0]])]
    rest = sorted(number for numbers in [*brief, *together[held_out:]] for number in numbers)
    return unseen([pairs[number] for number in rest], validation), validation


def short(pair: Pair) -> bool:
    """Whether a side has few words, as greetings and wishes have."""
    return any(len(side.split()) <= FEW_WORDS for side in pair)


def unseen(pairs: Sequence[Pair], validation: Sequence[Pair]) -> list[Pair]:
    """The pairs without those that have a sentence of the validation part on either side."""
    known = {plain(side) for pair in validation for side in pair}
    return [pair for pair in pairs if not known & {plain(pair.source), plain(pair.target)}]


def distinct(pairs: Sequence[Pair]) -> list[Pair]:
    """Each pair once, and no more than so many targets of a source."""
    count: dict[str, int] = defaultdict(int)
    found = []
    for pair in dict.fromkeys(pairs):
        count[pair.source] += 1
        if count[pair.source] <= MOST_TARGETS:
            found.append(pair)
    return found


def augmented(pairs: Sequence[Pair], german_source: bool) -> list[Pair]:
    """The pairs and those made of them, in an order that depends on nothing but them."""
    generator = random.Random(SEED)
    result = list(pairs)
    makers = {
        **MAKERS,
        "other names": partial(renamed, german_source=german_source),
        "other towns": partial(elsewhere, german_source=german_source),
        "one sentence of several": partial(_parts, languages=("de", "en") if german_source else ("en", "de")),
        "titles": partial(titled, german_source=german_source),
        "other figures": partial(numbered, german_source=german_source),
        "counting": lambda _, generator: counted(generator, german_source),
        "times in words": lambda _, generator: told_times(generator, german_source),
        "phrases": lambda _, generator: phrases(generator, german_source),
        "as typed": partial(_typed, mark="ß" if german_source else "'", by="ss" if german_source else ""),
    }
    for kind, share in SHARES.items():
        made = makers[kind](pairs, generator)
        result += [pair for _, pair in zip(range(round(share * len(pairs))), made, strict=False)]
    generator.shuffle(result)
    return result


def last_text(pairs: Sequence[Pair], german_source: bool) -> list[Pair]:
    """For a last, short round: some of what people wrote, and what is short again and again.

    Greetings and wishes are idioms, one of a kind, so that nothing but repeating them teaches them; in all of the text
    they are too few to be met often enough. That halb acht is half past seven is another thing for every hour.
    """
    generator = random.Random(SEED)
    some = generator.sample(pairs, min(SOME, len(pairs)))
    shortest = [pair for pair in pairs if min(len(side.split()) for side in pair) <= FEWEST_WORDS]
    result = [*augmented(some, german_source), *filter(short, pairs), *shortest * OFTEN]
    result += islice(phrases(generator, german_source), PHRASES)
    result += islice(told_times(generator, german_source), TIMES)
    generator.shuffle(result)
    return result


Maker = Callable[[Sequence[Pair], random.Random], Iterator[Pair]]


def _of_some(change: Callable[[Pair], Pair | None]) -> Maker:
    """Pairs at random, changed; those that cannot be are passed over."""

    def make(pairs: Sequence[Pair], generator: random.Random) -> Iterator[Pair]:
        for pair in generator.sample(pairs, len(pairs)):
            changed = change(pair)
            if changed is not None:
                yield changed

    return make


def _without_stop(pair: Pair) -> Pair | None:
    ended = all(side.endswith(".") and not side.endswith("..") for side in pair)
    return Pair(pair.source[:-1], pair.target[:-1]) if ended else None


def _small(pair: Pair | None) -> Pair | None:
    return None if pair is None else Pair(pair.source.lower(), pair.target)


def _typed(pairs: Sequence[Pair], generator: random.Random, mark: str, by: str) -> Iterator[Pair]:
    """Sources without a sign that not all care for, or not all keyboards have: dont, ich weiss; half of them small."""
    for pair in generator.sample(pairs, len(pairs)):
        source = pair.source.replace("’", "'")
        if mark in source:
            typed = source.replace(mark, by)
            yield Pair(typed.lower() if generator.random() < 0.5 else typed, pair.target)


def _name(pair: Pair) -> Pair | None:
    """A word with a capital in the midst of a sentence that its translation has too."""
    found = next((word for word in NAME.findall(pair.source) if word in WORD.findall(pair.target)), None)
    return None if found is None else Pair(found, found)


def _two(pairs: Sequence[Pair], generator: random.Random) -> Iterator[Pair]:
    while True:
        first, second = generator.sample(pairs, 2)
        yield Pair(f"{first.source} {second.source}", f"{first.target} {second.target}")


def _parts(pairs: Sequence[Pair], generator: random.Random, languages: Sequence[str]) -> Iterator[Pair]:
    """The sentences of lines that have as many of them on one side as on the other, as they are divided in use."""
    for pair in generator.sample(pairs, len(pairs)):
        if all(BETWEEN_SENTENCES.search(side) and not QUOTED.search(side) for side in pair):
            sources, targets = (
                [side[start:end].strip() for start, end in sentence_spans(side, language)]
                for side, language in zip(pair, languages, strict=True)
            )
            if len(sources) == len(targets) > 1:
                yield from map(Pair, sources, targets)


def _not_addressed(pair: Pair) -> Pair | None:
    """What is said to somebody, without the name: of `Good morning, Tom.` what people greet a program with."""
    found = [ADDRESSED.fullmatch(side) for side in pair]
    if found[0] is None or found[1] is None or found[0]["name"] != found[1]["name"]:
        return None
    return Pair(*(one["rest"] + one["end"] for one in found if one))


def _words(pairs: Sequence[Pair], generator: random.Random) -> Iterator[Pair]:
    """Single words, as they are mostly written and in the other case."""
    for source, target in word_pairs(pairs):
        yield Pair(source, target)
        if source.islower():
            yield Pair(source.capitalize(), target[0].upper() + target[1:])
        else:
            yield Pair(source.lower(), target)


def _few_words(pairs: Sequence[Pair], generator: random.Random) -> Iterator[Pair]:
    """Greetings and the like again, the shortest more than once: what stands in the corpus once is forgotten."""
    brief = sorted(filter(short, generator.sample(pairs, len(pairs))), key=lambda pair: len(pair.source.split()))
    shortest = [pair for pair in brief if all(len(side.split()) <= FEWEST_WORDS for side in pair)]
    yield from shortest * AGAIN
    yield from brief


MAKERS: dict[str, Maker] = {
    "small letters": _of_some(_small),
    "no full stop": _of_some(_without_stop),
    "small letters, no full stop": _of_some(lambda pair: _small(_without_stop(pair))),
    "two sentences": _two,
    "not addressed": _of_some(_not_addressed),
    "words": _words,
    "few words": _few_words,
    "names": _of_some(_name),
    "already translated": _of_some(lambda pair: Pair(pair.target, pair.target)),
}
