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
from sightline.plan import Asked, Plan
from sightline.sharding.job import Failure, Job, Shard, Translated, shortened, translated
from sightline.translation import Translation
from sightline.translator import load
from sightline.wishes import parse_list


class ShardTranslator:
    """Translates shards one at a time. What a shard becomes depends on nothing but its own lines."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.translator = load(job.model, **job.loading)
        if job.align:
            self.translator.check_attention()
        # Options that cannot be are told now and not of every line.
        self.plan = self.translator.plan(align=job.align, **job.shared)

    def __call__(self, shard: Shard) -> Translated:
        """The shard's translation; lines that cannot be translated come out empty and are told."""
        files = self.job.beside
        lists = {name: parse_list(name, lines, str(files[name]), shard.first) for name, lines in shard.beside.items()}
        plan = self.plan.for_lines(shard.first, lists)
        asked, failures = [], []
        refused = {failure.line for failure in shard.refused}
        for number, line in enumerate(shard.lines, shard.first):
            if number in refused:
                continue
            try:
                asked.append((number, plan.read(line, number)))
            except SightlineError as error:
                failures.append(Failure(number, str(error), shortened(line)))
        found = dict(self._attempt(asked, plan, failures))
        numbers = range(shard.first, shard.first + len(shard.lines))
        every = [found.get(number) or self.job.nothing(shard, number) for number in numbers]
        return translated(self.job, shard, every, failures)

    def _attempt(
        self, asked: Sequence[tuple[int, Asked]], plan: Plan, failures: list[Failure]
    ) -> list[tuple[int, Translation]]:
        """Translations of lines by their numbers; where something goes wrong, of halves, down to the line that is the
        cause."""
        if not asked:
            return []
        try:
            found = list(self.translator.translated([one for _, one in asked], plan))
            return [(number, one) for (number, _), one in zip(asked, found, strict=True)]
        except Exception as error:  # whatever it is, it must not take the other lines with it
            if len(asked) == 1:
                ((number, one),) = asked
                failures.append(Failure(number, _told(error), shortened(one.line)))
                return []
        middle = len(asked) // 2
        return [*self._attempt(asked[:middle], plan, failures), *self._attempt(asked[middle:], plan, failures)]


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
