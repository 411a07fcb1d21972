"""Weights and checkpoints on disk: safetensors and JSON, never pickle, and never half-written.

A checkpoint is a folder `step-0000123` that holds all a run needs to go on as if nothing had happened:

    model.safetensors       parameters and buffers
    optimizer.safetensors   Adam's moments and step counts, `exp_avg/NAME`
    random.safetensors      the states of torch's random generators, those of a later rank under `rank-R/`
    ema.safetensors         the moving average of the parameters, if there is one
    trainer.json            the trainer's own state, the settings that must stay, a checksum for each file

It is written under another name and renamed, so that a folder of this name is always complete.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from sightline.errors import SightlineError
from sightline.training.adam import AdamW
from sightline.training.checkpoint_names import TRAINER, complete, free_name, latest
from sightline.training.random_states import random_states, restore_random_states
from sightline.training.ranks import Alone, Ranks, portion

FORMAT = 1
MODEL, OPTIMIZER, RANDOM = "model.safetensors", "optimizer.safetensors", "random.safetensors"
MOVING_AVERAGE = "ema.safetensors"
_PARTIAL, _OLD = ".partial-", ".old-"


@dataclass(frozen=True)
class Keep:
    """Which checkpoints stay: the newest of all, the `last` regular ones, and the `best` by their score.

    A regular one was due; one that a signal brought about was not, and goes when there is a newer one. So a run that
    was interrupted keeps the same checkpoints as one that was not.
    """

    last: int = 1
    best: int = 0
    higher_is_better: bool = False


NEWEST = Keep()


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
    fill_weights(model, _deserialise(_read(path), path), path)


def save_checkpoint(
    folder: Path,
    step: int,
    model: nn.Module,
    optimizer: AdamW,
    trainer: Mapping[str, Any],
    keep: Keep = NEWEST,
    moving_average: Mapping[str, Tensor] | None = None,
    ranks: Ranks | None = None,
) -> Path:
    """Writes a checkpoint into `folder`, then deletes those that `keep` does not ask for; returns its path.

    `trainer` is anything JSON can hold; of it, `regular` and `score` decide what is kept. If writing fails, the
    checkpoints that were there stay as they were. All `ranks` give their part, the first one writes.
    """
    ranks = ranks or Alone()
    tensors = _gathered(model, optimizer, moving_average, ranks)
    return Path(ranks.on_first(lambda: str(_write_checkpoint(folder, step, tensors, trainer, keep))))


def rehearse_checkpoint(
    model: nn.Module, optimizer: AdamW, moving_average: Mapping[str, Tensor] | None, ranks: Ranks
) -> None:
    """All of `save_checkpoint` that takes memory, without a file."""
    for values in _gathered(model, optimizer, moving_average, ranks).values():
        _serialise(values)


def _gathered(
    model: nn.Module, optimizer: AdamW, moving_average: Mapping[str, Tensor] | None, ranks: Ranks
) -> dict[str, dict[str, Tensor]]:
    """The tensors of a checkpoint by file; later ranks, which write none, get few."""
    tensors = {
        MODEL: ranks.whole(_weights(model)),
        OPTIMIZER: ranks.whole(_moments(model, optimizer)),
        RANDOM: random_states(ranks),
    }
    if moving_average is not None:
        tensors[MOVING_AVERAGE] = ranks.whole(moving_average)
    return tensors


def _write_checkpoint(
    folder: Path, step: int, tensors: Mapping[str, dict[str, Tensor]], trainer: Mapping[str, Any], keep: Keep
) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _sweep(folder)
        path = free_name(folder, step)
        partial = folder / f"{_PARTIAL}{path.name}"
        partial.mkdir()
        checksums = {name: _write(partial / name, _serialise(values)) for name, values in tensors.items()}
        document = {"format": FORMAT, "trainer": dict(trainer), "files": checksums}
        _write(partial / TRAINER, json.dumps({**document, "checksum": _checksum(document)}, indent=1).encode())
        _sync_folder(partial)
        os.replace(partial, path)
        _sync_folder(folder)
        staying = {path, *last_checkpoints(folder, keep.last)}
        staying |= {*best_checkpoints(folder, keep.best, keep.higher_is_better)}
        for other in complete(folder):
            if other not in staying:
                _delete(other)
    except OSError as error:
        _sweep(folder)
        where = f"{folder}: cannot write the checkpoint of step {step}: {error.strerror or error}"
        intact = "earlier checkpoints are intact, free some space and use --resume"
        advice = intact if latest(folder) is not None else "free some space and start again"
        raise SightlineError(f"{where}; {advice}") from None
    return path


def last_checkpoints(folder: Path, count: int) -> list[Path]:
    """The last `count` regular checkpoints, oldest first."""
    regular = [path for path, values in _by_step(folder) if values.get("regular", True)]
    return regular[len(regular) - min(count, len(regular)) :]


def best_checkpoints(folder: Path, count: int, higher_is_better: bool = False) -> list[Path]:
    """The `count` checkpoints with the best scores, oldest first; of equal ones the older."""
    scored = [(values["score"], path) for path, values in _by_step(folder) if values.get("score") is not None]
    ranked = sorted(scored, key=lambda pair: -pair[0] if higher_is_better else pair[0])
    best = {path for _, path in ranked[:count]}
    return [path for _, path in scored if path in best]


def _by_step(folder: Path) -> list[tuple[Path, dict[str, Any]]]:
    """Checkpoints with their trainer's values, oldest first: the newest of each step, without damaged ones."""
    found: dict[str, tuple[Path, dict[str, Any]]] = {}
    for path in complete(folder):
        with contextlib.suppress(SightlineError):
            found[path.name.partition(".")[0]] = (path, read_trainer(path))
    return list(found.values())


