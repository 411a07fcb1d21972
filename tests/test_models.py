"""Whole models: sizes, tying, every combination of parts, parity with torch's Transformer, and learning by heart."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sightline import models, recipes
from sightline.architecture import AttentionConfig, EncoderConfig, ModelConfig
from sightline.batch import Batch, Tokens, pad
from sightline.config import build_config, merge
from sightline.errors import SightlineError
from sightline.models import EncoderDecoder, build_model, parameter_count
from sightline.recipes import WITH_SOURCE
from sightline.score_choices import SCORES
from sightline.search import SearchOptions, greedy_search
from sightline.text import Sizes
from tests.conftest import VOCABULARY, random_batch, small_model
from tests.twins import copy_decoder_layer, copy_encoder_layer, shake

RECIPES = WITH_SOURCE
ENCODERS = EncoderConfig.model_fields["kind"].annotation.__args__
SPANS = AttentionConfig.model_fields["span"].annotation.__args__


def test_recipes_and_their_defaults_have_the_same_names() -> None:
    assert list(models.RECIPES) == list(recipes.RECIPES)


# Parameters.

V, D, N, M = VOCABULARY, 12, 8, 10  # vocabulary, embedding, encoder's and decoder's width in `small_model`


def recurrent(gates: int, inputs: int, width: int) -> int:
    return gates * (width * (inputs + width) + 2 * width)


def linear(inputs: int, outputs: int) -> int:
    return inputs * outputs + outputs


@pytest.mark.parametrize(("activation", "matrices"), [("relu", 1), ("swiglu", 2)])
@pytest.mark.parametrize("position", ["pre", "post"])
def test_parameters_of_a_transformer(position: str, activation: str, matrices: int) -> None:
    """Tied three ways: one table, and a bias for the output."""
    attention = 4 * D**2 + 4 * D
    feedforward = linear(D, matrices * 20) + linear(20, D)
    norm = 2 * D
    encoder = 2 * (attention + feedforward + 2 * norm)
    decoder = 2 * (2 * attention + feedforward + 3 * norm)
    last = 2 * norm if position == "pre" else 0
    model = small_model("transformer", {"norm_position": position, "activation": activation})
    assert parameter_count(model) == V * D + V + encoder + decoder + last


def test_parameters_of_bahdanau() -> None:
    encoder = 2 * recurrent(3, D, N) + 2 * recurrent(3, 2 * N, N)
    cells = recurrent(3, D + 2 * N, M) + recurrent(3, M, M)
    attention = M * M + 2 * N * M + M  # W, U and v, no biases
    bridge, readout = linear(N, 2 * M), linear(M + D + 2 * N, 2 * D)
    expected = 2 * V * D + encoder + cells + attention + bridge + readout + linear(D, V)
    assert parameter_count(small_model("bahdanau")) == expected


def test_parameters_of_luong() -> None:
    encoder = 2 * recurrent(4, D, N) + 2 * recurrent(4, 2 * N, N)
    cells = recurrent(4, D + M, M) + recurrent(4, M, M)  # input feeding widens the first layer
    bridge, combine, bilinear = linear(2 * N, 4 * M), (2 * N + M) * M, M * 2 * N
    assert parameter_count(small_model("luong")) == (
        2 * V * D + encoder + cells + bridge + combine + bilinear + linear(M, V)
    )


def test_parameters_of_seq2seq() -> None:
    """With one width on both sides the states are handed over and the bridge has none."""
    cells = recurrent(4, D, M) + recurrent(4, M, M)
    assert parameter_count(small_model("seq2seq", {"encoder": {"width": M}})) == 2 * V * D + 2 * cells + linear(M, V)


def test_tying() -> None:
    everything = small_model("transformer")
    assert everything.source_embedding.weight is everything.target_embedding.weight is everything.output.weight
    output = small_model("transformer", {"tie": "output"})
    assert output.target_embedding.weight is output.output.weight
    assert output.source_embedding.weight is not output.output.weight
    none = small_model("transformer", {"tie": "none"})
    assert none.target_embedding.weight is not none.output.weight
    assert parameter_count(none) - parameter_count(output) == V * D
    assert parameter_count(output) - parameter_count(everything) == V * D
    # Still tied after what a trainer does to a model.
    moved = everything.float().to("cpu")
    assert moved.source_embedding.weight is moved.output.weight


def test_the_tied_matrix_is_scaled_on_its_way_in_only() -> None:
    model = small_model("transformer", {"positions": "none"})
    table = model.output.weight
    ids = torch.tensor([[4, 7]])
    torch.testing.assert_close(model.target_embedding(ids), math.sqrt(D) * table[ids])
    features = torch.randn(3, D, dtype=torch.float64)
    expected = (features @ table.T + model.output.bias).log_softmax(-1)
    torch.testing.assert_close(model.output.log_probs(features), expected)


def test_untied_padding_rows_stay_zero() -> None:
    model = small_model("bahdanau")
    model.loss(random_batch([5, 2], [4, 6]))["cross_entropy"][0].backward()
    for embedding in (model.source_embedding, model.target_embedding):
        assert not embedding.weight[model.pad].any()
        assert not embedding.weight.grad[model.pad].any()


# Every combination of parts.

MARKED = Sizes(V, V, True, marker=4)
MATCHED: dict[str, Any] = {
    "embedding": 8,
    "dropout": 0.1,
    "tie": "none",
    "encoder": {"width": 8, "layers": 1, "heads": 2, "feedforward": 8},
    "decoder": {"width": 8, "layers": 1, "heads": 2, "feedforward": 8},
}


def combination(recipe: str, kind: str, score: str, span: str, encoder_width: int = 8) -> ModelConfig:
    """Every width is 8 (4 for each direction), unless the encoder's is asked to be another."""
    both = kind in ("lstm", "gru", "rnn")
    width = None if kind in ("transformer", "hops") else encoder_width // 2 if both else encoder_width
    changes: dict[str, Any] = {
        "encoder": {"kind": kind, "width": width, "bidirectional": both},
        "attention": {"score": score, "span": span, "window": 2},
    }
    if recipe == "transformer":
        changes["decoder"] = {"width": None}
    return build_config({"model": merge(MATCHED, changes), "text": {"sentence_marker": "|||"}}, recipe).model


