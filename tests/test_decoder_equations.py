"""The recurrent decoders, equation by equation, written with torch's own cells.

Shapes: B sentences, S source positions, n width of the decoder's state, d_m of a memory state.
"""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sightline.batch import Batch, Memory
from sightline.decoders import BahdanauDecoder, FixedContextDecoder, LuongDecoder
from sightline.errors import SightlineError
from sightline.models import EncoderDecoder
from tests.conftest import random_batch, small_model
from tests.twins import copy_cell


def decode(model: EncoderDecoder, batch: Batch) -> tuple[Memory, Tensor, Any]:
    """The memory, the embedded tokens that the decoder reads `(B, T, e)`, and what it makes of them."""
    assert batch.targets is not None
    memory = model.encode(batch)
    embedded = model.target_embedding(model.shifted(batch.targets))
    return memory, embedded, model.decoder(memory, embedded)


def masked(scores: Tensor, mask: Tensor) -> Tensor:
    return scores.masked_fill(~mask, -torch.inf).softmax(-1)


@pytest.mark.parametrize("readout_state", ["previous", "updated"])
def test_bahdanau(readout_state: str) -> None:
    """e = vᵀ tanh(W s_{i-1} + U h); s_i = GRU([E y_{i-1}; c_i], s_{i-1}); maxout of U s + V E y + C c."""
    model = small_model("bahdanau", {"decoder": {"layers": 1, "readout_state": readout_state}})
    decoder = model.decoder
    assert isinstance(decoder, BahdanauDecoder)
    batch = random_batch([5, 3], [4, 4])
    memory, embedded, decoded = decode(model, batch)
    width, token = decoder.cells.width, embedded.size(-1)
    cell = nn.GRUCell(token + memory.states.size(-1), width).double()
    copy_cell(decoder.cells.cells[0], cell)
    score, half = decoder.attention.score, memory.states.size(-1) // 2
    # s_0 = tanh(W_s ←h_1): the backward state at the first position.
    state = torch.tanh(decoder.bridge.linear(memory.states[:, 0, half:]))
    for i in range(embedded.size(1)):
        energies = torch.tanh(score.query(state)[:, None] + score.key(memory.states)) @ score.vector
        weights = masked(energies, memory.mask)
        context = (weights[..., None] * memory.states).sum(1)
        before, state = state, cell(torch.cat([embedded[:, i], context], -1), state)
        read = before if readout_state == "previous" else state
        pairs = decoder.readout.linear(torch.cat([read, embedded[:, i], context], -1))
        features = torch.maximum(pairs[:, 0::2], pairs[:, 1::2])
        torch.testing.assert_close(decoded.weights[:, i], weights)
        torch.testing.assert_close(decoded.features[:, i], features)
    torch.testing.assert_close(decoded.state.own[decoder.cells.top], state)


@pytest.mark.parametrize("input_feeding", [True, False])
def test_luong(input_feeding: bool) -> None:
    """h_t = LSTM([E y_{t-1}; h̃_{t-1}]); α = softmax(h_tᵀ W h̄); h̃_t = tanh(W_c [c_t; h_t]); h̃_0 = 0."""
    model = small_model("luong", {"decoder": {"layers": 1, "input_feeding": input_feeding}, "encoder": {"layers": 1}})
    decoder = model.decoder
    assert isinstance(decoder, LuongDecoder)
    memory, embedded, decoded = decode(model, random_batch([5, 3], [4, 4]))
    width = decoder.cells.width
    cell = nn.LSTMCell(embedded.size(-1) + input_feeding * width, width).double()
    copy_cell(decoder.cells.cells[0], cell)
    assert memory.final is not None
    hidden, inner = torch.tanh(decoder.bridge.linear(memory.final.hidden[:, 0])).chunk(2, -1)
    fed = torch.zeros(2, width, dtype=torch.float64)
    for t in range(embedded.size(1)):
        entering = torch.cat([embedded[:, t], fed], -1) if input_feeding else embedded[:, t]
        hidden, inner = cell(entering, (hidden, inner))
        energies = torch.einsum("bi,ij,bsj->bs", hidden, decoder.attention.score.weight, memory.states)
        weights = masked(energies, memory.mask)
        context = (weights[..., None] * memory.states).sum(1)
        fed = torch.tanh(torch.cat([context, hidden], -1) @ decoder.combine.weight.T)
        torch.testing.assert_close(decoded.weights[:, t], weights)
        torch.testing.assert_close(decoded.features[:, t], fed)  # prediction is from h̃, not from h


