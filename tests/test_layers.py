"""Small parts: embedding, feed-forward, norms and residuals, by formula and against torch's layers."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sightline.attention.masks import padding_mask
from sightline.attention.multihead import MultiHeadAttention
from sightline.decoders import TransformerDecoderLayer
from sightline.encoders import TransformerEncoder, TransformerEncoderLayer
from sightline.layers import Dropout, Embedding, FeedForward, Residual, make_norm
from sightline.stack import Stack
from tests.oracles import check_gradients
from tests.twins import copy_decoder_layer, copy_encoder_layer, shake

B, T, S, D, H, F_INNER = 2, 4, 6, 12, 3, 20


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


# Embedding.


def test_the_padding_row_starts_at_zero_and_learns_nothing() -> None:
    embedding = Embedding(7, 4, padding=2, positions=None, dropout=0.0)
    assert not embedding.weight[2].any()
    embedding(torch.tensor([[2, 3], [5, 2]])).sum().backward()
    assert embedding.weight.grad is not None
    assert not embedding.weight.grad[2].any()
    assert torch.equal(embedding.weight.grad[3], torch.full((4,), 2.0))  # √4


def test_the_table_starts_with_unit_vectors() -> None:
    """N(0, 1/d), so that the same table, unscaled, is a sane output layer; √d brings it to the size of positions."""
    embedding = Embedding(2000, 64, padding=0, positions=None, dropout=0.0)
    assert embedding.weight[1:].std().item() == pytest.approx(1 / 8, rel=0.02)
    assert embedding(torch.arange(1, 2000)[None]).std().item() == pytest.approx(1.0, rel=0.02)


# Feed-forward.


@pytest.mark.parametrize("activation", FeedForward.ACTIVATIONS)
def test_feed_forward_works_position_by_position(activation: str) -> None:
    layer = FeedForward(D, F_INNER, activation).double()
    shake(layer)
    states = random(B, T, D)
    whole = layer(states)
    for t in range(T):
        torch.testing.assert_close(layer(states[:, t]), whole[:, t])
    chunks = torch.cat([layer(chunk) for chunk in states.split(3, 1)], 1)
    torch.testing.assert_close(chunks, whole, rtol=1e-14, atol=1e-14)


def exact_gelu(x: Tensor) -> Tensor:
    return x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))


def tanh_gelu(x: Tensor) -> Tensor:
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


@pytest.mark.parametrize(
    ("activation", "function"),
    [("relu", lambda x: x.clamp(min=0)), ("gelu", exact_gelu), ("gelu_tanh", tanh_gelu)],
)
def test_feed_forward_by_formula(activation: str, function: Any) -> None:
    """Both biases are inside: b₁ before the activation, b₂ after W₂."""
    layer = FeedForward(D, F_INNER, activation).double()
    shake(layer)
    states = random(B, T, D)
    inner = states @ layer.inner.weight.T + layer.inner.bias
    expected = function(inner) @ layer.outer.weight.T + layer.outer.bias
    torch.testing.assert_close(layer(states), expected)
    assert sum(p.numel() for p in layer.parameters()) == 2 * D * F_INNER + F_INNER + D


@pytest.mark.parametrize(("activation", "function"), [("geglu", tanh_gelu), ("swiglu", lambda x: x * torch.sigmoid(x))])
def test_gated_feed_forward_by_formula(activation: str, function: Any) -> None:
    layer = FeedForward(D, F_INNER, activation).double()
    shake(layer)
    states = random(B, T, D)
    opened, gate = (states @ layer.inner.weight.T + layer.inner.bias).split(F_INNER, -1)
    expected = (function(opened) * gate) @ layer.outer.weight.T + layer.outer.bias
    torch.testing.assert_close(layer(states), expected)
    assert sum(p.numel() for p in layer.parameters()) == 3 * D * F_INNER + 2 * F_INNER + D


def test_the_two_gelus_are_near_but_not_equal() -> None:
    x = torch.linspace(-4, 4, 400, dtype=torch.float64)
    gap = (FeedForward.ACTIVATIONS["gelu"][0](x) - FeedForward.ACTIVATIONS["gelu_tanh"][0](x)).abs().max().item()
    assert 1e-4 < gap < 1e-3


def test_feed_forward_equals_two_convolutions_of_one() -> None:
    layer, states = FeedForward(D, F_INNER).double(), random(B, T, D)
    hidden = F.conv1d(states.transpose(1, 2), layer.inner.weight[..., None], layer.inner.bias)
    expected = F.conv1d(hidden.relu(), layer.outer.weight[..., None], layer.outer.bias).transpose(1, 2)
    torch.testing.assert_close(layer(states), expected)


def test_gradient_of_feed_forward() -> None:
    layer = FeedForward(4, 6, "swiglu").double()
    check_gradients(layer, random(3, 4))


# Norms.


def test_layer_norm_has_zero_mean_and_unit_deviation() -> None:
    """Not "unit mean", and divided by the deviation, not by the variance; the variance is the biased one."""
    states = random(B, T, D) * 5 + 3
    normed = make_norm("layer", D).double()(states)
    torch.testing.assert_close(normed.mean(-1), torch.zeros(B, T, dtype=torch.float64))
    torch.testing.assert_close(
        normed.std(-1, correction=0), torch.ones(B, T, dtype=torch.float64), rtol=1e-5, atol=1e-5
    )
    centred = states - states.mean(-1, keepdim=True)
    deviation = (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()  # epsilon inside the root
    torch.testing.assert_close(normed, centred / deviation)
    assert not torch.allclose(normed, centred / deviation**2, rtol=0.1)


def test_layer_norm_ignores_shift_and_scale() -> None:
    norm, states = make_norm("layer", D).double(), random(B, T, D)
    torch.testing.assert_close(norm(states * 7 + 2), norm(states), rtol=1e-4, atol=1e-4)


def test_layer_norm_gain_and_shift_come_last() -> None:
    norm = nn.LayerNorm(D).double()
    ours = make_norm("layer", D).double()
    shake(ours)
    states = random(B, T, D)
    torch.testing.assert_close(ours(states), norm(states) * ours.weight + ours.bias)


@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_a_norm_looks_at_one_token_only(kind: str) -> None:
    """Statistics over time or batch would let padding leak in."""
    norm, states = make_norm(kind, D).double(), random(B, T, D)
    whole = norm(states)
    torch.testing.assert_close(norm(states[1, 2]), whole[1, 2])
    changed = states.clone()
    changed[0, 0] += 100
    assert torch.equal(norm(changed)[1], whole[1])
    assert torch.equal(norm(changed)[0, 1:], whole[0, 1:])


def test_rms_norm_keeps_the_mean_and_has_unit_root_mean_square() -> None:
    states = random(B, T, D) + 2
    normed = make_norm("rms", D).double()(states)
    torch.testing.assert_close(normed, states / (states.square().mean(-1, keepdim=True) + 1e-6).sqrt())


# Residuals.


@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_pre_and_post(kind: str) -> None:
    states, twice = random(B, T, D), nn.Linear(D, D).double()
    pre, post = (Residual(D, kind, position, 0.0).double() for position in ("pre", "post"))
    torch.testing.assert_close(pre(states, twice), states + twice(pre.norm(states)))
    torch.testing.assert_close(post(states, twice), post.norm(states + twice(states)))


def test_a_pre_norm_residual_lets_the_gradient_past() -> None:
    states = random(B, T, D).requires_grad_()
    Residual(D, "layer", "pre", 0.0).double()(states, lambda x: x * 0).sum().backward()
    assert torch.equal(states.grad, torch.ones_like(states))


def test_residual_dropout_is_on_the_sublayer_alone() -> None:
    """Whatever is dropped, the states themselves pass."""
    states = random(B, T, D)
    residual = Residual(D, "layer", "pre", 0.5).double()
    added = residual(states, lambda x: torch.ones_like(x)) - states
    assert torch.isclose(added, torch.tensor(0.0, dtype=added.dtype)).any()
    assert (torch.isclose(added, torch.zeros_like(added)) | torch.isclose(added, torch.full_like(added, 2))).all()


# Whole layers.


def encoder_layer(position: str, activation: str = "relu") -> TransformerEncoderLayer:
    feedforward = FeedForward(D, F_INNER, activation)
    layer = TransformerEncoderLayer(MultiHeadAttention(D, H), feedforward, "layer", position, 0.0).double()
    shake(layer)
    return layer


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("position", ["pre", "post"])
def test_encoder_layer_parity(position: str, activation: str) -> None:
    ours = encoder_layer(position, activation)
    theirs = nn.TransformerEncoderLayer(
        D, H, F_INNER, dropout=0.0, activation=activation, batch_first=True, norm_first=position == "pre"
    ).double()
    copy_encoder_layer(ours, theirs)
    states = random(B, S, D).requires_grad_()
    real = torch.tensor([[True] * 6, [True, True, True, True, False, False]])
    result = ours(states, padding_mask(real))
    expected = theirs(states, src_key_padding_mask=~real)
    torch.testing.assert_close(result[real], expected[real])
    gradients = [torch.autograd.grad(value[real].square().sum(), states)[0] for value in (result, expected)]
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("position", ["pre", "post"])
def test_decoder_layer_parity(position: str) -> None:
    ours = TransformerDecoderLayer(
        MultiHeadAttention(D, H), MultiHeadAttention(D, H), FeedForward(D, F_INNER), "layer", position, 0.0
    ).double()
    shake(ours)
    theirs = nn.TransformerDecoderLayer(
        D, H, F_INNER, dropout=0.0, batch_first=True, norm_first=position == "pre"
    ).double()
    copy_decoder_layer(ours, theirs)
    states, memory = random(B, T, D).requires_grad_(), random(B, S, D).requires_grad_()
    real = torch.tensor([[True] * 6, [True, True, True, True, False, False]])
    result, _ = ours(states, memory, padding_mask(real))
    future = torch.ones(T, T, dtype=torch.bool).triu(1)
    expected = theirs(states, memory, tgt_mask=future, memory_key_padding_mask=~real)
    torch.testing.assert_close(result, expected)
    gradients = [torch.autograd.grad(value.square().sum(), (states, memory)) for value in (result, expected)]
    torch.testing.assert_close(*gradients)


def test_pre_norm_stacks_end_with_a_norm_and_post_norm_stacks_do_not() -> None:
    for position in ("pre", "post"):
        stack = TransformerEncoder([encoder_layer(position) for _ in range(3)], "layer", position).double()
        with torch.no_grad():
            for layer in stack.layers:  # large sublayers: without the last norm the sums would grow
                layer.feedforward.outer.weight.mul_(30)
                layer.around_feedforward.norm.weight.fill_(1)
                layer.around_feedforward.norm.bias.zero_()
        states = stack(random(B, S, D), torch.ones(B, S, dtype=torch.bool)).states
        torch.testing.assert_close(states.mean(-1), torch.zeros(B, S, dtype=torch.float64))
        torch.testing.assert_close(
            states.std(-1, correction=0), torch.ones(B, S, dtype=torch.float64), rtol=1e-3, atol=1e-3
        )
        assert isinstance(stack.norm, nn.LayerNorm) == (position == "pre")


def test_a_stack_is_a_list_of_modules() -> None:
    stack = Stack(nn.Linear(2, 2) for _ in range(3))
    assert len(stack) == 3
    assert list(stack) == [stack[0], stack[1], stack[2]]
    assert sorted(stack.state_dict()) == sorted(nn.ModuleList(nn.Linear(2, 2) for _ in range(3)).state_dict())


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_dropout_drops_its_share_and_keeps_the_mean(rate: float) -> None:
    dropout = Dropout(rate).train()
    values = torch.ones(1000, 401, requires_grad=True)
    dropped = dropout(values)
    share = float((dropped == 0).double().mean())
    assert abs(share - rate) < 5 * (rate * (1 - rate) / values.numel()) ** 0.5  # five standard deviations
    assert torch.equal(dropped.unique(), torch.tensor([0.0, 1 / (1 - rate)]))
    dropped.sum().backward()
    assert torch.equal(values.grad, dropped.detach())  # the gradient passes where the value did, as much scaled
    columns = (dropped == 0).double().mean(0)  # the four that share a draw are no likelier than others
    assert float(columns.std()) < 1.3 * (rate * (1 - rate) / 1000) ** 0.5


def test_dropout_is_seeded_and_off_when_not_training() -> None:
    dropout = Dropout(0.3)
    values = torch.randn(7, 5)
    torch.manual_seed(3)
    first = dropout(values)
    torch.manual_seed(3)
    assert torch.equal(dropout(values), first)
    assert not torch.equal(dropout(values), first)
    assert dropout.eval()(values) is values
