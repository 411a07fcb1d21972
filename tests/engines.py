"""For tests of engines: Transformers of random weights, and whether both engines make the same of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sightline.config import AlignmentConfig, build_config, merge
from sightline.engines.base import Task
from sightline.engines.ctranslate2 import CTranslate2Engine
from sightline.engines.pytorch import PyTorchEngine
from sightline.folder import ModelFiles, Tokenizers, open_files, save_config, save_model, save_tokenizers
from sightline.hypothesis import Hypothesis, Request, SearchOptions
from sightline.models import build_model
from sightline.text import EOS, WordTokenizer

WORDS = [f"w{number}" for number in range(40)]
SIZES: dict[str, Any] = {
    "embedding": 16,
    "encoder": {"layers": 2, "heads": 2, "feedforward": 24},
    "decoder": {"layers": 2, "heads": 4, "feedforward": 24},
}
# Weights as they come make a model sure of nothing; larger ones make it choose, and end.
STRENGTH = 3.0


def make_folder(path: Path, model: dict[str, Any], joint: bool = True, **sections: Any) -> Path:
    """A Transformer of random weights with its tokenizers, in a folder."""
    values = merge({"text": {"tokenizer": "word", "joint": joint}, "model": SIZES, **sections}, {"model": model})
    config = build_config(values, "transformer")
    source = WordTokenizer(WORDS, "nfc", False)
    tokenizers = Tokenizers(source, source if joint else WordTokenizer(WORDS[:30], "nfc", False))
    torch.manual_seed(5)
    network = build_model(config.model, tokenizers.sizes)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            parameter.mul_(STRENGTH if parameter.dim() > 1 else 1).add_(0.2 * torch.randn_like(parameter))
            if name == "output.bias":
                parameter[:3] -= 30  # as training has it: what never comes is not expected
                parameter[EOS] += 6
    path.mkdir()
    save_tokenizers(path, tokenizers)
    save_config(path, config)
    save_model(path, network)
    return path


def sentences(files: ModelFiles, count: int = 24) -> list[list[int]]:
    generator = np.random.default_rng(3)
    size = files.tokenizers.source.size
    return [[*generator.integers(4, size, generator.integers(1, 9)).tolist(), EOS] for _ in range(count)]


def both(folder: Path, task: Task, sources: Sequence[list[int]] | None = None) -> None:
    """The engines agree: see `agree`."""
    files = open_files(folder)
    agree(PyTorchEngine(files, "cpu"), CTranslate2Engine(files), task, sentences(files) if sources is None else sources)


def agree(ours: PyTorchEngine, theirs: CTranslate2Engine, task: Task, given: Sequence[list[int]]) -> None:
    """In tokens, scores, whether the limit cut them, and the token log-probabilities."""
    done: list[int] = []
    assert theirs.refuses(task) is None
    expected, found = ours.search(given, task), theirs.search(given, task, done.append)
    assert sum(done) == len(given)
    for one, other in zip(expected, found, strict=True):
        same(one, other, task)


def same(expected: list[Hypothesis], found: list[Hypothesis], task: Task) -> None:
    """Of several that the limit cut, the best one must be the same; which others there are may differ."""
    assert [one.finished for one in found] == [one.finished for one in expected]
    for place, (one, other) in enumerate(zip(found, expected, strict=True)):
        if place and not one.finished:
            continue
        assert one.tokens == other.tokens
        if math.isnan(one.score):  # nobody asked, and it would cost a softmax
            assert task.options.width == 1
            assert not task.token_scores
            continue
        assert one.score == pytest.approx(other.score, abs=1e-4, rel=1e-4)
        assert one.log_prob == pytest.approx(other.log_prob, abs=1e-3)
        if task.token_scores:
            assert one.token_log_probs == pytest.approx(other.token_log_probs, abs=1e-3)


def make_task(
    align: AlignmentConfig | None = None,
    token_scores: bool = False,
    requests: Sequence[Request] = (),
    **options: Any,
) -> Task:
    return Task(SearchOptions(**options), align or AlignmentConfig(), tuple(requests), align is not None, token_scores)
