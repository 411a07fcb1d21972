"""The report of a run, made from its folder alone: no model is loaded, no data read, torch is not needed."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from sightline import links, metrics
from sightline.config import UNREADABLE
from sightline.errors import SightlineError
from sightline.files import read_lines, write_text
from sightline.plot.charts import Chart, Point, Series, shown
from sightline.plot.report import Attention, Example, Length, Report, Table, report_html
from sightline.recordings import Seen, Translated, load_attention, load_facts, load_translations
from sightline.training.progress import DECIMALS

REPORT, METRICS, CONFIG = "report.html", "metrics.jsonl", "config.yaml"
EXAMPLES = 3  # of each kind
# Of these the one marked last as the best tells of the weights in the folder: single ones, or a mean of checkpoints.
MEASURED = ("validation", "average")

Row = dict[str, Any]


def write_report(run: Path, output: Path) -> None:
    """Writes the page that tells of the run in the folder `run`, as far as it has come."""
    write_text(output, report_html(gather(run)))


def gather(run: Path) -> Report:
    """What the run's files tell."""
    rows = read_metrics(run)
    training = [row for row in rows if row["kind"] == "training"]
    validations = [row for row in rows if row["kind"] == "validation"]
    measured = [row for row in rows if row["kind"] in MEASURED]
    best = next((row for row in reversed(measured) if row.get("best")), None)
    configuration = _configuration(run)
    translated = load_translations(run)
    facts = load_facts(run)
    lengths, note = _lengths(translated, best)
    return Report(
        title=run.resolve().name,
        figures=_figures(training, rows[-1], best, facts),
        charts=_charts(training, validations, best),
        validations=_table(measured),
        attention=_attention(load_attention(run), measured, configuration),
        lengths=lengths,
        lengths_note=note,
        examples=_examples(translated),
        facts=[*facts.items(), *_course(rows, training, best)],
        configuration=configuration,
        missing={
            "attention": "No attention is kept: the model has none, training.watch is 0, or no validation was done.",
            "translations": "No translations are kept: training.validate_bleu is 0, or no validation was done.",
        },
    )


def read_metrics(run: Path) -> list[Row]:
    """The lines of a run's metrics file; one that is being written just now is left out."""
    path = run / METRICS
    if not run.is_dir() or not path.is_file():
        what = f"it has no {METRICS}" if run.is_dir() else "no such folder"
        raise SightlineError(f"{run}: {what}; name the folder of a run, as `sightline train --output` makes one")
    rows: list[Row] = []
    lines = list(read_lines(path))
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            if not (isinstance(row, dict) and isinstance(row["kind"], str) and isinstance(row["step"], int)):
                raise ValueError
        except (ValueError, KeyError):
            if number == len(lines):
                break
            raise SightlineError(f"{path}, line {number}: not a line of metrics, as training writes them") from None
        rows.append(row)
    if not rows:
        raise SightlineError(f"{path}: nothing was measured yet; wait for training.log_every updates or a validation")
    return rows


def _number(row: Mapping[str, Any] | None, name: str) -> float:
    """A value, not a number where there is none: JSON has null for those that are not finite."""
    value = None if row is None else row.get(name)
    return float(value) if isinstance(value, int | float) else math.nan


def _told(row: Mapping[str, Any] | None, name: str) -> str:
    """A score of a validation, to the decimals that say something."""
    value = _number(row, name)
    if not math.isfinite(value):
        return "–"
    return f"{value:.3g}" if value >= 1e5 else f"{value:,.{DECIMALS[name]}f}"


def _points(rows: Sequence[Row], name: str) -> list[Point]:
    return [(row["step"], _number(row, name)) for row in rows if name in row]


def _charts(training: Sequence[Row], validations: Sequence[Row], best: Row | None) -> list[Chart]:
    place = best["step"] if best else None
    # The plain loss of both: training minimises a smoothed one, which cannot be compared.
    loss = "nll" if any("nll" in row for row in training) else "loss"
    losses = [Series("training", _points(training, loss)), Series("validation", _points(validations, "loss"))]
    charts = [
        Chart("Loss", losses, best=place),
        Chart("Validation BLEU", [Series("BLEU", _points(validations, "bleu"))], best=place),
        Chart(
            "Validation perplexity",
            [Series("perplexity", _points(validations, "perplexity"))],
            logarithmic=True,
            best=place,
        ),
        Chart("Sharpness of the alignment", [Series("sharpness", _points(validations, "sharpness"))], best=place),
        Chart("Learning rate", [Series("learning rate", _points(training, "learning_rate"))], "rate"),
        Chart("Target tokens a second", [Series("tokens a second", _points(training, "tokens_per_second"))], "count"),
    ]
    return [chart for chart in charts if any(series.points for series in chart.series)]


def _figures(training: Sequence[Row], last: Row, best: Row | None, facts: Mapping[str, str]) -> list[tuple[str, str]]:
    """What a reader wants to know first."""
    speeds = [speed for _, speed in _points(training, "tokens_per_second") if math.isfinite(speed)]
    figures = [
        ("BLEU, validation", _told(best, "bleu")),
        ("perplexity", _told(best, "perplexity")),
        ("sharpness", _told(best, "sharpness")),
        ("best at step", shown(_number(best, "step"), "count")),
        ("best is the mean of", f"{best['checkpoints']} checkpoints" if best and _mean(best) else "–"),
        ("steps", f"{last['step']:,}"),
        ("minutes", f"{_number(last, 'seconds') / 60:.1f}"),
        ("target tokens/s", shown(float(np.median(speeds)) if speeds else math.nan, "count")),
        ("parameters", facts.get("parameters", "–")),
    ]
    return [(name, value) for name, value in figures if value not in ("–", "nan")]


