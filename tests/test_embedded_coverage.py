"""Coverage embeddings (Mi et al. 2016): vectors of words that what is written uses up, position by position."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn import functional as F

from sightline.attention.clues import EmbeddedCoverage
from sightline.attention.scores import Additive
from sightline.attention.soft import MEMORY, GlobalAttention
from sightline.batch import Batch, Memory, Tokens, pad
from sightline.config import build_config
from sightline.errors import SightlineError
from sightline.losses import CoverageLeft, Outcome
from sightline.models import EncoderDecoder
from sightline.search import SearchOptions, beam_search
from sightline.training.checkpoints import load_weights, save_weights
from tests.conftest import random_batch, small_model
from tests.oracles import check_gradients, softmax_by_hand
from tests.test_decoders import full_log_probs, stepped

B, S, T, WORDS, WIDTH, D_Q, D_K, E = 2, 4, 3, 9, 3, 4, 3, 5
MASK = torch.tensor([[True] * 4, [True] * 3 + [False]])
IDS = torch.tensor([[5, 6, 5, 3], [7, 5, 3, 0]])
UPDATES = ("gru", "subtract")


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def clue(update: str) -> EmbeddedCoverage:
    return EmbeddedCoverage(WORDS, WIDTH, E, update == "gru").double()


def moved_by_hand(made: EmbeddedCoverage, left: Tensor, weight: Tensor, token: Tensor) -> Tensor:
    """One position's vector `(f,)` after one token `(e,)`."""
    if made.cell is None:
        assert made.token is not None
        return left - weight * (made.token.weight @ token)
    return made.cell(torch.cat([token, weight[None]])[None], left[None])[0]


@pytest.mark.parametrize("update", UPDATES)
def test_scores_know_what_the_tokens_before_left(update: str) -> None:
    """All looks against loops: look t sees the vectors after the tokens before it, each with the weights it got."""
    made = clue(update)
    module = GlobalAttention(Additive(D_Q, D_K, 6), clues=[made]).double().eval()
    torch.nn.init.normal_(module.hints[0].weight)
    queries, states, read = random(B, T, D_Q), random(B, S, D_K), random(B, T, E)
    shared, state = module.prepare(states, MASK), module.begin(states, MASK, {"ids": IDS})
    found = []
    for t in range(T):
        tokens = module.of_tokens(read[:, t : t + 1])
        looked = module(queries[:, t : t + 1], shared, torch.tensor([t]), None, state, tokens)
        state = looked.state
        found.append(looked.weights)

    score = module.score
    assert isinstance(score, Additive)
    for b in range(B):
        left = [made.table[IDS[b, s]] for s in range(S)]
        weights: list[float] = []
        for t in range(T):
            if t:  # `read[t]` is what was written after look t - 1
                left = [
                    moved_by_hand(made, left[s], torch.tensor(weights[s], dtype=torch.float64), read[b, t])
                    for s in range(S)
                ]
            values = []
            for s in range(S):
                inner = score.query.weight @ queries[b, t] + score.key.weight @ states[b, s]
                values.append((score.vector @ torch.tanh(inner + module.hints[0].weight @ left[s])).item())
            weights = softmax_by_hand(values, MASK[b].tolist())
            torch.testing.assert_close(found[t][b, 0], torch.tensor(weights, dtype=torch.float64))
        for s in range(S):
            torch.testing.assert_close(state[f"{MEMORY}left"][b, s], left[s])


def test_subtraction_has_a_closed_form() -> None:
    """`c_T = c_0 - Σ_t α_t W y_t`, whatever the order; padded targets have no part in it."""
    made = clue("subtract")
    weights, read = random(B, T, S).softmax(-1), random(B, T, E)
    real = torch.tensor([[True, True, True], [True, False, False]])
    assert made.token is not None
    left = made.at_end(IDS, weights, read, real)
    for b in range(B):
        for s in range(S):
            said = sum(weights[b, t, s].item() * (made.token.weight @ read[b, t]) for t in range(int(real[b].sum())))
            torch.testing.assert_close(left[b, s], made.table[IDS[b, s]] - said)


