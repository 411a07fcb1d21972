"""Looking at weights: outputs stay bit-identical, the choice is kept, nothing is left behind."""

from typing import Any

import pytest
import torch
from torch import Tensor

from sightline.attention.capture import Tapped, capture, layer_number
from sightline.attention.core import attention_weights
from sightline.attention.multihead import MultiHeadAttention
from sightline.encoders import TransformerEncoder, TransformerEncoderLayer
from sightline.layers import FeedForward
from sightline.models import EncoderDecoder
from tests.conftest import random_batch, small_model

RECIPES: list[tuple[str, dict[str, Any]]] = [
    ("bahdanau", {}),
    ("luong", {"attention": {"span": "local-p", "window": 2}}),
    ("luong", {"decoder": {"input_feeding": False}}),
    ("transformer", {}),
    ("transformer", {"attention": {"blocks": 3}}),
    ("transformer", {"decoder": {"attention": "linear", "cross_attention": "linear"}}),
    ("transformer", {"decoder": {"attention": "lsh"}, "lsh": {"chunk": 2, "buckets": 4}}),
]


def features(model: EncoderDecoder) -> Tensor:
    batch = random_batch([5, 7, 3], [4, 6, 2])
    assert batch.targets is not None
    decoded = model.decoder(model.encode(batch), model.target_embedding(model.shifted(batch.targets)))
    return decoded.features


def tapped(model: torch.nn.Module) -> list[str]:
    return [name for name, module in model.named_modules() if isinstance(module, Tapped) and module.tap is not None]


@pytest.mark.parametrize(("recipe", "changes"), RECIPES)
def test_outputs_and_gradients_are_bit_identical(recipe: str, changes: dict[str, Any]) -> None:
    model = small_model(recipe, changes)
    plain = features(model)
    gradients = torch.autograd.grad(plain.square().sum(), list(model.decoder.parameters()))
    with capture(model) as maps:
        looked_at = features(model)
    assert torch.equal(looked_at, plain)
    again = torch.autograd.grad(looked_at.square().sum(), list(model.decoder.parameters()))
    assert all(torch.equal(one, other) for one, other in zip(gradients, again, strict=True))
    assert len(maps) > 0
    assert not any(weights.requires_grad for weights in maps.values())


def test_outputs_are_identical_in_training_too() -> None:
    """Weights are taken before dropout, which must not draw a number more because somebody looks."""
    model = small_model("transformer", {"dropout": 0.3, "attention_dropout": 0.3}).train()
    torch.manual_seed(5)
    plain = features(model)
    torch.manual_seed(5)
    with capture(model) as maps:
        looked_at = features(model)
    assert torch.equal(looked_at, plain)
    for weights in maps.values():
        torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights.sum(-1)))


def test_names_and_shapes() -> None:
    model = small_model("transformer")
    with capture(model) as maps:
        features(model)
    shapes = {name: tuple(weights.shape) for name, weights in maps.items()}
    assert shapes == {
        "encoder.layers.0.self_attention": (3, 3, 7, 7),
        "encoder.layers.1.self_attention": (3, 3, 7, 7),
        "decoder.layers.0.self_attention": (3, 3, 6, 6),
        "decoder.layers.0.cross": (3, 3, 6, 7),  # targets are rows, sources are columns
        "decoder.layers.1.self_attention": (3, 3, 6, 6),
        "decoder.layers.1.cross": (3, 3, 6, 7),
    }


@pytest.mark.parametrize("recipe", ["bahdanau", "luong"])
def test_recurrent_decoders_give_targets_by_sources(recipe: str) -> None:
    model = small_model(recipe)
    with capture(model) as maps:
        features(model)
    assert list(maps) == ["decoder.attention"]
    weights = maps["decoder.attention"]
    assert weights.shape == (3, 1, 6, 7)
    torch.testing.assert_close(weights.sum(-1), torch.ones(3, 1, 6, dtype=torch.float64))
    assert not weights[2, :, :, 3:].any()  # padding


