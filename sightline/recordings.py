"""What a run leaves in `RUN/watch` for its report: facts, translations, and attention at each validation.

Shapes: L layers, H heads, T target words, S source words. None of it needs torch, and the model needs none of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from sightline.errors import SightlineError
from sightline.files import make_folder, write_bytes, write_text

WATCH, FACTS, TRANSLATIONS, ATTENTION = "watch", "facts.json", "translations.json", "attention"
# Recordings of one run; older ones are thinned out to make room.
MOST_RECORDINGS = 32
_NAME = re.compile(r"step-(\d+)\.safetensors")


@dataclass(frozen=True)
class Seen:
    """Where a model looked in one sentence pair: L arrays `(H, T, S)` over words; H may differ by layer."""

    source: list[str]
    target: list[str]
    layers: list[NDArray[Any]]


@dataclass(frozen=True)
class Translated:
    """Validation sentences at one step: their texts, line by line, and how BLEU is counted on them."""

    step: int
    tokenize: str
    sources: list[str]
    references: list[str]
    translations: list[str]


def save_facts(run: Path, facts: Mapping[str, str]) -> None:
    """Keeps what the other files of a run do not tell, in the order in which it is to be read."""
    make_folder(run / WATCH)
    write_text(run / WATCH / FACTS, json.dumps(facts, ensure_ascii=False, indent=1))


def load_facts(run: Path) -> dict[str, str]:
    """The facts; none if none are kept."""
    values = _read_json(run / WATCH / FACTS)
    return {str(name): str(value) for name, value in values.items()} if isinstance(values, dict) else {}


def save_translations(run: Path, translated: Translated) -> None:
    """Keeps one set of translations, in place of the one before."""
    make_folder(run / WATCH)
    write_text(run / WATCH / TRANSLATIONS, json.dumps(vars(translated), ensure_ascii=False, indent=1))


def load_translations(run: Path) -> Translated | None:
    """The translations that are kept."""
    path = run / WATCH / TRANSLATIONS
    values = _read_json(path)
    if values is None:
        return None
    try:
        found = Translated(**values)
        lengths = {len(found.sources), len(found.references), len(found.translations)}
    except TypeError:
        raise _unreadable(path) from None
    if len(lengths) != 1:
        raise _unreadable(path)
    return found


def save_attention(run: Path, step: int, sentences: Sequence[Seen]) -> None:
    """Keeps one recording, in half precision, and thins out the older ones when there are too many."""
    folder = run / WATCH / ATTENTION
    make_folder(folder)
    tensors = {
        f"{number}.{layer}": np.ascontiguousarray(weights, dtype=np.float16)
        for number, seen in enumerate(sentences)
        for layer, weights in enumerate(seen.layers)
    }
    words = [{"source": seen.source, "target": seen.target, "layers": len(seen.layers)} for seen in sentences]
    content = safetensors.numpy.save(tensors, {"sentences": json.dumps(words, ensure_ascii=False)})
    write_bytes(folder / f"step-{step:07d}.safetensors", content)
    kept = _recordings(run)
    for old in thinned_out(list(kept), MOST_RECORDINGS):
        kept[old].unlink(missing_ok=True)


def load_attention(run: Path) -> dict[int, list[Seen]]:
    """All recordings by their steps, in order: those of the sentences that the newest one shows."""
    found: dict[int, list[Seen]] = {}
    for step, path in _recordings(run).items():
        with suppress(FileNotFoundError):  # a run that goes on just now may thin them out
            found[step] = _read_recording(path)
    shown = [_words(seen) for seen in found[max(found)]] if found else []
    return {step: sentences for step, sentences in found.items() if [_words(seen) for seen in sentences] == shown}


def forget_attention(run: Path, after: int) -> None:
    """Removes recordings of later steps: a run that goes on from an earlier checkpoint makes them again."""
    for step, path in _recordings(run).items():
        if step > after:
            path.unlink(missing_ok=True)


def thinned_out(steps: Sequence[int], most: int) -> list[int]:
    """Which of these rising steps to give up so that `most` are left, as evenly spread as they can be.

    The first and the last stay. Of the others, again and again, the one whose neighbours are nearest to each other
    goes, the earliest of several: how learning began is told by fewer pictures as it gets longer ago.
    """
    left = list(steps)
    while len(left) > max(most, 2):
        inner = range(1, len(left) - 1)
        del left[min(inner, key=lambda place: left[place + 1] - left[place - 1])]
    return sorted({*steps} - {*left})


def _recordings(run: Path) -> dict[int, Path]:
    folder = run / WATCH / ATTENTION
    found = {int(match[1]): path for path in folder.glob("step-*") if (match := _NAME.fullmatch(path.name))}
    return dict(sorted(found.items()))


def _read_recording(path: Path) -> list[Seen]:
    try:
        with safe_open(path, "np") as content:
            words = json.loads(content.metadata()["sentences"])
            return [
                Seen(
                    sentence["source"],
                    sentence["target"],
                    [content.get_tensor(f"{number}.{layer}") for layer in range(sentence["layers"])],
                )
                for number, sentence in enumerate(words)
            ]
    except FileNotFoundError:
        raise
    except (OSError, SafetensorError, ValueError, KeyError, TypeError):
        raise _unreadable(path) from None


def _words(seen: Seen) -> tuple[list[str], list[str], list[tuple[int, ...]]]:
    return seen.source, seen.target, [weights.shape for weights in seen.layers]


def _read_json(path: Path) -> Any:
    """The content, or None where there is no such file."""
    with suppress(FileNotFoundError, NotADirectoryError):
        try:
            return json.loads(path.read_bytes())
        except ValueError:
            raise _unreadable(path) from None
    return None


def _unreadable(path: Path) -> SightlineError:
    return SightlineError(f"{path}: damaged, or not written by this version; remove it to leave it out of the report")
