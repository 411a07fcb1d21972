"""Copying: the mixtures against a plain loop, their limits, decoding step by step, and what does not fit together."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from sightline.align import is_cross_attention
from sightline.attention.capture import capture
from sightline.batch import Batch, Tokens, pad
from sightline.config import build_config
from sightline.copying import AttentionPointer, Copyable, CopyHead, CopyOutput, CopyScores, CopyView, Seen
from sightline.errors import SightlineError
from sightline.interop import ctranslate2, marian
from sightline.models import EncoderDecoder, build_model
from sightline.outputs import Output
from sightline.search import SearchOptions, search
from sightline.text import BOS, EOS, PAD, UNK, Sizes

JOINT = Sizes(12, 12, True)
# Source entries 7 and 8 have no entry of the same name in the target vocabulary.
OPEN = Sizes(12, 10, False, (PAD, UNK, BOS, EOS, 4, 5, 6, UNK, UNK, 7, 8, 9), True)
KINDS = ("pointer_generator", "copynet", "copy_head")
COMBINATIONS = [
    (recipe, kind)
    for recipe in ("seq2seq", "bahdanau", "luong", "transformer")
    for kind in KINDS
    if (recipe, kind) != ("seq2seq", "pointer_generator")
]


def make(recipe: str, kind: str, sizes: Sizes, **changes: Any) -> EncoderDecoder:
    """A small model in double precision."""
    copying = {"kind": kind, "selective_read": recipe != "transformer", **changes}
    part = {"layers": 1, "heads": 2, "feedforward": 8, **({} if recipe == "transformer" else {"width": 8})}
    values = {"embedding": 8, "tie": "none", "dropout": 0.0, "encoder": part, "decoder": part, "copying": copying}
    torch.manual_seed(1)
    config = build_config({"model": {"recipe": recipe, **values}, "text": {"tokenizer": "word"}})
    return build_model(config.model, sizes).double().eval()


def examples(sizes: Sizes) -> Batch:
    """Two sentences; with open words the second has two of them, one that the source vocabulary knows."""
    if not sizes.open_words:
        return Batch((pad([[5, 7, 5, EOS], [6, 9, 4, 4, EOS]], PAD),), pad([[5, 4, EOS], [9, 8, 6, EOS]], PAD))
    first, second = [5, UNK + 12, 5, EOS], [6, UNK + 12, 7 + 24, 4, UNK + 12, EOS]
    return Batch((pad([first, second], PAD),), pad([[5, 10, EOS], [11, 8, 10, EOS]], PAD))


def written(sizes: Sizes, word: int) -> int:
    """What copying a source word writes."""
    if sizes.joint:
        return word
    return sizes.same[word] if word < sizes.source else sizes.target + word // sizes.source - 1


def convolved(layer: torch.nn.Conv1d, rows: Tensor) -> Tensor:
    """Each row `(S, c)` with its neighbours, zeros beyond the ends."""
    size = layer.weight.size(-1)
    padded = F.pad(rows, (0, 0, size // 2, size // 2))
    return torch.stack([(layer.weight * padded[i : i + size].T).sum((1, 2)) + layer.bias for i in range(len(rows))])


def shares(view: CopyView, feature: Tensor, read: Tensor, states: Tensor, looked: Tensor | None) -> tuple[Any, Tensor]:
    """Of generating, and among the words of a source, by the equations: from a feature, an embedded token, states."""
    if isinstance(view, AttentionPointer):
        assert looked is not None
        context = sum(share * state for share, state in zip(looked, states, strict=True))
        assert isinstance(context, Tensor)
        parts = zip(view.gate.weight[0].split([len(feature), len(context), len(read)]), (feature, context, read),
                    strict=True)  # fmt: skip
        return torch.sigmoid(sum(weight @ part for weight, part in parts) + view.gate.bias), looked
    assert isinstance(view, CopyHead)
    found = F.normalize(convolved(view.of_memory, states) * view.of_state(feature), dim=-1)
    copying, share = convolved(view.kernels, found).unbind(-1)
    return 1 - torch.sigmoid(share).max(), copying.softmax(-1)


@torch.no_grad()
def brute_force(model: EncoderDecoder, batch: Batch, sizes: Sizes, looked: Tensor | None, row: int, t: int) -> Tensor:
    """The distribution of one token, word by word, from the parameters and attention's weights `(B, T, S)`."""
    (source,), output = batch.sources, model.output
    assert isinstance(source, Tokens)
    assert isinstance(output, CopyOutput)
    assert batch.targets is not None
    words = source.ids[row, : int(source.mask[row].sum())].tolist()
    feature = model.read(batch).features.features[row, t]
    states, read = model.encode(batch).states[row, : len(words)], model.embed(model.shifted(batch.targets))[row, t]
    logits = output.vocabulary.weight @ feature + output.vocabulary.bias
    if isinstance(output.view, CopyScores):
        scores = torch.stack([torch.tanh(output.view.key.weight @ state) @ feature for state in states])
        generated, copied = torch.cat([logits, scores]).softmax(-1).split([len(logits), len(scores)])
    else:
        where = None if looked is None else looked[row, t, : len(words)]
        share, weights = shares(output.view, feature, read, states, where)
        generated, copied = share * logits.softmax(-1), (1 - share) * weights
    found = F.pad(generated, (0, source.ids.size(1) if sizes.open_words else 0))
    for word, probability in zip(words, copied, strict=True):
        found[written(sizes, word)] += probability
    return found


