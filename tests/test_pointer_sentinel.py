"""The pointer-sentinel mixture: its equations by hand, its window, its limits, and a text that repeats itself."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from sightline import outputs
from sightline.attention.capture import capture
from sightline.attention.masks import recent_mask
from sightline.batch import Batch, Memory, Tokens, pad
from sightline.config import build_config
from sightline.decoders import Decoded, Decoder
from sightline.language_model import LanguageModel
from sightline.layers import Embedding
from sightline.mixtures import mixed
from sightline.models import build_model
from sightline.outputs import Output
from sightline.pointing import Pointer, PointerOutput
from sightline.state import State
from sightline.text import EOS, PAD, Sizes
from tests.test_language_model import V, full, make, text_batch


@torch.no_grad()
def plainly(model: LanguageModel, tokens: list[int], window: int) -> list[list[float]]:
    """The distributions before each of these tokens, one number at a time; the decoder's states are given."""
    batch = text_batch([tokens])
    assert batch.targets is not None
    assert isinstance(model.output, PointerOutput)
    states = model.decoder(model.encode(batch), model.embed(model.shifted(batch.targets))).features[0]
    sentinel, read = model.output.pointer.sentinel, [model.bos, *tokens[:-1]]
    rows = []
    for t, state in enumerate(states):
        query = torch.tanh(sentinel.query.weight @ state + sentinel.query.bias)
        places = [i for i in range(max(t - window + 1, 0), t + 1) if i > 0]  # 0 is the start symbol
        scores = [float(query @ states[i]) for i in places] + [float(query @ sentinel.sentinel)]
        weights = [math.exp(score) / sum(map(math.exp, scores)) for score in scores]
        row = (weights[-1] * model.output.vocabulary.log_probs(state).exp()).tolist()
        for i, weight in zip(places, weights, strict=False):
            row[read[i]] += weight
        rows.append(row)
    return rows


@pytest.mark.parametrize("decoder", ["lstm", "transformer"])
def test_the_mixture_by_hand(decoder: str) -> None:
    model, tokens = make(decoder, "sentinel"), [5, 6, 5, 5, 7, 6, 3]
    found = full(model, text_batch([tokens]))[0].exp()
    expected = torch.tensor(plainly(model, tokens, window=3), dtype=torch.double)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(expected.sum(-1), torch.ones(7, dtype=torch.double))


@pytest.mark.parametrize("decoder", ["lstm", "transformer"])
def test_captured_weights_are_those_of_pointing(decoder: str) -> None:
    model, tokens = make(decoder, "sentinel"), [5, 6, 5, 5, 7, 6, 3]
    assert isinstance(model.output, PointerOutput)
    plain = full(model, text_batch([tokens]))
    with capture(model) as maps:
        assert torch.equal(full(model, text_batch([tokens])), plain)
    weights = maps["output.pointer.sentinel"]
    assert weights.shape == (1, 1, 7, 7)
    seen = weights[0, 0]
    assert not seen[:, 0].any()  # the start symbol is no word
    assert not seen.triu(1).any()
    assert not seen.tril(-3).any()  # what has left the window
    # Each row's weights, on the words that were read, and what it lacks of 1, on the vocabulary, are the mixture.
    words = model.output.vocabulary.log_probs(model.read(text_batch([tokens])).features.features)[0].exp()
    expected = (1 - seen.sum(-1, keepdim=True)) * words
    expected.scatter_add_(-1, torch.tensor([[model.bos, *tokens[:-1]]] * 7), seen)
    torch.testing.assert_close(expected, torch.tensor(plainly(model, tokens, window=3), dtype=torch.double))


def test_a_strong_sentinel_leaves_the_vocabulary() -> None:
    model, batch = make("lstm", "sentinel"), text_batch()
    assert isinstance(model.output, PointerOutput)
    with torch.no_grad():
        query = model.output.pointer.sentinel.query
        query.weight.zero_()
        query.bias.fill_(10.0)
        model.output.pointer.sentinel.sentinel.fill_(1e4)
    states = model.read(batch).features.features
    torch.testing.assert_close(full(model, batch), model.output.vocabulary.log_probs(states))


def test_a_weak_sentinel_leaves_the_pointer() -> None:
    model = make("lstm", "sentinel")
    assert isinstance(model.output, PointerOutput)
    with torch.no_grad():
        model.output.pointer.sentinel.query.weight.zero_()
        model.output.pointer.sentinel.query.bias.fill_(10.0)
        model.output.pointer.sentinel.sentinel.fill_(-1e3)
    found = full(model, text_batch([[5, 6, 7, 8, 9, 3]]))[0].exp()
    assert found[3, [5, 6, 7]].sum().item() == pytest.approx(1.0)
    assert found[4, [6, 7, 8]].sum().item() == pytest.approx(1.0)  # 5 has left the window
    assert found[0].max() < 1  # before the first word there is nothing to point at


def test_a_window_in_a_mask() -> None:
    assert recent_mask(4, 2).int().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]]


def test_the_window_travels_in_the_state() -> None:
    model = make("gru", "sentinel")
    state = model.start(Batch((pad([[3]], 0),)))
    seen = []
    for token in (2, 5, 6, 7, 8, 9):
        state = model.step(torch.tensor([token]), state).state
        seen.append(state.own["pointer.ids"].tolist()[0])
    assert seen == [[], [5], [5, 6], [5, 6, 7], [6, 7, 8], [7, 8, 9]]
    assert state.own["pointer.states"].shape == (1, 3, 12)


