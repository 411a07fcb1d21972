"""Parts drawn at random from the configuration's space and put together: each mixture learns, decodes and is kept."""

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from sightline.batch import Batch, Tokens
from sightline.choices import SUMMED
from sightline.config import RunConfig, build_config, dump_yaml, merge
from sightline.lexicon import Lexicon
from sightline.losses import source_words
from sightline.models import EncoderDecoder, build_model
from sightline.score_choices import SCORES
from sightline.text import UNK, Sizes
from sightline.training.checkpoints import load_weights, save_weights
from tests.conftest import VOCABULARY, random_batch
from tests.test_decoders import full_log_probs, stepped

COUNT = 40
WORDS = np.arange(4, VOCABULARY)
SIZES = Sizes(VOCABULARY, VOCABULARY, True, lexicon=Lexicon(WORDS, WORDS[::-1].copy(), np.ones(len(WORDS))), marker=4)


def drawn(seed: int) -> RunConfig:
    """A valid mixture of parts that fit together: widths are equal, so that any score goes with any encoder."""
    draw = Random(seed)
    recipe = draw.choice(["seq2seq", "bahdanau", "luong", "transformer"])
    kind = draw.choice(["lstm", "gru", "rnn", "convolution", "positions", "transformer"])
    recurrent = kind in ("lstm", "gru", "rnn")
    both = recurrent and draw.random() < 0.5
    encoder: dict[str, Any] = {"kind": kind, "layers": draw.choice([1, 2]), "heads": 2, "feedforward": 20}
    if kind not in ("positions", "transformer"):
        encoder["width"] = 6 if both else 12
    if recurrent:
        encoder |= {"bidirectional": both, "reverse": draw.random() < 0.3}
    model: dict[str, Any] = {
        "embedding": 12,
        "dropout": draw.choice([0.0, 0.2]),
        "attention_dropout": draw.choice([0.0, 0.2]),
        "positions": draw.choice(["sinusoidal", "learned"]),
        "tie": draw.choice(["none", "output", "all"]),
        "encoder": encoder,
        "decoder": {"layers": draw.choice([1, 2])},
    }
    model = merge(model, _transformer(draw) if recipe == "transformer" else _recurrent(draw, recipe, kind))
    model = merge(model, _output(draw, recipe, model.get("attention", {})))
    model = merge(model, _efficient(Random(1000 + seed), recipe, kind, model))
    model = merge(model, _left(Random(2000 + seed), recipe, model.get("attention", {})))
    if documents := _documents(Random(3000 + seed), recipe, model):
        model = merge(model, documents)
    else:
        model = merge(model, _sources(Random(4000 + seed), recipe, model))
    shown = (recipe != "transformer" or not model.get("reversible")) and "sources" not in model
    if recipe != "seq2seq" and shown and draw.random() < 0.5:
        losses = ["cross_entropy", "squared_error", "product"]
        reading = draw.choice(["predicts", "consumes"])
        model["guided"] = {"weight": 0.5, "loss": draw.choice(losses), "reading": reading}
    text = {"sentence_marker": "|||"}
    if "copying" in model and (more := Random(5000 + seed)).random() < 0.7:
        text["tokenizer"] = "word"
        model = merge(model, {"copying": {"practice": more.choice([0.0, 0.5]), "unknown": more.random() < 0.5}})
    return build_config({"model": model, "text": text}, recipe)


def linked(batch: Batch) -> Batch:
    """With some links between the words of each pair."""
    assert batch.targets is not None
    targets, sources = (source_words(tokens.mask) for tokens in (batch.targets, batch.sources[0]))
    both = targets[:, :, None] & sources[:, None]
    return Batch(batch.sources, batch.targets, batch.indices, both & (torch.rand(both.shape) < 0.3))


def _left(draw: Random, recipe: str, attention: dict[str, Any]) -> dict[str, Any]:
    """Coverage by vectors of words, in the place of another kind."""
    if recipe not in ("bahdanau", "luong") or attention["choice"] in SUMMED or draw.random() < 0.7:
        return {}
    chosen = {"coverage": "embedded", "coverage_update": draw.choice(["gru", "subtract"]), "coverage_width": 3}
    return {"attention": chosen, "penalties": {"coverage_left": draw.choice([0.0, 0.1])}}


