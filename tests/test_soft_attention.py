"""Attention of recurrent decoders: global and local, against loops over positions."""

import math

import pytest
import torch
from torch import Tensor

from sightline.attention.scores import Additive, Bilinear, Location, Score
from sightline.attention.soft import (
    Attended,
    GlobalAttention,
    LocalMonotonicAttention,
    LocalPredictiveAttention,
    SoftAttention,
)
from tests.oracles import check_gradients, check_parameter_gradients, softmax_by_hand

B, T, S, D_Q, D_K = 3, 4, 9, 5, 6
LENGTHS = [9, 6, 2]
MASK = torch.arange(S) < torch.tensor(LENGTHS)[:, None]
SPANS = ["global", "local-m", "local-p"]


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def make(span: str, score: Score, window: int = 2) -> SoftAttention:
    module: SoftAttention
    if span == "local-m":
        module = LocalMonotonicAttention(score, window)
    elif span == "local-p":
        module = LocalPredictiveAttention(score, D_Q, window)
    else:
        module = GlobalAttention(score)
    return module.double().eval()


def look(module: SoftAttention, queries: Tensor, states: Tensor, mask: Tensor, first: int = 0) -> Attended:
    positions = torch.arange(first, first + queries.size(1))
    return module(queries, module.prepare(states, mask), positions)


def weights_by_hand(module: SoftAttention, queries: Tensor, states: Tensor, first: int = 0) -> Tensor:
    """Position by position, with nothing but numbers once the scores are there."""
    scores = module.score(queries, module.score.prepare(states)).tolist()
    rows = []
    for b, length in enumerate(LENGTHS):
        for t in range(queries.size(1)):
            if isinstance(module, LocalMonotonicAttention):
                centre = float(min(first + t, length - 1))
            elif isinstance(module, LocalPredictiveAttention):
                inner = module.place.weight[0] @ torch.tanh(module.hidden.weight @ queries[b, t])
                centre = length / (1 + math.exp(-inner.item()))
            else:
                rows.append(softmax_by_hand(scores[b][t], [s < length for s in range(S)]))
                continue
            inside = [s < length and centre - module.window <= s <= centre + module.window for s in range(S)]
            row = softmax_by_hand(scores[b][t], inside)
            if isinstance(module, LocalPredictiveAttention):
                sigma = module.window / 2
                row = [w * math.exp(-((s - centre) ** 2) / (2 * sigma**2)) for s, w in enumerate(row)]
            rows.append(row)
    return torch.tensor(rows, dtype=torch.float64).view(B, -1, S)


@pytest.mark.parametrize("window", [1, 2, 3, 20])
@pytest.mark.parametrize("span", SPANS)
def test_equals_the_loop(span: str, window: int) -> None:
    module = make(span, Additive(D_Q, D_K, 7), window)
    queries, states = random(B, T, D_Q) * 2, random(B, S, D_K)
    looked = look(module, queries, states, MASK, first=3)
    expected = weights_by_hand(module, queries, states, first=3)
    torch.testing.assert_close(looked.weights, expected)
    torch.testing.assert_close(looked.context, torch.einsum("bts,bsd->btd", expected, states))


@pytest.mark.parametrize("span", SPANS)
def test_padding_and_batch_play_no_part(span: str) -> None:
    """S in the centre of local-p is a sentence's true length, not the batch's."""
    module = make(span, Bilinear(D_Q, D_K))
    queries, states = random(B, T, D_Q), random(B, S, D_K)
    together = look(module, queries, states, MASK)
    for row, length in enumerate(LENGTHS):
        alone = look(module, queries[row : row + 1], states[row : row + 1, :length], MASK[row : row + 1, :length])
        torch.testing.assert_close(together.weights[row, :, :length], alone.weights[0])
        assert not together.weights[row, :, length:].any()
        torch.testing.assert_close(together.context[row], alone.context[0])


def test_the_gaussian_is_not_normalised_again() -> None:
    module = make("local-p", Bilinear(D_Q, D_K))
    sums = look(module, random(B, T, D_Q), random(B, S, D_K), MASK).weights.sum(-1)
    assert (sums < 1).all()
    assert (sums > 0).all()


@pytest.mark.parametrize("span", ["global", "local-m"])
def test_the_others_sum_to_one(span: str) -> None:
    sums = look(make(span, Bilinear(D_Q, D_K)), random(B, T, D_Q), random(B, S, D_K), MASK, first=5).weights.sum(-1)
    torch.testing.assert_close(sums, torch.ones(B, T, dtype=torch.float64))


@pytest.mark.parametrize("span", ["local-m", "local-p"])
def test_a_window_past_the_sentence_is_global_attention(span: str) -> None:
    """D ≥ S, and for local-p a deviation so large that its Gaussian is flat."""
    score = Additive(D_Q, D_K, 7)
    queries, states = random(B, T, D_Q), random(B, S, D_K)
    everything = look(make("global", score), queries, states, MASK)
    window = S if span == "local-m" else 10**7
    torch.testing.assert_close(look(make(span, score, window), queries, states, MASK).weights, everything.weights)


