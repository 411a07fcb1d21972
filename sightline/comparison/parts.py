"""The text of a comparison: the same training, validation and test part for every run.

What is not given is held out of the training text, once and whatever the seeds, and lies in `OUTPUT/data`, together
with the word links of what is left to train on, for the runs that have links.

Shapes: R pairs read, N pairs that can be held out.
"""

from __future__ import annotations

import json
import shutil
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from sightline.corpora import Corpus, corpora_of, validation_files
from sightline.errors import SightlineError
from sightline.files import make_folder, replacing, sha256, write_text
from sightline.filters import Filters, Verdict
from sightline.guidance import LinkFile
from sightline.holdout import hold_out, key
from sightline.readers import Pair, TextFiles, paths_of
from sightline.sections import DataConfig
from sightline.sizes import choose_held_out
from sightline.source_texts import source_names, split_sources

FOLDER, MANIFEST, RUNS = "data", "parts.json", "runs"
TRAIN, VALID, TEST = range(3)
NAMES = {VALID: "valid.jsonl", TEST: "test.jsonl"}
SEED = 1  # of the choice; the runs have seeds of their own


@dataclass(frozen=True)
class Parts:
    """Where the parts lie. `training` has a file for each corpus, or none where the text as given is all trained on.

    `valid` is None where the configurations name the validation text. `account` tells what was held out. For files of
    word links `links` has those with the lines of the training part alone.
    """

    training: tuple[Path, ...]
    valid: Path | None
    test: TextFiles
    account: str
    links: Mapping[Path, Path] = field(default_factory=dict)

    def fitted(self, data: DataConfig) -> DataConfig:
        """A data section that reads these parts."""
        values = data.model_dump()
        if self.training and data.corpora:
            for corpus, file in zip(values["corpora"], self.training, strict=True):
                named = corpus["name"] or (corpus["pairs"] or paths_of(corpus["source"])[0]).name
                corpus.update(source=None, target=None, pairs=file, name=named)
        elif self.training:
            values.update(source=None, target=None, pairs=self.training[0])
        if self.valid is not None:
            values["valid_pairs"] = self.valid
        if data.alignments is not None:
            values["alignments"] = self.links.get(data.alignments, data.alignments)
        return DataConfig.model_validate(values)

    def pairs(self) -> list[Pair]:
        """The test part."""
        found = [pair for _, pair in self.test.read()]
        if not found:
            raise SightlineError(f"{self.test.paths[0]}: the file is empty")
        return found


def prepare_parts(
    data: DataConfig, test: TextFiles | None, output: Path, sources: int = 1, links: Iterable[Path] = ()
) -> Parts:
    """Finds the parts of a comparison in the folder `output`, or makes them, each line of so many sources.

    `links` are the files of word links that runs have, of all the text as it is given.
    """
    corpora, validation = corpora_of(data, sources), validation_files(data, sources)
    wanted = [part for part, given in ((VALID, validation), (TEST, test)) if given is None]
    folder = output / FOLDER
    content = {
        "training": [_digests(corpus.files) for corpus in corpora],
        "validation": None if validation is None else _digests(validation),
        "held out": [NAMES[part] for part in wanted],
        "count": data.held_out if wanted else None,
        **({"sources": sources} if sources > 1 else {}),
    }
    manifest = _read(folder / MANIFEST)
    if manifest is not None and manifest.get("content") != content:
        if (output / RUNS).exists():
            raise SightlineError(
                f"{output}: holds a comparison on other text, or with other parts held out; choose another --output"
            )
        shutil.rmtree(folder)  # of an attempt that went wrong before anything was trained
        manifest = None
    files = [folder / f"train{f'-{number + 1}' if number else ''}.jsonl" for number in range(len(corpora))]
    if manifest is None:
        make_folder(folder)
        account = _split(corpora, data, wanted, files, folder) if wanted else ""
        write_text(folder / MANIFEST, json.dumps({"content": content, "account": account}, indent=1) + "\n")
    else:
        account = manifest["account"]
    return Parts(
        tuple(files) if wanted else (),
        folder / NAMES[VALID] if VALID in wanted else None,
        test or TextFiles.given(pairs=folder / NAMES[TEST], sources=sources),
        account,
        {path: _kept_links(path, corpora, files, folder) for path in links} if wanted else {},
    )


