"""Attention that draws a position, and attention that goes on until it stops: exact gradients, enumerations, twins.

Shapes: B sentences, T queries, S positions.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from sightline.attention import hard
from sightline.attention.clues import Look
from sightline.attention.hard import (
    OnlineMonotonicAttention,
    SampledAttention,
    draw,
    expected_stops,
    expected_stops_reference,
    first_stop,
)
from sightline.attention.scores import Additive, Bilinear
from sightline.losses import Certainty, Reinforce
from sightline.models import EncoderDecoder
from sightline.randomness import drawing_from, normal, uniform
from tests.conftest import random_batch, small_model
from tests.test_online import made

B, T, S = 2, 3, 5
MASK = torch.tensor([[True] * S, [True] * (S - 2) + [False] * 2])


def generator(seed: int = 1) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# Drawing


def test_draws_have_the_chances_of_the_weights() -> None:
    weights = torch.tensor([0.0, 0.2, 0.5, 0.0, 0.3, 0.0]).expand(20_000, -1)
    with drawing_from(generator()):
        counts = torch.bincount(draw(weights), minlength=6) / len(weights)
    torch.testing.assert_close(counts, weights[0], atol=0.015, rtol=0)
    assert counts[[0, 3, 5]].sum() == 0


def test_draws_belong_to_the_generator_at_hand() -> None:
    weights = torch.rand(50, 6)
    for sample in (draw, uniform, normal):
        with drawing_from(generator()):
            first = sample(weights)
        torch.rand(3)
        with drawing_from(generator()):
            assert torch.equal(sample(weights), first)


def test_the_likeliest_position_is_taken_when_nothing_is_learnt() -> None:
    module = SampledAttention(Bilinear(4, 4), 0.5).eval()
    weights = torch.tensor([[[0.2, 0.5, 0.3]]])
    taken, log_chances = module.take(weights)
    assert taken.tolist() == [[[0, 1, 0]]]
    assert log_chances is None


@pytest.mark.parametrize("soft", [0.0, 0.5, 1.0])
def test_a_share_of_looks_takes_the_mean(soft: float) -> None:
    module = SampledAttention(Bilinear(4, 4), soft).train()
    weights = torch.tensor([0.2, 0.5, 0.3]).expand(4000, 1, 3)
    with drawing_from(generator()):
        taken, log_chances = module.take(weights)
    assert log_chances is not None
    mean = (taken == weights).all(-1)
    assert mean.float().mean().item() == pytest.approx(soft, abs=0.03)
    assert (log_chances[mean] == 0).all()
    drawn = ~mean
    chances = (taken[drawn] * weights[drawn]).sum(-1)
    torch.testing.assert_close(log_chances[drawn], chances.log())


# Learning from draws

LOGITS = torch.tensor([[0.3, -0.2, 0.5], [0.1, 0.4, -0.6]], dtype=torch.float64)  # (T, S)
FIRST = torch.tensor([-2.0, -3.5, -2.5], dtype=torch.float64)  # log p(y_1) at each first position
SECOND = torch.tensor([[-3.0, -2.0, -4.0], [-2.5, -3.0, -2.0], [-4.0, -2.0, -3.0]], dtype=torch.float64)


def exact_gradient() -> Tensor:
    """Of the expected `log p(y_1) + log p(y_2)`, by the logits: all nine ways."""
    logits = LOGITS.clone().requires_grad_()
    chances = logits.softmax(-1)
    total = sum(
        chances[0, i] * chances[1, j] * (FIRST[i] + SECOND[i, j]) for i, j in itertools.product(range(3), repeat=2)
    )
    assert isinstance(total, Tensor)
    return torch.autograd.grad(total, logits)[0]


def estimates(baseline: float, count: int = 20_000) -> Tensor:
    """The gradient that each of many draws gives, `(count, T, S)`."""
    logits = LOGITS.expand(count, -1, -1).clone().requires_grad_()
    weights = logits.softmax(-1)
    with drawing_from(generator()):
        drawn = draw(weights)
    log_chances = weights.gather(-1, drawn[..., None]).squeeze(-1).log()
    rewards = torch.stack([FIRST[drawn[:, 0]], SECOND[drawn[:, 0], drawn[:, 1]]], 1)
    total, _ = Reinforce(baseline)(log_chances, rewards, torch.ones_like(drawn, dtype=torch.bool), torch.zeros(1))
    return -torch.autograd.grad(total, logits)[0]


@pytest.mark.parametrize("baseline", [0.0, -2.8])
def test_reinforce_is_right_on_average(baseline: float) -> None:
    each = estimates(baseline)
    error = each.std(0) / len(each) ** 0.5
    assert ((each.mean(0) - exact_gradient()).abs() < 4 * error).all()


def test_a_baseline_lowers_the_variance() -> None:
    assert estimates(-2.8).var(0).sum() < 0.5 * estimates(0.0).var(0).sum()


def told(module: Reinforce, rewards: Tensor, weights: Tensor) -> None:
    module(torch.zeros_like(rewards), rewards, torch.ones_like(rewards, dtype=torch.bool), weights)


def test_the_baseline_moves_between_updates_only() -> None:
    module, weights = Reinforce(-4.0), torch.zeros(3)
    told(module, torch.full((2, 2), -1.0), weights)
    told(module, torch.full((1, 2), -2.5), weights)
    assert module.baseline.item() == -4
    assert module.settled(weights) == -4
    assert module.settled(weights + 1) == pytest.approx(0.9 * -4 + 0.1 * -1.5)
    assert module.settled(weights + 2) == pytest.approx(0.9 * -4 + 0.1 * -1.5)  # nothing was waiting


def test_the_order_of_parts_does_not_matter() -> None:
    parts = [torch.randn(3, 4) for _ in range(5)]
    found = set()
    for order in ([0, 1, 2, 3, 4], [4, 2, 0, 3, 1]):
        module = Reinforce(-1.0)
        for part in order:
            told(module, parts[part], torch.zeros(1))
        found.add(module.settled(torch.ones(1)))
    assert len(found) == 1


@pytest.mark.parametrize("reward", [math.nan, -math.inf, -1e30])
def test_a_reward_that_is_no_number_moves_no_baseline(reward: float) -> None:
    """It makes the loss none either, so that the update is skipped; and what is no use is not counted."""
    module, weights = Reinforce(-4.0), torch.zeros(3)
    total, _ = module(
        torch.full((1, 2), -0.5), torch.tensor([[reward, -1.0]]), torch.ones(1, 2, dtype=torch.bool), weights
    )
    assert not total.isfinite() or total.abs() > 1e20
    assert module.settled(weights + 1) == -4
    told(module, torch.full((2, 2), -1.0), weights + 1)
    assert module.settled(weights + 2) == pytest.approx(0.9 * -4 + 0.1 * -1)


def test_what_is_not_learnt_is_worth_nothing() -> None:
    real, learnt = torch.ones(1, 3, dtype=torch.bool), torch.tensor([[True, False, True]])
    chances, weights = torch.tensor([[-0.5, -1.0, -2.0]]), torch.zeros(1)
    found = []
    for beside in (-1.0, -50.0):
        module = Reinforce(-4.0)
        total, count = module(chances, torch.tensor([[-1.0, beside, -2.0]]), real, weights, learnt)
        # (3 + 2) * 0.5 + 2 * 1 + 2 * 2: a draw at what is not learnt serves what follows.
        assert (total.item(), int(count)) == (8.5, 3)
        found.append(module.settled(weights + 1))
    assert found == [pytest.approx(0.9 * -4 + 0.1 * -1.5)] * 2


def test_ranks_pool_what_they_add() -> None:
    module, weights = Reinforce(-4.0), torch.zeros(3)
    theirs = torch.tensor([round(-7.0 / Reinforce.UNIT), 3])
    module.pooled = lambda value: value + theirs
    told(module, torch.full((1, 2), -1.0), weights)
    assert module.settled(weights + 1) == pytest.approx(0.9 * -4 + 0.1 * (-7 - 2) / 5)


def test_what_waits_is_kept_with_the_model() -> None:
    module, other = Reinforce(-4.0), Reinforce(0.0)
    told(module, torch.full((2, 2), -1.0), torch.zeros(3))
    other.load_state_dict(module.state_dict())
    assert other.settled(torch.ones(3)) == module.settled(torch.ones(3))


def test_certainty_is_the_entropy_turned_round() -> None:
    weights = torch.tensor([[[0.5, 0.5, 0.0], [1.0, 0.0, 0.0], [1 / 3, 1 / 3, 1 / 3]]])
    total, count = Certainty()(weights, torch.tensor([[True, True, False]]), None)  # type: ignore[arg-type]
    assert float(total) == pytest.approx(-0.6931472)
    assert int(count) == 2


# Going on and stopping


def given() -> tuple[Tensor, Tensor]:
    """Energies, and weights of the step before that are none on padding."""
    stood = (torch.rand(B, T, S, dtype=torch.float64) * MASK[:, None]).softmax(-1) * MASK[:, None]
    return 2 * torch.randn(B, T, S, dtype=torch.float64), stood


def test_expected_stops_against_the_recursion() -> None:
    energies, stood = given()
    torch.testing.assert_close(expected_stops(energies, stood, MASK), expected_stops_reference(energies, stood, MASK))


def test_expected_stops_against_the_papers_quotient() -> None:
    energies, stood = given()
    chances = torch.sigmoid(energies) * MASK[:, None]
    onward = F.pad((1 - chances).cumprod(-1)[..., :-1], (1, 0), value=1.0)
    expected = chances * onward * (stood / onward.clamp(min=1e-10)).cumsum(-1)
    torch.testing.assert_close(expected_stops(energies, stood, MASK), expected)


def test_expected_stops_against_all_ways() -> None:
    """Three steps from the first position: each way is a chain of positions, or ends past the last one."""
    size = 4
    energies = torch.randn(3, size, dtype=torch.float64)
    chances = torch.sigmoid(energies).tolist()
    expected = torch.zeros(3, size, dtype=torch.float64)
    for chain in itertools.combinations_with_replacement(range(size), 3):
        way, before = 1.0, 0
        for t, j in enumerate(chain):
            for between in range(before, j):
                way *= 1 - chances[t][between]
            way *= chances[t][j]
            before = j
            # What comes later does not matter to step t: count each beginning once.
            if all(later == j for later in chain[t:]):
                expected[t, j] += way
    stood = F.one_hot(torch.zeros(1, 1, dtype=torch.long), size).double()
    mask = torch.ones(1, size, dtype=torch.bool)
    for t in range(3):
        stood = expected_stops(energies[None, t : t + 1], stood, mask)
        torch.testing.assert_close(stood[0, 0], expected[t])
        assert stood.sum() < 1  # some went past the end


def test_long_sources_and_sure_chances_stay_finite() -> None:
    energies = torch.full((1, 1, 2000), -3.0)
    energies[..., ::7] = 40.0
    stood = torch.zeros(1, 1, 2000)
    stood[..., 1002] = 1.0
    found = expected_stops(energies.requires_grad_(), stood, torch.ones(1, 2000, dtype=torch.bool))
    assert found.argmax().item() == 1008
    found.sum().backward()
    assert energies.grad is not None
    assert energies.grad.isfinite().all()


def test_sure_chances_are_hard_decoding() -> None:
    stops = torch.rand(B, T, S) < 0.4
    energies = torch.where(stops, 200.0, -200.0).double()
    place = F.one_hot(torch.randint(0, S - 2, (B, T)), S).double()
    hard = first_stop(stops, place, MASK)
    torch.testing.assert_close(expected_stops(energies, place, MASK), hard)
    assert torch.equal(first_stop(stops, torch.zeros_like(place), MASK), torch.zeros_like(place))


@pytest.mark.parametrize("score", [Additive(4, 3, 6), Bilinear(4, 3)], ids=["additive", "bilinear"])
def test_energies(score: Any) -> None:
    module = OnlineMonotonicAttention(score, -1.0).double()
    queries, states = torch.randn(B, T, 4).double(), torch.randn(B, S, 3).double()
    look = Look(queries, module.prepare(states, MASK), torch.arange(T), {})
    torch.testing.assert_close(module.energies(look), score(queries, score.prepare(states)) - 1)
    if module.gain is not None:  # the vector's direction alone counts
        with torch.no_grad():
            score.vector.mul_(3)
        look = Look(queries, module.prepare(states, MASK), torch.arange(T), {})
        torch.testing.assert_close(module.energies(look), score(queries, score.prepare(states)) / 3 - 1)


# Models

CHOICES: dict[str, dict[str, Any]] = {
    "sampled": {"attention": {"choice": "sampled"}, "penalties": {"certainty": 0.01}},
    "online": {"attention": {"choice": "online_monotonic"}},
}


def total_loss(model: EncoderDecoder, seed: int) -> Tensor:
    with drawing_from(generator(seed)):
        losses = model.loss(random_batch([5, 9, 2], [4, 7, 6]))
    total = sum(weight * losses[name][0] / losses[name][1] for name, weight in model.loss_weights.items())
    assert isinstance(total, Tensor)
    return total


@pytest.mark.parametrize("recipe", ["bahdanau", "luong"])
@pytest.mark.parametrize("name", CHOICES)
def test_a_model_learns_from_its_own_draws(recipe: str, name: str) -> None:
    model = small_model(recipe, CHOICES[name]).train()
    first = total_loss(model, 1)
    assert torch.equal(total_loss(model, 1), first)
    assert not torch.equal(total_loss(model, 2), first)
    first.backward()
    for part, parameter in model.named_parameters():
        assert parameter.grad is not None, part
        assert parameter.grad.isfinite().all(), part


def test_evaluation_draws_nothing() -> None:
    model = small_model("bahdanau", CHOICES["sampled"])
    losses = model.loss(random_batch([5, 9, 2], [4, 7, 6]))
    assert losses["reinforce"][0] == 0
    assert torch.equal(total_loss(model, 1), total_loss(model, 2))
    assert set(model.loss_weights) == {"cross_entropy", "certainty", "reinforce"} <= set(losses)


@pytest.mark.parametrize("recipe", ["bahdanau", "luong"])
def test_what_a_model_is_told_of_its_draws(recipe: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`-Σ_t log α_t Σ_{t' ≥ t} (log p(y_t') - b)`, from the positions drawn and the distributions that came of them."""
    model = small_model(recipe, {"attention": {"choice": "sampled", "sample_soft": 0.0, "sample_reward": 0.7}}).train()
    model.penalties["reinforce"].baseline.fill_(-2.0)
    batch, drawn, take = random_batch([5, 9, 2], [4, 7, 6]), list[Tensor](), SampledAttention.take

    def recorded(module: SampledAttention, weights: Tensor) -> tuple[Tensor, Tensor | None]:
        taken, log_chances = take(module, weights)
        drawn.append((weights * taken).sum(-1).log())
        return taken, log_chances

    with drawing_from(generator()), monkeypatch.context() as patch:
        patch.setattr(SampledAttention, "take", recorded)
        total, count = model.loss(batch)["reinforce"]
    with drawing_from(generator()):
        log_probs = model.output.log_probs(model.read(batch).features)
    log_chances, expected = torch.cat(drawn, 1), 0.0
    assert batch.targets is not None
    for row, length in enumerate([4, 7, 6]):
        gains = [log_probs[row, t, batch.targets.ids[row, t]].item() + 2.0 for t in range(length)]
        expected -= sum(log_chances[row, t].item() * sum(gains[t:]) for t in range(length))
    assert total.item() == pytest.approx(expected)
    assert count == 17
    assert model.loss_weights["reinforce"] == 0.7


