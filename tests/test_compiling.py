"""Compiled layers and rougher products train the same, within what they promise; an estimate tells what to expect."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from sightline.attention.capture import capture
from sightline.config import build_config
from sightline.errors import SightlineError
from sightline.training import checkpoints, directions, run
from sightline.training.checkpoint_names import CHECKPOINTS, latest
from sightline.training.compiling import check_compiler, compile_layers
from sightline.training.estimate import reckoned
from sightline.training.material import check_training
from sightline.training.run import slow_precision
from tests.commands import RECIPES, Command, letters, settings, write_lines, write_tsv
from tests.conftest import random_batch, small_model

BATCHES = [random_batch([5, 3, 4], [4, 6, 2], seed=1), random_batch([7, 2, 3, 3], [5, 5, 1, 4], seed=2)]


def no_compiler() -> bool:
    try:
        check_compiler("cpu")
    except SightlineError:
        return True
    return False


def gradients(model: torch.nn.Module, number: int) -> tuple[torch.Tensor, ...]:
    loss = model.loss(BATCHES[number])["cross_entropy"]
    return (loss[0], *torch.autograd.grad(loss[0] / loss[1], list(model.parameters())))


@pytest.mark.parametrize("recipe", RECIPES)
def test_bfloat16_products_are_near(recipe: str) -> None:
    """Loss within a percent, gradients within five of their length: bfloat16 has eight bits of precision."""
    model = small_model(recipe).float()
    exact = gradients(model, 0)
    model.precision = torch.bfloat16
    rough = gradients(model, 0)
    assert all(value.dtype == torch.float32 for value in rough)
    assert not torch.equal(rough[0], exact[0])
    torch.testing.assert_close(rough[0], exact[0], rtol=0.01, atol=0)
    far = sum(float(((one - other) ** 2).sum()) for one, other in zip(rough[1:], exact[1:], strict=True))
    whole = sum(float((value**2).sum()) for value in exact[1:])
    assert far < 0.05**2 * whole


@pytest.mark.parametrize(("known", "told"), [({"avx2": True}, 1), ({"avx2": True, "amx_bf16": True}, 0), ({}, 0)])
def test_bfloat16_without_hardware_for_it_is_told(
    known: dict[str, bool], told: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not where the processor has it, nor where torch does not know."""
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: known, raising=False)
    config = build_config({"training": {"precision": "bfloat16"}}, "transformer")
    lines = slow_precision(config, torch.device("cpu"))
    assert ["slower than in float32" in line for line in lines] == [True] * told
    assert slow_precision(build_config({}, "transformer"), torch.device("cpu")) == []


@pytest.fixture
def compiler() -> Iterator[None]:
    """torch's compiler, in one process, as others would have to import torch first; and without vectors, which take
    longer to try out and to compile than they save here."""
    if no_compiler():
        pytest.skip("there is no C++ compiler")
    with warnings.catch_warnings(action="ignore"):  # of torch about itself
        from torch._inductor import config
    torch.compiler.reset()  # as in a process of its own
    with config.patch({"compile_threads": 1, "cpp.simdlen": 1, "cpp.vec_isa_ok": True}):
        yield


@pytest.mark.usefixtures("compiler")
@pytest.mark.filterwarnings("default")
def test_compiled_layers_give_the_same() -> None:
    """In two shapes, values and gradients to float32's tolerance; looked at, the model runs uncompiled.

    A layer is compiled as a whole, and once for all shapes. C++, whose compiler takes seconds for each loop, is made of
    the encoder's; the decoder's is traced, and the next test makes C++ of a decoder's.
    """
    from torch._dynamo.utils import counters

    counters.clear()
    model = small_model("transformer", {"encoder": {"layers": 1}, "decoder": {"layers": 1}}).float().train()
    expected = [gradients(model, number) for number in (0, 1)]
    with capture(model) as plain:
        model.loss(BATCHES[0])
    compile_layers(model)
    (layer,) = model.decoder.layers
    layer.compile(dynamic=True, backend="eager")
    for number in (0, 1):
        torch.testing.assert_close(gradients(model, number), expected[number], rtol=1e-4, atol=1e-5)
    assert (counters["stats"]["unique_graphs"], dict(counters["graph_break"])) == (2, {})
    with capture(model) as maps:
        model.loss(BATCHES[0])
    assert list(maps) == list(plain)
    torch.testing.assert_close(dict(maps), dict(plain))


