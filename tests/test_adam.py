"""Our AdamW is torch's to the last bit, and does not bring torch's compiler along."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from sightline.training.adam import AdamW

BETAS, EPSILON = (0.9, 0.98), 1e-9


def parameters(seed: int = 0) -> list[nn.Parameter]:
    """Two matrices, a vector and a single number."""
    generator = torch.Generator().manual_seed(seed)
    shapes: list[tuple[int, ...]] = [(5, 3), (2, 70), (7,), ()]
    return [nn.Parameter(torch.randn(shape, generator=generator)) for shape in shapes]


def gradients(step: int) -> list[Tensor | None]:
    """Of each step; now and then a parameter gets none."""
    generator = torch.Generator().manual_seed(100 + step)
    drawn = [torch.randn(one.shape, generator=generator) for one in parameters()]
    return [None if (step + place) % 5 == 0 else gradient for place, gradient in enumerate(drawn)]


@pytest.mark.parametrize("fused", [True, False])
def test_it_is_torchs_to_the_last_bit(fused: bool) -> None:
    ours, theirs = parameters(), parameters()
    optimizer = AdamW(
        [{"params": ours[:2], "weight_decay": 0.1}, {"params": ours[2:], "weight_decay": 0.0}], BETAS, EPSILON
    )
    optimizer._fused = fused
    groups = [{"params": theirs[:2], "weight_decay": 0.1}, {"params": theirs[2:], "weight_decay": 0.0}]
    reference = torch.optim.AdamW(groups, lr=0.0, betas=BETAS, eps=EPSILON, fused=fused, foreach=False)
    for step in range(12):
        for group in (*optimizer.param_groups, *reference.param_groups):
            group["lr"] = 0.01 * (step + 1)
        for one, other, gradient in zip(ours, theirs, gradients(step), strict=True):
            one.grad = None if gradient is None else gradient.clone()
            other.grad = None if gradient is None else gradient.clone()
        optimizer.step()
        reference.step()
        optimizer.zero_grad()
        assert all(parameter.grad is None for parameter in ours)
    for one, other in zip(ours, theirs, strict=True):
        assert torch.equal(one, other)
        assert optimizer.state[one].keys() == reference.state[other].keys()
        for name, value in optimizer.state[one].items():
            assert torch.equal(value, reference.state[other][name])


def test_two_steps_worked_by_hand() -> None:
    parameter = nn.Parameter(torch.tensor([1.0], dtype=torch.float64))
    optimizer = AdamW([{"params": [parameter], "weight_decay": 0.5, "lr": 0.1}], (0.5, 0.75), 0.0)
    parameter.grad = torch.tensor([4.0], dtype=torch.float64)
    optimizer.step()
    # Decay takes 1 to 0.95. Both moments, corrected, are those of the gradient itself: 4 / √16.
    assert parameter.item() == pytest.approx(0.95 - 0.1)
    parameter.grad = torch.tensor([-2.0], dtype=torch.float64)
    optimizer.step()
    first = (0.5 * 2 - 0.5 * 2) / (1 - 0.25)
    second = (0.75 * 4 + 0.25 * 4) / (1 - 0.75**2)
    assert parameter.item() == pytest.approx(0.85 * 0.95 - 0.1 * first / math.sqrt(second))
    assert optimizer.state[parameter]["step"].item() == 2


def test_a_parameter_without_a_gradient_has_no_state() -> None:
    parameter = nn.Parameter(torch.ones(2))
    optimizer = AdamW([{"params": [parameter], "weight_decay": 0.5, "lr": 0.1}], BETAS, EPSILON)
    optimizer.step()
    assert not optimizer.state
    assert torch.equal(parameter, torch.ones(2))
