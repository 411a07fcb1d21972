"""Reading and writing with good manners: errors name the file and the line, writes happen whole or not at all."""

from __future__ import annotations

import errno
import gzip
import hashlib
import os
import secrets
import shutil
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

from sightline.errors import SightlineError

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
GZIP_MAGIC = b"\x1f\x8b"


def read_lines(path: Path) -> Iterator[str]:
    """The lines of a UTF-8 file without their ends, unzipped when the name ends in `.gz`."""
    zipped = path.suffix == ".gz"
    lines = 0
    try:
        with gzip.open(path, "rb") if zipped else open(path, "rb") as stream:
            for line in decode_lines(stream, str(path)):
                yield line
                lines += 1
    except (gzip.BadGzipFile, EOFError, zlib.error):
        where = f"{path}, after line {lines}" if lines else str(path)
        raise SightlineError(f"{where}: broken gzip data; the file may be cut short or not gzipped at all") from None
    except OSError as error:
        raise SightlineError(f"{path}: {_reason(error, 'read')}") from None


def decode_lines(stream: Iterable[bytes], name: str) -> Iterator[str]:
    """Lines of bytes as text: the same as `read_lines` for a stream such as standard input, called `name` in errors.

    A line ends at a line feed only (a carriage return before it goes too): `str.splitlines` would also cut at
    characters such as U+2028 that stand inside sentences, and the two sides of a corpus would slip apart.
    """
    for number, raw in enumerate(stream, start=1):
        line = raw.removeprefix(BYTE_ORDER_MARK) if number == 1 else raw
        line = line.removesuffix(b"\n").removesuffix(b"\r")
        try:
            yield line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise SightlineError(f"{name}, line {number}: {_not_utf8(line, error)}") from None


def _not_utf8(line: bytes, error: UnicodeDecodeError) -> str:
    if line.startswith(GZIP_MAGIC):
        return "this is gzipped data; give the file a name that ends in .gz"
    column = len(line[: error.start].decode("utf-8")) + 1
    byte = line[error.start]
    return f"not valid UTF-8 (byte 0x{byte:02x} at column {column}); convert the file to UTF-8, for example with iconv"


def sha256(path: Path) -> str:
    """The SHA-256 digest of a file, in hexadecimal."""
    try:
        with open(path, "rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise SightlineError(f"{path}: {_reason(error, 'read')}") from None


def write_bytes(path: Path, data: bytes) -> None:
    """Writes a file whole or not at all."""
    with replacing(path) as temporary, open(temporary, "wb") as stream:
        stream.write(data)


def write_text(path: Path, text: str) -> None:
    """Writes a UTF-8 file whole or not at all."""
    write_bytes(path, text.encode("utf-8"))


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Gives a path beside `path` to write to; it takes the place of `path` when the block ends well, else it goes.

    Whoever reads `path` sees the old content or the new, never a part, even after a kill or a loss of power.
    A device or a pipe (`/dev/null`, `/dev/stdout`) is written to directly: it must not be replaced by a file.
    """
    target = Path(os.path.realpath(path))
    temporary = _beside(target)
    try:
        with _explained(path, temporary, target):
            existing = target.exists()
            if existing and not target.is_file():
                if target.is_dir():
                    raise SightlineError(f"{path}: cannot write: this is a folder, name a file")
                yield target
                return
            yield temporary
            if existing:
                shutil.copymode(target, temporary)
            _sync(temporary)
            os.replace(temporary, target)
            _sync(target.parent)
    finally:
        with suppress(OSError):
            temporary.unlink()


def _beside(target: Path) -> Path:
    # The same folder, because a rename is atomic within one file system only.
    return target.with_name(f".{target.name}.tmp-{secrets.token_hex(4)}")


def _sync(path: Path) -> None:
    """Waits until a file, or a folder's list of names, is on the disk."""
    # Not every file system can sync a folder, and its files are safe by then.
    with suppress(OSError) if path.is_dir() else nullcontext():
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def _explained(path: Path, *ours: Path) -> Iterator[None]:
    """Turns a failure to write into a message about `path`; errors that name a file not in `ours` pass."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        if error.filename is not None and not any(str(error.filename).startswith(str(own)) for own in ours):
            raise
        raise SightlineError(f"{path}: {_reason(error, 'write')}") from None


def _reason(error: OSError, verb: str) -> str:
    """Why a file cannot be read or written, in plain words."""
    if error.errno == errno.ENOENT:
        return "no such file" if verb == "read" else "cannot write: its folder does not exist, make it first"
    if error.errno == errno.EISDIR:
        return f"cannot {verb}: this is a folder, name a file"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"no permission to {verb} it"
    if error.errno == errno.ENOSPC:
        return "cannot write: the disk is full"
    return f"cannot {verb}: {error.strerror or error}"


def check_writable(*paths: Path | None) -> None:
    """Refuses files that could not be written later, when the work is done; it tries by writing nothing beside them."""
    for path in paths:
        if path is None:
            continue
        target = Path(os.path.realpath(path))
        if target.is_dir():
            raise SightlineError(f"{path}: cannot write: this is a folder, name a file")
        if target.exists() and not target.is_file():
            continue  # a device or a pipe
        beside = _beside(target)
        with _explained(path, beside):
            beside.touch(exist_ok=False)
            beside.unlink()


def make_folder(path: Path) -> None:
    """Makes a folder, and those above it, unless it is there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SightlineError(f"{path}: cannot make the folder: {error.strerror}") from None
