"""Looking over a run's shoulder: sharpness of its attention, samples, and what the report is made of.

Nothing here changes training by a bit: models are looked at in evaluation mode, and no random number is drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sightline import links
from sightline.align import force
from sightline.config import RunConfig
from sightline.data import EncodedPairs, Pair
from sightline.errors import SightlineError
from sightline.folder import ModelFolder, Tokenizers
from sightline.forced import Forced, has_attention
from sightline.models import parameter_count
from sightline.recordings import Seen, Translated, forget_attention, save_attention, save_facts, save_translations
from sightline.report import REPORT, write_report
from sightline.training.averages import evaluating
from sightline.training.metrics_log import Value
from sightline.training.tensorboard import Board
from sightline.training.watch import Sample
from sightline.writer import Writer

# Sentences that the sharpness is measured on, and the most tokens of a side: one pass over them costs next to nothing.
SENTENCES, LONGEST = 32, 40
# Characters of a sentence that is shown as a sample, where there are such.
SHORT = 60


class Watching:
    """Watches one run: `translated` and `look` are called within a validation, `validated` keeps what they found."""

    def __init__(
        self, run: Path, config: RunConfig, tokenizers: Tokenizers, valid: EncodedPairs, texts: Sequence[Pair]
    ) -> None:
        """`valid` is the validation part, `texts` its first pairs."""
        self.run, self.config, self.tokenizers = run, config, tokenizers
        looking = config.training.watch and has_attention(config.model)
        places = watched(valid.lengths[: len(texts)]) if looking else []
        self.pairs = [texts[place] for place in places]
        self._board = Board(run) if config.training.tensorboard else None
        self._texts: Sequence[Pair] = ()
        self._translations: Sequence[str] = ()
        self._seen: list[Seen] = []

    def prepare(self, model: Writer, data: Sequence[str]) -> None:
        """Keeps the facts of a run that is about to begin or to go on; `data` tells what it learns from.

        A first look refuses an `alignment.layer` or head that is not there, before anything is trained.
        """
        with evaluating(model):
            self.look(model)
        sizes = self.tokenizers.sizes
        entries = f"{sizes.source:,} entries"
        if self.config.model.has_source:
            entries += ", joint" if sizes.joint else f" and {sizes.target:,}"
        facts = {
            "recipe": self.config.model.recipe,
            "parameters": f"{parameter_count(model):,}",
            "vocabulary": f"{self.config.text.tokenizer}, {entries}",
            "data": "; ".join(data),
            "device": str(next(model.parameters()).device),
        }
        save_facts(self.run, facts)

    def report(self, say: Callable[[str], None]) -> None:
        """Writes the report. The run is done and saved: it must not fail for a page that cannot be written."""
        if not self.config.training.report:
            return
        try:
            write_report(self.run, self.run / REPORT)
        except SightlineError as error:
            say(f"no report: {error}")
        else:
            say(f"the run in one page: {self.run / REPORT}")

    def translated(self, texts: Sequence[Pair], translations: Sequence[str]) -> None:
        """What the model makes of the validation sentences."""
        self._texts, self._translations = texts, translations

    def look(self, model: Writer) -> dict[str, float]:
        """The sharpness of the attention, by one pass over the watched pairs; nothing for a model without any."""
        if not self.pairs:
            return {}
        alignment = self.config.alignment
        folder = ModelFolder(self.run, self.config, self.tokenizers, model)
        forced = force(folder, self.pairs, next(model.parameters()).device)
        if not forced[0].sentence.layers:
            self.pairs = []
            return {}
        self._seen = [
            Seen(one.source_words, one.target_words, one.word_layers(alignment.reading))
            for one in spread(forced, self.config.training.watch)
        ]
        chosen = [links.select(one.sentence.layers, alignment.layer, alignment.head) for one in forced]
        rows = np.concatenate([links.sharpness(weights) for weights in chosen])
        return {"sharpness": float(rows.mean())} if len(rows) else {}

    def start(self, step: int) -> None:
        """Recordings of later steps go."""
        forget_attention(self.run, step)
        if self._board is not None:
            self._board.start(step)

    def line(self, values: Mapping[str, Value]) -> None:
        """A line of the metrics file."""
        if self._board is not None:
            self._board.line(values)

    def validated(self, step: int, best: bool) -> list[Sample]:
        """Keeps the attention, and the translations if they are the best so far."""
        if self._seen:
            save_attention(self.run, step, self._seen)
        texts, outputs = self._texts, self._translations
        if best and texts:
            sources, references = ([pair[side] for pair in texts] for side in (0, 1))
            tokenize = self.config.training.bleu_tokenize
            save_translations(self.run, Translated(step, tokenize, sources, references, list(outputs)))
        shown = sorted(range(len(texts)), key=lambda place: max(map(len, texts[place])) > SHORT)
        return [Sample(*texts[place], outputs[place]) for place in shown[: self.config.training.samples]]

    def stop(self) -> None:
        """Training is over."""
        if self._board is not None:
            self._board.stop()


def watched(lengths: NDArray[np.integer[Any]]) -> list[int]:
    """Which validation pairs to look at, by the tokens `(N,)` of each one's longer side: the first that are not long.

    The same pairs for the same data, so that a validation can be compared with the next, and a run with another.
    """
    short = np.flatnonzero(lengths <= LONGEST)[:SENTENCES]
    return [int(place) for place in (short if len(short) else np.argsort(lengths, kind="stable")[:1])]


def spread(forced: Sequence[Forced], count: int) -> list[Forced]:
    """`count` of these sentences, from middling to long: the shortest show little."""
    ordered = sorted(forced, key=lambda one: len(one.source_words))[len(forced) // 3 :]
    count = min(count, len(ordered))
    return [ordered[int((place + 0.5) * len(ordered) / count)] for place in range(count)]
