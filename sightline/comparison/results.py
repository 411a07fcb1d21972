"""From the scores of all runs to what a report tells: numbers, tables of text, and notes. No torch here."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

from sightline import metrics
from sightline.comparison.configs import differences
from sightline.comparison.scores import Scores, spread
from sightline.config import RunConfig
from sightline.plot.heatmap import Heatmap
from sightline.readers import Pair
from sightline.significance import Comparison as Tested
from sightline.significance import compare_pooled
from sightline.source_texts import DIVIDER, split_sources

EXAMPLES = 5  # of each kind


@dataclass(frozen=True)
class Arm:
    """One configuration: its runs' scores by seed, and its settings with every choice made."""

    name: str
    config: RunConfig
    runs: Mapping[int, Scores]

    @property
    def systems(self) -> list[list[str]]:
        """The translations of each run."""
        return [scores.translations for scores in self.runs.values()]

    def values(self, read: Callable[[Scores], float | None]) -> list[float]:
        """One number a run, where there is one."""
        return [value for scores in self.runs.values() if (value := read(scores)) is not None]


@dataclass(frozen=True)
class Example:
    """A test sentence, and how each arm's first run translates it."""

    number: int
    pair: Pair
    translations: dict[str, str]


@dataclass(frozen=True)
class Table:
    """Headings and rows of text; the first column names the row. `notes` say what the numbers mean."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Comparison:
    """Arms that were trained and measured on the same text. `shown` are the sentences that have heat-maps."""

    arms: Sequence[Arm]
    pairs: Sequence[Pair]
    shown: Sequence[int]
    tokenize: str
    engine: str
    about: Sequence[str]

    @property
    def first(self) -> Arm:
        """What the others are compared with."""
        return self.arms[0]

    @property
    def seeds(self) -> list[int]:
        """The same for every arm."""
        return list(self.first.runs)

    @cached_property
    def references(self) -> list[str]:
        """The targets of the test part."""
        return [pair.target for pair in self.pairs]

    @cached_property
    def bleu(self) -> dict[str, list[metrics.Score]]:
        """BLEU of each run, by arm."""
        score = metrics.bleu
        return {arm.name: [score(run, self.references, self.tokenize) for run in arm.systems] for arm in self.arms}

    @cached_property
    def chrf(self) -> dict[str, list[metrics.Score]]:
        """ChrF of each run, by arm."""
        return {arm.name: [metrics.chrf(run, self.references) for run in arm.systems] for arm in self.arms}

    @cached_property
    def tested(self) -> dict[str, list[Tested]]:
        """BLEU and chrF of each further arm against the first, over all seeds together."""
        return {
            arm.name: compare_pooled(self.first.systems, arm.systems, self.references, self.tokenize)
            for arm in self.arms[1:]
        }

    @cached_property
    def lengths(self) -> dict[str, list[metrics.LengthBucket]]:
        """Scores by source length, over all seeds together; the buckets are the same for all arms."""
        count = len(self.seeds)
        sources, references = [pair.source for pair in self.pairs], self.references * count
        edges = metrics.default_edges([len(source.split()) for source in sources])
        return {
            arm.name: metrics.by_length(sources * count, list(chain(*arm.systems)), references, edges, self.tokenize)
            for arm in self.arms
        }

    @cached_property
    def differing(self) -> dict[str, list[Any]]:
        """The keys in which the configurations differ, with the value of each arm."""
        return differences([arm.config for arm in self.arms])

    @cached_property
    def examples(self) -> list[tuple[str, list[Example]]]:
        """Sentences side by side: some evenly spread, and those that the arms translate most unequally."""
        even = spread(range(len(self.pairs)), EXAMPLES)
        scores = [metrics.sentence_chrf(arm.systems[0], self.references) for arm in self.arms]
        gaps = [max(column) - min(column) for column in zip(*scores, strict=True)]
        order = sorted(range(len(gaps)), key=lambda number: -gaps[number])
        unequal = [number for number in order if gaps[number] > 0 and number not in even][:EXAMPLES]
        groups = [("Evenly spread over the test part", even), ("Where they differ most, by chrF", unequal)]
        return [(title, [self._example(number) for number in numbers]) for title, numbers in groups if numbers]

    def _example(self, number: int) -> Example:
        return Example(number, self.pairs[number], {arm.name: arm.systems[0][number] for arm in self.arms})

    def source(self, pair: Pair) -> str:
        """A pair's source as it is shown, a bar between each two of several."""
        return f" {DIVIDER} ".join(split_sources(pair.source, self.first.config.model.source_count))

    def maps(self) -> list[tuple[Pair, dict[str, Heatmap | None]]]:
        """For each sentence shown, what each arm's first run looked at; None where it has nothing to show."""
        firsts = {arm.name: next(iter(arm.runs.values())) for arm in self.arms}
        return [
            (self.pairs[number], {name: scores.heatmap(place, name) for name, scores in firsts.items()})
            for place, number in enumerate(self.shown)
        ]

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "about": list(self.about),
            "sentences": len(self.pairs),
            "seeds": self.seeds,
            "signatures": {name: scores[0].signature for name, scores in self._first_scores().items()},
            "arms": [self._arm(arm) for arm in self.arms],
            "differences": {
                key: dict(zip((arm.name for arm in self.arms), values, strict=True))
                for key, values in self.differing.items()
            },
            "examples": [
                {"number": one.number + 1, **one.pair._asdict(), "translations": one.translations}
                for _, group in self.examples
                for one in group
            ],
        }

    def _first_scores(self) -> dict[str, list[metrics.Score]]:
        return {"bleu": self.bleu[self.first.name], "chrf": self.chrf[self.first.name]}

    def _arm(self, arm: Arm) -> dict[str, Any]:
        measured = ("perplexity", "updates", "minutes", "tokens", "rate", "seconds", "written", "error_rates")
        runs = [
            {
                "seed": seed,
                "bleu": bleu.value,
                "chrf": chrf.value,
                **{name: getattr(scores, name) for name in (*measured, "machine", "measured")},
            }
            for (seed, scores), bleu, chrf in zip(
                arm.runs.items(), self.bleu[arm.name], self.chrf[arm.name], strict=True
            )
        ]
        tested = [
            {**vars(one), "interval": list(one.interval), "difference": one.difference}
            for one in self.tested.get(arm.name, [])
        ]
        first = next(iter(arm.runs.values()))
        return {
            "name": arm.name,
            "recipe": arm.config.model.recipe,
            "parameters": first.parameters,
            "tokenizer": first.tokenizer,
            "runs": runs,
            "against_the_first": tested,
            "by_length": [bucket.as_dict() for bucket in self.lengths[arm.name]],
        }


def told(values: Sequence[float], decimals: int = 2) -> str:
    """A mean, with the standard deviation over the seeds where there are several."""
    if not values:
        return "–"
    mean = f"{statistics.fmean(values):,.{decimals}f}"
    return f"{mean} ± {statistics.stdev(values):,.{decimals}f}" if len(values) > 1 else mean
