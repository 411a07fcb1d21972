"""Signs that a translation is bad, from what is known of it: its text, its log-probabilities, where the model looked.

No reference is needed and no other model; no torch here. Each check is one small function that finds its sign or not.
The checks are meant to be quiet: a sound sentence that is flagged costs trust, a bad one that is missed is only as bad
as it was.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise

import numpy as np

from sightline.scripts import first_word
from sightline.translation import Flag, Translation

__all__ = ["CHECKS", "Expectations", "Flag", "Thresholds", "detect"]

# Scripts that are written without spaces: each letter stands for itself where others have words.
SPACELESS = frozenset({"CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR"})
# Characters added to both sides before lengths are divided, so that the ratio of short sentences is not all chance.
CUSHION = 10
SHOWN_WORDS = 5
_STUTTER = re.compile(r"([^\W\d_]{1,4}?)\1{2,}")


@dataclass(frozen=True)
class Thresholds:
    """Where a check begins to flag.

    `repeats`: so often a phrase stands in a row, or one of `phrase` words anywhere, and two times more than any phrase
    of the source. Of a long text the repetitions must be `repeated_share` at least, and those in a row must
    have `repeated_characters` in all (a laugh has fewer). `stutters`: so often one to four letters stand in a row.
    `unseen`, `dropped`: a source word that got less than `unseen` of the average word's attention was not seen; so
    large a share of unseen words is flagged, if it is more than one word.
    `copied`: share of the words that stand in the source as well. `foreign`: share of the words that are typical of
    the source's language, or of the letters in another script. Both look at sentences of `least_words` and more,
    names and numbers not counted. `foreign_words`: so many words without one that is typical of targets are of some
    other language.
    `shortest`, `longest`: characters of the translation over those of the source, where no range was learnt.
    `log_prob`: mean log-probability of a token. `scattered`: mean entropy of the attention, 1 being the same
    everywhere.
    """

    repeats: int = 3
    phrase: int = 4
    repeated_share: float = 0.1
    repeated_characters: int = 6
    stutters: int = 6
    unseen: float = 0.1
    dropped: float = 0.25
    copied: float = 0.65
    foreign: float = 0.3
    foreign_words: int = 8
    least_words: int = 3
    shortest: float = 0.25
    longest: float = 4.0
    log_prob: float = -1.7
    scattered: float = 0.95


@dataclass(frozen=True)
class Expectations:
    """What a translation is held against. `sightline.expectations.learn` makes it from pairs of a model's data.

    `lengths`: the range of usual ratios of lengths; None: the thresholds'. `scripts`: those of target letters, by the
    first words of their Unicode names; None: any. `source_words`: words far more frequent in sources than in targets;
    `target_words`: the other way round.
    `unchecked`: names of checks to leave out, such as "copied" where the task is to copy.
    """

    thresholds: Thresholds = field(default_factory=Thresholds)
    lengths: tuple[float, float] | None = None
    scripts: frozenset[str] | None = None
    source_words: frozenset[str] = frozenset()
    target_words: frozenset[str] = frozenset()
    unchecked: frozenset[str] = frozenset()


def detect(translation: Translation, expectations: Expectations | None = None) -> list[Flag]:
    """The signs that a translation is bad; none for the translation of nothing."""
    expectations = expectations or Expectations()
    if not translation.source.split():
        return []
    checks = [check for name, check in CHECKS.items() if name not in expectations.unchecked]
    return [flag for check in checks if (flag := check(translation, expectations)) is not None]


# Repetition


def _loop(one: Translation, expectations: Expectations) -> Flag | None:
    limits = expectations.thresholds
    times, letters = most_stuttered(one.text)
    if times >= limits.stutters and times > most_stuttered(one.source)[0]:
        return Flag("loop", f"'{letters}' stands {times} times in one word", float(times))
    words, source = units(one.text), units(one.source)
    times, phrase = most_in_a_row(words, limits.repeated_characters)
    usual, _ = most_in_a_row(source)
    where = " in a row"
    if not _too_often(times, usual, limits):
        times, phrase = most_frequent(words, limits.phrase)
        usual, _ = most_frequent(source, limits.phrase)
        where = ""
        if not _too_often(times, usual, limits) or times * limits.phrase < limits.repeated_share * len(words):
            return None
    return Flag("loop", f"'{phrase}' stands {times} times{where}", float(times))


def _too_often(times: int, usual: int, limits: Thresholds) -> bool:
    return times >= max(limits.repeats, usual + 2)


def units(text: str) -> list[str]:
    """Words in small letters; where a script has no spaces, letters."""
    found: list[str] = []
    for word in text.casefold().split():
        if word.isascii():
            found.append(word)
            continue
        for spaceless, group in groupby(word, lambda letter: first_word(letter) in SPACELESS):
            letters = [*group]
            found += letters if spaceless else ["".join(letters)]
    return found


def most_stuttered(text: str) -> tuple[int, str]:
    """How often, at most, one to four letters follow themselves three times or more within a word, and which; or 0."""
    found = [(len(match[0]) // len(match[1]), match[1]) for match in _STUTTER.finditer(text.casefold())]
    return max(found, default=(0, ""))


def most_in_a_row(words: Sequence[str], least_characters: int = 0, longest: int = 8) -> tuple[int, str]:
    """How often, at most, a phrase of up to `longest` words follows itself, and which; once is the least.

    Repetitions with fewer than `least_characters` in all do not count.
    """
    best, phrase = 1, ""
    for size in range(1, min(longest, len(words) // 2) + 1):
        same = 0  # words in a row that are as the one `size` before
        for place in range(size, len(words)):
            same = same + 1 if words[place] == words[place - size] else 0
            times = 1 + same // size
            if times > best:
                unit = words[place - size + 1 : place + 1]
                if times * sum(map(len, unit)) >= least_characters:
                    best, phrase = times, " ".join(unit)
    return best, phrase


def most_frequent(words: Sequence[str], size: int) -> tuple[int, str]:
    """How often the most frequent phrase of `size` words occurs, and which it is; 0 in a shorter text."""
    phrases = Counter(tuple(words[place : place + size]) for place in range(len(words) - size + 1))
    if not phrases:
        return 0, ""
    ((phrase, times),) = phrases.most_common(1)
    return times, " ".join(phrase)


# What became of the source


def _dropped(one: Translation, expectations: Expectations) -> Flag | None:
    limits = expectations.thresholds
    if one.weights is None or one.weights.shape[1] < limits.least_words:
        return None
    mass = one.weights.sum(0)  # (source words,)
    unseen = np.flatnonzero(mass < limits.unseen * mass.mean())
    share = len(unseen) / len(mass)
    if len(unseen) < 2 or share < limits.dropped:  # an article may well get none
        return None
    words = ", ".join(f"'{one.source_words[place]}'" for place in unseen[:SHOWN_WORDS])
    more = ", …" if len(unseen) > SHOWN_WORDS else ""
    return Flag("dropped", f"hardly any attention to {len(unseen)} of {len(mass)} source words: {words}{more}", share)


def _copied(one: Translation, expectations: Expectations) -> Flag | None:
    limits = expectations.thresholds
    names = names_in(one.source)
    ours, theirs = (Counter(plain_words(text, names)) for text in (one.text, one.source))
    longer = max(ours.total(), theirs.total())
    if longer < limits.least_words:
        return None
    share = (ours & theirs).total() / longer
    if share < limits.copied:
        return None
    return Flag("copied", f"{share:.0%} of the words are those of the source", share)


def names_in(text: str) -> frozenset[str]:
    """What may be names, in small letters: words that begin with a capital where no sentence does."""
    return frozenset(
        _bare(word)
        for before, word in pairwise(text.split())
        if before[-1] not in ".!?:" and _bare(word, fold=False)[:1].isupper()
    )


def plain_words(text: str, names: frozenset[str] = frozenset()) -> list[str]:
    """Words in small letters without the marks around them; no names and nothing with a digit."""
    words = [_bare(unit) for unit in units(text)]
    return [word for word in words if word and word not in names and not any(letter.isdigit() for letter in word)]


def _bare(word: str, fold: bool = True) -> str:
    """A word without the marks around it."""
    letters = [place for place, letter in enumerate(word) if letter.isalnum()]
    bare = word[letters[0] : letters[-1] + 1] if letters else ""
    return bare.casefold() if fold else bare


# The language


def _script(one: Translation, expectations: Expectations) -> Flag | None:
    limits = expectations.thresholds
    if expectations.scripts is None:
        return None
    given = {*plain_words(one.source)}  # what was taken over is no mix-up, or is another flag's
    words = [word for word in plain_words(one.text) if word not in given]
    letters = [script for word in words for letter in word if (script := first_word(letter)) is not None]
    strange = [script for script in letters if script not in expectations.scripts]
    if len(strange) < limits.least_words or len(strange) < limits.foreign * len(letters):
        return None
    ((name, _),) = Counter(strange).most_common(1)
    share = len(strange) / len(letters)
    return Flag("script", f"{share:.0%} of the letters are of another script, most of them {name.capitalize()}", share)


def _language(one: Translation, expectations: Expectations) -> Flag | None:
    limits = expectations.thresholds
    words = plain_words(one.text, names_in(one.source))
    strange = [word for word in words if word in expectations.source_words]
    long = len(words) >= limits.foreign_words and expectations.target_words and not strange
    if long and expectations.target_words.isdisjoint(words):
        return Flag("language", f"none of its {len(words)} words is typical of targets", 0.0)
    if len(strange) < limits.least_words or len(strange) < limits.foreign * len(words):
        return None
    share = len(strange) / len(words)
    shown = ", ".join(f"'{word}'" for word in dict.fromkeys(strange[:SHOWN_WORDS]))
    return Flag("language", f"{share:.0%} of the words are typical of sources: {shown}", share)


# Length and confidence


def length_ratio(source: str, target: str) -> float:
    """Characters of the target over those of the source, both a little longer than they are."""
    return (len(target.strip()) + CUSHION) / (len(source.strip()) + CUSHION)


def _range(expectations: Expectations) -> tuple[float, float]:
    limits = expectations.thresholds
    return expectations.lengths or (limits.shortest, limits.longest)


def _short(one: Translation, expectations: Expectations) -> Flag | None:
    ratio = length_ratio(one.source, one.text)
    if not one.text.strip():
        return Flag("short", "there is no text", ratio)
    if ratio >= _range(expectations)[0]:
        return None
    return Flag("short", f"{len(one.text)} characters for {len(one.source)} of the source", ratio)


def _long(one: Translation, expectations: Expectations) -> Flag | None:
    ratio = length_ratio(one.source, one.text)
    if ratio <= _range(expectations)[1]:
        return None
    return Flag("long", f"{len(one.text)} characters for {len(one.source)} of the source", ratio)


def _cut(one: Translation, expectations: Expectations) -> Flag | None:
    if one.finished:
        return None
    return Flag("cut", f"it was cut after {len(one.tokens)} tokens, before its end", float(len(one.tokens)))


def mean_log_prob(one: Translation) -> float | None:
    """The mean log-probability of a prediction, the end's included; None when there was none."""
    predictions = len(one.tokens) + one.finished
    return one.log_prob / predictions if predictions else None