def watched(patch: pytest.MonkeyPatch) -> list[Tensor]:
    """The energies of every look from now on, `(B, 1, S)` each."""
    seen, plain = list[Tensor](), OnlineMonotonicAttention.energies

    def recorded(module: OnlineMonotonicAttention, look: Look) -> Tensor:
        seen.append(plain(module, look))
        return seen[-1]

    patch.setattr(OnlineMonotonicAttention, "energies", recorded)
    return seen


LENGTHS = [6, 9, 3, 7]


@pytest.mark.parametrize("recipe", ["bahdanau", "luong"])
def test_a_model_goes_on_from_where_it_stood(recipe: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = LENGTHS * 4
    model, energies, passed = made(recipe), watched(monkeypatch), 0
    weights = model.read(random_batch(lengths, [7] * len(lengths))).weights
    assert weights is not None
    for row, length in enumerate(lengths):
        place = 0
        for t, energy in enumerate(energies):
            passed += int((energy[row, 0, : min(place, length)] > 0).any())
            place = next((j for j in range(place, length) if energy[row, 0, j] > 0), length)
            assert weights[row, t].nonzero().flatten().tolist() == [place] * (place < length)
    assert weights.any(-1).sum() > 10  # these see something
    assert weights.any(1).sum(-1).max() > 1  # one of them at more than one place
    assert passed > 0  # and one would have stopped at a place that lies behind it


@pytest.mark.parametrize("recipe", ["bahdanau", "luong"])
def test_a_model_learns_from_the_stops_it_expects(recipe: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hard, "normal", torch.zeros_like)
    model, batch, energies = made(recipe).train(), random_batch(LENGTHS, [7, 7, 7, 7]), watched(monkeypatch)
    weights = model.read(batch).weights
    assert weights is not None
    stood = F.one_hot(torch.zeros(4, 1, dtype=torch.long), 9).double()
    for t, energy in enumerate(energies):
        stood = expected_stops_reference(energy, stood, batch.source_mask)
        torch.testing.assert_close(weights[:, t : t + 1], stood)
    assert (weights.sum(-1)[:, -1] < 0.9).any()  # what has gone past the end
