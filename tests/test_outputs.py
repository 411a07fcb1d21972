"""The output layer: torch's cross-entropy in values and gradients, chunk by chunk, and what smoothing means."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from sightline import outputs
from sightline.outputs import CHUNK, Output
from tests.conftest import VOCABULARY, random_batch, small_model
from tests.oracles import check_gradients


def make(count: int, width: int = 5, vocabulary: int = 11) -> tuple[Output, Tensor, Tensor]:
    output = Output(width, vocabulary).double()
    with torch.no_grad():
        output.bias.normal_()
    features = torch.randn(count, width, dtype=torch.float64, requires_grad=True)
    return output, features, torch.randint(0, vocabulary, (count,))


def gradients(loss: Tensor, output: Output, features: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(loss, (features, output.weight, output.bias))


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.7])
@pytest.mark.parametrize("count", [1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 3])
def test_chunks_equal_cross_entropy(count: int, smoothing: float) -> None:
    output, features, targets = make(count)
    smoothed, plain = output.nll(features, targets, smoothing)
    logits = F.linear(features, output.weight, output.bias)
    expected = F.cross_entropy(logits, targets, reduction="sum", label_smoothing=smoothing)
    torch.testing.assert_close(smoothed, expected)
    torch.testing.assert_close(plain, F.cross_entropy(logits, targets, reduction="sum"))
    # The trainer divides by a count: the incoming gradient is not 1.
    ours, theirs = gradients(smoothed / 7, output, features), gradients(expected / 7, output, features)
    torch.testing.assert_close(ours, theirs)


def test_the_gradient_against_finite_differences() -> None:
    output, features, targets = make(6, width=3, vocabulary=5)

    def loss(features: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return outputs._CrossEntropy.apply(features, weight, bias, targets, 0.2, None, True)[0]

    check_gradients(loss, features, output.weight, output.bias)


def test_the_gradient_by_the_logits_is_p_minus_q() -> None:
    """With W the identity the features are the logits."""
    output, _, targets = make(4, width=6, vocabulary=6)
    with torch.no_grad():
        output.weight.copy_(torch.eye(6))
        output.bias.zero_()
    logits = torch.randn(4, 6, dtype=torch.float64, requires_grad=True)
    smoothed, _ = output.nll(logits, targets, smoothing=0.3)
    (gradient,) = torch.autograd.grad(smoothed, logits)
    q = torch.full((4, 6), 0.3 / 6, dtype=torch.float64)
    q[torch.arange(4), targets] += 0.7
    torch.testing.assert_close(gradient, logits.softmax(-1) - q)


def test_by_hand() -> None:
    """Probabilities 1/2, 1/4, 1/4 and the first one right."""
    output = Output(1, 3).double()
    with torch.no_grad():
        output.weight.zero_()
        output.bias.copy_(torch.tensor([0.5, 0.25, 0.25]).log())
    smoothed, plain = output.nll(torch.zeros(1, 1, dtype=torch.float64), torch.tensor([0]), smoothing=0.3)
    assert plain.item() == pytest.approx(math.log(2))
    assert smoothed.item() == pytest.approx(0.7 * math.log(2) + 0.1 * (math.log(2) + 2 * math.log(4)))


def test_ours_is_torchs_convention_and_the_three_differ() -> None:
    """ε over all K tokens (torch), over the K-1 wrong ones (fairseq), over the K-2 wrong ones that are not padding."""
    output, features, _ = make(1, vocabulary=7)
    gold, padding, epsilon = 3, 0, 0.1
    log_probs = output.log_probs(features)[0].detach()
    wrong = [token for token in range(7) if token != gold]
    right = -(1 - epsilon) * log_probs[gold]
    over_all = right - epsilon / 7 * log_probs.sum()
    over_wrong = right - epsilon / 6 * log_probs[wrong].sum()
    over_words = right - epsilon / 5 * log_probs[[token for token in wrong if token != padding]].sum()
    smoothed, _ = output.nll(features, torch.tensor([gold]), epsilon)
    torch.testing.assert_close(smoothed.detach(), over_all)
    losses = [float(over_all), float(over_wrong), float(over_words)]
    assert min(abs(a - b) for a in losses for b in losses if a is not b) > 1e-4


def test_the_smallest_smoothed_loss_is_the_entropy_of_the_target() -> None:
    output = Output(1, 5).double()
    q = torch.full((5,), 0.2 / 5, dtype=torch.float64)
    q[2] += 0.8
    with torch.no_grad():
        output.weight.zero_()
        output.bias.copy_(q.log())
    features = torch.zeros(1, 1, dtype=torch.float64)
    smoothed, _ = output.nll(features, torch.tensor([2]), 0.2)
    assert smoothed.item() == pytest.approx(-(q * q.log()).sum().item())
    assert smoothed.item() > 0.5
    (slope,) = torch.autograd.grad(smoothed, output.bias)
    torch.testing.assert_close(slope, torch.zeros_like(slope))


def test_the_output_is_a_distribution_over_the_vocabulary() -> None:
    output, features, _ = make(9)
    log_probs = output.log_probs(features)
    assert log_probs.shape == (9, 11)
    torch.testing.assert_close(log_probs.exp().sum(-1), torch.ones(9, dtype=torch.float64))


def test_no_gradient_is_worked_out_when_none_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Validation must not pay for the two extra products of a training step."""
    output, features, targets = make(CHUNK + 5)
    products = []
    multiply = torch.mm
    monkeypatch.setattr(torch, "mm", lambda *given, **named: products.append(1) or multiply(*given, **named))
    with torch.no_grad():
        quiet = output.nll(features, targets, 0.1)
    assert len(products) == 2  # the logits of each chunk
    assert not quiet[0].requires_grad
    torch.testing.assert_close(quiet, tuple(value.detach() for value in output.nll(features, targets, 0.1)))
    assert len(products) == 2 + 4


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("count", [1, CHUNK + 1])
def test_few_passes_equal_the_straightforward_ones(count: int, smoothing: float) -> None:
    output, features, targets = make(count)
    given = (features.detach(), output.weight.detach(), output.bias.detach(), targets, smoothing, True)
    few = outputs._few_passes(*given)
    assert few is not None
    torch.testing.assert_close(few, outputs._straightforward(*given))


