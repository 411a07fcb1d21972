"""Documents: words, then sentences (Yang et al. 2016), as a memory of sentences or of words weighed by them."""

from typing import Any

import pytest
import torch

from sightline.architecture import ModelConfig
from sightline.attention.capture import capture
from sightline.attention.hierarchical import HierarchicalAttention
from sightline.attention.scores import Additive, Dot
from sightline.batch import Batch, Tokens, pad
from sightline.config import build_config, merge
from sightline.documents import HierarchicalEncoder, WordPooling, cut
from sightline.encoders import RecurrentEncoder
from sightline.errors import SightlineError
from sightline.models import EncoderDecoder, build_model
from sightline.search import SearchOptions, beam_search, greedy_search
from sightline.text import EOS, Sizes
from tests.conftest import SMALL, VOCABULARY, random_batch
from tests.oracles import softmax_by_hand
from tests.test_decoders import check_reordering, full_log_probs, stepped
from tests.twins import shake

MARKER = 4
SIZES = Sizes(VOCABULARY, VOCABULARY, True, marker=MARKER)
DOCUMENTS: list[list[list[int]]] = [
    [[5, 6, 7], [8], [9, 10]],
    [[11, 12]],
    [[], [5, 6], [], [7, 8, 9, 10, 11], [6]],
]


def ids(document: list[list[int]]) -> list[int]:
    """As a source: markers between the sentences, the end symbol after the last."""
    tokens: list[int] = []
    for number, sentence in enumerate(document):
        tokens += [*([MARKER] if number else []), *sentence]
    return [*tokens, EOS]


def documents(*chosen: list[list[int]], targets: list[int] | None = None) -> Batch:
    written = None if targets is None else random_batch([2] * len(targets), targets).targets
    return Batch((pad([ids(document) for document in chosen], 0),), written)


def run_config(recipe: str, changes: dict[str, Any]) -> ModelConfig:
    """Sizes that any score fits: 12 everywhere."""
    sizes = {"encoder": {"width": 6, "kind": "hierarchical"}, "decoder": {"width": 12}}
    if recipe == "transformer":
        sizes = {"encoder": {"width": 6, "kind": "hierarchical", "bidirectional": True}, "decoder": {"width": None}}
    values = merge(SMALL, {"model": sizes, "text": {"sentence_marker": "|||"}})
    return build_config(merge(values, {"model": changes}), recipe).model


def model(recipe: str, changes: dict[str, Any] | None = None) -> EncoderDecoder:
    made = build_model(run_config(recipe, changes or {}), SIZES).double().eval()
    shake(made)
    return made


WORDS = {"documents": {"memory": "words"}}
WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "seq2seq": ("seq2seq", {}),
    "seq2seq mean": ("seq2seq", {"decoder": {"context": "mean"}}),
    "bahdanau": ("bahdanau", {}),
    "bahdanau mean": ("bahdanau", {"documents": {"pooling": "mean"}}),
    "luong coverage": ("luong", {"attention": {"coverage": "fertility", "score": "dot"}}),
    "transformer": ("transformer", {"guided": {"weight": 1.0}}),
    "bahdanau words": ("bahdanau", WORDS),
    "luong words": ("luong", {**WORDS, "decoder": {"input_feeding": False}, "attention": {"markov_bias": 1}}),
    "luong words left": ("luong", {**WORDS, "attention": {"coverage": "embedded", "position_bias": True}}),
    "luong words copied": ("luong", {**WORDS, "copying": {"kind": "pointer_generator"}}),
    "hops": ("bahdanau", {"encoder": {"kind": "hops", "width": None}, "documents": {"hops": 2}}),
    "hops luong": ("luong", {"encoder": {"kind": "hops", "width": None}, "documents": {"word_order": False}}),
    "hops alone": ("seq2seq", {"encoder": {"kind": "hops", "width": None}, "documents": {"max_age": 2}}),
    "hops transformer": ("transformer", {"encoder": {"kind": "hops", "width": None}}),
}


