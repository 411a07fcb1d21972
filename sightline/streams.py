"""Text as it comes and goes: lines that arrive are taken together, and what is written is shown as it gets certain."""

from __future__ import annotations

import queue
import re
import threading
from collections.abc import Iterable, Iterator
from io import BufferedReader
from typing import BinaryIO

from sightline.files import decode_lines
from sightline.hypothesis import Streamed
from sightline.tokenizers import Tokenizer


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


def arriving_words(stream: BufferedReader, name: str) -> Iterator[str | None]:
    """Words of UTF-8 text, each as soon as the space after it has come; None ends a line."""
    number, rest, open_line = 1, b"", False
    while chunk := stream.read1():
        *whole, rest = re.split(rb"([ \t\r\n])", rest + chunk)
        for word, space in zip(whole[::2], whole[1::2], strict=True):
            if word:
                yield _word(word, name, number)
            open_line = space != b"\n" and (open_line or bool(word))
            if space == b"\n":
                yield None
                number += 1
    if rest:
        yield _word(rest, name, number)
    if rest or open_line:
        yield None


def _word(raw: bytes, name: str, number: int) -> str:
    (word,) = decode_lines([raw], name, number)
    return word


def text_parts(tokenizer: Tokenizer, parts: Iterable[Streamed]) -> Iterator[str]:
    """What is being written, as text: each part as soon as it is certain."""
    ids: list[int] = []
    shown = ""
    for part in parts:
        ids += part.tokens
        whole = tokenizer.decode(ids)
        # Bytes of a character that is not yet complete stand as a replacement sign.
        certain = whole if part.hypothesis else whole.rstrip("\ufffd")
        if len(certain) > len(shown) and certain.startswith(shown):
            yield certain[len(shown) :]
            shown = certain
