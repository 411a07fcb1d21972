"""Both libraries multiply alike: values and gradients against each other, against numpy, and inside whole models."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sightline import products
from sightline.outputs import Output
from tests.conftest import random_batch, small_model

# Of the states, and the width that comes out.
SHAPES = [((64, 96), 256), ((3, 70, 128), 128), ((33, 257), 130), ((2048, 24), 40)]


@pytest.fixture(autouse=True)
def _always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small products go there too."""
    monkeypatch.setattr(products, "FEW_ROWS", 1)
    monkeypatch.setattr(products, "FEW_MULTIPLICATIONS", 1)


@pytest.fixture(params=[False, True], ids=["torch's own", "onednn"])
def library(request: pytest.FixtureRequest) -> Iterator[bool]:
    with products.by_onednn(request.param):
        yield request.param


def test_products_are_numpys(library: bool) -> None:
    rng = np.random.default_rng(1)
    rows, weight, base = (rng.normal(size=shape).astype(np.float32) for shape in ((37, 20), (50, 20), (37, 50)))
    given = [torch.from_numpy(part) for part in (rows, weight, base)]
    np.testing.assert_allclose(products.product(given[0], given[1]), rows @ weight.T, atol=1e-5)
    np.testing.assert_allclose(products.add_product(given[2], given[0], given[1]), base + rows @ weight.T, atol=1e-5)
    total = given[2].clone()
    assert products.add_product(total, given[0], given[1], out=total) is total
    np.testing.assert_allclose(total, base + rows @ weight.T, atol=1e-5)
    for left, right in ((base, rows), (rows, base)):  # either one may be the wider one
        found = products.by_weight(torch.from_numpy(left), torch.from_numpy(right))
        np.testing.assert_allclose(found, left.T @ right, atol=1e-5)
        assert found.is_contiguous()


def test_the_same_product_twice_is_the_same_to_the_bit(library: bool) -> None:
    """A run that goes on must come to the weights of one that was not interrupted."""
    rows, weight, given = torch.randn(2000, 96), torch.randn(128, 96), torch.randn(2000, 128)
    assert torch.equal(products.product(rows, weight), products.product(rows.clone(), weight.clone()))
    assert torch.equal(products.by_weight(given, rows), products.by_weight(given.clone(), rows.clone()))


def test_products_of_views(library: bool) -> None:
    wide, tall = torch.randn(40, 60), torch.randn(60, 30)
    torch.testing.assert_close(products.product(wide, tall.T), wide @ tall)
    torch.testing.assert_close(products.product(wide.T, tall.T[:, :40]), wide.T @ tall[:40])
    torch.testing.assert_close(products.linear(wide[:, 10:30], tall[:20].T), wide[:, 10:30] @ tall[:20])


def test_a_part_of_a_matrix_is_brought_into_one_piece() -> None:
    """Some columns of a wider matrix, of which oneDNN would take a thousand times as long."""
    wide = torch.randn(6, 8)
    for whole in (wide, wide[2:], wide.T):
        assert products._dense(whole) is whole
    assert products._dense(wide[:, 2:]).is_contiguous()
    assert torch.equal(products._dense(wide[:, 2:]), wide[:, 2:])


