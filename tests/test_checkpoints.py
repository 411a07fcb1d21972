"""Weights and checkpoints: exact, atomic, and plain about what is wrong."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from sightline.config import build_config
from sightline.errors import SightlineError
from sightline.training import checkpoints
from sightline.training.adam import AdamW
from sightline.training.checkpoint_names import latest
from sightline.training.checkpoints import (
    Keep,
    load_checkpoint,
    load_weights,
    read_trainer,
    save_checkpoint,
    save_weights,
)
from sightline.training.resume import check_settings, lasting_settings
from tests.commands import WAITS


class Toy(nn.Module):
    """An embedding tied to the output layer, a layer of its own, and both kinds of buffer."""

    def __init__(self, tied: bool = True, width: int = 4) -> None:
        super().__init__()
        self.embedding = nn.Embedding(6, width)
        self.middle = nn.Linear(width, width)
        self.output = nn.Linear(width, 6, bias=False)
        if tied:
            self.output.weight = self.embedding.weight
        self.register_buffer("baseline", torch.tensor(0.5))
        self.register_buffer("scratch", torch.zeros(3), persistent=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.output(torch.tanh(self.middle(self.embedding(ids))))
        return result


def adam(*parameters: nn.Parameter) -> AdamW:
    return AdamW([{"params": list(parameters), "weight_decay": 0.01, "lr": 0.1}], (0.9, 0.999), 1e-8)


def trained(steps: int = 3, seed: int = 1) -> tuple[Toy, AdamW]:
    torch.manual_seed(seed)
    model = Toy()
    optimizer = adam(*model.parameters())
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randint(6, (5,))).square().sum().backward()
        optimizer.step()
    return model, optimizer


def same(one: nn.Module, other: nn.Module) -> bool:
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def test_weights_go_there_and_back_with_tied_names_once(tmp_path: Path) -> None:
    model, _ = trained()
    path = tmp_path / "model.safetensors"
    save_weights(model, path)
    assert set(load_file(path)) == {"embedding.weight", "middle.weight", "middle.bias", "baseline"}
    assert [entry.name for entry in tmp_path.iterdir()] == ["model.safetensors"]
    other = Toy()
    load_weights(other, path)
    assert same(model, other)
    assert other.output.weight is other.embedding.weight


def test_any_one_of_tied_names_is_enough_but_they_must_agree(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    model, _ = trained()
    tensors = {name: value.clone() for name, value in model.state_dict().items()}
    save_file({name: value for name, value in tensors.items() if name != "embedding.weight"}, path)
    other = Toy()
    load_weights(other, path)
    assert same(model, other)
    tensors["output.weight"] += 1
    save_file(tensors, path)
    with pytest.raises(SightlineError, match=r"embedding\.weight and output\.weight differ"):
        load_weights(Toy(), path)
    load_weights(Toy(tied=False), path)


def test_wrong_weights_are_named_and_change_nothing(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_weights(Toy(width=3), path)
    model, _ = trained()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    message = r"shape of embedding\.weight is \(6, 3\), expected \(6, 4\): the weights belong to another config"
    with pytest.raises(SightlineError, match=message):
        load_weights(model, path)
    save_file({"embedding.weight": torch.zeros(6, 4), "strange": torch.zeros(1)}, path)
    with pytest.raises(SightlineError, match="strange is not part of the model"):
        load_weights(model, path)
    save_file({"embedding.weight": torch.zeros(6, 4)}, path)
    with pytest.raises(SightlineError, match="baseline is missing"):
        load_weights(model, path)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


@pytest.mark.parametrize("share", [0.0, 0.001, 0.3, 0.9])
def test_truncated_and_foreign_files(tmp_path: Path, share: float) -> None:
    path = tmp_path / "model.safetensors"
    save_weights(Toy(), path)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(SightlineError, match="not a safetensors file, or cut short"):
        load_weights(Toy(), path)
    path.write_bytes(b"PK\x03\x04 a zip file, as torch.save writes it" * 10)
    with pytest.raises(SightlineError, match="not a safetensors file"):
        load_weights(Toy(), path)
    path.unlink()
    with pytest.raises(SightlineError, match="No such file"):
        load_weights(Toy(), path)


def test_a_checkpoint_restores_everything(tmp_path: Path) -> None:
    model, optimizer = trained()
    values = {"step": 3, "seconds": 0.1 + 0.2, "best": None, "settings": {"training.seed": 1}}
    path = save_checkpoint(tmp_path, 3, model, optimizer, values)
    drawn = torch.rand(4)
    other, other_optimizer = trained(1, seed=2)
    assert path == tmp_path / "step-0000003" == latest(tmp_path)
    assert load_checkpoint(path, other, other_optimizer) == values == read_trainer(path)
    assert torch.equal(torch.rand(4), drawn)
    for _ in range(2):  # the moments are right if further steps agree
        for one, its_optimizer in ((model, optimizer), (other, other_optimizer)):
            its_optimizer.zero_grad()
            one(torch.arange(6)).square().sum().backward()
            its_optimizer.step()
        assert same(model, other)


def test_older_checkpoints_and_leftovers_go(tmp_path: Path) -> None:
    model, optimizer = trained()
    for step in (1, 2, 3):
        save_checkpoint(tmp_path, step, model, optimizer, {}, Keep(last=2))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-0000002", "step-0000003"]
    (tmp_path / ".partial-step-0000004").mkdir()
    (tmp_path / ".partial-step-0000004" / "model.safetensors").write_bytes(b"half")
    (tmp_path / "step-0000009").mkdir()  # not one of ours: no trainer.json
    assert latest(tmp_path) == tmp_path / "step-0000003"
    path = save_checkpoint(tmp_path, 3, model, optimizer, {"again": True})
    assert path == latest(tmp_path) == tmp_path / "step-0000003.1"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["step-0000003.1", "step-0000009"]
    assert latest(tmp_path / "nowhere") is None


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "random.safetensors", "trainer.json"])
def test_damage_is_found_and_the_older_checkpoint_named(tmp_path: Path, name: str) -> None:
    model, optimizer = trained()
    path = save_checkpoint(tmp_path, 5, model, optimizer, {"seconds": 100})
    content = bytearray((path / name).read_bytes())
    spot = content.index(b"100") if name == "trainer.json" else len(content) - 2
    content[spot] ^= 1
    (path / name).write_bytes(content)
    with pytest.raises(SightlineError, match=rf"{name}: damaged.*no older one"):
        load_checkpoint(path, model, optimizer)
    path.rename(tmp_path / "kept")
    save_checkpoint(tmp_path, 4, model, optimizer, {})
    (tmp_path / "kept").rename(path)
    with pytest.raises(SightlineError, match=r"damaged.*go on from step-0000004"):
        load_checkpoint(path, model, optimizer)
    (path / name).unlink()
    with pytest.raises(SightlineError, match=f"{name}: cannot read"):
        load_checkpoint(path, model, optimizer)


def test_a_checkpoint_of_another_model_or_format(tmp_path: Path) -> None:
    model, optimizer = trained()
    path = save_checkpoint(tmp_path, 1, model, optimizer, {})
    other = Toy(width=3)
    with pytest.raises(SightlineError, match="belong to another config"):
        load_checkpoint(path, other, adam(*other.parameters()))
    with pytest.raises(SightlineError, match="does not fit the model"):
        load_checkpoint(path, model, adam(model.middle.bias))
    document = json.loads((path / "trainer.json").read_text())
    del document["checksum"]
    document["format"] = 99
    document["checksum"] = checkpoints._checksum(document)
    (path / "trainer.json").write_text(json.dumps(document))
    with pytest.raises(SightlineError, match="format 99"):
        load_checkpoint(path, model, optimizer)


def test_a_full_disk_leaves_the_last_checkpoint(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    model, optimizer = trained()
    path = save_checkpoint(tmp_path / "run", 1, model, optimizer, {})
    weights = tmp_path / "model.safetensors"
    save_weights(model, weights)
    before = weights.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300, hard))  # a write beyond it fails like one on a full disk
    try:
        with pytest.raises(SightlineError, match=r"cannot write the checkpoint of step 2: File too large; earlier"):
            save_checkpoint(tmp_path / "run", 2, model, optimizer, {})
        with pytest.raises(SightlineError, match="cannot write the weights: File too large"):
            save_weights(trained(2)[0], weights)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list((tmp_path / "run").iterdir()) == [path]
    assert load_checkpoint(path, *trained()) == {}
    assert weights.read_bytes() == before
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["model.safetensors", "run"]


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    model, optimizer = trained()
    with pytest.raises(SightlineError, match="cannot write the checkpoint of step 1"):
        save_checkpoint(tmp_path / "file" / "checkpoints", 1, model, optimizer, {})
    with pytest.raises(SightlineError, match="cannot write the weights"):
        save_weights(model, tmp_path / "file" / "model.safetensors")


def test_settings_that_must_stay(tmp_path: Path) -> None:
    model, optimizer = trained()
    settings = lasting_settings(build_config({"training": {"max_steps": 5}}))
    path = save_checkpoint(tmp_path, 1, model, optimizer, {"settings": settings})
    check_settings(path, lasting_settings(build_config({"training": {"max_steps": 9}, "search": {"beam": 1}})))
    with pytest.raises(SightlineError, match=r"training\.seed was 1 and is now 2"):
        check_settings(path, lasting_settings(build_config({"training": {"seed": 2}})))
    with pytest.raises(SightlineError, match=r"model\.encoder\.layers was None and is now 3"):
        check_settings(path, lasting_settings(build_config({"model": {"encoder": {"layers": 3}}})))
    path = save_checkpoint(tmp_path, 2, model, optimizer, {"settings": {**settings, "data": "one"}})
    with pytest.raises(SightlineError, match="the data differs from what the run began with"):
        check_settings(path, {**settings, "data": "other"})
    # A setting that changes the data is told, not the data.
    with pytest.raises(SightlineError, match=r"training\.seed was 1 and is now 2"):
        check_settings(path, {**settings, "training.seed": 2, "data": "other"})


# One process forks a child for each moment of a write; the child kills itself there with SIGKILL.
KILLED = """
import os, shutil, signal, sys
from pathlib import Path
import torch
from torch import nn
from sightline.training import checkpoints
from sightline.training.adam import AdamW

