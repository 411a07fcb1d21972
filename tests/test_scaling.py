"""The page about many GPUs says what its script reckons, and nothing in numbers beyond it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from benchmarks.counted import planned, saved
from benchmarks.scaling import KEPT_INNER, MODELS, NUMBER, Model, duration, kept, plan_from, power, sentences, tables
from sightline.config import build_config
from sightline.models import build_model, parameter_count
from sightline.text import Sizes

PAGE = (Path(__file__).parent.parent / "docs" / "scaling.md").read_text(encoding="utf-8")
# Numbers on the page that nothing is reckoned from or to: names, years, keys' defaults, round orders of magnitude.
PLAIN = {
    "8", "64", "512",  # GPUs
    "32", "256",  # float32, SHA-256
    "4", "16",  # bytes a parameter, as the first sentence on memory has them; columns of a table
    "5", "511",  # columns; hops between 512
    "10",  # minutes of a time limit, powers of ten
    "30",  # seconds of torchrun
    "2", "1",  # bytes of an id; 1%
    "2018", "400,000", "1974",  # what papers say
    "3",  # billions of parameters
    "200", "400",  # Gb/s
    "20,000",  # lines to measure with
    "6",  # operations for each weight
    "3600",  # seconds of an hour
}  # fmt: skip


def flat(text: str) -> str:
    return " ".join(text.split())


def test_the_tables_of_the_page_are_the_scripts() -> None:
    for table in tables(plan_from([])):
        assert table in PAGE


def test_the_sentences_of_the_page_are_the_scripts() -> None:
    page = flat(PAGE)
    for sentence in sentences(plan_from([])):
        assert sentence in page


def test_no_other_number_is_on_the_page() -> None:
    page = re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL)
    for table in tables(plan_from([])):
        page = page.replace(table, "")
    page = flat(page)
    for sentence in sentences(plan_from([])):
        page = page.replace(sentence, "")
    assert set(re.findall(r"\d[\d.,]*\d|\d", page)) <= PLAIN


def test_other_assumptions_give_other_numbers() -> None:
    usual, faster = (plan_from(arguments) for arguments in ([], ["--tflops", "200", "--tokens", "4096"]))
    assert tables(usual)[1] != tables(faster)[1]
    assert "32,768 tokens on 8 GPUs" in " ".join(sentences(faster))


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_parameters_are_counted_right(model: Model) -> None:
    side = {"layers": model.L, "heads": 8, "feedforward": model.f}
    config = build_config({"model": {"embedding": model.d, "encoder": side, "decoder": side}}, "transformer")
    with torch.device("meta"):
        built = build_model(config.model, Sizes(model.V, model.V, True))
    assert parameter_count(built) == model.parameters


def test_what_layers_keep_is_counted_right() -> None:
    """Reckoned from the layers and told by autograd; the rest are single numbers a token (deviations, sums)."""
    vectors = NUMBER * (kept() + 4 * KEPT_INNER)
    assert saved(0.0) == pytest.approx(vectors, abs=0.5)
    assert saved(0.1) == pytest.approx(vectors + 5 * NUMBER, abs=0.5)  # a factor for each number of five sublayers
    assert saved(0.0, d=128, length=64) == pytest.approx(vectors, abs=2)


def test_what_an_order_takes_does_not_grow_with_the_corpus() -> None:
    assert planned(200_000) == pytest.approx(planned(50_000), rel=0.1)


def test_how_numbers_are_written() -> None:
    assert [duration(seconds) for seconds in (8, 99, 100, 800, 8000)] == ["8 s", "99 s", "2 min", "13 min", "2.2 h"]
    assert (power(3e9), power(3e10), power(1.254e9, 2), power(1000)) == ("3·10⁹", "3·10¹⁰", "1.25·10⁹", "1·10³")
