"""Sayings about attention that are often repeated and not true, each with the numbers against it."""

import itertools
import math

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from sightline.attention.core import attend, attend_reference, attention_weights, masked_softmax
from sightline.attention.masks import causal_mask, feature_blocks, padding_mask
from sightline.attention.multihead import MultiHeadAttention
from sightline.attention.scores import Additive, Bilinear, Cosine, Dot, ScaledDot, Score, dot, scaled_dot
from sightline.models import EncoderDecoder
from tests.conftest import VOCABULARY, random_batch, small_model
from tests.oracles import attend_by_hand

B, H, T, S, D = 2, 2, 3, 5, 4


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def test_softmax_keeps_order_not_ratios() -> None:
    weights = masked_softmax(torch.tensor([[1.0, 2.0, 4.0]], dtype=torch.float64))[0]
    assert weights.argsort().tolist() == [0, 1, 2]
    assert (weights[2] / weights[1]).item() == pytest.approx(math.e**2)  # not 2
    assert (weights[1] / weights[0]).item() == pytest.approx(math.e)


def test_attention_is_linear_in_the_values_only() -> None:
    states, values, others = random(1, 1, S, D), random(1, 1, S, D), random(1, 1, S, D)
    mixed = attend(states, states, 2 * values - 3 * others)
    expected = 2 * attend(states, states, values) - 3 * attend(states, states, others)
    torch.testing.assert_close(mixed, expected)
    doubled = attend(2 * states, 2 * states, 2 * states)
    assert not torch.allclose(doubled, 2 * attend(states, states, states), rtol=0.01)


def test_a_query_meets_every_key_not_only_its_own() -> None:
    """Σ_j softmax_j(q_i · k_j) v_j: changing one key changes every row."""
    queries, keys, values = random(1, 1, T, D), random(1, 1, S, D), random(1, 1, S, D)
    _, expected = attend_by_hand(queries, keys, values)
    plain = attend(queries, keys, values)
    torch.testing.assert_close(plain, expected)
    changed = keys.clone()
    changed[:, :, 3] += random(D)
    assert not torch.isclose(attend(queries, changed, values), plain).all(-1).any()


def test_scores_are_queries_by_keys_and_values_come_after() -> None:
    """With values of another width a product of queries and values has no shape; and α is not yet the output."""
    queries, keys, values = random(1, 1, T, D), random(1, 1, S, D), random(1, 1, S, D + 3)
    assert attention_weights(queries, keys).shape == (1, 1, T, S)
    assert attend(queries, keys, values).shape == (1, 1, T, D + 3)
    with pytest.raises(RuntimeError):
        attention_weights(queries, values)


def test_the_divisor_is_a_width_not_a_norm_and_it_divides() -> None:
    queries, keys = random(T, 16), random(S, 16)
    product = dot(queries, keys)
    torch.testing.assert_close(scaled_dot(queries, keys), product / 4)
    assert not torch.allclose(scaled_dot(queries, keys), product * 4)
    assert not torch.allclose(scaled_dot(queries, keys), product / keys.norm(dim=-1), rtol=0.01)


def test_columns_for_tokens_need_the_transposed_weights() -> None:
    """Rows: A V. With tokens as columns, E = Qᵀ K and the output is V Aᵀ; V A would mix by the wrong index."""
    queries, keys, values = random(S, D), random(S, D), random(S, D)
    by_rows = attend_reference(queries[None, None], keys[None, None], values[None, None])[0, 0]
    weights = attention_weights(queries, keys)
    torch.testing.assert_close((values.T @ weights.T).T, by_rows)
    assert not torch.allclose((values.T @ weights).T, by_rows, rtol=0.01)


SCORES = {
    "dot": Dot,
    "scaled dot": ScaledDot,
    "cosine": Cosine,
    "bilinear": lambda: Bilinear(D, D),
    "additive": lambda: Additive(D, D, 3),
}


