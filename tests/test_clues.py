"""What a score may know beside query and key: each clue against loops, and in a model."""

import math
from collections.abc import Callable
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
from sightline.attention.soft import MEMORY, Attended, GlobalAttention, SoftAttention
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


class Blind(torch.nn.Module):
    """Asks the same at every step and writes what it sees: only what attention remembers can move it on."""

    def __init__(self, clues: list[Clue], tokens: int, width: int = 16) -> None:
        super().__init__()
        self.attention = GlobalAttention(Additive(width, width, width), clues=clues)
        self.query = torch.nn.Parameter(torch.randn(1, 1, width))
        self.embedding, self.output = torch.nn.Embedding(tokens, width), torch.nn.Linear(width, tokens)

    def forward(self, shown: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Logits `(B, S, V)` and weights `(B, S, S)` of as many steps as there are tokens; scores see those `shown`."""
        states, everything = self.embedding(shown), torch.ones_like(ids, dtype=torch.bool)
        shared = {**self.attention.prepare(states, everything), "values": self.embedding(ids)}
        state, looks = self.attention.begin(states, everything), []
        for step in torch.arange(ids.size(1)):
            looks.append(self.attention(self.query.expand(len(ids), -1, -1), shared, step[None], None, state))
            state = looks[-1].state
        seen = Attended.joined(looks)
        return self.output(seen.context), seen.weights

    def learn(self, draw: Callable[[int], tuple[Tensor, Tensor, Tensor]], updates: int, rate: float) -> None:
        """`draw` gives for each update what is shown, the tokens, and those wanted, `(B, S)` each."""
        optimizer = torch.optim.Adam(self.parameters(), rate)
        schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05, updates)
        for update in range(updates):
            shown, ids, wanted = draw(update)
            optimizer.zero_grad()
            F.cross_entropy(self(shown, ids)[0].flatten(0, 1), wanted.flatten()).backward()
            optimizer.step()
            schedule.step()


def alike(length: int) -> tuple[Tensor, Tensor, Tensor]:
    """Strings to copy, of which the score sees the first symbol: all others look the same."""
    ids = torch.randint(2, 8, (32, length))
    return (torch.arange(length) > 0).long().expand_as(ids), ids, ids


def test_who_knows_the_last_look_counts_symbols_that_look_alike() -> None:
    """One step on at each, in strings of up to 6 and as well of 12; without it every look is the first again."""
    counting, plain = Blind([MarkovBias(1)], 8), Blind([], 8)
    shown, ids, _ = alike(12)
    for model, updates in ((counting, 600), (plain, 100)):
        model.learn(lambda update: alike(2 + update % 5), updates, 0.03)
    logits, weights = counting(shown, ids)
    assert torch.equal(logits.argmax(-1), ids)
    assert torch.equal(weights.argmax(-1), torch.arange(12).expand_as(ids))
    logits, weights = plain(shown, ids)
    torch.testing.assert_close(weights, weights[:, :1].expand_as(weights))
    assert (logits.argmax(-1) == ids).float().mean() < 0.4


def bags(count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Four symbols in any order, two of them twice, to be written in theirs, each as often as it is there."""
    kinds = torch.rand(count, 8).argsort(1)[:, :4] + 1
    ids = torch.cat([kinds, kinds[:, :2]], 1).gather(1, torch.rand(count, 6).argsort(1))
    return ids, ids, ids.sort(1).values


def said_too_often(found: Tensor, ids: Tensor) -> float:
    """The share of written symbols that the source has less often."""
    counts = [F.one_hot(tokens, 9).sum(1) for tokens in (found, ids)]
    return float((counts[0] - counts[1]).clamp(min=0).sum() / found.numel())


def test_coverage_says_nothing_too_often() -> None:
    covering, plain = Blind([Coverage(16, None)], 9), Blind([], 9)
    _, ids, wanted = bags(200)
    for model, updates in ((covering, 800), (plain, 100)):
        model.learn(lambda _: bags(32), updates, 0.02)
    found = covering(ids, ids)[0].argmax(-1)
    assert (found == wanted).all(1).float().mean() > 0.95
    assert said_too_often(found, ids) < 0.01
    assert said_too_often(plain(ids, ids)[0].argmax(-1), ids) >= 4 / 6  # the same symbol six times


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
