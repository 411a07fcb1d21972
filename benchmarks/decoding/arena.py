"""Where the contenders meet: all are started, and then translate one at a time, case by case and round by round."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.decoding.contenders import Contender
from benchmarks.decoding.job import Case, Job
from benchmarks.decoding.material import Material
from benchmarks.speed.common import Say, environment
from benchmarks.speed.processes import Failed, Worker


@dataclass(frozen=True)
class Turn:
    """What one contender did with one case in one round."""

    sentences: int
    tokens: int
    seconds: float
    latencies: list[float]
    memory: int
    bleu: float | None

    @property
    def speed(self) -> float:
        """Sentences a second."""
        return self.sentences / self.seconds


@dataclass
class Outcome:
    """All that was measured: turns by case and contender, times to the first translation, and who was left out."""

    turns: dict[Case, dict[str, list[Turn]]] = field(default_factory=dict)
    first: dict[str, list[float]] = field(default_factory=dict)
    about: dict[str, dict[str, Any]] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)

    def forget(self, name: str, why: str) -> None:
        """Leaves a contender out that cannot go on: what it has done cannot be compared round by round."""
        self.skipped[name] = why
        for taken in (self.first, self.about, *self.turns.values()):
            taken.pop(name, None)


class Arena:
    """Runs contenders on the material; `pythons` are those of the peers by the adaptor's name."""

    def __init__(self, material: Material, threads: int, pythons: Mapping[str, str], say: Say) -> None:
        self.material, self.threads, self.pythons, self.say = material, threads, pythons, say
        self.workers: dict[str, Worker] = {}
        self.outcome = Outcome()

    def command(self, contender: Contender) -> list[str]:
        """How its process is started."""
        job = Job(
            adaptor=contender.adaptor,
            model=str(self.material.files.path.resolve()),
            exports=str(self.material.exports),
            sets=str(self.material.sets_file),
            threads=self.threads,
            first=next(iter(self.material.sets.values())).pairs[0].source,
            sizes=self.material.sizes(),
            engine=contender.engine,
            compute=contender.compute,
            shortlist=contender.shortlist,
        )
        python = self.pythons.get(contender.adaptor, sys.executable) if contender.peer else sys.executable
        return [python, "-m", "benchmarks.decoding.worker", job.dumps()]

    def start(self, contender: Contender) -> tuple[Worker, dict[str, Any], float]:
        """Its process after its first translation, what it tells of itself, and the seconds from its beginning."""
        log = self.material.folder / f"{contender.name}.log"
        began = time.perf_counter()
        worker = Worker(self.command(contender), log, environment(self.threads))
        try:
            about = worker.ready()
        except Failed:
            worker.close()
            raise
        return worker, about, time.perf_counter() - began

    def measure(self, wanted: Sequence[Contender], rounds: int) -> Outcome:
        """Starts all that can run, lets them get ready, and measures; each round begins with another contender."""
        cases = self.material.cases()
        try:
            for contender in wanted:
                self._try(contender, self._enter, cases)
            for number in range(rounds):
                for place, case in enumerate(cases):
                    for contender in self._order(wanted, number + place):
                        self._try(contender, self._turn, case, f"round {number + 1}/{rounds}")
                for contender in self._order(wanted, number):
                    self._try(contender, self._cold)
                    if contender.once and contender.name in self.workers:
                        self.workers.pop(contender.name).close()
        finally:
            for worker in self.workers.values():
                worker.close()
        return self.outcome

    def _order(self, wanted: Sequence[Contender], number: int) -> list[Contender]:
        taking_part = [one for one in wanted if one.name in self.workers]
        first = number % max(len(taking_part), 1)
        return taking_part[first:] + taking_part[:first]

    def _try(self, contender: Contender, action: Any, *given: Any) -> None:
        """Goes on without a contender that fails."""
        try:
            action(contender, *given)
        except Failed as error:
            if contender.name in self.workers:
                self.workers.pop(contender.name).close()
            self.outcome.forget(contender.name, str(error))
            self.say(f"{contender.name} is left out: {error}")

    def _enter(self, contender: Contender, cases: Sequence[Case]) -> None:
        worker, about, seconds = self.start(contender)
        self.workers[contender.name] = worker
        self.say(f"{contender.name} is ready after {seconds:.2f} s ({about['version']})")
        for case in cases:
            self.outcome.about[contender.name] = worker.ask({"prepare": vars(case)})

    def _turn(self, contender: Contender, case: Case, when: str) -> None:
        answer = self.workers[contender.name].ask({"run": vars(case)})
        texts: list[str] | None = answer.pop("texts")
        counted = answer.pop("tokens")
        given = self.material.texts_of(case)
        sentences = min(len(given.pairs), self.material.singles) if case.one_by_one else len(given.pairs)
        turn = Turn(
            sentences=sentences,
            tokens=counted if texts is None else self.material.tokens(texts),
            bleu=None if texts is None else given.bleu(texts),
            **answer,
        )
        self.outcome.turns.setdefault(case, {}).setdefault(contender.name, []).append(turn)
        told = "" if turn.bleu is None else f", BLEU {turn.bleu:.2f}"
        self.say(f"{when}: {case}: {contender.name} {turn.speed:,.0f} sentences/s{told}")

    def _cold(self, contender: Contender) -> None:
        worker, _, seconds = self.start(contender)
        worker.close()
        self.outcome.first.setdefault(contender.name, []).append(seconds)
        self.say(f"first translation: {contender.name} {seconds:.2f} s")


def percentile(values: Sequence[float], share: float) -> float:
    """The value that so large a share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
