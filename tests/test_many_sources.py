"""Several sources of one target: what is put together how, against equations by hand and against itself."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from sightline.align import is_cross_attention
from sightline.attention.capture import capture
from sightline.attention.joined import SourceWeights
from sightline.batch import Batch, Memory, Tokens, apart, pad
from sightline.config import build_config, merge
from sightline.decoders.joined import ChildSum, FlatStates
from sightline.errors import SightlineError
from sightline.losses import words_of
from sightline.many_sources import SeveralSources, present_sources
from sightline.models import build_model
from sightline.search import SearchOptions, beam_search
from sightline.text import Sizes
from sightline.training.checkpoints import load_weights, save_weights
from tests.conftest import SMALL, TRANSFORMER, VOCABULARY, random_batch
from tests.test_decoders import check_reordering, full_log_probs, stepped
from tests.twins import shake

LSTM: dict[str, Any] = {"encoder": {"width": 5}, "decoder": {"cell": "lstm"}}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "seq2seq": ("seq2seq", {"encoder": {"width": 10}}),
    "seq2seq child sum mean": ("seq2seq", {"sources": {"start": "child_sum"}, "decoder": {"context": "mean"}}),
    "bahdanau": ("bahdanau", {}),
    "bahdanau shared": ("bahdanau", {"sources": {"encoder": "shared"}}),
    "bahdanau concatenated": ("bahdanau", {"sources": {"context": "concatenated"}}),
    "bahdanau hierarchical": ("bahdanau", {"sources": {"context": "hierarchical"}, "attention": {"coverage": "sum"}}),
    "luong child sum": ("luong", {**LSTM, "sources": {"start": "child_sum"}}),
    "luong concatenated local-p": (
        "luong",
        {"sources": {"context": "concatenated"}, "attention": {"span": "local-p", "window": 2}},
    ),
    "luong concatenated at once": (
        "luong",
        {"sources": {"context": "concatenated"}, "decoder": {"input_feeding": False}},
    ),
    "luong hierarchical local-m": (
        "luong",
        {"sources": {"context": "hierarchical"}, "attention": {"span": "local-m", "window": 2, "markov_bias": 1}},
    ),
    "luong exact": ("luong", {"attention": {"choice": "exact"}, "decoder": {"input_feeding": False}}),
    "luong copying": ("luong", {"copying": {"kind": "pointer_generator"}, "sources": {"context": "hierarchical"}}),
    "transformer": ("transformer", {}),
    "transformer shared": ("transformer", {"sources": {"encoder": "shared"}}),
    "transformer copying": ("transformer", {"copying": {"kind": "pointer_generator"}}),
    "transformer concatenated": ("transformer", {"sources": {"context": "concatenated"}}),
    "transformer hierarchical": ("transformer", {"sources": {"context": "hierarchical"}}),
    "transformer post hierarchical": (
        "transformer",
        {"sources": {"context": "hierarchical"}, "norm_position": "post", "positions": "learned"},
    ),
    "transformer linear": (
        "transformer",
        {"sources": {"context": "concatenated"}, "decoder": {"cross_attention": "linear"}},
    ),
    "transformer reversible": ("transformer", {"sources": {"context": "hierarchical"}, "reversible": True}),
}
APART = [name for name, (recipe, _) in MODELS.items() if recipe != "seq2seq"]


def make(name: str, count: int = 2, joint: bool = True) -> SeveralSources:
    recipe, changes = MODELS[name]
    values = merge(SMALL, TRANSFORMER) if recipe == "transformer" else SMALL
    changes = merge({"tie": "none", "sources": {"count": count}}, changes)
    config = build_config(merge(values, {"model": changes}), recipe)
    sizes = Sizes(VOCABULARY, VOCABULARY, joint, others=(VOCABULARY,) * (count - 1))
    model = build_model(config.model, sizes).double().eval()
    assert isinstance(model, SeveralSources)
    shake(model)
    return model


def several(lengths: list[list[int]], targets: list[int] | None = None, seed: int = 0) -> Batch:
    """Random sources of these lengths, end symbols included, of one batch."""
    batches = [random_batch(one, targets, seed + number) for number, one in enumerate(lengths)]
    return Batch(tuple(one.sources[0] for one in batches), batches[0].targets, batches[0].indices)


def example() -> Batch:
    """The second sentence has no second source, the third no first."""
    return several([[5, 9, 1, 2], [6, 1, 4, 3]], [4, 7, 6, 3])


@pytest.mark.parametrize("name", MODELS)
def test_stepwise_equals_full_pass(name: str) -> None:
    model, batch = make(name), example()
    if hasattr(model.decoder, "alignment"):
        model.decoder.alignment = (1, None)
    log_probs, weights = stepped(model, batch)
    whole = full_log_probs(model, batch)
    assert whole.isfinite().all()
    torch.testing.assert_close(log_probs, whole)
    torch.testing.assert_close(stepped(model, batch, width=2)[0], whole.repeat_interleave(2, 0))
    with capture(model, where=is_cross_attention) as maps:
        model.loss(batch)
    if weights is not None and "copying" not in name:
        torch.testing.assert_close(weights, list(maps.values())[-1].mean(1))


@pytest.mark.parametrize("name", MODELS)
def test_padding_of_any_source_changes_nothing(name: str) -> None:
    model, batch = make(name), example()
    together = model.token_log_probs(batch)
    assert batch.targets is not None
    for row in range(batch.size):
        alone = batch.between(row, row + 1)
        assert [source.mask.size(1) for source in alone.sources] == [
            int(source.mask[row].sum()) for source in batch.sources
        ]
        torch.testing.assert_close(model.token_log_probs(alone)[0], together[row, : int(batch.targets.mask[row].sum())])


@pytest.mark.parametrize("name", MODELS)
def test_a_reordered_state_goes_on_with_the_other_hypothesis(name: str) -> None:
    model = make(name)
    state = check_reordering(model, several([[5, 3], [4, 1]]))
    direct = model.step(torch.tensor([8, 8, 9, 8]), state)
    kept = model.step(torch.tensor([9, 8]), state.keep(torch.tensor([1])))
    torch.testing.assert_close(kept.log_probs, direct.log_probs[2:])


@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_kept(name: str, tmp_path: Path) -> None:
    model, batch = make(name), example()
    save_weights(model, tmp_path / "model.safetensors")
    torch.manual_seed(5)
    again = make(name)
    assert not torch.allclose(full_log_probs(again, batch), full_log_probs(model, batch))
    load_weights(again, tmp_path / "model.safetensors")
    torch.testing.assert_close(full_log_probs(again, batch), full_log_probs(model, batch))


@pytest.mark.parametrize("name", MODELS)
def test_gradients_reach_every_weight(name: str) -> None:
    model, batch = make(name), example()
    model.loss(batch)["cross_entropy"][0].backward()
    for label, parameter in model.named_parameters():
        assert parameter.grad is not None, label
        assert parameter.grad.isfinite().all(), label


@pytest.mark.parametrize("name", MODELS)
def test_products_may_be_in_bfloat16(name: str) -> None:
    model, batch = make(name).float(), example()
    whole = float(model.loss(batch)["nll"][0])
    model.precision = torch.bfloat16
    losses = model.loss(batch)
    losses["cross_entropy"][0].backward()
    assert float(losses["nll"][0]) == pytest.approx(whole, rel=0.05)
    assert all(parameter.grad is None or parameter.grad.isfinite().all() for parameter in model.parameters())


@pytest.mark.parametrize("name", MODELS)
def test_a_missing_source_says_nothing(name: str) -> None:
    """Whatever its reader would make of it: no number changes, and it gets no weight."""
    model, batch = make(name), several([[5, 4], [1, 1]], [4, 6])
    before = full_log_probs(model, batch)
    with torch.no_grad():
        for parameter in model.readers[1].parameters():
            if all(parameter is not other for other in model.readers[0].parameters()):
                parameter.add_(1.0)
    assert torch.equal(full_log_probs(model, batch), before)
    with capture(model, where=is_cross_attention) as maps:
        model.loss(batch)
    for weights in maps.values():
        assert not weights[..., 5:].any()
        if "local-p" not in name:
            torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights.sum(-1)), rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_no_source_at_all_is_an_empty_first_one(name: str) -> None:
    batch = several([[1, 5], [1, 4]], [4, 3])
    assert present_sources(batch).tolist() == [[True, False], [True, True]]
    assert full_log_probs(make(name), batch).isfinite().all()


def swapped(values: dict[str, Tensor], config: Any) -> dict[str, Tensor]:
    """The weights of a model of two sources whose sources have changed places."""
    lists = r"(readers|parts|bridges|gates|sources\.keys|sources\.values)\.([01])\."
    columns = r"bridge\.layers\.\d+\.linear\.weight$"
    wide = r"decoder\.(readout\.linear|combine|cells\.cells\.0)\.weight(_extra)?$"
    found = {}
    for name, value in values.items():
        name = re.sub(lists, lambda match: f"{match[1]}.{1 - int(match[2])}.", name)
        if re.search(columns, name):
            value = torch.cat(value.chunk(2, 1)[::-1], 1)
        elif re.search(wide, name) and config.sources.context == "concatenated" and not name.endswith("token"):
            size = config.memory
            start = value.size(1) - 2 * size if "readout" in name else 0
            if "combine" in name or "readout" in name or "extra" in name:
                first, second, rest = (
                    value[:, start : start + size],
                    value[:, start + size : start + 2 * size],
                    value[:, start + 2 * size :],
                )
                value = torch.cat([value[:, :start], second, first, rest], 1)
        found[name] = value
    return found


@pytest.mark.parametrize("name", MODELS)
def test_swapping_sources_with_their_weights_changes_nothing(name: str) -> None:
    model, batch = make(name), example()
    other = make(name)
    recipe, changes = MODELS[name]

    class Settings:
        sources = build_config({"model": merge({"sources": {"count": 2}}, changes)}, recipe).model.sources
        memory = model.readers[0].encoder.width

    # In Luong's decoder what enters the cells is not the context.
    kept = {key: value for key, value in model.state_dict().items() if "weight_extra" in key and recipe == "luong"}
    weights = {**swapped(model.state_dict(), Settings), **kept}
    other.load_state_dict(weights)
    turned = Batch(batch.sources[::-1], batch.targets)
    torch.testing.assert_close(full_log_probs(other, turned), full_log_probs(model, batch))
    assert not torch.allclose(full_log_probs(model, turned), full_log_probs(model, batch))


@pytest.mark.parametrize("name", ["bahdanau hierarchical", "luong child sum", "transformer concatenated"])
def test_three_sources(name: str) -> None:
    model = make(name, count=3)
    batch = several([[5, 1, 3], [2, 4, 1], [1, 6, 3]], [4, 7, 6])
    torch.testing.assert_close(stepped(model, batch)[0], full_log_probs(model, batch))


@pytest.mark.parametrize("name", APART)
def test_a_beam_shows_weights_of_real_positions(name: str) -> None:
    model, batch = make(name), example()
    if hasattr(model.decoder, "alignment"):
        model.decoder.alignment = (1, None)
    found = beam_search(model, Batch(batch.sources), SearchOptions(beam=3))
    lengths = batch.source_mask.sum(1).tolist()
    for (best, *_), length in zip(found, lengths, strict=True):
        if best.weights is not None:
            assert best.weights.shape[1] == length
            assert best.weights.sum(1).min() > 0.2


def test_sources_with_vocabularies_of_their_own() -> None:
    config = build_config(merge(SMALL, {"model": {"sources": {"count": 2, "encoder": "shared"}}}), "bahdanau")
    model = build_model(config.model, Sizes(11, 9, False, others=(7,)))
    assert isinstance(model, SeveralSources)
    assert [reader.embedding.weight.size(0) for reader in model.readers] == [11, 7]
    assert model.readers[0].encoder is model.readers[1].encoder


def test_flat_states_by_hand() -> None:
    layer = FlatStates(2, 2)
    with torch.no_grad():
        layer.linear.weight.copy_(torch.tensor([[1.0, 0.0, 0.5, 0.0], [0.0, -1.0, 0.0, 2.0]]))
    hidden, cell = layer(
        [torch.tensor([[0.2, 0.4]]), torch.tensor([[0.6, 0.1]])],
        [torch.tensor([[3.0, 1.0]]), torch.tensor([[-1.0, 5.0]])],
    )
    torch.testing.assert_close(hidden, torch.tanh(torch.tensor([[0.2 + 0.3, -0.4 + 0.2]])))
    torch.testing.assert_close(cell, torch.tensor([[2.0, 6.0]]))


def test_child_sum_by_hand() -> None:
    """Width 1: matrices are numbers, and the equations can be worked out one by one."""
    layer = ChildSum(2, 1).double()
    numbers = {"i": (0.3, -0.2), "o": (0.7, 0.1), "u": (-0.5, 0.9), "f": (1.1, -0.6)}
    with torch.no_grad():
        for place, gate in enumerate("iouf"):
            for source in (0, 1):
                layer.gates[source].weight[place, 0] = numbers[gate][source]
    h1, h2, c1, c2 = (torch.tensor([[value]], dtype=torch.double) for value in (0.8, -0.4, 2.5, -1.5))
    hidden, cell = layer([h1, h2], [c1, c2])

    def gate(name: str) -> Tensor:
        return numbers[name][0] * h1 + numbers[name][1] * h2

    new = torch.sigmoid(gate("i")) * torch.tanh(gate("u"))
    expected = new + torch.sigmoid(1.1 * h1) * c1 + torch.sigmoid(-0.6 * h2) * c2
    torch.testing.assert_close(cell, expected)
    torch.testing.assert_close(hidden, torch.sigmoid(gate("o")) * torch.tanh(expected))


def test_child_sum_keeps_cells_in_range() -> None:
    """Cells that are added up grow with the number of sources; gates may forget them."""
    layer, flat = ChildSum(8, 4), FlatStates(8, 4)
    with torch.no_grad():
        for gate in layer.gates:
            gate.weight.zero_()
            gate.weight[12:] = -10.0
    hidden, cells = [torch.ones(1, 4)] * 8, [torch.ones(1, 4)] * 8
    assert layer(hidden, cells)[1].abs().max() < 1e-3
    assert flat(hidden, cells)[1].min() == 8


def test_hierarchical_weights_by_hand() -> None:
    module = SourceWeights(2, 3, 2).double()
    queries, contexts = torch.randn(1, 1, 3).double(), [torch.randn(1, 1, 2).double() for _ in range(2)]
    context, weights = module(queries, contexts, torch.tensor([[True, True]]))
    scores = torch.stack(
        [
            module.score(torch.tanh(module.query(queries) + key(one))).squeeze()
            for key, one in zip(module.keys, contexts, strict=True)
        ]
    )
    beta = scores.softmax(0)
    torch.testing.assert_close(weights[0, 0], beta)
    mixed = sum(share * value(one) for share, value, one in zip(beta, module.values, contexts, strict=True))
    torch.testing.assert_close(context, mixed)
    alone, weights = module(queries, contexts, torch.tensor([[False, True]]))
    assert weights[0, 0].tolist() == [0.0, 1.0]
    torch.testing.assert_close(alone, module.values[1](contexts[1]))


def test_a_flat_memory_is_one_softmax_over_all() -> None:
    model, batch = make("bahdanau"), example()
    memory = model.encode(batch)
    assert [part.states.size(1) for part in memory.parts] == [9, 6]
    torch.testing.assert_close(memory.states, torch.cat([part.states for part in memory.parts], 1))
    assert memory.mask.sum(1).tolist() == [11, 9, 4, 5]
    weights = stepped(model, batch)[1]
    assert weights is not None
    torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:2]).double())


def test_every_source_has_an_end_that_is_no_word() -> None:
    mask = torch.tensor([[True, True, False], [True, True, True]])
    one = Memory(torch.zeros(2, 3, 1), mask)
    both = Memory(torch.zeros(2, 6, 1), torch.cat([mask, mask], 1), parts=(one, one))
    expected = torch.tensor([[True, False, False], [True, True, False]])
    assert torch.equal(words_of(both), torch.cat([expected, expected], 1))


def test_ids_come_apart() -> None:
    tokens = pad([[5, 6, 3, 7, 3], [3, 8, 9, 3], [4, 3, 3], [3]], 0)
    first, second = apart(tokens, 2, 3, 0)
    assert first.ids.tolist() == [[5, 6, 3], [3, 0, 0], [4, 3, 0], [3, 0, 0]]
    assert second.ids.tolist() == [[7, 3, 0], [8, 9, 3], [3, 0, 0], [3, 0, 0]]
    assert first.mask.sum(1).tolist() == [3, 1, 2, 1]
    assert second.mask.sum(1).tolist() == [2, 3, 1, 1]
    assert apart(tokens, 1, 3, 0) == (tokens,)


def test_parts_of_a_batch_have_all_sources() -> None:
    batch = example()
    part = batch.between(2, 4)
    assert [source.ids.shape for source in part.sources] == [(2, 2), (2, 4)]
    assert part.source_mask.sum(1).tolist() == [5, 5]
    rows = batch.rows([3, 0])
    assert all(torch.equal(one.ids, two.ids[[3, 0]]) for one, two in zip(rows.sources, batch.sources, strict=True))


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("lm", {}, "a language model has no source"),
    ("seq2seq", {"model": {"decoder": {"context": "concatenation"}}}, "a place for each position"),
    ("seq2seq", {"model": {"sources": {"context": "hierarchical"}}}, "no such choice"),
    ("transformer", {"model": {"sources": {"start": "child_sum"}}}, "no such choice"),
    ("bahdanau", {"model": {"sources": {"start": "child_sum"}}}, "a gru has none"),
    ("luong", {"model": {"attention": {"span": "local-p"}}}, "model.attention.span = local-p"),
    ("luong", {"model": {"attention": {"coverage": "embedded"}}}, "choose sum, fertility or neural"),
    (
        "luong",
        {"model": {"encoder": {"kind": "hierarchical"}}, "text": {"sentence_marker": "|||"}},
        "reads one document",
    ),
    ("luong", {"model": {"attention": {"score": "location"}}}, "model.attention.score = location"),
    ("luong", {"model": {"attention": {"choice": "online_monotonic"}}}, "model.attention.choice"),
    (
        "luong",
        {"model": {"attention": {"choice": "sampled"}, "sources": {"context": "hierarchical"}}},
        "chooses one position",
    ),
    ("luong", {"model": {"copying": {"kind": "copy_head"}}}, "neighbours"),
    (
        "transformer",
        {"model": {"copying": {"kind": "pointer_generator"}, "sources": {"context": "hierarchical"}}},
        "sum to 1",
    ),
    ("luong", {"model": {"copying": {"kind": "copynet"}}, "text": {"joint": False}}, "text.joint = true"),
    ("luong", {"model": {"guided": {"weight": 0.5}}}, "one source only"),
    ("luong", {"data": {"alignments": "links"}}, "one source only"),
    ("luong", {"training": {"agreement": 0.5}}, "both directions"),
    ("luong", {"search": {"split_sentences": True}}, "takes a line for one text"),
    ("luong", {"data": {"source": ["a", "b", "c"]}}, "names 3 files"),
    ("luong", {"data": {"source": "a"}}, "names 1 file"),
]


@pytest.mark.parametrize(("recipe", "values", "told"), REFUSED)
def test_what_makes_no_sense_is_refused(recipe: str, values: dict[str, Any], told: str) -> None:
    with pytest.raises(SightlineError, match=re.escape(told)):
        build_config(merge({"model": {"sources": {"count": 2}}}, values), recipe)


def test_a_list_of_files_is_a_list_of_sources() -> None:
    config = build_config({"data": {"source": ["a", "b"], "valid_source": ["c", "d"]}}, "luong")
    assert config.model.source_count == 2
    with pytest.raises(SightlineError, match=r"data\.valid_source names 1 file"):
        build_config({"data": {"source": ["a", "b"], "valid_source": "c"}}, "luong")


def test_one_source_is_as_it_was() -> None:
    tokens = Tokens(torch.tensor([[4, 3]]), torch.tensor([[True, True]]))
    assert Batch((tokens,)).source_mask is tokens.mask
    assert build_config({}, "luong").model.source_count == 1
