"""Tokenising for the peers, with sentencepiece alone, on whole sentences."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.decoding.job import PIECES, Job
from benchmarks.speed.turns import Missing

PAD, UNK, BOS, EOS = range(4)
BATCH = 32


class Pieces:
    """The model's pieces and their ids."""

    def __init__(self, job: Job) -> None:
        try:
            from sentencepiece import SentencePieceProcessor
        except ImportError:
            raise Missing("sentencepiece is not installed") from None
        path = Path(job.exports) / PIECES
        if not path.is_file():
            raise Missing("the model's tokenizer is no sentencepiece")
        self.processor = SentencePieceProcessor()
        self.processor.LoadFromSerializedProto(path.read_bytes())

    def ids(self, lines: list[str]) -> list[list[int]]:
        """Ids of lines, end symbols included."""
        return [[*ids, EOS] for ids in self.processor.EncodeAsIds(lines)]

    def names(self, lines: list[str]) -> list[list[str]]:
        """The same as pieces."""
        end = self.processor.IdToPiece(EOS)
        return [[*pieces, end] for pieces in self.processor.EncodeAsPieces(lines)]

    def text(self, ids: Sequence[int]) -> str:
        """The text of ids; special ones are skipped."""
        text: str = self.processor.DecodeIds([id for id in ids if id > EOS or id == UNK])
        return text

    def text_of_names(self, names: Sequence[str]) -> str:
        """The text of pieces."""
        text: str = self.processor.DecodePieces([*names])
        return text


def sorted_batches(sources: Sequence[Sequence[int]], size: int = BATCH) -> list[list[int]]:
    """Places of the sources, longest first, so many at a time: little padding."""
    order = sorted(range(len(sources)), key=lambda place: -len(sources[place]))
    return [order[start : start + size] for start in range(0, len(order), size)]


def longest_output(sources: Sequence[Sequence[int]]) -> int:
    """The most tokens of a translation in a batch: Sightline's own limit for its longest source."""
    return 2 * max(map(len, sources)) + 10
