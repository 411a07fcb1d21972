"""How a new Transformer begins: what is left of a token at the top of the stack, and of the gradient at its bottom."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sightline.attention.multihead import MultiHeadAttention
from sightline.batch import Memory
from sightline.decoders import TransformerDecoder, TransformerDecoderLayer
from sightline.encoders import TransformerEncoder, TransformerEncoderLayer
from sightline.layers import FeedForward, start_small
from sightline.positions import sinusoids

B, S, D, H, F = 4, 12, 64, 4, 128


def encoder(layers: int, position: str = "post") -> TransformerEncoder:
    torch.manual_seed(1)
    stack = [
        TransformerEncoderLayer(MultiHeadAttention(D, H), FeedForward(D, F), "layer", position, 0.0)
        for _ in range(layers)
    ]
    return TransformerEncoder(stack, "layer", position)


def decoder(layers: int, position: str = "post") -> TransformerDecoder:
    torch.manual_seed(1)
    stack = [
        TransformerDecoderLayer(
            MultiHeadAttention(D, H), MultiHeadAttention(D, H), FeedForward(D, F), "layer", position, 0.0
        )
        for _ in range(layers)
    ]
    return TransformerDecoder(stack, "layer", position)


def enlarged(stack: TransformerEncoder) -> TransformerEncoder:
    """The stack as Xavier's rule alone would begin."""
    matrices = [matrix for layer in stack.layers for matrix in layer.last_matrices()]
    with torch.no_grad():
        for matrix in matrices:
            matrix.weight.mul_(math.sqrt(len(matrices)))
    return stack


def embedded() -> Tensor:
    """Random tokens at their positions, as an embedding makes them, `(B, S, d)`."""
    return torch.randn(B, S, D, generator=torch.Generator().manual_seed(2)) + sinusoids(S, D).float()


def distinct(states: Tensor) -> float:
    """The share of the states' size `(B, S, d)` by which the positions of a sentence differ from their mean."""
    return float((states - states.mean(1, keepdim=True)).square().sum() / states.square().sum())


def top(stack: TransformerEncoder, inputs: Tensor) -> Tensor:
    states: Tensor = stack(inputs, torch.ones(B, S, dtype=torch.bool)).states
    return states


def test_last_matrices_are_divided_by_the_root_of_their_number() -> None:
    linears = [nn.Linear(3, 3) for _ in range(4)]
    before = [linear.weight.clone() for linear in linears]
    start_small(linears)
    for linear, weight in zip(linears, before, strict=True):
        torch.testing.assert_close(linear.weight, weight / 2)
        assert linear.weight.requires_grad


@pytest.mark.parametrize(("make", "sublayers"), [(encoder, 2), (decoder, 3)])
def test_every_sublayer_of_a_post_norm_stack_starts_small_and_none_of_a_pre_norm_one(
    make: Callable[[int, str], Any], sublayers: int
) -> None:
    layers = 4
    post, pre = make(layers, "post"), make(layers, "pre")
    smaller = [matrix for layer in post.layers for matrix in layer.last_matrices()]
    assert len(smaller) == sublayers * layers
    shrunk = {id(matrix.weight) for matrix in smaller}
    pairs = zip(post.layers.parameters(), pre.layers.parameters(), strict=True)  # drawn from one seed
    for ours, theirs in pairs:
        factor = (sublayers * layers) ** -0.5 if id(ours) in shrunk else 1.0
        torch.testing.assert_close(ours, theirs * factor)


@pytest.mark.parametrize("layers", [4, 12])
def test_tokens_can_be_told_apart_at_the_top_of_a_new_post_norm_encoder(layers: int) -> None:
    """Else attention to the memory has nothing to choose from."""
    inputs = embedded()
    with torch.no_grad():
        assert distinct(top(encoder(layers), inputs)) > 0.6 * distinct(inputs)
        assert distinct(top(enlarged(encoder(layers)), inputs)) < 0.3 * distinct(inputs)


def test_the_gradient_reaches_the_bottom_of_a_new_post_norm_encoder() -> None:
    """By what distinguishes the positions: a direction that all of them share does not count."""

    def gradient(stack: TransformerEncoder) -> float:
        inputs = embedded().requires_grad_()
        wanted = torch.randn(B, S, D, generator=torch.Generator().manual_seed(3))
        (given,) = torch.autograd.grad((top(stack, inputs) * wanted).sum(), inputs)
        return float((given - given.mean(1, keepdim=True)).norm() / wanted.norm())

    small, large = gradient(encoder(12)), gradient(enlarged(encoder(12)))
    assert small > 0.4
    assert large < small / 2


def test_a_new_post_norm_decoder_still_knows_its_token() -> None:
    inputs = embedded()
    memory = Memory(embedded().flip(0), torch.ones(B, S, dtype=torch.bool))
    with torch.no_grad():
        features = decoder(6)(memory, inputs).features
    near = torch.cosine_similarity(features, inputs, -1).mean()
    assert near > 0.5
