"""A translation that looks bad is made once more with safer settings, and the better one is given: no torch here."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from sightline.engines.base import Task
from sightline.errors import SightlineError
from sightline.failures import Expectations, detect, mean_log_prob
from sightline.forced import has_step_weights
from sightline.hypothesis import Request, SearchOptions
from sightline.source_texts import longest_part
from sightline.translation import Translation

if TYPE_CHECKING:
    from sightline.translator import Translator

Again = Callable[[Sequence[int], SearchOptions], Sequence[Translation]]
"""Translates the sources at these places of a list with these options."""

SAFE_BEAM = 5
COVERAGE = 0.2
# No phrase of so many tokens twice; where tokens are letters a phrase takes more of them.
NO_REPEAT, NO_REPEAT_LETTERS = 4, 24
REPEATING = {"loop", "long", "cut"}
MISSING = {"short", "dropped"}


def with_retries(
    translator: Translator,
    translations: Sequence[Translation],
    options: SearchOptions,
    expectations: Expectations | None = None,
    again: Again | None = None,
    requests: Sequence[Request] = (),
) -> list[Translation]:
    """The translations with their flags; each that has some is tried again, and the one with fewer flags is given.

    `options` are those that they were made with. `again` makes the second attempts; whoever asked for more than
    options, such as constraints, gives one that knows of it (default: `translator.translate`), and the `requests`. An
    empty text never takes the place of another. Of equally many flags the higher mean log-probability of a token
    decides, because scores under different penalties cannot be compared.
    """
    again = again or _again(translator, translations)
    looked = [one.changed(flags=detect(one, expectations)) for one in translations]
    groups: dict[SearchOptions, list[int]] = {}
    for place, one in enumerate(looked):
        settings = safer(translator, one, options, requests[place] if requests else Request()) if one.flags else None
        if settings is not None:
            groups.setdefault(settings, []).append(place)
    for settings, places in groups.items():
        for place, second in zip(places, again(places, settings), strict=True):
            looked[place] = better(looked[place], second.changed(flags=detect(second, expectations)))
    return looked


def better(first: Translation, second: Translation) -> Translation:
    """The better of two attempts at one source, with the other one beside it."""
    if _rank(second) > _rank(first):
        return second.changed(first=first)
    return first.changed(retry=second)


def _rank(one: Translation) -> tuple[bool, int, float]:
    """More is better. Text goes before none: an empty one has few flags, since little can be found in it."""
    mean = mean_log_prob(one)
    return bool(one.text.strip()), -len(one.flags or []), -math.inf if mean is None else mean


def safer(
    translator: Translator, one: Translation, options: SearchOptions, request: Request | None = None
) -> SearchOptions | None:
    """What to search with once more: a wider beam, and what speaks against the flags of the first attempt.

    A wider beam alone if the engine that was asked for can do no more; None if it cannot even do that.
    """
    names = {flag.name for flag in one.flags or []}
    wider = replace(options, strategy="beam", groups=1, beam=max(SAFE_BEAM, 2 * options.beam, options.n_best))
    settings = wider
    if names & REPEATING:
        letters = translator.config.text.tokenizer == "char"
        settings = replace(
            settings,
            no_repeat=options.no_repeat or (NO_REPEAT_LETTERS if letters else NO_REPEAT),
            min_length=max(options.min_length, 1),  # to write nothing repeats nothing
        )
    if names & MISSING:
        half = longest_part(translator.files.tokenizers.source.encode(one.source)) // 2
        least = max(options.min_length, half, len(one.tokens) + 1)
        settings = replace(settings, min_length=min(least, options.max_length or least))
        if has_step_weights(translator.config.model) and not options.coverage_penalty:
            settings = replace(settings, coverage_penalty=COVERAGE)
    for chosen in (settings, wider):
        task = Task(chosen, translator.config.alignment, (request or Request(),))
        with suppress(SightlineError):
            translator.engines.for_task(task)
            return chosen
    return None


def _again(translator: Translator, translations: Sequence[Translation]) -> Again:
    def translate(places: Sequence[int], settings: SearchOptions) -> list[Translation]:
        sources = [translations[place].source for place in places]
        align = any(translations[place].links is not None for place in places)
        return translator.translate(sources, align=align, **vars(settings))

    return translate
