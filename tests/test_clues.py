"""What a score may know beside query and key: each clue against loops, and in a model."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from sightline.attention.clues import (
    Clue,
    Coverage,
    LocalFertility,
    Look,
    MarkovBias,
    NeuralCoverage,
    PositionBias,
    windows,
)
from sightline.attention.scores import Additive, Bilinear, Score
from sightline.attention.soft import MEMORY, GlobalAttention, SoftAttention
from sightline.config import build_config
from sightline.errors import SightlineError
from tests.conftest import random_batch, small_model
from tests.oracles import check_parameter_gradients, softmax_by_hand

B, S, D_Q, D_K = 2, 5, 4, 3
MASK = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
CLUES = {
    "position_bias": True,
    "markov_bias": 1,
    "fertility_bias": 1,
    "coverage": "fertility",
}


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def attention(clue: Clue, score: Score | None = None) -> SoftAttention:
    """With a matrix for the clue that is not zero."""
    module = GlobalAttention(score or Additive(D_Q, D_K, 6), clues=[clue]).double().eval()
    for hint in module.hints:
        torch.nn.init.normal_(hint.weight)
    return module


def looks(
    module: SoftAttention, queries: Tensor, states: Tensor, mask: Tensor = MASK
) -> tuple[Tensor, dict[str, Tensor]]:
    """The weights `(B, T, S)` of query after query, and what is remembered at the end."""
    shared, state = module.prepare(states, MASK), module.begin(states, MASK)
    collected = []
    for number, query in enumerate(queries.unbind(1)):
        looked = module(query[:, None], shared, torch.tensor([number]), None, state)
        state = looked.state
        collected.append(looked.weights)
    return torch.cat(collected, 1), {name.removeprefix(MEMORY): value for name, value in state.items()}


class Looking(torch.nn.Module):
    """All looks as one module."""

    def __init__(self, attention: SoftAttention) -> None:
        super().__init__()
        self.attention = attention

    def forward(self, queries: Tensor, states: Tensor) -> Tensor:
        return looks(self.attention, queries, states)[0]


def by_hand(module: SoftAttention, queries: Tensor, states: Tensor, features: Any) -> list[list[list[float]]]:
    """The same number by number; `features(b, t, s, rows)` are the clue's, `rows` the weights of the steps before."""
    score = module.score
    assert isinstance(score, Additive)
    result = []
    for b in range(B):
        rows: list[list[float]] = []
        for t in range(queries.size(1)):
            values = []
            for s in range(S):
                known = torch.tensor(features(b, t, s, rows), dtype=torch.float64)
                inner = score.query.weight @ queries[b, t] + score.key.weight @ states[b, s]
                values.append((score.vector @ torch.tanh(inner + module.hints[0].weight @ known)).item())
            rows.append(softmax_by_hand(values, MASK[b].tolist()))
        result.append(rows)
    return result


def around(rows: list[float], s: int, radius: int) -> list[float]:
    return [rows[i] if 0 <= i < S else 0.0 for i in range(s - radius, s + radius + 1)]


def sums(rows: list[list[float]]) -> list[float]:
    return [sum(row[s] for row in rows) for s in range(S)]


@pytest.fixture
def given() -> tuple[Tensor, Tensor]:
    return random(B, 4, D_Q), random(B, S, D_K)