def _documents(draw: Random, recipe: str, model: dict[str, Any]) -> dict[str, Any]:
    """An encoder of documents, in the place of another, where the other parts leave room for one."""
    attention = model.get("attention", {})
    if draw.random() < 0.6 or attention.get("choice") in SUMMED:
        return {}
    about_words = "copying" in model or attention.get("coverage") == "embedded"
    about_words = about_words or bool(model.get("penalties", {}).get("fertility"))
    kind = draw.choice(["hierarchical", "hops"])
    encoder: dict[str, Any] = {"kind": kind, "width": None, "attention": "full"}
    soft = attention.get("choice") == "soft" and attention.get("span") == "global"
    if kind == "hops":
        return {} if about_words else {"encoder": encoder, "documents": {"hops": draw.choice([1, 2])}}
    both = draw.random() < 0.5
    encoder |= {"width": 6 if both else 12, "bidirectional": both}
    words = recipe in ("bahdanau", "luong") and soft and (about_words or draw.random() < 0.5)
    if about_words and not words:
        return {}
    chosen = {"pooling": draw.choice(["attention", "mean"]), "memory": "words" if words else "sentences"}
    reversible = {} if recipe == "transformer" else {"reversible": False, "feedforward_chunk": None}
    return {"encoder": encoder, "documents": chosen, **reversible}


def _transformer(draw: Random) -> dict[str, Any]:
    return {
        "norm": draw.choice(["layer", "rms"]),
        "norm_position": draw.choice(["pre", "post"]),
        "activation": draw.choice(["relu", "gelu", "swiglu"]),
        "attention": {"blocks": draw.choice([1, 2])},
        "decoder": {"heads": 2, "feedforward": 20},
    }


def _efficient(draw: Random, recipe: str, kind: str, model: dict[str, Any]) -> dict[str, Any]:
    """Parts for long sequences; chunks hold the whole text, where steps and the full pass see the same."""
    # An output layer that looks through a head needs its weights.
    looking = "lexicon" in model or model.get("copying", {}).get("kind") == "pointer_generator"
    chosen: dict[str, Any] = {
        "lsh": {"rounds": draw.choice([1, 2]), "chunk": 16, "buckets": draw.choice([1, 4])},
        "linear": {"features": draw.choice(["elu", "relu"]), "feature_count": 5},
    }
    attention = [draw.choice(["full", "full", "lsh", "linear"]) for _ in range(2)]
    if kind == "transformer":
        chosen["encoder"] = {"attention": attention[0]}
    if recipe == "transformer":
        chosen["decoder"] = {"attention": attention[1], "cross_attention": draw.choice(["full", "linear"])}
        if looking:
            chosen["decoder"]["cross_attention"] = "full"
    if "transformer" in (recipe, kind):
        pre = model.get("norm_position", "pre") == "pre"
        chosen["reversible"] = pre and draw.random() < 0.5 and not (looking and recipe == "transformer")
        chosen["feedforward_chunk"] = draw.choice([None, 3])
    return chosen


def _sources(draw: Random, recipe: str, model: dict[str, Any]) -> dict[str, Any]:
    """Two sources, without what makes no sense with them, or nothing."""
    choice, embedded = (model.get("attention", {}).get(name) for name in ("choice", "coverage"))
    choice = choice or "soft"
    if draw.random() < 0.5 or choice not in ("soft", "sampled", "exact") or embedded == "embedded":
        return {}
    context = (
        "flat" if recipe == "seq2seq" or choice != "soft" else draw.choice(["flat", "concatenated", "hierarchical"])
    )
    copying = model.get("copying", {}).get("kind")
    looking = "lexicon" in model or copying == "pointer_generator"
    if looking and (context == "concatenated" or recipe == "transformer"):
        context = "flat"
    sources = {"count": 2, "context": context, "encoder": draw.choice(["separate", "shared"])}
    changed: dict[str, Any] = {"sources": sources}
    if recipe != "transformer" and model["decoder"]["cell"] == "lstm":
        sources["start"] = draw.choice(["flat", "child_sum"])
    if copying == "copy_head":
        changed["copying"] = {"kind": "copynet", "selective_read": False}
    if recipe == "seq2seq" and model["decoder"]["context"] == "concatenation":
        changed["decoder"] = {"context": "mean"}
    if recipe in ("bahdanau", "luong") and context == "flat":
        attention = {"span": "global", "position_bias": False, "markov_bias": None, "fertility_bias": None}
        placed = SCORES[model["attention"]["score"]].placed
        changed["attention"] = attention | ({"score": "additive"} if placed else {})
    return changed


