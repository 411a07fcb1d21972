"""The tables of a comparison, as text: the page and the Markdown file show the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import yaml

from sightline.comparison.results import Arm, Comparison, Table, told
from sightline.links import READINGS
from sightline.significance import CONFIDENCE, RESAMPLES
from sightline.significance import Comparison as Tested


def tables(comparison: Comparison) -> dict[str, Table]:
    """All of them by name: scores, significance, lengths, speed, differences."""
    return {
        "scores": _scores(comparison),
        "significance": _significance(comparison),
        "lengths": _lengths(comparison),
        "speed": _speed(comparison),
        "differences": _differences(comparison),
    }


def _scores(comparison: Comparison) -> Table:
    readings = [reading for reading in READINGS if _error_rates(comparison.arms, reading)]
    rows = []
    for arm in comparison.arms:
        row = [
            arm.name,
            told([score.value for score in comparison.bleu[arm.name]]),
            told([score.value for score in comparison.chrf[arm.name]]),
            told(arm.values(lambda scores: scores.perplexity)),
        ]
        row += [told(_error_rates([arm], reading)) for reading in readings]
        rows.append([*row, f"{next(iter(arm.runs.values())).parameters:,}"])
    rates = [f"AER, {reading}" for reading in readings]
    return Table("Scores", ["config", "BLEU", "chrF", "perplexity", *rates, "parameters"], rows, _remarks(comparison))


def _error_rates(arms: Sequence[Arm], reading: str) -> list[float]:
    rates = [scores.error_rates.get(reading) for arm in arms for scores in arm.runs.values()]
    return [100 * rate for rate in rates if rate is not None]


def _remarks(comparison: Comparison) -> list[str]:
    """What a reader must know of the scores."""
    bleu, chrf = (scores[comparison.first.name][0].signature for scores in (comparison.bleu, comparison.chrf))
    notes = [f"{len(comparison.pairs):,} test sentences. BLEU {bleu}; chrF {chrf}."]
    if len(comparison.seeds) > 1:
        seeds = ", ".join(map(str, comparison.seeds))
        notes.append(f"Means over the seeds {seeds}, ± their standard deviation.")
    kinds: dict[str, list[str]] = {}
    for arm in comparison.arms:
        kinds.setdefault(next(iter(arm.runs.values())).tokenizer, []).append(arm.name)
    if len(kinds) > 1:
        groups = "; ".join(", ".join(names) for names in kinds.values())
        notes.append(f"Perplexity is that of a token: compare it only where the tokens are the same ({groups}).")
    if _error_rates(comparison.arms, READINGS[0]):
        notes.append(
            "AER is the alignment error rate in percent, lower is better: of the row that predicts a token, and of the "
            "row where it is the input (consumes), by the layer and head that each config aligns with."
        )
    return notes


def _significance(comparison: Comparison) -> Table:
    first = comparison.first.name
    rows = [[name, *(cell for one in tests for cell in _tested(one))] for name, tests in comparison.tested.items()]
    share = f"{CONFIDENCE:.0%} of resamples"
    headings = ["config", *(f"{name}{part}" for name in ("BLEU", "chrF") for part in ("", f", {share}", ", p"))]
    notes = [
        f"Differences from {first}, by paired bootstrap resampling: the test sentences are drawn {RESAMPLES:,} times "
        "with replacement. p is how often chance alone would make a difference as large."
    ]
    if len(comparison.seeds) > 1:
        notes.append(
            "Seeds are pooled by sentence: a sentence is drawn with its translations of all seeds, whose counts are "
            "added up. This is the luck of the test sentences; that of the seeds is the ± above."
        )
    return Table(f"Against {first}", headings, rows, notes)


def _tested(one: Tested) -> list[str]:
    low, high = one.interval
    if low == high == 0:
        return ["±0.00", "the same in all", "–"]
    return [f"{one.difference:+.2f}", f"{low:+.2f} to {high:+.2f}", f"{one.p_value:.3f}"]


def _lengths(comparison: Comparison) -> Table:
    count = len(comparison.seeds)
    columns = list(comparison.lengths.values())
    rows = [
        [buckets[0].label, f"{buckets[0].sentences // count:,}", *(f"{bucket.bleu:.1f}" for bucket in buckets)]
        for buckets in zip(*columns, strict=True)
    ]
    notes = ["All seeds together."] if count > 1 else []
    headings = ["source words", "sentences", *(arm.name for arm in comparison.arms)]
    return Table("BLEU by source length", headings, rows, notes)


def _speed(comparison: Comparison) -> Table:
    rows = [
        [
            arm.name,
            told(arm.values(lambda scores: scores.updates), 0),
            told(arm.values(lambda scores: scores.minutes), 1),
            told(arm.values(lambda scores: scores.rate), 0),
            told(arm.values(lambda scores: len(scores.translations) / scores.seconds), 1),
            told(arm.values(lambda scores: scores.written / scores.seconds), 0),
        ]
        for arm in comparison.arms
    ]
    headings = ["config", "updates", "minutes", "training: target tokens/s", "decoding: sentences/s", "target tokens/s"]
    every = [scores for arm in comparison.arms for scores in arm.runs.values()]
    machines = sorted({scores.machine for scores in every})
    times = sorted(scores.measured for scores in every)
    when = times[0] if times[0] == times[-1] else f"{times[0]} to {times[-1]}"
    notes = [
        f"Speeds are of this machine and moment ({'; '.join(machines)}; {when}), whatever else it did. Training is "
        f"measured between validations, decoding with the {comparison.engine} engine on the test part."
    ]
    return Table("Speed", headings, rows, notes)


def _differences(comparison: Comparison) -> Table:
    names = [arm.name for arm in comparison.arms]
    rows = [[key, *map(_plain, values)] for key, values in comparison.differing.items()]
    notes = ["Every other key is the same." if rows else "The configurations are the same."]
    return Table("What differs", ["key", *names], rows, notes)


def _plain(value: Any) -> str:
    """A value as it stands in a configuration."""
    text = yaml.safe_dump(value, default_flow_style=True, width=10**6, allow_unicode=True)
    return text.removesuffix("\n").removesuffix("\n...")