def test_local_m_moves_with_the_target() -> None:
    module = make("local-m", Bilinear(D_Q, D_K), window=1)
    weights = look(module, random(1, 6, D_Q), random(1, 5, D_K), torch.ones(1, 5, dtype=torch.bool)).weights[0]
    assert [row.nonzero()[:, 0].tolist() for row in weights] == [
        [0, 1],
        [0, 1, 2],
        [1, 2, 3],
        [2, 3, 4],
        [3, 4],
        [3, 4],  # past the end it stays at the last position
    ]


def test_centres_are_the_true_length_times_a_share() -> None:
    module = make("local-p", Bilinear(D_Q, D_K))
    assert isinstance(module, LocalPredictiveAttention)
    with torch.no_grad():
        module.place.weight.zero_()
    torch.testing.assert_close(
        module.centres(random(B, 1, D_Q), MASK)[:, 0], torch.tensor([4.5, 3.0, 1.0], dtype=torch.float64)
    )


@pytest.mark.parametrize("share", [-60.0, 60.0])
def test_a_window_always_holds_a_real_position(share: float) -> None:
    """Also when the sigmoid has run into 0 or 1, and with the narrowest window."""
    module = make("local-p", Bilinear(D_Q, D_K), window=1)
    assert isinstance(module, LocalPredictiveAttention)
    with torch.no_grad():
        module.hidden.weight.copy_(torch.eye(D_Q) * 100)
        module.place.weight.fill_(share)
    weights = look(module, torch.ones(B, 1, D_Q, dtype=torch.float64), random(B, S, D_K), MASK).weights
    assert (weights.sum(-1) > 0.05).all()


class Whole(torch.nn.Module):
    """Preparation and look in one call, so that the keys' parameters take part."""

    def __init__(self, module: SoftAttention) -> None:
        super().__init__()
        self.module = module

    def forward(self, queries: Tensor, states: Tensor) -> Tensor:
        return look(self.module, queries, states, MASK).weights


@pytest.mark.parametrize("span", SPANS)
def test_gradients_by_queries_states_and_parameters(span: str) -> None:
    """For local-p this covers W_p and v_p, which learn through the Gaussian alone."""
    module = make(span, Additive(D_Q, D_K, 3))
    queries, states = random(B, 2, D_Q), random(B, S, D_K)
    check_gradients(lambda q, k: look(module, q, k, MASK).context, queries, states)
    check_parameter_gradients(Whole(module), queries, states)


def test_the_sum_of_weights_by_the_place_vector() -> None:
    """Central differences, number by number, of Σα by v_p."""
    module = make("local-p", Bilinear(D_Q, D_K), window=3)
    assert isinstance(module, LocalPredictiveAttention)
    queries, states = random(B, T, D_Q), random(B, S, D_K)
    look(module, queries, states, MASK).weights.sum().backward()
    gradient, step = module.place.weight.grad, 1e-6
    assert gradient is not None
    with torch.no_grad():
        for i in range(D_Q):
            sums = []
            for sign in (1, -1):
                module.place.weight[0, i] += sign * step
                sums.append(look(module, queries, states, MASK).weights.sum().item())
                module.place.weight[0, i] -= sign * step
            assert (sums[0] - sums[1]) / (2 * step) == pytest.approx(gradient[0, i].item(), rel=1e-5, abs=1e-8)


@pytest.mark.parametrize("span", SPANS)
def test_location_weighs_only_the_sentence(span: str) -> None:
    module = make(span, Location(D_Q, 20))
    queries, states = random(B, T, D_Q), random(B, S, D_K)
    looked = look(module, queries, states, MASK)
    torch.testing.assert_close(looked.weights, weights_by_hand(module, queries, states))


def test_an_empty_sentence_gives_a_zero_context() -> None:
    for span in ("global", "local-p", "local-m"):
        module = make(span, Bilinear(D_Q, D_K))
        queries = random(1, T, D_Q).requires_grad_()
        looked = look(module, queries, random(1, S, D_K), torch.zeros(1, S, dtype=torch.bool))
        assert not looked.context.any()
        assert torch.autograd.grad(looked.context.sum(), queries)[0].isfinite().all()


def test_dropout_is_on_the_mixture_not_on_the_reported_weights() -> None:
    module = GlobalAttention(Bilinear(D_Q, D_K), dropout=0.5).double()
    queries, states = random(B, T, D_Q), random(B, S, D_K)
    looked = look(module, queries, states, MASK)
    torch.testing.assert_close(looked.weights.sum(-1), torch.ones(B, T, dtype=torch.float64))
    assert not torch.allclose(looked.context, looked.weights @ states)
    module.eval()
    looked = look(module, queries, states, MASK)
    torch.testing.assert_close(looked.context, looked.weights @ states)