def read_trainer(path: Path) -> dict[str, Any]:
    """The `trainer` values of the checkpoint folder `path`, without its tensors."""
    values: dict[str, Any] = _read_document(path)["trainer"]
    return values


def load_checkpoint(
    path: Path,
    model: nn.Module,
    optimizer: AdamW,
    moving_average: Mapping[str, Tensor] | None = None,
    ranks: Ranks | None = None,
) -> dict[str, Any]:
    """Restores model, optimizer, random generators and, if given, the moving average's tensors from the folder `path`.

    Returns its `trainer` values. Everything is read and compared with its checksum before the first weight changes.
    """
    document = _read_document(path)
    names = (MODEL, OPTIMIZER, RANDOM) if moving_average is None else (MODEL, OPTIMIZER, RANDOM, MOVING_AVERAGE)
    tensors = {name: _read_tensors(path, name, document) for name in names}
    if moving_average is not None:
        _check_shapes(tensors[MOVING_AVERAGE], moving_average, path / MOVING_AVERAGE)
    fill_weights(model, tensors[MODEL], path / MODEL)
    _fill_moments(model, optimizer, tensors[OPTIMIZER], path / OPTIMIZER)
    for name, value in (moving_average or {}).items():
        value.copy_(portion(tensors[MOVING_AVERAGE][name], value))
    restore_random_states(tensors[RANDOM], ranks or Alone())
    values: dict[str, Any] = document["trainer"]
    return values


def read_weights(path: Path) -> dict[str, Tensor]:
    """The weights that the checkpoint `path` validates with: the moving average where there is one."""
    document = _read_document(path)
    averaged = _read_tensors(path, MOVING_AVERAGE, document) if MOVING_AVERAGE in document["files"] else {}
    return {**_read_tensors(path, MODEL, document), **averaged}


def _read_tensors(path: Path, name: str, document: dict[str, Any]) -> dict[str, Tensor]:
    """One file of the checkpoint `path`, compared with its checksum."""
    content = _read(path / name)
    if hashlib.sha256(content).hexdigest() != document["files"].get(name):
        raise _corrupted(path / name)
    return _deserialise(content, path / name)


# Tensors by name


def _weights(model: nn.Module) -> dict[str, Tensor]:
    """Every tensor of the state once, under the first of its names."""
    unique: dict[int, tuple[str, Tensor]] = {}
    for name, value in model.state_dict(keep_vars=True).items():
        unique.setdefault(id(value), (name, value.detach()))
    return dict(unique.values())


def fill_weights(model: nn.Module, loaded: dict[str, Tensor], path: Path) -> None:
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
            own[name].copy_(portion(value, own[name]))


def _check_shapes(loaded: dict[str, Tensor], own: Mapping[str, Tensor], path: Path) -> None:
    if {name: value.shape for name, value in loaded.items()} != {name: value.shape for name, value in own.items()}:
        raise SightlineError(f"{path}: its tensors do not fit the model: the checkpoint belongs to another config")


def _moments(model: nn.Module, optimizer: AdamW) -> dict[str, Tensor]:
    tensors = {}
    for name, parameter in model.named_parameters():
        for key, value in optimizer.state.get(parameter, {}).items():
            tensors[f"{key}/{name}"] = torch.as_tensor(value)
    return tensors


def _fill_moments(model: nn.Module, optimizer: AdamW, loaded: dict[str, Tensor], path: Path) -> None:
    """Replaces all that the optimizer remembers; each moment goes where its parameter is."""
    parameters = dict(model.named_parameters())
    moved = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    state: dict[Tensor, dict[str, Tensor]] = {}
    for full_name, value in loaded.items():
        key, _, name = full_name.partition("/")
        parameter = parameters.get(name)
        if parameter is None or id(parameter) not in moved or (value.dim() > 0 and value.shape != parameter.shape):
            raise SightlineError(
                f"{path}: {full_name} does not fit the model: the checkpoint belongs to another config"
            )
        fitting = portion(value, parameter) if value.dim() > 0 else value
        state.setdefault(parameter, {})[key] = fitting.to(parameter.device)
    optimizer.state.clear()
    optimizer.state.update(state)


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
    older = [path for path in complete(file.parent.parent) if path != file.parent]
    advice = f"remove {file.parent} to go on from {older[-1].name}" if older else "there is no older one to go on from"
    return SightlineError(f"{file}: damaged, its checksum does not match; {advice}")


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
