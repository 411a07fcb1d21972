"""The Python API: text in, text, score, tokens and alignment out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import sightline
from sightline.config import build_config, merge
from sightline.errors import SightlineError
from sightline.training.run import train
from sightline.translation import Translation
from sightline.translator import LINES_AT_ONCE, Translator
from tests.commands import RECIPES, letters, tiny

SENTENCES = ["a b c", "", "h", "d c b a", "   ", "g f"]


@pytest.fixture(scope="session")
def translator(trained: Any) -> Translator:
    return sightline.load(trained("transformer"))


def close(one: Translation, other: Translation) -> bool:
    """The same but for rounding: sums over a padded batch are taken in another order."""
    return one.text == other.text and one.links == other.links and one.score == pytest.approx(other.score, abs=1e-4)


def test_one_sentence(translator: Translator) -> None:
    found = translator.translate("a b c")
    assert isinstance(found, sightline.Translation)
    assert (found.source, found.text, found.tokens) == ("a b c", "A B C", ["A", "B", "C"])
    assert found.finished
    assert len(found.token_log_probs) == 4  # the end is predicted too
    assert found.log_prob == pytest.approx(sum(found.token_log_probs))
    assert found.score == pytest.approx(found.log_prob / 4)
    assert (found.source_words, found.words) == (["a", "b", "c"], ["A", "B", "C"])
    assert found.links is not None
    assert found.alignment == " ".join(f"{source}-{target}" for source, target in found.links)
    assert {target for _, target in found.links} <= {0, 1, 2}
    assert found.weights is not None
    assert found.weights.shape == (len(found.words), len(found.source_words))
    json.dumps(found.as_dict())


def test_several_sentences_in_their_order(translator: Translator) -> None:
    found = translator.translate(SENTENCES)
    assert [one.source for one in found] == SENTENCES
    assert [one.text for one in found] == ["A B C", "", "H", "D C B A", "", "G F"]
    assert (found[1].tokens, found[1].score, found[1].alignment) == ([], 0.0, "")
    assert translator.translate([]) == []


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_batch_equals_its_sentences_one_by_one(recipe: str, trained: Any) -> None:
    translator = sightline.load(trained(recipe))
    sources = [source for source, _ in letters(12, seed=5)]
    together = translator.translate(sources, n_best=2)
    assert all(close(one, translator.translate(one.source, n_best=2)) for one in together)
    forced = [one.links is not None for one in together]
    assert forced == [recipe != "seq2seq"] * len(sources)


def test_n_best_are_different_and_ranked(translator: Translator) -> None:
    found = translator.translate("a b", n_best=4)
    every = [found, *found.others]
    assert len({tuple(one.ids) for one in every}) == 4
    assert [one.score for one in every] == sorted((one.score for one in every), reverse=True)
    assert all(one.links is not None for one in every)


def test_options(translator: Translator) -> None:
    assert translator.translate("a b", align=False).links is None
    greedy = translator.translate("a b", beam=1)
    assert greedy.text == "A B"
    assert len(translator.translate("a b", min_length=5).tokens) >= 5
    assert len(translator.translate("a b", min_length=0, max_ratio=0, max_extra=1).tokens) == 1
    assert translator.translate("a b", length_penalty="none").score == pytest.approx(greedy.log_prob, abs=1e-4)
    assert translator.translate("a b", coverage_penalty=0.2).text == "A B"
    assert translator.translate("a b", beam=None).text == "A B"  # as if not given


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"bean": 3}, "unknown option 'bean' for translating; did you mean 'beam'?"),
        ({"beam": 0}, "beam is 0: give at least 1"),
        ({"n_best": 0}, "n_best is 0"),
        ({"length_penalty": "gnm"}, "unknown length_penalty 'gnm'; did you mean 'gnmt'?"),
        ({"max_ratio": -1}, "max_ratio is -1: give a number from 0 to 1,000"),
    ],
)
def test_options_that_are_none(options: dict[str, Any], told: str, translator: Translator) -> None:
    with pytest.raises(SightlineError) as error:
        translator.translate("a", **options)
    assert told in str(error.value)


def test_a_stream_is_lazy_and_names_its_lines(translator: Translator) -> None:
    taken = []

    def lines() -> Any:
        for number in range(3 * LINES_AT_ONCE):
            taken.append(number)
            yield ""

    stream = translator.stream(lines())
    assert next(stream).text == ""
    assert len(taken) == LINES_AT_ONCE
    stream = translator.stream(["a", "b " * 2000], name="my file", first=11)
    assert next(stream).text == "A"
    with pytest.raises(SightlineError, match="my file, line 12: 2,000 tokens"):
        next(stream)


def test_the_longest_line_is_counted_in_its_own_tokens(translator: Translator) -> None:
    most = translator.config.search.max_source
    translator.check_pairs([("a " * most, "A " * most)], "s", "t")
    with pytest.raises(SightlineError, match=rf"s, line 1: {most + 1:,} tokens"):
        translator.check_pairs([("a " * (most + 1), "")], "s", "t")
    with pytest.raises(SightlineError, match=rf"t, line 2: {most + 1:,} tokens"):
        translator.check_pairs([("", ""), ("", "a " * (most + 1))], "s", "t")


@pytest.mark.parametrize(
    ("recipe", "values"),
    [
        ("transformer", {"positions": "learned", "max_positions": 4}),
        ("luong", {"attention": {"score": "location", "max_source": 4}}),
        ("seq2seq", {"decoder": {"context": "concatenation", "max_source": 4}}),
    ],
)
def test_parts_that_take_no_more_than_so_many_tokens(
    recipe: str, values: dict[str, Any], toy_pairs: Path, tmp_path: Path
) -> None:
    """Longer pairs are dropped in training, longer lines are refused, and no translation grows beyond them."""
    said: list[str] = []
    config = merge(tiny(recipe), {"data": {"pairs": str(toy_pairs)}, "model": values, "training": {"max_steps": 2}})
    train(build_config(config, recipe), tmp_path / "model", say=said.append)
    assert any("too long" in line for line in said)
    translator = sightline.load(tmp_path / "model")
    found = translator.translate(["a", "a b c"], min_length=1)
    if recipe == "transformer":
        assert max(len(one.tokens) for one in found) <= 3
        with pytest.raises(SightlineError, match="min_length is 4: give at most 3 for this model"):
            translator.translate("a", min_length=4)
    with pytest.raises(SightlineError, match="input, line 2: 4 tokens, more than the 3 that this model takes"):
        translator.translate(["a", "a b c d"])


def test_loading_elsewhere(trained: Any) -> None:
    with pytest.raises(SightlineError, match="unknown device 'toaster'"):
        sightline.load(trained("transformer"), "toaster")
    assert sightline.load(str(trained("transformer")), "cpu").name == "transformer"
    with pytest.raises(AttributeError, match="no attribute 'lod'"):
        _ = sightline.lod
