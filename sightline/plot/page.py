"""The interactive page: one HTML file that needs no network and no server.

Shapes: L layers, H heads, T target words, S source words.

The sentences travel as JSON inside the page, the weights as one byte each; page.js draws them and page.events.js
answers to keys and pointer. The page's security policy names its script and style by their hashes and allows no more.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sightline.files import write_text
from sightline.links import select
from sightline.plot.heatmap import check_links, clean


@dataclass(frozen=True)
class ModelView:
    """What one model did with one sentence.

    `layers`: L arrays `(H, T, S)` over the words given here; H may differ by layer. Empty: a model without attention.
    `chosen`: the layer and head that the model aligns with, shown first; None averages, as in the configuration.
    `links`: hard links (source, target). `note`: a line of your own under the name.
    `beside`: maps `(T, S)` by name that can be chosen like a layer and are in no average; without layers, the first is
    shown.
    """

    name: str
    source: Sequence[str]
    target: Sequence[str]
    layers: Sequence[NDArray[Any]] = ()
    chosen: tuple[int | None, int | None] = (None, None)
    links: Collection[tuple[int, int]] = ()
    score: float | None = None
    note: str = ""
    beside: Mapping[str, NDArray[Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class SentenceView:
    """One sentence as one or more models translate it, side by side, with a reference translation if there is one."""

    models: Sequence[ModelView]
    reference: str = ""


@dataclass(frozen=True)
class Page:
    """All that the page shows."""

    sentences: Sequence[SentenceView]
    title: str = ""


def html(page: Page) -> str:
    """The page as text, with nothing in it that loads from elsewhere."""
    return assembled("page.html", ["page.css"], ["page.js", "page.events.js"], {"data": _data(page)})


def save(text: str, path: Path | str) -> None:
    """Writes a page or an SVG as UTF-8, whole or not at all."""
    write_text(Path(path), text)


def assembled(template: str, styles: Sequence[str], scripts: Sequence[str], parts: Mapping[str, str]) -> str:
    """A template with its `{{parts}}` put in, and a policy that allows its own style and script and nothing else."""
    style, script = ("".join(map(_resource, names)) for names in (styles, scripts))
    policy = (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; base-uri 'none'; form-action 'none'"
    )
    filled = {"policy": policy, "style": style, "script": script, **parts}
    # One pass, so that braces in the data are left alone.
    return re.sub(r"\{\{(\w+)\}\}", lambda match: filled[match[1]], _resource(template))


def inline_json(content: Any) -> str:
    """JSON that cannot close the script element it stands in."""
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _resource(name: str) -> str:
    # The hash is taken of what the browser sees, and it reads every line ending as a line feed.
    return files("sightline.plot").joinpath(name).read_text(encoding="utf-8").replace("\r\n", "\n")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _data(page: Page) -> str:
    """The page's content."""
    content = {
        "title": clean(page.title),
        "sentences": [
            {"reference": clean(sentence.reference), "models": [_model(model) for model in sentence.models]}
            for sentence in page.sentences
        ],
    }
    return inline_json(content)


def _model(model: ModelView) -> dict[str, Any]:
    maps = [*model.layers, *(weights[None] for weights in model.beside.values())]
    for number, weights in enumerate(maps):
        if weights.shape[1:] != (len(model.target), len(model.source)):
            raise ValueError(
                f"{model.name}, layer {number}: weights {weights.shape} for {len(model.target)} target and "
                f"{len(model.source)} source words"
            )
    check_links(model.links, len(model.source), len(model.target))
    if model.layers:
        select(model.layers, *model.chosen)  # refuses a layer or head that is not there
    return {
        "name": clean(model.name),
        "note": clean(model.note),
        "score": None if model.score is None or not np.isfinite(model.score) else round(float(model.score), 3),
        "source": [clean(word) for word in model.source],
        "target": [clean(word) for word in model.target],
        "heads": [len(weights) for weights in maps],
        "beside": [clean(name) for name in model.beside],
        "chosen": [0, None] if model.beside and not model.layers else list(model.chosen),
        "links": sorted([int(source), int(target)] for source, target in model.links),
        "weights": quantise(maps),
    }


def quantise(layers: Sequence[NDArray[Any]]) -> str:
    """All weights, layer by layer and head by head, as one byte each in base64: 255 is 1."""
    levels = [np.rint(np.clip(np.nan_to_num(weights), 0, 1) * 255).astype(np.uint8).tobytes() for weights in layers]
    return base64.b64encode(b"".join(levels)).decode("ascii")
