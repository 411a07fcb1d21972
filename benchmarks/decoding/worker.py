"""A contender's process: `python -m benchmarks.decoding.worker JOB`.

Each message is a line of JSON. It says `{"ready": …}` after its first translation. `{"prepare": case}` lets it get
ready for a case and `{"run": case}` measures it; the end of the input ends the process. It waits, without computing, in
between.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any, TextIO

from benchmarks.decoding.job import Case, Decoder, Job, Written
from benchmarks.speed.turns import Missing, answers_alone, peak_memory


def main(argument: str) -> None:
    """Translates until the input ends."""
    job = Job.loads(argument)
    answers = answers_alone()
    keep_to(job.threads)
    try:
        decoder: Decoder = importlib.import_module(f"benchmarks.decoding.adaptors.{job.adaptor}").build(job)
    except Missing as error:
        say(answers, {"missing": str(error)})
        return
    decoder.translate([job.first], 1)
    say(answers, {"ready": decoder.about})
    sets: dict[str, list[str]] = json.loads(Path(job.sets).read_text(encoding="utf-8"))
    for line in sys.stdin:
        order: dict[str, Any] = json.loads(line)
        ((what, values),) = order.items()
        case = Case(**values)
        if what == "prepare":
            decoder.prepare(sets[case.set], case.beam)
            say(answers, decoder.about)
        else:
            say(answers, measured(decoder, sets[case.set], case))


def keep_to(count: int) -> None:
    """Lets this process use so many processors, where the system can be told, whatever a library would choose."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:count])


def measured(decoder: Decoder, lines: list[str], case: Case) -> dict[str, Any]:
    """Seconds in all, those of each sentence when it goes one by one, and what was written."""
    latencies: list[float] = []
    began = time.perf_counter()
    if case.one_by_one:
        written = Written([], 0)
        for line in lines:
            start = time.perf_counter()
            one = decoder.translate([line], case.beam)
            latencies.append(time.perf_counter() - start)
            written = written.plus(one)
    else:
        written = decoder.translate(lines, case.beam)
    seconds = time.perf_counter() - began
    return {"seconds": seconds, "latencies": latencies, "memory": peak_memory(), **vars(written)}


def say(answers: TextIO, message: dict[str, Any]) -> None:
    """One line, at once."""
    answers.write(json.dumps(message) + "\n")
    answers.flush()


if __name__ == "__main__":
    main(sys.argv[1])