def test_documents_are_cut_and_put_together() -> None:
    batch = documents(*DOCUMENTS)
    (source,) = batch.sources
    assert isinstance(source, Tokens)
    parts = cut(source.mask, source.ids == MARKER)
    assert parts.real.sum(1).tolist() == [3, 1, 5]
    assert parts.words.sum(-1)[2].tolist() == [1, 3, 1, 6, 2]  # the token that ends a sentence belongs to it
    apart = parts.apart(source.ids[..., None].double())
    assert apart[0, 0, :, 0].tolist() == [5, 6, 7, 4, 0, 0]
    assert apart[1, 1:].eq(0).all()
    torch.testing.assert_close(parts.together(apart)[..., 0], source.ids.double())
    assert parts.members[0].int().tolist() == [
        [1, 1, 1, 1, 0, 0, 0, 0, 0] + [0] * 4,
        [0, 0, 0, 0, 1, 1, 0, 0, 0] + [0] * 4,
        [0, 0, 0, 0, 0, 0, 1, 1, 1] + [0] * 4,
        *[[0] * 13] * 2,
    ]


def test_a_marker_at_the_very_end_opens_no_sentence_in_the_padding() -> None:
    tokens = pad([[5, MARKER], [5, 6, 7]], 0)
    parts = cut(tokens.mask, tokens.ids == MARKER)
    assert parts.real.tolist() == [[True], [True]]


def test_pooling_by_hand() -> None:
    pooling = WordPooling(3, attends=True).double()
    assert pooling.hidden is not None
    assert pooling.query is not None
    states, mask = torch.randn(2, 4, 3).double(), torch.tensor([[True] * 4, [True, True, False, False]])
    vectors, weights = pooling(states, mask)
    for row in range(2):
        scores = [(torch.tanh(pooling.hidden(state)) @ pooling.query).item() for state in states[row]]
        expected = torch.tensor(softmax_by_hand(scores, mask[row].tolist()), dtype=torch.float64)
        torch.testing.assert_close(weights[row], expected)
        torch.testing.assert_close(vectors[row], sum(w * h for w, h in zip(expected, states[row], strict=True)))
    vectors, weights = WordPooling(3, attends=False)(states, mask)
    assert weights[1].tolist() == [0.5, 0.5, 0, 0]
    torch.testing.assert_close(vectors[1], states[1, :2].mean(0))


@pytest.mark.parametrize("of_words", [False, True])
def test_the_encoder_by_hand(of_words: bool) -> None:
    """Sentence by sentence and document by document, without any padding."""
    words, sentences = (RecurrentEncoder("gru", width, 3, bidirectional=True).double() for width in (5, 6))
    encoder = HierarchicalEncoder(words, sentences, WordPooling(6, True).double(), MARKER, of_words).eval()
    batch = documents(*DOCUMENTS)
    (source,) = batch.sources
    assert isinstance(source, Tokens)
    table = torch.randn(VOCABULARY, 5).double()
    memory = encoder(table[source.ids], source.mask, source.ids == MARKER)
    assert memory.final is not None
    for row, document in enumerate(DOCUMENTS):
        states, vectors, shares = [], [], []
        for number, sentence in enumerate(document):
            tokens = [*sentence, EOS if number == len(document) - 1 else MARKER]
            alone = torch.ones(1, len(tokens), dtype=torch.bool)
            read = words(table[tokens][None], alone)
            vector, weights = encoder.pooling(read.states, alone)
            states.append(read.states[0])
            vectors.append(vector[0])
            shares.append(weights[0])
        whole = sentences(torch.stack(vectors)[None], torch.ones(1, len(document), dtype=torch.bool))
        assert whole.final is not None
        length = int(source.mask[row].sum())
        of_sentences = memory.parts[0] if of_words else memory
        assert of_sentences.mask[row].sum() == len(document)
        torch.testing.assert_close(of_sentences.states[row, : len(document)], whole.states[0])
        torch.testing.assert_close(memory.final.hidden[row], whole.final.hidden[0])
        assert of_sentences.spans is not None
        torch.testing.assert_close(of_sentences.spans.shares[row, :length], torch.cat(shares))
        if of_words:
            torch.testing.assert_close(memory.states[row, :length], torch.cat(states))
            assert torch.equal(memory.mask, source.mask)


