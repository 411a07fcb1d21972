"""Multi-head attention: torch's module with our weights, heads one by one, and what the projections are."""

import math

import pytest
import torch
from torch import Tensor, nn

from sightline.attention.capture import capture
from sightline.attention.core import attend_reference
from sightline.attention.masks import padding_mask
from sightline.attention.multihead import MultiHeadAttention
from sightline.attention.scores import scaled_dot
from tests.oracles import attend_by_hand
from tests.twins import copy_attention, shake

B, T, S, D, H = 2, 4, 6, 12, 3


def make(width: int = D, heads: int = H) -> MultiHeadAttention:
    module = MultiHeadAttention(width, heads).double().eval()
    shake(module)
    return module


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def twin(ours: MultiHeadAttention) -> nn.MultiheadAttention:
    theirs = nn.MultiheadAttention(ours.width, ours.heads, batch_first=True).double().eval()
    copy_attention(ours, theirs)
    return theirs


@pytest.mark.parametrize("heads", [1, 3, 12])
def test_parity_over_a_padded_memory(heads: int) -> None:
    ours = make(heads=heads)
    queries, memory = random(B, T, D).requires_grad_(), random(B, S, D).requires_grad_()
    real = torch.tensor([[True] * 6, [True, True, True, True, False, False]])
    expected, weights = twin(ours)(queries, memory, memory, key_padding_mask=~real, average_attn_weights=False)
    with capture(ours) as maps:
        result = ours(queries, memory, padding_mask(real))
    torch.testing.assert_close(result, expected)
    torch.testing.assert_close(maps[""], weights.detach())
    upstream = torch.randn_like(result)
    torch.testing.assert_close(
        torch.autograd.grad(result, (queries, memory), upstream),
        torch.autograd.grad(expected, (queries, memory), upstream),
    )


@pytest.mark.parametrize("causal", [False, True])
def test_parity_of_self_attention(causal: bool) -> None:
    ours, states = make(), random(B, T, D)
    hidden = torch.ones(T, T, dtype=torch.bool).triu(1) if causal else None
    expected, _ = twin(ours)(states, states, states, attn_mask=hidden, need_weights=False)
    torch.testing.assert_close(ours(states, causal=causal), expected)
    torch.testing.assert_close(ours(states, states, causal=causal), expected)


def test_a_row_with_nothing_to_see_is_zero_here_and_nan_in_torchs_module() -> None:
    ours, states = make(), random(1, T, D)
    nothing = torch.zeros(1, T, dtype=torch.bool)
    expected, _ = twin(ours)(states, states, states, key_padding_mask=~nothing)
    assert expected.isnan().all()
    result = ours(states, mask=padding_mask(nothing))
    torch.testing.assert_close(result, ours.output.bias.expand_as(result))


