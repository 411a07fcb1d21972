"""From a configuration to a trained model folder: the whole way of one run."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from sightline import metrics, sizes
from sightline.batch import Batch
from sightline.config import RunConfig
from sightline.corpora import Mix, named_files
from sightline.data import EncodedPairs, Pair, batches, ordered_batches
from sightline.errors import SightlineError
from sightline.files import make_folder, write_text
from sightline.folder import (
    Card,
    Tokenizers,
    check_free,
    load_tokenizers,
    save_card,
    save_config,
    save_model,
    save_tokenizers,
)
from sightline.models import EncoderDecoder, build_model, most_tokens, parameter_count
from sightline.performance import threads, tune_allocator
from sightline.preparing import prepare
from sightline.search import SearchOptions, greedy_search
from sightline.training.averages import average_losses
from sightline.training.checkpoints import CHECKPOINTS, check_settings, lasting_settings, latest
from sightline.training.loop import Host, Result, Trainer, Validation

Say = Callable[[str], None]
DROPPED = "dropped.json"


@dataclass(frozen=True)
class Trained:
    """A run's result, and the configuration with every choice made."""

    result: Result
    config: RunConfig
    folder: Path


@dataclass(frozen=True)
class TrainingData:
    """Encoded pairs as the trainer wants them."""

    pairs: EncodedPairs
    batch_tokens: int
    seed: int
    mix: Mix | None = None

    def epoch(self, epoch: int) -> Sequence[NDArray[np.int64]]:
        """Batches of example numbers, the same for the same seed and epoch."""
        return batches(self.pairs, self.batch_tokens, self.seed, epoch, self.mix)

    def batch(self, indices: NDArray[np.int64]) -> Batch:
        """These examples."""
        return self.pairs.batch(indices)

    def where(self, index: int) -> str:
        """File and line of the example that `Batch.indices` calls `index`."""
        return self.pairs.where(index)


def train(
    config: RunConfig, output: Path, resume: bool = False, host: Host | None = None, say: Say = lambda line: None
) -> Trained:
    """Trains what `config` describes into the folder `output`; `say` is told, line by line, what was chosen.

    With `resume`, `config` is the folder's own, perhaps with other limits, and the run goes on from its last
    checkpoint.
    """
    checkpoint = _to_resume(output) if resume else None
    if checkpoint is None:
        check_free(output)
    _check_metric(config)
    longest = min(config.data.max_length, *most_tokens(config.model))
    loaded = load_tokenizers(output, config) if resume else None
    prepared = prepare(config, longest, loaded, config.training.validate_bleu, say, show=host is not None)
    # Not before: what was freed on the way to the data goes back to the system.
    tune_allocator()
    threads()
    make_folder(output)
    tokenizers, encoded, valid, account = prepared.tokenizers, prepared.train, prepared.valid, prepared.account
    if not resume:
        save_tokenizers(output, tokenizers)
        write_text(output / DROPPED, json.dumps(account.as_dict(), ensure_ascii=False, indent=1) + "\n")
    if account.dropped:
        say("\n".join([f"training on {account}", *account.lines()]))
    config = sizes.fill(config, sizes.Corpus(len(encoded), prepared.tokens_an_epoch))
    settings = {**_settings(config), "data": prepared.digest}
    if checkpoint is not None:
        check_settings(checkpoint, settings)
    torch.manual_seed(config.training.seed)
    model = _build(config, tokenizers)
    save_config(output, config)
    say(_summary(config, model))

    data = TrainingData(encoded, _given(config.data.batch_tokens), config.training.seed, prepared.mix)
    scorer = Scorer(config, tokenizers, valid, prepared.texts)
    about = [f"{len(encoded):,} training pairs, {len(valid):,} validation pairs", *_names(config)]

    def write_card(scores: Mapping[str, float], training: dict[str, str]) -> None:
        save_card(output, config, model, tokenizers, Card(about, scorer.describe(scores), training))

    def save_best(scores: dict[str, float]) -> None:
        save_model(output, model)
        write_card(scores, {})

    metric = config.training.metric
    validation = Validation(scorer, save_best, metric, higher_is_better=metric == "bleu")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    trainer = Trainer(model.to(device), data, validation, config.training, output, settings=settings, host=host)
    result = trainer.run(resume)
    if result.best is not None:
        length = f"{result.steps:,} updates in {result.seconds / 60:.1f} minutes ({result.epochs:.1f} epochs)"
        write_card(result.best, {"training": length, "best validation": f"update {result.best_step:,}"})
    return Trained(result, config, output)


