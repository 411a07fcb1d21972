"""Attention that is summed over all ways to choose positions: against an enumeration of the ways.

Shapes: B sentences, T targets, S positions.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from sightline import outputs
from sightline.attention.clues import Look, PositionBias
from sightline.attention.hard import OnlineMonotonicAttention
from sightline.attention.latent import (
    ExactAttention,
    ExactJumpsAttention,
    ExactMonotonicAttention,
    LatentAttention,
    SegmentAttention,
    first_place,
)
from sightline.attention.scores import Additive, Bilinear
from sightline.attention.soft import GlobalAttention, Scored
from sightline.batch import Batch, Tokens, pad
from sightline.config import build_config
from sightline.errors import SightlineError
from sightline.hypothesis import SearchOptions
from sightline.marginal import MarginalOutput, Placed
from sightline.models import EncoderDecoder
from sightline.outputs import Output
from sightline.search import search
from tests.conftest import VOCABULARY, random_batch, small_model
from tests.oracles import check_parameter_gradients

D_Q, D_K, B, T, S = 5, 4, 2, 3, 4
MASK = torch.tensor([[True] * S, [True] * (S - 1) + [False]])
CHOICES = ("exact", "exact_monotonic", "exact_jumps", "segments")


def attention(choice: str) -> LatentAttention:
    made: dict[str, LatentAttention] = {
        "exact": ExactAttention(Bilinear(D_Q, D_K)),
        "exact_monotonic": ExactMonotonicAttention(Additive(D_Q, D_K, 6)),
        "exact_jumps": ExactJumpsAttention(Bilinear(D_Q, D_K), D_Q, D_K, 6, 2),
        "segments": SegmentAttention(Bilinear(D_Q, D_K), -0.5),
    }
    module = made[choice].double()
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter)
    return module


def model_of(choice: str, **changes: Any) -> EncoderDecoder:
    model = small_model("luong", {"attention": {"choice": choice, **changes}, "decoder": {"input_feeding": False}})
    for name, parameter in model.named_parameters():
        if ".jump." in name:  # zeros at first
            torch.nn.init.normal_(parameter)
    return model


def look_of(module: LatentAttention) -> Look:
    queries = torch.randn(B, T, D_Q, dtype=torch.float64)
    states = torch.randn(B, S, D_K, dtype=torch.float64)
    return Look(queries, module.prepare(states, MASK), torch.arange(T), {})


def by_hand(choice: str, module: LatentAttention, look: Look, b: int, t: int, k: int) -> list[float]:
    """The chances to move from k to each position of a sentence, from the scores, number by number."""
    length = int(MASK[b].sum())
    scores = module.scores(look)[b, t].tolist()
    chances = [0.0] * S
    if choice == "segments":
        assert isinstance(module, SegmentAttention)
        stops = [1 / (1 + math.exp(-(score + module.bias.item()))) for score in scores]
        stops[length - 1] = 1.0
        for j in range(k, length):
            chances[j] = stops[j] * math.prod(1 - stops[between] for between in range(k, j))
        return chances
    if isinstance(module, ExactJumpsAttention):
        states = look.shared["values"][b, k]
        jumps = module.jump(torch.tanh(module.query(look.queries[b, t]) + module.key(states))).tolist()
        scores = [score + jumps[min(max(j - k, 0), module.most)] for j, score in enumerate(scores)]
    first = 0 if choice == "exact" else k
    total = sum(math.exp(scores[j]) for j in range(first, length))
    for j in range(first, length):
        chances[j] = math.exp(scores[j]) / total
    return chances


@pytest.mark.parametrize("choice", CHOICES)
def test_moves(choice: str) -> None:
    module = attention(choice)
    look = look_of(module)
    moves = module.moves(look).exp().expand(B, T, S, S)
    for b, t in itertools.product(range(B), range(T)):
        for k in range(int(MASK[b].sum())):
            expected = torch.tensor(by_hand(choice, module, look, b, t, k), dtype=torch.float64)
            torch.testing.assert_close(moves[b, t, k], expected)
            assert expected.sum().item() == pytest.approx(1)


def enumerated(choice: str, model: EncoderDecoder, batch: Batch) -> list[float]:
    """The probability of each target: the sum over all chains of positions."""
    assert batch.targets is not None
    decoder, output = model.decoder, model.output
    assert isinstance(output, MarginalOutput)
    memory = model.encode(batch)
    decoded = decoder(memory, model.target_embedding(model.shifted(batch.targets)))
    emissions = output.vocabulary.log_probs(decoded.features).exp()  # (B, T, S, V)
    assert decoded.priors is not None
    moves = decoded.priors.args[0].exp()  # type: ignore[attr-defined]
    totals = []
    for b in range(batch.size):
        length, size = int(batch.targets.mask[b].sum()), int(memory.mask[b].sum())
        total = 0.0
        for chain in itertools.product(range(size), repeat=length):
            chance, before = 1.0, 0
            for t, j in enumerate(chain):
                row = moves[b, t, 0 if choice == "exact" else before]
                chance *= float(row[j] * emissions[b, t, j, batch.targets.ids[b, t]])
                before = j
            total += chance
        totals.append(total)
    return totals


@pytest.mark.parametrize("choice", CHOICES)
def test_sum_over_all_chains(choice: str) -> None:
    model, batch = model_of(choice), random_batch([4, 2], [3, 4])
    with torch.no_grad():
        found = model.token_log_probs(batch).sum(1).exp().tolist()
        assert found == pytest.approx(enumerated(choice, model, batch), rel=1e-9)


@pytest.mark.parametrize("choice", CHOICES)
def test_all_targets_of_a_length_are_certain_together(choice: str) -> None:
    model = model_of(choice)
    targets = [list(pair) for pair in itertools.product(range(VOCABULARY), repeat=2)]
    source = random_batch([5]).sources[0]
    assert isinstance(source, Tokens)
    sources = Tokens(source.ids.expand(len(targets), -1), source.mask.expand(len(targets), -1))
    with torch.no_grad():
        chances = model.token_log_probs(Batch((sources,), pad(targets, 0))).sum(1).exp()
    assert float(chances.sum()) == pytest.approx(1)


@pytest.mark.parametrize("choice", CHOICES)
def test_smoothed_targets_meet_the_summed_distribution(choice: str) -> None:
    model, batch = model_of(choice), random_batch([4, 3], [3, 5])
    assert batch.targets is not None
    model.smoothing = 0.2
    state, each = model.start(batch), []
    for tokens in model.shifted(batch.targets).unbind(1):
        step = model.step(tokens, state)
        state = step.state
        each.append(step.log_probs)
    log_probs = torch.stack(each, 1)[batch.targets.mask]
    wanted = batch.targets.ids[batch.targets.mask]
    expected = torch.nn.functional.cross_entropy(log_probs, wanted, label_smoothing=0.2, reduction="sum")
    losses = model.loss(batch)
    torch.testing.assert_close(losses["cross_entropy"][0], expected)
    torch.testing.assert_close(losses["nll"][0], -log_probs.gather(1, wanted[:, None]).sum())


@pytest.mark.parametrize("choice", CHOICES)
def test_gradients(choice: str) -> None:
    module = attention(choice)
    look = look_of(module)
    states, queries = look.shared["values"], look.queries
    emissions = torch.randn(B, T, S, dtype=torch.float64)

    class Filtering(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = module

        def forward(self) -> Tensor:
            moves = self.inner.moves(Look(queries, self.inner.prepare(states, MASK), torch.arange(T), {}))
            first = torch.tensor([[0.0] + [-1e9] * (S - 1)] * B, dtype=torch.float64)
            return torch.logsumexp(self.inner.filtered(moves, emissions, first) + emissions, -1)

    check_parameter_gradients(Filtering())


def test_a_model_learns_with_finite_gradients() -> None:
    for choice in CHOICES:
        model = model_of(choice, position_bias=True).train()
        model.smoothing = 0.1
        model.loss(random_batch([5, 9, 1], [4, 7, 6]))["cross_entropy"][0].backward()
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None, (choice, name)
            assert parameter.grad.isfinite().all(), (choice, name)


def test_new_jumps_change_nothing() -> None:
    score = Bilinear(D_Q, D_K)
    plain = ExactMonotonicAttention(score).double()
    jumps = ExactJumpsAttention(score, D_Q, D_K, 6, 2).double()
    look = look_of(jumps)
    torch.testing.assert_close(jumps.moves(look), plain.moves(look))


def test_soft_attention_is_another_thing() -> None:
    """The sum of chances is not the chance at the mean, unless one position has it all; and Jensen's gap has a sign."""
    output = MarginalOutput(Output(3, 7).double())
    features = torch.randn(2, 4, 3, dtype=torch.float64)
    priors = torch.randn(2, 4, dtype=torch.float64).log_softmax(-1)
    each = output.vocabulary.log_probs(features)
    summed = output.mixed(features, priors)
    torch.testing.assert_close(summed.exp(), (priors.exp()[..., None] * each.exp()).sum(1))
    at_mean = output.vocabulary.log_probs((priors.exp()[..., None] * features).sum(1))
    assert not torch.allclose(summed, at_mean)
    assert (summed >= (priors.exp()[..., None] * each).sum(1)).all()
    certain = torch.full((2, 4), -1e9, dtype=torch.float64)
    certain[:, 2] = 0
    torch.testing.assert_close(output.mixed(features, certain), each[:, 2])


