"""A whole sequence in one step of autograd, and weights shared by a loop: torch's results, gradients included."""

import pytest
import torch
from torch import Tensor, nn

from sightline.decoders.cells import GATES
from sightline.encoders import RecurrentEncoder
from sightline.recurrence import scan
from sightline.repeated import RepeatedValues, RepeatedWeight
from tests.oracles import check_gradients

T, B, N = 4, 3, 5
NETWORKS = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("steps", [1, T])
def test_a_scan_equals_torchs_network(kind: str, steps: int) -> None:
    network = NETWORKS[kind](N, N).double()
    tokens, hidden, cell = random(steps, B, N), random(B, N), random(B, N)
    before = (hidden[None], cell[None]) if kind == "lstm" else hidden[None]
    expected, last = network(tokens, before)
    bias = network.bias_ih_l0 if kind == "gru" else network.bias_ih_l0 + network.bias_hh_l0
    inputs = tokens @ network.weight_ih_l0.T + bias
    outputs, cells = scan(kind, inputs, network.weight_hh_l0, network.bias_hh_l0, hidden, cell)
    torch.testing.assert_close(outputs, expected)
    if kind == "lstm":
        assert cells is not None
        torch.testing.assert_close(cells[-1], last[1][0])
    else:
        assert cells is None


@pytest.mark.parametrize("kind", GATES)
def test_its_gradient_against_finite_differences(kind: str) -> None:
    gates = GATES[kind] * N
    given = [random(T, B, gates), random(gates, N), random(gates), random(B, N), random(B, N)]

    def run(inputs: Tensor, weight: Tensor, bias: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, ...]:
        outputs, cells = scan(kind, inputs, weight, bias, hidden, cell)
        # The bias and the cell play their part in some kinds only; a gradient of zero must come out as zero.
        rest = 0 * (bias.sum() + cell.sum())
        return (outputs + rest,) if cells is None else (outputs + rest, cells)

    check_gradients(run, *given)


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("both", [False, True])
def test_the_encoders_two_ways_agree(kind: str, both: bool) -> None:
    """Ours, walking over the padding, and torch's packed sequences: states, last states, gradients."""
    encoder = RecurrentEncoder(kind, N, N, 2, bidirectional=both).double()
    mask = torch.arange(6) < torch.tensor([6, 2, 1, 4])[:, None]
    embedded = random(4, 6, N).requires_grad_()
    leaves = [embedded, *encoder.parameters()]
    found = []
    for way in (encoder.walk, encoder.packed):
        results = [value for value in way(embedded, mask) if value is not None]
        torch.manual_seed(1)
        total = sum((value * torch.randn_like(value)).sum() for value in results)
        found.append((results, torch.autograd.grad(total, leaves)))
    torch.testing.assert_close(found[0][0], found[1][0])
    torch.testing.assert_close(found[0][1], found[1][1])


def test_a_weight_shared_by_a_loop_gets_the_gradient_of_all_its_steps() -> None:
    weight, start = random(N, N).requires_grad_(), random(B, N).requires_grad_()

    def by_torch() -> Tensor:
        state = start
        for _ in range(T):
            state = torch.tanh(start + state @ weight.T)
        return state.sum() + (weight**2).sum()

    def by_us() -> Tensor:
        repeated = RepeatedWeight(weight)
        state = start
        for _ in range(T):
            state = torch.tanh(repeated.added(start, state))
        # A use beside the steps counts too, through the stand-in and through the weight itself.
        return state.sum() + (repeated.tensor * weight).sum()

    torch.testing.assert_close(by_us(), by_torch())
    expected = torch.autograd.grad(by_torch(), (weight, start))
    torch.testing.assert_close(torch.autograd.grad(by_us(), (weight, start)), expected)
    by_us().backward()
    torch.testing.assert_close((weight.grad, start.grad), expected)


def test_values_mixed_by_every_step_get_the_gradient_of_all() -> None:
    values, weights = random(B, T, N).requires_grad_(), random(3, B, 1, T).requires_grad_()
    repeated = RepeatedValues(values)
    ours = torch.cat([repeated.mixed(row) for row in weights], 1)
    theirs = torch.cat([row @ values for row in weights], 1)
    torch.testing.assert_close(ours, theirs)
    factors = torch.randn_like(ours)
    torch.testing.assert_close(
        torch.autograd.grad((ours * factors).sum(), (values, weights)),
        torch.autograd.grad((theirs * factors).sum(), (values, weights)),
    )


def test_without_a_gradient_nothing_is_gathered() -> None:
    weight = random(N, N).requires_grad_()
    with torch.no_grad():
        repeated = RepeatedWeight(weight)
        assert repeated.tensor is weight
        assert not repeated.added(random(B, N), random(B, N)).requires_grad
    assert not repeated.pairs


@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_under_autocast_the_recurrence_keeps_its_precision(kind: str) -> None:
    encoder = RecurrentEncoder(kind, N, N, bidirectional=True)
    embedded, mask = torch.randn(B, T, N), torch.ones(B, T, dtype=torch.bool)
    exact = encoder(embedded, mask).states
    with torch.autocast("cpu", torch.bfloat16):
        rough = encoder(embedded, mask).states
    rough.sum().backward()
    assert rough.dtype == torch.float32
    torch.testing.assert_close(rough, exact, atol=0.02, rtol=0.02)
