"""JoeyNMT's search over its own model of the same size, untrained: speed alone.

What it writes is as long as its source, since an untrained model does not end. Shapes: B sentences, S source positions.
"""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.decoding.job import Job, Written
from benchmarks.decoding.pieces import EOS, PAD, UNK, Pieces, sorted_batches
from benchmarks.speed import job as training
from benchmarks.speed.adaptors import joeynmt as trained_elsewhere
from benchmarks.speed.turns import Missing


class Searching:
    """Its search, batch by batch."""

    about: dict[str, Any]

    def __init__(self, job: Job) -> None:
        try:
            import joeynmt
            from joeynmt.model import build_model
            from joeynmt.search import search
        except ImportError as error:
            raise Missing(f"JoeyNMT is not installed ({error})") from None
        torch.set_num_threads(job.threads)
        torch.manual_seed(1)
        self.pieces = Pieces(job)
        words = trained_elsewhere.vocabulary(job.sizes["vocabulary"])
        configuration = trained_elsewhere.configuration(training.of_size(job.sizes, job.threads))
        self.model = build_model(configuration, words, words).eval()
        self.search = search
        self.about = {"version": f"JoeyNMT {joeynmt.__version__}", "untrained": True}

    def prepare(self, lines: list[str], beam: int) -> None:
        """A few lines, as a warm-up."""
        self.translate(lines[:64], beam)

    def translate(self, lines: list[str], beam: int) -> Written:
        """Padded batches of 32, longest first."""
        from joeynmt.batch import Batch

        sources = self.pieces.ids(lines)
        its_pad = trained_elsewhere.ITS_PAD
        exchanged = {PAD: its_pad, UNK: trained_elsewhere.ITS_UNK}
        tokens = 0
        for part in sorted_batches(sources):
            lengths = torch.tensor([len(sources[place]) for place in part])
            longest = int(lengths.max())
            rows = [sources[place] + [PAD] * (longest - len(sources[place])) for place in part]
            ids = torch.tensor([[exchanged.get(id, id) for id in row] for row in rows])  # (B, S)
            batch = Batch(
                src=ids,
                src_length=lengths,
                src_prompt_mask=None,
                trg=None,
                trg_prompt_mask=None,
                indices=torch.arange(len(ids)),
                device=torch.device("cpu"),
                pad_index=its_pad,
                eos_index=EOS,
                is_train=False,
            )
            length = max(1, round(float(lengths.float().mean())))
            self.search(self.model, batch, length, beam, 1.0, min_output_length=length)
            tokens += length * len(part)
        return Written(tokens=tokens)


def build(job: Job) -> Searching:
    """The decoder."""
    return Searching(job)