def test_position_bias(given: tuple[Tensor, Tensor]) -> None:
    module = attention(PositionBias())
    lengths = MASK.sum(-1).tolist()
    expected = by_hand(module, *given, lambda b, t, s, rows: [math.log1p(t), math.log1p(s), math.log1p(lengths[b])])
    torch.testing.assert_close(looks(module, *given)[0], torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize("radius", [0, 1, 2])
def test_markov_bias(given: tuple[Tensor, Tensor], radius: int) -> None:
    module = attention(MarkovBias(radius))
    expected = by_hand(module, *given, lambda b, t, s, rows: around(rows[-1] if rows else [0.0] * S, s, radius))
    torch.testing.assert_close(looks(module, *given)[0], torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize("radius", [0, 2])
def test_local_fertility(given: tuple[Tensor, Tensor], radius: int) -> None:
    module = attention(LocalFertility(radius))
    expected = by_hand(module, *given, lambda b, t, s, rows: around(sums(rows), s, radius))
    torch.testing.assert_close(looks(module, *given)[0], torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize("most", [None, 2.0])
def test_coverage(given: tuple[Tensor, Tensor], most: float | None) -> None:
    clue = Coverage(D_K, most)
    module = attention(clue)
    states = given[1]

    def due(b: int, s: int) -> float:
        if most is None or clue.fertility is None:
            return 1.0
        inner = (clue.fertility.weight[0] @ states[b, s] + clue.fertility.bias[0]).item()
        return most / (1 + math.exp(-inner))

    expected = by_hand(module, *given, lambda b, t, s, rows: [sums(rows)[s] / due(b, s)])
    weights, kept = looks(module, *given)
    torch.testing.assert_close(weights, torch.tensor(expected, dtype=torch.float64))
    dues = torch.tensor([[due(b, s) for s in range(S)] for b in range(B)], dtype=torch.float64)
    torch.testing.assert_close(kept["coverage"], weights.sum(1) / dues)  # the column sums over the fertilities


def test_neural_coverage(given: tuple[Tensor, Tensor]) -> None:
    clue = NeuralCoverage(D_Q, D_K, 3)
    module = attention(clue)
    queries, states = given
    weights, kept = looks(module, queries, states)
    for b in range(B):
        for s in range(S):
            covered = torch.zeros(1, 3, dtype=torch.float64)
            for t in range(queries.size(1)):
                covered = clue.cell(torch.cat([weights[b, t, s : s + 1], states[b, s], queries[b, t]])[None], covered)
            torch.testing.assert_close(kept["covered"][b, s], covered[0])


def test_windows_are_a_convolution_of_the_weights_before() -> None:
    values, kernel = random(2, 3, 7), random(3)
    expected = F.conv1d(values.flatten(0, 1)[:, None], kernel[None, None], padding=1).view_as(values)
    torch.testing.assert_close(windows(values, 1) @ kernel, expected)


@pytest.mark.parametrize("score", [Additive(D_Q, D_K, 6), Bilinear(D_Q, D_K)], ids=["additive", "bilinear"])
def test_a_new_clue_changes_nothing(given: tuple[Tensor, Tensor], score: Score) -> None:
    clues = [PositionBias(), MarkovBias(1), LocalFertility(1), Coverage(D_K, 2.0), NeuralCoverage(D_Q, D_K, 3)]
    queries, states = given
    module = GlobalAttention(score, clues=clues).double()
    plain = GlobalAttention(score).double()
    expected = plain(queries, plain.prepare(states, MASK), torch.arange(4)).weights
    torch.testing.assert_close(looks(module, queries, states)[0], expected)


def test_hints_of_other_scores_are_added(given: tuple[Tensor, Tensor]) -> None:
    module = attention(PositionBias(), Bilinear(D_Q, D_K))
    queries, states = given
    look = Look(queries, module.prepare(states, MASK), torch.arange(4), {})
    plain = module.score(queries, look.shared["keys"])
    hints = module.clues[0].features(look) @ module.hints[0].weight[0]
    torch.testing.assert_close(module.scores(look), plain + hints)


def test_gradients_go_through_the_steps_before(given: tuple[Tensor, Tensor]) -> None:
    queries, states = given
    for clue in (MarkovBias(1), Coverage(D_K, 2.0), NeuralCoverage(D_Q, D_K, 2)):
        module = attention(clue)
        check_parameter_gradients(Looking(module), queries, states)


def test_a_diagonal_can_be_learnt_from_positions_alone() -> None:
    """Unseen words say nothing; how far along source and target are says where to look."""
    torch.manual_seed(1)
    module = GlobalAttention(Additive(D_Q, D_K, 16), clues=[PositionBias()])
    optimizer = torch.optim.Adam(module.parameters(), 0.02)
    mask = torch.ones(4, 6, dtype=torch.bool)
    for _ in range(400):
        queries, states = torch.zeros(4, 6, D_Q), torch.zeros(4, 6, D_K)
        weights = module(queries, module.prepare(states, mask), torch.arange(6)).weights
        loss = -weights.diagonal(dim1=1, dim2=2).clamp(min=1e-9).log().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert (weights.argmax(-1) == torch.arange(6)).all()


def test_a_model_with_clues_learns_and_searches() -> None:
    model = small_model("bahdanau", {"attention": CLUES, "penalties": {"repeated_looks": 1.0, "fertility": 0.1}})
    losses = model.loss(random_batch([5, 9, 2], [4, 7, 6]))
    assert set(model.loss_weights) == {"cross_entropy", "repeated_looks", "fertility"} < set(losses)
    total = sum(weight * losses[name][0] / losses[name][1] for name, weight in model.loss_weights.items())
    assert isinstance(total, Tensor)
    total.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name


@pytest.mark.parametrize(
    "model",
    [{"attention": {"coverage": "sum"}}, {"attention": {"markov_bias": 0}}, {"penalties": {"one_look_each": 1}}],
)
def test_refused_where_nobody_would_hear_it(model: dict[str, Any]) -> None:
    for recipe in ("transformer", "seq2seq"):
        with pytest.raises(SightlineError, match=f"{recipe}.*bahdanau and luong|only .*bahdanau"):
            build_config({"model": model}, recipe)
