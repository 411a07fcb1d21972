"""Of what the parts in a folder are parts: the input, the model and the options, so that nothing is ever mixed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sightline import __version__
from sightline.errors import SightlineError
from sightline.expectations import FILE as EXPECTATIONS
from sightline.files import failure, sha256
from sightline.folder import CONFIG, read_config, weights_file
from sightline.interop.shortlist import FILE as SHORTLIST
from sightline.sharding.job import Job
from sightline.wishes import PER_LINE

WEIGHTS = ("model.safetensors", "model.bin")  # PyTorch's and CTranslate2's; an export has the second alone
FILES = ("glossary", *PER_LINE)  # options that may name a file, whose content counts
NAMES = {
    "input": "another input",
    "model": "another model (or this one has changed)",
    "files": "another glossary, or other prefixes, requirements or seeds",
}


def describe(job: Job, source: Path, shard_lines: int, before: dict[str, Any] | None = None) -> dict[str, Any]:
    """The manifest of a work, as it comes back from JSON.

    A large input is read through once for its digest, and not again while its size and its date are those `before`.
    """
    seen = stamp(source)
    known = before["input"] if before is not None and before["seen"] == seen else sha256(source)
    return {
        "seen": seen,
        "input": known,
        "model": model_digests(job.model),
        "settings": json.loads(json.dumps(job.settings() | {"shard-lines": shard_lines}, default=str)),
        "files": file_digests(job),
        "sightline": __version__,
    }


def file_digests(job: Job) -> dict[str, str]:
    """Digests of the files that options name."""
    return {name: sha256(Path(job.options[name])) for name in FILES if _names_file(job.options.get(name))}


def _names_file(value: Any) -> bool:
    return isinstance(value, str | Path) and Path(value).is_file()


def stamp(source: Path) -> dict[str, int]:
    """By what a file that was changed is told."""
    try:
        found = source.stat()
    except OSError as error:
        raise SightlineError(f"{source}: {failure(error, 'read')}") from None
    return {"size": found.st_size, "modified": found.st_mtime_ns}


def model_digests(folder: Path) -> dict[str, str]:
    """Digests of the files that a translation depends on; the tokenizers' are in the configuration, and checked."""
    read_config(folder)
    weights = [folder / name for name in WEIGHTS if (folder / name).is_file()] or [weights_file(folder)]
    others = [folder / name for name in (SHORTLIST, EXPECTATIONS) if (folder / name).is_file()]
    return {path.name: sha256(path) for path in (folder / CONFIG, *weights, *others)}


def check_same(before: dict[str, Any], now: dict[str, Any], folder: Path) -> None:
    """Refuses to go on with the parts of another work."""
    found = difference(before, now)
    if found is not None:
        raise SightlineError(f"{folder}: begun with {found}: go on as it was begun, or delete the folder to begin anew")


def difference(before: dict[str, Any], now: dict[str, Any]) -> str | None:
    """What was another than now, as in "begun with …"; None when all that counts is the same."""
    for name, what in NAMES.items():
        if before.get(name) != now[name]:
            return what
    then, today = before["settings"], now["settings"]
    for name in [*then, *today]:
        if then.get(name) != today.get(name):
            values = [json.dumps(settings[name]) if name in settings else "left open" for settings in (then, today)]
            return f"{name.replace('_', '-')} {values[0]}, which is {values[1]} now"
    if before["sightline"] != now["sightline"]:
        return f"Sightline {before['sightline']}, and this is {now['sightline']}"
    return None
