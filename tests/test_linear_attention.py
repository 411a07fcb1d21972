"""Linear attention: one result by three ways, a state that does not grow, and weights that are real ones."""

import itertools
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sightline.attention.capture import capture
from sightline.attention.linear import (
    EPSILON,
    EluFeatures,
    LinearAttention,
    ReluFeatures,
    attend_causally,
    divided,
    linear_weights,
    summed,
)
from sightline.search import SearchOptions, greedy_search
from tests.conftest import random_batch, small_model
from tests.oracles import check_gradients, check_parameter_gradients
from tests.twins import shake

D, H = 12, 3


def make(features: str = "elu") -> LinearAttention:
    module = LinearAttention(D, H, EluFeatures(D // H) if features == "elu" else ReluFeatures(H, D // H, 5))
    shake(module)
    return module.double().eval()


def some(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def recurrent(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """`S_t = S_{t-1} + φ(k_t) v_tᵀ`, `z_t = z_{t-1} + φ(k_t)`, one position after the other, for one head."""
    sums, total, found = torch.zeros(keys.size(1), values.size(1)).double(), torch.zeros(keys.size(1)).double(), []
    for query, key, value in zip(queries, keys, values, strict=True):
        sums, total = sums + torch.outer(key, value), total + key
        found.append(query @ sums / (query @ total + EPSILON))
    return torch.stack(found)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 20), st.integers(1, 7), st.integers(0, 10**6))
def test_three_ways_are_one(length: int, chunk: int, seed: int) -> None:
    """Recurrent, with every weight computed, and chunk by chunk."""
    generator = torch.Generator().manual_seed(seed)
    queries, keys = (torch.rand(1, 2, length, 5, generator=generator, dtype=torch.float64) for _ in range(2))
    values = torch.randn(1, 2, length, 3, generator=generator, dtype=torch.float64)
    quadratic = linear_weights(queries, keys, causal=True) @ values
    torch.testing.assert_close(attend_causally(queries, keys, values, chunk), quadratic, rtol=0, atol=1e-12)
    for head in range(2):
        torch.testing.assert_close(
            recurrent(queries[0, head], keys[0, head], values[0, head]), quadratic[0, head], rtol=0, atol=1e-12
        )


def test_sums_of_a_memory_equal_its_weights() -> None:
    queries, keys, values = some(2, 3, 4, 5).abs(), some(2, 3, 6, 5).abs(), some(2, 3, 6, 7)
    mask = torch.rand(2, 1, 1, 6) > 0.4
    expected = linear_weights(queries, keys, mask) @ values
    torch.testing.assert_close(divided(queries @ summed(keys, values, mask)), expected)


def test_weights_by_hand() -> None:
    """φ(q) = [1, 2], keys [1, 0], [1, 1], [0, 3]: products 1, 3 and 6 of a sum of 10."""
    weights = linear_weights(torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 3.0]]))
    torch.testing.assert_close(weights, torch.tensor([[0.1, 0.3, 0.6]]))


