"""Shared fixtures: one thread a worker, small models to build, trained ones to use, and the command line."""

import os
import signal
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from sightline.batch import Batch, pad
from sightline.cli import main
from sightline.config import build_config, merge
from sightline.models import EncoderDecoder, build_model
from sightline.text import Sizes
from sightline.training.run import train
from tests.commands import Command, Done, letters, write_tsv

SMALL: dict[str, Any] = {
    "model": {
        "embedding": 12,
        "dropout": 0.0,
        "encoder": {"width": 8, "layers": 2, "heads": 3, "feedforward": 20},
        "decoder": {"width": 10, "layers": 2, "heads": 3, "feedforward": 20},
    }
}
TRANSFORMER: dict[str, Any] = {"model": {"encoder": {"width": None}, "decoder": {"width": None}}}
VOCABULARY = 17


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Tokenised text of tests stays among the tests' files."""
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session", autouse=True)
def _interruptible() -> None:
    """Whoever starts the tests in the background may have had SIGINT ignored, and every process here inherits it."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)


def small_model(recipe: str, changes: dict[str, Any] | None = None, joint: bool = True) -> EncoderDecoder:
    """A tiny model of the recipe in float64 and eval mode, with `changes` to its `model` section."""
    values = merge(SMALL, TRANSFORMER) if recipe == "transformer" else SMALL
    values = merge(values, {"model": changes or {}})
    config = build_config(values, recipe)
    return build_model(config.model, Sizes(VOCABULARY, VOCABULARY, joint)).double().eval()


def random_batch(lengths: list[int], target_lengths: list[int] | None = None, seed: int = 0) -> Batch:
    """Random sentences of these lengths, each ended by the end symbol (3)."""
    generator = torch.Generator().manual_seed(seed)

    def rows(sizes: list[int]) -> list[list[int]]:
        return [[*torch.randint(4, VOCABULARY, (size - 1,), generator=generator).tolist(), 3] for size in sizes]

    targets = None if target_lengths is None else pad(rows(target_lengths), 0)
    return Batch((pad(rows(lengths), 0),), targets, tuple(range(len(lengths))))


@pytest.fixture(scope="session")
def toy_pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A TSV file of the toy task: letters, and the same letters large."""
    return write_tsv(tmp_path_factory.mktemp("toy") / "letters.tsv", letters(400))


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory, toy_pairs: Path) -> Any:
    """`trained(recipe)`: a model folder that knows the toy task well enough. Shared: whoever changes it, copies it."""

    @cache
    def folder(recipe: str) -> Path:
        transformer = recipe == "transformer"
        sizes = {"feedforward": 64, "heads": 2} if transformer else {"width": 32}
        halves = {"width": 16} if recipe in ("bahdanau", "luong") else {}
        values = {
            "text": {"tokenizer": "word"},
            "data": {"pairs": str(toy_pairs), "batch_tokens": 256},
            "model": {
                "embedding": 32,
                "dropout": 0.0,
                "encoder": {"layers": 1, **sizes, **halves},
                "decoder": {"layers": 1, **sizes},
            },
            "training": {
                "max_steps": {"transformer": 300, "seq2seq": 60}.get(recipe, 150),
                "learning_rate": 1e-2,
                "warmup": 10,
                "label_smoothing": 0.0,
                "validate_bleu": 20,
                "validate_every": 1000,
            },
        }
        output = tmp_path_factory.mktemp("models") / recipe
        torch.set_num_threads(1)
        train(build_config(values, recipe), output)
        return output

    return folder


@pytest.fixture
def command(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Command:
    """`command("translate", folder, stdin=b"...")`: runs the command line in this process, with its own streams."""

    def run(*arguments: object, stdin: bytes = b"") -> Done:
        given = tmp_path / "standard-input"
        given.write_bytes(stdin)
        capfd.readouterr()
        with given.open() as stream, monkeypatch.context() as patch:
            patch.setattr(sys, "argv", ["sightline", *map(str, arguments)])
            patch.setattr(sys, "stdin", stream)
            with pytest.raises(SystemExit) as ended:
                main()
        code = ended.value.code
        assert isinstance(code, int)
        return Done(code, *capfd.readouterr())

    return run