@pytest.mark.parametrize("update", UPDATES)
def test_what_is_left_at_the_end_is_where_steps_lead(update: str) -> None:
    made = clue(update)
    weights, read = random(B, T, S).softmax(-1), random(B, T, E)
    real = torch.tensor([[True, True, True], [True, True, False]])
    left = made.at_end(IDS, weights, read, real)
    for b, length in enumerate(real.sum(1).tolist()):
        stepped = F.embedding(IDS[b], made.table)
        for t in range(length):
            stepped = made.moved(stepped, weights[b, t], made.of_tokens(read[b, t]))
        torch.testing.assert_close(left[b], stepped)


@pytest.mark.parametrize("update", UPDATES)
def test_a_word_has_one_beginning_and_each_position_its_own_way(update: str) -> None:
    made = clue(update)
    begun = made.begin(random(B, S, D_K), MASK, {"ids": IDS})["left"]
    assert torch.equal(begun[0, 0], begun[0, 2])
    assert torch.equal(begun[0, 0], begun[1, 1])
    assert not torch.allclose(begun[0, 0], begun[0, 1])
    weights = torch.tensor([[[0.7, 0.1, 0.2, 0.0]], [[0.0, 1.0, 0.0, 0.0]]]).double()
    left = made.at_end(IDS, weights, random(B, 1, E), torch.ones(B, 1, dtype=torch.bool))
    assert not torch.allclose(left[0, 0], left[0, 2])


def outcome(weights: Tensor, read: Tensor, real: Tensor) -> Outcome:
    memory = Memory(random(B, S, D_K), MASK, source=Tokens(IDS, MASK))
    return Outcome(weights, real, memory, lambda: weights, weights, embedded=lambda: read)


@pytest.mark.parametrize("update", UPDATES)
def test_the_loss_by_hand_and_its_gradient(update: str) -> None:
    made = clue(update)
    weights, read = random(B, T, S).softmax(-1), random(B, T, E)
    real = torch.tensor([[True, True, True], [True, True, False]])
    total, count = CoverageLeft(made).of(outcome(weights, read, real))
    left = made.at_end(IDS, weights, read, real)
    assert total.item() == pytest.approx(((left[0, :3] ** 2).sum() + (left[1, :2] ** 2).sum()).item())
    assert count.item() == 5  # words without the end symbols
    names = [name for name, _ in made.named_parameters()]

    class Summed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.clue = made

        def forward(self, weights: Tensor, read: Tensor) -> Tensor:
            return CoverageLeft(self.clue).of(outcome(weights, read, real))[0]

    module = Summed()

    def call(weights: Tensor, read: Tensor, *values: Tensor) -> Tensor:
        chosen = {f"clue.{name}": value for name, value in zip(names, values, strict=True)}
        return functional_call(module, chosen, (weights, read))

    check_gradients(call, weights, read, *made.parameters())


def test_nothing_left_has_a_gradient_of_zero() -> None:
    made = clue("subtract")
    with torch.no_grad():
        made.table.zero_()
    weights, real = torch.zeros(B, T, S, dtype=torch.float64), torch.ones(B, T, dtype=torch.bool)
    total, _ = CoverageLeft(made).of(outcome(weights, random(B, T, E), real))
    total.backward()
    assert total.item() == 0
    assert made.table.grad is not None
    assert torch.equal(made.table.grad, torch.zeros_like(made.table))


def model(recipe: str, update: str, changes: dict[str, Any] | None = None) -> EncoderDecoder:
    """With a matrix for the clue that is not zero, and large vectors: what is left decides."""
    attention = {"coverage": "embedded", "coverage_update": update, "coverage_width": 3}
    made = small_model(recipe, {"attention": attention, "penalties": {"coverage_left": 0.1}, **(changes or {})})
    with torch.no_grad():
        torch.nn.init.normal_(made.decoder.attention.hints[0].weight)
        made.decoder.attention.clues[0].table.mul_(3)
    return made


