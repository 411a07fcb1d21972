"""What one run came to, as it is kept beside its model. No torch here."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from sightline.files import write_text
from sightline.plot.heatmap import Heatmap

SCORES = "scores.json"


@dataclass(frozen=True)
class Scores:
    """What one run came to. Speeds are of `machine` at the time `measured`.

    `perplexity` is None where it is beyond numbers. `updates`, `minutes` and `tokens` count the training, `rate` its
    target tokens a second (None if it was too short to tell). `seconds` and `written` (target tokens) are of
    translating the test part. `error_rates` has the alignment error rate by reading. `maps` has the attention weights
    of the sentences shown, None for each that has none. `tokenizer` tells tokenizers apart.
    """

    translations: list[str]
    perplexity: float | None
    parameters: int
    tokenizer: str
    updates: int
    minutes: float
    tokens: int
    rate: float | None
    seconds: float
    written: int
    error_rates: dict[str, float]
    maps: list[dict[str, Any] | None]
    machine: str
    measured: str

    def heatmap(self, place: int, title: str = "") -> Heatmap | None:
        """The weights of a shown sentence."""
        found = self.maps[place]
        if found is None:
            return None
        links = [(source, target) for source, target in found["links"]]
        weights = np.array(found["weights"], dtype=np.float64).reshape(len(found["target"]), len(found["source"]))
        return Heatmap(found["source"], found["target"], weights, title, links)


def save_scores(folder: Path, scores: Scores, key: dict[str, Any]) -> None:
    """Keeps the scores in a run's folder; `key` tells all that they depend on."""
    write_text(folder / SCORES, json.dumps({"key": key, "scores": asdict(scores)}, ensure_ascii=False) + "\n")


def load_scores(folder: Path, key: dict[str, Any]) -> Scores | None:
    """The scores that lie in a run's folder, if they depend on the same."""
    try:
        found = json.loads((folder / SCORES).read_bytes())
        if found["key"] != key:
            return None
        return Scores(**{field.name: found["scores"][field.name] for field in fields(Scores)})
    except (OSError, ValueError, KeyError, TypeError):  # none, or one that another version wrote: measured again
        return None


def spread(numbers: Sequence[int], count: int) -> list[int]:
    """At most `count` of the numbers, evenly spread over them."""
    count = min(count, len(numbers))
    return [numbers[(2 * place + 1) * len(numbers) // (2 * count)] for place in range(count)]
