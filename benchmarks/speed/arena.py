"""Where the contenders meet: size by size all of them are started, and then compute one at a time, in turns."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.speed import report
from benchmarks.speed.common import Say, environment
from benchmarks.speed.contenders import CONTENDERS, YARDSTICK, Contender
from benchmarks.speed.job import SIZES, Job, TransformerSize
from benchmarks.speed.plan import Plan
from benchmarks.speed.processes import Failed, Turn, Worker, worker_command

PRODUCTS = 50  # of matrices, in the yardstick's turn
LEAD = 1  # updates at the beginning of a turn that do not count
WINDOW = 25  # updates to a point of a loss curve
WITHOUT_DROPOUT = 10  # updates in which nothing but rounding may tell Sightline from MarianMT
INDISPENSABLE = ("matmul", "sightline", "marian")  # without one of these there is no comparison


@dataclass
class Field:
    """Those that take part: their processes, what they tell of themselves, and why others do not."""

    workers: dict[str, Worker] = field(default_factory=dict)
    about: dict[str, dict[str, Any]] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)

    def leave_out(self, contender: Contender, why: str) -> None:
        """Goes on without it, if that makes sense."""
        if contender.name in self.workers:
            self.workers.pop(contender.name).close()
        if contender.name in INDISPENSABLE:
            raise Failed(f"{contender.name}: {why}")
        self.skipped[contender.name] = why


class Arena:
    """Runs contenders on `plan` with so many threads; `pythons` are those of the peers by the adaptor's name."""

    def __init__(self, plan: Plan, folder: Path, threads: int, pythons: Mapping[str, str], say: Say) -> None:
        self.plan, self.folder, self.threads, self.pythons, self.say = plan, folder, threads, pythons, say
        plan.save(folder / "plan.npz")

    def job(self, contender: Contender, size: str) -> Job:
        """A contender's orders, with a folder of its own."""
        folder = tempfile.mkdtemp(prefix=f"{size}-{contender.name}-", dir=self.folder)
        return Job(
            adaptor=contender.adaptor,
            size=size,
            plan=str(self.folder / "plan.npz"),
            folder=folder,
            threads=self.threads,
            tuned=contender.tuned,
            input_feeding=contender.input_feeding,
            compiled=contender.compiled,
        )

    @contextmanager
    def field(self, wanted: Sequence[Contender], size: str, **changes: Any) -> Iterator[Field]:
        """Starts all that can run, one after the other; `changes` go into their jobs."""
        found = Field()
        try:
            for contender in wanted:
                job = replace(self.job(contender, size), **changes)
                command = worker_command(job.dumps(), self.pythons.get(contender.adaptor, sys.executable))
                log = Path(job.folder) / "log.txt"
                try:
                    worker = found.workers[contender.name] = Worker(command, log, environment(self.threads))
                    found.about[contender.name] = worker.ready()
                    self.say(f"{size}: {contender.name} is ready ({found.about[contender.name]['version']})")
                except Failed as error:
                    found.leave_out(contender, str(error))
                    self.say(f"{size}: {contender.name} is left out: {error}")
            yield found
        finally:
            for worker in found.workers.values():
                worker.close()

    def measure(self, size: str, wanted: Sequence[Contender], rounds: int, updates: int, warmup: int) -> dict[str, Any]:
        """One size's figures: `rounds` turns of `updates` for each, after `warmup` updates that do not count.

        Each round begins with another contender, so that none always follows the same one. Nor do the first `LEAD`
        updates of a turn count: while the others computed, the processor forgot this contender's data and the system
        some of its files, which training that is not made to wait would never see.
        """
        turns: dict[str, list[Turn]] = {}
        with self.field([YARDSTICK, *wanted], size) as found:
            for number in range(-1, rounds):
                taking_part = [one for one in (YARDSTICK, *wanted) if one.name in found.workers]
                first = number % len(taking_part)
                for contender in taking_part[first:] + taking_part[:first]:
                    count = PRODUCTS if contender is YARDSTICK else (warmup if number < 0 else updates)
                    worker = found.workers[contender.name]
                    try:
                        if contender is not YARDSTICK and number >= 0:
                            worker.run(LEAD)
                        turn = worker.run(count)
                    except Failed as error:
                        found.leave_out(contender, str(error))
                        continue
                    if number >= 0:
                        turns.setdefault(contender.name, []).append(turn)
                        speed = "" if contender is YARDSTICK else f" {turn.speed:,.0f} tokens/s"
                        self.say(f"{size}: round {number + 1}/{rounds} {contender.name}{speed}")
        measured = [one for one in wanted if one.name in found.workers]
        starts = [warmup + number * (LEAD + updates) + LEAD for number in range(rounds)]
        numbers = [range(start, start + updates) for start in starts]
        figures = report.summarise(size, measured, turns, self.plan, numbers)
        return {
            "matmul_gflops": round(report.matmul_rate(turns[YARDSTICK.name]) / 1e9, 1),
            "contenders": {name: {**values, **found.about[name]} for name, values in figures.items()},
            "skipped": found.skipped,
        }

    def curves(self, size: str, updates: int) -> dict[str, Any]:
        """Loss curves of Sightline and of a peer on the same batches, and how far apart they are.

        A Transformer begins with MarianMT's own initial weights and normalises where MarianMT does, so that only
        dropout's random numbers differ; a few updates without dropout tell whether that is so. An RNN's peer is
        OpenNMT-py, whose weights cannot be carried over: both begin as they always do. Nothing without the peer.
        """
        if not isinstance(SIZES[size], TransformerSize):
            return self._curves(self.losses(("opennmt", "sightline-input-feeding"), size, updates))
        names = ("marian", "sightline")
        changes = {"norm_position": "post", "start": str(self.folder / f"{size}-start")}
        exact = self.losses(names, size, min(updates, WITHOUT_DROPOUT), dropout=0.0, **changes)
        found = self._curves(self.losses(names, size, updates, **changes))
        return {**found, "without_dropout": report.widest(exact, 1, len(exact["marian"]))}

    def _curves(self, losses: Mapping[str, Sequence[float]]) -> dict[str, Any]:
        """Smooth curves and the widest gap between them."""
        if not losses:
            return {}
        updates = len(next(iter(losses.values())))
        tokens = [self.plan.tokens(number) for number in range(updates)]
        smooth = {name: report.windows(values, tokens, WINDOW) for name, values in losses.items()}
        return {
            "updates": updates,
            "window": WINDOW,
            "gap": report.widest(smooth, WINDOW, updates),
            "losses": {name: [round(value, 4) for value in values] for name, values in smooth.items()},
        }

    def losses(self, names: Sequence[str], size: str, updates: int, **changes: Any) -> dict[str, list[float]]:
        """Each update's loss of these contenders, started in this order; nothing unless all of them can run."""
        wanted = [next(one for one in CONTENDERS if one.name == name) for name in names]
        losses: dict[str, list[float]] = {name: [] for name in names}
        with self.field(wanted, size, **changes) as found:
            if found.skipped:
                return {}
            for start in range(0, updates, WINDOW):
                for name, worker in found.workers.items():
                    losses[name] += worker.run(min(WINDOW, updates - start)).losses
                self.say(f"{size}: loss curves, {len(losses[names[0]])} of {updates} updates")
        return losses
