"""What is chosen for a user who says nothing, and that what they say stays."""

from __future__ import annotations

from typing import Any

import pytest

from sightline.architecture import ModelConfig
from sightline.config import RunConfig, TextConfig, build_config
from sightline.limits import most_tokens
from sightline.models import build_model, parameter_count
from sightline.recipes import RECIPES
from sightline.sizes import LEAST_UPDATES, Corpus, choose_held_out, choose_vocabulary, fill
from sightline.text import Sizes
from sightline.training.schedules import noam, schedule

SMALL, MIDDLE, LARGE = Corpus(1_000, 10_000), Corpus(100_000, 2_000_000), Corpus(5_000_000, 100_000_000)


def chosen(corpus: Corpus, recipe: str = "transformer", **values: Any) -> RunConfig:
    return fill(build_config(values, recipe), corpus)


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("corpus", [Corpus(1, 1), SMALL, MIDDLE])
def test_nothing_stays_open_that_a_model_needs(recipe: str, corpus: Corpus) -> None:
    config = chosen(corpus, recipe)
    assert None not in (config.data.batch_tokens, config.training.learning_rate, config.training.warmup)
    assert None not in (config.training.max_steps, config.training.validate_every)
    assert parameter_count(build_model(config.model, Sizes(50, 50, True))) > 0
    assert fill(config, MIDDLE) == config  # chosen once


def test_more_text_gets_a_larger_model_and_fewer_epochs() -> None:
    models = [chosen(corpus).model for corpus in (SMALL, MIDDLE, LARGE)]
    widths = [model.embedding or 0 for model in models]
    assert widths == sorted(set(widths))
    steps = [chosen(corpus).training.max_steps or 0 for corpus in (SMALL, MIDDLE, LARGE)]
    assert steps == sorted(set(steps))
    rates = [chosen(corpus).training.learning_rate or 0 for corpus in (SMALL, MIDDLE, LARGE)]
    assert rates == sorted(set(rates), reverse=True)


def test_a_handful_of_pairs_gets_enough_updates() -> None:
    assert chosen(Corpus(10, 50)).training.max_steps == LEAST_UPDATES
    assert chosen(Corpus(10, 50), training={"max_minutes": 1}).training.max_steps is None
    assert chosen(Corpus(10, 50), training={"max_steps": 7}).training.max_steps == 7


def test_what_is_given_stays() -> None:
    values = {
        "data": {"batch_tokens": 77},
        "model": {"embedding": 96, "encoder": {"layers": 5, "heads": 3}, "decoder": {"feedforward": 11}},
        "training": {"learning_rate": 0.5, "warmup": 0, "validate_every": 3},
    }
    config = chosen(SMALL, **values)
    assert config.data.batch_tokens == 77
    assert (config.model.embedding, config.model.encoder.layers, config.model.encoder.heads) == (96, 5, 3)
    assert config.model.decoder.feedforward == 11
    assert (config.training.learning_rate, config.training.warmup, config.training.validate_every) == (0.5, 0, 3)
    assert config.model.decoder.heads == 2  # chosen: of 96, heads of at least 32


@pytest.mark.parametrize("recipe", ["seq2seq", "bahdanau", "luong"])
@pytest.mark.parametrize("kind", ["lstm", "gru", "convolution", "positions", "transformer"])
def test_every_encoder_fits_every_recurrent_decoder(recipe: str, kind: str) -> None:
    own = {"decoder": {"context": "mean"}} if recipe == "seq2seq" else {"attention": {"score": "dot"}}
    values: dict[str, Any] = {"encoder": {"kind": kind}, "embedding": 64, **own}
    model = chosen(SMALL, recipe, model=values).model
    assert build_model(model, Sizes(50, 50, True))


@pytest.mark.parametrize("kind", ["lstm", "convolution", "positions"])
def test_every_encoder_fits_the_transformers_decoder(kind: str) -> None:
    assert build_model(chosen(SMALL, model={"encoder": {"kind": kind}}).model, Sizes(50, 50, True))


def test_vocabulary() -> None:
    assert choose_vocabulary(TextConfig(vocabulary=1234), 10**9) == 1234
    assert choose_vocabulary(TextConfig(), 1) == 500
    assert choose_vocabulary(TextConfig(), 10**6) == 8_000
    assert choose_vocabulary(TextConfig(), 10**12) == 32_000
    assert choose_vocabulary(TextConfig(tokenizer="word"), 1) == 30_000


def test_held_out() -> None:
    assert [choose_held_out(None, count) for count in (2, 19, 400, 10**6)] == [1, 1, 20, 1_000]
    assert choose_held_out(7, 3) == 7  # too many: an error where it is done, not another number in silence


@pytest.mark.parametrize(
    ("recipe", "values", "expected"),
    [
        ("transformer", {"positions": "learned", "max_positions": 9}, (8, 8)),
        ("luong", {"positions": "learned", "max_positions": 9}, (10**9 - 1, 10**9 - 1)),
        ("luong", {"attention": {"score": "location", "max_source": 7}}, (6, 10**9 - 1)),
        ("seq2seq", {"decoder": {"context": "concatenation", "max_source": 5}}, (4, 10**9 - 1)),
        ("transformer", {}, (10**9 - 1, 10**9 - 1)),
    ],
)
def test_the_longest_that_parts_can_take(recipe: str, values: dict[str, Any], expected: tuple[int, int]) -> None:
    model: ModelConfig = build_config({"model": values}, recipe).model
    assert most_tokens(model) == expected


@pytest.mark.parametrize("warmup", [None, 300])
def test_noam_without_a_rate_is_the_papers(warmup: int | None) -> None:
    given = {"training": {"schedule": "noam", "max_steps": 2000, "warmup": warmup}, "model": {"embedding": 64}}
    filled = fill(build_config(given, "transformer"), Corpus(1000, 20_000)).training
    course = schedule(filled)
    assert filled.warmup == (warmup or 500)
    for step in (1, 250, filled.warmup, 4 * filled.warmup):
        assert course.rate(step) == pytest.approx(noam(step, 64, filled.warmup))
