"""Several corpora as one: which files, and how much of each an epoch holds.

Shapes: N pairs in all, C corpora, M pairs of an epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sightline.config import RunConfig
from sightline.errors import SightlineError
from sightline.readers import TextFiles, paths_of
from sightline.sections import DataConfig

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Corpus:
    """Some files of pairs, and how often each of their pairs is seen compared with a weight of 1."""

    name: str
    files: TextFiles
    weight: float = 1.0


def corpora_of(data: DataConfig, sources: int = 1) -> list[Corpus]:
    """The corpora that a configuration names, perhaps only one, with so many sources."""
    languages = (data.source_language, data.target_language)
    if not data.corpora:
        files = TextFiles.given(data.source, data.target, data.pairs, languages, data.text, sources)
        return [Corpus(files.paths[0].name, files)]
    if data.source or data.target or data.pairs or data.text:
        raise SightlineError(
            "give either data.corpora or one corpus in data.source, data.target, data.pairs or data.text"
        )
    found = []
    for one in data.corpora:
        files = TextFiles.given(one.source, one.target, one.pairs, languages, one.text, sources)
        found.append(Corpus(one.name or files.paths[0].name, files, one.weight))
    return found


def validation_files(data: DataConfig, sources: int = 1) -> TextFiles | None:
    """The validation text, None when pairs are to be held out."""
    if not (data.valid_source or data.valid_target or data.valid_pairs or data.valid_text):
        return None
    languages = (data.source_language, data.target_language)
    return TextFiles.given(data.valid_source, data.valid_target, data.valid_pairs, languages, data.valid_text, sources)


def check_sides(has_source: bool, *given: TextFiles) -> None:
    """Refuses files that have a source where the model has none, and the other way round."""
    for files in given:
        if files.alone and has_source:
            raise SightlineError(
                f"{files.paths[0]}: text without a source is for language models (recipe lm): give --pairs FILE, or "
                "--source FILE and --target FILE"
            )
        if not files.alone and not has_source:
            raise SightlineError(f"{files.paths[0]}: a language model has no source: give its text, --text FILE")


def given_files(
    config: RunConfig,
    source: Sequence[Path] | Path | None = None,
    target: Path | None = None,
    pairs: Path | None = None,
    text: Path | None = None,
) -> TextFiles:
    """The files that a command was given for a model of this configuration, or an error that says how to give them."""
    has_source = config.model.has_source
    if not (source or target or pairs or text):
        raise SightlineError(f"no text: give {ways_to_give(config)}")
    languages = (config.data.source_language, config.data.target_language)
    files = TextFiles.given(source, target, pairs, languages, text, config.model.source_count)
    check_sides(has_source, files)
    return files


def ways_to_give(config: RunConfig) -> str:
    """How text for a model of this configuration is given on a command line."""
    if not config.model.has_source:
        return "--text FILE"
    return f"--pairs FILE, or {'--source FILE ' * config.model.source_count}and --target FILE"


def named_files(data: DataConfig) -> list[Path]:
    """Every file of training and validation text that a configuration names, and that of the links."""
    every = [*paths_of(data.source), data.target, data.pairs, data.text]
    for corpus in data.corpora:
        every += [*paths_of(corpus.source), corpus.target, corpus.pairs, corpus.text]
    every += [*paths_of(data.valid_source), data.valid_target, data.valid_pairs, data.valid_text, data.alignments]
    return [path for path in every if path is not None]


@dataclass(frozen=True)
class Mix:
    """How many pairs of each corpus an epoch holds: corpus c, `bounds[c]:bounds[c + 1]`, gives `counts[c]` of them."""

    bounds: tuple[int, ...]
    counts: tuple[int, ...]

    def draw(self, seed: int, epoch: int) -> Integers:
        """`(M,)`: the numbers of the epoch's pairs, corpus by corpus: whole copies of it, and of the rest a part.

        The part is drawn anew in each epoch, and is always the same for the same seed and epoch.
        """
        drawn = []
        for number, ((start, end), count) in enumerate(zip(pairwise(self.bounds), self.counts, strict=True)):
            copies, rest = divmod(count, end - start)
            generator = np.random.default_rng([seed % 2**64, epoch, number])
            part = np.sort(generator.permutation(end - start)[:rest])
            drawn += [np.arange(start, end, dtype=np.int64)] * copies + [part + start]
        return np.concatenate(drawn)


def mix(sizes: Sequence[int], weights: Sequence[float], temperature: float | None) -> Mix | None:
    """The pairs of each corpus in an epoch; None when that is every pair once.

    Without a temperature each pair of a corpus is seen `weight` times. With one, the epoch is as long, and the
    corpora's shares of it are proportional to `weight * size^(1 / temperature)`.
    """
    present = [size > 0 for size in sizes]
    plain = [weight * size for weight, size in zip(weights, sizes, strict=True)]
    wanted = plain
    if temperature is not None:
        softened = [
            weight * size ** (1 / temperature) if size else 0.0 for weight, size in zip(weights, sizes, strict=True)
        ]
        wanted = [sum(plain) * share / sum(softened) for share in softened]
    counts = tuple(max(1, round(count)) if some else 0 for count, some in zip(wanted, present, strict=True))
    if counts == tuple(sizes):
        return None
    bounds = np.cumsum([0, *sizes]).tolist()
    kept = [number for number, some in enumerate(present) if some]
    return Mix((0, *(bounds[number + 1] for number in kept)), tuple(counts[number] for number in kept))
