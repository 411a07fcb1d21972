"""What a person sees while a model trains: a bar on a terminal, now and then a line in a log file, or nothing."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TextIO

from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn
from rich.progress import Progress as RichProgress

from sightline.plot.heatmap import clean
from sightline.plot.widths import fit
from sightline.training.watch import Sample

REFRESH_SECONDS = 0.25
LINE_SECONDS = 30.0
WIDEST = 160  # columns of a sample in a log file
DECIMALS = {"loss": 3, "perplexity": 2, "bleu": 1, "sharpness": 3}
SHARPNESS = "    (sharpness of the attention: 0 is spread evenly over the source, 1 is on one place)"
NARROWEST = 6  # columns that the bar itself keeps

Beyond = Callable[[float, float | None], str]
"""What stands after the time left, of a run that is one of several: told the seconds it took and those it has left."""


@dataclass(frozen=True)
class Limits:
    """Where a run stands when it starts or goes on (`step`, `elapsed`), and where it ends."""

    max_steps: int | None
    max_seconds: float | None
    step: int = 0
    elapsed: float = 0.0


@dataclass(frozen=True)
class Report:
    """One update: `elapsed` seconds since training began, the loss as a validation tells it, rate, tokens a second.

    `objective` is what the update made smaller: smoothed, and with other losses in it.
    """

    step: int
    epoch: int
    elapsed: float
    loss: float
    rate: float
    speed: float
    objective: float = math.nan


class Progress(Protocol):
    """What the loop tells."""

    def start(self, limits: Limits) -> None:
        """Training begins or goes on."""

    def update(self, report: Report) -> None:
        """An update is done."""

    def validating(self) -> None:
        """A validation begins."""

    def validated(self, step: int, metrics: Mapping[str, float], best: bool, samples: Sequence[Sample] = ()) -> None:
        """A validation is done."""

    def stop(self) -> None:
        """Training is over."""


def share_done(limits: Limits, step: int, elapsed: float) -> float:
    """How much of the run is behind us, from 0 to 1, by the limit that ends it first."""
    by_steps = step / limits.max_steps if limits.max_steps else 0.0
    by_time = elapsed / limits.max_seconds if limits.max_seconds else 0.0
    return min(max(by_steps, by_time), 1.0)


def seconds_left(limits: Limits, step: int, elapsed: float) -> float | None:
    """The time until the first limit, at the pace since `limits` was taken; None while nothing is known."""
    estimates = []
    if limits.max_seconds is not None:
        estimates.append(limits.max_seconds - elapsed)
    if limits.max_steps is not None and step > limits.step:
        pace = (elapsed - limits.elapsed) / (step - limits.step)
        estimates.append((limits.max_steps - step) * pace)
    return max(min(estimates), 0.0) if estimates else None


def clock_time(seconds: float | None) -> str:
    """`4:05` or `1:04:05`; dashes when unknown."""
    if seconds is None:
        return "-:--"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def told_minutes(minutes: float) -> str:
    """`1 minute`, `2.5 minutes`."""
    number = f"{minutes:.1f}".removesuffix(".0")
    return f"{number} minute{'' if number == '1' else 's'}"


def validation_line(step: int, metrics: Mapping[str, float], best: str | None) -> str:
    """A validation in one line; `best` names the metric by which it is the best so far."""
    values = "  ".join(f"{name} {value:.{DECIMALS.get(name, 3)}f}" for name, value in metrics.items())
    return f"validation at step {step}: {values}{f'  (best {best} so far)' if best else ''}"


def sample_lines(samples: Sequence[Sample], width: int) -> list[str]:
    """Three lines for each sample, none wider than `width` columns."""
    return [
        fit(f"    {name:<9}  {clean(' '.join(text.split()))}", width).rstrip()
        for sample in samples
        for name, text in sample._asdict().items()
    ]


class _Summary:
    """The words that bar and lines share. The shown loss is a running average: one batch's is too noisy to read."""

    def __init__(self, metric: str, beyond: Beyond | None = None) -> None:
        self.limits = Limits(None, None)
        self._metric = metric
        self._beyond = beyond
        self._loss: float | None = None
        self._explained = False

    def step(self, report: Report) -> str:
        return f"{report.step}/{self.limits.max_steps}" if self.limits.max_steps else str(report.step)

    def average(self, report: Report) -> None:
        if abs(report.loss) < float("inf"):  # also false for not-a-number
            self._loss = report.loss if self._loss is None else 0.95 * self._loss + 0.05 * report.loss

    def state(self, report: Report, room: int | None = None) -> str:
        """Loss, speed and rate; with `room`, only as many of them as fit into so many columns."""
        loss = "-" if self._loss is None else f"{self._loss:.3f}"
        parts = [f"loss {loss}", f"{report.speed:,.0f} tokens/s", f"rate {report.rate:.1e}"]
        while room is not None and parts and len("  ".join(parts)) > room:
            parts.pop()
        return "  ".join(parts)

    def validation(
        self, step: int, metrics: Mapping[str, float], best: bool, samples: Sequence[Sample], width: int
    ) -> list[str]:
        """The lines of a validation; what sharpness is, is told once."""
        lines = [validation_line(step, metrics, self._metric if best else None)]
        if "sharpness" in metrics and not self._explained:
            self._explained = True
            lines.append(SHARPNESS)
        return [*lines, *sample_lines(samples, width)]

    def left(self, report: Report) -> str:
        seconds = seconds_left(self.limits, report.step, report.elapsed)
        more = "" if self._beyond is None else self._beyond(report.elapsed, seconds)
        return f"{clock_time(seconds)} left{more}"