class LastTwo(Decoder):
    """Knows the token it has just read and the one before it, each by a column of its own."""

    width = 2 * V

    def start(self, memory: Memory) -> State:
        return State(own={"last": memory.states.new_zeros(memory.mask.size(0), V)})

    def go_on(self, given: Tensor, state: State) -> Decoded:
        return Decoded(torch.cat([given, state.own["last"]], -1), state.advance({"last": given}))

    def forward(self, memory: Memory, embedded: Tensor) -> Decoded:
        before = torch.cat([torch.zeros_like(embedded[:, :1]), embedded[:, :-1]], 1)
        return Decoded(torch.cat([embedded, before], -1), State())


def repeating(window: int) -> LanguageModel:
    """Points at the words that came after what was just read: the query is the last token, looked for one earlier."""
    embedding = Embedding(V, V, 0, None, 0.0)
    pointer = Pointer(2 * V, window)
    output = Output(2 * V, V)
    with torch.no_grad():
        embedding.weight.copy_(torch.eye(V) / embedding.scale)
        pointer.sentinel.query.weight.zero_()
        pointer.sentinel.query.weight[V:, :V] = 20 * torch.eye(V)
        pointer.sentinel.query.bias.fill_(0.0)
        pointer.sentinel.sentinel.fill_(0.5)
        output.weight.zero_()
    return LanguageModel(embedding, LastTwo(), PointerOutput(output, pointer)).eval()


def second_half(model: LanguageModel, length: int = 6, count: int = 50) -> float:
    """How much of the second half of random words said twice is foretold."""
    generator = torch.Generator().manual_seed(0)
    words = torch.rand(count, V - 4, generator=generator).argsort(1)[:, :length] + 4
    ids = torch.cat([words, words], 1)
    batch = Batch((pad([[3]] * count, 0),), Tokens(ids, torch.ones_like(ids, dtype=torch.bool)))
    found = full(model, batch).argmax(-1)
    return float((found == ids)[:, length + 1 :].double().mean())


def test_a_text_that_repeats_itself_is_foretold_by_the_state_after_each_word() -> None:
    """The key of a word is the state after reading it, in which the word before it is known too."""
    assert second_half(repeating(window=6)) == 1.0


@pytest.mark.parametrize("window", [4, 1])
def test_what_has_left_the_window_is_not(window: int) -> None:
    assert second_half(repeating(window)) < 0.2


def learnt(kind: str, updates: int = 120, vocabulary: int = 104, length: int = 8) -> float:
    """The share of the second half of random words said twice that an LSTM of 64 units foretells after some updates."""
    values = {"embedding": 64, "dropout": 0.0, "decoder": {"width": 64, "layers": 1}}
    config = build_config({"model": {"recipe": "lm", **values, "pointer": {"kind": kind, "window": 2 * length}}})
    torch.manual_seed(1)
    model = build_model(config.model, Sizes(vocabulary, vocabulary, True))
    generator = torch.Generator().manual_seed(1)

    def twice(count: int) -> Batch:
        words = torch.randint(4, vocabulary, (count, length), generator=generator)
        ids = torch.cat([words, words], 1)
        return Batch((pad([[EOS]] * count, PAD),), Tokens(ids, torch.ones_like(ids, dtype=torch.bool)))

    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(updates):
        total, count = model.loss(twice(64))["cross_entropy"]
        optimizer.zero_grad()
        (total / count).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    batch = twice(200)
    assert batch.targets is not None
    with torch.no_grad():
        right = full(model.eval(), batch).argmax(-1) == batch.targets.ids
    return float(right[:, length + 1 :].double().mean())


def test_the_pointer_learns_to_repeat_what_the_vocabulary_cannot() -> None:
    assert learnt("sentinel") >= 0.98
    assert learnt("none") < 0.1


def test_adding_nothing_changes_nothing() -> None:
    log_probs = torch.tensor([-1.0, -200.0, -1e4], dtype=torch.double, requires_grad=True)
    added = torch.tensor([0.0, 0.5, 0.0], dtype=torch.double, requires_grad=True)
    found = mixed(log_probs, added)
    assert found.tolist() == [-1.0, pytest.approx(math.log(0.5)), -1e4]
    found.sum().backward()
    assert log_probs.grad is not None
    assert added.grad is not None
    assert log_probs.grad.tolist() == pytest.approx([1.0, 0.0, 1.0])
    assert added.grad.tolist() == pytest.approx([0.0, 2.0, 0.0])


@pytest.mark.parametrize("chunk", [256, 2])
def test_the_loss_without_logits_has_the_gradients_of_the_mixture(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "CHUNK", chunk)
    model, batch = make("lstm", "sentinel"), text_batch()
    assert batch.targets is not None
    model.loss(batch)["cross_entropy"][0].backward()
    lean = {name: parameter.grad for name, parameter in model.named_parameters()}
    model.zero_grad()
    picked = full(model, batch).gather(-1, batch.targets.ids[..., None])[..., 0]
    (-picked[batch.targets.mask].sum()).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        if name == "target_embedding.weight":
            parameter.grad[model.pad] = 0  # a row that stays as it is
        torch.testing.assert_close(lean[name], parameter.grad)


def test_smoothing_is_that_of_the_vocabulary() -> None:
    """How much to trust the pointer, and where it points, may be as certain as it can."""
    model, batch = make("lstm", "sentinel"), text_batch()
    assert batch.targets is not None
    assert isinstance(model.output, PointerOutput)
    real = batch.targets.mask
    seen = model.read(batch).features[real]
    smoothed, plain = model.output.nll(seen, batch.targets.ids[real], 0.1)
    uniform = -model.output.vocabulary.log_probs(seen.features).mean(-1).sum()
    torch.testing.assert_close(smoothed, 0.9 * plain + 0.1 * uniform)