def _digests(files: TextFiles) -> list[str]:
    return [sha256(path) for path in files.paths]


def _read(path: Path) -> dict[str, Any] | None:
    """The manifest of parts that were made before."""
    if not path.exists():
        return None
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        found = None
    if not isinstance(found, dict) or "account" not in found:
        raise SightlineError(f"{path}: damaged; choose another --output")
    return found


def _split(corpora: Sequence[Corpus], data: DataConfig, wanted: Sequence[int], files: list[Path], folder: Path) -> str:
    """Writes every pair into the file of its part."""
    labels = iter(_labels(corpora, data, wanted).tolist())
    counts = [0, 0, 0]
    with ExitStack() as stack:
        held_out = {part: _opened(stack, folder / NAMES[part]) for part in wanted}
        for corpus, file in zip(corpora, files, strict=True):
            training = _opened(stack, file)
            for _, pair in corpus.files.read():
                part = next(labels)
                counts[part] += 1
                held_out.get(part, training).write(_row(pair, corpus.files.sources))
    told = " and ".join(f"{counts[part]:,} for {('', 'validation', 'the test')[part]}" for part in wanted)
    return f"held out {told}, {counts[TRAIN]:,} are left to train on (no sentence is in two parts)"


def _row(pair: Pair, count: int) -> str:
    """A line of a part, with so many sources."""
    texts = zip(source_names(count), split_sources(pair.source, count), strict=True)
    return json.dumps({**dict(texts), "target": pair.target}, ensure_ascii=False) + "\n"


def _kept_links(path: Path, corpora: Sequence[Corpus], files: Sequence[Path], folder: Path) -> Path:
    """The lines of a file of links that belong to the training part, in a file beside it.

    What was held out shares no sentence with what is left, so a pair was kept if it is the next of the training part.
    """
    kept = folder / f"links-{sha256(path)[:12]}.txt"
    if kept.exists():
        return kept
    given = LinkFile(path)
    with ExitStack() as stack:
        written = _opened(stack, kept)
        for corpus, file in zip(corpora, files, strict=True):
            training = stack.enter_context(open(file, "rb"))
            due = training.readline()
            for _, pair in corpus.files.read():
                line = given.take()
                given.links(line, pair)  # a mistake is to be told with the line that the given file has it in
                if _row(pair, corpus.files.sources).encode("utf-8", "replace") == due:
                    written.write(line + "\n")
                    due = training.readline()
            if due:
                raise SightlineError(f"{file}: is not what was left of the training text; choose another --output")
        given.end()
    return kept


def _opened(stack: ExitStack, path: Path) -> TextIO:
    """A file that takes its place when all of them are written."""
    temporary = stack.enter_context(replacing(path))
    # A lone surrogate, which JSON can hold, is no text in UTF-8.
    return stack.enter_context(open(temporary, "w", encoding="utf-8", errors="replace"))


def _labels(corpora: Sequence[Corpus], data: DataConfig, wanted: Sequence[int]) -> NDArray[np.uint8]:
    """`(R,)`: the part of each pair. Pairs that no run would keep stay with the training text, which is filtered."""
    sources = corpora[0].files.sources
    judge = Filters(data.max_length, sources=sources).judge()
    places, sides = array("q"), [array("Q") for _ in range(sources + 1)]
    count = 0
    for count, pair in enumerate(_every(corpora), 1):
        if judge(pair) == Verdict.TRAIN:
            places.append(count - 1)
            # An empty source is no sentence that pairs could share.
            for side, text in zip(sides, (*split_sources(pair.source, sources), pair.target), strict=True):
                side.append(key(text or pair.target))
    labels = np.zeros(count, dtype=np.uint8)
    left = np.frombuffer(places, dtype=np.int64)  # (N,)
    keys = [np.frombuffer(side, dtype=np.uint64) for side in sides]
    if len(left) <= len(wanted):
        raise SightlineError(f"{corpora[0].files.paths[0]}: {len(left)} usable pairs are too few to hold some out")
    size = choose_held_out(data.held_out, len(left))
    for part in wanted:
        chosen = hold_out(keys, size, SEED + part)
        labels[left[chosen]] = part
        left, keys = left[~chosen], [side[~chosen] for side in keys]
    return labels


def _every(corpora: Sequence[Corpus]) -> Iterator[Pair]:
    for corpus in corpora:
        for _, pair in corpus.files.read():
            yield pair
