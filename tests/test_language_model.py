"""Language models: step by step as in one pass, alone as in a batch, kept and loaded, and what they cannot know."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from sightline.batch import Batch, Tokens, pad
from sightline.config import build_config
from sightline.language_model import LanguageModel
from sightline.models import build_model, parameter_count
from sightline.search import Request, SearchOptions, search, stream
from sightline.text import Sizes
from sightline.training.checkpoints import load_weights, save_weights
from sightline.training.compiling import KINDS

V, D = 17, 12
SENTENCES = [[5, 6, 5, 7, 5, 6, 3], [8, 9, 8, 3], [3]]
DECODERS: dict[str, dict[str, Any]] = {
    "lstm": {"cell": "lstm", "layers": 2, "width": D},
    "gru": {"cell": "gru", "layers": 1, "width": D},
    "rnn": {"cell": "rnn", "layers": 1, "width": D},
    "transformer": {"kind": "transformer", "layers": 2, "heads": 2, "feedforward": 20},
    "linear": {"kind": "transformer", "layers": 2, "heads": 2, "feedforward": 20, "attention": "linear"},
}
VARIANTS = [(decoder, pointer) for decoder in DECODERS for pointer in ("none", "sentinel")]


def make(decoder: str, pointer: str = "none", **changes: Any) -> LanguageModel:
    """A tiny language model in float64 and eval mode; the pointer's window is shorter than the sentences."""
    values = {
        "embedding": D,
        "dropout": 0.0,
        "decoder": DECODERS[decoder],
        "pointer": {"kind": pointer, "window": 3},
        **changes,
    }
    torch.manual_seed(1)
    model = build_model(build_config({"model": values}, "lm").model, Sizes(V, V, True)).double().eval()
    assert isinstance(model, LanguageModel)
    return model


def text_batch(rows: list[list[int]] | None = None) -> Batch:
    """Sentences that end with the end symbol, which also stands for their sources."""
    rows = rows or SENTENCES
    return Batch((pad([[3]] * len(rows), 0),), pad(rows, 0))


def full(model: LanguageModel, batch: Batch) -> Tensor:
    return model.output.log_probs(model.read(batch).features)


@pytest.mark.parametrize(("decoder", "pointer"), VARIANTS)
def test_stepwise_equals_the_full_pass_alone_and_side_by_side(decoder: str, pointer: str) -> None:
    model, batch = make(decoder, pointer), text_batch()
    assert batch.targets is not None
    together = full(model, batch)
    assert torch.allclose(together.exp().sum(-1), torch.ones((), dtype=torch.double))
    state, steps = model.start(batch).expand(2), []
    for tokens in model.shifted(batch.targets).repeat_interleave(2, 0).unbind(1):
        step = model.step(tokens, state)
        assert step.weights is None
        state = step.state
        steps.append(step.log_probs)
    stepped = torch.stack(steps, 1).view(3, 2, -1, V)
    torch.testing.assert_close(stepped, together[:, None].expand_as(stepped))
    for row, sentence in enumerate(SENTENCES):
        torch.testing.assert_close(full(model, text_batch([sentence]))[0], together[row, : len(sentence)])


@pytest.mark.parametrize(("decoder", "pointer"), VARIANTS)
def test_the_loss_is_the_sum_over_real_tokens(decoder: str, pointer: str) -> None:
    model, batch = make(decoder, pointer), text_batch()
    assert batch.targets is not None
    targets = batch.targets
    picked = full(model, batch).gather(-1, targets.ids[..., None])[..., 0] * targets.mask
    losses = model.loss(batch)
    assert losses["nll"][0].item() == pytest.approx(-picked.sum().item())
    assert losses["nll"][1] == 12
    torch.testing.assert_close(model.token_log_probs(batch), picked)
    longer = Tokens(F.pad(targets.ids, (0, 4)), F.pad(targets.mask, (0, 4)))
    assert model.loss(Batch(batch.sources, longer))["nll"][0].item() == pytest.approx(losses["nll"][0].item())
    losses["cross_entropy"][0].backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert not model.target_embedding.weight.grad[0].any()  # type: ignore[index]


@pytest.mark.parametrize("decoder", ["lstm", "transformer"])
def test_the_source_is_not_looked_at(decoder: str) -> None:
    model, batch = make(decoder), text_batch()
    other = Batch((pad([[7, 8, 3], [9, 3], [3]], 0),), batch.targets)
    torch.testing.assert_close(full(model, batch), full(model, other), rtol=0, atol=0)