def _to_resume(output: Path) -> Path:
    """The checkpoint to go on from."""
    found = latest(output / CHECKPOINTS)
    if found is None:
        raise SightlineError(f"{output}: no checkpoint to resume from; start without --resume")
    return found


def _check_metric(config: RunConfig) -> None:
    """What the first validation would stumble over, told before anything is trained."""
    training = config.training
    metrics.check_tokenizer(training.bleu_tokenize)
    if training.metric == "bleu" and not training.validate_bleu:
        raise SightlineError("training.metric = bleu needs training.validate_bleu: how many sentences to translate")


def _build(config: RunConfig, tokenizers: Tokenizers) -> EncoderDecoder:
    try:
        return build_model(config.model, tokenizers.sizes, config.training.label_smoothing)
    except RuntimeError:  # torch's, when it gets no memory
        raise SightlineError("the model does not fit in memory: choose smaller sizes in the model section") from None


class Scorer:
    """Validation: loss and perplexity over all validation pairs, BLEU over greedy translations of the first ones."""

    def __init__(self, config: RunConfig, tokenizers: Tokenizers, valid: EncodedPairs, texts: list[Pair]) -> None:
        self.config, self.tokenizers, self.valid, self.texts = config, tokenizers, valid, texts
        # The signature does not depend on what is scored, and a resumed run may have no validation of its own.
        self.signature = metrics.bleu(["a"], ["a"], config.training.bleu_tokenize).signature

    def __call__(self, model: nn.Module) -> Mapping[str, float]:
        assert isinstance(model, EncoderDecoder)
        budget = 2 * _given(self.config.data.batch_tokens)
        parts = ordered_batches(self.valid.lengths, budget)
        scores = average_losses(model, (self.valid.batch(part) for part in parts))
        # The smoothed loss cannot reach zero; what counts, and is compared, is the plain one.
        scores["loss"] = scores["nll"]
        scores = {name: scores[name] for name in ("loss", "perplexity")}
        if self.texts:
            tokenize = self.config.training.bleu_tokenize
            references = [pair.target for pair in self.texts]
            scores["bleu"] = metrics.bleu(self.translate(model), references, tokenize).value
        return scores

    def translate(self, model: EncoderDecoder) -> list[str]:
        """The validation texts, translated greedily."""
        count = len(self.texts)
        device = next(model.parameters()).device
        options = SearchOptions(beam=1, max_length=most_tokens(self.config.model)[1])
        found: dict[int, str] = {}
        for part in ordered_batches(self.valid.source.lengths[:count], self.config.search.batch_tokens):
            batch = Batch(self.valid.batch(part).sources).to(device)
            for index, hypothesis in zip(part.tolist(), greedy_search(model, batch, options), strict=True):
                found[index] = self.tokenizers.target.decode(hypothesis.tokens)
        return [found[index] for index in range(count)]

    def describe(self, scores: Mapping[str, float]) -> dict[str, str]:
        """The scores as a model card tells them."""
        told = {"validation perplexity": f"{scores['perplexity']:.2f}"}
        if "bleu" in scores:
            sentences = f"{len(self.texts):,} validation sentences, greedy, {self.signature}"
            told["validation BLEU"] = f"{scores['bleu']:.1f} ({sentences})"
        return told


def _summary(config: RunConfig, model: nn.Module) -> str:
    training = config.training
    limits = [f"{training.max_steps:,} updates" if training.max_steps else ""]
    limits += [f"{training.max_minutes:g} minutes" if training.max_minutes else ""]
    end = " or ".join(limit for limit in limits if limit)
    return (
        f"{config.model.recipe}: {parameter_count(model):,} parameters; {end}, "
        f"batches of {config.data.batch_tokens:,} tokens, highest learning rate {training.learning_rate:g}"
    )


def _names(config: RunConfig) -> list[str]:
    # A name that is not UTF-8 is no text to write.
    return [f"file {os.fsencode(path.name).decode(errors='replace')}" for path in named_files(config.data)]


def _settings(config: RunConfig) -> dict[str, Any]:
    """What must stay the same on resuming; of the files the content counts, not where they lie."""
    files = {"source", "target", "pairs", "valid_source", "valid_target", "valid_pairs", "corpora", "cache"}
    lasting = lasting_settings(config)
    weights = [corpus.weight for corpus in config.data.corpora]
    return {
        **{name: value for name, value in lasting.items() if name not in {f"data.{key}" for key in files}},
        "data.corpora.weight": weights or [1.0],
    }


def _given(value: int | None) -> int:
    assert value is not None, "sizes.fill chooses it"
    return value
