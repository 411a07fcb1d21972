"""Sightline, as `sightline.load(folder).translate(lines)` has it: its default call, of which the text is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import sightline
from benchmarks.decoding.job import NO_EXPORT, SHORTLISTED, Job, Written
from benchmarks.speed.turns import Missing
from sightline.errors import SightlineError


class Translating:
    """One engine."""

    def __init__(self, job: Job) -> None:
        folder = Path(job.exports) / SHORTLISTED if job.shortlist else Path(job.model)
        if job.shortlist and not folder.is_dir():
            raise Missing(f"{NO_EXPORT}{SHORTLISTED}")
        try:
            self.translator = sightline.load(folder, engine=job.engine, compute=job.compute)
        except SightlineError as error:
            raise Missing(str(error)) from None
        self.about: dict[str, Any] = {"version": f"sightline {sightline.__version__}"}

    def prepare(self, lines: list[str], beam: int) -> None:
        """A few lines, as a warm-up."""
        self.translate(lines[:64], beam)

    def translate(self, lines: list[str], beam: int) -> Written:
        """The call as anybody makes it: scores and alignments are worked out only when somebody looks at them."""
        found = self.translator.translate(lines, beam=beam)
        return Written([one.text for one in found])


def build(job: Job) -> Translating:
    """The decoder."""
    return Translating(job)
