"""Fills in what a configuration leaves open, from the size of the data.

The rules are modest on purpose: a small corpus gets a small model that trains in minutes on an ordinary computer.
Each value that is given stays as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sightline.architecture import ModelConfig
from sightline.config import AlignmentConfig, RunConfig, TextConfig, merge
from sightline.heads import taught_head
from sightline.training.schedules import noam_peak


@dataclass(frozen=True)
class Corpus:
    """What the choices depend on."""

    pairs: int
    target_tokens: int
    processors: int = 1
    ranks: int = 1


# Tokens that are worth a worker of their own: with fewer, the products get small and slow.
LEAST_PART = 500
# (pairs up to, transformer width, layers, feed-forward, recurrent width, epochs)
LADDER = (
    (50_000, 128, 4, 512, 256, 30),
    (500_000, 256, 3, 1024, 512, 15),
    (10**12, 512, 6, 2048, 512, 5),
)
# A handful of pairs is one batch, and an epoch of it one update: epochs alone would end before anything is learnt.
LEAST_UPDATES = 1_000
RECURRENT_RATE = 3e-3
GUIDED_WEIGHT = 0.5
TRANSFORMER_RATE = {128: 3e-3, 256: 1.5e-3, 512: 7e-4}


def choose_vocabulary(config: TextConfig, words: int) -> int:
    """Vocabulary entries for a corpus of so many running words, both sides together."""
    if config.vocabulary is not None:
        return config.vocabulary
    if config.tokenizer in ("word", "char"):
        return 30_000
    # The number of different words grows about as the square root of the text (Heaps' law).
    wanted = 8 * words**0.5
    return int(min(32_000, max(500, round(wanted / 100) * 100)))


def choose_held_out(given: int | None, pairs: int) -> int:
    """How many pairs to keep for validation."""
    return given if given is not None else max(1, min(1_000, pairs // 20))


def fill(config: RunConfig, corpus: Corpus) -> RunConfig:
    """The configuration with every open value of data, model and training chosen."""
    _, width, layers, feedforward, recurrent, epochs = next(rung for rung in LADDER if corpus.pairs <= rung[0])
    values = config.model_dump()
    values["model"] = _fill_model(config.model, width, layers, feedforward, recurrent)
    values["data"]["batch_tokens"] = config.data.batch_tokens or (2048 if corpus.pairs < 200_000 else 4096)
    values["training"] = _fill_training(config, corpus, epochs, values)
    return _fill_taught(RunConfig.model_validate(values))


def _fill_taught(config: RunConfig) -> RunConfig:
    """The weight of guided attention, and the head that is taught, which is the one to read alignments from.

    An alignment head of one's own choice stays.
    """
    guided = config.model.guided
    linked = config.data.alignments is not None or config.data.align_with is not None
    if guided.weight is None and linked:
        guided = guided.model_copy(update={"weight": GUIDED_WEIGHT})
    alignment = config.alignment
    if guided.weight or config.training.agreement:
        own = alignment != AlignmentConfig()
        if config.model.recipe == "transformer":
            layer, head = taught_head(config.model)
            guided = guided.model_copy(update={"layer": layer})
            alignment = alignment if own else alignment.model_copy(update={"layer": layer, "head": head})
        if guided.weight and not own:
            alignment = alignment.model_copy(update={"reading": guided.reading})
    model = config.model.model_copy(update={"guided": guided})
    return config.model_copy(update={"model": model, "alignment": alignment})


def _fill_model(model: ModelConfig, width: int, layers: int, feedforward: int, recurrent: int) -> dict[str, Any]:
    """Open sizes of the model section."""
    transformer = model.has_transformer_decoder
    embedding = model.embedding or (width if transformer else 256)
    if model.recipe == "lm" and not transformer and model.tie != "none":
        # One table for both ends, so they are as wide as the state between them.
        embedding = model.embedding or model.decoder.width or recurrent
    heads = max(count for count in (8, 4, 2, 1) if embedding % count == 0 and (embedding // count >= 32 or count == 1))
    encoder: dict[str, Any] = {}
    if not model.has_source:
        pass
    elif model.encoder.kind == "transformer":
        encoder = {"layers": layers, "heads": heads, "feedforward": feedforward}
    elif model.encoder.kind == "convolution":
        encoder = {"layers": 4, "width": embedding if transformer else recurrent}
    elif model.encoder.kind == "hops":
        encoder = {"width": embedding}
    elif model.encoder.kind != "positions":
        directions = 1 + model.encoder.bidirectional
        # The memory is as wide as the decoder's queries, so that every score function fits.
        encoder = {"layers": 1, "width": (embedding if transformer else _queries(model, recurrent)) // directions}
    if transformer:
        decoder = {"layers": layers, "heads": heads, "feedforward": feedforward}
    elif model.has_source:
        decoder = {"layers": 1, "width": _queries(model, recurrent)}
    else:
        decoder = {"layers": 1, "width": recurrent if model.tie == "none" else embedding}
    chosen = {"embedding": embedding, "encoder": encoder, "decoder": decoder}
    given = model.model_dump(exclude_none=True)
    return merge(merge(model.model_dump(), chosen), given)


def _queries(model: ModelConfig, recurrent: int) -> int:
    """The width of a recurrent decoder: as given, or such that it fits a given encoder or a memory of embeddings."""
    if model.decoder.width is not None:
        return model.decoder.width
    if model.encoder.kind in ("transformer", "positions", "hops"):
        return model.embedding or 256
    if model.encoder.width is not None:
        directions = 1 + model.encoder.bidirectional if model.encoder.kind != "convolution" else 1
        return model.encoder.width * directions
    return recurrent


def _workers(corpus: Corpus, batch_tokens: int, compiled: bool) -> int:
    """Parts of a batch; compiled code uses all processors by itself."""
    return 1 if compiled else max(1, min(corpus.processors, batch_tokens // LEAST_PART))


def _fill_training(config: RunConfig, corpus: Corpus, epochs: int, values: dict[str, Any]) -> dict[str, Any]:
    """Open values of the training section."""
    training = config.training
    updates = max(1, corpus.target_tokens // (values["data"]["batch_tokens"] * training.accumulate * corpus.ranks))
    steps = training.max_steps
    if steps is None and training.max_minutes is None:
        steps = max(LEAST_UPDATES, updates * epochs)
    warmup = 400 if steps is None else max(1, min(1_000, steps // 10))
    if training.schedule == "noam":
        warmup = 4_000 if steps is None else max(1, min(4_000, steps // 4))
    width = values["model"]["embedding"]
    if training.schedule == "noam":
        rate = noam_peak(width, training.warmup or warmup)
    elif config.model.has_transformer_decoder:
        rate = min(3e-3, TRANSFORMER_RATE.get(width, 0.36 / width))
    else:
        rate = RECURRENT_RATE
    chosen = {
        "max_steps": steps,
        "learning_rate": rate,
        "warmup": warmup,
        "validate_every": max(50, min(1_000, updates)),
        "workers": _workers(corpus, values["data"]["batch_tokens"], training.compile),
    }
    given = training.model_dump(exclude_none=True)
    return merge(merge(training.model_dump(), chosen), given)
