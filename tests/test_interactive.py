"""At a terminal: each line gets its answer, and a bad line is told of and forgotten."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.commands import WAITS, start

pty = pytest.importorskip("pty")


class Terminal:
    """A program at a pseudo-terminal: what it shows there, with what is typed."""

    def __init__(self, *arguments: object) -> None:
        self.screen, far = pty.openpty()
        self.process = start(*arguments, stdin=far, stdout=far, stderr=far)
        os.close(far)
        self.seen = ""

    def type(self, text: bytes) -> None:
        os.write(self.screen, text)

    def wait_for(self, text: str) -> str:
        """Reads on until `text` is there; all that came up to it since the last time."""
        end = time.monotonic() + WAITS
        while text not in self.seen:
            ready, _, _ = select.select([self.screen], [], [], max(0.0, end - time.monotonic()))
            assert ready, self.seen
            self.seen += os.read(self.screen, 4096).decode(errors="replace")
        before, _, self.seen = self.seen.partition(text)
        return before + text


@pytest.fixture(params=[(), ("--live",)], ids=["whole", "live"])
def terminal(request: pytest.FixtureRequest, trained: Any) -> Iterator[Terminal]:
    one = Terminal("translate", trained("transformer"), "--beam", 2, *request.param)
    yield one
    one.process.kill()
    one.process.wait()
    os.close(one.screen)


def test_a_session(terminal: Terminal) -> None:
    terminal.wait_for("a line at a time; Ctrl-D ends")
    terminal.type(b"a b c\n")
    terminal.wait_for("A B C\r\n")
    terminal.type(b"b \xff\n")
    assert "standard input, line 2: not valid UTF-8" in terminal.wait_for("iconv")
    terminal.type(b"d e\n")
    terminal.wait_for("D E\r\n")
    terminal.type(b"\x04")
    assert terminal.process.wait(timeout=WAITS) == 0


def test_a_line_that_cannot_be_is_told_and_the_next_may_come(trained: Any, tmp_path: Any) -> None:
    terms = tmp_path / "terms.tsv"
    terms.write_text("b\tA B C D E F\n")
    one = Terminal("translate", trained("transformer"), "--glossary", terms, "--max-length", 3)
    try:
        one.wait_for("Ctrl-D ends")
        one.type(b"a b\n")
        assert "standard input, line 1: 'A B C D E F', which must be there" in one.wait_for("max_extra")
        one.type(b"c\n")
        one.wait_for("C\r\n")
        one.type(b"\x04")
        assert one.process.wait(timeout=WAITS) == 0
    finally:
        one.process.kill()
        one.process.wait()
        os.close(one.screen)
