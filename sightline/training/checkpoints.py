"""Weights and checkpoints on disk: safetensors and JSON, never pickle, and never half-written.

A checkpoint is a folder `step-0000123` that holds all a run needs to go on as if nothing had happened:

    model.safetensors       parameters and buffers
    optimizer.safetensors   Adam's moments and step counts, `exp_avg/NAME`
    random.safetensors      the states of torch's random generators
    trainer.json            the trainer's own state, the settings that must stay, a checksum for each file

It is written under another name and renamed, so that a folder of this name is always complete.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from sightline.config import RunConfig
from sightline.errors import SightlineError

FORMAT = 1
CHECKPOINTS = "checkpoints"
MODEL, OPTIMIZER, RANDOM, TRAINER = "model.safetensors", "optimizer.safetensors", "random.safetensors", "trainer.json"
# A second checkpoint of the same step gets a number after a dot: nothing is ever written over.
_NAME = re.compile(r"step-(\d+)(?:\.(\d+))?")
_MAY_CHANGE = {
    "max_steps",
    "max_minutes",
    "validate_every",
    "validate_bleu",
    "patience",
    "log_every",
    "save_every",
    "samples",
    "watch",
    "tensorboard",
    "report",
}
_PARTIAL, _OLD = ".partial-", ".old-"


def save_weights(model: nn.Module, path: Path) -> None:
    """Writes parameters and persistent buffers to a safetensors file, tied ones once, in one atomic step."""
    partial = path.with_name(f"{_PARTIAL}{path.name}")
    try:
        _write(partial, _serialise(_weights(model)))
        os.replace(partial, path)
        _sync_folder(path.parent)
    except OSError as error:
        _discard(partial)
        raise SightlineError(f"{path}: cannot write the weights: {error.strerror or error}") from None


def load_weights(model: nn.Module, path: Path) -> None:
    """Fills `model` from a safetensors file whose names and shapes must match; of tied names one is enough."""
    _fill(model, _deserialise(_read(path), path), path)


def save_checkpoint(
    folder: Path,
    step: int,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    trainer: Mapping[str, Any],
    keep: int = 1,
) -> Path:
    """Writes a checkpoint into `folder`, then deletes all but the newest `keep`; returns its path.

    `trainer` is anything JSON can hold. If writing fails, the checkpoints that were there stay as they were.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _sweep(folder)
        path = _free_name(folder, step)
        partial = folder / f"{_PARTIAL}{path.name}"
        partial.mkdir()
        tensors = {MODEL: _weights(model), OPTIMIZER: _moments(model, optimizer), RANDOM: _random_states()}
        checksums = {name: _write(partial / name, _serialise(values)) for name, values in tensors.items()}
        document = {"format": FORMAT, "trainer": dict(trainer), "files": checksums}
        _write(partial / TRAINER, json.dumps({**document, "checksum": _checksum(document)}, indent=1).encode())
        _sync_folder(partial)
        os.replace(partial, path)
        _sync_folder(folder)
        for old in _complete(folder)[:-keep]:
            _delete(old)
    except OSError as error:
        _sweep(folder)
        where = f"{folder}: cannot write the checkpoint of step {step}: {error.strerror or error}"
        raise SightlineError(f"{where}; earlier checkpoints are intact, free some space and use --resume") from None
    return path


def latest(folder: Path) -> Path | None:
    """The newest complete checkpoint of a `checkpoints` folder, None if there is none."""
    found = _complete(folder)
    return found[-1] if found else None


def read_trainer(path: Path) -> dict[str, Any]:
    """The `trainer` values of the checkpoint folder `path`, without its tensors."""
    values: dict[str, Any] = _read_document(path)["trainer"]
    return values


