"""Score functions against loops over pairs, finite differences, and the identities that tell them apart."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from sightline.attention.core import masked_softmax
from sightline.attention.scores import Additive, Bilinear, Cosine, Dot, Location, ScaledDot, Score, dot, scaled_dot
from sightline.errors import SightlineError
from tests.oracles import check_gradients, check_parameter_gradients, scores_by_hand

T, S, D_Q, D_K, N = 3, 5, 4, 6, 7


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def call(score: Score, queries: Tensor, keys: Tensor) -> Tensor:
    return score(queries, score.prepare(keys))


def test_dot_equals_numpy() -> None:
    queries, keys = random(2, T, D_K), random(2, S, D_K)
    expected = np.einsum("btd,bsd->bts", queries.numpy(), keys.numpy())
    np.testing.assert_allclose(call(Dot(), queries, keys).numpy(), expected, rtol=1e-13)


@pytest.mark.parametrize("score", [dot, scaled_dot])
def test_gradients_of_dot_products(score: object) -> None:
    check_gradients(score, random(T, D_K), random(S, D_K))


@pytest.mark.parametrize("width", [1, 4, 64, 512])
def test_scaled_dot_divides_by_the_root_of_the_width(width: int) -> None:
    """By √d_k: 8 only for 64, and neither by the norm of a key nor by its square."""
    queries, keys = random(T, width), random(S, width)
    torch.testing.assert_close(call(ScaledDot(), queries, keys), dot(queries, keys) / math.sqrt(width))


@pytest.mark.parametrize("width", [16, 64, 256])
def test_variance_grows_with_the_width_unless_scaled(width: int) -> None:
    queries, keys = random(400, width), random(400, width)
    assert dot(queries, keys).var().item() == pytest.approx(width, rel=0.1)
    assert scaled_dot(queries, keys).var().item() == pytest.approx(1.0, rel=0.1)


def test_scaling_queries_up_and_keys_down_changes_nothing() -> None:
    queries, keys = random(T, D_K), random(S, D_K)
    torch.testing.assert_close(scaled_dot(queries * 3.7, keys / 3.7), scaled_dot(queries, keys))


def test_bilinear_with_the_identity_is_dot() -> None:
    score = Bilinear(D_K, D_K).double()
    with torch.no_grad():
        score.weight.copy_(torch.eye(D_K))
    queries, keys = random(T, D_K), random(S, D_K)
    torch.testing.assert_close(call(score, queries, keys), dot(queries, keys))


@pytest.mark.parametrize("widths", [(D_Q, D_K), (D_K, D_K)])
def test_bilinear_is_query_then_matrix_then_key(widths: tuple[int, int]) -> None:
    """With equal widths the transposed matrix would fit too, so the orientation is checked by value."""
    score = Bilinear(*widths).double()
    queries, keys = random(T, widths[0]), random(S, widths[1])

    def pair(query: Tensor, key: Tensor) -> float:
        products = [query[i] * score.weight[i, j] * key[j] for i in range(widths[0]) for j in range(widths[1])]
        return sum(products).item()

    torch.testing.assert_close(call(score, queries, keys), scores_by_hand(pair, queries, keys))


def concatenated(score: Additive, query: Tensor, key: Tensor) -> float:
    """Luong's "concat": `w₂ᵀ tanh(W₁ [q; k])` with `W₁ = [W U]`."""
    matrix = torch.cat([score.query.weight, score.key.weight], 1)
    return (score.vector @ torch.tanh(matrix @ torch.cat([query, key]))).item()


def test_additive_equals_the_concatenated_form() -> None:
    score = Additive(D_Q, D_K, N).double()
    queries, keys = random(T, D_Q), random(S, D_K)
    expected = scores_by_hand(lambda query, key: concatenated(score, query, key), queries, keys)
    torch.testing.assert_close(call(score, queries, keys), expected)


def test_additive_has_no_bias() -> None:
    assert sum(parameter.numel() for parameter in Additive(D_Q, D_K, N).parameters()) == N * (D_Q + D_K + 1)


def test_additive_without_its_tanh_ignores_the_query() -> None:
    """`vᵀ W q` is the same for every key, so the softmax drops it: the nonlinearity is what makes it attention."""
    score = Additive(D_Q, D_K, N).double()
    queries, keys = random(T, D_Q), random(S, D_K)
    weights = masked_softmax(call(score, queries, keys))
    assert not torch.allclose(weights[0], weights[1], rtol=1e-3)
    # So near to zero the tangent is a straight line.
    small = masked_softmax(1e4 * call(score, 1e-4 * queries, 1e-4 * keys))
    torch.testing.assert_close(small, small[:1].expand(T, S), rtol=1e-5, atol=1e-6)


def test_additive_is_the_attention_unit_over_image_regions() -> None:
    """`m_i = tanh(x_i W_x + C W_C)`, `α = softmax(wᵀ m_i)`: one `W_x` for all regions, so their order is no matter."""
    score = Additive(D_Q, D_K, N).double()
    context, regions = random(1, D_Q), random(S, D_K)
    units = torch.tanh(regions @ score.key.weight.T + context @ score.query.weight.T)
    weights = masked_softmax(call(score, context, regions))[0]
    torch.testing.assert_close(weights, (units @ score.vector).softmax(0))
    order = torch.tensor([3, 0, 4, 1, 2])
    torch.testing.assert_close(masked_softmax(call(score, context, regions[order]))[0], weights[order])


