"""Lines as they arrive: whatever is there is taken together, and nothing waits for more."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from sightline.files import decode_lines


def arriving(stream: BinaryIO, name: str, most: int) -> Iterator[list[str]]:
    """Groups of at most `most` lines of UTF-8 text: all that have come by the time the last group was dealt with.

    Someone who types gets an answer to each line; a file that is piped in comes in large groups, which translate
    faster. A line that is not UTF-8 is an error only after the lines before it were handed out.
    """
    ready: queue.Queue[str | BaseException | None] = queue.Queue(maxsize=2 * most)

    def read(lines: Iterable[str]) -> None:
        try:
            for line in lines:
                ready.put(line)
            ready.put(None)
        except BaseException as error:  # it is raised again where the lines are used
            ready.put(error)

    threading.Thread(target=read, args=(decode_lines(stream, name),), daemon=True).start()
    while True:
        group: list[str] = []
        item = ready.get()
        while isinstance(item, str):
            group.append(item)
            if len(group) == most:
                break
            try:
                item = ready.get_nowait()
            except queue.Empty:
                break
        if group:
            yield group
        if item is None:
            return
        if isinstance(item, BaseException):
            raise item