def _recurrent(draw: Random, recipe: str, kind: str) -> dict[str, Any]:
    decoder: dict[str, Any] = {"width": 12, "cell": draw.choice(["lstm", "gru", "rnn"])}
    if recipe == "seq2seq":
        contexts = ["mean", "sum", "concatenation"] + (["last"] if kind != "positions" else [])
        return {"decoder": {**decoder, "context": draw.choice(contexts), "max_source": 9}}
    if recipe == "bahdanau":
        decoder["readout_state"] = draw.choice(["previous", "updated"])
    else:
        decoder["input_feeding"] = draw.random() < 0.5
    attention = {
        # One number, however many there are: one score more must not change the other draws.
        "score": [*SCORES][int(draw.random() * len(SCORES))],
        "span": draw.choice(["global", "global", "local-m", "local-p"]),
        "window": 2,
        "position_bias": draw.random() < 0.3,
        "markov_bias": draw.choice([None, None, 1]),
        "fertility_bias": draw.choice([None, None, 0, 2]),
        "coverage": draw.choice(["none", "none", "sum", "fertility", "neural"]),
    }
    penalties = {
        "repeated_looks": draw.choice([0.0, 1.0]),
        "one_look_each": draw.choice([0.0, 0.1]),
        "fertility": draw.choice([0.0, 0.1]),
    }
    return _chosen(draw, recipe, {"decoder": decoder, "attention": attention, "penalties": penalties})


def _chosen(draw: Random, recipe: str, model: dict[str, Any]) -> dict[str, Any]:
    """The same with a choice of positions, and without what makes no sense with it."""
    choices = ["soft", "soft", "sampled", "online_monotonic", *(SUMMED if recipe == "luong" else ())]
    choice = draw.choice(choices)
    attention: dict[str, Any] = {"choice": choice, "max_jump": 2}
    if choice != "soft":
        attention["span"] = "global"
    if choice in SUMMED:
        attention |= {"markov_bias": None, "fertility_bias": None, "coverage": "none"}
        model = merge(model, {"decoder": {"input_feeding": False}})
    return merge(model, {"attention": attention, "penalties": {"certainty": draw.choice([0.0, 0.1])}})


def _output(draw: Random, recipe: str, attention: dict[str, Any]) -> dict[str, Any]:
    """An output layer alone, or one that copies, or one that looks words up."""
    if attention.get("choice") in SUMMED:
        return {}
    whole = attention.get("span") != "local-p" and attention.get("choice") != "online_monotonic"
    choices: list[dict[str, Any]] = [
        {},
        {},
        {"copying": {"kind": "copynet", "selective_read": recipe != "transformer" and draw.random() < 0.5}},
        {"copying": {"kind": "copy_head", "channels": 4}},
    ]
    if recipe != "seq2seq":
        choices += [{"lexicon": {"mode": mode}} for mode in ("bias", "linear")]
        choices += [{"copying": {"kind": "pointer_generator"}}] * whole
    return draw.choice(choices)


def is_open(config: RunConfig) -> bool:
    """Whether sentences have words of their own."""
    return config.model.copies and config.text.tokenizer == "word"


def built(config: RunConfig) -> EncoderDecoder:
    sizes = replace(SIZES, others=(VOCABULARY,) * (config.model.source_count - 1))
    if is_open(config):
        sizes = replace(sizes, open_words=True, words=tuple(range(5, VOCABULARY)))
    return build_model(config.model, sizes, 0.1).double()


