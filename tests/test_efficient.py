"""The configuration of efficient attention: what goes together, and what is refused with a reason."""

from typing import Any

import pytest
import torch

from sightline.config import build_config
from sightline.efficient import unusual
from sightline.errors import SightlineError
from sightline.interop import ctranslate2, marian
from tests.conftest import random_batch, small_model

REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("transformer", {"decoder": {"attention": "lsh"}}, "set model.lsh.buckets"),
    ("transformer", {"lsh": {"buckets": 6}}, "expected 1 or a power of two"),
    ("transformer", {"encoder": {"kind": "lstm", "attention": "linear"}}, "only a transformer encoder attends"),
    ("transformer", {"decoder": {"cross_attention": "lsh"}}, "cross_attention"),
    ("transformer", {"reversible": True, "norm_position": "post"}, "norm_position = pre"),
    ("luong", {"reversible": True}, "leave it out"),
    ("luong", {"feedforward_chunk": 8}, "leave it out"),
    ("luong", {"decoder": {"attention": "linear"}}, "only transformer"),
    ("bahdanau", {"decoder": {"cross_attention": "linear"}}, "only transformer"),
]


@pytest.mark.parametrize(("recipe", "changes", "told"), REFUSED)
def test_what_makes_no_sense_is_refused(recipe: str, changes: dict[str, Any], told: str) -> None:
    with pytest.raises(SightlineError, match=told) as refused:
        build_config({"model": changes}, recipe)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("encoder", ["full", "lsh", "linear"])
@pytest.mark.parametrize("decoder", ["full", "lsh", "linear"])
@pytest.mark.parametrize("reversible", [False, True])
def test_all_go_together(encoder: str, decoder: str, reversible: bool) -> None:
    """With blocks of features too; a few updates' worth of gradients is finite and reaches every weight."""
    changes = {
        "encoder": {"attention": encoder},
        "decoder": {"attention": decoder, "cross_attention": "linear" if reversible else "full"},
        "reversible": reversible,
        "attention": {"blocks": 3},
        "lsh": {"chunk": 4, "buckets": 2},
        "linear": {"features": "relu", "feature_count": 16},
        "dropout": 0.1,
    }
    model = small_model("transformer", changes).train()
    model.loss(random_batch([9, 6], [5, 8]))["cross_entropy"][0].backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.any(), name


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, None),
        ({"feedforward_chunk": 4}, None),
        ({"decoder": {"attention": "linear"}}, "linear attention (model.decoder.attention=linear)"),
        ({"decoder": {"cross_attention": "linear"}}, "linear attention (model.decoder.cross_attention=linear)"),
        ({"encoder": {"attention": "lsh"}}, "attention to what hashes alike (model.encoder.attention=lsh)"),
        ({"reversible": True}, "reversible layers (model.reversible=true)"),
    ],
)
def test_other_programs_do_not_have_it(changes: dict[str, Any], told: str | None) -> None:
    model = build_config({"model": changes}, "transformer").model
    assert unusual(model) == told
    assert ctranslate2.unsupported(model) == told
    if told is not None:
        assert marian.unsupported(model) is not None


@pytest.mark.parametrize("position", ["pre", "post"])
def test_an_elu_model_has_the_weights_of_a_full_one(position: str) -> None:
    """So one can take over from the other."""
    full = small_model("transformer", {"norm_position": position})
    linear = small_model("transformer", {"norm_position": position, "decoder": {"attention": "linear"}})
    assert {name: value.shape for name, value in full.state_dict().items()} == {
        name: value.shape for name, value in linear.state_dict().items()
    }
    linear.load_state_dict(full.state_dict())
    assert torch.isfinite(linear.loss(random_batch([5], [4]))["nll"][0])
