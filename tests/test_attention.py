"""Attention's core against a triple loop, its fast path against the written-out one, and rows with nothing to see."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from sightline.attention import core
from sightline.attention.core import attend, attend_reference, attention_weights, masked_softmax
from sightline.attention.masks import causal_mask, padding_mask
from sightline.attention.scores import dot
from tests.oracles import attend_by_hand, check_gradients, softmax_by_hand

B, H, T, S, D_K, D_V = 2, 3, 4, 5, 6, 8
PATHS = [attend, attend_reference]


def random(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64).to(dtype)


def inputs(queries: int = T, keys: int = S, value_width: int = D_V) -> tuple[Tensor, Tensor, Tensor]:
    return random(B, H, queries, D_K), random(B, H, keys, D_K), random(B, H, keys, value_width)


def some_empty(queries: int = T, keys: int = S) -> Tensor:
    """A random mask `(B, 1, T, S)` with two empty rows and one with a single key."""
    mask = torch.rand(B, 1, queries, keys) > 0.4
    mask[0, 0, 1] = False
    mask[1, 0, 0] = False
    mask[1, 0, queries - 1] = False
    mask[1, 0, queries - 1, 2] = True
    return mask


# The soft read: a convex mixture of values.


def test_weights_and_contexts_equal_the_triple_loop() -> None:
    queries, keys, values = inputs()
    mask, bias = some_empty(), random(1, H, T, S)
    weights, contexts = attend_by_hand(queries, keys, values, mask, bias)
    torch.testing.assert_close(attention_weights(queries, keys, mask, bias=bias), weights)
    for path in PATHS:
        torch.testing.assert_close(path(queries, keys, values, mask, bias=bias), contexts)


def test_shapes_are_queries_by_keys_and_queries_by_value_width() -> None:
    queries, keys, values = inputs()
    assert attention_weights(queries, keys).shape == (B, H, T, S)
    for path in PATHS:
        assert path(queries, keys, values).shape == (B, H, T, D_V)


@pytest.mark.parametrize("path", PATHS)
def test_a_context_lies_among_the_values_it_may_see(path: Any) -> None:
    queries, keys, values = inputs()
    mask = torch.tensor([True, True, False, True, False])
    context = path(queries * 3, keys, values, mask.expand(B, 1, T, S))
    seen = values[:, :, mask]
    assert (context >= seen.amin(2, keepdim=True) - 1e-12).all()
    assert (context <= seen.amax(2, keepdim=True) + 1e-12).all()


@pytest.mark.parametrize("path", PATHS)
def test_keys_and_values_are_a_set(path: Any) -> None:
    queries, keys, values = inputs()
    order = torch.randperm(S)
    torch.testing.assert_close(path(queries, keys[:, :, order], values[:, :, order]), path(queries, keys, values))


@pytest.mark.parametrize("path", PATHS)
def test_a_single_key_gives_exactly_its_value(path: Any) -> None:
    queries, keys, values = inputs()
    mask = torch.zeros(B, 1, T, S, dtype=torch.bool)
    mask[..., 3] = True
    assert torch.equal(path(queries, keys, values, mask), values[:, :, 3:4].expand(B, H, T, D_V))


@pytest.mark.parametrize("path", PATHS)
def test_equal_scores_give_the_mean(path: Any) -> None:
    queries, keys, values = inputs()
    keys = keys[:, :, :1].expand_as(keys)
    torch.testing.assert_close(path(queries, keys, values), values.mean(2, keepdim=True).expand(B, H, T, D_V))


def test_weights_take_any_score() -> None:
    queries, keys, _ = inputs()
    expected = (queries @ keys.transpose(-2, -1)).softmax(-1)
    torch.testing.assert_close(attention_weights(queries, keys, score=dot), expected)


# Masked softmax.


@st.composite
def masked_rows(draw: st.DrawFn) -> tuple[list[list[float]], list[list[bool]]]:
    rows, columns = draw(st.integers(1, 4)), draw(st.integers(1, 6))
    number = st.floats(-50, 50)
    scores = draw(st.lists(st.lists(number, min_size=columns, max_size=columns), min_size=rows, max_size=rows))
    mask = draw(st.lists(st.lists(st.booleans(), min_size=columns, max_size=columns), min_size=rows, max_size=rows))
    empty = draw(st.lists(st.booleans(), min_size=rows, max_size=rows))
    return scores, [[False] * columns if none else row for none, row in zip(empty, mask, strict=True)]


@settings(derandomize=True, deadline=None, max_examples=80)
@given(masked_rows(), st.sampled_from([torch.float64, torch.float32, torch.float16, torch.bfloat16]))
def test_masked_softmax_properties(given_rows: tuple[list[list[float]], list[list[bool]]], dtype: torch.dtype) -> None:
    """Finite values and gradients, nothing on masked keys, sums of 1 or 0, and masked content plays no part."""
    scores = torch.tensor(given_rows[0], dtype=dtype, requires_grad=True)
    mask = torch.tensor(given_rows[1])
    weights = masked_softmax(scores, mask)
    assert weights.dtype == dtype
    assert weights.isfinite().all()
    assert not weights[~mask].any()
    torch.testing.assert_close(weights.double().sum(-1), mask.any(-1).double(), atol=0.02, rtol=0)
    upstream = torch.linspace(-1, 1, scores.numel(), dtype=dtype).view_as(scores)
    (gradient,) = torch.autograd.grad(weights, scores, upstream)
    assert gradient.isfinite().all()
    assert not gradient[~mask].any()
    for garbage in (1e4, -1e4):
        other = scores.detach().masked_fill(~mask, garbage).requires_grad_()
        again = masked_softmax(other, mask)
        assert torch.equal(again, weights)
        assert torch.equal(torch.autograd.grad(again, other, upstream)[0], gradient)
    if dtype == torch.float64:
        expected = [softmax_by_hand(*row) for row in zip(*given_rows, strict=True)]
        torch.testing.assert_close(weights.detach(), torch.tensor(expected, dtype=dtype))


def test_the_traps_it_avoids() -> None:
    """Minus infinity makes an empty row NaN; -1e9 makes it an average over padding, and erases what it is added to."""
    scores, nothing = torch.tensor([[1.0, 2.0]]), torch.tensor([[False, False]])
    assert scores.masked_fill(~nothing, -torch.inf).softmax(-1).isnan().all()
    assert torch.equal(scores.masked_fill(~nothing, -1e9).softmax(-1), torch.tensor([[0.5, 0.5]]))
    assert torch.tensor(-1e9).half() == -torch.inf
    assert torch.equal(scores + -1e9, torch.full((1, 2), -1e9))
    assert torch.equal(masked_softmax(scores, nothing), torch.zeros(1, 2))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("level", [-60000.0, -1e4, 0.0, 6e4])
def test_the_filling_is_below_every_usable_score(dtype: torch.dtype, level: float) -> None:
    """float16 ends at -65504: even scores near that leave no mass on the masked keys."""
    scores = torch.full((1, 4), level, dtype=dtype)
    weights = masked_softmax(scores, torch.tensor([[True, True, False, False]]))
    assert torch.equal(weights, torch.tensor([[0.5, 0.5, 0.0, 0.0]], dtype=dtype))


def test_an_empty_row_does_not_poison_the_others() -> None:
    scores = random(2, 3).requires_grad_()
    weights = masked_softmax(scores, torch.tensor([[True, True, False], [False, False, False]]))
    (gradient,) = torch.autograd.grad(weights[0, 0], scores)
    assert gradient.isfinite().all()
    assert gradient[0, :2].abs().min() > 0
    assert not gradient[1].any()


# Fast and written out: one signature, one result.

CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "padding": {"mask": padding_mask(torch.tensor([[True] * 5, [True, True, False, False, False]]))},
    "a mask for each query": {"mask": "some empty"},
    "everything masked": {"mask": torch.zeros(B, 1, T, S, dtype=torch.bool)},
    "causal square": {"causal": True, "queries": S},
    "causal after cached keys": {"causal": True, "queries": 2},
    "causal one step": {"causal": True, "queries": 1},
    "causal longer than its keys": {"causal": True, "queries": 7},
    "causal with padding": {
        "causal": True,
        "queries": S,
        "mask": padding_mask(torch.tensor([[True] * 5, [False] * 5])),
    },
    "bias": {"bias": (1, H)},
    "bias and mask": {"bias": (B, H), "mask": "some empty"},
    "bias and causal": {"bias": (B, 1), "causal": True, "queries": S},
    "bias, mask and causal after cached keys": {
        "bias": (B, H),
        "causal": True,
        "queries": 3,
        "mask": padding_mask(torch.tensor([[True] * 5, [False, False, False, True, False]])),
    },
}


def prepare(case: dict[str, Any], value_width: int) -> tuple[list[Tensor], dict[str, Any]]:
    """The tensors that want gradients (queries, keys, values, perhaps a bias) and the other arguments."""
    queries = case.get("queries", T)
    tensors = list(inputs(queries, S, value_width))
    if "bias" in case:
        tensors.append(random(*case["bias"], queries, S))
    mask = some_empty(queries, S) if case.get("mask") == "some empty" else case.get("mask")
    return [tensor.requires_grad_() for tensor in tensors], {"mask": mask, "causal": case.get("causal", False)}


def run(path: Any, tensors: list[Tensor], others: dict[str, Any]) -> Tensor:
    return path(*tensors[:3], bias=tensors[3] if len(tensors) > 3 else None, **others)


@pytest.mark.parametrize("short", [0, core.SHORT])
@pytest.mark.parametrize("value_width", [D_K, D_V])
@pytest.mark.parametrize("name", CASES)
def test_fast_equals_reference(name: str, value_width: int, short: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through torch's kernel, and for short sequences through small products."""
    monkeypatch.setattr(core, "SHORT", short)
    tensors, others = prepare(CASES[name], value_width)
    fast, reference = (run(path, tensors, others) for path in PATHS)
    torch.testing.assert_close(fast, reference, rtol=1e-10, atol=1e-12)
    upstream = torch.randn_like(fast)
    fast_gradients = torch.autograd.grad(fast, tensors, upstream)
    torch.testing.assert_close(fast_gradients, torch.autograd.grad(reference, tensors, upstream), rtol=1e-9, atol=1e-12)
    assert all(gradient.isfinite().all() for gradient in fast_gradients)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", ["bias and mask", "causal after cached keys"])
