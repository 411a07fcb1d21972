"""The arithmetic of a training update, counted from the shapes of real tokens.

A pair of s source and t target tokens (end symbols included) needs so many multiply-adds in the forward pass. One is
two operations, and the backward pass does twice the work of the forward pass (the gradient by the inputs and the one
by the weights), so that an update needs 6 operations a multiply-add. Matrix products and attention count; norms,
softmax, dropout, the optimizer and all padding do not.
Letters: d width, f feed-forward, V vocabulary; e embedding, n encoder (both directions), m decoder, a = m attention.
"""

from __future__ import annotations

from benchmarks.speed.job import RecurrentSize, TransformerSize

OPERATIONS = 6  # to a multiply-add of the forward pass
GATES = 3  # of a GRU
MATRIX = 1024  # side of the matrices that the machine is measured with
PRODUCT = 2 * MATRIX**3  # operations of one product of them
FORMULAS = {
    "transformer": "layers * [s(4d² + 2df) + 2s²d] + layers * [t(6d² + 2df) + 2sd² + t(t+1)d + 2std] + tdV",
    "bahdanau": "s[3n(e + n/2) + nm] + nm/2 + t[3m(e + n + m) + m² + s(m + n) + 2e(m + e + n) + eV]",
    "input_feeding": "s[3n(e + n/2) + nm] + t[3m(e + 2m) + m² + s(m + n) + m(m + n) + mV]",
}


def transformer(size: TransformerSize, source: int, target: int, vocabulary: int) -> int:
    """Multiply-adds of one pair; causal attention counts the positions it sees."""
    d, f = size.width, size.feedforward
    encoder = source * (4 * d * d + 2 * d * f) + 2 * source * source * d
    # Projections of self-attention (4) and of cross-attention's queries and outputs (2); its keys and values.
    decoder = target * (6 * d * d + 2 * d * f) + 2 * source * d * d
    decoder += target * (target + 1) * d + 2 * source * target * d
    return size.layers * (encoder + decoder) + target * d * vocabulary


def recurrent(size: RecurrentSize, source: int, target: int, vocabulary: int, input_feeding: bool) -> int:
    """Multiply-adds of one pair for the two ways of building an RNN with additive attention.

    Bahdanau's puts the context into the cell and reads out through a maxout layer as wide as an embedding; with
    input feeding an attentional vector as wide as the decoder goes into the cell and to the vocabulary.
    """
    e, n, m = size.embedding, size.encoder, size.decoder
    encoder = source * (GATES * n * (e + n // 2) + n * m)
    attention = m * m + source * (m + n)
    if input_feeding:
        return encoder + target * (GATES * m * (e + m + m) + attention + m * (m + n) + m * vocabulary)
    bridge = n // 2 * m  # from the encoder's last state to the decoder's first
    step = GATES * m * (e + n + m) + attention + 2 * e * (m + e + n) + e * vocabulary
    return encoder + bridge + target * step


def pair(
    size: TransformerSize | RecurrentSize, source: int, target: int, vocabulary: int, input_feeding: bool = False
) -> int:
    """Operations of one pair's share of an update."""
    if isinstance(size, TransformerSize):
        return OPERATIONS * transformer(size, source, target, vocabulary)
    return OPERATIONS * recurrent(size, source, target, vocabulary, input_feeding)
