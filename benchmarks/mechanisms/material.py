"""The text of the atlas's arms: one choice of pairs, written as each arm needs it.

Arms that have words as tokens get punctuation apart from words; those of two sources get a gloss as the second; those
that are taught get links; language models get lines of neighbouring sentences. What these are made of, IBM's first
model, is learnt from the training pairs alone.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from sightline.config import RunConfig
from sightline.data import Pair
from sightline.files import read_lines
from sightline.lexicon import learn_lexicon

CORPUS = "train.en-de.tsv.gz"
# Nobody trains on these: their verbs move, so that a picture that goes straight on is a wrong one.
SHOWN = (
    Pair("I don't know why he came so late.", "Ich weiß nicht, warum er so spät gekommen ist."),
    Pair("She has never been to Berlin.", "Sie ist noch nie in Berlin gewesen."),
)
TOGETHER = 8  # sentences of a line for language models
LEAST = 0.1  # a link's probability in IBM's first model

Thing = TypeVar("Thing")
Parts = dict[str, list[Pair]]


def spread(things: Sequence[Thing], count: int) -> list[Thing]:
    """So many of them, evenly from the first to the last: the corpus is sorted by length."""
    count = min(count, len(things))
    return [things[place * len(things) // count] for place in range(count)]


def read_pairs(path: Path) -> list[Pair]:
    """The pairs of a TSV file."""
    rows = (line.split("\t") for line in read_lines(path))
    return [Pair(row[0], row[1]) for row in rows if len(row) > 1 and row[0] and row[1]]


def divide(pairs: Sequence[Pair], count: int, held_out: int) -> Parts:
    """Training pairs, and validation and test pairs that share no side with them, nor with each other."""
    hidden = {side for pair in SHOWN for side in pair}
    train = spread([pair for pair in pairs if not hidden & {*pair}], count)
    seen = hidden | {side for pair in train for side in pair}
    fresh = []
    for pair in pairs:
        if not seen & {*pair}:
            fresh.append(pair)
            seen |= {*pair}
    if len(fresh) < 2 * held_out:
        sys.exit(f"--pairs {count}: of the corpus's {len(pairs):,} pairs too few are left to hold out; choose fewer")
    apart = spread(fresh, 2 * held_out)
    return {"train": train, "valid": apart[::2], "test": apart[1::2]}


def lines_of_text(pairs: Sequence[Pair], count: int, held_out: int) -> dict[str, list[str]]:
    """Lines of neighbouring English sentences, as many sentences as there are pairs; a sentence is in one line only."""
    once = [*dict.fromkeys(pair.source for pair in pairs)]
    lines = [" ".join(once[start : start + TOGETHER]) for start in range(0, len(once), TOGETHER)]
    held = max(1, held_out // TOGETHER)
    chosen = spread(lines, min(count // TOGETHER + 2 * held, len(lines)))
    apart = set(spread(range(len(chosen)), 2 * held))
    rest = [chosen[place] for place in sorted(apart)]
    train = [line for place, line in enumerate(chosen) if place not in apart]
    return {"train": train, "valid": rest[::2], "test": rest[1::2]}


# Words and what they become


def spaced(text: str) -> str:
    """Words and punctuation with spaces between."""
    return " ".join(re.findall(r"\w+(?:['’]\w+)?|[^\w\s]", text))


def plain(word: str) -> str:
    """A word without its punctuation and capitals."""
    return re.sub(r"\W", "", word).lower() or word


class Dictionary:
    """IBM's first model of pairs: how probable it is that a source word gives a target word."""

    def __init__(self, pairs: Sequence[Pair]) -> None:
        numbers: list[dict[str, int]] = [{}, {}]
        known = [
            [
                [numbers[side].setdefault(plain(word), len(numbers[side])) for word in pair[side].split()]
                for pair in pairs
            ]
            for side in (0, 1)
        ]
        learnt = learn_lexicon(list(zip(*known, strict=True)), len(numbers[1]))
        words = [[*side] for side in numbers]
        self.chances: dict[tuple[str, str], float] = {}
        self.best: dict[str, str] = {}
        rows = zip(learnt.sources.tolist(), learnt.targets.tolist(), learnt.probabilities.tolist(), strict=True)
        for source, target, chance in sorted(rows, key=lambda row: row[2]):
            self.chances[words[0][source], words[1][target]] = chance
            self.best[words[0][source]] = words[1][target]

    def gloss(self, text: str) -> str:
        """Each word's likeliest translation; a word that was never seen stays as it is."""
        return " ".join(self.best.get(plain(word), word) for word in text.split())

    def links(self, pair: Pair) -> str:
        """Pharaoh links: of each target word to the source word that gives it most probably."""
        found = []
        sources = [plain(word) for word in pair.source.split()]
        for place, word in enumerate(pair.target.split()):
            chances = [self.chances.get((source, plain(word)), 0.0) for source in sources]
            if max(chances) >= LEAST:
                found.append(f"{chances.index(max(chances))}-{place}")
        return " ".join(found)


