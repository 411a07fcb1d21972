"""Lines as they arrive."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator

import pytest

from sightline.errors import SightlineError
from sightline.streams import arriving


def test_all_lines_come_in_order_and_no_group_is_too_large() -> None:
    text = "".join(f"{number}\n" for number in range(1000))
    groups = list(arriving(io.BytesIO(text.encode()), "x", 7))
    assert [line for group in groups for line in group] == text.split("\n")[:-1]
    assert max(len(group) for group in groups) <= 7
    assert all(groups)


@pytest.mark.parametrize(
    ("given", "expected"), [(b"", []), (b"\n", [""]), (b"a", ["a"]), (b"a\r\n\r\nb", ["a", "", "b"])]
)
def test_line_ends(given: bytes, expected: list[str]) -> None:
    assert [line for group in arriving(io.BytesIO(given), "x", 100) for line in group] == expected


def test_nothing_waits_for_more() -> None:
    """Each line is handed out while the pipe is still open and empty: were it not, this would never end."""
    reading, writing = os.pipe()
    with open(reading, "rb") as stream, open(writing, "wb", buffering=0) as pipe:
        groups = arriving(stream, "x", 100)
        for line in ("one", "two"):
            pipe.write(f"{line}\n".encode())
            assert next(groups) == [line]
        pipe.close()
        assert list(groups) == []


def test_a_bad_line_is_told_after_the_lines_before_it() -> None:
    groups = arriving(io.BytesIO(b"a\nb\n\xff\nc\n"), "standard input", 2)
    found: list[str] = []
    with pytest.raises(SightlineError, match="standard input, line 3: not valid UTF-8"):
        found.extend(line for group in groups for line in group)
    assert found == ["a", "b"]


def test_what_the_reader_raises_is_raised_here() -> None:
    class Broken(io.RawIOBase):
        def __iter__(self) -> Iterator[bytes]:  # type: ignore[override]
            yield b"a\n"
            raise OSError(5, "Input/output error")

    found: list[str] = []
    with pytest.raises(OSError, match="Input/output error"):
        found.extend(line for group in arriving(Broken(), "x", 1) for line in group)  # type: ignore[arg-type]
    assert found == ["a"]
