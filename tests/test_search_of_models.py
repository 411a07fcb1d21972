"""Search over real models: a cache and a batch must give what a plain loop gives that runs the whole decoder anew."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from sightline.attention.capture import capture
from sightline.batch import Batch, Tokens, pad
from sightline.models import EncoderDecoder
from sightline.search import SearchOptions, beam_search, greedy_search
from tests.conftest import random_batch, small_model

RECIPES = ("seq2seq", "bahdanau", "luong", "transformer")
LENGTHS = [5, 9, 2, 7]


def make(recipe: str) -> EncoderDecoder:
    """Weights larger than they come: the model is sure enough to choose, and now and then to end."""
    model = small_model(recipe)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3 if parameter.dim() > 1 else 1).add_(0.2 * torch.randn_like(parameter))
        model.output.bias[model.eos] += 1
    return model


def alone(batch: Batch, row: int) -> Tokens:
    """One source without its padding."""
    source = batch.sources[0]
    assert isinstance(source, Tokens)
    length = int(source.mask[row].sum())
    return Tokens(source.ids[row : row + 1, :length], source.mask[row : row + 1, :length])


@torch.no_grad()
def next_log_probs(model: EncoderDecoder, source: Tokens, tokens: list[int]) -> Tensor:
    """What may follow `tokens`, `(V,)`: the whole source and the whole prefix through the full pass, no state kept."""
    read = torch.tensor([[model.bos, *tokens]])
    decoded = model.decoder(model.encode(Batch((source,))), model.target_embedding(read))
    return model.output.log_probs(decoded.features[0, -1])


def greedy_by_hand(model: EncoderDecoder, source: Tokens, limit: int) -> tuple[list[int], bool]:
    """Tokens, and whether they ended by themselves within the limit."""
    tokens: list[int] = []
    while True:
        log_probs = next_log_probs(model, source, tokens)
        log_probs[[model.pad, model.bos]] = -torch.inf
        token = int(log_probs.argmax())
        if token == model.eos or len(tokens) == limit:
            return tokens, token == model.eos
        tokens.append(token)


@pytest.mark.parametrize("recipe", RECIPES)
def test_greedy_search_equals_a_loop_without_a_cache(recipe: str) -> None:
    model, batch = make(recipe), random_batch(LENGTHS)
    found = greedy_search(model, batch, SearchOptions(max_ratio=1.0, max_extra=3))
    expected = [greedy_by_hand(model, alone(batch, row), length + 3) for row, length in enumerate(LENGTHS)]
    assert [(one.tokens, one.finished) for one in found] == expected
    assert len({tuple(one.tokens) for one in found}) > 1


@pytest.mark.parametrize("recipe", RECIPES)
def test_scores_of_a_beam_are_those_of_teacher_forcing(recipe: str) -> None:
    model, batch = make(recipe), random_batch(LENGTHS)
    options = SearchOptions(beam=4, n_best=4, length_penalty="none", max_ratio=1.0, max_extra=3, patience=3.0)
    for row, hypotheses in enumerate(beam_search(model, batch, options)):
        targets = pad([[*one.tokens, *[model.eos] * one.finished] for one in hypotheses], model.pad)
        source, count = alone(batch, row), len(hypotheses)
        sources = Tokens(source.ids.expand(count, -1), source.mask.expand(count, -1))
        forced = model.token_log_probs(Batch((sources,), targets)).sum(1)
        assert count == 4
        assert [one.score for one in hypotheses] == pytest.approx(forced.tolist(), abs=1e-5)
        assert [one.log_prob for one in hypotheses] == pytest.approx(forced.tolist(), abs=1e-5)


def test_source_tokens_that_move_with_their_positions_move_their_columns_only() -> None:
    """To the Transformer's attention a source is a set of tokens at places."""
    model, batch, order = make("transformer"), random_batch([6], [5]), torch.tensor([4, 0, 5, 2, 1, 3])
    source, targets = batch.sources[0], batch.targets
    assert isinstance(source, Tokens)
    assert targets is not None
    embedded, read = model.source_embedding(source.ids), model.target_embedding(model.shifted(targets))
    features, weights = [], []
    for inputs in (embedded, embedded[:, order]):
        with capture(model, where=lambda name: name.endswith("cross")) as maps:
            features.append(model.decoder(model.encoder(inputs, source.mask), read).features)
        weights.append(torch.stack(list(maps.values())))
    torch.testing.assert_close(features[1], features[0])
    torch.testing.assert_close(weights[1], weights[0][..., order])
    assert not torch.allclose(weights[1], weights[0])