@pytest.mark.parametrize("kind", ["lstm", "gru", "rnn"])
def test_seq2seq_hands_over_every_last_state(kind: str) -> None:
    """Both h and c of every layer, from the source read backwards; then the decoder is on its own."""
    networks = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}
    model = small_model("seq2seq", {"encoder": {"kind": kind, "width": 10}, "decoder": {"cell": kind}})
    assert isinstance(model.decoder, FixedContextDecoder)
    batch = random_batch([6], [4])
    _, embedded, decoded = decode(model, batch)
    encoder = networks[kind](12, 10, 2, batch_first=True).double()
    encoder.load_state_dict(model.encoder.network.state_dict())
    decoder = networks[kind](12, 10, 2, batch_first=True).double()
    for layer, cell in enumerate(model.decoder.cells.cells):
        copy_cell(cell, decoder, f"_l{layer}")
    _, last = encoder(model.source_embedding(batch.sources[0].ids.flip(1)))
    expected, _ = decoder(embedded, last)
    torch.testing.assert_close(decoded.features, expected)
    assert decoded.weights is None


def test_seq2seq_reads_nothing_else_of_the_source() -> None:
    """The bottleneck: with the same last states, other states in the memory change nothing."""
    model = small_model("seq2seq", {"encoder": {"width": 10}})
    memory, embedded, decoded = decode(model, random_batch([6, 4], [4, 4]))
    other = Memory(torch.randn_like(memory.states), memory.mask, memory.final)
    assert torch.equal(model.decoder(other, embedded).features, decoded.features)


def context_of(name: str, memory: Memory, max_source: int = 9) -> tuple[FixedContextDecoder, Tensor]:
    model = small_model("seq2seq", {"decoder": {"context": name, "max_source": max_source}})
    assert isinstance(model.decoder, FixedContextDecoder)
    context = model.decoder.summarise(memory)
    assert context is not None
    return model.decoder, context


def fixed_memory() -> Memory:
    mask = torch.arange(6) < torch.tensor([6, 2])[:, None]
    return Memory(torch.randn(2, 6, 8, dtype=torch.float64), mask)


def test_the_sum_is_the_length_times_the_mean() -> None:
    memory = fixed_memory()
    _, mean = context_of("mean", memory)
    _, total = context_of("sum", memory)
    torch.testing.assert_close(total, mean * torch.tensor([[6.0], [2.0]], dtype=torch.float64))
    torch.testing.assert_close(mean[1], memory.states[1, :2].mean(0))


def test_the_mean_is_attention_with_equal_scores() -> None:
    memory = fixed_memory()
    weights = masked(torch.zeros(2, 6, dtype=torch.float64), memory.mask)
    torch.testing.assert_close(context_of("mean", memory)[1], (weights[..., None] * memory.states).sum(1))


def test_concatenation_keeps_every_state_in_its_place() -> None:
    memory = fixed_memory()
    decoder, context = context_of("concatenation", memory)
    assert decoder.join is not None
    joined = torch.zeros(2, 9 * 8, dtype=torch.float64)
    joined[0, : 6 * 8] = memory.states[0].flatten()
    joined[1, : 2 * 8] = memory.states[1, :2].flatten()
    torch.testing.assert_close(context, torch.tanh(decoder.join(joined)))
    with pytest.raises(SightlineError, match=r"6 tokens does not fit .* 5 states.*max_source"):
        context_of("concatenation", memory, max_source=5)


@pytest.mark.parametrize("name", ["mean", "sum", "concatenation"])
def test_a_fixed_context_enters_every_step(name: str) -> None:
    model = small_model("seq2seq", {"decoder": {"context": name}})
    assert isinstance(model.decoder, FixedContextDecoder)
    memory, embedded, decoded = decode(model, random_batch([5, 3], [4, 4]))
    context = model.decoder.summarise(memory)
    cells, states = model.decoder.cells, model.decoder.bridge(memory)
    for t in range(embedded.size(1)):
        without = cells.step(cells.project(embedded[:, t]), torch.zeros_like(context), states)
        states = cells.step(cells.project(embedded[:, t]), context, states)
        torch.testing.assert_close(decoded.features[:, t], states[cells.top])
        assert not torch.allclose(without[cells.top], states[cells.top])


def test_a_bridge_gives_each_layer_its_own_state() -> None:
    model = small_model("bahdanau", {"decoder": {"cell": "lstm", "layers": 3}})
    states = model.decoder.bridge(model.encode(random_batch([5, 3])))
    assert sorted(states) == [f"{part}.{layer}" for part in ("cell", "hidden") for layer in range(3)]
    values = list(states.values())
    assert all(value.shape == (2, 10) for value in values)
    assert not any(torch.allclose(one, other) for one in values for other in values if one is not other)
