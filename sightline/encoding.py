"""Tokenising a corpus once, in several processes, into files that are memory-mapped from then on.

A part of the data (training, validation) is five plain arrays: for each side `SIDE.ids` (uint16 where the vocabulary
fits, else int32) and `SIDE.offsets` (int64, one more than there are pairs), and `lines` (int64). Where word links are
given, `links.places` (source and target position of each, in the smallest type) and `links.offsets` are two more.
The result does not depend on the number of processes: each gets chunks of text, and they are put together in order.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from sightline.data import Encoded, EncodedPairs, Origins, Side, TokenLinks, encode
from sightline.errors import SightlineError
from sightline.filters import Verdict
from sightline.guidance import Link
from sightline.performance import available_processors
from sightline.readers import Pair
from sightline.tokenizers import Tokenizer

CHUNK = 2_000  # pairs
SMALL = 100_000  # a corpus of fewer pairs is encoded before a second process has started
SIDES = ("source", "target")
LINKS = ("links.places", "links.offsets")


@dataclass(frozen=True)
class Chunk:
    """Consecutive pairs of a corpus, with their lines, for one part of the data; `links` are those of their words."""

    part: int
    corpus: int
    lines: list[int]
    pairs: list[Pair]
    links: list[list[Link]] | None = None


def processes_for(pairs: int) -> int:
    """How many processes are worth starting."""
    return 1 if pairs < SMALL else available_processors()


class Encoders:
    """Encodes chunks in `processes` processes (1: in this one); without a `source` tokenizer, text without a source.

    They are started as programs of their own and not by `multiprocessing`, whose children import the caller's main
    module: a script that calls Sightline without a guard would run again in each of them.
    """

    def __init__(
        self, source: Tokenizer | None, target: Tokenizer, max_length: int, processes: int, open_words: bool = False
    ) -> None:
        self._settings = (source, target, max_length, open_words)
        self._processes = processes
        self._idle: deque[subprocess.Popen[bytes]] = deque()
        self._all: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Encoders:
        if self._processes > 1:
            packed = pickle.dumps(self._settings)
            code = "from sightline.encoding import serve; serve()"
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
            for _ in range(self._processes):
                # In a session of its own: Ctrl-C is for us to answer, and its input ends when we do.
                process = subprocess.Popen(
                    [sys.executable, "-c", code],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    env=environment,
                    start_new_session=True,
                )
                self._all.append(process)
                self._idle.append(process)
                _send(process.stdin, packed)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._all:
            if kind is not None:
                process.kill()
            process.communicate()

    def encode(self, chunks: Iterable[Chunk]) -> Iterator[tuple[Chunk, Encoded]]:
        """Each chunk with its encoding, in order; only a few chunks are in memory at a time."""
        if self._processes <= 1:
            for chunk in chunks:
                yield chunk, encode(chunk.pairs, *self._settings, links=chunk.links)
            return
        waiting: deque[tuple[Chunk, Future[Encoded]]] = deque()
        with ThreadPoolExecutor(self._processes) as threads:
            for chunk in chunks:
                if len(waiting) >= 2 * self._processes:
                    first, future = waiting.popleft()
                    yield first, future.result()
                waiting.append((chunk, threads.submit(self._remotely, chunk)))
            for first, future in waiting:
                yield first, future.result()

    def _remotely(self, chunk: Chunk) -> Encoded:
        process = self._idle.popleft()  # there are as many processes as threads
        try:
            _send(process.stdin, pickle.dumps(([tuple(pair) for pair in chunk.pairs], chunk.links)))
            answer: Encoded = pickle.load(process.stdout)  # type: ignore[arg-type]
        except (OSError, EOFError, pickle.UnpicklingError):
            raise SightlineError("a process that tokenises was ended from outside; is there enough memory?") from None
        self._idle.append(process)
        return answer


def _send(stream: IO[bytes] | None, data: bytes) -> None:
    assert stream is not None
    stream.write(data)
    stream.flush()


def serve() -> None:
    """The other process: tokenizers first, then chunk after chunk of pairs until the input ends."""
    given, answers = sys.stdin.buffer, sys.stdout.buffer
    settings: tuple[Tokenizer | None, Tokenizer, int, bool] = pickle.load(given)
    while True:
        try:
            pairs, links = pickle.load(given)
        except EOFError:
            return
        _send(answers, pickle.dumps(encode([Pair(*pair) for pair in pairs], *settings, links)))


class PartWriter:
    """Writes one part of the data into `folder`, chunk by chunk, its files beginning with `name`.

    `longest` is given for a part with links: the most tokens of a side.
    """

    def __init__(
        self, folder: Path, name: str, sizes: tuple[int, int], corpora: int, longest: int | None = None
    ) -> None:
        self._types = tuple(ids_type(size) for size in sizes)
        self._places = None if longest is None else ids_type(longest)
        self._totals = [0, 0]
        self._links = 0
        self.counts = [0] * corpora  # pairs kept of each
        self._files = ExitStack()
        names = [f"{side}.{what}" for side in SIDES for what in ("ids", "offsets")]
        self._streams: dict[str, IO[bytes]] = {}
        for one in (*names, "lines", *(LINKS if longest is not None else ())):
            self._streams[one] = self._files.enter_context((folder / f"{name}.{one}").open("wb"))
        for one in self._streams:
            if one.endswith(".offsets"):
                self._streams[one].write(np.zeros(1, dtype=np.int64).tobytes())

    def __enter__(self) -> PartWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()

    def append(self, chunk: Chunk, found: Encoded) -> None:
        """Adds what was kept of a chunk."""
        for place, side in enumerate(SIDES):
            self._streams[f"{side}.ids"].write(found.ids[place].astype(self._types[place]).tobytes())
            offsets = self._totals[place] + np.cumsum(found.lengths[place], dtype=np.int64)
            self._streams[f"{side}.offsets"].write(offsets.tobytes())
            self._totals[place] += len(found.ids[place])
        if self._places is not None and found.links is not None and found.link_counts is not None:
            self._streams["links.places"].write(found.links.astype(self._places).tobytes())
            offsets = self._links + np.cumsum(found.link_counts, dtype=np.int64)
            self._streams["links.offsets"].write(offsets.tobytes())
            self._links += len(found.links)
        kept = found.verdicts == Verdict.TRAIN
        self._streams["lines"].write(np.array(chunk.lines, dtype=np.int64)[kept].tobytes())
        self.counts[chunk.corpus] += int(kept.sum())


def ids_type(size: int) -> type[np.uint16] | type[np.int32]:
    """The smallest type that holds the ids of a vocabulary."""
    return np.uint16 if size <= 2**16 else np.int32


def map_part(
    folder: Path, name: str, sizes: tuple[int, int], origins: Origins, longest: int | None = None, sources: int = 1
) -> EncodedPairs:
    """What a `PartWriter` wrote, mapped into memory: only what is looked at is read."""

    def mapped(what: str, kind: Any) -> NDArray[Any]:
        path = folder / f"{name}.{what}"
        if not path.stat().st_size:
            return np.empty(0, dtype=kind)
        # Through the plain array: each step of a memmap's own indexing would cost microseconds.
        return np.asarray(np.memmap(path, dtype=kind, mode="r"))

    source, target = (
        Side(mapped(f"{side}.ids", ids_type(size)), mapped(f"{side}.offsets", np.int64))
        for side, size in zip(SIDES, sizes, strict=True)
    )
    links = None
    if longest is not None:
        links = TokenLinks(mapped(LINKS[0], ids_type(longest)).reshape(-1, 2), mapped(LINKS[1], np.int64))
    return EncodedPairs(source, target, mapped("lines", np.int64), origins, links, sources)


def part_files(name: str, linked: bool = False) -> Sequence[str]:
    """The files that decide what is learnt from a part: all but the lines."""
    sides = [f"{side}.{what}" for side in SIDES for what in ("ids", "offsets")]
    return [f"{name}.{what}" for what in (*sides, *(LINKS if linked else ()))]