@pytest.mark.parametrize("size", [1e3, -1e3, float("nan")])
@pytest.mark.parametrize("where", ["features", "bias"])
def test_where_few_passes_would_overflow_the_straightforward_ones_step_in(size: float, where: str) -> None:
    """Logits far from zero: an exponential without their maximum taken off is infinite, or zero everywhere."""
    output, features, targets = make(3)
    output.float()
    with torch.no_grad():
        output.weight.abs_()
        features = features.detach().float()
        (features if where == "features" else output.bias).fill_(size)
    features.requires_grad_()
    given = (features.detach(), output.weight.detach(), output.bias.detach(), targets, 0.1, True)
    assert outputs._few_passes(*given) is None
    smoothed, _ = output.nll(features, targets, 0.1)
    expected = F.cross_entropy(
        F.linear(features, output.weight, output.bias), targets, reduction="sum", label_smoothing=0.1
    )
    torch.testing.assert_close(smoothed, expected, equal_nan=True)
    ours, theirs = gradients(smoothed, output, features), gradients(expected, output, features)
    torch.testing.assert_close(ours, theirs, equal_nan=True)


def test_the_plain_sum_carries_no_gradient() -> None:
    output, features, targets = make(3)
    smoothed, plain = output.nll(features, targets, 0.1)
    assert smoothed.requires_grad
    assert not plain.requires_grad


@pytest.mark.parametrize("recipe", ["seq2seq", "bahdanau", "luong", "transformer"])
def test_padding_tokens_change_neither_loss_nor_gradient(recipe: str) -> None:
    model = small_model(recipe)
    model.smoothing = 0.1
    batch = random_batch([5, 3], [4, 6])
    assert batch.targets is not None
    results = []
    for extra in (0, 3):
        ids = F.pad(batch.targets.ids, (0, extra), value=model.pad)
        targets = type(batch.targets)(ids, F.pad(batch.targets.mask, (0, extra), value=False))
        sums = model.loss(type(batch)(batch.sources, targets))
        assert sums["cross_entropy"][1] == sums["nll"][1] == 10
        results.append(torch.autograd.grad(sums["cross_entropy"][0], list(model.parameters())))
        results.append([sums["cross_entropy"][0].detach(), sums["nll"][0]])
    torch.testing.assert_close(list(results[0]), list(results[2]))
    torch.testing.assert_close(results[1], results[3])


def test_perplexity_comes_from_the_unsmoothed_loss() -> None:
    """A model that knows nothing has a perplexity of V, whatever the smoothing."""
    model = small_model("luong")
    model.smoothing = 0.4
    with torch.no_grad():
        model.output.weight.zero_()
        model.output.bias.zero_()
    total, count = model.loss(random_batch([4], [6]))["nll"]
    assert math.exp(total.item() / count) == pytest.approx(VOCABULARY)


@pytest.mark.parametrize("recipe", ["bahdanau", "transformer"])
def test_a_tied_padding_row_stays_zero(recipe: str) -> None:
    model = small_model(recipe, {"tie": "all", "embedding": 12})
    before = model.target_embedding.weight.detach().clone()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    total, count = model.loss(random_batch([5, 3], [4, 6]))["cross_entropy"]
    (total / count).backward()
    optimizer.step()
    assert torch.equal(model.target_embedding.weight[0], torch.zeros(12, dtype=torch.float64))
    assert not torch.equal(model.target_embedding.weight[1:], before[1:])
