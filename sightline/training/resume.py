"""Going on with a run: what may differ from its beginning, where its files are, and what will happen."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from sightline.config import RunConfig, TrainingConfig, build_config
from sightline.errors import SightlineError
from sightline.sections import DataConfig
from sightline.training.checkpoint_names import CHECKPOINTS, latest
from sightline.training.checkpoints import read_trainer
from sightline.training.progress import told_minutes
from sightline.training.schedules import schedule

MAY_CHANGE = (
    "training.max_steps",
    "training.max_minutes",
    "training.patience",
    "training.validate_every",
    "training.validate_bleu",
    "training.log_every",
    "training.save_every",
    "training.keep_last",
    "training.keep_best",
    "training.average",
    "training.average_count",
    "training.samples",
    "training.watch",
    "training.tensorboard",
    "training.report",
    "training.parallel",
    "training.timeout_minutes",
)

# Below this share of the highest learning rate hardly a weight moves.
NEXT_TO_NONE = 0.01


# Settings


def lasting_settings(config: RunConfig) -> dict[str, Any]:
    """The settings that a run cannot change on its way, `section.key` to value: all but its limits and its reports."""
    values = config.model_dump(mode="json", include={"text", "data", "model", "training"})
    return {name: value for name, value in _flatten(values, "") if name not in MAY_CHANGE}


def check_settings(path: Path, settings: Mapping[str, Any], partly: bool = False) -> None:
    """Refuses to go on from the checkpoint `path` when lasting settings differ from its own.

    With `partly`, only those that are given and not null are compared: a first look, before anything is read.
    A setting that the checkpoint does not know, because it is newer than the run, had its default.
    """
    before = read_trainer(path)["settings"]
    recipe = settings.get("model.recipe")
    defaults = lasting_settings(build_config({}, recipe if isinstance(recipe, str) else None))
    names = {name for name in settings if settings[name] is not None} if partly else {*before, *settings}
    # Keys of the configuration first: what else is compared may differ because of them.
    different = [
        name for name in sorted(names) if before.get(name, defaults.get(name)) != settings.get(name, defaults.get(name))
    ]
    changes = [
        f"{name} was {before.get(name)!r} and is now {settings.get(name)!r}" for name in different if "." in name
    ]
    if not changes:
        changes = [f"the {name} differs from what the run began with" for name in different]
    if changes:
        raise SightlineError(
            f"{path}: cannot resume: {', '.join(changes)}; set {'it' if len(changes) == 1 else 'them'} back, or start "
            f"a new run in another folder. On resuming may change: {', '.join(MAY_CHANGE)}, search.*, alignment.*, and "
            "where the files of the data lie; all else of text.*, data.*, model.* and training.* may not"
        )


def _flatten(values: dict[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


# Limits


def steps_done(output: Path) -> int:
    """The updates that the run in `output` has behind it."""
    found = latest(output / CHECKPOINTS)
    if found is None:
        raise SightlineError(f"{output}: no checkpoint to resume from; start without --resume")
    return int(read_trainer(found)["state"]["step"])


def going_on(checkpoint: Path, config: TrainingConfig, ranks: int = 1) -> list[str]:
    """What a person should know before the run goes on: where it stands, whether it is over, how fast it learns."""
    values = read_trainer(checkpoint)
    state = values["state"]
    step, seconds = int(state["step"]), float(state["seconds"])
    lines = [f"going on after update {step:,}"]
    if (before := values.get("ranks", 1)) != ranks:
        lines.append(f"before there were {before} ranks, now {ranks}: so many batches make an update")
    if config.patience and state["waited"] >= config.patience:
        lines.append(f"its patience of {config.patience} is used up; go on with --set training.patience=N")
    elif config.max_steps is not None and step >= config.max_steps:
        lines.append(f"its {config.max_steps:,} updates are done; go on with --more-steps N")
    elif config.max_minutes is not None and seconds >= config.max_minutes * 60:
        more = f"--max-minutes {2 * config.max_minutes:g}"
        used = told_minutes(config.max_minutes)
        lines.append(f"its {used} are used up; go on with more, counted from the first start, such as {more}")
    else:
        lines += _rate(step, seconds, state.get("rate"), config)
    return lines


def _rate(step: int, seconds: float, before: float | None, config: TrainingConfig) -> list[str]:
    """The rate that it goes on with: whether it rises since the schedule ends later now, whether it is next to none."""
    planned = schedule(config)
    rate = planned.rate(step + 1, seconds)
    lines = [f"the learning rate is {rate:.1e}"]
    if not planned.falls_to_zero or planned.warming(step, seconds):
        return lines
    if before is not None and rate > 1.1 * before:
        end = "the new limit" if config.max_steps is None else f"update {config.max_steps:,}"
        risen = f"goes up from {before:.1e} to {rate:.1e}"
        lines = [f"the learning rate {risen}: the {planned.kind} schedule now ends at {end}"]
    if rate < NEXT_TO_NONE * planned.peak:
        lines.append(
            f"that is next to none, the highest being {planned.peak:.1e}: little will be learnt until the end; "
            f"for more, let it end later, as with --more-steps {step}"
        )
    return lines


# Files


def places(given: DataConfig, found: DataConfig) -> dict[str, str]:
    """Where each file lies that `given` names, by the name given; `found` is what `find_files` made of it.

    Checkpoints note it, not the configuration or the model card: a model that is passed on tells nobody's paths.
    """
    names, files = _files(given.model_dump()), _files(found.model_dump())
    return {str(name): os.path.abspath(file) for name, file in zip(names, files, strict=True)}


def find_file(file: Path, known: Mapping[str, str]) -> Path | None:
    """Where a file is that a run has read: where its checkpoint noted it, else under the same name from here."""
    return next((path for path in (Path(known.get(str(file), file)), file) if path.exists()), None)


def find_files(data: DataConfig, checkpoint: Path) -> DataConfig:
    """`data` with files that exist: those that the run of `checkpoint` has read, else the same names from here."""
    known: dict[str, str] = read_trainer(checkpoint).get("files", {})

    def find(file: Path) -> Path:
        existing = find_file(file, known)
        if existing is None:
            noted = Path(known.get(str(file), file))
            where = "not found" if noted == file else f"not found, neither here nor at {noted}, where it was"
            keys = [name for name, value in data.model_dump().items() if value == file]
            mend = f" with --{keys[0].replace('_', '-')} FILE" if keys else ", by --set data.…"
            raise SightlineError(f"{file}: {where}; say where it is now{mend}")
        return existing

    return DataConfig.model_validate(_replaced(data.model_dump(), find))


def _files(values: Any) -> Iterator[Path]:
    """Every path in nested values."""
    if isinstance(values, Path):
        yield values
    elif isinstance(values, dict | list | tuple):
        for value in values.values() if isinstance(values, dict) else values:
            yield from _files(value)


def _replaced(values: Any, change: Callable[[Path], Path]) -> Any:
    """Nested values with `change(path)` in the place of each path."""
    if isinstance(values, Path):
        return change(values)
    if isinstance(values, dict):
        return {name: _replaced(value, change) for name, value in values.items()}
    if isinstance(values, list | tuple):
        return [_replaced(value, change) for value in values]
    return values
