"""A MarianMT folder at work in Hugging Face's transformers, to compare with the model it was made from.

Shapes: B sentences, S source positions, T target positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sightline.batch import pad
from sightline.data import Pair, ordered_batches
from sightline.engines.base import Watch
from sightline.engines.pytorch import PyTorchEngine
from sightline.errors import SightlineError
from sightline.folder import ModelFiles
from sightline.interop.huggingface import TOKENIZER
from sightline.text import BOS, EOS, PAD

TOKENS_AT_ONCE = 1_000
# So many pairs tell whether two models give the same probabilities.
PAIRS = 100
# Rounding makes log-probabilities of single precision differ by less; what differs by more is another model.
LARGEST_DIFFERENCE = 1e-3


class Generator:
    """`MarianMTModel.generate` between our tokenizers."""

    def __init__(self, folder: Path, files: ModelFiles) -> None:
        try:
            from transformers import MarianMTModel, MarianTokenizer
            from transformers.utils.logging import disable_progress_bar
        except ImportError:
            raise SightlineError(
                "checking a Hugging Face export needs transformers: pip install 'sightline[huggingface]'"
            ) from None
        disable_progress_bar()
        self.files = files
        self.model: Any = MarianMTModel.from_pretrained(folder).eval()
        self.tokenizer: Any = MarianTokenizer.from_pretrained(folder) if (folder / TOKENIZER).is_file() else None

    def translate(self, lines: Sequence[str], watch: Watch) -> list[tuple[str, list[int]]]:
        """Text and ids of each line's translation; an empty line is an empty line."""
        search = self.files.config.search
        encoded = [[*self.files.tokenizers.source.encode(line), EOS] for line in lines]
        lengths = np.array([len(ids) for ids in encoded], dtype=np.int64)
        found: dict[int, list[int]] = {}
        for part in ordered_batches(lengths, TOKENS_AT_ONCE):
            batch = pad([encoded[index] for index in part], PAD)
            most = int(search.max_ratio * int(lengths[part].max()) + search.max_extra) + 1
            with torch.inference_mode():
                rows = self.model.generate(input_ids=batch.ids, attention_mask=batch.mask.long(), max_new_tokens=most)
            for index, row in zip(part, rows.tolist(), strict=True):
                end = row.index(EOS, 1) if EOS in row[1:] else len(row)
                found[int(index)] = [] if lengths[index] == 1 else [id for id in row[1:end] if id != PAD]
            watch(len(part))
        decode = self.files.tokenizers.target.decode
        return [(decode(found[index]), found[index]) for index in range(len(lines))]

    def compare(self, pairs: Sequence[Pair]) -> list[str]:
        """What else can be told: how far token log-probabilities of references differ, and whether tokenizers agree.

        Log-probabilities that differ by more than rounding are an error.
        """
        tokenizers = self.files.tokenizers
        first = [pair for pair in pairs if pair.source.strip()][:PAIRS]
        given = [([*tokenizers.source.encode(one), EOS], [*tokenizers.target.encode(two), EOS]) for one, two in first]
        ours = PyTorchEngine(self.files, "cpu").token_log_probs(given)
        theirs = [self.log_probs(source, target) for source, target in given]
        differences = (
            abs(a - b) for one, other in zip(ours, theirs, strict=True) for a, b in zip(one, other, strict=True)
        )
        largest = max(differences, default=0.0)
        if not largest <= LARGEST_DIFFERENCE:
            raise SightlineError(
                f"the export's log-probabilities differ by up to {largest:.1e} from the model's, more than "
                f"{LARGEST_DIFFERENCE:g}: nothing was written, since it would be another model"
            )
        lines = [f"largest difference of a reference token's log-probability: {largest:.1e}"]
        if self.tokenizer is None:
            return [*lines, "no tokenizer for transformers: this model's is no sentencepiece"]
        same = sum(
            self.tokenizer(pair.source).input_ids == source for pair, (source, _) in zip(first, given, strict=True)
        )
        return [*lines, f"its tokenizer gives the same ids for {same} of {len(first)} lines"]

    def log_probs(self, source: list[int], target: list[int]) -> list[float]:
        """The log-probability of each target token, both ids with their end symbols."""
        with torch.inference_mode():
            logits = self.model(
                input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([[BOS, *target[:-1]]])
            ).logits[0]  # (T, V)
        return logits.log_softmax(-1)[torch.arange(len(target)), torch.tensor(target)].tolist()
