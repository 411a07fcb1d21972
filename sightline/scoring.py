"""How probable given translations are to a model: scores of pairs, and of candidates that compete for one source.

Everything is a stream: memory does not depend on how many lines there are. No torch here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any, Literal, NamedTuple

from sightline.engines.base import Task
from sightline.errors import SightlineError, nearest
from sightline.files import read_lines
from sightline.hypothesis import SearchOptions
from sightline.limits import most_tokens
from sightline.readers import TextFiles
from sightline.source_texts import joined, source_names
from sightline.text import EOS
from sightline.translator import Translator

# So many lines are sorted by length together; more would batch a little better and answer later.
LINES_AT_ONCE = 500
NORMALISATIONS = ("none", "length")
COLUMNS = ("source", "target", "second target")


class Line(NamedTuple):
    """A source and the targets to score for it. `number` is that of its line, for errors."""

    number: int
    source: str
    targets: tuple[str, ...]


@dataclass(frozen=True)
class Scored:
    """A target and how probable it is given its source.

    `tokens` are the model's pieces. `token_log_probs` has one entry for each, and a last one for the end of the
    sentence. `score` is their sum, or their mean when scores are normalised by length.
    """

    source: str
    text: str
    score: float
    tokens: list[str]
    token_log_probs: list[float]

    @property
    def log_prob(self) -> float:
        """The log-probability of the whole target."""
        return sum(self.token_log_probs)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON, under the names that translations have."""
        return {
            "source": self.source,
            "text": self.text,
            "score": self.score,
            "log_prob": self.log_prob,
            "tokens": self.tokens,
            "token_log_probs": self.token_log_probs,
        }


def preferred(first: Scored, second: Scored) -> Literal["first", "second", "neither"]:
    """Which of two candidates has the higher score."""
    if first.score == second.score:
        return "neither"
    return "first" if first.score > second.score else "second"


def score(translator: Translator, pairs: Iterable[tuple[str, str]], normalise: str = "none") -> Iterator[Scored]:
    """Scores pairs of source and target as they come, in their order.

    `normalise` is "none" (a score is the log-probability of the target) or "length" (the mean over its tokens and its
    end).
    """
    lines = (Line(number, source, (target,)) for number, (source, target) in enumerate(pairs, 1))
    for (scored,) in score_lines(translator, lines, normalise):
        yield scored


def score_lines(
    translator: Translator, lines: Iterable[Line], normalise: str = "none", names: Sequence[str] = COLUMNS
) -> Iterator[tuple[Scored, ...]]:
    """For each line as it comes, the scores of its targets.

    Errors tell of a line by its number and by the name of what it is in: `names` of the source and of each target.
    """
    check_normalisation(normalise)
    every = iter(lines)
    while chunk := list(islice(every, LINES_AT_ONCE)):
        for line in chunk:
            check_line(translator, line, names)
        found = token_log_probs(translator, [(line.source, text) for line in chunk for text in line.targets])
        for line in chunk:
            target = translator.files.tokenizers.opened(line.source).target
            scored = []
            for text in line.targets:
                ids, log_probs = next(found)
                value = sum(log_probs) / (len(log_probs) if normalise == "length" else 1)
                pieces = [target.piece(token) for token in ids]
                scored.append(Scored(line.source, text, value, pieces, log_probs))
            yield tuple(scored)


def token_log_probs(
    translator: Translator, pairs: Sequence[tuple[str, str]]
) -> Iterator[tuple[list[int], list[float]]]:
    """Of each pair of source and target, the target's ids and their log-probabilities; a last one is that of its end.

    By the engine that would translate, so that an export can tell them too.
    """
    _, most = most_tokens(translator.config.model)
    # Whoever can translate with a model can score with it.
    plain = Task(SearchOptions(beam=1, max_length=most), translator.config.alignment)
    engine = translator.engines.for_task(plain)
    ids = []
    for source, target in pairs:
        sides = translator.files.tokenizers.opened(source)
        ids.append(([*sides.source.encode(source), EOS], [*sides.target.encode(target), EOS]))
    for (_, wanted), log_probs in zip(ids, engine.token_log_probs(ids), strict=True):
        yield wanted[:-1], log_probs


def check_line(translator: Translator, line: Line, names: Sequence[str] = COLUMNS) -> None:
    """Refuses a line with a side that is longer than the model takes."""
    for name, target in zip(names[1:], line.targets, strict=False):
        translator.check_pairs([(line.source, target)], names[0], name, line.number)


def check_normalisation(name: str) -> None:
    """Refuses a name that is none."""
    if name not in NORMALISATIONS:
        raise SightlineError(f"unknown normalisation '{name}'; {nearest(name, NORMALISATIONS)}")


def read_candidates(files: TextFiles, contrastive: Path | None = None) -> Iterator[Line]:
    """The lines of `files`, with a second target from the file `contrastive` or from a third column of a .tsv file.

    Refuses files without a line, and those whose numbers of lines differ.
    """
    if files.form == ".tsv" and contrastive is None:
        lines = _read_columns(files.paths[0], files.sources)
    else:
        lines = (Line(number, pair.source, (pair.target,)) for number, pair in files.read())
    if contrastive is not None:
        lines = _with_second(lines, contrastive)
    empty = True
    for line in lines:
        yield line
        empty = False
    if empty:
        raise SightlineError(f"{files.paths[0]}: the file is empty")


def _read_columns(path: Path, sources: int) -> Iterator[Line]:
    """So many sources and a target, or two: the first line decides."""
    width = 0
    for number, line in enumerate(read_lines(path), start=1):
        columns = line.split("\t")
        width = width or sources + (2 if len(columns) == sources + 2 else 1)
        if len(columns) != width:
            found = "an empty line" if not line else f"{len(columns)} column{'s' * (len(columns) != 1)}"
            names = [*source_names(sources), *COLUMNS[1:]]
            raise SightlineError(
                f"{path}, line {number}: expected {width} columns with tabs between them, "
                f"{', '.join(names[:width])}; found {found}"
            )
        yield Line(number, joined(columns[:sources]), tuple(columns[sources:]))


def _with_second(lines: Iterator[Line], path: Path) -> Iterator[Line]:
    """The same lines, each with the target of the same place in a file of its own."""
    both = zip_longest(lines, read_lines(path))
    for count, (line, second) in enumerate(both):
        if line is None or second is None:
            total = count + 1 + sum(1 for _ in both)
            given, wanted = (total, count) if line is None else (count, total)
            raise SightlineError(
                f"{path} has {given} lines for {wanted} pairs: line {count + 1} has no partner; "
                "give a second target for each pair"
            )
        yield line._replace(targets=(*line.targets, second))
