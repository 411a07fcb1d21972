"""Heads that see only blocks of their input's features: what they see, what they learn, and that all blocks are all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import sightline
from sightline.attention import core
from sightline.attention.core import attend, attend_reference
from sightline.attention.masks import block_mask, feature_blocks, padding_mask
from sightline.attention.multihead import MultiHeadAttention
from sightline.config import build_config
from sightline.errors import SightlineError
from sightline.folder import weights_file
from sightline.interop import weights as tensors
from sightline.run_settings import assembled
from tests.commands import Command, letters, write_tsv
from tests.conftest import random_batch, small_model
from tests.twins import shake

B, T, S, D, H = 2, 4, 6, 12, 3
BLOCKS, SEEN = 4, [[0], [1, 2], [0, 2, 3]]  # blocks of three features
ALL = [list(range(BLOCKS))]


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def make() -> MultiHeadAttention:
    """With something else than zero wherever it may be; what is masked must not be heard."""
    module = MultiHeadAttention(D, H, sees=block_mask(D, SEEN, BLOCKS)).double().eval()
    shake(module)
    return module


def features(head: int) -> list[int]:
    """The features that a head sees."""
    return [feature for block in SEEN[head] for feature in range(3 * block, 3 * block + 3)]


# Masks.


@pytest.mark.parametrize(("width", "count"), [(1024, 4), (12, 1), (12, 12), (48, 3)])
def test_blocks_hold_every_feature_once(width: int, count: int) -> None:
    blocks = feature_blocks(width, count)
    assert len(blocks) == count
    assert [feature for block in blocks for feature in range(width)[block]] == list(range(width))


def test_a_mask_by_hand() -> None:
    expected = torch.tensor([[1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 1, 1], [1, 1, 1, 1]]).bool()
    assert torch.equal(block_mask(4, [[0], [1, 0]], 2), expected)


def test_blocks_must_divide_the_width() -> None:
    with pytest.raises(ValueError, match="width 10 is not a multiple of 4 blocks"):
        feature_blocks(10, 4)


# Heads.


@pytest.mark.parametrize("short", [0, core.SHORT])
@pytest.mark.parametrize("path", [attend, attend_reference])
@pytest.mark.parametrize("causal", [False, True])
def test_no_gradient_reaches_a_block_that_a_head_does_not_see(
    causal: bool, path: Any, short: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core, "SHORT", short)
    module, queries, memory = make(), random(B, T, D).requires_grad_(), random(B, S, D).requires_grad_()
    projected = (module.project_queries(queries), *module.project_memory(memory))
    mask = padding_mask(torch.tensor([[True] * S, [True] * 4 + [False] * 2]))
    for head in range(H):
        found = path(*(part[:, head : head + 1] for part in projected), mask, causal=causal)
        seen = torch.zeros(D, dtype=torch.bool)
        seen[features(head)] = True
        for gradient in torch.autograd.grad(found.square().sum(), (queries, memory), retain_graph=True):
            by_feature = gradient.abs().sum((0, 1))
            assert not by_feature[~seen].any()  # exactly zero
            assert by_feature[seen].min() > 1e-6


def test_a_head_is_attention_over_its_features_alone() -> None:
    """The same head with small matrices, which never had the other columns."""
    module, queries, memory = make(), random(B, T, D), random(B, S, D)
    d_k, contexts = D // H, []
    for head in range(H):
        columns, rows = features(head), slice(head * d_k, (head + 1) * d_k)
        parts = zip(module.weight.chunk(3), module.bias.chunk(3), (queries, memory, memory), strict=True)
        small = [(x[..., columns] @ weight[rows][:, columns].T + bias[rows])[:, None] for weight, bias, x in parts]
        contexts.append(attend_reference(*small)[:, 0])
    torch.testing.assert_close(module(queries, memory), module.output(torch.cat(contexts, -1)))


def test_projections_apart_equal_projections_together() -> None:
    module, states = make(), random(B, T, D)
    queries, keys, values = module.project_self(states)
    torch.testing.assert_close(module.project_queries(states), queries)
    torch.testing.assert_close(module.project_memory(states), (keys, values))


def test_all_blocks_are_plain_heads() -> None:
    torch.manual_seed(1)
    plain = MultiHeadAttention(D, H).double()
    torch.manual_seed(1)
    blocked = MultiHeadAttention(D, H, sees=block_mask(D, ALL * H, BLOCKS)).double()
    states = random(B, T, D)
    assert torch.equal(blocked(states), plain(states))
    gradients = [torch.autograd.grad(one(states).square().sum(), one.weight)[0] for one in (plain, blocked)]
    assert torch.equal(*gradients)


# Learning.


def test_nothing_ever_fills_what_is_masked() -> None:
    """Not even an optimizer that remembers and decays."""
    module = MultiHeadAttention(D, H, sees=block_mask(D, SEEN, BLOCKS)).double()
    hidden = ~block_mask(D, SEEN, BLOCKS).repeat(3, 1)
    assert not module.weight[hidden].any()
    optimizer = torch.optim.AdamW(module.parameters(), 0.1, weight_decay=0.1)
    for _ in range(5):
        optimizer.zero_grad()
        module(random(B, T, D)).square().sum().backward()
        assert module.weight.grad is not None
        assert not module.weight.grad[hidden].any()
        optimizer.step()
    assert not module.weight[hidden].any()
    assert module.weight[~hidden].abs().min() > 0


def test_what_stands_in_masked_weights_plays_no_part() -> None:
    module, states = make(), random(B, T, D)
    before = module(states)
    with torch.no_grad():
        module.weight[~module.sees] += 1e4
    assert torch.equal(module(states), before)


def loss_and_gradients(changes: dict[str, Any]) -> list[Tensor]:
    torch.manual_seed(3)
    model = small_model("transformer", changes)
    loss = model.loss(random_batch([5, 9, 2], [4, 7, 6]))["cross_entropy"][0]
    return [loss, *torch.autograd.grad(loss, list(model.parameters()))]


def test_a_model_whose_heads_see_all_blocks_is_the_plain_model() -> None:
    plain, blocked = (
        loss_and_gradients(changes) for changes in ({}, {"attention": {"blocks": BLOCKS, "head_blocks": ALL}})
    )
    assert all(torch.equal(one, other) for one, other in zip(plain, blocked, strict=True))


def test_every_attention_of_a_model_has_its_blocks() -> None:
    """Heads take the list in turns: here it is for two, and there are three."""
    model = small_model("transformer", {"attention": {"blocks": 2, "head_blocks": [[0], [1, 0]]}})
    found = [module for module in model.modules() if isinstance(module, MultiHeadAttention)]
    assert len(found) == 6
    for module in found:
        assert torch.equal(module.sees, block_mask(D, [[0], [0, 1], [0]], 2).repeat(3, 1))
    one_each = small_model("transformer", {"attention": {"blocks": 3}}).decoder.layers[0].cross
    assert torch.equal(one_each.sees[:D], block_mask(D, [[0], [1], [2]], 3))


def test_a_transformer_that_a_recurrent_decoder_reads_has_them_too() -> None:
    changes = {"encoder": {"kind": "transformer", "width": None}, "attention": {"blocks": 3}}
    model = small_model("bahdanau", changes)
    assert model.encoder.layers[0].self_attention.sees is not None


MISTAKES: list[tuple[str, dict[str, Any], str]] = [
    ("luong", {"blocks": 2}, "model.attention.blocks: only a transformer has heads, and the recipe luong with the"),
    ("seq2seq", {"head_blocks": [[0]]}, "model.attention.head_blocks: only a transformer has heads"),
    ("transformer", {"blocks": 4, "head_blocks": [[0], [4]]}, "head_blocks names block 4, but model.attention.blocks"),
    ("transformer", {"head_blocks": [[1]]}, "names block 1, but model.attention.blocks is 1, and they are numbered"),
    ("transformer", {"blocks": 4, "head_blocks": []}, "model.attention.head_blocks = []: expected 1 entry or more"),
    ("transformer", {"blocks": 4, "head_blocks": [[]]}, "head_blocks.0 = []: expected 1 entry or more"),
    ("transformer", {"blocks": 4, "head_blocks": [[-1]]}, "head_blocks.0.0 = -1: expected 0 or more"),
    ("transformer", {"blocks": 0}, "model.attention.blocks = 0: expected 1 or more"),
    ("transformer", {"blocks": 5}, "model.attention.blocks=5 does not divide the width 12"),
    ("transformer", {"blocks": 4}, "model.attention.blocks=4 is for 4 heads, and there are 3: choose more heads"),
    ("transformer", {"blocks": 2, "head_blocks": [[0]] * 4}, "head_blocks is for 4 heads, and there are 3"),
]


@pytest.mark.parametrize(("recipe", "attention", "message"), MISTAKES)
def test_mistakes_get_one_helpful_line(recipe: str, attention: dict[str, Any], message: str) -> None:
    with pytest.raises(SightlineError) as raised:
        small_model(recipe, {"attention": attention})
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_trained_through_the_command_line_and_run_by_both_engines(command: Command, tmp_path: Path) -> None:
    """What is saved has zeros for what a head does not see, so that any Transformer's engine can run it."""
    pairs, folder = write_tsv(tmp_path / "letters.tsv", letters(400)), tmp_path / "model"
    chosen = ["text.tokenizer=word", "data.batch_tokens=256", "model.embedding=32", "model.dropout=0"]
    chosen += [f"model.{part}.{size}" for part in ("encoder", "decoder") for size in ("layers=1", "feedforward=64")]
    chosen += ["model.encoder.heads=4", "model.decoder.heads=2", "model.attention.head_blocks=[[1], [0, 1]]"]
    chosen += ["model.attention.blocks=2", "training.learning_rate=0.01", "training.warmup=10"]
    chosen += ["training.label_smoothing=0", "training.weight_decay=0.01", "training.validate_bleu=0"]
    assignments = [word for setting in chosen for word in ("--set", setting)]
    done = command("train", "--pairs", pairs, "--output", folder, "--max-steps", 300, *assignments)
    assert done.code == 0, done.err
    saved = tensors.read(weights_file(folder))
    for part, module, heads in (("encoder", "self_attention", 4), ("decoder", "cross", 2)):
        seen = block_mask(32, [[1], [0, 1]] * (heads // 2), 2).repeat(3, 1).numpy()
        weight = saved[f"{part}.layers.0.{module}.weight"]
        assert not weight[~seen].any()
        assert weight[seen].all()
    lines = [source for source, _ in letters(20, seed=9)]
    ours, theirs = (sightline.load(folder, engine=engine).translate(lines) for engine in ("pytorch", "ctranslate2"))
    assert [one.text for one in ours] == [one.text for one in theirs]
    assert [one.score for one in ours] == pytest.approx([one.score for one in theirs], abs=1e-4)
    assert sum(one.text == line.upper() for one, line in zip(ours, lines, strict=True)) >= 18


def test_the_configuration_goes_there_and_back() -> None:
    attention = {"blocks": 4, "head_blocks": [[0, 1], [3]]}
    config = build_config({"model": {"attention": attention}}, "transformer")
    assert build_config(config.model_dump()) == config
    assert config.model.attention.head_blocks == [[0, 1], [3]]


def test_settings_that_need_each_other_come_in_any_order() -> None:
    given = ["model.attention.head_blocks=[[1]]", "model.attention.blocks=2", "model.encoder.kind=transformer"]
    for order in (given, given[::-1]):
        assert assembled(None, "bahdanau", {}, order, None).model.attention.blocks == 2
    with pytest.raises(SightlineError, match=r"^--set model.attention.blocks=2: .* only a transformer has heads"):
        assembled(None, "bahdanau", {}, ["training.seed=2", "model.attention.blocks=2"], None)


def test_what_is_blamed_is_what_is_wrong() -> None:
    """A setting that needs another one after it is no mistake, and is not told of beside one that is."""
    given = ["model.attention.choice=segments", "model.decoder.input_feeding=false", "model.attention.markov_bias=1"]
    for order in (given, given[::-1], [given[1], given[0], given[2]]):
        with pytest.raises(SightlineError, match=r"^--set .*leave model\.attention\.markov_bias out$"):
            assembled(None, "luong", {}, order, None)
    marked = ["model.copying.kind=copynet", "model.encoder.kind=hierarchical", "text.sentence_marker='|||'"]
    with pytest.raises(SightlineError, match=r"^--set text\.sentence_marker='\|\|\|': .*needs a state for each word"):
        assembled(None, "luong", {}, marked, None)
    with pytest.raises(SightlineError, match=r"^command line: "):
        assembled(None, "luong", {"model": {"encoder": {"layers": 0}}}, ["training.seed=2"], None)
