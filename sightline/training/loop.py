"""The training loop: batches in, weights out, and nothing lost when it stops on the way.

A model gives `loss(batch) -> {name: (sum, count)}`; what is minimised is the weighted sum of the means, sum / count,
so that every token of a batch weighs the same and padding weighs nothing. The loop knows no loss by name.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import torch
from torch import nn

from sightline.batch import Batch
from sightline.config import TrainingConfig
from sightline.errors import SightlineError
from sightline.training.averages import CROSS_ENTROPY, Averages, evaluating, losses_of, objective
from sightline.training.checkpoints import CHECKPOINTS, check_settings, latest, load_checkpoint, save_checkpoint
from sightline.training.interrupts import Interrupted, Stop, stop_signals
from sightline.training.metrics_log import MetricsLog, Value
from sightline.training.progress import Limits, Progress, Report, Silent
from sightline.training.schedules import schedule
from sightline.training.watch import Unwatched, Watch

Reason = Literal["max_steps", "max_minutes", "patience", "interrupted"]
METRICS = "metrics.jsonl"
SKIPS_ALLOWED = 20


class Data(Protocol):
    """Where batches come from."""

    def epoch(self, epoch: int) -> Sequence[Any]:
        """The example numbers of each batch of an epoch (from 0): always the same for the same seed and epoch."""

    def batch(self, indices: Any) -> Batch:
        """These examples as a batch."""


@dataclass(frozen=True)
class Validation:
    """How well the model does: `run(model)` gives metrics, and the one called `metric` decides which weights are best.

    `run` finds the model in evaluation mode and without gradients. `save_best(metrics)` is called each time the
    weights are the best so far, before training goes on.
    """

    run: Callable[[nn.Module], Mapping[str, float]]
    save_best: Callable[[dict[str, float]], None]
    metric: str = "loss"
    higher_is_better: bool = False

    def better(self, new: Mapping[str, float], old: Mapping[str, float] | None) -> bool:
        """Whether `new` beats `old`; what is not a number never does."""
        if self.metric not in new:
            raise SightlineError(f"validation gives no '{self.metric}' to choose by, only {', '.join(new)}")
        value = new[self.metric]
        if old is None:
            return not math.isnan(value)
        return value > old[self.metric] if self.higher_is_better else value < old[self.metric]


@dataclass(frozen=True)
class Host:
    """The world around a run: who watches, and what time it is, in seconds."""

    progress: Progress = field(default_factory=Silent)
    clock: Callable[[], float] = time.monotonic
    watch: Watch = field(default_factory=Unwatched)


@dataclass(frozen=True)
class Result:
    """What a run came to. Steps, seconds and (target) tokens count from its first start, resumed or not.

    `best` are the metrics of the best validation, `checkpoint` is where the run can go on from.
    """

    reason: Reason
    steps: int
    epochs: float
    seconds: float
    tokens: int
    skipped: int
    best: dict[str, float] | None
    best_step: int
    checkpoint: Path

    @property
    def interrupted(self) -> bool:
        """Whether a signal ended it."""
        return self.reason == "interrupted"


@dataclass
class State:
    """Where a run is; with weights, moments and random states all it takes to go on."""

    step: int = 0
    epoch: int = 0
    position: int = 0  # batches of the epoch that are done
    tokens: int = 0
    seconds: float = 0.0
    skipped: int = 0
    skipped_in_a_row: int = 0
    best: dict[str, float] | None = None
    best_step: int = 0
    waited: int = 0  # validations since the best
    validated: int = 0  # step of the last validation
    lines: int = 0  # of the metrics file


@dataclass
class Window:
    """What has gathered since the last line of the metrics file."""

    losses: Averages = field(default_factory=Averages)
    updates: int = 0
    norms: float = 0.0
    tokens: int = 0
    seconds: float = 0.0


def build_optimizer(model: nn.Module, config: TrainingConfig) -> torch.optim.Optimizer:
    """AdamW, in its fused form where there is one; biases and gains (vectors) do not decay."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.dim() > 1], "weight_decay": config.weight_decay},
        {"params": [p for p in parameters if p.dim() <= 1], "weight_decay": 0.0},
    ]
    fused = all(parameter.device.type in ("cpu", "cuda") for parameter in parameters)
    return torch.optim.AdamW(groups, lr=0.0, betas=config.betas, eps=config.epsilon, fused=fused)