def test_layers_heads_and_names_can_be_chosen() -> None:
    model = small_model("transformer")
    with capture(model) as everything:
        features(model)
    with capture(model, layers=[1], heads=[2, 0], where=lambda name: name.endswith("cross")) as maps:
        features(model)
    assert list(maps) == ["decoder.layers.1.cross"]
    assert torch.equal(maps["decoder.layers.1.cross"], everything["decoder.layers.1.cross"][:, [0, 2]])


def test_weights_equal_the_reference_weights() -> None:
    module = MultiHeadAttention(12, 3).double()
    queries, memory = torch.randn(2, 4, 12, dtype=torch.float64), torch.randn(2, 5, 12, dtype=torch.float64)
    mask = torch.rand(2, 1, 1, 5) > 0.3
    with capture(module) as maps:
        module(queries, memory, mask)
    expected = attention_weights(module.project_queries(queries), module.project_memory(memory)[0], mask)
    assert torch.equal(maps[""], expected)


def test_causal_weights_have_no_future() -> None:
    model = small_model("transformer")
    with capture(model, where=lambda name: "decoder" in name and name.endswith("self_attention")) as maps:
        features(model)
    for weights in maps.values():
        assert not weights.triu(1).any()


def test_steps_join_along_the_targets() -> None:
    """Step by step the memory's weights come out as in the full pass."""
    model = small_model("transformer")
    batch = random_batch([5, 7], [4, 4])
    assert batch.targets is not None
    with capture(model, where=lambda name: name.endswith("cross")) as whole:
        model.loss(batch)
    with capture(model, where=lambda name: name.endswith("cross")) as maps:
        state = model.start(batch)
        for tokens in model.shifted(batch.targets).unbind(1):
            state = model.step(tokens, state).state
    assert set(maps) == set(whole)
    for name in maps:
        torch.testing.assert_close(maps[name], whole[name])


def test_nothing_is_tapped_afterwards() -> None:
    model = small_model("transformer")
    with capture(model, layers=[0]) as maps:
        features(model)
        assert tapped(model) == list(maps)
    assert tapped(model) == []
    before = maps["decoder.layers.0.cross"].clone()
    features(model)
    assert torch.equal(maps["decoder.layers.0.cross"], before)


def test_nothing_is_tapped_after_an_error() -> None:
    model = small_model("transformer")

    def fail() -> None:
        assert tapped(model)
        raise RuntimeError("on the way")

    with pytest.raises(RuntimeError, match="on the way"), capture(model):
        fail()
    assert tapped(model) == []


def test_modules_that_were_not_called_have_no_map() -> None:
    model = small_model("transformer")
    with capture(model) as maps:
        model.encode(random_batch([3]))
    assert sorted(maps) == ["encoder.layers.0.self_attention", "encoder.layers.1.self_attention"]
    with pytest.raises(KeyError):
        maps["decoder.layers.0.cross"]


def test_a_model_without_attention_has_no_maps() -> None:
    model = small_model("seq2seq")
    with capture(model) as maps:
        features(model)
    assert len(maps) == 0


def test_twelve_layers_of_twelve_heads_are_144_maps() -> None:
    layers = [
        TransformerEncoderLayer(MultiHeadAttention(24, 12), FeedForward(24, 8), "layer", "post", 0.0) for _ in range(12)
    ]
    encoder = TransformerEncoder(layers, "layer", "post")
    with capture(encoder) as maps:
        encoder(torch.randn(1, 3, 24), torch.ones(1, 3, dtype=torch.bool))
    assert sum(weights.size(1) for weights in maps.values()) == 144


@pytest.mark.parametrize(
    ("name", "number"), [("decoder.layers.2.cross", 2), ("encoder.layers.11.self_attention", 11), ("attention", 0)]
)
def test_layer_numbers(name: str, number: int) -> None:
    assert layer_number(name) == number
