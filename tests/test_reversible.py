"""Reversible stacks: what is computed again is what was there, to the last random number."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sightline.attention.capture import capture
from sightline.attention.lsh import LshAttention, Settings
from sightline.encoders import TransformerEncoder, TransformerEncoderLayer
from sightline.errors import SightlineError
from sightline.layers import FeedForward
from sightline.randomness import Draws, drawing_from, dropout
from sightline.reversible import Sublayer, kept, pass_through
from sightline.training.compiling import compile_layers
from sightline.training.side_by_side import Workers
from sightline.training.side_by_side import backward as side_by_side
from tests.conftest import random_batch, small_model

DROPPING = {"dropout": 0.3, "attention_dropout": 0.2, "activation_dropout": 0.2}
HASHING = {
    "encoder": {"attention": "lsh"},
    "decoder": {"attention": "lsh"},
    "lsh": {"rounds": 2, "chunk": 2, "buckets": 4},
}


def stack(layers: int, width: int = 16) -> TransformerEncoder:
    """Layers that drop and hash, in float32."""
    made = [
        TransformerEncoderLayer(
            LshAttention(width, 2, Settings(2, 4, 4), dropout=0.2, seed=layer),
            FeedForward(width, 32, dropout=0.2),
            "layer",
            "pre",
            0.2,
        )
        for layer in range(layers)
    ]
    return TransformerEncoder(made, "layer", "pre", reversible=True)


def sublayers(encoder: TransformerEncoder) -> list[Sublayer]:
    return [sublayer for layer in encoder.layers for sublayer in layer.sublayers(None)]


def test_what_came_in_is_computed_back() -> None:
    """Through 12 layers in float32, dropout and hashes included: both passes give each sublayer the same states."""
    given: list[Tensor] = []

    def noted(one: Sublayer) -> Sublayer:
        def call(states: Tensor, memory: Tensor | None) -> Tensor:
            given.append(states.detach())
            return one.call(states, memory)

        return Sublayer(one.around, one.module, call)

    encoder = stack(12).train()
    states = torch.randn(3, 10, 16, requires_grad=True)
    noting = [noted(one) for one in sublayers(encoder)]
    pass_through(noting, states).square().sum().backward()
    forward, again = given[:24], given[24:][::-1]
    assert len(again) == 24
    assert max(float((one - other).abs().max()) for one, other in zip(forward, again, strict=True)) < 1e-5


def gradients(found: Tensor, parameters: list[nn.Parameter], *inputs: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(found.square().sum(), [*parameters, *inputs])


@pytest.mark.parametrize("seed", [1, 2])
def test_gradients_are_those_of_kept_activations(seed: int) -> None:
    encoder = stack(3).double().train()
    states = torch.randn(3, 10, 16, dtype=torch.float64, requires_grad=True)
    parts = sublayers(encoder)
    parameters = [parameter for part in parts for parameter in part.parameters()]
    results = []
    for way in (pass_through, kept):
        with drawing_from(torch.Generator().manual_seed(seed)):
            found = way(parts, states)
        torch.manual_seed(17)  # whatever is drawn in between
        results.append((found, *gradients(found, parameters, states)))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("changes", [{}, DROPPING, {**DROPPING, **HASHING}, {"decoder": {"attention": "linear"}}])
def test_gradients_of_whole_models(changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Encoder and decoder, which reads the memory in every layer."""
    model = small_model("transformer", {"reversible": True, **changes}).train()
    batch = random_batch([5, 7, 3], [4, 6, 5])

    def found() -> list[Tensor]:
        torch.manual_seed(3)
        loss = model.loss(batch)["cross_entropy"][0]
        return [loss, *torch.autograd.grad(loss, list(model.parameters()))]

    again = found()
    for module in ("sightline.encoders", "sightline.decoders.transformer"):
        monkeypatch.setattr(f"{module}.pass_through", kept)
    for one, other in zip(again, found(), strict=True):
        torch.testing.assert_close(one, other)