def _course(rows: Sequence[Row], training: Sequence[Row], best: Row | None) -> list[tuple[str, str]]:
    """How the run went, as far as its metrics tell."""
    last = rows[-1]
    course = [
        ("steps", f"{last['step']:,} in {_number(last, 'seconds') / 60:.1f} minutes, epoch {last.get('epoch', 0) + 1}")
    ]
    if training:
        tokens, skipped = training[-1].get("tokens", 0), training[-1].get("skipped", 0)
        course.append(("target tokens read", f"{tokens:,}"))
        course.append(("updates skipped", f"{skipped:,}, their loss or gradient not finite" if skipped else "none"))
    where = [f"step {best['step']:,}", *_mean(best)] if best else ["none"]
    course.append(("best validation", ", ".join(where)))
    return course


def _mean(row: Row) -> list[str]:
    """Of what a row tells, where that is no single weights."""
    return [f"mean of {row['checkpoints']} checkpoints"] if row["kind"] == "average" else []


def _remarks(row: Row) -> list[str]:
    return [*_mean(row), *(["best so far"] if row.get("best") else [])]


def _table(measured: Sequence[Row]) -> Table:
    names = [name for name in DECIMALS if any(name in row for row in measured)]
    rows = [
        [
            f"{row['step']:,}",
            f"{_number(row, 'seconds') / 60:.1f}",
            *(_told(row, name) for name in names),
            ", ".join(_remarks(row)),
        ]
        for row in measured
    ]
    return Table(["step", "minutes", *(name.replace("bleu", "BLEU") for name in names), ""], rows)


def _attention(frames: dict[int, list[Seen]], measured: Sequence[Row], configuration: str) -> Attention | None:
    if not frames or not frames[max(frames)]:
        return None
    notes = {}
    for row in measured:
        if row["kind"] == "average" and not row.get("best"):
            continue  # a mean that did not become the model: the step shows its own weights
        told = [f"{name} {_told(row, name.lower())}" for name in ("BLEU", "sharpness") if name.lower() in row]
        notes[row["step"]] = " · ".join([*told, *_remarks(row)])
    last = frames[max(frames)]
    chosen = _chosen(configuration)
    try:
        links.select(last[0].layers, *chosen)
    except SightlineError:  # another choice was written into the configuration by hand
        chosen = (None, None)
    return Attention(frames, notes, chosen, _sharpest(last))


def _chosen(configuration: str) -> tuple[int | None, int | None]:
    """The layer and head that tell the alignment."""
    try:
        alignment = yaml.safe_load(configuration)["alignment"]
        return alignment["layer"], alignment["head"]
    except (*UNREADABLE, KeyError, TypeError):
        return None, None


def _sharpest(sentences: Sequence[Seen]) -> tuple[int, int | None] | None:
    """The layer and head whose rows over all sentences are most decided; no head where a layer has one alone."""
    heads = [(layer, head) for layer, weights in enumerate(sentences[0].layers) for head in range(len(weights))]
    means = {}
    for layer, head in heads:
        rows = np.concatenate([links.sharpness(seen.layers[layer][head]) for seen in sentences])
        if len(rows):
            means[layer, head] = float(rows.mean())
    if len(means) < 2:
        return None
    layer, head = max(means, key=lambda each: means[each])
    return layer, head if len(sentences[0].layers[layer]) > 1 else None


def _lengths(translated: Translated | None, best: Row | None) -> tuple[list[Length], str]:
    if translated is None or not translated.sources:
        return [], ""
    texts = translated.sources, translated.translations, translated.references
    buckets = metrics.by_length(*texts, tokenize=translated.tokenize)
    score = metrics.bleu(translated.translations, translated.references, translated.tokenize)
    mean = _mean(best) if best and best["step"] == translated.step else []
    where = f"{''.join(f'by the {one} ' for one in mean)}at step {translated.step:,}"
    note = (
        f"{len(translated.sources):,} validation sentences, translated greedily {where}: "
        f"BLEU {score.value:.1f} over all. {score.signature}"
    )
    return [Length(bucket.label, bucket.sentences, bucket.bleu, bucket.chrf) for bucket in buckets], note


def _examples(translated: Translated | None) -> list[tuple[str, list[Example]]]:
    """The worst, the middle and the best, by chrF; no sentence twice."""
    if translated is None or not translated.sources:
        return []
    scores = metrics.sentence_chrf(translated.translations, translated.references)
    parts = zip(translated.sources, translated.references, translated.translations, scores, strict=True)
    unique = {part[0]: Example(*part) for part in parts}
    ordered = sorted(unique.values(), key=lambda example: example.chrf)
    count = min(EXAMPLES, math.ceil(len(ordered) / 3))
    start = (len(ordered) - count) // 2
    groups = [("Worst", ordered[:count]), ("In the middle", ordered[start:][:count]), ("Best", ordered[::-1][:count])]
    return groups if len(ordered) >= 3 else [("All", ordered)]


def _configuration(run: Path) -> str:
    """The configuration as it stands in the folder, with its comments."""
    path = run / CONFIG
    return "\n".join(read_lines(path)) if path.is_file() else "There is no config.yaml in the run's folder."