def mixed_batch(config: RunConfig, seed: int) -> Batch:
    """Sentences with links, or with a second source, which one of them lacks; they may have words of their own."""
    batch = random_batch([5, 9, 2], [4, 7, 6], seed)
    if config.model.source_count > 1:
        batch = replace(batch, sources=(*batch.sources, *random_batch([3, 1, 6], seed=seed + 1).sources))
    else:
        batch = linked(batch)
    return with_open_words(batch) if is_open(config) else batch


def with_open_words(batch: Batch) -> Batch:
    """The first word of each source is one that no vocabulary has; targets begin with it, and go on with `<unk>`."""
    (source, *others), targets = batch.sources, batch.targets
    assert isinstance(source, Tokens)
    assert targets is not None
    ids, wanted = source.ids.clone(), targets.ids.clone()
    ids[ids == ids[:, :1]] = UNK + VOCABULARY
    wanted[:, 0], wanted[:, 1] = VOCABULARY, UNK
    # The second shares a word with its source that may be hidden.
    wanted[1, 2] = ids[1, 1] = 7
    return replace(batch, sources=(replace(source, ids=ids), *others), targets=replace(targets, ids=wanted))


@pytest.mark.parametrize("seed", range(COUNT))
def test_a_mixture_learns_decodes_and_is_kept(seed: int, tmp_path: Path) -> None:
    config = drawn(seed)
    torch.manual_seed(seed)
    model = built(config)
    batch = mixed_batch(config, seed)

    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for _ in range(3):
        losses = model.loss(batch)
        total = sum((weight * losses[name][0] / losses[name][1] for name, weight in model.loss_weights.items()))
        assert isinstance(total, torch.Tensor)
        optimizer.zero_grad()
        total.backward()
        assert all(p.grad is None or bool(p.grad.isfinite().all()) for p in model.parameters())
        optimizer.step()

    model.eval()
    whole = full_log_probs(model, batch)
    assert whole[..., :VOCABULARY].isfinite().all()
    if not model.output.writes_unknown:
        whole[..., UNK] = -torch.inf
    torch.testing.assert_close(stepped(model, batch)[0], whole)
    torch.testing.assert_close(stepped(model, batch, width=2)[0], whole.repeat_interleave(2, 0))

    save_weights(model, tmp_path / "model.safetensors")
    again = built(build_config(yaml.safe_load(dump_yaml(config))))
    load_weights(again, tmp_path / "model.safetensors")
    torch.testing.assert_close(stepped(again.eval(), batch)[0], whole, rtol=1e-5, atol=1e-5)


def test_the_draws_reach_every_part() -> None:
    """A choice that no draw makes would be tested by nobody."""
    configs = [drawn(seed).model for seed in range(COUNT)]
    for path, least in [
        ("recipe", 4),
        ("tie", 3),
        ("positions", 2),
        ("encoder.kind", 8),
        ("documents.memory", 2),
        ("documents.pooling", 2),
        ("documents.hops", 2),
        ("attention.coverage_update", 2),
        ("penalties.coverage_left", 2),
        ("decoder.cell", 3),
        ("attention.score", 6),
        ("attention.choice", 7),
        ("attention.span", 3),
        ("attention.coverage", 5),
        ("attention.markov_bias", 2),
        ("attention.fertility_bias", 3),
        ("attention.position_bias", 2),
        ("attention.blocks", 2),
        ("penalties.repeated_looks", 2),
        ("guided.loss", 3),
        ("guided.reading", 2),
        ("norm_position", 2),
        ("copying.kind", 4),
        ("copying.selective_read", 2),
        ("copying.practice", 3),
        ("copying.unknown", 2),
        ("lexicon.mode", 3),
        ("encoder.attention", 3),
        ("decoder.attention", 3),
        ("decoder.cross_attention", 2),
        ("reversible", 2),
        ("sources.count", 2),
        ("sources.encoder", 2),
        ("sources.start", 2),
        ("sources.context", 3),
    ]:
        found = set()
        for value in configs:
            part: Any = value
            for name in path.split("."):
                part = getattr(part, name)
            found.add(part)
        assert len(found) >= least, path
