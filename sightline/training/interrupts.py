"""Ctrl-C and termination as a wish that the loop grants at the next good moment."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from sightline.launch import launched


class Interrupted(BaseException):
    """Raised within `Stop.at_once` when a signal comes; like KeyboardInterrupt it passes by `except Exception`."""


class Stop:
    """`requested` turns True at the first signal; a second one aborts with KeyboardInterrupt.

    Under torchrun a signal is only `wished`, and `requested` when all ranks know of it. There a second one means
    nothing: torchrun passes on what the terminal has sent to everyone anyway, and kills who takes too long.
    """

    def __init__(self, shared: bool = False) -> None:
        self.requested = False
        self.wished = False
        self._shared = shared
        self._at_once = False

    def handle(self, number: int, frame: FrameType | None) -> None:
        """The signal handler."""
        if self.wished:
            if self._shared:
                return
            raise KeyboardInterrupt
        self.wished = True
        self.requested = not self._shared
        if self._at_once:
            raise Interrupted

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Work that may be dropped and done again, such as a validation: the first signal leaves it."""
        self._at_once = True
        try:
            if self.wished:
                raise Interrupted
            yield
        finally:
            self._at_once = False


@contextmanager
def stop_signals() -> Iterator[Stop]:
    """Listens for SIGINT and SIGTERM, and restores their handlers afterwards; only the main thread can listen."""
    stop = Stop(shared=launched() is not None)
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    previous = {number: signal.signal(number, stop.handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
