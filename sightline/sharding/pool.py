"""Worker processes on this machine, and what is done when one of them dies.

They are programs of their own (see `docs/decisions.md`) in sessions of their own: Ctrl-C is for the parent to answer.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, as_completed, wait
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from sightline.errors import SightlineError
from sightline.performance import SHARE, available_processors
from sightline.sharding.job import Job, Shard, Translated, lost

PROGRAM = "from sightline.sharding.worker import serve; serve()"
ATTEMPTS = 2  # a shard is tried once more with a new worker


class WorkerDiedError(Exception):
    """A worker ended before it answered; the message tells how, as in "was killed by SIGKILL"."""


class Worker:
    """One worker process. `place` tells workers of the same pool apart, from 0."""

    def __init__(self, place: int, workers: int) -> None:
        self.place = place
        self._process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment(place, workers),
            start_new_session=True,
        )

    def ask(self, message: Job | Shard) -> Any:
        """The worker's answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            pickle.dump(message, self._process.stdin)
            self._process.stdin.flush()
            return pickle.load(self._process.stdout)
        except (OSError, EOFError, pickle.UnpicklingError):
            raise WorkerDiedError(self._end()) from None

    def kill(self) -> None:
        """Ends it where it is."""
        self._process.kill()

    def close(self) -> None:
        """Lets an idle one end, and waits for it."""
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            with suppress(OSError):  # what a dead one did not read
                stream.close()
        self._process.wait()

    def _end(self) -> str:
        self.close()
        code = self._process.returncode
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


class Pool:
    """Up to `workers` processes, each started when it is first needed."""

    def __init__(self, job: Job, workers: int) -> None:
        self._job, self._count = job, workers
        self._places = deque(range(workers))
        self._idle: deque[Worker] = deque()
        self._workers: list[Worker] = []
        self._closed = False
        self._lock = threading.Lock()

    def __enter__(self) -> Pool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._kill()
        for worker in self._workers:
            worker.close()

    def translate(self, shards: Iterable[Shard]) -> Iterator[Translated]:
        """The shards' translations as they are done; no more than two shards a worker are in memory."""
        threads = ThreadPoolExecutor(self._count)
        waiting: set[Future[Translated]] = set()
        try:
            for shard in shards:
                if len(waiting) >= 2 * self._count:
                    done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                    yield from (future.result() for future in done)
                waiting.add(threads.submit(self._translated, shard))
            yield from (future.result() for future in as_completed(waiting))
        except BaseException:
            self._kill()  # else the threads would wait for their workers' answers
            raise
        finally:
            threads.shutdown(cancel_futures=True)

    def _translated(self, shard: Shard) -> Translated:
        """A shard's translation, by a second worker if the first one dies; if both do, the shard is lost."""
        for _ in range(ATTEMPTS):
            worker = self._ready()
            try:
                answer: Translated = worker.ask(shard)
            except WorkerDiedError as death:
                self._places.append(worker.place)
                reason = f"{ATTEMPTS} workers died over {shard.place}; the last {death}"
            else:
                self._idle.append(worker)
                return answer
        return lost(self._job, shard, reason)

    def _ready(self) -> Worker:
        """A worker that waits for work: an idle one, or a new one that has loaded the model."""
        try:
            return self._idle.pop()
        except IndexError:
            worker = self._start()
        try:
            mistake = worker.ask(self._job)
        except WorkerDiedError as death:
            raise SightlineError(
                f"a worker process {death} while it loaded the model: is there memory for {self._count:,} of them? "
                "What is done is kept; start again with fewer --workers"
            ) from None
        if mistake is not None:
            raise SightlineError(mistake)
        return worker

    def _start(self) -> Worker:
        with self._lock:
            if self._closed:
                raise SightlineError("the work was broken off")
            worker = Worker(self._places.popleft(), self._count)
            self._workers.append(worker)
            return worker

    def _kill(self) -> None:
        with self._lock:
            self._closed = True
            for worker in self._workers:
                worker.kill()


def environment(place: int, workers: int) -> dict[str, str]:
    """What a worker finds around it: our modules, its share of the processors, and one of the GPUs."""
    found = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    found |= share(max(1, available_processors() // workers))
    gpus = _gpus(found.get("CUDA_VISIBLE_DEVICES"))
    if gpus:
        found["CUDA_VISIBLE_DEVICES"] = gpus[place % len(gpus)]
    return found


def share(processors: int) -> dict[str, str]:
    """The variables that keep a process to so many processors.

    Sums that several threads share are rounded in another order, and would make scores depend on the number of workers.
    So a product is always one thread's work; an engine may do several batches side by side.
    """
    return {"OMP_NUM_THREADS": "1", SHARE: str(processors)}


def _gpus(visible: str | None) -> list[str]:
    """The GPUs that may be used, by the driver's devices: torch, which would know, is not imported here."""
    if visible is not None:
        return [name for name in visible.split(",") if name]
    return sorted((path.name.removeprefix("nvidia") for path in Path("/dev").glob("nvidia[0-9]*")), key=int)