@pytest.mark.parametrize(("decoder", "pointer"), VARIANTS)
def test_a_hypothesis_keeps_its_own_past(decoder: str, pointer: str) -> None:
    """Rows that change places and leave the batch go on as their sentence alone would."""
    model = make(decoder, pointer)
    histories = [[2, 5], [2, 6], [2, 7], [2, 8]]  # two hypotheses each of two sentences
    state = model.start(Batch((pad([[3], [3]], 0),))).expand(2)
    for tokens in torch.tensor(histories).T:
        state = model.step(tokens, state).state
    order = [1, 1, 3, 2]
    state = state.reorder(torch.tensor(order))
    histories = [[*histories[row], token] for row, token in zip(order, (9, 5, 6, 7), strict=True)]
    state = model.step(torch.tensor([9, 5, 6, 7]), state).state.keep(torch.tensor([1]))
    found = model.step(torch.tensor([4, 7]), state).log_probs
    for row, history in zip(found, histories[2:], strict=True):
        alone = [*history[1:], {6: 4, 7: 7}[history[-1]]]
        torch.testing.assert_close(row, full(model, text_batch([[*alone, 3]]))[0, len(alone)])


@pytest.mark.parametrize(("decoder", "pointer"), [("lstm", "none"), ("lstm", "sentinel"), ("transformer", "sentinel")])
def test_every_strategy_searches(decoder: str, pointer: str) -> None:
    model, batch = make(decoder, pointer), Batch((pad([[3], [3]], 0),))
    requests = [Request(prefix=(5, 6)), Request()]
    for options in (
        SearchOptions(beam=3, n_best=2, max_extra=6),
        SearchOptions(beam=1, max_extra=6),
        SearchOptions(strategy="sample", samples=2, max_extra=6),
    ):
        first, second = search(model, batch, options, requests)
        assert all(one.tokens[:2] == [5, 6] and len(one.tokens) <= 6 for one in first)
        alone = search(model, batch.rows([1]), options, requests[1:])[0]
        assert [one.tokens for one in alone] == [one.tokens for one in second]
        for one in first:
            rows = [[*one.tokens, 3] if one.finished else one.tokens]
            log_probs = model.token_log_probs(text_batch(rows))[0]
            assert one.token_log_probs == pytest.approx(log_probs.tolist(), abs=1e-9)
    parts = list(stream(model, batch.rows([0]), SearchOptions(beam=1, max_extra=6), requests[0]))
    assert parts[-1].hypothesis is not None
    assert [token for part in parts for token in part.tokens] == parts[-1].hypothesis.tokens


@pytest.mark.parametrize("decoder", ["gru", "transformer"])
def test_looked_up_tokens_change_nothing(decoder: str) -> None:
    model, batch = make(decoder, "sentinel"), Batch((pad([[3]], 0),))
    options = SearchOptions(beam=3, n_best=3, max_extra=5)
    plain = search(model, batch, options)[0]
    model.tabulate(10**6)
    assert (model.table is None) == (decoder == "transformer")  # whose tokens have positions
    looked_up = search(model, batch, options)[0]
    assert [one.tokens for one in looked_up] == [one.tokens for one in plain]
    assert [one.log_prob for one in looked_up] == pytest.approx([one.log_prob for one in plain])


@pytest.mark.parametrize(("decoder", "pointer"), [("lstm", "sentinel"), ("transformer", "none")])
def test_saved_and_loaded(decoder: str, pointer: str, tmp_path: Path) -> None:
    model, other = make(decoder, pointer).float(), make(decoder, pointer).float()
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(1.0)
    save_weights(model, tmp_path / "model.safetensors")
    load_weights(other, tmp_path / "model.safetensors")
    torch.testing.assert_close(full(other, text_batch()), full(model, text_batch()), rtol=0, atol=0)


def test_parameters() -> None:
    gates = 4 * (D * (D + D) + 2 * D)
    assert parameter_count(make("lstm")) == V * D + V + 2 * gates
    assert parameter_count(make("lstm", "sentinel")) == V * D + V + 2 * gates + (D * D + D) + D
    layer = (4 * D**2 + 4 * D) + (D * 20 + 20 + 20 * D + D) + 2 * 2 * D
    assert parameter_count(make("transformer")) == V * D + V + 2 * layer + 2 * D
    assert parameter_count(make("gru", tie="none")) == 2 * V * D + V + gates // 4 * 3
    assert isinstance(make("transformer").decoder, KINDS)  # training.compile finds its layers


@pytest.mark.parametrize(("decoder", "pointer"), [("gru", "sentinel"), ("transformer", "sentinel")])
def test_random_tokens_cannot_be_predicted(decoder: str, pointer: str) -> None:
    """Fresh uniform tokens leave ln V however long one trains; a model that saw the future would fall below."""
    model = make(decoder, pointer).float().train()
    generator = torch.Generator().manual_seed(0)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    losses = []
    for _ in range(60):
        ids = torch.randint(4, 10, (32, 8), generator=generator)
        total, count = model.loss(Batch((pad([[3]] * 32, 0),), Tokens(ids, torch.ones_like(ids, dtype=torch.bool))))[
            "cross_entropy"
        ]
        losses.append(total.item() / count)
        optimizer.zero_grad()
        (total / count).backward()
        optimizer.step()
    mean = sum(losses[-10:]) / 10
    assert 0.98 * math.log(6) <= mean <= 1.3 * math.log(6)