def _unsure(one: Translation, expectations: Expectations) -> Flag | None:
    mean = mean_log_prob(one)
    if mean is None or mean >= expectations.thresholds.log_prob:
        return None
    return Flag("unsure", f"its tokens have a probability of {math.exp(mean):.1%} on average", mean)


def _scattered(one: Translation, expectations: Expectations) -> Flag | None:
    limits = expectations.thresholds
    if one.weights is None or one.weights.shape[1] < limits.least_words:
        return None
    rows = one.weights[one.weights.sum(1) > 0]
    if not len(rows):
        return None
    shares = rows / rows.sum(1, keepdims=True)  # (target words, source words)
    entropy = -(shares * np.log(np.maximum(shares, 1e-12))).sum(1) / math.log(shares.shape[1])
    value = float(entropy.mean())
    if value <= limits.scattered:
        return None
    return Flag("scattered", f"the attention is spread over the whole source ({value:.0%} of an even spread)", value)


CHECKS: dict[str, Callable[[Translation, Expectations], Flag | None]] = {
    "loop": _loop,
    "dropped": _dropped,
    "copied": _copied,
    "script": _script,
    "language": _language,
    "short": _short,
    "long": _long,
    "cut": _cut,
    "unsure": _unsure,
    "scattered": _scattered,
}
# Those that read attention. What was copied tells nothing of what was seen.
OF_ATTENTION = frozenset({"dropped", "scattered"})