@pytest.mark.parametrize(
    ("score", "mask", "own"), list(itertools.product(SCORES, ["none", "padding", "causal"], [True, False]))
)
def test_score_mask_and_origin_are_three_choices(score: str, mask: str, own: bool) -> None:
    """Causal is not another word for self-attention, nor scaled dot-product one for encoder-decoder attention."""
    module: Score = SCORES[score]().double()
    queries = random(B, S, D)
    memory = queries if own else random(B, S, D)
    allowed = {
        "none": torch.ones(1, S, S, dtype=torch.bool),
        "padding": padding_mask(torch.tensor([[True] * S, [True, True, False, False, False]]))[:, 0],
        "causal": causal_mask(S, S),
    }[mask].expand(B, S, S)
    given = None if mask != "padding" else allowed
    weights = attention_weights(queries, module.prepare(memory), given, causal=mask == "causal", score=module)
    assert torch.equal(weights > 0, allowed)
    torch.testing.assert_close(weights.sum(-1), torch.ones(B, S, dtype=torch.float64))


@pytest.mark.parametrize("recipe", ["bahdanau", "luong", "transformer"])
def test_targets_are_rows_and_sources_columns(recipe: str) -> None:
    model = small_model(recipe)
    if recipe == "transformer":
        model.decoder.alignment = (0, None)
    (found,) = decode(model, [9])
    assert found.shape == (6, 9)
    torch.testing.assert_close(found.sum(-1), torch.ones(6, dtype=torch.float64))


def decode(model: EncoderDecoder, lengths: list[int], steps: int = 6) -> list[Tensor]:
    """Weights `(T, S)` of each sentence, decoded with some tokens."""
    state, rows = model.start(random_batch(lengths)), []
    for number in range(steps):
        step = model.step(torch.full((len(lengths),), 4 + number), state)
        state = step.state
        assert step.weights is not None
        rows.append(step.weights)
    return list(torch.stack(rows, 1).unbind(0))


@pytest.mark.parametrize("recipe", ["bahdanau", "luong", "transformer"])
def test_the_alignment_is_learnt_with_the_rest(recipe: str) -> None:
    """Not "elsewhere": the translation's loss alone moves what makes the weights."""
    model = small_model(recipe)
    model.loss(random_batch([5, 3], [4, 6]))["cross_entropy"][0].backward()
    attention = model.decoder.layers[0].cross if recipe == "transformer" else model.decoder.attention
    for name, parameter in attention.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.any(), name


@pytest.mark.parametrize("recipe", ["seq2seq", "bahdanau", "luong", "transformer"])
def test_a_step_gives_a_distribution_over_words(recipe: str) -> None:
    """Not an embedding of a word."""
    model = small_model(recipe)
    step = model.step(torch.full((2,), model.bos), model.start(random_batch([5, 3])))
    assert step.log_probs.shape == (2, VOCABULARY)
    torch.testing.assert_close(step.log_probs.exp().sum(-1), torch.ones(2, dtype=torch.float64))


@pytest.mark.parametrize(("length", "width", "heads"), [(8, 16, 2), (64, 16, 4), (40, 32, 8)])
def test_self_attention_costs_its_projections_too(length: int, width: int, heads: int) -> None:
    """4 n d² for the projections and 2 n² d for scores and mixture: which is larger depends on n against 2d."""
    module = MultiHeadAttention(width, heads)
    with FlopCounterMode(display=False) as counter:
        queries, keys, values = module.project_self(torch.randn(1, length, width))
        module.output(attend_reference(queries, keys, values).transpose(1, 2).flatten(-2))
    multiplications = 4 * length * width**2 + 2 * length**2 * width
    assert counter.get_total_flops() == 2 * multiplications


@pytest.mark.parametrize("recipe", ["seq2seq", "bahdanau", "luong", "transformer"])
def test_a_batch_of_one_has_a_first_dimension_of_one(recipe: str) -> None:
    model = small_model(recipe)
    assert model.encode(random_batch([5])).states.shape[:2] == (1, 5)


def test_blocks_of_features_are_half_open() -> None:
    """[0:256), [256:512), [512:768), [768:1024): from "513" and "769" on, two features would be in no block."""
    assert feature_blocks(1024, 4) == [slice(0, 256), slice(256, 512), slice(512, 768), slice(768, 1024)]
    often_written = [slice(0, 256), slice(256, 512), slice(513, 768), slice(769, 1024)]
    for blocks, missing in ((feature_blocks(1024, 4), set()), (often_written, {512, 768})):
        covered = {feature for block in blocks for feature in range(1024)[block]}
        assert {*range(1024)} - covered == missing