@pytest.mark.parametrize("sizes", [JOINT, OPEN], ids=["joint", "open"])
@pytest.mark.parametrize(("recipe", "kind"), COMBINATIONS)
def test_distribution_steps_loss_and_gradients(recipe: str, kind: str, sizes: Sizes) -> None:
    model, batch = make(recipe, kind, sizes, head=int(recipe == "transformer")), examples(sizes)
    assert batch.targets is not None
    assert isinstance(model.output, CopyOutput)
    with capture(model, where=is_cross_attention) as maps:
        seen = model.read(batch).features
    looked = next((weights[:, -1] for weights in maps.values()), None)
    if kind == "pointer_generator":
        torch.testing.assert_close(seen.weights, looked)
    log_probs = model.output.log_probs(seen)  # (B, T, W)
    torch.testing.assert_close(log_probs.exp().sum(-1), torch.ones(2, log_probs.size(1)).double())
    with torch.no_grad():
        torch.testing.assert_close(model.output.log_probs(seen), log_probs)
    for row, column in ((0, 1), (1, 2)):
        expected = brute_force(model, batch, sizes, looked, row, column)
        torch.testing.assert_close(log_probs[row, column].exp(), expected)
    state = model.start(batch)
    for number, tokens in enumerate(model.shifted(batch.targets).unbind(1)):
        step = model.step(tokens, state)
        state = step.state
        expected = log_probs[:, number].clone()
        if sizes.open_words:  # it may be foretold, but not written
            expected[:, UNK] = -math.inf
        torch.testing.assert_close(step.log_probs, expected)
    losses = model.loss(batch)
    torch.testing.assert_close(losses["nll"][0], -model.token_log_probs(batch).sum(), atol=1e-6, rtol=1e-6)
    losses["cross_entropy"][0].backward()
    assert all(each.grad is not None and each.grad.isfinite().all() for each in model.parameters())


@pytest.mark.parametrize(("recipe", "kind"), COMBINATIONS)
def test_a_batch_is_its_sentences_and_beams_keep_their_own(recipe: str, kind: str) -> None:
    model, batch = make(recipe, kind, OPEN), examples(OPEN)
    together = search(model, batch, SearchOptions(beam=3, n_best=2, max_length=5))
    for number, source in enumerate(([5, 13, 5, EOS], [6, 13, 31, 4, 13, EOS])):
        alone = Batch((pad([source], PAD),))
        for one, other in zip(search(model, alone, SearchOptions(beam=3, n_best=2, max_length=5))[0], together[number],
                              strict=True):  # fmt: skip
            assert one.tokens == other.tokens
            assert one.log_prob == pytest.approx(other.log_prob)
            # What was carried through the beam's reordering is what one forced pass sees.
            ended = [EOS] if one.finished else []
            given = Batch(alone.sources, pad([[*one.tokens, *ended]], PAD))
            assert model.token_log_probs(given)[0].tolist() == pytest.approx(one.token_log_probs)


@pytest.mark.parametrize(("recipe", "kind"), COMBINATIONS)
def test_products_in_bfloat16_and_smoothed_targets(recipe: str, kind: str) -> None:
    model, batch = make(recipe, kind, OPEN).float().train(), examples(OPEN)
    exact = model.loss(batch)["nll"][0]
    model.precision, model.smoothing = torch.bfloat16, 0.1
    losses = model.loss(batch)
    torch.testing.assert_close(losses["nll"][0], exact, atol=0.2, rtol=0.05)
    losses["cross_entropy"][0].backward()
    assert all(each.grad is not None and each.grad.isfinite().all() for each in model.parameters())


