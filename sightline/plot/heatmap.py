"""One picture's content: words on two sides and the weights between them.

Shapes: T target words, S source words.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Heatmap:
    """Weights `(T, S)` between the words (or pieces) of two sentences: a row for each target word.

    `links` are hard links (source, target) to mark on top of the weights.
    """

    source: Sequence[str]
    target: Sequence[str]
    weights: NDArray[Any]
    title: str = ""
    links: Collection[tuple[int, int]] = ()

    def __post_init__(self) -> None:
        expected = (len(self.target), len(self.source))
        if self.weights.shape != expected:
            raise ValueError(f"weights {self.weights.shape} for {expected[0]} target and {expected[1]} source words")
        check_links(self.links, *reversed(expected))


def check_links(links: Collection[tuple[int, int]], sources: int, targets: int) -> None:
    """Refuses links (source, target) to words that are not there."""
    for source, target in links:
        if not (0 <= source < sources and 0 <= target < targets):
            raise ValueError(f"link {source}-{target} for {targets} target and {sources} source words")


def shade(weights: NDArray[Any]) -> NDArray[np.float64]:
    """How dark a weight is drawn, 0 to 1: its square root.

    Attention is often spread over many words, and on a linear scale a weight of 0.1 would be hardly visible. The
    scale is the same for all pictures, so that heads and models can be compared by eye.
    """
    return np.sqrt(np.clip(np.nan_to_num(weights), 0.0, 1.0))


def clean(text: str) -> str:
    """Text without what no picture can hold: control characters and lone surrogates become a replacement mark.

    This also keeps escape sequences in a sentence from reaching the terminal, and XML valid.
    """
    return "".join("\ufffd" if _unprintable(ord(character)) else character for character in text)


def _unprintable(code: int) -> bool:
    controls = code < 0x20 or 0x7F <= code < 0xA0
    separators = code in (0x2028, 0x2029)
    directions = 0x202A <= code <= 0x202E or 0x2066 <= code <= 0x2069  # would turn round the text that follows
    return controls or separators or directions or 0xD800 <= code <= 0xDFFF or (code & 0xFFFE) == 0xFFFE