def test_gradients_against_finite_differences(name: str, path: Any) -> None:
    tensors, others = prepare(CASES[name], D_V)
    check_gradients(lambda *given: run(path, list(given), others), *(tensor[:, :1] for tensor in tensors))


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("biased", [False, True])
def test_rows_with_nothing_to_see_give_zeros_and_finite_gradients(path: Any, dtype: torch.dtype, biased: bool) -> None:
    tensors, others = prepare(CASES["bias and mask" if biased else "a mask for each query"], D_K)
    tensors = [tensor.detach().to(dtype).requires_grad_() for tensor in tensors]
    result = run(path, tensors, others)
    empty = ~others["mask"].expand(B, H, T, S).any(-1)
    assert empty.sum() == 2 * H
    assert result.dtype == dtype
    assert result.isfinite().all()
    assert torch.equal(result[empty], torch.zeros_like(result[empty]))
    gradients = torch.autograd.grad(result.float().square().sum() + result.float().sum(), tensors)
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert not gradients[0][empty].any()  # a query that sees nothing learns nothing


@pytest.mark.parametrize("path", PATHS)
def test_masked_content_plays_no_part(path: Any) -> None:
    queries, keys, values = inputs()
    hidden = torch.tensor([False, False, True, False, True])
    mask = (~hidden).expand(B, 1, T, S)
    plain = path(queries, keys, values, mask)
    keys[:, :, hidden] = 1e4
    values[:, :, hidden] = -1e4
    assert torch.equal(path(queries, keys, values, mask), plain)