@pytest.mark.parametrize("kind", KINDS)
def test_unknown_targets_are_neither_learnt_nor_counted(kind: str) -> None:
    model, batch = make("luong", kind, OPEN), examples(OPEN)
    assert batch.targets is not None
    targets = batch.targets.ids.clone()
    targets[1, 1] = UNK
    batch = replace(batch, targets=replace(batch.targets, ids=targets))
    found = -model.token_log_probs(batch)
    known = found.sum() - found[1, 1]
    assert 0 < found[1, 1] < math.inf  # it can be scored
    assert model.loss(batch)["nll"][1] == 6
    torch.testing.assert_close(model.loss(batch)["nll"][0], known, atol=1e-6, rtol=1e-6)
    taught = make("luong", kind, OPEN, unknown=True)
    assert taught.loss(batch)["nll"][1] == 7
    torch.testing.assert_close(taught.loss(batch)["nll"][0], found.sum(), atol=1e-6, rtol=1e-6)
    first = torch.full((2,), BOS)
    assert taught.step(first, taught.start(batch)).log_probs[:, UNK].isfinite().all()
    assert (model.step(first, model.start(batch)).log_probs[:, UNK] == -math.inf).all()


def test_a_batch_of_unknown_targets_alone_is_no_loss() -> None:
    model, batch = make("luong", "copynet", OPEN), examples(OPEN)
    targets = pad([[UNK, UNK]] * 2, PAD)
    total, count = model.loss(replace(batch, targets=targets))["cross_entropy"]
    assert (total.item(), count) == (0, 0)
    total.backward()


def test_words_of_other_sentences_are_never_written() -> None:
    log_probs = make("luong", "pointer_generator", OPEN)
    step = log_probs.step(torch.tensor([BOS, BOS]), log_probs.start(examples(OPEN))).log_probs
    assert step.size(1) == 10 + 6
    assert step[0, 10] > -torch.inf
    assert (step[0, 11:] == -torch.inf).all()
    assert (step[1, 10:12] > -torch.inf).all()
    assert (step[1, 12:] == -torch.inf).all()


@pytest.mark.parametrize("kind", ["pointer_generator", "copy_head"])
def test_a_gate_that_always_generates_is_the_plain_model(kind: str) -> None:
    model, batch = make("bahdanau", kind, JOINT), examples(JOINT)
    assert isinstance(model.output, CopyOutput)
    assert batch.targets is not None
    with torch.no_grad():
        for name, parameter in model.output.view.named_parameters():
            if name in ("gate.bias", "kernels.bias"):
                parameter.fill_(60.0 if name == "gate.bias" else -60.0)
    seen = model.read(batch).features
    torch.testing.assert_close(model.output.log_probs(seen), model.output.vocabulary.log_probs(seen.features))
    real = batch.targets.mask
    copying, plain = (
        output.nll(given, batch.targets.ids[real], 0.1)
        for output, given in ((model.output, seen[real]), (model.output.vocabulary, seen.features[real]))
    )
    torch.testing.assert_close(copying, plain, atol=1e-6, rtol=1e-6)


def test_a_gate_that_always_copies_writes_source_words_only() -> None:
    model, batch = make("luong", "pointer_generator", OPEN), examples(OPEN)
    assert isinstance(model.output, CopyOutput)
    with torch.no_grad():
        model.output.view.get_parameter("gate.bias").fill_(-60.0)
    log_probs = model.output.log_probs(model.read(batch).features)
    assert log_probs[0, 0].exp().topk(3).indices.sort().values.tolist() == [EOS, 5, 10]
    assert log_probs[0, 0, [EOS, 5, 10]].exp().sum().item() == pytest.approx(1.0)


def test_repeated_words_get_the_sum_of_their_weights() -> None:
    output = CopyOutput(Output(2, 5), CopyScores(Copyable(Sizes(5, 5, True)), 2, 2))
    with torch.no_grad():
        output.vocabulary.weight.zero_()
    seen = Seen(torch.zeros(1, 2), torch.tensor([[4, 3, 4]]), torch.tensor([[0.2, 0.5, 0.3]]), torch.zeros(1))
    torch.testing.assert_close(output.log_probs(seen).exp(), torch.tensor([[0.1, 0.1, 0.1, 0.35, 0.35]]))


def test_a_word_that_stands_nowhere_costs_much_and_not_everything() -> None:
    model = make("luong", "pointer_generator", OPEN)
    assert isinstance(model.output, CopyOutput)
    seen = Seen(torch.zeros(1, 8).double(), torch.tensor([[4]]), torch.ones(1, 1).double(), torch.zeros(1).double())
    smoothed, plain = model.output.nll(seen, torch.tensor([10]))
    assert 20 < plain.item() < 30
    smoothed.backward()
    assert all(each.grad is None or each.grad.isfinite().all() for each in model.parameters())