WAYS: list[tuple[str, dict[str, Any]]] = [
    ("bahdanau", {}),
    ("luong", {}),
    ("luong", {"decoder": {"input_feeding": False}}),
    ("bahdanau", {"copying": {"kind": "copynet"}}),
]


@pytest.mark.parametrize("update", UPDATES)
@pytest.mark.parametrize(("recipe", "changes"), WAYS)
def test_steps_equal_the_full_pass_and_follow_their_hypothesis(
    recipe: str, changes: dict[str, Any], update: str
) -> None:
    made = model(recipe, update, changes)
    batch = random_batch([5, 9, 2], [4, 7, 6])
    whole = full_log_probs(made, batch)
    torch.testing.assert_close(stepped(made, batch)[0], whole)
    torch.testing.assert_close(stepped(made, batch, width=2)[0], whole.repeat_interleave(2, 0))
    state = made.start(batch).expand(2)
    state = made.step(torch.full((6,), made.bos), state).state
    state = made.step(torch.tensor([4, 5, 6, 7, 8, 9]), state).state
    direct = made.step(torch.tensor([8, 8, 9, 9, 9, 9]), state)
    swapped = made.step(torch.tensor([8, 8, 9, 9, 9, 9]), state.reorder(torch.tensor([1, 0, 3, 2, 5, 4])))
    torch.testing.assert_close(swapped.log_probs, direct.log_probs[[1, 0, 3, 2, 5, 4]])
    assert not torch.allclose(direct.log_probs[0], direct.log_probs[1])


@pytest.mark.parametrize("recipe", ["bahdanau", "luong"])
def test_a_table_of_tokens_changes_nothing(recipe: str) -> None:
    made, batch = model(recipe, "gru"), random_batch([5, 9, 2], [4, 7, 6])
    expected = stepped(made, batch)[0]
    made.tabulate(10**6)
    assert made.table is not None
    torch.testing.assert_close(stepped(made, batch)[0], expected)


def test_beams_score_as_teacher_forcing_does() -> None:
    made, batch = model("luong", "subtract"), random_batch([5, 9, 2])
    for row, hypotheses in enumerate(beam_search(made, batch, SearchOptions(beam=3, n_best=3, max_extra=3))):
        (source,) = batch.sources
        for one in hypotheses:
            if not one.finished:
                continue
            targets = pad([[*one.tokens, made.eos]], made.pad)
            alone = Batch((source.rows(torch.tensor([row])).between(0, 1),), targets)
            assert made.token_log_probs(alone).sum().item() == pytest.approx(one.log_prob)


def test_the_loss_is_part_of_training_and_its_clue_is_kept_once(tmp_path: Path) -> None:
    made, batch = model("bahdanau", "gru"), random_batch([5, 9, 2], [4, 7, 6])
    losses = made.loss(batch)
    assert made.loss_weights["coverage_left"] == 0.1
    (gradient,) = torch.autograd.grad(losses["coverage_left"][0], [made.decoder.attention.clues[0].table])
    assert gradient.abs().sum() > 0
    assert not [name for name in made.state_dict() if name.startswith("penalties")]
    save_weights(made, tmp_path / "model.safetensors")
    again = model("bahdanau", "gru")
    load_weights(again, tmp_path / "model.safetensors")
    torch.testing.assert_close(full_log_probs(again, batch), full_log_probs(made, batch), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("recipe", "values", "told"),
    [
        ("bahdanau", {"penalties": {"coverage_left": 1.0}}, "model.attention.coverage=embedded"),
        ("transformer", {"penalties": {"coverage_left": 1.0}}, "only bahdanau and luong"),
        ("transformer", {"attention": {"coverage": "embedded"}}, "only bahdanau and luong"),
        (
            "luong",
            {"attention": {"coverage": "embedded", "choice": "exact"}, "decoder": {"input_feeding": False}},
            "leave model.attention.coverage out",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(recipe: str, values: dict[str, Any], told: str) -> None:
    with pytest.raises(SightlineError, match=told):
        build_config({"model": values}, recipe)
