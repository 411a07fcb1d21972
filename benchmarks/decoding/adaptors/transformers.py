"""transformers' `generate` on the Hugging Face export, in batches of 32 sentences sorted by length.

Shapes: B sentences, S source positions, T target positions.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.decoding.job import HUGGINGFACE, NO_EXPORT, Job, Written
from benchmarks.decoding.pieces import PAD, Pieces, longest_output, sorted_batches
from benchmarks.speed.turns import Missing


class Generating:
    """A MarianMT model."""

    def __init__(self, job: Job) -> None:
        try:
            import torch
            import transformers
        except ImportError:
            raise Missing("transformers is not installed: pip install 'sightline[benchmarks]'") from None
        folder = Path(job.exports) / HUGGINGFACE
        if not folder.is_dir():
            raise Missing(f"{NO_EXPORT}{HUGGINGFACE}")
        torch.set_num_threads(job.threads)
        self.torch = torch
        self.pieces = Pieces(job)
        self.model = transformers.MarianMTModel.from_pretrained(folder).eval()
        self.about: dict[str, Any] = {"version": f"transformers {transformers.__version__}"}

    def prepare(self, lines: list[str], beam: int) -> None:
        """A few lines, as a warm-up."""
        self.translate(lines[:64], beam)

    def translate(self, lines: list[str], beam: int) -> Written:
        """Padded batches, longest first."""
        torch = self.torch
        sources = self.pieces.ids(lines)
        texts = [""] * len(lines)
        for part in sorted_batches(sources):
            longest = max(len(sources[place]) for place in part)
            rows = [sources[place] + [PAD] * (longest - len(sources[place])) for place in part]
            ids = torch.tensor(rows)  # (B, S)
            with torch.inference_mode():
                found = self.model.generate(
                    input_ids=ids,
                    attention_mask=(ids != PAD).long(),
                    num_beams=beam,
                    do_sample=False,
                    max_length=longest_output([sources[place] for place in part]),
                )  # (B, T)
            for place, row in zip(part, found.tolist(), strict=True):
                texts[place] = self.pieces.text(row)
        return Written(texts)


def build(job: Job) -> Generating:
    """The decoder."""
    return Generating(job)