def test_parts_side_by_side_draw_their_own_numbers_again() -> None:
    """A worker's generator is gone when the backward pass begins; the numbers are there all the same."""
    batches = [random_batch([5, 3], [4, 6], seed=1), random_batch([4, 6], [3, 5], seed=2)]
    results = []
    for reversible in (True, False):
        torch.manual_seed(0)
        model = small_model("transformer", {"reversible": True, **DROPPING}).train()
        workers = Workers(2, seed=4)
        with pytest.MonkeyPatch.context() as patch:
            if not reversible:
                for module in ("sightline.encoders", "sightline.decoders.transformer"):
                    patch.setattr(f"{module}.pass_through", kept)
            side_by_side(model, batches, {"cross_entropy": 1.0}, workers, step=3)
        workers.close()
        results.append([parameter.grad for parameter in model.parameters()])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)


def test_memory_does_not_grow_with_the_layers() -> None:
    def numbers(layers: int) -> int:
        """Kept for the backward pass, parameters left out."""
        encoder = stack(layers).train()
        own = {parameter.data_ptr() for parameter in encoder.parameters()}
        found: dict[int, int] = {}

        def note(tensor: Tensor) -> Tensor:
            if tensor.data_ptr() not in own:
                found[tensor.data_ptr()] = tensor.numel()
            return tensor

        states = torch.randn(2, 8, 16, requires_grad=True)
        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            pass_through(sublayers(encoder), states)
        return sum(found.values())

    assert numbers(6) == numbers(2) == 2 * (2 * 8 * 16)


def test_looking_changes_nothing_and_sees_once() -> None:
    """Not to the last bit: what is kept for the backward pass comes from another kernel than what is not."""
    model = small_model("transformer", {"reversible": True}).train()
    batch = random_batch([5, 7], [4, 6])
    plain = model.loss(batch)["cross_entropy"][0]
    with capture(model) as maps:
        looked_at = model.loss(batch)["cross_entropy"][0]
        looked_at.backward()
    torch.testing.assert_close(plain, looked_at)
    assert maps["decoder.layers.1.cross"].shape == (2, 3, 6, 7)


def test_bfloat16_is_computed_again_in_bfloat16() -> None:
    model = small_model("transformer", {"reversible": True}).float().train()
    model.precision = torch.bfloat16
    batch = random_batch([5, 7], [4, 6])
    loss = model.loss(batch)["cross_entropy"][0]
    found = torch.autograd.grad(loss, list(model.parameters()))
    with pytest.MonkeyPatch.context() as patch:
        for module in ("sightline.encoders", "sightline.decoders.transformer"):
            patch.setattr(f"{module}.pass_through", kept)
        other = torch.autograd.grad(model.loss(batch)["cross_entropy"][0], list(model.parameters()))
    for one, two in zip(found, other, strict=True):
        torch.testing.assert_close(one, two, rtol=0.05, atol=0.02 * float(two.abs().max()))


def test_draws_come_again_and_disturb_nobody() -> None:
    values = torch.ones(64)
    with drawing_from(torch.Generator().manual_seed(1)):
        draws = Draws.now(values.device)
        first, second = dropout(values, 0.5), dropout(values, 0.5)
        with draws.again():
            assert torch.equal(dropout(values, 0.5), first)
            assert torch.equal(dropout(values, 0.5), second)
        third = dropout(values, 0.5)
    with drawing_from(torch.Generator().manual_seed(1)):
        assert torch.equal([dropout(values, 0.5) for _ in range(3)][-1], third)


@pytest.mark.parametrize("chunk", [1, 3, 4, 100])
@pytest.mark.parametrize("activation", ["relu", "swiglu"])
def test_feed_forward_in_chunks_is_the_same(chunk: int, activation: str) -> None:
    """While it drops nothing: random numbers are drawn four at a time, and a chunk begins with new ones."""
    whole, states = FeedForward(8, 20, activation).double(), torch.randn(2, 10, 8, dtype=torch.float64)
    parted = FeedForward(8, 20, activation, chunk=chunk).double()
    parted.load_state_dict(whole.state_dict())
    torch.testing.assert_close(parted(states), whole(states), rtol=0, atol=1e-15)
    one, other = (gradients(part(states), list(part.parameters())) for part in (parted, whole))
    for found, expected in zip(one, other, strict=True):
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("changes", [{"reversible": True}, HASHING])
def test_what_cannot_be_compiled_says_so(changes: dict[str, Any]) -> None:
    with pytest.raises(SightlineError, match="cannot compile"):
        compile_layers(small_model("transformer", changes))