class Affine(Output):
    """`p(y | h) = A h`, of states that are distributions themselves and columns that are."""

    def log_probs(self, features: Tensor) -> Tensor:
        return (features @ self.weight.softmax(0).T).log()


@pytest.mark.parametrize("affine", [True, False])
def test_soft_equals_exact_where_chances_are_affine(affine: bool) -> None:
    """The same scores: the chance at the mean of the states, and the mean of the chances at them."""
    vocabulary = (Affine if affine else Output)(D_K, 7).double()
    score = Bilinear(D_Q, D_K).double()
    soft, exact = GlobalAttention(score).eval(), ExactAttention(score)
    queries, states = (torch.randn(B, length, width).double() for length, width in ((T, D_Q), (S, D_K)))
    shared = soft.prepare(states.softmax(-1), MASK)
    mean = soft(queries, shared, torch.arange(T)).context
    moves = exact.moves(Look(queries, shared, torch.arange(T), {})).squeeze(-2)
    everywhere = shared["values"][:, None].expand(-1, T, -1, -1)
    summed = MarginalOutput(vocabulary).log_probs(Placed(everywhere, moves))
    assert torch.allclose(vocabulary.log_probs(mean), summed) == affine


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "CHUNK", 2)
    features = torch.randn(5, 2, dtype=torch.float64, requires_grad=True)
    weight, bias = (torch.nn.Parameter(torch.randn(*shape, dtype=torch.float64)) for shape in ((9, 2), (9,)))
    targets = torch.tensor([0, 5, 8, 7, 5])
    given = torch.randn(5, dtype=torch.float64)

    def emissions(fixed_row: int | None) -> Tensor:
        output = Output(2, 9, weight, fixed_row)
        output.bias = bias
        everywhere = torch.ones(5, 1, dtype=torch.bool)
        return MarginalOutput(output).emissions(features[:, None], targets, everywhere)[:, 0]

    found = emissions(None)
    plain = (features @ weight.T + bias).log_softmax(-1).gather(1, targets[:, None]).squeeze(1)
    torch.testing.assert_close(found, plain)
    ours = torch.autograd.grad((found * given).sum(), (features, weight, bias))
    torch.testing.assert_close(ours, torch.autograd.grad((plain * given).sum(), (features, weight, bias)))
    assert not torch.autograd.grad(emissions(5).sum(), weight)[0][5].any()


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("strategy", ["greedy", "beam", "sample"])
def test_search_scores_what_it_finds(choice: str, strategy: str) -> None:
    model, batch = model_of(choice), random_batch([5, 3])
    beam = 4 if strategy == "beam" else 1
    options = SearchOptions(strategy="sample" if strategy == "sample" else "beam", beam=beam, max_length=6)
    with torch.no_grad():
        for number, found in enumerate(search(model, batch, options)):
            best = found[0]
            tokens = [*best.tokens, model.eos] if best.finished else list(best.tokens)
            alone = Batch((batch.sources[0].rows(torch.tensor([number])),), pad([tokens], 0))
            scored = model.token_log_probs(alone).sum()
            assert sum(best.token_log_probs) == pytest.approx(float(scored))