def train_and_decode(model: EncoderDecoder) -> None:
    """One step must leave finite gradients everywhere and a model that still decodes."""
    batch = random_batch([5, 3], [4, 6])
    batch.sources[0].ids[:, 1] = MARKED.marker  # as a document, each has two sentences
    total, count = model.train().loss(batch)["cross_entropy"]
    (total / count).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.any(), f"{name} learns nothing"
    torch.optim.SGD(model.parameters(), 0.1).step()
    found = greedy_search(model.eval(), batch, SearchOptions(max_ratio=0.0, max_extra=3))
    assert [math.isfinite(hypothesis.log_prob) for hypothesis in found] == [True, True]


@pytest.mark.parametrize("kind", ENCODERS)
@pytest.mark.parametrize("recipe", RECIPES)
def test_every_combination_learns_and_decodes_or_says_why_not(recipe: str, kind: str) -> None:
    for score in SCORES:
        for span in SPANS:
            if recipe in ("seq2seq", "transformer") and (score, span) != ("additive", "global"):
                with pytest.raises(
                    SightlineError, match=rf"the recipe {recipe} has no such choice, only bahdanau and luong"
                ):
                    combination(recipe, kind, score, span)
                continue
            config = combination(recipe, kind, score, span)
            if recipe == "seq2seq" and kind == "positions":
                with pytest.raises(SightlineError, match=r"model\.decoder\.context=last .* choose mean"):
                    build_model(config, MARKED)
                continue
            train_and_decode(build_model(config, MARKED, smoothing=0.1))


@pytest.mark.parametrize("context", ["last", "mean", "sum", "concatenation"])
@pytest.mark.parametrize("kind", [kind for kind in ENCODERS if kind != "positions"])
def test_every_fixed_vector_of_every_encoder(kind: str, context: str) -> None:
    changes = {"decoder": {"context": context, "max_source": 6}}
    config = combination("seq2seq", kind, "additive", "global").model_dump()
    train_and_decode(build_model(ModelConfig.model_validate(merge(config, changes)), MARKED))


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("recipe", ["bahdanau", "luong"])
def test_scores_that_need_one_width_say_so(recipe: str, score: str) -> None:
    config = combination(recipe, "gru", score, "global", encoder_width=12)
    if not SCORES[score].one_width:
        train_and_decode(build_model(config, MARKED))
        return
    with pytest.raises(SightlineError, match=rf"score={score} needs .* 8 .* 12 wide: set model\.decoder\.width=12"):
        build_model(config, MARKED)


