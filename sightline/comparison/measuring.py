"""Measuring a run: once, since the result is kept beside its model."""

from __future__ import annotations

import json
import math
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import sha256 as digest
from pathlib import Path
from typing import Any

import numpy as np

from sightline import metrics
from sightline.alignments import Gold, align_corpus
from sightline.comparison.scores import Scores, load_scores, save_scores, spread
from sightline.config import AlignmentConfig, RunConfig
from sightline.engines.choice import Engines
from sightline.errors import SightlineError
from sightline.evaluate import evaluate
from sightline.files import sha256
from sightline.folder import WEIGHTS, open_files
from sightline.links import READINGS
from sightline.models import parameter_count
from sightline.performance import threads
from sightline.readers import Pair
from sightline.report import METRICS, read_metrics
from sightline.tokenizers import UNKNOWN
from sightline.training.checkpoint_names import CHECKPOINTS, latest
from sightline.training.checkpoints import read_trainer
from sightline.translation import Translation
from sightline.translator import Translator

MAPS = 4  # sentences whose weights are kept
EASY_TO_SEE = (4, 16)  # words of such a sentence
Bars = Callable[[int, str], Any]


@dataclass(frozen=True)
class Yardstick:
    """What every run is measured with. `aligned` are the pairs that `gold` belongs to."""

    pairs: Sequence[Pair]
    names: tuple[str, str]
    gold: Gold | None = None
    aligned: Sequence[Pair] = ()
    engine: str = "pytorch"

    def shown(self) -> list[int]:
        """The numbers of the sentences whose weights are shown: evenly spread, and neither short nor long."""
        low, high = EASY_TO_SEE
        easy = [number for number, pair in enumerate(self.pairs) if low <= len(pair.source.split()) <= high]
        return spread(easy or range(len(self.pairs)), MAPS)

    def digest(self) -> str:
        """Stands for all of it that the kept scores depend on."""
        gold = [] if self.gold is None else [*self.gold.sure, *self.gold.possible]
        content = [self.pairs, [sorted(links) for links in gold], self.aligned, self.engine, self.shown()]
        return digest(json.dumps(content).encode()).hexdigest()


def scored(folder: Path, model: Path, config: RunConfig, yardstick: Yardstick, bars: Bars) -> tuple[Scores, bool]:
    """The scores of a run in `folder` that made `model`, from `model` if they lie there; and whether they are new.

    `config` says how to search; `bars(total, what)` gives a context that is told of progress, as `console.bar` does.
    """
    files = open_files(model)
    # The folder's own configuration knows the head that was chosen for its alignment.
    files = replace(files, config=files.config.model_copy(update={"search": config.search}))
    how = files.config.model_dump(mode="json", include={"search", "alignment"})
    key = {"weights": sha256(model / WEIGHTS), "how": how, "yardstick": yardstick.digest()}
    found = load_scores(model, key)
    if found is not None:
        return found, False
    scores = measure(Translator(files, Engines(files, yardstick.engine)), folder, yardstick, bars)
    save_scores(model, scores, key)
    return scores, True


def measure(translator: Translator, run: Path, yardstick: Yardstick, bars: Bars) -> Scores:
    """Translates the test part, and whatever else there is to measure; `run` has the course of its training."""
    pairs = yardstick.pairs
    translator.check_pairs(pairs, *yardstick.names)
    sources = [pair.source for pair in pairs]
    list(translator.stream(sources[:1]))  # what the first translation has to set up is not its speed
    begun = time.perf_counter()
    with bars(len(pairs), "translating") as watch:
        found = list(translator.stream(sources, watch=watch))
    seconds = time.perf_counter() - begun
    with bars(len(pairs), "reading the references") as watch:
        perplexity = evaluate(translator, pairs, found, watch=watch).perplexity
    return Scores(
        translations=[one.text for one in found],
        perplexity=perplexity if math.isfinite(perplexity) else None,
        parameters=parameter_count(translator.engines.inside().model),
        tokenizer=_tokenizer(translator),
        **_training(run),
        seconds=seconds,
        written=sum(len(one.ids) for one in found),
        error_rates=_error_rates(translator, yardstick, bars),
        maps=[_map(one) for one in translator.translate([sources[number] for number in yardstick.shown()])],
        machine=_machine(translator),
        measured=datetime.now().astimezone().isoformat(timespec="minutes"),
    )


def _tokenizer(translator: Translator) -> str:
    names = translator.files.tokenizers.names
    content = b"".join(name.encode() + tokenizer.content() for name, tokenizer in names.items())
    if not translator.files.writes_unknown:
        content += UNKNOWN  # its perplexity counts fewer tokens
    return digest(content).hexdigest()[:12]


def _training(folder: Path) -> dict[str, Any]:
    """How long the run was, and how fast between its validations."""
    checkpoint = latest(folder / CHECKPOINTS)
    if checkpoint is None:
        raise SightlineError(f"{folder}: its checkpoints are gone, so it cannot be told how long it was trained")
    state = read_trainer(checkpoint)["state"]
    before = seconds = tokens = 0.0
    # Each line tells the tokens so far, and the speed since the line before it.
    for row in read_metrics(folder) if (folder / METRICS).is_file() else []:
        if row["kind"] == "training":
            seconds += (row["tokens"] - before) / max(row["tokens_per_second"], 1e-9)
            tokens = before = row["tokens"]
    return {
        "updates": int(state["step"]),
        "minutes": float(state["seconds"]) / 60,
        "tokens": int(state["tokens"]),
        "rate": tokens / seconds if seconds > 0 else None,
    }


def _error_rates(translator: Translator, yardstick: Yardstick, bars: Bars) -> dict[str, float]:
    """The alignment error rate under each reading; none without hand-made links, or without weights to read."""
    if yardstick.gold is None:
        return {}
    own = translator.config.alignment
    found: dict[str, list[Any]] = {reading: [] for reading in READINGS}
    with bars(len(yardstick.aligned), "aligning") as watch:
        for forced in align_corpus(translator, yardstick.aligned, "the source of the links", "their target"):
            for reading, links in found.items():
                links.append(forced.word_links(AlignmentConfig(layer=own.layer, head=own.head, reading=reading)))
            watch(1)
    return {
        reading: metrics.alignment_error_rate(links, yardstick.gold.sure, yardstick.gold.possible)
        for reading, links in found.items()
        if None not in links
    }


def _map(one: Translation) -> dict[str, Any] | None:
    if one.weights is None:
        return None
    weights = np.round(one.weights, 3).tolist()
    return {"source": one.source_words, "target": one.words, "weights": weights, "links": one.links or []}


def _machine(translator: Translator) -> str:
    device = translator.engines.inside().device
    processors = f"{threads()} thread{'s' * (threads() != 1)}"
    where = processors if device.type == "cpu" else f"{device.type} and {processors}"
    return f"{platform.system()} {platform.machine()}, {where}"