@pytest.mark.parametrize(("shape", "width"), SHAPES)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("relu", [True, False])
def test_a_layer_and_its_gradients(library: bool, shape: tuple[int, ...], width: int, bias: bool, relu: bool) -> None:
    torch.manual_seed(2)
    layer, states = nn.Linear(shape[-1], width, bias), torch.randn(shape, requires_grad=True)
    given = torch.randn(*shape[:-1], width)

    def gradients(result: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad((result * given).sum(), [states, *layer.parameters()])

    expected = layer(states).relu() if relu else layer(states)
    found = products.through(layer, states, relu)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
    for one, other in zip(gradients(found), gradients(expected), strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)
    with torch.no_grad():
        torch.testing.assert_close(products.through(layer, states, relu), expected, atol=1e-5, rtol=1e-4)


def test_a_part_that_needs_no_gradient_gets_none(library: bool) -> None:
    layer, states = nn.Linear(8, 6), torch.randn(5, 8)
    products.through(layer, states).sum().backward()
    assert states.grad is None
    assert layer.weight.grad is not None
    torch.testing.assert_close(layer.weight.grad, states.sum(0).expand(6, 8))
    layer.requires_grad_(False)
    assert not products.through(layer, states).requires_grad


def test_anything_but_float32_is_torchs(library: bool) -> None:
    layer, states = nn.Linear(8, 6).double(), torch.randn(5, 8, dtype=torch.float64)
    assert torch.equal(products.through(layer, states), layer(states))
    plain = nn.Linear(8, 6)
    with torch.autocast("cpu", torch.bfloat16):
        assert products.through(plain, states.float()).dtype == torch.bfloat16


def test_few_rows_are_torchs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "FEW_ROWS", 5)
    monkeypatch.setattr(products, "_onednn", None)  # not to be called
    states, weight = torch.randn(4, 8), torch.randn(6, 8)
    with products.by_onednn(True):
        assert torch.equal(products.linear(states, weight), F.linear(states, weight))


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (b"vendor_id\t: GenuineIntel\n", False),
        (b"vendor_id\t: AuthenticAMD\n", True),
        (None, False),
        (b"\xff\xfe", False),
    ],
)
def test_which_library_follows_from_the_processor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: bytes | None, answer: bool
) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    path = tmp_path / "cpuinfo"
    if text is not None:
        path.write_bytes(text)
    assert products.has_unused_kernels(path) is answer
    products.has_unused_kernels.cache_clear()
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
    assert products.has_unused_kernels(path) is False
    products.has_unused_kernels.cache_clear()


@pytest.mark.parametrize("recipe", ["transformer", "bahdanau", "luong", "seq2seq"])
def test_a_model_learns_the_same_by_both(recipe: str) -> None:
    model, batch = small_model(recipe).float(), random_batch([9, 7, 4, 3], [5, 8, 2, 6])

    def learn(wanted: bool) -> tuple[Tensor, ...]:
        with products.by_onednn(wanted):
            (loss, _), *_ = model.loss(batch).values()
            return loss, *torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)

    for one, other in zip(learn(True), learn(False), strict=True):
        assert (one is None) == (other is None)
        if other is not None:
            torch.testing.assert_close(one, other, atol=2e-4, rtol=1e-3)


def test_scores_for_mixtures(library: bool) -> None:
    torch.manual_seed(5)
    output = Output(16, 40)
    features, targets = torch.randn(600, 16, requires_grad=True), torch.randint(40, (600,))
    found = output.token_scores(features, targets)
    logits = F.linear(features, output.weight, output.bias)
    expected = logits.gather(1, targets[:, None]).squeeze(1), logits.logsumexp(-1), logits.mean(-1)

    def gradients(scores: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        total = sum((place + 1) * (part**2).sum() for place, part in enumerate(scores))
        return torch.autograd.grad(total, [features, output.weight, output.bias])

    for one, other in zip((*found, *gradients(found)), (*expected, *gradients(expected)), strict=True):
        torch.testing.assert_close(one, other, atol=1e-3, rtol=1e-3)


def test_kernels_of_shapes_that_are_gone_are_not_kept() -> None:
    """In a process of its own: how many are kept is settled at the first product."""
    program = """
import torch
from sightline import products
from sightline.performance import peak_resident
torch.set_num_threads(1)
weight, rows = torch.randn(384, 128), torch.randn(2000, 128)
with products.by_onednn(True):
    for count in range(500, 600):
        products.linear(rows[:count], weight)
    before = peak_resident()
    for count in range(600, 1000):
        products.linear(rows[:count], weight)
    print((peak_resident() - before) / 2**20)
"""
    environment = {name: value for name, value in os.environ.items() if not name.endswith("CACHE_CAPACITY")}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment, timeout=120
    )
    assert float(done.stdout) < 100  # megabytes; 400 kernels have some 300