@pytest.mark.parametrize(
    ("model", "told"),
    [
        ({"recipe": "bahdanau", "attention": {"choice": "exact"}}, "input_feeding = false"),
        ({"recipe": "luong", "attention": {"choice": "segments"}}, "input_feeding = false"),
        ({"attention": {"choice": "exact"}}, "only bahdanau and luong"),
        (
            {
                "recipe": "luong",
                "decoder": {"input_feeding": False},
                "attention": {"choice": "exact", "coverage": "sum"},
            },
            "leave model.attention.coverage out",
        ),
        ({"recipe": "luong", "attention": {"choice": "sampled", "span": "local-m"}}, "span"),
    ],
)
def test_what_makes_no_sense_is_refused(model: dict[str, Any], told: str) -> None:
    with pytest.raises(SightlineError, match=told):
        build_config({"model": model})


WIDTH, TOKENS, LENGTH = 16, 8, 4
NEVER_BACK: dict[str, Callable[[], Scored]] = {
    "exact_monotonic": lambda: ExactMonotonicAttention(Additive(WIDTH, WIDTH, WIDTH), [PositionBias()]),
    "exact_jumps": lambda: ExactJumpsAttention(Bilinear(WIDTH, WIDTH), WIDTH, WIDTH, WIDTH, LENGTH - 1),
    "segments": lambda: SegmentAttention(Additive(WIDTH, WIDTH, WIDTH), 0.0, [PositionBias()]),
    "online_monotonic": lambda: OnlineMonotonicAttention(Additive(WIDTH, WIDTH, WIDTH), 0.0, clues=[PositionBias()]),
}


