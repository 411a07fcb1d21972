"""From turns to figures: medians over the rounds, comparisons within a round, tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from benchmarks.speed import flops
from benchmarks.speed.contenders import YARDSTICK, Contender
from benchmarks.speed.job import SIZES
from benchmarks.speed.plan import Plan
from benchmarks.speed.processes import Turn

# The turns of each contender by its name, round by round, and of the yardstick.
Taken = Mapping[str, Sequence[Turn]]
COLUMNS = (
    "contender",
    "target tokens/s",
    "lowest to highest",
    "times the fastest peer",
    "times the tuned loop",
    "share of matmul rate",
    "MFLOP a token",
    "parameters",
    "peak memory",
)


def summarise(
    size: str, contenders: Sequence[Contender], turns: Taken, plan: Plan, rounds: Sequence[range]
) -> dict[str, dict[str, Any]]:
    """A size's figures by contender. A comparison is the median of the rounds' own ratios: noise that lasts for a
    round touches both sides of it."""
    speeds = {contender.name: [turn.speed for turn in turns[contender.name]] for contender in contenders}
    fastest = max(
        (contender.name for contender in contenders if contender.out_of_the_box),
        key=lambda name: median(speeds[name]),
        default=None,
    )
    tuned = next((contender.name for contender in contenders if contender.tuned), None)
    rates = [flops.PRODUCT * turn.updates / turn.seconds for turn in turns[YARDSTICK.name]]
    figures: dict[str, dict[str, Any]] = {}
    for contender in contenders:
        own, mine = turns[contender.name], speeds[contender.name]
        work = [operations(size, contender, plan, numbers) for numbers in rounds]
        tokens = sum(turn.tokens for turn in own)
        shares = [done / turn.seconds / rate for done, turn, rate in zip(work, own, rates, strict=True)]
        figures[contender.name] = {
            "about": contender.about,
            "tokens_per_second": round(median(mine), 1),
            "rounds": [round(speed, 1) for speed in mine],
            "times_fastest_peer": _ratio(mine, speeds.get(fastest or "")),
            "times_tuned_loop": _ratio(mine, speeds.get(tuned or "")),
            "matmul_share": round(median(shares), 4),
            "megaflop_per_token": round(sum(work) / tokens / 1e6, 2),
            "padding": round(plan.padding(range(rounds[0].start, rounds[-1].stop)), 4),
            "peak_memory": max(turn.memory for turn in own),
            "losses": [round(loss, 4) for turn in own for loss in turn.losses],
        }
    return figures


def operations(size: str, contender: Contender, plan: Plan, numbers: range) -> int:
    """The arithmetic of these batches, of real tokens alone."""
    return sum(
        flops.pair(SIZES[size], source, target, plan.vocabulary, contender.input_feeding)
        for source, target in plan.pairs(numbers)
    )


def matmul_rate(turns: Sequence[Turn]) -> float:
    """Operations a second, the median of the rounds."""
    return median(flops.PRODUCT * turn.updates / turn.seconds for turn in turns)


def _ratio(mine: Sequence[float], other: Sequence[float] | None) -> float | None:
    if other is None:
        return None
    return round(median(own / its for own, its in zip(mine, other, strict=True)), 3)


def windows(losses: Sequence[float], tokens: Sequence[int], size: int) -> list[float]:
    """Means over tokens of `size` updates each: a loss curve smooth enough to compare."""
    points = []
    for start in range(0, len(losses), size):
        counts = tokens[start : start + size]
        total = sum(loss * count for loss, count in zip(losses[start : start + size], counts, strict=True))
        points.append(total / sum(counts))
    return points


def widest(curves: Mapping[str, Sequence[float]], window: int, updates: int) -> dict[str, Any]:
    """The largest gap between two curves of `updates` updates, a point for each `window` of them, and where it is."""
    one, other = curves.values()
    gaps = [abs(mine - its) for mine, its in zip(one, other, strict=True)]
    place = max(range(len(gaps)), key=gaps.__getitem__)
    return {
        "largest": float(f"{gaps[place]:.3g}"),
        "share_of_loss": float(f"{gaps[place] / max(one[place], other[place]):.3g}"),
        "at_update": min((place + 1) * window, updates),
        "updates": updates,
    }


def markdown(results: Mapping[str, Any]) -> str:
    """The whole report as a page."""
    settings = results["settings"]
    lines = [
        "# Training speed",
        "",
        f"`{results['command']}`",
        "",
        f"{results['machine']['cpu']}, {settings['threads']} threads, torch {results['machine']['torch']}, fp32. "
        f"Medians of {settings['rounds']} alternating rounds of {settings['batches']} batches; all contenders get the "
        f"same batches of {settings['batch_tokens']:,} tokens, dropout {settings['dropout']}, label smoothing "
        f"{settings['smoothing']}, Adam and a clipped gradient. Padding counts neither as tokens nor as arithmetic.",
        "",
    ]
    for size, found in results["sizes"].items():
        lines += _table(size, found)
    if results.get("curves"):
        lines += _curves(results["curves"])
    lines += ["## What is what", "", *_contenders(results["sizes"])]
    lines += [f"- {note}" for note in results["notes"]]
    return "\n".join(lines) + "\n"


def _contenders(sizes: Mapping[str, Any]) -> list[str]:
    """Who took part, each once."""
    about = {name: one for found in sizes.values() for name, one in found["contenders"].items()}
    return [f"- {name}: {one['about']} ({one['version']})." for name, one in about.items()]


def _table(size: str, found: Mapping[str, Any]) -> list[str]:
    figures: Mapping[str, Any] = found["contenders"]
    padding = next(iter(figures.values()))["padding"] if figures else 0.0
    lines = [
        f"## {size}: {found['what']}",
        "",
        f"Padding {padding:.1%} of the positions; a 1024-cube product runs at {found['matmul_gflops']:.0f} GFLOP/s.",
        "",
        "| " + " | ".join(COLUMNS) + " |",
        "|---" + "|---:" * (len(COLUMNS) - 1) + "|",
    ]
    for name, one in sorted(figures.items(), key=lambda item: -item[1]["tokens_per_second"]):
        cells = [
            name,
            f"{one['tokens_per_second']:,.0f}",
            f"{min(one['rounds']):,.0f} to {max(one['rounds']):,.0f}",
            _times(one["times_fastest_peer"]),
            _times(one["times_tuned_loop"]),
            f"{one['matmul_share']:.0%}",
            f"{one['megaflop_per_token']:.1f}",
            f"{one['parameters'] / 1e6:.2f} M",
            f"{one['peak_memory'] / 2**20:,.0f} MiB",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", *[f"- {name} did not take part: {why}" for name, why in found["skipped"].items()]]
    return [*lines, ""] if found["skipped"] else lines


def _times(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}"


def _curves(curves: Mapping[str, Any]) -> list[str]:
    lines = ["## Loss curves", ""]
    for size, found in curves.items():
        names, width = list(found["losses"]), found["window"]
        lines += [
            _compared(size, found),
            "",
            "| updates | " + " | ".join(names) + " |",
            "|---:" * (len(names) + 1) + "|",
        ]
        columns = [found["losses"][name] for name in names]
        step = max(1, len(columns[0]) // 10)
        for place in range(step - 1, len(columns[0]), step):
            values = " | ".join(f"{column[place]:.3f}" for column in columns)
            lines.append(f"| {min((place + 1) * width, found['updates'])} | {values} |")
        lines.append("")
    return lines


def _compared(size: str, found: Mapping[str, Any]) -> str:
    """What two curves have in common, and how far apart they are."""
    gap, exact = found["gap"], found.get("without_dropout")
    if exact is None:
        start = "Each begins with initial weights of its own kind."
    else:
        start = (
            "Both begin with MarianMT's initial weights and normalise after a sublayer, and Sightline, as MarianMT, "
            "learns no bias of the output layer. Each draws its own random numbers for dropout; without dropout, the "
            f"losses of {exact['updates']} updates differ by {exact['largest']:.1g} at most."
        )
    return (
        f"{size}: smoothed training loss, means of {found['window']} updates, on the same batches with the same rate "
        f"of dropout. The widest gap is {gap['largest']:.2g} ({gap['share_of_loss']:.2%} of the loss), at update "
        f"{gap['at_update']}. {start}"
    )
