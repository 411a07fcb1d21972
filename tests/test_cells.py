"""Our recurrent cells are torch's: single steps, whole sequences, stacks, with and without an extra input."""

import pytest
import torch
from torch import Tensor, nn

from sightline.decoders.cells import GATES, Cell, CellStack
from tests.oracles import check_parameter_gradients
from tests.twins import copy_cell

R, T, E, X, N = 3, 5, 4, 2, 6
NETWORKS = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}
SINGLE = {"rnn": nn.RNNCell, "gru": nn.GRUCell, "lstm": nn.LSTMCell}
KINDS = list(GATES)


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def first_cell(kind: str) -> Tensor | None:
    return random(R, N) if kind == "lstm" else None


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("extra", [0, X])
def test_a_step_equals_torchs_cell(kind: str, extra: int) -> None:
    ours = Cell(kind, E, extra, N).double()
    theirs = SINGLE[kind](E + extra, N).double()
    copy_cell(ours, theirs)
    token, more, hidden, cell = random(R, E), random(R, extra), random(R, N), first_cell(kind)
    result, after = ours.step(ours.project(token), more if extra else None, hidden, cell)
    inputs = torch.cat([token, more], -1)
    if kind == "lstm":
        expected, expected_cell = theirs(inputs, (hidden, cell))
        torch.testing.assert_close(after, expected_cell)
    else:
        expected = theirs(inputs, hidden)
        assert after is None
    torch.testing.assert_close(result, expected)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("extra", [0, X])
def test_a_sequence_equals_its_steps(kind: str, extra: int) -> None:
    ours = Cell(kind, E, extra, N).double()
    tokens, hidden, cell = random(R, T, E), random(R, N), first_cell(kind)
    more = random(R, extra) if extra else None
    outputs, last, last_cell = ours.sequence(tokens, more, hidden, cell)
    for t in range(T):
        hidden, cell = ours.step(ours.project(tokens[:, t]), more, hidden, cell)
        torch.testing.assert_close(outputs[:, t], hidden)
    torch.testing.assert_close(last, hidden)
    torch.testing.assert_close(last_cell, cell)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layers", [1, 3])
def test_a_stack_equals_torchs_network(kind: str, layers: int) -> None:
    """Values and gradients, by sequence and step by step, with an extra input that stays the same."""
    ours = CellStack(kind, E, X, N, layers, dropout=0.0).double()
    theirs = NETWORKS[kind](E + X, N, layers, batch_first=True).double()
    for layer, cell in enumerate(ours.cells):
        copy_cell(cell, theirs, f"_l{layer}")
    tokens, extra = random(R, T, E).requires_grad_(), random(R, X).requires_grad_()
    hidden, memory = random(layers, R, N), random(layers, R, N)
    states = {f"hidden.{layer}": hidden[layer] for layer in range(layers)}
    if kind == "lstm":
        states |= {f"cell.{layer}": memory[layer] for layer in range(layers)}
    inputs = torch.cat([tokens, extra[:, None].expand(R, T, X)], -1)
    expected, last = theirs(inputs, (hidden, memory) if kind == "lstm" else hidden)
    outputs, after = ours.sequence(tokens, extra, states)
    torch.testing.assert_close(outputs, expected)
    assert set(after) == set(states)
    hidden_after, memory_after = last if kind == "lstm" else (last, None)
    for layer in range(layers):
        torch.testing.assert_close(after[f"hidden.{layer}"], hidden_after[layer])
        if memory_after is not None:
            torch.testing.assert_close(after[f"cell.{layer}"], memory_after[layer])
    collected = []
    for t in range(T):
        states = ours.step(ours.project(tokens[:, t]), extra, states)
        collected.append(states[ours.top])
    stepped = torch.stack(collected, 1)
    torch.testing.assert_close(stepped, expected)
    upstream = torch.randn_like(expected)
    reference = torch.autograd.grad(expected, (tokens, extra), upstream)
    torch.testing.assert_close(torch.autograd.grad(outputs, (tokens, extra), upstream), reference)
    torch.testing.assert_close(torch.autograd.grad(stepped, (tokens, extra), upstream), reference)


