"""A model's conversion for CTranslate2, made once and kept in its folder."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from sightline.errors import SightlineError
from sightline.files import failure, sha256, write_text
from sightline.folder import WEIGHTS, ModelFiles, weights_file
from sightline.interop.ctranslate2 import MODEL, SETTINGS, VERSION, About, converted, describe, read_about
from sightline.interop.shortlist import FILE as SHORTLIST

KEPT = ".ctranslate2"
STAMP = "weights.json"
SETTLED = 2 * 10**9  # nanoseconds; file systems count in up to two seconds

Source = Path | dict[str, bytes]
"""A folder that CTranslate2 reads, or its files by name."""


def is_export(folder: Path) -> bool:
    """Whether a folder is what `sightline export --to ctranslate2` makes: a model for CTranslate2 alone."""
    return (folder / MODEL).is_file() and not (folder / WEIGHTS).is_file()


def for_ctranslate2(files: ModelFiles) -> tuple[Source, About]:
    """The model as CTranslate2 reads it and what it can do: the export itself, or a conversion kept in the folder.

    Where the folder cannot be written to, the conversion stays in memory.
    """
    if is_export(files.path):
        about = _read_about(files.path / SETTINGS)
        _check_shortlist(files.path / SHORTLIST, about)
        return files.path, about
    weights = _weights_digest(files.path)
    place = files.path / KEPT / _digest(files, weights)
    about = describe(files.config)
    if (place / MODEL).is_file():
        _note_weights(files.path, place, weights)
        return place, about
    return _made(files, place), about


def made_again(files: ModelFiles, damaged: Path) -> Source:
    """A conversion in the place of a kept one that cannot be loaded."""
    shutil.rmtree(damaged, ignore_errors=True)
    return _made(files, damaged)


def _made(files: ModelFiles, place: Path) -> Source:
    content = converted(files)
    try:
        _keep(content, place)
    except OSError:  # a folder of someone else's, or a full disk
        return content
    return place


def _read_about(settings: Path) -> About:
    try:
        about = read_about(settings.read_bytes())
    except OSError as error:
        raise SightlineError(f"{settings}: {failure(error, 'read')}") from None
    if about is None:
        raise SightlineError(f"{settings}: not the settings of an export by Sightline: export the model again")
    return about


def _check_shortlist(path: Path, about: About) -> None:
    """Refuses one that the export was not made with: CTranslate2 takes whatever it finds in the file."""
    if about.shortlist is None:
        return
    if not path.is_file() or sha256(path) != about.shortlist:
        what = (
            "not the shortlist that this export was made with"
            if path.is_file()
            else "this export's shortlist is missing"
        )
        raise SightlineError(f"{path}: {what}: export the model again")


def _digest(files: ModelFiles, weights: str) -> str:
    """What a conversion depends on, in a few letters."""
    config = files.config
    settings = [VERSION, config.model.model_dump(mode="json"), vars(describe(config))]
    return hashlib.sha256(f"{weights} {json.dumps(settings, sort_keys=True)}".encode()).hexdigest()[:16]


def _weights_digest(folder: Path) -> str:
    """The SHA-256 of the weights: as it was noted in a conversion of theirs, while their size and date are the same."""
    path = weights_file(folder)
    now = _stamp(path)
    for note in (folder / KEPT).glob(f"*/{STAMP}"):
        with suppress(OSError, ValueError, AttributeError):  # none that we wrote
            before = json.loads(note.read_bytes())
            if {name: before.get(name) for name in now} == now and isinstance(before.get("sha256"), str):
                return str(before["sha256"])
    return sha256(path)


def _note_weights(folder: Path, place: Path, digest: str) -> None:
    """Keeps the digest of the weights beside their conversion, so that it need not be taken again.

    A file that was written just now may be written once more within the same tick of the clock: then nothing is kept.
    """
    now, note = _stamp(weights_file(folder)), place / STAMP
    if time.time_ns() - now["modified"] <= SETTLED:
        return
    text = json.dumps({**now, "sha256": digest})
    with suppress(OSError, SightlineError):  # a folder of someone else's
        if not note.is_file() or note.read_text(encoding="utf-8", errors="replace") != text:
            write_text(note, text)


def _stamp(path: Path) -> dict[str, int]:
    about = path.stat()
    return {"size": about.st_size, "modified": about.st_mtime_ns}


def _keep(content: dict[str, bytes], place: Path) -> None:
    """Writes the files beside and moves them into place, and clears away the conversions of former weights."""
    place.parent.mkdir(exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix="partial-", dir=place.parent))
    try:
        for name, data in content.items():
            (partial / name).write_bytes(data)
        partial.chmod(place.parent.stat().st_mode)
        os.replace(partial, place)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    for other in place.parent.iterdir():
        if other != place:
            # Even one that another process is just writing: it then goes on with what it has in memory.
            shutil.rmtree(other, ignore_errors=True)
