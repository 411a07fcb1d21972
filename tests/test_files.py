"""Reading and writing: what a user sees when a file is missing, broken or cannot be written."""

from __future__ import annotations

import errno
import gzip
import hashlib
import os
from pathlib import Path

import pytest

from sightline.errors import SightlineError
from sightline.files import (
    check_writable,
    decode_lines,
    read_lines,
    replacing,
    sha256,
    write_bytes,
    write_text,
)


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def half_written(path: Path) -> None:
    path.write_text("half")
    raise ZeroDivisionError


class TestRead:
    def test_lines_end_at_line_feeds_only(self, tmp_path: Path) -> None:
        path = tmp_path / "text"
        path.write_bytes("one\r\ntwo\u2028still two\x0b\x85\n\n last ".encode())
        assert list(read_lines(path)) == ["one", "two\u2028still two\x0b\x85", "", " last "]

    def test_a_byte_order_mark_is_dropped_at_the_start_only(self, tmp_path: Path) -> None:
        path = tmp_path / "text"
        path.write_bytes(b"\xef\xbb\xbfone\n\xef\xbb\xbftwo\n")
        assert list(read_lines(path)) == ["one", "\ufefftwo"]

    def test_gzip(self, tmp_path: Path) -> None:
        path = tmp_path / "text.gz"
        path.write_bytes(gzip.compress("größer\nzwei\n".encode()))
        assert list(read_lines(path)) == ["größer", "zwei"]

    def test_empty_file(self, tmp_path: Path) -> None:
        (tmp_path / "empty").touch()
        assert list(read_lines(tmp_path / "empty")) == []

    def test_long_line(self, tmp_path: Path) -> None:
        path = tmp_path / "text"
        path.write_text("x" * 1_000_000)
        assert [len(line) for line in read_lines(path)] == [1_000_000]

    def test_a_stream_has_a_name_in_errors(self) -> None:
        with pytest.raises(SightlineError, match="standard input, line 2: not valid UTF-8"):
            list(decode_lines([b"fine\n", b"\xff\n"], "standard input"))


class TestReadErrors:
    def test_missing(self, tmp_path: Path) -> None:
        with pytest.raises(SightlineError, match=r"missing\.txt: no such file"):
            list(read_lines(tmp_path / "missing.txt"))

    def test_folder(self, tmp_path: Path) -> None:
        with pytest.raises(SightlineError, match="this is a folder, name a file"):
            list(read_lines(tmp_path))

    def test_permission(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: object, **__: object) -> None:
            raise PermissionError(errno.EACCES, "Permission denied", str(tmp_path / "text"))

        monkeypatch.setattr("builtins.open", refuse)
        with pytest.raises(SightlineError, match="text: no permission to read it"):
            list(read_lines(tmp_path / "text"))

    def test_invalid_utf8_names_line_byte_and_column(self, tmp_path: Path) -> None:
        path = tmp_path / "latin1.txt"
        path.write_bytes("good\nprüf ".encode() + b"\xff\n")
        with pytest.raises(SightlineError) as caught:
            list(read_lines(path))
        assert str(caught.value) == (
            f"{path}, line 2: not valid UTF-8 (byte 0xff at column 6); "
            "convert the file to UTF-8, for example with iconv"
        )

    def test_gzip_without_its_suffix(self, tmp_path: Path) -> None:
        path = tmp_path / "text"
        path.write_bytes(gzip.compress(b"text"))
        with pytest.raises(SightlineError, match=r"line 1: this is gzipped data; .* ends in \.gz"):
            list(read_lines(path))

    def test_not_gzip(self, tmp_path: Path) -> None:
        path = tmp_path / "text.gz"
        path.write_bytes(b"plain text")
        with pytest.raises(SightlineError, match=r"text\.gz: broken gzip data"):
            list(read_lines(path))

    @pytest.mark.parametrize("damage", ["cut", "changed"])
    def test_damaged_gzip(self, tmp_path: Path, damage: str) -> None:
        path = tmp_path / "text.gz"
        data = bytearray(gzip.compress("".join(f"line {number}\n" for number in range(99_999)).encode()))
        if damage == "cut":
            del data[-1000:]
        else:
            data[-1000:-900] = bytes(100)
        path.write_bytes(data)
        with pytest.raises(SightlineError, match=r"text\.gz, after line \d+: broken gzip data"):
            list(read_lines(path))