class Reader(torch.nn.Module):
    """It knows the place in the target, and of each source position its token alone."""

    def __init__(self, attention: Scored) -> None:
        super().__init__()
        self.embedding, self.output = torch.nn.Embedding(TOKENS, WIDTH), torch.nn.Linear(WIDTH, TOKENS)
        self.attention, self.queries = attention, torch.nn.Parameter(torch.randn(1, LENGTH, WIDTH))

    def forward(self, ids: Tensor, wanted: Tensor) -> Tensor:
        """The log-probability of each target, `(B, T)`."""
        states, mask = self.embedding(ids), torch.ones_like(ids, dtype=torch.bool)
        shared, queries = self.attention.prepare(states, mask), self.queries.expand(len(ids), -1, -1)
        if isinstance(self.attention, LatentAttention):
            each = self.output(states).log_softmax(-1)  # (B, S, V)
            emissions = torch.stack(
                [each.gather(-1, token.expand_as(ids)[..., None]) for token in wanted.split(1, 1)], 1
            )
            moves = self.attention.moves(Look(queries, shared, torch.arange(LENGTH), {}))
            place = first_place(mask, states.dtype)
            return (self.attention.filtered(moves, emissions.squeeze(-1), place) + emissions.squeeze(-1)).logsumexp(-1)
        state, contexts = self.attention.begin(states, mask), []
        for t, query in enumerate(queries.split(1, 1)):
            looked = self.attention(query, shared, torch.tensor([t]), None, state)
            state = looked.state
            contexts.append(looked.context)
        return self.output(torch.cat(contexts, 1)).log_softmax(-1).gather(-1, wanted[..., None]).squeeze(-1)


def toy_loss(choice: str, backwards: bool, updates: int = 300) -> float:
    """Nats a token at last, of strings of different tokens; what learns by expectations is asked as it decodes."""
    torch.manual_seed(5)
    reader = Reader(NEVER_BACK[choice]())
    optimizer, losses = torch.optim.Adam(reader.parameters(), 0.02), []
    for update in range(updates):
        ids = torch.rand(64, TOKENS).argsort(1)[:, :LENGTH]
        reader.train(update < updates - 20)
        loss = -reader(ids, ids.flip(1) if backwards else ids).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return sum(losses[-20:]) / 20


@pytest.mark.parametrize("choice", NEVER_BACK)
def test_who_never_goes_back_copies_and_cannot_reverse(choice: str) -> None:
    """Of a string backwards such a chain meets one token; the other three are one of seven each."""
    assert toy_loss(choice, backwards=False) < 0.3
    assert toy_loss(choice, backwards=True) > 0.95 * 3 / 4 * math.log(7)