MISTAKES: list[tuple[str, dict[str, Any], str]] = [
    ("transformer", {"decoder": {"heads": 5}}, "5 attention heads do not divide the width 12"),
    ("transformer", {"encoder": {"heads": 5}}, "5 attention heads do not divide the width 12"),
    ("transformer", {"decoder": {"width": 16}}, "model.decoder.width=16: in a transformer"),
    ("transformer", {"encoder": {"width": 16}}, "model.encoder.width=16: in a transformer"),
    ("transformer", {"encoder": {"kind": "lstm", "width": 8}}, "16 wide, the transformer decoder's 12"),
    ("bahdanau", {"encoder": {"kind": "convolution", "kernel": 4}}, "model.encoder.kernel=4: choose an odd"),
    ("luong", {"tie": "output"}, "set model.embedding=10 or model.tie=none"),
    ("bahdanau", {"tie": "all"}, "model.tie=all needs one vocabulary"),
    ("luong", {"attention": {"score": "dot"}}, "set model.decoder.width=16"),
    ("seq2seq", {"encoder": {"kind": "positions"}}, "choose mean, sum or concatenation"),
]


@pytest.mark.parametrize(("recipe", "changes", "message"), MISTAKES)
def test_mistakes_get_one_helpful_line(recipe: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SightlineError) as raised:
        small_model(recipe, changes, joint="vocabulary" not in message)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_an_open_size_is_told() -> None:
    with pytest.raises(SightlineError, match="leaves a size of the model open"):
        build_model(build_config({}, "transformer").model, Sizes(V, V, True))


# Parity with torch's Transformer.


def torch_twin(model: EncoderDecoder, pre: bool) -> nn.Transformer:
    """`nn.Transformer` of our weights; it always adds a last norm, which a post-norm stack does not have."""
    settings: dict[str, Any] = {"dropout": 0.0, "batch_first": True, "norm_first": pre}
    encoder_layer = nn.TransformerEncoderLayer(D, 3, 20, **settings)
    decoder_layer = nn.TransformerDecoderLayer(D, 3, 20, **settings)
    norms = [nn.LayerNorm(D) if pre else None for _ in range(2)]
    encoder = nn.TransformerEncoder(encoder_layer, 2, norms[0], enable_nested_tensor=False)
    decoder = nn.TransformerDecoder(decoder_layer, 2, norms[1])
    twin = nn.Transformer(D, 3, custom_encoder=encoder, custom_decoder=decoder, batch_first=True).double()
    for ours, theirs in zip(model.encoder.layers, twin.encoder.layers, strict=True):
        copy_encoder_layer(ours, theirs)
    for ours, theirs in zip(model.decoder.layers, twin.decoder.layers, strict=True):
        copy_decoder_layer(ours, theirs)
    if pre:
        twin.encoder.norm.load_state_dict(model.encoder.norm.state_dict())
        twin.decoder.norm.load_state_dict(model.decoder.norm.state_dict())
    return twin


@pytest.mark.parametrize("position", ["pre", "post"])
def test_the_transformer_is_torchs(position: str) -> None:
    """From token ids to the loss's gradient by the embedding table, over a padded batch."""
    model = small_model("transformer", {"norm_position": position})
    shake(model)
    twin = torch_twin(model, position == "pre")
    batch = random_batch([5, 9, 2], [4, 7, 6])
    source, targets = batch.sources[0], batch.targets
    assert isinstance(source, Tokens)
    assert targets is not None

    def embed(ids: Tensor) -> Tensor:
        places = torch.arange(ids.size(1), dtype=torch.float64)[:, None] / 10000 ** (torch.arange(0, D, 2).double() / D)
        table = torch.stack([places.sin(), places.cos()], -1).flatten(1).float().double()
        return F.embedding(ids, model.output.weight, padding_idx=model.pad) * math.sqrt(D) + table

    read = torch.cat([torch.full((3, 1), model.bos), targets.ids[:, :-1]], 1)
    features = twin(
        embed(source.ids),
        embed(read),
        tgt_mask=torch.ones(7, 7, dtype=torch.bool).triu(1),
        src_key_padding_mask=~source.mask,
        memory_key_padding_mask=~source.mask,
    )
    logits = features @ model.output.weight.T + model.output.bias
    expected = F.cross_entropy(logits.flatten(0, 1), targets.ids.flatten(), reduction="sum", ignore_index=model.pad)
    total, count = model.loss(batch)["cross_entropy"]
    assert count == 17
    torch.testing.assert_close(total, expected)
    gradients = [torch.autograd.grad(loss, model.output.weight)[0] for loss in (total, expected)]
    torch.testing.assert_close(gradients[0][1:], gradients[1][1:])  # ours keeps the tied padding row as it is
    assert not gradients[0][0].any()


