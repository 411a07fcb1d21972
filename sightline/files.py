"""Reading and writing with good manners: errors name the file and the line, writes happen whole or not at all."""

from __future__ import annotations

import errno
import gzip
import hashlib
import io
import os
import secrets
import shutil
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, BinaryIO

from sightline.errors import SightlineError

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
GZIP_MAGIC, ZSTD_MAGIC = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
PACKED = {".gz": "gzip", ".zst": "zstd"}
BLOCK = 2**20

Watch = Callable[[int], None]


def ignore(count: int) -> None:
    """Watches nothing."""


def read_lines(path: Path, watch: Watch = ignore) -> Iterator[str]:
    """The lines of a UTF-8 file without their ends, unpacked when the name ends in `.gz` or `.zst`."""
    lines = 0
    with unpacked(path, lambda: f", after line {lines}" if lines else "", watch) as stream:
        for line in decode_lines(stream, str(path)):
            yield line
            lines += 1


@contextmanager
def unpacked(path: Path, place: Callable[[], str] = lambda: "", watch: Watch = ignore) -> Iterator[BinaryIO]:
    """A file's bytes, unpacked when the name ends in `.gz` or `.zst`.

    `place` says how far the reader has come, for messages about broken data; `watch` is told of the bytes read.
    """
    kind = PACKED.get(path.suffix.lower(), "")
    try:
        with open(path, "rb", buffering=0) as raw:
            stream: BinaryIO = io.BufferedReader(_Watched(raw, watch), BLOCK)
            if kind == "gzip":
                stream = gzip.GzipFile(fileobj=stream)  # type: ignore[assignment]
            elif kind == "zstd":
                stream = io.BufferedReader(_Zstd(stream, _zstd(path)), BLOCK)
            yield stream
    except (gzip.BadGzipFile, EOFError, zlib.error, _ZstdError):
        message = f"broken {kind} data; the file may be cut short or not packed with {kind} at all"
        raise SightlineError(f"{path}{place()}: {message}") from None
    except OSError as error:
        raise SightlineError(f"{path}: {failure(error, 'read')}") from None


class _Watched(io.RawIOBase):
    """A raw file that tells how many bytes were read."""

    def __init__(self, raw: io.RawIOBase | io.FileIO, watch: Watch) -> None:
        self._raw, self._watch = raw, watch

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self._raw.readinto(buffer) or 0
        self._watch(count)
        return count


class _ZstdError(Exception):
    pass


def _zstd(path: Path) -> Callable[[], Any]:
    """Starts the unpacking of one zstd frame: Python's own from 3.14 on, else that of the extra."""
    if sys.version_info >= (3, 14):
        from compression import zstd

        return zstd.ZstdDecompressor
    try:
        import zstandard
    except ImportError:
        raise SightlineError(f"{path}: reading .zst needs zstandard: pip install 'sightline[zstd]'") from None
    return lambda: zstandard.ZstdDecompressor(max_window_size=2**31).decompressobj()


class _Zstd(io.RawIOBase):
    """The content of a zstd file of one or more frames. Unlike the libraries' readers it notices a missing end."""

    def __init__(self, packed: BinaryIO, start: Callable[[], Any]) -> None:
        self._packed, self._start = packed, start
        self._frame: Any = None
        self._rest, self._ready = b"", memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready:
            if self._frame is not None and self._frame.eof:
                self._rest, self._frame = self._frame.unused_data, None
            # Small pieces, since a piece may unpack to many times its size.
            data, self._rest = self._rest or self._packed.read(BLOCK // 64), b""
            if not data and self._frame is None:
                return 0
            if not data:
                raise EOFError
            self._frame = self._frame or self._start()
            try:
                self._ready = memoryview(self._frame.decompress(data))
            except Exception as error:  # each library has its own
                raise _ZstdError from error
        count = min(len(buffer), len(self._ready))
        buffer[:count], self._ready = self._ready[:count], self._ready[count:]
        return count


def decode_lines(stream: Iterable[bytes], name: str, first: int = 1) -> Iterator[str]:
    """Lines of bytes as text: the same as `read_lines` for a stream such as standard input, called `name` in errors.

    The first one's number there is `first`.

    A line ends at a line feed only (a carriage return before it goes too): `str.splitlines` would also cut at
    characters such as U+2028 that stand inside sentences, and the two sides of a corpus would slip apart.
    """
    for number, raw in enumerate(stream, start=first):
        line = raw.removeprefix(BYTE_ORDER_MARK) if number == 1 else raw
        line = line.removesuffix(b"\n").removesuffix(b"\r")
        try:
            yield line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise SightlineError(f"{name}, line {number}: {not_utf8(line, error)}") from None


def not_utf8(line: bytes, error: UnicodeDecodeError) -> str:
    """What is wrong with a line of bytes that are no text, and how to mend it."""
    if line.startswith(GZIP_MAGIC):
        return "this is gzipped data; give the file a name that ends in .gz"
    if line.startswith(ZSTD_MAGIC):
        return "this is zstd data; give the file a name that ends in .zst"
    column = len(line[: error.start].decode("utf-8")) + 1
    byte = line[error.start]
    return f"not valid UTF-8 (byte 0x{byte:02x} at column {column}); convert the file to UTF-8, for example with iconv"


def sha256(path: Path) -> str:
    """The SHA-256 digest of a file, in hexadecimal."""
    try:
        with open(path, "rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise SightlineError(f"{path}: {failure(error, 'read')}") from None


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
        raise SightlineError(f"{path}: {failure(error, 'write')}") from None


def failure(error: OSError, verb: str) -> str:
    """Why a file cannot be read or written, in plain words."""
    if error.errno == errno.ENOENT:
        return "no such file" if verb == "read" else "cannot write: its folder does not exist, make it first"
    if error.errno == errno.EISDIR:
        return f"cannot {verb}: this is a folder, name a file"
    if error.errno == errno.ENOTDIR:
        return f"cannot {verb}: what should be its folder is a file"
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


def check_folder(path: Path) -> None:
    """Refuses a folder that could not be made, or written to, later, when the work is done."""
    place = path.absolute()
    while not place.exists():
        place = place.parent
    if not place.is_dir():
        raise SightlineError(f"{path}: cannot make the folder: {place.name} is a file; choose another place")
    if not os.access(place, os.W_OK | os.X_OK):
        raise SightlineError(f"{path}: no permission to write in {place.name or place}; choose another place")
    try:  # some file systems refuse though permissions allow it
        os.rmdir(tempfile.mkdtemp(dir=place))
    except OSError as error:
        raise SightlineError(f"{path}: cannot write in {place}: {error.strerror}; choose another place") from None


def make_folder(path: Path) -> None:
    """Makes a folder, and those above it, unless it is there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SightlineError(f"{path}: cannot make the folder: {error.strerror}") from None
