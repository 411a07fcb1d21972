"""Encoders: exact under padding, torch's networks where they are recurrent, and each with its receptive field."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sightline.attention.multihead import MultiHeadAttention
from sightline.batch import Memory
from sightline.decoders.base import backward_state, last_state, mean_state, top_state
from sightline.encoders import (
    ConvolutionalEncoder,
    Encoder,
    PositionEncoder,
    RecurrentEncoder,
    TransformerEncoder,
    TransformerEncoderLayer,
    reverse,
)
from sightline.layers import FeedForward
from sightline.positions import sinusoids

E, N, S = 6, 5, 7
LENGTHS = [7, 3, 1, 5]
MASK = torch.arange(S) < torch.tensor(LENGTHS)[:, None]
NETWORKS = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}


def transformer(position: str = "pre", norm: str = "layer") -> TransformerEncoder:
    layers = [
        TransformerEncoderLayer(MultiHeadAttention(E, 2), FeedForward(E, 9), norm, position, 0.0) for _ in range(2)
    ]
    return TransformerEncoder(layers, norm, position)


ENCODERS: dict[str, Callable[[], Encoder]] = {
    "rnn": lambda: RecurrentEncoder("rnn", E, N),
    "lstm, two layers, both ways": lambda: RecurrentEncoder("lstm", E, N, 2, bidirectional=True),
    "gru, both ways": lambda: RecurrentEncoder("gru", E, N, bidirectional=True),
    "lstm, backwards": lambda: RecurrentEncoder("lstm", E, N, 2, backwards=True),
    "convolution": lambda: ConvolutionalEncoder(E, N, 2, 3),
    "convolution, wide": lambda: ConvolutionalEncoder(E, N, 3, 5),
    "positions": lambda: PositionEncoder(E),
    "transformer, pre": lambda: transformer("pre"),
    "transformer, post": lambda: transformer("post", "rms"),
}


def make(name: str) -> Encoder:
    return ENCODERS[name]().double().eval()


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


# Padding.


@pytest.mark.parametrize("name", ENCODERS)
def test_a_padded_batch_equals_one_by_one(name: str) -> None:
    encoder, embedded = make(name), random(len(LENGTHS), S, E)
    together = encoder(embedded, MASK)
    assert together.states.shape == (len(LENGTHS), S, encoder.width)
    assert torch.equal(together.mask, MASK)
    for row, length in enumerate(LENGTHS):
        alone = encoder(embedded[row : row + 1, :length], MASK[row : row + 1, :length])
        torch.testing.assert_close(together.states[row, :length], alone.states[0])
        assert (together.final is None) == (alone.final is None)
        if together.final is not None and alone.final is not None:
            torch.testing.assert_close(together.final.hidden[row], alone.final.hidden[0])
            if together.final.cell is not None:
                torch.testing.assert_close(together.final.cell[row], alone.final.cell[0])


@pytest.mark.parametrize("name", ENCODERS)
def test_what_stands_in_the_padding_plays_no_part(name: str) -> None:
    encoder, embedded = make(name), random(len(LENGTHS), S, E)
    plain = encoder(embedded, MASK)
    embedded = torch.where(MASK[..., None], embedded, 1e3)
    other = encoder(embedded, MASK)
    torch.testing.assert_close(other.states[MASK], plain.states[MASK])
    if plain.final is not None and other.final is not None:
        assert torch.equal(other.final.hidden, plain.final.hidden)


@pytest.mark.parametrize("name", ENCODERS)
def test_more_padding_changes_nothing(name: str) -> None:
    encoder, embedded = make(name), random(len(LENGTHS), S, E)
    plain = encoder(embedded, MASK)
    longer = encoder(F.pad(embedded, (0, 0, 0, 4), value=2.0), F.pad(MASK, (0, 4), value=False))
    torch.testing.assert_close(longer.states[:, :S][MASK], plain.states[MASK])


# Recurrent encoders are torch's networks.


@pytest.mark.parametrize("kind", NETWORKS)
@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("layers", [1, 2])
def test_parity_with_torch_one_by_one(kind: str, both: bool, layers: int) -> None:
    encoder = RecurrentEncoder(kind, E, N, layers, bidirectional=both).double().eval()
    theirs = NETWORKS[kind](E, N, layers, batch_first=True, bidirectional=both).double()
    theirs.load_state_dict(encoder.network.state_dict())
    embedded = random(len(LENGTHS), S, E)
    memory = encoder(embedded, MASK)
    assert encoder.width == (2 * N if both else N)
    assert memory.final is not None
    assert memory.final.bidirectional == both
    for row, length in enumerate(LENGTHS):
        outputs, last = theirs(embedded[row : row + 1, :length])
        torch.testing.assert_close(memory.states[row, :length], outputs[0])
        hidden, cell = last if kind == "lstm" else (last, None)
        for layer in range(layers):
            ways = range(layer * (1 + both), (layer + 1) * (1 + both))
            torch.testing.assert_close(memory.final.hidden[row, layer], torch.cat([hidden[way, 0] for way in ways]))
            if cell is not None:
                assert memory.final.cell is not None
                torch.testing.assert_close(memory.final.cell[row, layer], torch.cat([cell[way, 0] for way in ways]))


@pytest.mark.parametrize("kind", NETWORKS)
def test_last_states_are_those_at_the_true_length(kind: str) -> None:
    encoder = RecurrentEncoder(kind, E, N, 2).double().eval()
    memory = encoder(random(len(LENGTHS), S, E), MASK)
    ends = memory.states[torch.arange(len(LENGTHS)), torch.tensor(LENGTHS) - 1]
    torch.testing.assert_close(top_state(memory), ends)
    torch.testing.assert_close(last_state(memory), ends)


def test_the_backward_reading_ends_at_the_first_token() -> None:
    """Forward half: the state after the last real token. Backward half: after the first, what Bahdanau starts from."""
    encoder = RecurrentEncoder("gru", E, N, 2, bidirectional=True).double().eval()
    memory = encoder(random(len(LENGTHS), S, E), MASK)
    torch.testing.assert_close(backward_state(memory), memory.states[:, 0, N:])
    torch.testing.assert_close(top_state(memory)[:, :N], last_state(memory)[:, :N])


def test_reading_backwards_equals_feeding_the_reversed_sentence() -> None:
    backwards = RecurrentEncoder("lstm", E, N, 2, backwards=True).double().eval()
    forwards = RecurrentEncoder("lstm", E, N, 2).double().eval()
    forwards.load_state_dict(backwards.state_dict())
    embedded = random(len(LENGTHS), S, E)
    memory = backwards(embedded, MASK)
    assert memory.final is not None
    for row, length in enumerate(LENGTHS):
        turned = embedded[row, :length].flip(0)[None]
        expected = forwards(turned, torch.ones(1, length, dtype=torch.bool))
        assert expected.final is not None
        torch.testing.assert_close(memory.final.hidden[row], expected.final.hidden[0])
        torch.testing.assert_close(memory.final.cell[row], expected.final.cell[0])
        # The states are back in the order of the tokens.
        torch.testing.assert_close(memory.states[row, :length], expected.states[0].flip(0))


def test_reverse_leaves_the_padding_in_place() -> None:
    numbers = torch.arange(1, S + 1, dtype=torch.float64).expand(len(LENGTHS), S)[..., None]
    turned = reverse(numbers, MASK)[..., 0].int().tolist()
    assert turned == [[7, 6, 5, 4, 3, 2, 1], [3, 2, 1, 4, 5, 6, 7], [1, 2, 3, 4, 5, 6, 7], [5, 4, 3, 2, 1, 6, 7]]
    assert torch.equal(reverse(reverse(numbers, MASK), MASK), numbers)


# Receptive fields.


def field(encoder: Encoder, length: int, k: int) -> list[int]:
    """The positions whose state changes when the token at k does."""
    embedded, mask = random(1, length, E), torch.ones(1, length, dtype=torch.bool)
    plain = encoder(embedded, mask).states
    changed = embedded.clone()
    changed[:, k] += random(E)  # not one number for all features, which a norm would take away again
    difference = (encoder(changed, mask).states - plain).abs().amax(-1)[0]
    return difference.nonzero()[:, 0].tolist()


@pytest.mark.parametrize(("layers", "kernel"), [(1, 3), (2, 3), (1, 5), (3, 5), (2, 1)])
def test_a_convolution_sees_its_radius(layers: int, kernel: int) -> None:
    radius, length = layers * (kernel - 1) // 2, 17
    encoder = ConvolutionalEncoder(E, N, layers, kernel).double().eval()
    for k in (0, 8, 16):
        assert field(encoder, length, k) == list(range(max(0, k - radius), min(length, k + radius + 1)))


def test_positions_alone_see_one_token() -> None:
    assert field(make("positions"), 9, 4) == [4]


def test_recurrent_readings_see_what_they_have_read() -> None:
    assert field(make("rnn"), 9, 4) == [4, 5, 6, 7, 8]
    assert field(make("lstm, backwards"), 9, 4) == [0, 1, 2, 3, 4]
    assert field(make("gru, both ways"), 9, 4) == list(range(9))


def test_the_halves_of_a_bidirectional_state_look_opposite_ways() -> None:
    encoder, embedded = RecurrentEncoder("gru", E, N, bidirectional=True).double().eval(), random(1, S, E)
    mask = torch.ones(1, S, dtype=torch.bool)
    jacobian = torch.autograd.functional.jacobian(lambda x: encoder(x, mask).states[0], embedded)  # (S, 2n, 1, S, E)
    forward = jacobian[:, :N, 0].abs().sum((1, 3)) > 0
    backward = jacobian[:, N:, 0].abs().sum((1, 3)) > 0
    assert torch.equal(forward, torch.ones(S, S).tril().bool())
    assert torch.equal(backward, torch.ones(S, S).triu().bool())


def test_a_transformer_sees_everything() -> None:
    assert field(make("transformer, pre"), 9, 4) == list(range(9))


# Order.


@pytest.mark.parametrize("name", ["transformer, pre", "transformer, post"])
def test_without_positions_a_transformer_knows_no_order(name: str) -> None:
    """f(PX) = P f(X), exactly a function of the multiset of tokens; adding positions breaks it."""
    encoder, embedded, order = make(name), random(2, S, E), torch.randperm(S)
    mask = torch.ones(2, S, dtype=torch.bool)
    torch.testing.assert_close(encoder(embedded[:, order], mask).states, encoder(embedded, mask).states[:, order])
    places = sinusoids(S, E).double()
    moved, plain = (encoder(x + places, mask).states for x in (embedded[:, order], embedded))
    assert not torch.allclose(moved, plain[:, order], rtol=1e-3)


def test_a_convolution_is_its_formula() -> None:
    """`(x + glu(conv(x))) · √½`, zero beyond both ends."""
    encoder, embedded = ConvolutionalEncoder(E, N, 1, 3).double().eval(), random(1, 4, E)
    entered = encoder.enter(embedded)[0]
    weight, bias = encoder.convolutions[0].weight, encoder.convolutions[0].bias
    states = encoder(embedded, torch.ones(1, 4, dtype=torch.bool)).states[0]
    for j in range(4):
        total = bias.clone()
        for place, k in enumerate((j - 1, j, j + 1)):
            if 0 <= k < 4:
                total = total + weight[:, :, place] @ entered[k]
        value, gate = total.chunk(2)
        torch.testing.assert_close(states[j], (entered[j] + value * torch.sigmoid(gate)) * 0.5**0.5)


def test_an_even_kernel_is_refused() -> None:
    with pytest.raises(ValueError, match="no middle"):
        ConvolutionalEncoder(E, N, 1, 4)


# Fixed vectors made of a memory.


def test_fixed_vectors() -> None:
    """The last state is at the true length; the mean is attention with equal scores, and its sum is S times it."""
    states = random(len(LENGTHS), S, E)
    memory = Memory(states, MASK)
    for row, length in enumerate(LENGTHS):
        torch.testing.assert_close(last_state(memory)[row], states[row, length - 1])
        torch.testing.assert_close(mean_state(memory)[row], states[row, :length].sum(0) / length)


def test_recurrent_dropout_leaves_the_last_states_alone() -> None:
    encoder = RecurrentEncoder("lstm", E, N, 1, dropout=0.5).double()
    memory = encoder(random(2, S, E), torch.ones(2, S, dtype=torch.bool))
    assert (memory.states == 0).any()
    assert memory.final is not None
    assert (memory.final.hidden != 0).all()


def test_reversed_reading_keeps_the_meaning_of_both_halves() -> None:
    """The forward half has seen nothing after its token, whichever end the network started from."""
    encoder = RecurrentEncoder("lstm", 4, 3, bidirectional=True, backwards=True).double().eval()
    embedded = torch.randn(1, 6, 4, dtype=torch.float64)
    mask = torch.ones(1, 6, dtype=torch.bool)
    before = encoder(embedded, mask)
    changed = embedded.clone()
    changed[0, 5] += 1
    after = encoder(changed, mask)
    assert torch.equal(before.states[0, :5, :3], after.states[0, :5, :3])
    assert before.final is not None
    assert after.final is not None
    torch.testing.assert_close(after.final.hidden[0, 0, :3], after.states[0, 5, :3])
    torch.testing.assert_close(after.final.hidden[0, 0, 3:], after.states[0, 0, 3:])