def test_the_share_of_copying_is_the_largest_over_positions() -> None:
    model, batch = make("luong", "copy_head", JOINT), examples(JOINT)
    assert isinstance(model.output, CopyOutput)
    head = model.output.view
    assert isinstance(head, CopyHead)
    memory = model.encode(batch)
    shared = head.prepare(memory, batch.sources[0].ids)
    features = torch.randn(2, 3, 8).double()
    found = head(features, None, features, shared)
    seen = torch.nn.functional.normalize(shared["copying.keys"][:, None] * head.of_state(features)[:, :, None], dim=-1)
    seen = seen * memory.mask[:, None, :, None]
    for row, column, length in ((0, 0, 4), (1, 2, 5)):
        logits = head.kernels(seen[row, column].T[None])[0, :, :length]
        torch.testing.assert_close(torch.sigmoid(-found.gate[row, column]), torch.sigmoid(logits[1]).max())
        torch.testing.assert_close(found.weights[row, column, :length], logits[0].softmax(-1))


@torch.no_grad()
def copied_by_hand(model: EncoderDecoder, batch: Batch, row: int, column: int, attention: Tensor) -> list[float]:
    """The probability of copying each real position of a sentence, from the parameters, one number at a time."""
    assert isinstance(model.output, CopyOutput)
    own = dict(model.output.view.named_parameters())
    length = int(batch.source_mask[row].sum())
    memory = model.encode(batch).states[row, :length]
    seen = model.read(batch).features
    feature = seen.features[row, column]
    generated = [math.exp(score) for score in model.output.vocabulary.weight @ feature + model.output.vocabulary.bias]
    if "key.weight" in own:  # CopyNet
        scores = [float(torch.tanh(own["key.weight"] @ state) @ feature) for state in memory]
        return [math.exp(score) / (sum(map(math.exp, scores)) + sum(generated)) for score in scores]
    if "gate.weight" in own:  # a pointer-generator
        assert batch.targets is not None
        embedded = model.embed(model.shifted(batch.targets))[row, column]
        context = attention[:length] @ memory
        gate = own["gate.weight"][0] @ torch.cat([feature, context, embedded]) + own["gate.bias"][0]
        return [float(torch.sigmoid(-gate) * weight) for weight in attention[:length]]

    def convolved(values: Tensor, name: str) -> Tensor:  # a kernel of 3
        padded = torch.nn.functional.pad(values, (0, 0, 1, 1))
        places = [(own[f"{name}.weight"] * padded[place : place + 3].T).sum((1, 2)) for place in range(len(values))]
        return torch.stack(places) + own[f"{name}.bias"]

    known = convolved(memory, "of_memory") * (own["of_state.weight"] @ feature + own["of_state.bias"])
    found = convolved(known / known.norm(dim=1, keepdim=True), "kernels")
    exponents = [math.exp(score) for score in found[:, 0]]
    return [float(torch.sigmoid(found[:, 1].max())) * value / sum(exponents) for value in exponents]


@pytest.mark.parametrize(("recipe", "kind"), COMBINATIONS)
def test_captured_weights_are_those_of_copying(recipe: str, kind: str) -> None:
    model, batch = make(recipe, kind, JOINT, selective_read=False), examples(JOINT)
    plain = model.token_log_probs(batch)
    with capture(model) as maps:
        assert torch.equal(model.token_log_probs(batch), plain)
    copied = maps["output"]
    assert copied.shape == (2, 1, 4, 5)
    assert not copied[0, :, :, 4:].any()  # padding
    attention = [weights for name, weights in maps.items() if name.endswith((".attention", ".cross"))]
    for row, column, length in ((0, 1, 4), (1, 2, 5)):
        looked = attention[-1][row, 0, column] if attention else torch.zeros(0)
        expected = copied_by_hand(model, batch, row, column, looked)
        assert copied[row, 0, column, :length].tolist() == pytest.approx(expected)


