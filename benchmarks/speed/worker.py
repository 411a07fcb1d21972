"""A contender's process: `python -m benchmarks.speed.worker JOB`, spoken to as `turns.py` says."""

from __future__ import annotations

import importlib
import sys

from benchmarks.speed.job import Job
from benchmarks.speed.plan import Plan
from benchmarks.speed.turns import Missing, Over, Turns, answers_alone


def main(argument: str) -> None:
    """Trains until the input ends."""
    job = Job.loads(argument)
    answers = answers_alone()
    plan = Plan.load(job.plan)
    turns = Turns(sys.stdin, answers, plan.tokens)
    try:
        importlib.import_module(f"benchmarks.speed.adaptors.{job.adaptor}").train(job, plan, turns)
    except Over:
        return
    except Missing as error:
        turns.say({"missing": str(error)})


if __name__ == "__main__":
    main(sys.argv[1])