# Files


@dataclass(frozen=True)
class Given:
    """One arm's text: what `sightline train` is given, and what the model is measured on."""

    options: list[str]
    test: list[Pair]
    shown: list[Pair]
    lines: list[str]


class Material:
    """The files of all arms in a folder, each made when an arm first needs it."""

    def __init__(self, corpus: Path, folder: Path, count: int, held_out: int) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        pairs = read_pairs(corpus)
        self.parts = divide(pairs, count, held_out)
        self.texts = lines_of_text(pairs, count, held_out)

    @cached_property
    def dictionary(self) -> Dictionary:
        """Learnt from the training pairs."""
        return Dictionary(self.parts["train"])

    def given(self, config: RunConfig, sightline: Callable[[list[str]], object]) -> Given:
        """What an arm of this configuration is trained and measured with; `sightline` runs a command."""
        if not config.model.has_source:
            files = [self.write(f"text.{part}.txt", self.texts[part]) for part in ("train", "valid")]
            return Given(["--text", str(files[0]), "--valid-text", str(files[1])], [], [], self.texts["test"])
        kind, written = "plain", _same
        if config.text.tokenizer == "word":
            kind, written = "spaced", _spaced
        if config.model.source_count == 2:
            kind, written = "glossed", self.glossed
        parts = {part: [written(pair) for pair in pairs] for part, pairs in self.parts.items()}
        files = [self.write(f"{kind}.{part}.tsv", map("\t".join, parts[part])) for part in ("train", "valid")]
        options = ["--pairs", str(files[0]), "--valid-pairs", str(files[1])]
        if config.model.guided.weight:
            links = self.write("links.txt", map(self.dictionary.links, parts["train"]))
            options += ["--alignments", str(links)]
        if config.model.lexicon.mode != "none":
            lexicon = self.folder / f"{kind}.lexicon"
            sightline(["lexicon", "--pairs", str(files[0]), "--output", str(lexicon)])
            options += ["--set", f"model.lexicon.file={lexicon}"]
        return Given(options, parts["test"], [written(pair) for pair in SHOWN], [])

    def glossed(self, pair: Pair) -> Pair:
        """A pair whose source is two, with a tab between."""
        return Pair(f"{pair.source}\t{self.dictionary.gloss(pair.source)}", pair.target)

    def write(self, name: str, lines: Iterable[str]) -> Path:
        """A file of these lines."""
        path = self.folder / name
        path.write_text("".join(_ended(lines)), encoding="utf-8")
        return path


def _ended(lines: Iterable[str]) -> Iterator[str]:
    return (f"{line}\n" for line in lines)


def _same(pair: Pair) -> Pair:
    return pair


def _spaced(pair: Pair) -> Pair:
    return Pair(spaced(pair.source), spaced(pair.target))