torch.set_num_threads(1)
os.fsync = lambda descriptor: None  # a killed process, unlike a power cut, loses nothing it has written
folder = Path(sys.argv[1])
model = nn.Linear(3, 2)
optimizer = AdamW([{"params": [*model.parameters()], "weight_decay": 0.0, "lr": 0.1}], (0.9, 0.999), 1e-8)
model(torch.ones(1, 3)).sum().backward()
optimizer.step()
left = 0

def moment():
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)

def around(function, half=None):
    def wrapped(*args, **kwargs):
        moment()
        if half:
            half(*args)
            moment()
        result = function(*args, **kwargs)
        moment()
        return result
    return wrapped

def half_written(path, content):
    path.write_bytes(content[: len(content) // 2])

def half_deleted(path, **_):
    if (Path(path) / "model.safetensors").exists():
        (Path(path) / "model.safetensors").unlink()

def child(number):
    global left
    left = number
    checkpoints._write = around(checkpoints._write, half_written)
    os.fsync, os.replace = around(os.fsync), around(os.replace)
    shutil.rmtree = around(shutil.rmtree, half_deleted)
    with torch.no_grad():
        model.weight.fill_(2.0)
    checkpoints.save_checkpoint(folder, 2, model, optimizer, {"step": 2})

def outcome(number):
    shutil.rmtree(folder, ignore_errors=True)
    with torch.no_grad():
        model.weight.fill_(1.0)
    checkpoints.save_checkpoint(folder, 1, model, optimizer, {"step": 1})
    pid = os.fork()
    if pid == 0:
        try:
            child(number)
            os._exit(0)
        finally:
            os._exit(1)
    status = os.waitpid(pid, 0)[1]
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, status
    path = checkpoints.latest(folder)
    step = checkpoints.load_checkpoint(path, model, optimizer)["step"]
    assert bool((model.weight == step).all()), (number, step)
    checkpoints.save_checkpoint(folder, 3, model, optimizer, {"step": 3})
    assert [entry.name for entry in folder.iterdir()] == ["step-0000003"], number
    return os.WIFSIGNALED(status), step

number, steps = 1, []
while True:
    killed, step = outcome(number)
    steps.append(step)
    if not killed:
        break
    number += 1
print(*steps)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")
def test_kill_at_any_moment_of_a_write(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-c", KILLED, str(tmp_path / "checkpoints")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAITS, check=False)
    assert done.returncode == 0, done.stderr
    steps = [int(step) for step in done.stdout.split()]
    assert len(steps) > 20
    assert steps == sorted(steps)  # the old one up to the renaming, the new one from then on
    assert set(steps) == {1, 2}