def test_the_gru_is_torchs_not_the_papers() -> None:
    """torch: `h' = (1-z) ∘ n + z ∘ h`, reset after the product; Cho et al.: `h' = (1-z) ∘ h + z ∘ n`, reset before."""
    ours = Cell("gru", E, 0, N).double()
    token, hidden = random(R, E), random(R, N)
    given = (token @ ours.weight_token.T + ours.bias_input).chunk(3, -1)
    carried = (hidden @ ours.weight_hidden.T + ours.bias_hidden).chunk(3, -1)
    reset, update = torch.sigmoid(given[0] + carried[0]), torch.sigmoid(given[1] + carried[1])
    new = torch.tanh(given[2] + reset * carried[2])
    result, _ = ours.step(ours.project(token), None, hidden, None)
    torch.testing.assert_close(result, (1 - update) * new + update * hidden)
    before = torch.tanh(given[2] + (reset * hidden) @ ours.weight_hidden.chunk(3)[2].T + ours.bias_hidden.chunk(3)[2])
    assert not torch.allclose(result, (1 - update) * hidden + update * before, rtol=0.01)


def test_the_lstm_by_formula() -> None:
    ours = Cell("lstm", E, 0, N).double()
    token, hidden, cell = random(R, E), random(R, N), random(R, N)
    gates = token @ ours.weight_token.T + ours.bias_input + hidden @ ours.weight_hidden.T + ours.bias_hidden
    enter, forget, new, out = gates.chunk(4, -1)
    expected = torch.sigmoid(forget) * cell + torch.sigmoid(enter) * torch.tanh(new)
    result, after = ours.step(ours.project(token), None, hidden, cell)
    torch.testing.assert_close(after, expected)
    torch.testing.assert_close(result, torch.sigmoid(out) * torch.tanh(expected))


@pytest.mark.parametrize(("kind", "times"), [("rnn", 1), ("gru", 3), ("lstm", 4)])
def test_an_lstm_has_four_times_the_parameters_of_an_rnn_and_a_gru_three(kind: str, times: int) -> None:
    count = sum(parameter.numel() for parameter in Cell(kind, E, X, N).parameters())
    assert count == times * (N * (E + X + N) + 2 * N)
    assert count == sum(parameter.numel() for parameter in SINGLE[kind](E + X, N).parameters())


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_by_parameters(kind: str) -> None:
    class Unrolled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = Cell(kind, 2, 1, 3)

        def forward(self, tokens: Tensor, extra: Tensor) -> Tensor:
            hidden = tokens.new_zeros(2, 3)
            memory = tokens.new_zeros(2, 3) if kind == "lstm" else None
            for t in range(tokens.size(1)):
                hidden, memory = self.cell.step(self.cell.project(tokens[:, t]), extra, hidden, memory)
            return hidden

    check_parameter_gradients(Unrolled().double(), random(2, 3, 2), random(2, 1))


def test_the_extra_input_enters_every_gate() -> None:
    ours = CellStack("gru", E, X, N, 2, dropout=0.0).double()
    weight = ours.cells[0].weight_extra
    assert weight is not None
    assert weight.shape == (3 * N, X)
    assert ours.cells[1].weight_extra is None


def test_dropout_lies_between_the_layers() -> None:
    """As in torch's networks: neither on what enters nor on what leaves, and none in a single layer."""
    tokens = random(R, T, E)
    for layers, random_result in ((1, False), (2, True)):
        stack = CellStack("gru", E, 0, N, layers, dropout=0.5).double()
        states = {f"hidden.{layer}": random(R, N) for layer in range(layers)}
        first, second = (stack.sequence(tokens, None, states)[0] for _ in range(2))
        assert torch.equal(first, second) != random_result
        assert (first != 0).all()
        stack.eval()
        assert torch.equal(stack.sequence(tokens, None, states)[0], stack.sequence(tokens, None, states)[0])
