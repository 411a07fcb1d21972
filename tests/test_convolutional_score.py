"""The convolutional score: what stands around a position decides."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from sightline.attention.scores import Convolution, Dot, Score
from sightline.attention.soft import GlobalAttention
from sightline.config import build_config
from sightline.errors import SightlineError
from sightline.models import build_model
from sightline.text import Sizes
from tests.oracles import check_parameter_gradients

D_Q, D_K = 4, 3


def made(kernel: int = 3) -> Convolution:
    return Convolution(D_Q, D_K, 5, kernel).double()


def test_by_hand() -> None:
    """One position has no neighbours: each convolution is its middle column alone."""
    score = made()
    query, key = torch.randn(1, 1, D_Q).double(), torch.randn(1, 1, D_K).double()
    inner = torch.relu(score.first.weight[:, :, 1] @ key[0, 0] + score.first.bias)
    gated = (score.second.weight[:, :, 1] @ inner + score.second.bias) * score.gate(query[0, 0])
    expected = score.last.weight[0, :, 1] @ (gated / gated.norm())
    torch.testing.assert_close(score(query, score.prepare(key))[0, 0, 0], expected)


@pytest.mark.parametrize("kernel", [1, 3, 5])
def test_scores_move_with_their_words(kernel: int) -> None:
    score, edge = made(kernel), 3 * (kernel // 2)
    words, queries = torch.randn(1, 24, D_K).double(), torch.randn(1, 2, D_Q).double()
    early = score(queries, score.prepare(words[:, :22]))
    late = score(queries, score.prepare(words[:, 2:]))
    torch.testing.assert_close(early[..., 2 + edge : 22 - edge], late[..., edge : 20 - edge])


def test_padding_changes_nothing() -> None:
    score = made()
    keys, queries = torch.randn(1, 6, D_K).double(), torch.randn(1, 2, D_Q).double()
    mask = torch.tensor([[True] * 4 + [False] * 2])
    padded = score(queries, score.prepare(keys, mask))
    torch.testing.assert_close(padded[..., :4], score(queries, score.prepare(keys[:, :4])))


def test_zeros_stay_finite() -> None:
    score = made()
    nn.init.zeros_(score.second.bias)
    queries = torch.randn(1, 2, D_Q).double()
    prepared = score.prepare(torch.zeros(1, 3, D_K).double(), torch.tensor([[True, False, False]]))
    assert score(queries, prepared).isfinite().all()


def test_gradients() -> None:
    score = made()
    check_parameter_gradients(score, torch.randn(1, 2, D_Q).double(), torch.randn(1, 4, 5).double(), read=lambda x: x)


def after_the_marker(score: Score, updates: int) -> float:
    """Trains to name the token after the marker, of 6 with the marker among them; the share that is right."""
    torch.manual_seed(3)
    width, tokens = 16, 12
    embedding, attention = nn.Embedding(tokens + 1, width), GlobalAttention(score)
    query, output = nn.Parameter(torch.randn(1, 1, width)), nn.Linear(width, tokens + 1)
    parameters = [query, *embedding.parameters(), *attention.parameters(), *output.parameters()]
    optimizer = torch.optim.Adam(parameters, 0.01)
    mask, right = torch.ones(64, 6, dtype=torch.bool), 0.0
    for _ in range(updates):
        ids = torch.rand(64, tokens).argsort(1)[:, :6] + 1  # all different
        place = torch.randint(0, 5, (64, 1))
        wanted: Tensor = ids.gather(1, place + 1).squeeze(1)
        states = embedding(ids.scatter(1, place, 0))
        context = attention(query.expand(64, -1, -1), attention.prepare(states, mask), torch.arange(1)).context
        scores = output(context[:, 0])
        right = (scores.argmax(-1) == wanted).float().mean().item()
        optimizer.zero_grad()
        nn.functional.cross_entropy(scores, wanted).backward()
        optimizer.step()
    return right


def test_the_token_after_a_marker() -> None:
    """Content alone cannot tell which of the others it is: about one in five."""
    assert after_the_marker(Convolution(16, 16, 16, 3), 400) >= 0.99
    assert after_the_marker(Dot(), 250) < 0.6


def test_from_the_configuration() -> None:
    values = {"recipe": "luong", "embedding": 8, "encoder": {"width": 4, "layers": 1}}
    values |= {"decoder": {"width": 8, "layers": 1}, "attention": {"score": "convolution", "kernel": 5}}
    model = build_model(build_config({"model": values}).model, Sizes(9, 9, True))
    assert isinstance(model.decoder.attention.score, Convolution)
    values["attention"] = {"score": "convolution", "kernel": 4}
    with pytest.raises(SightlineError, match="odd"):
        build_model(build_config({"model": values}).model, Sizes(9, 9, True))