MAKERS: dict[str, Callable[[int, int], Score]] = {
    "dot": lambda query, key: Dot(),
    "scaled dot": lambda query, key: ScaledDot(),
    "cosine": lambda query, key: Cosine(2.0),
    "bilinear": Bilinear,
    "additive": lambda query, key: Additive(query, key, N),
    "location": lambda query, key: Location(query, S),
}


@pytest.mark.parametrize("name", ["bilinear", "additive", "location"])
def test_gradients_by_queries_keys_and_parameters(name: str) -> None:
    score = MAKERS[name](D_Q, D_K).double()
    queries, keys = random(T, D_Q), random(S, D_K)
    check_gradients(lambda q, k: call(score, q, k), queries, keys)

    class Whole(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.score = score

        def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
            return call(self.score, queries, keys)

    check_parameter_gradients(Whole(), queries, keys)


def test_gradients_of_cosine() -> None:
    score = Cosine(2.0).double()
    queries, keys = random(T, D_K), random(S, D_K)
    check_gradients(lambda q, k: call(score, q, k), queries, keys)
    check_parameter_gradients(score, queries, score.prepare(keys))


def test_cosine_on_unit_vectors_is_dot() -> None:
    queries, keys = (torch.nn.functional.normalize(random(n, D_K), dim=-1) for n in (T, S))
    torch.testing.assert_close(call(Cosine(1.0).double(), queries, keys), dot(queries, keys))


def test_cosine_ignores_lengths_but_not_signs() -> None:
    score, queries, keys = Cosine(3.0).double(), random(T, D_K), random(S, D_K)
    plain = call(score, queries, keys)
    torch.testing.assert_close(call(score, queries * 0.01, keys * 50), plain)
    torch.testing.assert_close(call(score, -queries, keys), -plain)


def test_cosine_without_a_temperature_cannot_be_sharp() -> None:
    """The largest ratio of two weights is e², reached by a key along and a key against the query."""
    score, query = Cosine(1.0).double(), random(1, D_K)
    opposed = masked_softmax(call(score, query, torch.cat([9 * query, -query])))[0]
    assert (opposed[0] / opposed[1]).item() == pytest.approx(math.e**2)
    weights = masked_softmax(call(score, random(50, D_K), random(50, D_K) * 100))
    assert (weights.max(-1).values / weights.min(-1).values).max().item() <= math.e**2
    sharp = masked_softmax(call(Cosine(10.0).double(), query, torch.cat([query, -query])))[0]
    assert (sharp[0] / sharp[1]).item() == pytest.approx(math.e**20)


def test_cosine_and_dot_rank_equal_norms_alike_but_weigh_them_differently() -> None:
    query, keys = random(1, D_K), torch.nn.functional.normalize(random(S, D_K), dim=-1) * 3
    by_angle = masked_softmax(call(Cosine(1.0).double(), query, keys))[0]
    by_product = masked_softmax(dot(query, keys))[0]
    assert torch.equal(by_angle.argsort(), by_product.argsort())
    assert not torch.allclose(by_angle, by_product, rtol=0.05)
    # The same scores but for a temperature: the product of the norms.
    torch.testing.assert_close(dot(query, keys), call(Cosine(1.0).double(), query, keys) * 3 * query.norm())


def test_cosine_of_a_zero_vector_is_finite() -> None:
    queries, keys = torch.zeros(1, D_K, dtype=torch.float64), torch.zeros(2, D_K, dtype=torch.float64)
    queries.requires_grad_()
    keys.requires_grad_()
    result = call(Cosine().double(), queries, keys)
    assert torch.equal(result, torch.zeros(1, 2))
    for gradient in torch.autograd.grad(result.sum(), (queries, keys)):
        assert gradient.isfinite().all()


def test_location_looks_at_the_query_alone() -> None:
    score = Location(D_Q, 8).double()
    queries = random(T, D_Q)
    result = call(score, queries, random(S, D_K))
    assert torch.equal(result, call(score, queries, random(S, D_K)))
    torch.testing.assert_close(result, queries @ score.weight[:S].T)


def test_location_drops_the_rows_past_the_source() -> None:
    score = Location(D_Q, 8).double()
    result = masked_softmax(call(score, random(T, D_Q), random(S, D_K)))
    assert result.shape == (T, S)
    torch.testing.assert_close(result.sum(-1), torch.ones(T, dtype=torch.float64))
    result[:, 0].sum().backward()
    assert score.weight.grad is not None
    assert score.weight.grad[:S].abs().sum(-1).min() > 0
    assert torch.equal(score.weight.grad[S:], torch.zeros(8 - S, D_Q))


def test_location_refuses_a_longer_source() -> None:
    with pytest.raises(SightlineError, match=r"9 tokens.*addresses 8.*max_source"):
        Location(D_Q, 8).prepare(random(9, D_K).float())


@pytest.mark.parametrize("name", MAKERS)
def test_prepared_keys_serve_every_step_and_every_sentence(name: str) -> None:
    """What is prepared once gives, query by query and sentence by sentence, what one call gives."""
    score = MAKERS[name](D_K, D_K).double()
    queries, keys = random(2, T, D_K), random(2, S, D_K)
    prepared = score.prepare(keys)
    whole = score(queries, prepared)
    assert whole.shape == (2, T, S)
    for sentence in range(2):
        for t in range(T):
            alone = score(queries[sentence, t : t + 1], prepared[sentence])
            torch.testing.assert_close(alone[0], whole[sentence, t])
