"""What translations usually look like, learnt from pairs of a model's data and kept in its folder: no torch here.

Training learns it from validation pairs. A model without the file is checked by `Thresholds` alone.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sightline.errors import SightlineError
from sightline.failures import CHECKS, Expectations, Thresholds, detect, length_ratio, plain_words
from sightline.files import failure, write_text
from sightline.scripts import first_word
from sightline.translation import Translation

FILE = "expectations.json"
FORMAT = 1
FEWEST_PAIRS = 100
# A check that flags more than this share of sound pairs does not suit the task, and is left out.
TOLERATED = 0.01
# Lengths that all but one in 200 pairs have, and a quarter beyond.
OUTLIERS = 0.005
MARGIN = 1.25
# A word is typical of a side if it is so many times more frequent there, and not rare.
TIMES_AS_FREQUENT = 20.0
LEAST_COUNT = 5
MOST_WORDS = 1000
LEAST_SCRIPT_SHARE = 0.01


def learn(pairs: Sequence[tuple[str, str]]) -> Expectations:
    """What to expect of translations that should be like the targets of these pairs; little of few pairs."""
    full = [(source, target) for source, target in pairs if source.split() and target.split()]
    if len(full) < FEWEST_PAIRS:
        return Expectations()
    found = Expectations(
        lengths=_lengths(full),
        scripts=_scripts(full),
        source_words=_typical(full, 0),
        target_words=_telling_words(full),
    )
    flagged = Counter(
        flag.name
        for source, target in full
        for flag in detect(Translation(source, target, 0.0, 0.0, [], [], [], True), found)
    )
    unsuited = frozenset(name for name, count in flagged.items() if count > TOLERATED * len(full))
    return replace(found, unchecked=unsuited)


def _lengths(pairs: Sequence[tuple[str, str]]) -> tuple[float, float]:
    ratios = sorted(length_ratio(source, target) for source, target in pairs)
    outliers = math.floor(OUTLIERS * len(ratios))
    return ratios[outliers] / MARGIN, ratios[-1 - outliers] * MARGIN


def _scripts(pairs: Sequence[tuple[str, str]]) -> frozenset[str]:
    letters = Counter(script for _, target in pairs for letter in target if (script := first_word(letter)) is not None)
    return frozenset(script for script, count in letters.items() if count >= LEAST_SCRIPT_SHARE * letters.total())


def _telling_words(pairs: Sequence[tuple[str, str]]) -> frozenset[str]:
    """Words typical of targets, if they tell: nearly every long target must have one, and there must be enough of these
    to know."""
    found = _typical(pairs, 1)
    words = [plain_words(target) for _, target in pairs]
    long = [each for each in words if len(each) >= Thresholds().foreign_words]
    without = sum(found.isdisjoint(each) for each in long)
    return found if len(long) >= FEWEST_PAIRS and without <= TOLERATED * len(long) else frozenset()


def _typical(pairs: Sequence[tuple[str, str]], side: int) -> frozenset[str]:
    """Words that are typical of sources (side 0) or of targets (1)."""
    own, others = (Counter(word for pair in pairs for word in plain_words(pair[one])) for one in (side, 1 - side))
    totals = max(own.total(), 1), max(others.total(), 1)
    typical = [
        word
        for word, count in own.most_common()
        # Half an occurrence more, since a word that was not met may still exist.
        if count >= LEAST_COUNT and count / totals[0] >= TIMES_AS_FREQUENT * (others[word] + 0.5) / totals[1]
    ]
    return frozenset(typical[:MOST_WORDS])


def save(folder: Path, expectations: Expectations) -> None:
    """Writes what was learnt into a model's folder; the thresholds are not kept."""
    values = {
        "format": FORMAT,
        "lengths": expectations.lengths,
        "scripts": None if expectations.scripts is None else sorted(expectations.scripts),
        "source_words": sorted(expectations.source_words),
        "target_words": sorted(expectations.target_words),
        "unchecked": sorted(expectations.unchecked),
    }
    write_text(folder / FILE, json.dumps(values, ensure_ascii=False, indent=1) + "\n")


def load(folder: Path) -> Expectations:
    """What a model's folder says, or nothing in particular if it says nothing."""
    path = folder / FILE
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Expectations()
    except (OSError, UnicodeDecodeError) as error:
        why = failure(error, "read") if isinstance(error, OSError) else "not UTF-8 text"
        raise SightlineError(f"{path}: {why}") from None
    try:
        return _parsed(json.loads(text))
    except (KeyError, TypeError, ValueError):
        message = "not what Sightline wrote: remove it, and translations are checked without"
        raise SightlineError(f"{path}: {message}") from None


def _parsed(values: dict[str, Any]) -> Expectations:
    if values["format"] != FORMAT or not {*values["unchecked"]} <= {*CHECKS}:
        raise ValueError
    lengths, scripts = values["lengths"], values["scripts"]
    return Expectations(
        lengths=None if lengths is None else (float(lengths[0]), float(lengths[1])),
        scripts=None if scripts is None else frozenset(map(str, scripts)),
        source_words=frozenset(map(str, values["source_words"])),
        target_words=frozenset(map(str, values.get("target_words", ()))),  # an older file has none
        unchecked=frozenset(values["unchecked"]),
    )