class TestWrite:
    def test_text_and_bytes(self, tmp_path: Path) -> None:
        write_text(tmp_path / "text", "größer\n")
        write_bytes(tmp_path / "bytes", b"\x00\xff")
        assert (tmp_path / "text").read_bytes() == "größer\n".encode()
        assert (tmp_path / "bytes").read_bytes() == b"\x00\xff"
        assert names(tmp_path) == ["bytes", "text"]

    def test_replacing_keeps_the_old_content_until_the_end(self, tmp_path: Path) -> None:
        path = tmp_path / "text"
        path.write_text("old")
        path.chmod(0o640)
        with replacing(path) as temporary:
            temporary.write_text("new")
            assert path.read_text() == "old"
            assert temporary.parent == tmp_path
        assert path.read_text() == "new"
        assert path.stat().st_mode & 0o777 == 0o640
        assert names(tmp_path) == ["text"]

    def test_failure_leaves_the_old_content(self, tmp_path: Path) -> None:
        path = tmp_path / "text"
        path.write_text("old")
        with pytest.raises(ZeroDivisionError), replacing(path) as temporary:
            half_written(temporary)
        assert path.read_text() == "old"
        assert names(tmp_path) == ["text"]

    def test_a_link_stays_a_link(self, tmp_path: Path) -> None:
        (tmp_path / "real").write_text("old")
        (tmp_path / "link").symlink_to("real")
        write_text(tmp_path / "link", "new")
        assert (tmp_path / "link").is_symlink()
        assert (tmp_path / "real").read_text() == "new"

    def test_a_device_is_not_replaced(self) -> None:
        write_text(Path(os.devnull), "gone")
        assert not Path(os.devnull).is_file()
        assert Path(os.devnull).exists()

    def test_missing_folder(self, tmp_path: Path) -> None:
        with pytest.raises(SightlineError, match=r"b\.txt: cannot write: its folder does not exist"):
            write_text(tmp_path / "a" / "b.txt", "text")

    def test_folder_in_the_way(self, tmp_path: Path) -> None:
        with pytest.raises(SightlineError, match="this is a folder, name a file"):
            write_text(tmp_path, "text")

    def test_file_in_place_of_a_folder(self, tmp_path: Path) -> None:
        (tmp_path / "a").touch()
        with pytest.raises(SightlineError, match=r"b\.txt: cannot write: what should be its folder is a file"):
            write_text(tmp_path / "a" / "b.txt", "text")

    def test_full_disk(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def full(_: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        (tmp_path / "text").write_text("old")
        with pytest.raises(SightlineError, match="text: cannot write: the disk is full"):
            write_text(tmp_path / "text", "new")
        assert (tmp_path / "text").read_text() == "old"
        assert names(tmp_path) == ["text"]

    def test_checked_before_the_work(self, tmp_path: Path) -> None:
        (tmp_path / "old").write_text("old")
        check_writable(None, tmp_path / "new", tmp_path / "old", Path("/dev/null"))
        assert names(tmp_path) == ["old"]
        with pytest.raises(SightlineError, match="cannot write: its folder does not exist"):
            check_writable(tmp_path / "missing" / "new")
        with pytest.raises(SightlineError, match="cannot write: this is a folder"):
            check_writable(tmp_path)
        with pytest.raises(SightlineError, match="cannot write: what should be its folder is a file"):
            check_writable(tmp_path / "old" / "new")

    def test_errors_of_other_files_pass(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError), replacing(tmp_path / "text"):
            (tmp_path / "other").read_text()

    def test_a_closed_pipe_is_not_about_the_file(self, tmp_path: Path) -> None:
        with pytest.raises(BrokenPipeError), replacing(tmp_path / "text"):
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")


def test_sha256(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"content")
    assert sha256(tmp_path / "data") == hashlib.sha256(b"content").hexdigest()
    with pytest.raises(SightlineError, match="no such file"):
        sha256(tmp_path / "missing")
