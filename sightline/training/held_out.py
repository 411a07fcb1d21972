"""The pairs that a run was validated with, found again: text that the model in its folder has not learnt from."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from sightline.corpora import named_files, validation_files
from sightline.errors import SightlineError
from sightline.folder import ModelFiles
from sightline.limits import most_tokens
from sightline.preparing import prepare
from sightline.readers import Pair
from sightline.training.checkpoint_names import CHECKPOINTS, latest
from sightline.training.checkpoints import read_trainer
from sightline.training.resume import find_file, find_files


def held_out_pairs(files: ModelFiles, show: bool = False) -> tuple[list[Pair], str]:
    """The pairs that the run in a model folder was validated with, and which they are, in words.

    Validation files are read as they are now. Pairs that were held out of the training text are the same as then: the
    text is split once more, or found split in the cache, and must not have changed. `show` allows progress bars.
    """
    data = files.config.data
    checkpoint = latest(files.path / CHECKPOINTS)
    noted = {} if checkpoint is None else read_trainer(checkpoint)
    known = noted.get("files", {})
    given = validation_files(data, files.config.model.source_count)
    if given is not None:
        given = replace(given, paths=tuple(_found(path, known, "validation") for path in given.paths))
        pairs = [pair for _, pair in given.read()]
        if not pairs:
            raise SightlineError(f"its validation file {given.paths[0]} is empty")
        return pairs, f"the {len(pairs):,} pairs of {_names(given.paths)}, its validation text"
    if checkpoint is None:
        raise SightlineError("its folder names no validation files and has no checkpoint to tell what was held out")
    for path in named_files(data):
        _found(path, known, "training")
    config = files.config.model_copy(update={"data": find_files(data, checkpoint)})
    longest = min(config.data.max_length, *most_tokens(config.model))
    prepared = prepare(config, longest, files.tokenizers, sys.maxsize, show=show)
    if prepared.digest != noted.get("settings", {}).get("data"):
        raise SightlineError("its training text has changed, so it is not known what was held out of it")
    texts = [path for path in named_files(data) if path != data.alignments]
    return prepared.texts, f"the {len(prepared.texts):,} pairs that training held out of {_names(texts)}"


def _found(path: Path, known: Mapping[str, str], kind: str) -> Path:
    found = find_file(path, known)
    if found is None:
        raise SightlineError(f"its {kind} file {path} is not there")
    return found


def _names(paths: Sequence[Path]) -> str:
    return " and ".join(path.name for path in paths)
