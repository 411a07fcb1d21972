"""Decoding as a person asks for it: prefixes, glossaries, forbidden words, samples, second attempts, in text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import sightline
from sightline.errors import SightlineError
from sightline.translator import Translator
from tests.commands import RECIPES, Command, write_lines

SOURCES = ["a b c", "d", "h g f e"]


@pytest.fixture(scope="module", params=RECIPES)
def translator(request: pytest.FixtureRequest, trained: Any) -> Translator:
    return sightline.load(trained(request.param))


def texts(translator: Translator, sources: list[str], **options: Any) -> list[str]:
    return [one.text for one in translator.translate(sources, align=False, **options)]


@pytest.mark.parametrize("strategy", ["greedy", "beam", "sample", "mbr"])
def test_every_strategy_for_every_recipe(strategy: str, translator: Translator) -> None:
    options = {"strategy": strategy, "samples": 4 if strategy == "mbr" else 1}
    together = texts(translator, SOURCES, **options)
    assert all(together)
    assert together == [texts(translator, [source], **options)[0] for source in SOURCES]


@pytest.mark.parametrize("strategy", ["greedy", "beam", "sample"])
def test_a_prefix_is_kept_and_counted(strategy: str, translator: Translator) -> None:
    found = translator.translate(SOURCES, prefix="H G", strategy=strategy)
    assert all(one.text.startswith("H G") for one in found)
    assert all(len(one.token_log_probs) == len(one.tokens) + one.finished for one in found)
    lines = texts(translator, SOURCES, prefixes=["", "A", "B A"], strategy=strategy)
    assert lines[0] == texts(translator, SOURCES[:1], strategy=strategy)[0]
    assert [lines[1][:1], lines[2][:3]] == ["A", "B A"]
    with pytest.raises(SightlineError, match="no prefix for line 3: there are 2"):
        texts(translator, SOURCES, prefixes=["", "A"])


def test_a_glossary_and_what_became_of_its_terms(translator: Translator, tmp_path: Path) -> None:
    terms = write_lines(tmp_path / "terms.tsv", ["b\tH", "f\tE\tF"])
    found = translator.translate(SOURCES, glossary=terms)
    assert "H" in found[0].text.split()
    assert [(one.text, one.honoured) for one in found[0].terms or []] == [("b", True)]
    assert found[1].terms == []
    assert found[2].terms is not None
    assert found[2].terms[0].honoured
    with pytest.raises(SightlineError, match="sampling cannot promise"):
        texts(translator, SOURCES, glossary=terms, strategy="sample")


def test_forbidden_words_do_not_come(translator: Translator) -> None:
    for strategy in ("greedy", "beam", "sample"):
        found = texts(translator, SOURCES, forbid=["B", "D"], strategy=strategy)
        assert not {"B", "D"} & {word for text in found for word in text.split()}


def test_a_translation_shown_as_it_is_made(translator: Translator) -> None:
    for options in ({"strategy": "greedy"}, {"beam": 4}, {"strategy": "sample", "seed": 3}, {"prefix": "C"}):
        for source in SOURCES:
            assert "".join(translator.live(source, **options)) == texts(translator, [source], **options)[0]
    assert not list(translator.live("  "))


def test_flags_and_second_attempts(translator: Translator) -> None:
    stuck = " ".join("A" * 12)
    once = translator.translate("a b", check=True, prefix=stuck)
    assert "loop" in {flag.name for flag in once.flags or []}
    again = translator.translate(["a b", "a b c d"], retry=True, prefix=stuck)
    assert all(one.first or one.retry for one in again)
    assert all(one.text.startswith(stuck) for one in again)
    json.dumps([one.as_dict() for one in again])
    assert translator.translate("a b").flags is None


def test_a_utility_of_ones_own(translator: Translator) -> None:
    found = translator.translate("a b c", strategy="mbr", beam=4, utility=lambda one, other: -len(one))
    every = translator.translate("a b c", beam=4, n_best=4)
    assert len(found.text) == min(len(one.text) for one in [every, *every.others])


def test_mistakes(translator: Translator) -> None:
    for options, told in (
        ({"prefix": "A", "prefixes": ["B"]}, "give one of them"),
        ({"utility": "rouge", "strategy": "mbr"}, "rouge"),
        ({"glosary": "x"}, "did you mean 'glossary'?"),
        ({"strategy": "bean"}, "did you mean 'beam'?"),
    ):
        with pytest.raises(SightlineError, match=told):
            texts(translator, SOURCES, **options)


def test_the_command_line(trained: Any, command: Command, tmp_path: Path) -> None:
    model = trained("transformer")
    source = write_lines(tmp_path / "in.txt", SOURCES)
    terms = write_lines(tmp_path / "terms.tsv", ["b\tH"])
    begun = write_lines(tmp_path / "begun.txt", ["H", "G", "F"])
    line = ["translate", model, source]
    assert command(*line, "--prefixes", begun).out.split("\n")[1].startswith("G")
    assert command(*line, "--live").out == command(*line).out
    rows = [json.loads(row) for row in command(*line, "--glossary", terms, "--json").out.splitlines()]
    assert rows[0]["terms"] == [{"term": "b", "text": "b", "honoured": True}]
    assert "B" not in command(*line, "--forbid", "B").out
    samples = command(*line, "--strategy", "sample", "--samples", 2, "--seed", 1).out.splitlines()
    assert [row.split(" ||| ")[0] for row in samples] == ["0", "0", "1", "1", "2", "2"]
    checked = [json.loads(row) for row in command(*line, "--check", "--json").out.splitlines()]
    assert all("flags" in row for row in checked)
    alone = command(*line, "--check")
    assert (alone.code, alone.out) == (0, command(*line).out)
    assert alone.err == "--check: what it finds is told in JSON only: add --json\n"
    assert command(*line, "--retry").err == ""
    assert command(*line, "--strategy", "mbr", "--beam", 4).code == 0
    assert "leave out" in command(*line, "--live", "--json").mistake()
    assert "no terms in it" in command(*line, "--glossary", write_lines(tmp_path / "empty.tsv", ["# none"])).mistake()
    assert "unknown strategy 'bem'; did you mean 'beam'?" in command(*line, "--strategy", "bem").mistake()