def test_words_are_weighed_by_their_sentences() -> None:
    """`p(sentence) · p(word | sentence)` by loops; the weights of a row sum to 1."""
    module = HierarchicalAttention(Dot(), Additive(3, 3, 4)).double().eval()
    batch = documents(*DOCUMENTS)
    (source,) = batch.sources
    assert isinstance(source, Tokens)
    parts = cut(source.mask, source.ids == MARKER)
    queries, states = torch.randn(3, 2, 3).double(), torch.randn(3, source.ids.size(1), 3).double()
    sentences = torch.randn(3, 5, 3).double()
    beside = {"sentences": sentences, "sentence_mask": parts.real, "sentence_members": parts.members}
    weights = module(queries, module.prepare(states, source.mask, beside), torch.arange(2)).weights
    torch.testing.assert_close(weights.sum(-1), torch.ones(3, 2).double())
    for b in range(3):
        for t in range(2):
            scores = module.sentence_score(queries[b, t][None], module.sentence_score.prepare(sentences[b]))[0]
            chances = softmax_by_hand(scores.tolist(), parts.real[b].tolist())
            for n, chance in enumerate(chances):
                inside = parts.members[b, n].tolist()
                within = softmax_by_hand((states[b] @ queries[b, t]).tolist(), inside)
                for s, share in enumerate(within):
                    if inside[s]:
                        assert weights[b, t, s].item() == pytest.approx(chance * share)


@pytest.mark.parametrize("name", WAYS)
def test_padding_sentences_and_words_changes_nothing(name: str) -> None:
    made = model(*WAYS[name])
    batch = documents(*DOCUMENTS, targets=[4, 7, 6])
    assert batch.targets is not None
    together, steps = full_log_probs(made, batch), stepped(made, batch)[1]
    for row, document in enumerate(DOCUMENTS):
        real = int(batch.targets.mask[row].sum())
        alone = Batch(documents(document).sources, batch.targets.rows(torch.tensor([row])).between(0, 1))
        torch.testing.assert_close(full_log_probs(made, alone)[0], together[row, :real])
        if steps is not None:
            length = len(ids(document))
            torch.testing.assert_close(steps[row, :real, :length], stepped(made, alone)[1][0])
            assert steps[row, :, length:].eq(0).all()


@pytest.mark.parametrize("name", WAYS)
def test_steps_equal_the_full_pass_and_follow_their_hypothesis(name: str) -> None:
    made, batch = model(*WAYS[name]), documents(*DOCUMENTS, targets=[4, 7, 6])
    reading = made.read(batch)
    whole = made.output.log_probs(reading.features)
    log_probs, weights = stepped(made, batch)
    torch.testing.assert_close(log_probs, whole)
    torch.testing.assert_close(stepped(made, batch, width=2)[0], whole.repeat_interleave(2, 0))
    if reading.weights is not None and weights is not None:
        torch.testing.assert_close(weights, reading.weights)
    state = check_reordering(made, batch)
    tokens = torch.tensor([8, 8, 9, 9, 9, 9])
    direct, kept = made.step(tokens, state), made.step(tokens[2:], state.keep(torch.tensor([1, 2])))
    torch.testing.assert_close(kept.log_probs, direct.log_probs[2:])