def weights(run: Path) -> Path:
    found = latest(run / CHECKPOINTS)
    assert found is not None
    return found / "model.safetensors"


@pytest.mark.usefixtures("compiler")
@pytest.mark.filterwarnings("default")
def test_a_compiled_run_goes_on_where_it_was(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With dropout, whose random numbers compiled layers draw from torch's generator. Its last checkpoint is lost.

    A language model has one kind of layer to compile, and validations, which would compile it once more, are left out.
    """
    monkeypatch.setattr(run.Scorer, "__call__", lambda self, model: {"loss": 1.0, "perplexity": 2.0})
    text = write_lines(tmp_path / "text", [source for source, _ in letters(60)])
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    changes = ["model.dropout=0.3", "data.batch_tokens=100", "training.save_every=2", "training.keep_last=3"]
    given = ["--recipe", "lm", *settings("lm"), *(part for change in changes for part in ("--set", change))]
    done = command("train", "--text", text, "--output", whole, "--compile", "--max-steps", 4, *given)
    assert done.code == 0, done.err
    shutil.copytree(whole, parts)
    for lost in (parts / CHECKPOINTS).glob("step-0000004*"):
        shutil.rmtree(lost)
    torch.compiler.reset()
    done = command("train", "--output", parts, "--resume")
    assert "going on after update 2" in done.err, done.err
    one, other = (safetensors.torch.load_file(weights(path)) for path in (whole, parts))
    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_compiled_layers_are_not_sharded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process alone shards nothing, whatever the configuration says."""
    config = build_config({"training": {"compile": True, "parallel": "fsdp"}}, "transformer")
    check_training(config)
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "1")
    with pytest.raises(SightlineError, match=r"does not go with training\.parallel = fsdp.*: use ddp"):
        check_training(config)
    check_training(build_config({"training": {"compile": True}}, "transformer"))


def test_what_cannot_be_compiled_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SightlineError, match="nothing to compile"):
        compile_layers(small_model("bahdanau"))
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(SightlineError, match=r"needs a C\+\+ compiler \(g\+\+ or clang\+\+ or cl\)"):
        check_compiler("cpu")
    check_compiler("cuda")


def test_compiled_code_takes_a_batch_in_one_part(command: Command, toy_pairs: Path, tmp_path: Path) -> None:
    given = ["--compile", "--set", "training.workers=2", "--max-steps", 2, *settings()]
    done = command("train", "--pairs", toy_pairs, "--output", tmp_path / "run", *given)
    assert "training.compile takes a batch in one part" in done.last_word()


def test_an_estimate_makes_nothing(command: Command, toy_pairs: Path, tmp_path: Path) -> None:
    output = tmp_path / "run"
    done = command("train", "--pairs", toy_pairs, "--output", output, "--estimate", "--max-steps", 50, *settings())
    assert done.code == 0, done.err
    assert not output.exists()
    told = dict(re.findall(r"^(.+?)  +([\d,]+)", done.out, flags=re.MULTILINE))
    assert list(told) == ["pairs", "parameters", "memory", "updates an epoch", "target tokens/s", "the whole run"]
    assert told["the whole run"] == "50"
    assert int(told["pairs"]) < 400
    trained = command("train", "--pairs", toy_pairs, "--output", output, "--max-steps", 2, *settings())
    assert f"{told['parameters']} parameters" in trained.err
    assert f"{told['pairs']} training pairs" in (output / "README.md").read_text()