class Trainer:
    """One run in `folder`: trains `model` in place, keeps `checkpoints/` and `metrics.jsonl` there.

    `loss_weights` names the losses to minimise (others are only reported); `settings` are those that must not change
    when the run is resumed, see `lasting_settings`.
    """

    def __init__(
        self,
        model: nn.Module,
        data: Data,
        validation: Validation,
        config: TrainingConfig,
        folder: Path,
        loss_weights: Mapping[str, float] = CROSS_ENTROPY,
        settings: Mapping[str, Any] | None = None,
        host: Host | None = None,
    ) -> None:
        self.model, self.data, self.validation, self.config, self.folder = model, data, validation, config, folder
        self.loss_weights, self.settings, self.host = loss_weights, dict(settings or {}), host or Host()
        self.schedule = schedule(config)
        self.optimizer = build_optimizer(model, config)
        self.state, self._window = State(), Window()
        self._parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._device = self._parameters[0].device
        self._checkpoint: Path | None = None  # where this very state is saved

    def run(self, resume: bool = False) -> Result:
        """Trains until a limit or a signal; with `resume`, from the last checkpoint exactly as if never stopped."""
        self._restore() if resume else self._begin()
        state, progress = self.state, self.host.progress
        self._zero = self.host.clock() - state.seconds
        self._batches = self._epoch()
        self._session_tokens, self._session_seconds = 0, 0.0
        with MetricsLog(self.folder / METRICS, state.lines) as self._log, stop_signals() as stop:
            self.host.watch.start(state.step)
            progress.start(Limits(self.config.max_steps, self.schedule.max_seconds, state.step, state.seconds))
            try:
                reason = self._loop(stop)
            finally:
                progress.stop()
                self.host.watch.stop()
        return Result(
            reason=reason,
            steps=state.step,
            epochs=state.epoch + state.position / len(self._batches),
            seconds=state.seconds,
            tokens=state.tokens,
            skipped=state.skipped,
            best=state.best,
            best_step=state.best_step,
            checkpoint=self._save(),
        )

    # Beginning and end

    def _begin(self) -> None:
        found = latest(self.folder / CHECKPOINTS)
        if found is not None:
            raise SightlineError(
                f"{self.folder}: holds a run already ({found.name}); go on with --resume or choose another folder"
            )
        torch.manual_seed(self.config.seed)

    def _restore(self) -> None:
        found = latest(self.folder / CHECKPOINTS)
        if found is None:
            raise SightlineError(f"{self.folder}: no checkpoint to resume from; start without --resume")
        check_settings(found, self.settings)
        values = load_checkpoint(found, self.model, self.optimizer)
        self.state = State(**values["state"])
        self._window = Window(**{**values["window"], "losses": Averages(**values["window"]["losses"])})
        self._checkpoint = found

    def _save(self) -> Path:
        """The checkpoint of this state, written unless it is there already."""
        if self._checkpoint is None:
            self.state.seconds = self._elapsed()
            window = {**vars(self._window), "losses": self._window.losses.plain()}
            values = {"state": asdict(self.state), "window": window, "settings": self.settings}
            folder = self.folder / CHECKPOINTS
            self._checkpoint = save_checkpoint(folder, self.state.step, self.model, self.optimizer, values)
        return self._checkpoint

    def _loop(self, stop: Stop) -> Reason:
        self.model.train()
        self._pause(stop)
        while (reason := self._ended(stop)) is None:
            self._update()
            self._pause(stop)
        if reason != "interrupted" and self.state.validated < self.state.step and not self._validate(stop):
            reason = "interrupted"
        self._save()
        return reason

    def _ended(self, stop: Stop) -> Reason | None:
        config = self.config
        if stop.requested:
            return "interrupted"
        if config.patience and self.state.waited >= config.patience:
            return "patience"
        if config.max_steps is not None and self.state.step >= config.max_steps:
            return "max_steps"
        if self.schedule.max_seconds is not None and self._elapsed() >= self.schedule.max_seconds:
            return "max_minutes"
        return None

    def _elapsed(self) -> float:
        return self.host.clock() - self._zero

    # One update

    def _epoch(self) -> Sequence[Any]:
        batches = self.data.epoch(self.state.epoch)
        if not batches:
            raise SightlineError("there is nothing to train on: no pair is left; see data.max_length")
        return batches

    def _next_indices(self) -> Any:
        if self.state.position >= len(self._batches):
            self.state.epoch, self.state.position = self.state.epoch + 1, 0
            self._batches = self._epoch()
        self.state.position += 1
        return self._batches[self.state.position - 1]

    def _update(self) -> None:
        state, started = self.state, self._elapsed()
        self._checkpoint = None
        indices = self._next_indices()
        batch = self.data.batch(indices)
        tokens = int((batch.targets or batch.sources[0]).mask.sum())
        state.step += 1
        state.tokens += tokens
        rate = self.schedule.rate(state.step, started)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        losses = losses_of(self.model, batch.to(self._device))
        total = objective(losses, self.loss_weights)
        total.backward()  # type: ignore[no-untyped-call]
        norm = nn.utils.clip_grad_norm_(self._parameters, self.config.clip)
        # The only wait for the device in an update.
        loss, length = torch.stack((total.detach().float(), norm.float())).tolist()
        if math.isfinite(loss) and math.isfinite(length):
            self.optimizer.step()
            state.skipped_in_a_row = 0
            self._window.losses.add(losses)
            self._window.updates += 1
            self._window.norms += length
        else:
            self._skip(batch.indices)
        self.optimizer.zero_grad(set_to_none=True)
        self._account(tokens, started, loss, rate)

    def _skip(self, indices: Sequence[int]) -> None:
        """A loss or gradient that is no number must not reach the weights; if it stays, training has failed."""
        self.state.skipped += 1
        self.state.skipped_in_a_row += 1
        if self.state.skipped_in_a_row >= SKIPS_ALLOWED:
            more = f" and {len(indices) - 10} more" if len(indices) > 10 else ""
            examples = ", ".join(str(index) for index in indices[:10]) + more
            raise SightlineError(
                f"step {self.state.step}: loss or gradient not finite {SKIPS_ALLOWED} times in a row, last with "
                f"pairs {examples} of the training part (from 0); lower training.learning_rate, or look at these pairs"
            )

    def _account(self, tokens: int, started: float, loss: float, rate: float) -> None:
        """Counts an update's tokens and time, and tells about it."""
        state, window, elapsed = self.state, self._window, self._elapsed()
        window.tokens += tokens
        window.seconds += elapsed - started
        self._session_tokens += tokens
        self._session_seconds += elapsed - started
        if state.step % self.config.log_every == 0:
            values = {
                "learning_rate": rate,
                "gradient_norm": window.norms / max(window.updates, 1),
                "tokens": state.tokens,
                "tokens_per_second": window.tokens / max(window.seconds, 1e-9),
                "skipped": state.skipped,
            }
            self._write_line("training", elapsed, {**values, **window.losses.means(self.loss_weights)})
            self._window = Window()
        speed = self._session_tokens / max(self._session_seconds, 1e-9)
        self.host.progress.update(Report(state.step, state.epoch, elapsed, loss, rate, speed))

    def _write_line(self, kind: str, elapsed: float, values: Mapping[str, Value]) -> None:
        place: dict[str, Value] = {
            "kind": kind,
            "step": self.state.step,
            "epoch": self.state.epoch,
            "seconds": round(elapsed, 3),
        }
        self._log.write({**place, **values})
        self.state.lines = self._log.lines
        self.host.watch.line({**place, **values})

    # Between updates

    def _pause(self, stop: Stop) -> None:
        """Validation and checkpoint where they are due. After a signal they wait: the run's end saves."""
        state, config = self.state, self.config
        every = config.validate_every
        due = every is not None and state.step > state.validated and state.step % every == 0
        if due and not stop.requested:
            self._validate(stop)
        save_due = state.step % config.save_every == 0 if config.save_every else state.validated == state.step
        if save_due and state.step > 0 and not stop.requested:
            self._save()

    def _validate(self, stop: Stop) -> bool:
        """Returns whether it came to its end: a signal leaves it, and the resumed run does it again."""
        self.host.progress.validating()
        try:
            with stop.at_once(), evaluating(self.model):
                metrics = dict(self.validation.run(self.model))
        except Interrupted:
            return False
        self._checkpoint = None
        state = self.state
        best = self.validation.better(metrics, state.best)
        if best:
            self.validation.save_best(metrics)
            state.best, state.best_step = metrics, state.step
        state.waited = 0 if best else state.waited + 1
        state.validated = state.step
        samples = self.host.watch.validated(state.step, best)
        told = {"samples": [sample._asdict() for sample in samples]} if samples else {}
        self._write_line("validation", self._elapsed(), {**metrics, "best": best, **told})
        self.host.progress.validated(state.step, metrics, best, samples)
        return True