@pytest.mark.parametrize("name", ["bahdanau", "luong words", "hops luong"])
def test_weights_reach_the_tokens(name: str) -> None:
    """A look at sentences is shared among their words by the encoder's own weights, and is all of it."""
    made, batch = model(*WAYS[name]), documents(*DOCUMENTS, targets=[3, 3, 3])
    with capture(made, where=lambda n: n == "decoder.attention") as maps:
        weights = made.read(batch).weights
    assert weights is not None
    (source,) = batch.sources
    assert weights.shape == (3, 3, source.mask.size(1))
    seen = maps["decoder.attention"][:, 0]
    memory = made.encode(batch)
    if memory.spans is None:
        torch.testing.assert_close(weights, seen)
        return
    torch.testing.assert_close(weights @ memory.spans.members.double().transpose(1, 2), seen)
    assert weights[0].sum(-1).tolist() == pytest.approx([1.0] * 3)


@pytest.mark.parametrize("name", ["bahdanau", "luong words", "hops"])
def test_search_may_ask_for_coverage(name: str) -> None:
    made, batch = model(*WAYS[name]), documents(*DOCUMENTS)
    options = SearchOptions(beam=3, n_best=2, coverage_penalty=0.3, max_extra=3)
    for document, found in zip(DOCUMENTS, beam_search(made, batch, options), strict=True):
        assert found[0].weights is not None
        assert found[0].weights.shape[1] == len(ids(document))
    assert len(greedy_search(made, batch, SearchOptions(beam=1, max_extra=3))) == len(DOCUMENTS)


def test_the_loss_of_one_look_each_counts_words() -> None:
    made = model("bahdanau", {"penalties": {"one_look_each": 1.0, "repeated_looks": 1.0}})
    batch = documents(*DOCUMENTS, targets=[4, 7, 6])
    total, count = made.loss(batch)["one_look_each"]
    assert count == sum(len(ids(document)) - 1 for document in DOCUMENTS)
    assert total.isfinite()


MARKED = {"text": {"sentence_marker": "|||"}}
HIERARCHICAL, HOPS = ({"encoder": {"kind": kind}} for kind in ("hierarchical", "hops"))


@pytest.mark.parametrize(
    ("recipe", "values", "told"),
    [
        ("bahdanau", {"model": HIERARCHICAL}, "name the word that stands between their sentences"),
        ("transformer", {**MARKED, "model": {**HIERARCHICAL, **WORDS}}, "only bahdanau and luong"),
        ("luong", {**MARKED, "model": {**HOPS, **WORDS}}, "for model.encoder.kind=hierarchical, and the kind is hops"),
        ("luong", {"model": {"documents": {"hops": 2}}}, "for model.encoder.kind=hops, and the kind is lstm"),
        ("luong", {**MARKED, "model": {**HOPS, "copying": {"kind": "copynet"}}}, "needs a state for each word"),
        (
            "transformer",
            {**MARKED, "model": {**HIERARCHICAL, "copying": {"kind": "pointer_generator"}}},
            "needs a state for each word: leave copying out",
        ),
        ("luong", {**MARKED, "model": {**HIERARCHICAL, "attention": {"coverage": "embedded"}}}, "is about words"),
        ("luong", {**MARKED, "model": {**HIERARCHICAL, "penalties": {"fertility": 1}}}, "is about words"),
        (
            "luong",
            {**MARKED, "model": {**HOPS, "attention": {"choice": "exact"}, "decoder": {"input_feeding": False}}},
            "sums over words",
        ),
        (
            "luong",
            {**MARKED, "model": {**HIERARCHICAL, **WORDS, "attention": {"span": "local-p"}}},
            "leave model.attention.span out",
        ),
        ("luong", {**MARKED, "model": HOPS, "training": {"agreement": 1}}, "no document here"),
    ],
)
def test_what_makes_no_sense_is_refused(recipe: str, values: dict[str, Any], told: str) -> None:
    with pytest.raises(SightlineError, match=told):
        build_config(values, recipe)


def test_sizes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(SightlineError, match="one token of the source vocabulary"):
        build_model(run_config("luong", {}), Sizes(VOCABULARY, VOCABULARY, True))
    with pytest.raises(SightlineError, match=r"with hops it is model.embedding \(12\)"):
        model("luong", {"encoder": {"kind": "hops"}})