@torch.no_grad()
@pytest.mark.parametrize(("recipe", "kind"), COMBINATIONS)
def test_captured_weights_and_the_vocabulary_are_the_distribution(recipe: str, kind: str) -> None:
    """Step by step as in the full pass; what a row lacks of 1 is the vocabulary's."""
    model, batch = make(recipe, kind, OPEN), examples(OPEN)
    assert isinstance(model.output, CopyOutput)
    assert batch.targets is not None
    with capture(model, where=lambda name: name == "output") as whole:
        seen = model.read(batch).features
    with capture(model, where=lambda name: name == "output") as maps:
        state = model.start(batch)
        for tokens in model.shifted(batch.targets).unbind(1):
            state = model.step(tokens, state).state
    torch.testing.assert_close(maps["output"], whole["output"])
    copied = whole["output"][:, 0]
    words = model.output.vocabulary.log_probs(seen.features).exp()
    expected = torch.nn.functional.pad((1 - copied.sum(-1, keepdim=True)) * words, (0, copied.size(-1)))
    expected.scatter_add_(-1, seen.ids, copied)
    torch.testing.assert_close(model.output.log_probs(seen).exp(), expected)


def test_captured_steps_of_several_hypotheses_have_a_row_each_as_attention_has() -> None:
    model, batch = make("luong", "copynet", OPEN), examples(OPEN)
    state = model.start(batch).expand(2)
    with capture(model) as maps:
        model.step(torch.tensor([5, 6, 7, 8]), state)
    assert maps["output"].shape == maps["decoder.attention"].shape == (2, 1, 2, 6)


def test_selective_read_takes_what_stands_where_the_token_was_copied_from() -> None:
    model, batch = make("luong", "copynet", JOINT), examples(JOINT)
    assert isinstance(model.output, CopyOutput)
    assert model.output.reader is not None
    state = model.start(batch)
    states = state.shared["copying.states"]
    scores = torch.randn(2, 1, 5).double()
    read = model.output.reader(torch.tensor([[5], [8]]), scores, state.shared)
    shares = scores[0, 0, [0, 2]].softmax(-1)
    torch.testing.assert_close(read[0, 0], shares[0] * states[0, 0] + shares[1] * states[0, 2])
    assert not read[1].any()  # the second sentence has no such word


def test_token_scores_have_the_gradients_of_the_logits() -> None:
    torch.manual_seed(0)
    output = Output(3, 5).double()
    features, targets = torch.randn(4, 3).double().requires_grad_(), torch.tensor([0, 4, 4, 2])
    logits = output.logits(features)
    expected = (logits.gather(1, targets[:, None])[:, 0], logits.logsumexp(-1), logits.mean(-1))
    found = output.token_scores(features, targets)
    weights = torch.randn(3, 4).double()
    sums = [(torch.stack([*scores]) * weights).sum() for scores in (found, expected)]
    gradients = [torch.autograd.grad(one, (features, output.weight, output.bias)) for one in sums]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"recipe": "seq2seq", "copying": {"kind": "pointer_generator"}}, "the recipe seq2seq has none"),
        (
            {"recipe": "luong", "attention": {"span": "local-p"}, "copying": {"kind": "pointer_generator"}},
            "weights that sum to 1",
        ),
        ({"recipe": "transformer", "copying": {"kind": "copynet"}}, "selective_read=false"),
        ({"recipe": "luong", "copying": {"kind": "pointer_generator", "head": 1}}, "only transformer"),
        (
            {"recipe": "luong", "copying": {"kind": "copynet", "unknown": True}},
            "copying.unknown is for models that copy",
        ),
        ({"recipe": "luong", "copying": {"practice": 0.1}}, "copying.practice is for models that copy words"),
    ],
)
def test_what_does_not_fit_together_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(SightlineError, match=message):
        build_config({"model": values})


def test_looking_up_tokens_and_int8_change_nothing_that_counts() -> None:
    model, batch = make("bahdanau", "pointer_generator", OPEN).float(), examples(OPEN)
    tokens = torch.tensor([BOS, 11])
    expected = model.step(tokens, model.start(batch)).log_probs
    model.tabulate(10**6)
    assert model.table is not None
    torch.testing.assert_close(model.step(tokens, model.start(batch)).log_probs, expected)
    model.output.quantise()
    with torch.no_grad():
        torch.testing.assert_close(
            model.step(tokens, model.start(batch)).log_probs.exp(), expected.exp(), atol=0.02, rtol=0
        )
    reading = make("luong", "copynet", OPEN)
    reading.tabulate(10**6)
    assert reading.table is None  # a step reads more than the token


def test_a_head_that_is_not_there_is_refused() -> None:
    with pytest.raises(SightlineError, match="1 layers of 2 heads"):
        make("transformer", "pointer_generator", JOINT, head=2)


def test_other_engines_say_that_they_cannot_copy() -> None:
    values = {"recipe": "transformer", "copying": {"kind": "pointer_generator"}}
    config = build_config({"model": values}).model
    assert ctranslate2.unsupported(config) == "a model that copies (pointer_generator)"
    assert marian.unsupported(config) == "a model that copies (model.copying.kind=pointer_generator)"
