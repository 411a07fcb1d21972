"""A folder of results that are costly to make, each under the digest of all it was made from.

An entry is a folder `KIND-DIGEST`. It is made under another name and renamed when complete, and its `manifest.json`
holds every file's SHA-256: whatever is broken or half-written is noticed and made anew.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sightline.errors import SightlineError
from sightline.files import failure, sha256

FORMAT = 2
MANIFEST = "manifest.json"
MOST_BYTES = 20 * 2**30  # the entries used last stay, those that would take the folder over this go
MAKING = ".making-"
DAY = 24 * 3600.0

Facts = dict[str, Any]


@dataclass(frozen=True)
class Entry:
    """A complete result: its folder, what its maker noted (plain values), and its files' digests."""

    folder: Path
    facts: Facts
    digests: Mapping[str, str]
    found: bool = False
    temporary: bool = False

    def release(self) -> None:
        """Deletes a temporary one as far as the system lets: where it may, mapped files live on without their names."""
        if self.temporary:
            shutil.rmtree(self.folder, ignore_errors=True)


def default_folder() -> Path | None:
    """`sightline/tokens` in the user's cache folder, None if there is no such user."""
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sightline" / "tokens"
    except RuntimeError:
        return None


class Cache:
    """Results in `folder`; without one, or where it cannot be written to, in temporary folders."""

    def __init__(self, folder: Path | None, say: Callable[[str], None] = lambda line: None) -> None:
        self.folder, self._say = folder, say

    @staticmethod
    def chosen(name: str | None, say: Callable[[str], None] = lambda line: None) -> Cache:
        """As `data.cache` says: `auto`, a folder, or nothing."""
        return Cache(default_folder() if name == "auto" else Path(name).expanduser() if name else None, say)

    def entry(self, kind: str, key: Mapping[str, Any], make: Callable[[Path], Facts]) -> Entry:
        """The result of `make(folder)`, which fills a folder and returns its facts, from the cache if it is there."""
        key = _plain({"format": FORMAT, **key})
        if self.folder is not None:
            digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()
            path = self.folder / f"{kind}-{digest[:40]}"
            found = _open(path, key)
            if found is not None:
                with suppress(OSError):
                    os.utime(path)
                return found
            try:
                made = self._make(path, key, make)
                self._tidy(path)
                return made
            except OSError as error:
                self._say(f"{self.folder}: {failure(error, 'write')}; the tokens go to a temporary folder instead")
        return _temporary(kind, key, make)

    def _make(self, path: Path, key: Mapping[str, Any], make: Callable[[Path], Facts]) -> Entry:
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(path, ignore_errors=True)
        making = path.with_name(f"{MAKING}{path.name}-{secrets.token_hex(4)}")
        making.mkdir()
        try:
            made = _fill(making, key, make)
            try:
                os.rename(making, path)
            except OSError:  # another run was quicker
                found = _open(path, key)
                if found is None:
                    raise
                return found
            return Entry(path, made.facts, made.digests)
        finally:
            shutil.rmtree(making, ignore_errors=True)

    def _tidy(self, newest: Path) -> None:
        """Deletes the entries not used for longest, while all of them together are too large, and what was given up."""
        with suppress(OSError):
            folders = [path for path in newest.parent.iterdir() if path.is_dir()]
            making = {path for path in folders if path.name.startswith(MAKING)}  # perhaps by another run, just now
            for path in making:
                if _written(path) < time.time() - DAY:
                    shutil.rmtree(path, ignore_errors=True)
            used = {path: path.stat().st_mtime for path in folders if path not in making}
            total = 0
            for path in sorted(used, key=lambda path: (path == newest, used[path]), reverse=True):
                total += _size(path)
                if path != newest and total > MOST_BYTES:
                    shutil.rmtree(path, ignore_errors=True)


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values as they come back from JSON."""
    plain: dict[str, Any] = json.loads(json.dumps(values))
    return plain


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir())


def _written(folder: Path) -> float:
    """When something in a folder was last written."""
    return max(path.stat().st_mtime for path in (folder, *folder.iterdir()))


def _temporary(kind: str, key: Mapping[str, Any], make: Callable[[Path], Facts]) -> Entry:
    try:
        folder = Path(tempfile.mkdtemp(prefix=f"sightline-{kind}-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        made = _fill(folder, key, make)
    except OSError as error:
        raise SightlineError(
            f"{tempfile.gettempdir()}: {failure(error, 'write')} (TMPDIR names another folder)"
        ) from None
    return Entry(folder, made.facts, made.digests, temporary=True)


def _fill(folder: Path, key: Mapping[str, Any], make: Callable[[Path], Facts]) -> Entry:
    facts = _plain(make(folder))
    digests = {file.name: sha256(file) for file in sorted(folder.iterdir())}
    manifest = {"key": key, "facts": facts, "files": digests}
    (folder / MANIFEST).write_text(json.dumps(manifest, ensure_ascii=False, indent=1), encoding="utf-8")
    return Entry(folder, facts, digests)


def _open(path: Path, key: Mapping[str, Any]) -> Entry | None:
    """The entry, if it is whole."""
    try:
        manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        if manifest["key"] != key or any(sha256(path / name) != known for name, known in manifest["files"].items()):
            return None
        return Entry(path, manifest["facts"], manifest["files"], found=True)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, SightlineError):
        return None