def test_features_are_not_negative() -> None:
    vectors = 5 * some(2, H, 6, D // H)
    assert (EluFeatures(D // H)(vectors) > 0).all()
    learnt = ReluFeatures(H, D // H, 5).double()
    assert learnt(vectors).shape == (2, H, 6, 5)
    assert (learnt(vectors) >= 0).all()
    by_hand = torch.relu(vectors[1, 2, 3] @ learnt.weight[2] + learnt.bias[2, 0])
    torch.testing.assert_close(learnt(vectors)[1, 2, 3], by_hand)


@pytest.mark.parametrize("causal", [False, True])
def test_features_that_are_all_zero_divide_by_nothing(causal: bool) -> None:
    module = make("relu")
    module.features.bias.data.fill_(-1e3)  # type: ignore[union-attr, operator]
    found = module(some(2, 5, D), causal=causal)
    torch.testing.assert_close(found, module.output.bias.expand_as(found))


@pytest.mark.parametrize(("features", "causal"), list(itertools.product(["elu", "relu"], [False, True])))
def test_gradients(features: str, causal: bool) -> None:
    module, inputs = make(features), some(1, 4, D)
    check_gradients(lambda states: module(states, causal=causal), inputs)
    check_parameter_gradients(module, inputs, None, None, causal)


@pytest.mark.parametrize("features", ["elu", "relu"])
def test_captured_weights_make_the_output(features: str) -> None:
    module, queries, memory = make(features), some(2, 4, D), some(2, 6, D)
    mask = torch.arange(6).expand(2, 1, 1, 6) < torch.tensor([6, 3]).view(2, 1, 1, 1)
    with capture(module) as maps:
        found = module(queries, memory, mask)
    values = module.project_memory(memory)[1]
    torch.testing.assert_close(module.join(maps[""] @ values), found)
    assert not maps[""][1, :, :, 3:].any()
    totals = maps[""].sum(-1)
    nothing = totals == 0  # of a query whose learnt features are all zero
    assert features == "relu" or not nothing.any()
    torch.testing.assert_close(totals[~nothing], torch.ones_like(totals[~nothing]), rtol=0, atol=1e-4)


def test_a_step_of_self_attention_shows_no_weights() -> None:
    module = make()
    with capture(module) as maps:
        module.advance(some(2, 1, D), module.begin(2))
    assert len(maps) == 0


def test_a_causal_pass_takes_no_memory() -> None:
    with pytest.raises(ValueError, match="for oneself"):
        make()(some(1, 2, D), some(1, 3, D), causal=True)


def test_long_sums_are_float32() -> None:
    module = make().bfloat16()
    found, state = module.advance(some(1, 1, D).bfloat16(), module.begin(1))
    assert (found.dtype, state["sums"].dtype) == (torch.bfloat16, torch.float32)


def numbers(state: Any) -> int:
    return sum(value.numel() for value in (*state.own.values(), *state.shared.values()))


@pytest.mark.parametrize("cross", ["full", "linear"])
def test_the_state_does_not_grow(cross: str) -> None:
    model = small_model("transformer", {"decoder": {"attention": "linear", "cross_attention": cross}})
    states = [model.start(random_batch([5, 3]))]
    for _ in range(30):
        states.append(model.step(torch.full((2,), 4), states[-1]).state)
    assert {name: value.shape for name, value in states[1].own.items()} == {
        name: value.shape for name, value in states[-1].own.items()
    }
    own = sum(value.numel() for value in states[-1].own.values())
    width = 12 // 3
    assert own == 2 * 2 * 3 * width * (width + 1)  # sentences, layers, heads, features, values and the ones
    longer = small_model("transformer", {"decoder": {"attention": "linear", "cross_attention": cross}})
    masks = 2 * (5 - 9)
    same = numbers(states[0]) - numbers(longer.start(random_batch([9, 3]))) == masks
    assert same == (cross == "linear")  # of a static memory nothing grows with the source either, but its mask


def test_every_search_takes_it() -> None:
    """A model with nothing but linear attention translates, and a cached search equals one without a cache."""
    linear = {"attention": "linear"}
    model = small_model("transformer", {"encoder": linear, "decoder": {**linear, "cross_attention": "linear"}})
    batch = random_batch([5, 3])
    with torch.inference_mode():
        found = greedy_search(model, batch, SearchOptions(beam=1, max_length=6))
    for row, hypothesis in enumerate(found):
        tokens: list[int] = []
        for token in hypothesis.tokens:
            prefix = torch.tensor([[model.bos, *tokens]])
            source = batch.rows([row])
            features = model.decoder(model.encode(source), model.target_embedding(prefix)).features
            assert int(model.output.log_probs(features)[0, -1].argmax()) == token
            tokens.append(token)


def test_recall_is_bounded_by_the_features() -> None:
    """f features hold f orthogonal keys without a mistake; of many more keys, which a softmax tells apart, few."""
    generator = torch.Generator().manual_seed(1)

    def recalled(features: Tensor) -> float:
        found = linear_weights(features, features) @ torch.eye(len(features), dtype=torch.float64)
        return float((found.argmax(-1) == torch.arange(len(features))).double().mean())

    assert recalled(torch.eye(16, dtype=torch.float64)) == 1
    keys = torch.nn.functional.normalize(torch.randn(256, 16, generator=generator, dtype=torch.float64), dim=-1)
    assert recalled(torch.relu(keys)) < 0.7
    assert ((50 * keys @ keys.mT).softmax(-1).argmax(-1) == torch.arange(256)).all()