def test_equals_the_triple_loop() -> None:
    ours, states = make(), random(1, T, D)
    parts = [part.view(1, T, H, D // H).transpose(1, 2) for part in (states @ ours.weight.T + ours.bias).chunk(3, -1)]
    _, contexts = attend_by_hand(*(part.detach() for part in parts))
    torch.testing.assert_close(ours(states), ours.output(contexts.transpose(1, 2).reshape(1, T, D)))


def head_alone(ours: MultiHeadAttention, number: int, queries: Tensor, memory: Tensor) -> Tensor:
    """Head `number` as attention of its own, `(B, T, d_k)`: rows `number * d_k …` of each projection."""
    d_k = ours.width // ours.heads
    rows = slice(number * d_k, (number + 1) * d_k)
    projected = []
    for part, inputs in zip(range(3), (queries, memory, memory), strict=True):
        weight, bias = ours.weight.chunk(3)[part][rows], ours.bias.chunk(3)[part][rows]
        projected.append((inputs @ weight.T + bias)[:, None])
    return attend_reference(*projected)[:, 0]


def test_single_heads_through_slices_of_the_output_matrix_sum_up() -> None:
    ours, queries, memory = make(), random(B, T, D), random(B, S, D)
    d_k = D // H
    total = ours.output.bias.expand(B, T, D)
    for number in range(H):
        columns = ours.output.weight[:, number * d_k : (number + 1) * d_k]
        total = total + head_alone(ours, number, queries, memory) @ columns.T
    torch.testing.assert_close(ours(queries, memory), total)


def test_permuting_heads_with_their_output_columns_is_a_no_op() -> None:
    ours, queries, memory = make(), random(B, T, D), random(B, S, D)
    before = ours(queries, memory)
    order = torch.arange(D).view(H, -1)[[2, 0, 1]].flatten()
    with torch.no_grad():
        for part in range(3):
            rows = part * D + torch.arange(D)
            ours.weight[rows] = ours.weight[rows][order]
            ours.bias[rows] = ours.bias[rows][order]
        moved_rows_alone = ours(queries, memory)
        ours.output.weight.copy_(ours.output.weight[:, order])
    assert not torch.allclose(moved_rows_alone, before)
    torch.testing.assert_close(ours(queries, memory), before)


@pytest.mark.parametrize(("width", "heads"), [(12, 3), (64, 8), (16, 1)])
def test_parameters(width: int, heads: int) -> None:
    """Four square matrices and their biases, however many heads; the output matrix is (h · d_v) × d."""
    module = MultiHeadAttention(width, heads)
    assert sum(parameter.numel() for parameter in module.parameters()) == 4 * width**2 + 4 * width
    assert module.output.weight.shape == (width, heads * (width // heads))


def test_every_head_sees_all_of_its_input() -> None:
    """Heads are slices of projected vectors, not of the embedding: each depends on every input feature."""
    ours, state = make(), random(1, T, D)
    for number in range(H):
        head = torch.autograd.functional.jacobian(lambda x, n=number: head_alone(ours, n, x, x)[0].sum(0), state)
        assert head.shape == (D // H, 1, T, D)
        assert head.abs().sum((0, 1, 2)).min() > 1e-6  # every feature
        assert head.abs().sum((0, 1, 3)).min() > 1e-6  # of every position


def test_heads_are_split_feature_by_feature_not_token_by_token() -> None:
    """Viewing `(B, T, d)` straight as `(B, H, T, d_k)` would keep the shapes and scramble the tokens."""
    ours, states = make(), random(B, T, D)
    split = ours.split(states)
    assert split.shape == (B, H, T, D // H)
    for head in range(H):
        assert torch.equal(split[:, head], states[..., head * 4 : (head + 1) * 4])
    assert not torch.equal(split, states.view(B, H, T, D // H))


@pytest.mark.parametrize("heads", [1, 4, 16])
def test_scores_have_unit_variance_in_every_head(heads: int) -> None:
    """The divisor is the root of one head's width: with the model's whole width it would be 1/heads."""
    module = MultiHeadAttention(64, heads).double()
    split = [module.split(random(4, 200, 64)) for _ in range(2)]
    variances = scaled_dot(*split).var(dim=(0, 2, 3))
    assert variances.shape == (heads,)
    torch.testing.assert_close(variances, torch.ones_like(variances), atol=0.15, rtol=0)


def test_projections_apart_equal_projections_together() -> None:
    ours, states = make(), random(B, T, D)
    queries, keys, values = ours.project_self(states)
    torch.testing.assert_close(ours.project_queries(states), queries)
    torch.testing.assert_close(ours.project_memory(states), (keys, values))


def test_initial_projections_are_xavier_each_for_itself() -> None:
    """Drawn as one matrix of 3d rows they would come out smaller than three square ones."""
    module = MultiHeadAttention(128, 4)
    bound = math.sqrt(6 / 256)
    for part in (*module.weight.chunk(3), module.output.weight):
        assert part.abs().max().item() <= bound
        assert part.var().item() == pytest.approx(bound**2 / 3, rel=0.05)
    assert not module.bias.any()


def test_heads_must_divide_the_width() -> None:
    with pytest.raises(ValueError, match="width 10 is not a multiple of 3 heads"):
        MultiHeadAttention(10, 3)


def test_permutation_equivariance_of_self_attention() -> None:
    """f(PX) = P f(X) without positions and without a causal mask; with one it breaks."""
    ours, states, order = make(), random(B, T, D), torch.tensor([2, 0, 3, 1])
    torch.testing.assert_close(ours(states[:, order]), ours(states)[:, order])
    assert not torch.allclose(ours(states[:, order], causal=True), ours(states, causal=True)[:, order])


def test_permuting_the_memory_permutes_columns_only() -> None:
    ours, queries, memory, order = make(), random(B, T, D), random(B, S, D), torch.tensor([2, 0, 5, 3, 1, 4])
    with capture(ours) as maps:
        plain = ours(queries, memory)
    with capture(ours) as moved_maps:
        moved = ours(queries, memory[:, order])
    torch.testing.assert_close(moved, plain)
    torch.testing.assert_close(moved_maps[""], maps[""][..., order])


def test_rows_sum_to_one_columns_need_not() -> None:
    ours = make()
    with capture(ours) as maps:
        ours(random(B, T, D))
    torch.testing.assert_close(maps[""].sum(-1), torch.ones(B, H, T, dtype=torch.float64))
    assert (maps[""].sum(-2) - 1).abs().max() > 0.05


def test_every_real_token_reaches_every_position() -> None:
    """Bidirectional: the Jacobian is dense over real tokens and zero by padding."""
    ours, states = make(), random(1, T, D)
    mask = padding_mask(torch.tensor([[True, True, True, False]]))
    jacobian = torch.autograd.functional.jacobian(lambda x: ours(x, mask=mask)[0, :3].sum(-1), states)
    sizes = jacobian[:, 0].abs().sum(-1)  # (3 outputs, T inputs)
    assert sizes[:, :3].min() > 1e-6
    assert not sizes[:, 3].any()


def test_attention_dropout_is_for_training_only() -> None:
    module = MultiHeadAttention(D, H, dropout=0.5).double()
    states = random(B, T, D)
    assert not torch.equal(module(states), module(states))
    module.eval()
    assert torch.equal(module(states), module(states))
