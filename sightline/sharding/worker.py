"""The one who translates shards: a process that loads the model once and answers until nobody asks any more."""

from __future__ import annotations

import os
import pickle
import queue
import sys
import threading
from collections.abc import Sequence
from typing import Any, BinaryIO

from sightline.errors import SightlineError
from sightline.sharding.job import Failure, Job, Shard, Translated, shortened, translated
from sightline.translation import Translation, nothing
from sightline.translator import load


class ShardTranslator:
    """Translates shards one at a time. What a shard becomes depends on nothing but its own lines."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.translator = load(job.model, **job.loading)
        if job.align:
            self.translator.check_attention()
        self._stream([""], 1)  # options that cannot be are told now and not of every line

    def __call__(self, shard: Shard) -> Translated:
        """The shard's translation; lines that cannot be translated come out empty and are told."""
        lines, failures = list(shard.lines), []
        for index, line in enumerate(shard.lines):
            reason = self.translator.refusal(line)
            if reason is not None:
                failures.append(Failure(shard.first + index, reason, shortened(line)))
                lines[index] = ""
        found = self._attempt(lines, shard.first, failures)
        for failure in failures:
            index = failure.line - shard.first
            found[index] = nothing(shard.lines[index], self.job.align)
        return translated(self.job, shard, found, failures)

    def _attempt(self, lines: Sequence[str], first: int, failures: list[Failure]) -> list[Translation]:
        """Translations of lines; where something goes wrong, of halves of them, down to the line that is the cause."""
        try:
            return self._stream(lines, first)
        except Exception as error:  # whatever it is, it must not take the other lines with it
            if len(lines) == 1:
                failures.append(Failure(first, _told(error), shortened(lines[0])))
                return [nothing(lines[0], self.job.align)]
        middle = len(lines) // 2
        return [
            *self._attempt(lines[:middle], first, failures),
            *self._attempt(lines[middle:], first + middle, failures),
        ]

    def _stream(self, lines: Sequence[str], first: int) -> list[Translation]:
        return list(self.translator.stream(lines, self.job.align, first=first, **self.job.options))


def _told(error: Exception) -> str:
    lines = str(error).splitlines() or [""]
    return lines[0] if isinstance(error, SightlineError) else f"{type(error).__name__}: {lines[0]}"


def serve() -> None:
    """A worker process: a job comes in first, and None or a mistake goes out; then shards, and their translations."""
    given = sys.stdin.buffer
    # What a library prints must not get between the answers.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    messages: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(given, messages), daemon=True).start()
    try:
        translate = ShardTranslator(messages.get())
    except SightlineError as error:
        _send(answers, str(error))
    else:
        _send(answers, None)
        while True:
            _send(answers, translate(messages.get()))
    threading.Event().wait()  # until the other side has read the mistake, and closes


def _receive(given: BinaryIO, messages: queue.SimpleQueue[Any]) -> None:
    """Takes messages in. When whoever sends them ends, so does this process, at once and in the midst of a shard."""
    try:
        while True:
            messages.put(pickle.load(given))
    except (EOFError, OSError, pickle.UnpicklingError):
        os._exit(0)


def _send(answers: BinaryIO, message: Any) -> None:
    try:
        pickle.dump(message, answers)
        answers.flush()
    except OSError:  # nobody is there any more
        os._exit(0)
