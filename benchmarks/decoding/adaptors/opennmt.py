"""OpenNMT-py's search over its own model of the same size, untrained: speed alone.

What it writes is as long as its source, since an untrained model does not end. Shapes: B sentences, S source positions.
"""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.decoding.job import Job, Written
from benchmarks.decoding.pieces import PAD, Pieces, sorted_batches
from benchmarks.speed import job as training
from benchmarks.speed.adaptors import opennmt as trained_elsewhere
from benchmarks.speed.turns import Missing


class Searching:
    """Its translator, batch by batch."""

    about: dict[str, Any]

    def __init__(self, job: Job) -> None:
        try:
            import onmt
            from onmt.model_builder import build_model
            from onmt.translate import GNMTGlobalScorer
            from onmt.translate.translator import Translator
        except ImportError as error:
            raise Missing(f"OpenNMT-py is not installed ({error})") from None
        torch.set_num_threads(job.threads)
        torch.manual_seed(1)
        self.pieces = Pieces(job)
        options = trained_elsewhere.parse(trained_elsewhere.arguments(training.of_size(job.sizes, job.threads)))
        vocabularies = trained_elsewhere.vocabularies(job.sizes["vocabulary"])
        self.model = build_model(options, options, vocabularies, None, -1).eval()
        scorer = GNMTGlobalScorer(1.0, 0.0, "avg", "none")
        self.make = lambda beam, length: Translator(
            self.model,
            vocabularies,
            beam_size=beam,
            min_length=length,
            max_length=length,
            max_length_ratio=0,
            global_scorer=scorer,
        )
        self.about = {"version": f"OpenNMT-py {onmt.__version__}", "untrained": True}

    def prepare(self, lines: list[str], beam: int) -> None:
        """A few lines, as a warm-up."""
        self.translate(lines[:64], beam)

    def translate(self, lines: list[str], beam: int) -> Written:
        """Padded batches of 32, longest first."""
        sources = self.pieces.ids(lines)
        tokens = 0
        for part in sorted_batches(sources):
            lengths = torch.tensor([len(sources[place]) for place in part])
            longest = int(lengths.max())
            ids = torch.tensor([sources[place] + [PAD] * (longest - len(sources[place])) for place in part])  # (B, S)
            length = max(1, round(float(lengths.float().mean())))
            batch = {"src": ids[..., None], "srclen": lengths}
            found = self.make(beam, length).translate_batch(batch, False)
            tokens += sum(len(best[0]) for best in found["predictions"])
        return Written(tokens=tokens)


def build(job: Job) -> Searching:
    """The decoder."""
    return Searching(job)