def test_an_estimate_of_a_run_that_goes_on_tells_what_is_left(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It finds files as the run would, keeps a moving average as the run does, and writes no checkpoint."""
    begun, elsewhere = tmp_path / "begun", tmp_path / "elsewhere"
    for folder in (begun, elsewhere):
        folder.mkdir()
    monkeypatch.chdir(begun)
    write_tsv(Path("pairs.tsv"), letters(60))
    output = tmp_path / "run"
    changes = ["training.ema=0.9", "training.validate_every=2"]
    given = [*settings(), *(part for change in changes for part in ("--set", change))]
    done = command("train", "--pairs", "pairs.tsv", "--output", output, "--max-steps", 3, *given)
    assert done.code == 0, done.err
    before = sorted(output.rglob("*"))
    monkeypatch.chdir(elsewhere)
    monkeypatch.setattr(checkpoints, "_write", lambda path, content: pytest.fail("it writes"))
    done = command("train", "--output", output, "--resume", "--more-steps", 4, "--estimate")
    assert done.code == 0, done.err
    assert re.search(r"^what is left      4 updates after 3 \(", done.out, re.MULTILINE)
    assert "for 3 validations" in done.out  # after 4, 6 and 7
    assert "weights, gradients, Adam's moments and the moving average take" in done.out
    assert sorted(output.rglob("*")) == before


def test_memory_is_not_that_of_who_started_the_process() -> None:
    large = bytearray(b"x") * (200 * 2**20)
    code = "from sightline.performance import peak_resident; print(peak_resident())"
    told = int(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)
    assert 0 < told < len(large)


def test_an_estimate_builds_what_the_run_would(
    command: Command, toy_pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its precision and its compiled layers, and one validation as the run makes them."""
    compiled: list[torch.dtype] = []
    lengths: list[int] = []
    search = run.greedy_search

    def searched(*given: Any) -> Any:
        found = search(*given)
        lengths.extend(len(hypothesis.tokens) for hypothesis in found)
        return found

    monkeypatch.setattr(directions, "compile_layers", lambda model: compiled.append(model.precision))
    monkeypatch.setattr(run, "greedy_search", searched)
    given = ["--compile", "--max-steps", 50, *settings(), "--set", "training.precision=bfloat16"]
    done = command("train", "--pairs", toy_pairs, "--output", tmp_path / "run", "--estimate", *given)
    assert done.code == 0, done.err
    assert compiled == [torch.bfloat16]
    assert len(lengths) == 4
    assert len(set(lengths)) == 1
    assert lengths[0] > 1
    assert "of them for 1 validation" in done.out


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"max_steps": 100}, (100, 4)),  # after 30, 60, 90 and 100
        ({"max_steps": 90, "average": "last"}, (90, 4)),  # and the mean
        ({"max_minutes": 1}, (24, 1)),  # 2 seconds an update, and 15 / 30 more for its share of a validation
        ({"max_minutes": 1, "max_steps": 20}, (20, 1)),
    ],
)
def test_what_the_limits_come_to(given: dict[str, Any], expected: tuple[int, int]) -> None:
    training = build_config({"training": {"validate_every": 30, **given}}, "transformer").training
    assert reckoned(training, an_update=2.0, validation=15.0) == expected


@pytest.mark.parametrize(
    ("given", "done", "expected"),
    [
        ({"max_steps": 100}, 60, (40, 2)),  # after 90 and 100
        ({"max_steps": 100, "average": "last"}, 59, (41, 4)),
        ({"max_minutes": 10}, 100, (100, 4)),  # 250 seconds are left; after 120, 150, 180 and 200
        ({"max_steps": 100}, 120, (0, 0)),
    ],
)
def test_what_is_left_of_the_limits(given: dict[str, Any], done: int, expected: tuple[int, int]) -> None:
    training = build_config({"training": {"validate_every": 30, **given}}, "transformer").training
    assert reckoned(training, an_update=2.0, validation=15.0, done=done, seconds=350.0) == expected
