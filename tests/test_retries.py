"""Flagged lines are translated once more: with what, which of the two is given, and that both are kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

import sightline
from sightline.errors import SightlineError
from sightline.failures import Expectations, Thresholds
from sightline.hypothesis import SearchOptions
from sightline.retries import better, safer, with_retries
from sightline.translation import Flag, Translation
from sightline.translator import Translator

# The toy task is to copy, in large letters.
COPYING = Expectations(unchecked=frozenset({"copied"}))


def made(source: str, text: str, *flags: str, log_probs: Sequence[float] = (-0.1,), **changes: Any) -> Translation:
    plain = Translation(source, text, 0.0, sum(log_probs), [], text.split(), [*log_probs], True)
    return replace(plain, flags=[Flag(name, "", 0.0) for name in flags], **changes)


@pytest.fixture(scope="session")
def translator(trained: Any) -> Translator:
    return sightline.load(trained("transformer"))


def test_fewer_flags_win_then_the_mean_log_probability() -> None:
    bad, worse = made("a", "x", "loop"), made("a", "y", "loop", "cut")
    assert better(worse, bad) == replace(bad, first=worse)
    assert better(bad, worse) == replace(bad, retry=worse)
    sure, unsure = made("a", "x", "cut", log_probs=[-0.2] * 2), made("a", "y", "cut", log_probs=[-0.3] * 2)
    long = made("a", "x x x x x", "cut", log_probs=[-0.2] * 6)
    assert better(unsure, long).text == long.text  # a sum would say otherwise
    assert better(unsure, sure).text == "x"
    assert better(sure, unsure).text == "x"
    assert better(sure, sure).retry == sure  # no better: the first stays
    nothing = made("a", "", "cut", log_probs=[], finished=False)
    assert better(nothing, unsure).text == "y"


def test_an_empty_attempt_never_wins_over_text(translator: Translator) -> None:
    bad, empty = made("a", "x x x", "loop", "cut", "unsure"), made("a", " ", "short")
    assert better(bad, empty) == replace(bad, retry=empty)
    assert better(empty, bad) == replace(bad, first=empty)
    first = made("a b c", "ABC ABC ABC ABC", log_probs=[-9.0], finished=False)
    (found,) = with_retries(
        translator, [first], SearchOptions(beam=1), COPYING, lambda places, options: [made("a b c", "")]
    )
    assert {flag.name for flag in found.flags or []} > {"loop", "cut"}
    assert found.text == first.text
    assert found.retry is not None
    assert found.retry.text == ""


def test_what_is_safer_depends_on_the_flags(translator: Translator) -> None:
    greedy = SearchOptions(beam=1)
    assert safer(translator, made("a b", "A", "copied"), greedy) == SearchOptions(beam=5)
    assert safer(translator, made("a b", "A", "unsure"), SearchOptions(beam=4)).beam == 8
    repeating = safer(translator, made("a b", "A A A", "loop"), greedy)
    assert (repeating.no_repeat, repeating.min_length) == (4, 1)
    source = "a b c d e f g h"
    missing = safer(translator, made(source, "A", "short"), greedy)
    assert (missing.min_length, missing.coverage_penalty) == (4, 0.2)  # half of the source's tokens
    missing = safer(translator, made(source, "A B C D E", "dropped"), greedy)
    assert missing.min_length == 6  # one more than there were
    own = SearchOptions(beam=1, max_length=3, coverage_penalty=0.5)
    missing = safer(translator, made(source, "A", "short"), own)
    assert (missing.min_length, missing.coverage_penalty) == (3, 0.5)


def test_without_attention_there_is_no_coverage_penalty(trained: Any) -> None:
    translator = sightline.load(trained("seq2seq"))
    found = safer(translator, made("a b c d", "A", "short"), SearchOptions(beam=1))
    assert (found.min_length, found.coverage_penalty) == (2, 0.0)


def test_what_an_engine_cannot_do_is_left_out(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(task: Any) -> None:
        if task.options.coverage_penalty:
            raise SightlineError("it cannot")

    monkeypatch.setattr(translator.engines, "for_task", refuse)
    assert safer(translator, made("a b c d", "A", "short"), SearchOptions(beam=1)) == SearchOptions(beam=5)


def test_only_flagged_lines_are_tried_again(translator: Translator) -> None:
    asked: list[tuple[list[int], SearchOptions]] = []

    def again(places: Sequence[int], options: SearchOptions) -> list[Translation]:
        asked.append(([*places], options))
        return [made(given[place].source, "A B C D") for place in places]

    given = [
        made("a b c d", "A B C D"),
        made("a b c d", "A B", finished=False),
        made("a b c d", ""),
        made("", ""),
        made("e f g h a b", ""),
        made("a b c d", "E F", finished=False),
        made("c d e f a b", ""),
    ]
    found = with_retries(translator, given, SearchOptions(beam=1), COPYING, again)
    assert [places for places, _ in asked] == [[1, 5], [2], [4, 6]]
    assert all(options.beam == 5 for _, options in asked)
    assert [one.text for one in found] == ["A B C D", "A B C D", "A B C D", "", "A B C D", "A B C D", "A B C D"]
    assert [one.flags for one in found] == [[]] * 7
    assert [one.first and one.first.text for one in found] == [None, "A B", "", None, "", "E F", ""]
    assert [flag.name for flag in (found[1].first or given[0]).flags or []] == ["cut"]
    assert all(one.retry is None for one in found)


def test_a_loop_is_mended_by_the_translator(translator: Translator) -> None:
    first = made("a b c", "ABC ABC ABC ABC")
    (found,) = with_retries(translator, [first], SearchOptions(beam=1), COPYING)
    assert (found.text, found.flags) == ("A B C", [])
    assert found.first is not None
    assert found.first.text == first.text
    assert found.as_dict()["first"]["flags"][0]["name"] == "loop"
    assert found.links is None


def test_a_retry_that_is_no_better_is_kept_beside(translator: Translator) -> None:
    never_sure = replace(COPYING, thresholds=Thresholds(log_prob=1.0))
    given = translator.translate(["a b c", "d e"], beam=5)
    found = with_retries(translator, given, SearchOptions(beam=5), never_sure)
    for one, before in zip(found, given, strict=True):
        assert [flag.name for flag in one.flags or []] == ["unsure"]
        assert (one.text, one.first) == (before.text, None)
        assert one.retry is not None
        assert one.retry.source == before.source
        assert one.retry.links is not None  # looked at in the same way
        assert one.as_dict()["retry"]["flags"][0]["name"] == "unsure"