@pytest.mark.parametrize("path", PATHS)
def test_half_precision_is_near(path: Any) -> None:
    tensors, others = prepare(CASES["bias and mask"], D_V)
    exact = run(attend_reference, tensors, others)
    for dtype, tolerance in ((torch.float16, 5e-3), (torch.bfloat16, 5e-2)):
        near = run(path, [tensor.to(dtype) for tensor in tensors], others)
        torch.testing.assert_close(near.double(), exact, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("path", PATHS)
def test_dropout_takes_weights_away_and_scales_the_rest(path: Any) -> None:
    """With the identity as values the result is the dropped-out weights themselves: rows no longer sum to 1."""
    queries, keys = random(B, H, 50, D_K), random(B, H, S, D_K)
    weights = attention_weights(queries, keys)
    dropped = path(queries, keys, torch.eye(S, dtype=torch.float64).expand(B, H, S, S), drop=0.25)
    kept = dropped != 0
    torch.testing.assert_close(dropped[kept], (weights / 0.75)[kept])
    assert 0.7 < kept.double().mean() < 0.8
    assert not torch.allclose(dropped.sum(-1), torch.ones(B, H, 50, dtype=torch.float64))


# Causality.


@pytest.mark.parametrize("path", PATHS)
def test_the_future_cannot_be_seen(path: Any) -> None:
    queries, keys, values = inputs(S)
    plain = path(queries, keys, values, causal=True)
    for k in range(S):
        changed_keys, changed_values = keys.clone(), values.clone()
        changed_keys[:, :, k] += 1.0
        changed_values[:, :, k] += 1.0
        changed = path(queries, changed_keys, changed_values, causal=True)
        assert torch.equal(changed[:, :, :k], plain[:, :, :k])
        assert not torch.isclose(changed[:, :, k:], plain[:, :, k:]).all(-1).any()


def test_the_jacobian_of_causal_attention_is_lower_triangular() -> None:
    states = random(S, D_K)

    def call(x: Tensor) -> Tensor:
        return attend(x[None, None], x[None, None], x[None, None], causal=True)[0, 0].sum(-1)

    sizes = torch.autograd.functional.jacobian(call, states).abs().sum(-1)  # (T, S)
    assert torch.equal(sizes > 0, causal_mask(S, S))


@pytest.mark.parametrize("leading", [(), (B,), (B, H), (2, B, H)])
def test_leading_dimensions_stay_as_they_are(leading: tuple[int, ...]) -> None:
    weights = attention_weights(random(*leading, T, D_K), random(*leading, S, D_K), causal=True)
    assert weights.shape == (*leading, T, S)
    torch.testing.assert_close(weights.sum(-1), torch.ones(*leading, T, dtype=torch.float64))


def test_steps_over_cached_keys_equal_the_square() -> None:
    queries, keys, values = inputs(S)
    whole = attend(queries, keys, values, causal=True)
    for done, until in ((0, 1), (1, 2), (2, 5), (4, 5)):
        part = attend(queries[:, :, done:until], keys[:, :, :until], values[:, :, :until], causal=True)
        torch.testing.assert_close(part, whole[:, :, done:until])


@pytest.mark.parametrize("widths", [(4, 4), (4, 7), (16, 3)])
def test_parity_with_torchs_kernel(widths: tuple[int, int]) -> None:
    """It scales by itself: nothing is scaled twice."""
    d_k, d_v = widths
    queries, keys, values = random(B, H, T, d_k), random(B, H, S, d_k), random(B, H, S, d_v)
    expected = F.scaled_dot_product_attention(queries, keys, values)
    for path in PATHS:
        torch.testing.assert_close(path(queries, keys, values), expected)