class Silent:
    """Shows nothing."""

    def start(self, limits: Limits) -> None: ...

    def update(self, report: Report) -> None: ...

    def validating(self) -> None: ...

    def validated(
        self, step: int, metrics: Mapping[str, float], best: bool, samples: Sequence[Sample] = ()
    ) -> None: ...

    def stop(self) -> None: ...


class Lines:
    """Plain lines for a log: one for each validation, and one for an update at most every 30 seconds."""

    def __init__(self, stream: TextIO, metric: str = "loss", beyond: Beyond | None = None) -> None:
        self._stream = stream
        self._summary = _Summary(metric, beyond)
        self._shown = 0.0

    def start(self, limits: Limits) -> None:
        self._summary.limits = limits
        self._shown = limits.elapsed

    def update(self, report: Report) -> None:
        self._summary.average(report)
        if report.elapsed - self._shown >= LINE_SECONDS:
            self._shown = report.elapsed
            summary = self._summary
            self._print(f"step {summary.step(report)}  {summary.state(report)}  {summary.left(report)}")

    def validating(self) -> None: ...

    def validated(self, step: int, metrics: Mapping[str, float], best: bool, samples: Sequence[Sample] = ()) -> None:
        for line in self._summary.validation(step, metrics, best, samples, WIDEST):
            self._print(line)

    def stop(self) -> None: ...

    def _print(self, line: str) -> None:
        print(line, file=self._stream, flush=True)


class Bar:
    """A progress bar. It is redrawn from the loop, not by a thread of its own, which would take time from training."""

    def __init__(self, stream: TextIO, metric: str = "loss", beyond: Beyond | None = None) -> None:
        self._summary = _Summary(metric, beyond)
        self._shown = float("-inf")
        self._bar = RichProgress(
            TextColumn("step {task.fields[step]}"),
            BarColumn(bar_width=None),
            TextColumn("{task.percentage:>3.0f}%  {task.fields[state]}  [bold]{task.fields[left]}[/bold]"),
            console=Console(file=stream),
            auto_refresh=False,
            expand=True,
        )
        self._task: TaskID | None = None
        self._state = ""  # what a validation covers up

    def start(self, limits: Limits) -> None:
        self._summary.limits = limits
        self._task = self._bar.add_task("", total=1.0, step=limits.step, state="starting", left="")
        self._bar.start()
        self._draw(completed=share_done(limits, limits.step, limits.elapsed))

    def update(self, report: Report) -> None:
        self._summary.average(report)
        summary, done = self._summary, share_done(self._summary.limits, report.step, report.elapsed)
        if done >= 1 or report.elapsed - self._shown >= REFRESH_SECONDS:
            self._shown = report.elapsed
            step, left = summary.step(report), summary.left(report)
            # What stays longest on a narrow terminal is the step and the time left.
            room = self._bar.console.width - len(f"step {step}  100%    {left}") - NARROWEST
            self._state = summary.state(report, room)
            self._draw(completed=done, step=step, state=self._state, left=left)

    def validating(self) -> None:
        self._draw(state="validating")

    def validated(self, step: int, metrics: Mapping[str, float], best: bool, samples: Sequence[Sample] = ()) -> None:
        console = self._bar.console
        for line in self._summary.validation(step, metrics, best, samples, console.width):
            console.print(line, markup=False, highlight=False)
        self._draw(state=self._state)

    def stop(self) -> None:
        self._bar.stop()

    def _draw(self, completed: float | None = None, **fields: Any) -> None:
        if self._task is not None:
            self._bar.update(self._task, completed=completed, **fields)
            self._bar.refresh()


def progress_for(stream: TextIO | None = None, metric: str = "loss", beyond: Beyond | None = None) -> Progress:
    """A bar when `stream` (stderr unless told) is a terminal, else plain lines; `metric` tells what is best."""
    stream = stream or sys.stderr
    return Bar(stream, metric, beyond) if stream.isatty() else Lines(stream, metric, beyond)
