"""CTranslate2 called directly, at its best: a worker of one thread for each processor, sorted batches counted in tokens
of the size that is fastest here, AVX-512 where Sightline would have it use it, sentencepiece around it."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from benchmarks.decoding.job import CTRANSLATE2, NO_EXPORT, Job, Written
from benchmarks.decoding.pieces import Pieces, longest_output
from benchmarks.speed.turns import Missing
from sightline.performance import has_fast_avx512

# Tokens of a batch to try.
SIZES = (256, 512, 1024, 2048, 4096)


class Direct:
    """One compute type."""

    def __init__(self, job: Job) -> None:
        if has_fast_avx512():
            os.environ.setdefault("CT2_FORCE_CPU_ISA", "AVX512")
        try:
            import ctranslate2
        except ImportError:
            raise Missing("ctranslate2 is not installed") from None
        folder = Path(job.exports) / CTRANSLATE2[job.compute]
        if not folder.is_dir():
            raise Missing(f"{NO_EXPORT}{folder.name}")
        self.pieces = Pieces(job)
        self.translator = ctranslate2.Translator(
            str(folder), compute_type=job.compute, inter_threads=job.threads, intra_threads=1
        )
        self.best: dict[int, int] = {}
        self.about: dict[str, Any] = {"version": f"ctranslate2 {ctranslate2.__version__}", "batch_tokens": self.best}

    def prepare(self, lines: list[str], beam: int) -> None:
        """Finds the best size of a batch for this beam, the better of two tries each."""
        if beam in self.best:
            return
        sources = self.pieces.names(lines[:1000])
        took = {size: min(self._seconds(sources, beam, size) for _ in range(2)) for size in SIZES}
        self.best[beam] = min(took, key=lambda size: took[size])

    def translate(self, lines: list[str], beam: int) -> Written:
        """Sorted by CTranslate2 itself."""
        found = self._translate(self.pieces.names(lines), beam, self.best.get(beam, 1024))
        return Written([self.pieces.text_of_names(names) for names in found])

    def _translate(self, sources: list[list[str]], beam: int, size: int) -> list[list[str]]:
        found = self.translator.translate_batch(
            sources,
            beam_size=beam,
            max_batch_size=max(size, max(map(len, sources))),
            batch_type="tokens",
            length_penalty=1,
            max_input_length=0,
            max_decoding_length=longest_output(sources),
        )
        return [one.hypotheses[0] for one in found]

    def _seconds(self, sources: list[list[str]], beam: int, size: int) -> float:
        began = time.perf_counter()
        self._translate(sources, beam, size)
        return time.perf_counter() - began


def build(job: Job) -> Direct:
    """The decoder."""
    return Direct(job)
