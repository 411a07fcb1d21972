"""Both engines on real sentences with a vocabulary of real pieces: token by token the same, and in shards too."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from sightline.config import build_config
from sightline.data import bundled
from sightline.engines.ctranslate2 import CTranslate2Engine
from sightline.engines.pytorch import PyTorchEngine
from sightline.files import read_lines
from sightline.folder import Tokenizers, open_files, save_config, save_model, save_tokenizers
from sightline.models import build_model
from sightline.text import EOS, train_tokenizer
from tests.commands import Command, write_lines
from tests.engines import make_task

PIECES, COUNT = 2_000, 30


@pytest.fixture(scope="module")
def pairs() -> list[list[str]]:
    return [line.split("\t") for line in read_lines(bundled("test"))]


@pytest.fixture(scope="module")
def folder(pairs: list[list[str]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model of a usual shape with weights of chance that are sure enough to differ."""
    layers = {"layers": 3, "heads": 4, "feedforward": 256}
    values = {
        "text": {"tokenizer": "unigram", "vocabulary": PIECES},
        "model": {"tie": "none", "embedding": 128, "encoder": layers, "decoder": layers},
    }
    config = build_config(values, "transformer")
    tokenizer = train_tokenizer([text for pair in pairs for text in pair], config.text, PIECES)
    tokenizers = Tokenizers(tokenizer, tokenizer)
    torch.manual_seed(2)
    model = build_model(config.model, tokenizers.sizes)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.mul_(3.0 if parameter.dim() > 1 else 1.0).add_(0.2 * torch.randn_like(parameter))
            if name == "output.bias":
                parameter[:3] -= 30
                parameter[EOS] += 10
    path = tmp_path_factory.mktemp("real") / "model"
    path.mkdir()
    save_tokenizers(path, tokenizers)
    save_config(path, config)
    save_model(path, model)
    return path


@pytest.mark.parametrize("beam", [1, 5])
def test_both_engines_write_the_same(beam: int, folder: Path, pairs: list[list[str]]) -> None:
    files = open_files(folder)
    sources = [[*files.tokenizers.source.encode(source), EOS] for source, _ in pairs[:COUNT]]
    ours, theirs = PyTorchEngine(files, "cpu"), CTranslate2Engine(files)
    task = make_task(beam=beam, token_scores=True)
    expected, found = ours.search(sources, task), theirs.search(sources, task)
    # It would be no test if all came out empty, or all the same.
    assert len({tuple(one.tokens) for (one,) in expected}) > COUNT // 2
    assert [one.tokens for (one,) in found] == [one.tokens for (one,) in expected]
    assert [one.finished for (one,) in found] == [one.finished for (one,) in expected]
    # Weights of chance give large logits, whose rounding shows.
    assert [one.score for (one,) in found] == pytest.approx([one.score for (one,) in expected], abs=1e-3)


def test_shards_are_the_same_with_one_worker_and_with_two(
    folder: Path, pairs: list[list[str]], command: Command, tmp_path: Path
) -> None:
    source = write_lines(tmp_path / "in.txt", [source for source, _ in pairs[:40]])
    outputs = []
    for workers in (1, 2):
        output = tmp_path / f"out{workers}.jsonl"
        options = ("--workers", workers, "--shard-lines", 16, "--engine", "ctranslate2")
        done = command("translate", folder, source, "--output", output, *options)
        assert done.code == 0, done.err
        outputs.append(output.read_bytes())
    assert outputs[0] == outputs[1]
    assert outputs[0].count(b"\n") == 40