def load_checkpoint(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Restores model, optimizer and random generators from the folder `path`; returns its `trainer` values.

    Everything is read and compared with its checksum before the first weight changes.
    """
    document = _read_document(path)
    tensors = {}
    for name in (MODEL, OPTIMIZER, RANDOM):
        content = _read(path / name)
        if hashlib.sha256(content).hexdigest() != document["files"].get(name):
            raise _corrupted(path / name)
        tensors[name] = _deserialise(content, path / name)
    _fill(model, tensors[MODEL], path / MODEL)
    _fill_moments(model, optimizer, tensors[OPTIMIZER], path / OPTIMIZER)
    _restore_random_states(tensors[RANDOM])
    values: dict[str, Any] = document["trainer"]
    return values


def lasting_settings(config: RunConfig) -> dict[str, Any]:
    """The settings that a run cannot change on its way, `section.key` to value: all but its limits and its reports."""
    values = config.model_dump(mode="json", include={"text", "data", "model", "training"})
    flat = dict(_flatten(values, ""))
    return {name: value for name, value in flat.items() if name.removeprefix("training.") not in _MAY_CHANGE}


def check_settings(path: Path, settings: Mapping[str, Any]) -> None:
    """Refuses to go on from the checkpoint `path` when a lasting setting differs from its own."""
    before = read_trainer(path)["settings"]
    # Keys of the configuration first: what else is compared may differ because of them.
    for name in sorted({*before, *settings}, key=lambda name: ("." not in name, name)):
        if before.get(name) != settings.get(name):
            change = f"{name} was {before.get(name)!r} and is now {settings.get(name)!r}"
            if "." not in name:
                change = f"the {name} differs from what the run began with"
            raise SightlineError(f"{path}: cannot resume: {change}; set it back, or start a new run in another folder")


def _flatten(values: dict[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


# Tensors by name


def _weights(model: nn.Module) -> dict[str, Tensor]:
    """Every tensor of the state once, under the first of its names."""
    unique: dict[int, tuple[str, Tensor]] = {}
    for name, value in model.state_dict(keep_vars=True).items():
        unique.setdefault(id(value), (name, value.detach()))
    return dict(unique.values())


def _fill(model: nn.Module, loaded: dict[str, Tensor], path: Path) -> None:
    """Copies `loaded` into the model's tensors after checking all of them."""
    other = "the weights belong to another config"
    own = model.state_dict(keep_vars=True)
    aliases: dict[int, list[str]] = {}
    for name, value in own.items():
        aliases.setdefault(id(value), []).append(name)
    for name in loaded:
        if name not in own:
            raise SightlineError(f"{path}: {name} is not part of the model: {other}")
    for names in aliases.values():
        present = [name for name in names if name in loaded]
        if not present:
            raise SightlineError(f"{path}: {names[0]} is missing: {other}")
        for name in present:
            found, expected = tuple(loaded[name].shape), tuple(own[name].shape)
            if found != expected:
                raise SightlineError(f"{path}: shape of {name} is {found}, expected {expected}: {other}")
            if not torch.equal(loaded[name], loaded[present[0]]):
                raise SightlineError(f"{path}: {present[0]} and {name} differ, but the model ties them: {other}")
    with torch.no_grad():
        for name, value in loaded.items():
            own[name].copy_(value)


def _moments(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    tensors = {}
    for name, parameter in model.named_parameters():
        for key, value in optimizer.state.get(parameter, {}).items():
            tensors[f"{key}/{name}"] = torch.as_tensor(value)
    return tensors


def _fill_moments(model: nn.Module, optimizer: torch.optim.Optimizer, loaded: dict[str, Tensor], path: Path) -> None:
    """Through the optimizer's own `load_state_dict`, which knows on which device each of them belongs."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    order = [names[id(parameter)] for group in optimizer.param_groups for parameter in group["params"]]
    shapes = {name: parameter.shape for name, parameter in model.named_parameters()}
    state: dict[int, dict[str, Tensor]] = {}
    for full_name, value in loaded.items():
        key, _, name = full_name.partition("/")
        if name not in order or (value.dim() > 0 and value.shape != shapes[name]):
            raise SightlineError(
                f"{path}: {full_name} does not fit the model: the checkpoint belongs to another config"
            )
        state.setdefault(order.index(name), {})[key] = value
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def _random_states() -> dict[str, Tensor]:
    """Torch's generators; Python's and numpy's are not used while training, batches depend on seed and epoch alone."""
    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states |= {f"cuda:{number}": state for number, state in enumerate(torch.cuda.get_rng_state_all())}
    return states


def _restore_random_states(states: dict[str, Tensor]) -> None:
    torch.set_rng_state(states["cpu"])
    for number in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        if f"cuda:{number}" in states:
            torch.cuda.set_rng_state(states[f"cuda:{number}"], number)


# Files and folders


def _serialise(tensors: dict[str, Tensor]) -> bytes:
    content: bytes = safetensors.torch.save({name: value.contiguous() for name, value in tensors.items()})
    return content


def _deserialise(content: bytes, path: Path) -> dict[str, Tensor]:
    try:
        tensors: dict[str, Tensor] = safetensors.torch.load(content)
    except SafetensorError:
        raise SightlineError(f"{path}: not a safetensors file, or cut short: copy it again") from None
    return {name: value.clone() for name, value in tensors.items()}


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise SightlineError(f"{path}: cannot read: {error.strerror}") from None


def _write(path: Path, content: bytes) -> str:
    """Writes through to the disk; returns the checksum of what was meant to be written."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    return hashlib.sha256(content).hexdigest()


def _sync_folder(folder: Path) -> None:
    """Makes names in `folder` last through a power cut."""
    if os.name != "posix":  # elsewhere a folder cannot be opened
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read_document(path: Path) -> dict[str, Any]:
    try:
        document: Any = json.loads(_read(path / TRAINER))
        checksum = document.pop("checksum")
    except (ValueError, KeyError, AttributeError, TypeError):
        raise _corrupted(path / TRAINER) from None
    if checksum != _checksum(document):
        raise _corrupted(path / TRAINER)
    if document["format"] != FORMAT:
        raise SightlineError(f"{path}: format {document['format']} of a checkpoint; this version reads {FORMAT}")
    values: dict[str, Any] = document
    return values


def _checksum(document: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def _corrupted(file: Path) -> SightlineError:
    older = [path for path in _complete(file.parent.parent) if path != file.parent]
    advice = f"remove {file.parent} to go on from {older[-1].name}" if older else "there is no older one to go on from"
    return SightlineError(f"{file}: damaged, its checksum does not match; {advice}")


def _complete(folder: Path) -> list[Path]:
    """Finished checkpoints, oldest first."""
    found = []
    for path in folder.iterdir() if folder.is_dir() else ():
        match = _NAME.fullmatch(path.name)
        if match and (path / TRAINER).is_file():
            found.append((int(match[1]), int(match[2] or 0), path))
    return [path for _, _, path in sorted(found)]


def _free_name(folder: Path, step: int) -> Path:
    path, number = folder / f"step-{step:07d}", 0
    while path.exists():
        number += 1
        path = folder / f"step-{step:07d}.{number}"
    return path


def _delete(path: Path) -> None:
    """Hides a checkpoint before deleting it, so that one half deleted is never taken for a complete one."""
    hidden = path.with_name(f"{_OLD}{path.name}")
    os.replace(path, hidden)
    _discard(hidden)


def _sweep(folder: Path) -> None:
    """Removes what interrupted writes and deletions left."""
    for path in list(folder.iterdir()) if folder.is_dir() else ():
        if path.name.startswith((_PARTIAL, _OLD)):
            _discard(path)


def _discard(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()
