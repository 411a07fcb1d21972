"""What all contenders work on: the test sets, and what was made of the model for those that are not Sightline."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.decoding.job import CTRANSLATE2, HUGGINGFACE, PIECES, SHORTLISTED, Case
from sightline import metrics
from sightline.corpora import corpora_of, named_files
from sightline.data import Pair, read_pairs
from sightline.errors import SightlineError
from sightline.folder import ModelFiles
from sightline.interop import ctranslate2, huggingface, shortlist
from sightline.interop.verified import write_ctranslate2
from sightline.text import SubwordTokenizer

BEAMS = (1, 5)
SHORT = ", first lines"


@dataclass(frozen=True)
class Texts:
    """Pairs, the tokenizer that their BLEU is told with, and whether they also go one by one."""

    pairs: list[Pair]
    tokenize: str
    one_by_one: bool = True

    def bleu(self, texts: list[str]) -> float:
        """Of the translations of the first so many sources."""
        return metrics.bleu(texts, [pair.target for pair in self.pairs[: len(texts)]], self.tokenize).value


@dataclass(frozen=True)
class Material:
    """The sets by name, `singles` sentences of each going one by one; the files lie in `folder`."""

    files: ModelFiles
    folder: Path
    sets: dict[str, Texts]
    singles: int

    @property
    def sets_file(self) -> Path:
        """What the contenders read."""
        return self.folder / "sets.json"

    @property
    def exports(self) -> Path:
        """Where the exports lie."""
        return self.folder / "exports"

    def save(self) -> None:
        """Writes the sources."""
        lines = {name: [pair.source for pair in one.pairs] for name, one in self.sets.items()}
        some = [name for name, one in self.sets.items() if one.one_by_one]
        lines |= {_short(name): lines[name][: self.singles] for name in some}
        self.sets_file.write_text(json.dumps(lines), encoding="utf-8")

    def cases(self) -> list[Case]:
        """All that is measured."""
        files = [Case(name, beam) for name in self.sets for beam in BEAMS]
        short = [Case(_short(name), beam, True) for name, one in self.sets.items() if one.one_by_one for beam in BEAMS]
        return files + short

    def texts_of(self, case: Case) -> Texts:
        """The set that a case belongs to."""
        return self.sets[case.set.removesuffix(SHORT)]

    def tokens(self, texts: list[str]) -> int:
        """Target tokens of translations, end symbols included, counted the same way for all."""
        tokenizer = self.files.tokenizers.target
        return sum(len(tokenizer.encode(text)) + 1 for text in texts)

    def sizes(self) -> dict[str, int]:
        """Of the model, for those that build their own."""
        model = self.files.config.model
        found: dict[str, Any] = {
            "layers": model.encoder.layers,
            "width": model.embedding,
            "feedforward": model.encoder.feedforward,
            "heads": model.encoder.heads,
            "vocabulary": self.files.tokenizers.target.size,
        }
        return {name: int(value or 0) for name, value in found.items()}

    def export(self) -> dict[str, str]:
        """Makes the exports, and the tokenizer for whole sentences; what could not be made, and why."""
        self.exports.mkdir(exist_ok=True)
        tokenizer = self.files.tokenizers.target
        if isinstance(tokenizer, SubwordTokenizer):
            (self.exports / PIECES).write_bytes(tokenizer.content() + huggingface.WHOLE_SENTENCES)
        makers: dict[str, Callable[[Path], None]] = {
            HUGGINGFACE: partial(huggingface.export, self.files),
            SHORTLISTED: self._shortlisted,
            **{
                folder: partial(ctranslate2.convert, self.files, quantization=compute)
                for compute, folder in CTRANSLATE2.items()
            },
        }
        failed = {}
        for name, make in makers.items():
            try:
                make(self.exports / name)
            except SightlineError as error:
                failed[name] = str(error)
        return failed

    def _shortlisted(self, folder: Path) -> None:
        """An export with a shortlist, learnt from the text that the model was trained with."""
        data = self.files.config.data
        if not all(path.is_file() for path in named_files(data)):
            raise SightlineError("the text that the model was trained with is not where its configuration says")
        pairs = (pair for corpus in corpora_of(data) for _, pair in corpus.files.read())
        write_ctranslate2(self.files, folder, shortlist=shortlist.learn(pairs, self.files.tokenizers))


def _short(name: str) -> str:
    return f"{name}{SHORT}"


def read_sets(data: Path, tatoeba: Path | None, repeat: int, limit: int | None) -> dict[str, Texts]:
    """Multi30k's test2016 in `data`, the same repeated, and Tatoeba's test-a if its folder is given."""
    pairs = read_pairs(data / "test2016.tok.en.gz", data / "test2016.tok.de.gz")[:limit]
    sets = {"test2016": Texts(pairs, "none")}
    if repeat > 1:
        sets[f"test2016 x {repeat}"] = Texts(pairs * repeat, "none", one_by_one=False)
    if tatoeba is not None:
        sets["tatoeba"] = Texts(read_pairs(pairs=tatoeba / "test-a.en-de.tsv.gz")[:limit], "13a")
    return sets
