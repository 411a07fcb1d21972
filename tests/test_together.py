"""Mechanisms together: what goes with what, what is refused, and that one seam serves them all."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from sightline.batch import Batch
from sightline.config import build_config
from sightline.decoders import TransformerDecoder
from sightline.errors import SightlineError
from sightline.guidance import check_guidance
from sightline.heads import taught_head
from sightline.losses import source_words
from tests.conftest import random_batch, small_model
from tests.test_decoders import full_log_probs, stepped

NO_FEEDING: dict[str, Any] = {"input_feeding": False}


def linked(batch: Batch) -> Batch:
    """With the links of a diagonal."""
    assert batch.targets is not None
    targets, sources = (source_words(tokens.mask) for tokens in (batch.targets, batch.sources[0]))
    both = targets[:, :, None] & sources[:, None]
    return Batch(batch.sources, batch.targets, batch.indices, both & torch.eye(*both.shape[1:], dtype=torch.bool))


@pytest.mark.parametrize("copying", [{"kind": "pointer_generator"}, {"kind": "pointer_generator", "head": 1}])
def test_the_head_that_is_looked_through_is_taught(copying: dict[str, Any]) -> None:
    model = small_model("transformer", {"copying": copying, "guided": {"weight": 0.5}})
    assert isinstance(model.decoder, TransformerDecoder)
    assert model.decoder.taught == model.decoder.pointing == (1, copying.get("head", 0))
    batch = linked(random_batch([5, 3], [4, 4]))
    losses, weights = model.loss_and_weights(batch)
    assert weights is not None
    assert weights.shape == (2, 4, 5)
    losses["guided"][0].backward()
    cross = model.decoder.layers[1].cross
    assert cross is not None
    assert cross.weight.grad is not None
    assert cross.weight.grad.any()
    torch.testing.assert_close(stepped(model, batch)[0], full_log_probs(model, batch))


def test_another_head_is_refused() -> None:
    config = build_config(
        {"model": {"copying": {"kind": "pointer_generator"}, "decoder": {"layers": 3}, "guided": {"layer": 0}}}
    )
    with pytest.raises(SightlineError, match="looks through head 0 of layer 2"):
        taught_head(config.model)


def test_links_teach_linear_attention_too() -> None:
    model = small_model("transformer", {"decoder": {"cross_attention": "linear"}, "guided": {"weight": 0.5}})
    batch = linked(random_batch([5, 3], [4, 4]))
    losses, weights = model.loss_and_weights(batch)
    assert weights is not None
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 4), atol=1e-4, rtol=0)
    assert not weights[1, :, 3:].any()
    losses["guided"][0].backward()


def test_draws_are_rewarded_step_by_step_as_in_one_pass() -> None:
    """A selective read makes the full pass go step by step."""
    changes = {"attention": {"choice": "sampled", "sample_soft": 0.0}, "copying": {"kind": "copynet"}}
    model, batch = small_model("luong", changes).train(), random_batch([5, 3], [4, 4])
    torch.manual_seed(2)
    reading = model.read(batch)
    assert reading.log_chances is not None
    assert reading.log_chances.shape == (2, 4)
    assert (reading.log_chances < 0).all()
    losses = model.loss(batch)
    assert losses["reinforce"][0] != 0
    sum(losses[name][0] for name in model.loss_weights).backward()
    assert all(each.grad is None or each.grad.isfinite().all() for each in model.parameters())
    assert model.eval().loss(batch)["reinforce"][0] == 0


@pytest.mark.parametrize("choice", ["sampled", "exact_monotonic"])
def test_hard_attention_learns_in_bfloat16(choice: str) -> None:
    model = small_model("luong", {"attention": {"choice": choice}, "decoder": NO_FEEDING}).float().train()
    model.precision, model.smoothing = torch.bfloat16, 0.1
    losses = model.loss(random_batch([5, 3], [4, 4]))
    sum(losses[name][0] for name in model.loss_weights).backward()
    assert all(each.grad is None or each.grad.isfinite().all() for each in model.parameters())


def test_sums_over_positions_are_taught_and_penalised() -> None:
    changes = {
        "attention": {"choice": "exact_monotonic"},
        "decoder": NO_FEEDING,
        "guided": {"weight": 0.5},
        "penalties": {"one_look_each": 0.1},
    }
    model, batch = small_model("luong", changes), linked(random_batch([5, 3], [4, 4]))
    losses, weights = model.loss_and_weights(batch)
    assert weights is not None
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 4))
    assert {*model.loss_weights} == {"cross_entropy", "one_look_each", "guided"} <= {*losses}


EXACT = {"attention": {"choice": "exact"}, "decoder": NO_FEEDING}
REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "two output layers": ("luong", {**EXACT, "copying": {"kind": "copy_head"}}, "both take the place of the output"),
    "a lexicon and a sum": ("luong", {**EXACT, "lexicon": {"mode": "bias"}}, "both take the place of the output layer"),
    "copying and a lexicon": (
        "luong",
        {"copying": {"kind": "copynet"}, "lexicon": {"mode": "bias"}},
        "both take the place of the output layer",
    ),
    "weights that do not sum to 1": (
        "luong",
        {"attention": {"choice": "online_monotonic"}, "copying": {"kind": "pointer_generator"}},
        "may sum to less",
    ),
    "reversible and pointing": (
        "transformer",
        {"reversible": True, "copying": {"kind": "pointer_generator"}},
        "with model.reversible there are none",
    ),
    "reversible and taught": (
        "transformer",
        {"reversible": True, "guided": {"weight": 1}},
        "guided.weight needs",
    ),
    "linear and looked through": (
        "transformer",
        {"decoder": {"cross_attention": "linear"}, "lexicon": {"mode": "linear"}},
        "cross_attention = linear there are none",
    ),
    "a recurrent language model": ("lm", {"decoder": {"attention": "linear"}}, "set model.decoder.kind=transformer"),
    "reversible cells": ("lm", {"reversible": True}, "is for a transformer's layers"),
    "a language model that copies": ("lm", {"copying": {"kind": "copynet"}}, "the recipe lm has no such choice"),
    "a language model that draws": ("lm", {"attention": {"choice": "sampled"}}, "the recipe lm has no such choice"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_makes_no_sense_is_refused(case: str) -> None:
    recipe, model, told = REFUSED[case]
    with pytest.raises(SightlineError, match=told):
        build_config({"model": model}, recipe)


@pytest.mark.parametrize(
    ("recipe", "values", "told"),
    [
        ("lm", {"data": {"alignments": "links"}}, "the recipe lm has no attention to teach"),
        ("luong", {"training": {"agreement": 1}, "model": {"lexicon": {"mode": "bias"}}}, "knows one"),
        (
            "luong",
            {"training": {"agreement": 1}, "model": {"copying": {"kind": "copynet"}}, "text": {"tokenizer": "word"}},
            "copying whole words knows one",
        ),
        ("transformer", {"training": {"agreement": 1}, "model": {"reversible": True}}, "training.agreement needs"),
        ("transformer", {"data": {"alignments": "links"}, "model": {"reversible": True}}, "data.alignments needs"),
    ],
)
def test_what_cannot_be_taught_is_refused(recipe: str, values: dict[str, Any], told: str) -> None:
    with pytest.raises(SightlineError, match=told):
        check_guidance(build_config(values, recipe))