# Losses and search.


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_loss_is_the_sum_of_the_steps(recipe: str) -> None:
    model = small_model(recipe)
    batch = random_batch([5, 9, 2], [4, 7, 6])
    assert batch.targets is not None
    state, total = model.start(batch), 0.0
    for t, tokens in enumerate(model.shifted(batch.targets).unbind(1)):
        step = model.step(tokens, state)
        state = step.state
        picked = step.log_probs.gather(1, batch.targets.ids[:, t : t + 1])[:, 0]
        total -= picked[batch.targets.mask[:, t]].sum().item()
    losses = model.loss(batch)
    assert losses["nll"][0].item() == pytest.approx(total, rel=1e-12)
    assert losses["cross_entropy"][0].item() == pytest.approx(total, rel=1e-12)
    assert -model.token_log_probs(batch).sum().item() == pytest.approx(total, rel=1e-12)


@pytest.mark.parametrize("recipe", RECIPES)
def test_training_reads_the_gold_tokens_shifted_by_one(recipe: str) -> None:
    model = small_model(recipe)
    batch = random_batch([3], [4])
    assert batch.targets is not None
    assert model.shifted(batch.targets).tolist() == [[model.bos, *batch.targets.ids[0, :-1].tolist()]]
    assert batch.targets.ids[0, -1] == model.eos


@pytest.mark.parametrize("recipe", RECIPES)
def test_source_padding_does_not_change_a_translation(recipe: str) -> None:
    model = small_model(recipe)
    shake(model)
    batch = random_batch([6, 4])
    source = batch.sources[0]
    assert isinstance(source, Tokens)
    longer = Tokens(F.pad(source.ids, (0, 5), value=model.pad), F.pad(source.mask, (0, 5), value=False))
    plain, padded = greedy_search(model, batch), greedy_search(model, Batch((longer,)))
    assert [one.tokens for one in plain] == [one.tokens for one in padded]
    assert [one.log_prob for one in plain] == pytest.approx([one.log_prob for one in padded])


def ten_pairs() -> Batch:
    """Ten pairs of random tokens, lengths 2 to 7 on both sides."""
    generator = torch.Generator().manual_seed(3)

    def row() -> list[int]:
        length = int(torch.randint(2, 8, (1,), generator=generator))
        return [*torch.randint(4, V, (length,), generator=generator).tolist(), 3]

    return Batch((pad([row() for _ in range(10)], 0),), pad([row() for _ in range(10)], 0))


@pytest.mark.parametrize("recipe", RECIPES)
def test_ten_pairs_are_learnt_by_heart(recipe: str) -> None:
    changes: dict[str, Any] = {"encoder": {"layers": 1}, "decoder": {"layers": 1}, "embedding": 24}
    if recipe != "transformer":
        changes = merge(changes, {"encoder": {"width": 24}, "decoder": {"width": 24}})
    model = small_model(recipe, changes).float().train()
    batch = ten_pairs()
    assert batch.targets is not None
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    loss = math.inf
    for _ in range(400):
        total, count = model.loss(batch)["cross_entropy"]
        loss = total.item() / count
        if loss < 0.005:
            break
        optimizer.zero_grad()
        (total / count).backward()
        optimizer.step()
    assert loss < 0.01
    found = greedy_search(model.eval(), batch)
    gold = [row[mask].tolist()[:-1] for row, mask in zip(batch.targets.ids, batch.targets.mask, strict=True)]
    assert [hypothesis.tokens for hypothesis in found] == gold
    assert all(hypothesis.finished for hypothesis in found)


@pytest.mark.parametrize("recipe", RECIPES)
def test_random_tokens_cannot_be_predicted(recipe: str) -> None:
    """Fresh uniform tokens leave ln V however long one trains; a model that sees the future would fall to 0."""
    symbols, length, last = 6, 8, []
    model = small_model(recipe, {"encoder": {"layers": 1}, "decoder": {"layers": 1}}).float().train()
    source = pad([[4, 3]] * 32, 0)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for step in range(150):
        ids = torch.randint(4, 4 + symbols, (32, length))
        batch = Batch((source,), Tokens(ids, torch.ones_like(ids, dtype=torch.bool)))
        total, count = model.loss(batch)["cross_entropy"]
        if step >= 100:
            last.append(total.item() / count)
        optimizer.zero_grad()
        (total / count).backward()
        optimizer.step()
    mean = sum(last) / len(last)
    assert 0.98 * math.log(symbols) <= mean <= 1.1 * math.log(symbols)
