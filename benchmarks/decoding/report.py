"""From turns to figures: medians over the rounds, comparisons within a round, tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from benchmarks.decoding import goals
from benchmarks.decoding.arena import Outcome, Turn, percentile
from benchmarks.decoding.contenders import Contender

BASE = "transformers"
FILES = ("contender", "sentences/s", "lowest to highest", "target tokens/s", "times its rival", f"times {BASE}", "BLEU")
SINGLES = (
    "contender",
    "p50 ms",
    "p95 ms",
    "sentences/s",
    "lowest to highest",
    "times its rival",
    f"times {BASE}",
    "BLEU",
)
GOALS = (
    f"found: the least over the cases, with the fastest contender of ours whose BLEU is at most {goals.EQUAL} lower "
    "than that of the one it is compared with."
)
OVERALL = ("contender", "first translation", "peak memory", "what it is")


def summarise(wanted: Sequence[Contender], outcome: Outcome) -> dict[str, Any]:
    """All figures as plain values."""
    rivals = {contender.name: contender.rival for contender in wanted}
    overall = {
        contender.name: {
            "about": contender.about,
            **outcome.about[contender.name],
            "first_translation_seconds": round(median(outcome.first[contender.name]), 3),
            "first_translation_rounds": [round(seconds, 3) for seconds in outcome.first[contender.name]],
            "peak_memory": max(
                turn.memory for taken in outcome.turns.values() for turn in taken.get(contender.name, [])
            ),
        }
        for contender in wanted
        if contender.name in outcome.first
    }
    cases = {
        str(case): {
            **vars(case),
            "contenders": {
                name: _figures(own, taken.get(rivals[name] or ""), taken.get(BASE)) for name, own in taken.items()
            },
        }
        for case, taken in outcome.turns.items()
    }
    found = {"contenders": overall, "cases": cases, "skipped": outcome.skipped}
    return {**found, "goals": goals.reached(found)}


def _figures(own: Sequence[Turn], rival: Sequence[Turn] | None, base: Sequence[Turn] | None) -> dict[str, Any]:
    """One contender's in one case. A comparison is the median of the rounds' own ratios."""
    speeds = [turn.speed for turn in own]
    figures: dict[str, Any] = {
        "sentences_per_second": round(median(speeds), 2),
        "rounds": [round(speed, 2) for speed in speeds],
        "tokens_per_second": round(median(turn.tokens / turn.seconds for turn in own), 1),
        "times_rival": _ratio(speeds, rival),
        "times_transformers": _ratio(speeds, base),
        "bleu": None if own[0].bleu is None else round(own[0].bleu, 2),
    }
    if own[0].latencies:
        for name, share in (("p50_ms", 0.5), ("p95_ms", 0.95)):
            figures[name] = round(1000 * median(percentile(turn.latencies, share) for turn in own), 2)
    return figures


def _ratio(mine: Sequence[float], other: Sequence[Turn] | None) -> float | None:
    if other is None:
        return None
    # One that runs once is compared within the first round.
    return round(median(own / its.speed for own, its in zip(mine, other, strict=False)), 3)


def markdown(results: Mapping[str, Any]) -> str:
    """The whole report as a page."""
    settings, machine = results["settings"], results["machine"]
    lines = [
        "# Decoding speed",
        "",
        f"`{results['command']}`",
        "",
        f"{machine['cpu']}, {settings['threads']} threads, torch {machine['torch']}. {results['model']}. Medians of "
        f"{settings['rounds']} alternating rounds; text in, text out, tokenising counted.",
        "",
    ]
    lines += ["## The goals", "", _row(goals.HEADS), "|---|---:|---:|---|---|"]
    lines += [*(_row(goals.told(row)) for row in results["goals"]), "", GOALS, ""]
    for title, found in results["cases"].items():
        lines += _table(title, found)
    lines += ["## The contenders", "", _row(OVERALL), "|---|---:|---:|---|"]
    for name, one in results["contenders"].items():
        memory = f"{one['peak_memory'] / 2**20:,.0f} MiB"
        lines.append(
            _row((name, f"{one['first_translation_seconds']:.2f} s", memory, f"{one['about']} ({one['version']})"))
        )
    lines += ["", *[f"- {name} did not take part: {why}" for name, why in results["skipped"].items()]]
    lines += [f"- {note}" for note in results["notes"]]
    return "\n".join(lines) + "\n"


def _table(title: str, found: Mapping[str, Any]) -> list[str]:
    columns = SINGLES if found["one_by_one"] else FILES
    lines = [f"## {title}", "", _row(columns), "|---" + "|---:" * (len(columns) - 1) + "|"]
    for name, one in sorted(found["contenders"].items(), key=lambda item: -item[1]["sentences_per_second"]):
        speed = [
            f"{one['sentences_per_second']:,.1f}",
            f"{min(one['rounds']):,.1f} to {max(one['rounds']):,.1f}",
        ]
        ends = [_times(one["times_rival"]), _times(one["times_transformers"]), _times(one["bleu"])]
        if found["one_by_one"]:
            cells = [name, f"{one['p50_ms']:.1f}", f"{one['p95_ms']:.1f}", *speed, *ends]
        else:
            cells = [name, *speed, f"{one['tokens_per_second']:,.0f}", *ends]
        lines.append(_row(cells))
    return [*lines, ""]


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _times(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
