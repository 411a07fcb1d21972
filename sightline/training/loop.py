"""The training loop: batches in, weights out, and nothing lost when it stops on the way.

A model gives `loss(batch) -> {name: (sum, count)}`; what is minimised is the weighted sum of the means, sum / count,
so that every token of a batch weighs the same and padding weighs nothing. The loop knows no loss by name.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn

from sightline.batch import Batch
from sightline.config import TrainingConfig
from sightline.errors import SightlineError
from sightline.training import side_by_side
from sightline.training.adam import AdamW
from sightline.training.averages import CROSS_ENTROPY, Averages, evaluating
from sightline.training.averaging import average_weights, chosen_checkpoints, kept
from sightline.training.checkpoint_names import CHECKPOINTS, latest, step_of
from sightline.training.checkpoints import load_checkpoint, save_checkpoint
from sightline.training.interrupts import Interrupted, Stop, stop_signals
from sightline.training.metrics_log import MetricsLog, Value
from sightline.training.moving_average import MovingAverage, replaced
from sightline.training.parts import Data, Host, Reason, Result, State, Validation, Window
from sightline.training.progress import Limits, Report
from sightline.training.ranks import Alone, Ranks, rank_seed
from sightline.training.resume import check_settings
from sightline.training.schedules import schedule
from sightline.training.side_by_side import Workers
from sightline.training.update import Backward, backward, gradient_norm, may_step, plain_loss, suspects, token_count

__all__ = ["Data", "Host", "Result", "State", "Trainer", "Validation", "Window", "build_optimizer"]

METRICS = "metrics.jsonl"
SKIPS_ALLOWED = 20


def build_optimizer(model: nn.Module, config: TrainingConfig) -> AdamW:
    """AdamW; biases and gains (vectors) do not decay."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.dim() > 1], "weight_decay": config.weight_decay},
        {"params": [p for p in parameters if p.dim() <= 1], "weight_decay": 0.0},
    ]
    return AdamW(groups, config.betas, config.epsilon)


class Trainer:
    """One run in `folder`: trains `model` in place, keeps `checkpoints/` and `metrics.jsonl` there.

    `loss_weights` names the losses to minimise (others are only reported); `settings` are those that must not change
    when the run is resumed, see `lasting_settings`; `notes` are kept in every checkpoint.
    An update takes `accumulate` batches on each of the `ranks`.
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
        notes: Mapping[str, Any] | None = None,
        ranks: Ranks | None = None,
    ) -> None:
        self.model, self.data, self.validation, self.config, self.folder = model, data, validation, config, folder
        self.loss_weights, self.settings, self.host = loss_weights, dict(settings or {}), host or Host()
        self.notes = dict(notes or {})
        self.schedule = schedule(config)
        self.ranks = ranks or Alone()
        self.spread = self.ranks.spread(model)
        owner = self.spread.owner
        self.optimizer = build_optimizer(owner, config)
        self.moving_average = MovingAverage(owner, config.ema) if config.ema else None
        self.state, self._window = State(), Window()
        self._parameters = [parameter for parameter in owner.parameters() if parameter.requires_grad]
        self._device = self._parameters[0].device
        self._checkpoint: Path | None = None  # where this very state is saved
        self._regular = False  # whether that checkpoint was due
        self._average: dict[str, float] | None = None
        apart = (config.workers or 1) > 1 and self._device.type == "cpu" and self.ranks.size == 1
        self.workers = Workers(config.workers or 1, config.seed) if apart else None

    def run(self, resume: bool = False) -> Result:
        """Trains until a limit or a signal; with `resume`, from the last checkpoint exactly as if never stopped."""
        self._restore() if resume else self._begin()
        state, progress = self.state, self.host.progress
        self._batches = self._epoch()
        self._session_tokens, self._session_seconds = 0, 0.0
        metrics = MetricsLog(self.folder / METRICS, state.lines) if self.ranks.first else nullcontext()
        with metrics as self._log, stop_signals() as stop:
            self._clock = self.ranks.follow(stop, self.host.clock)
            self._zero = self._clock() - state.seconds
            self.host.watch.start(state.step)
            progress.start(Limits(self.config.max_steps, self.schedule.max_seconds, state.step, state.seconds))
            try:
                with self.workers.at_work() if self.workers else nullcontext():
                    reason = self._loop(stop)
            finally:
                progress.stop()
                if self.workers is not None:
                    self.workers.close()
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
            average_of=tuple(state.average_of),
            average=self._average,
        )

    # Beginning and end

    def _begin(self) -> None:
        found = latest(self.folder / CHECKPOINTS)
        if found is not None:
            raise SightlineError(
                f"{self.folder}: holds a run already ({found.name}); go on with --resume or choose another folder"
            )
        torch.manual_seed(rank_seed(self.config.seed, self.ranks.rank))

    def _restore(self) -> None:
        found = latest(self.folder / CHECKPOINTS)
        if found is None:
            raise SightlineError(f"{self.folder}: no checkpoint to resume from; start without --resume")
        check_settings(found, self.settings)
        values = load_checkpoint(found, self.spread.owner, self.optimizer, self._averaged_values(), self.ranks)
        self.state = State(**values["state"])
        self._window = Window(**{**values["window"], "losses": Averages(**values["window"]["losses"])})
        self._checkpoint, self._regular = found, bool(values.get("regular", True))

    def _averaged_values(self) -> dict[str, torch.Tensor] | None:
        return None if self.moving_average is None else self.moving_average.values

    def _save(self, ended: bool = False) -> Path:
        """The checkpoint of this state, written unless it is there already.

        It is regular if a run without signals would have written it too: when one is due, or the run has `ended`.
        """
        state = self.state
        regular = (ended and state.step > 0) or self._save_due()
        if self._checkpoint is None or (regular and not self._regular):
            state.seconds = self._elapsed()
            validated = state.validated == state.step > 0
            values = {
                **self.notes,
                "state": asdict(state),
                "window": {**vars(self._window), "losses": self._window.losses.plain()},
                "settings": self.settings,
                "regular": regular,
                "score": state.score if validated else None,
                "ranks": self.ranks.size,
            }
            self._checkpoint = save_checkpoint(
                self.folder / CHECKPOINTS,
                state.step,
                self.spread.owner,
                self.optimizer,
                values,
                kept(self.config, self.validation.higher_is_better),
                self._averaged_values(),
                self.ranks,
            )
            self._regular = regular
        return self._checkpoint

    def _loop(self, stop: Stop) -> Reason:
        self.spread.runner.train()
        if self.state.step == 0:
            self._save()  # before the first best model is: a killed run can go on wherever it was
        self._pause(stop)
        while (reason := self._ended(stop)) is None:
            self._update()
            self._pause(stop)
        if reason != "interrupted" and self.state.validated < self.state.step and not self._validate(stop):
            reason = "interrupted"
        self._save(ended=reason != "interrupted")
        if reason != "interrupted" and not self._try_average(stop):
            reason = "interrupted"
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
        return self._clock() - self._zero

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

    def _next_batches(self) -> list[Batch]:
        """This rank's batches of the next update, or with workers the parts of them."""
        drawn = [self._next_indices() for _ in range(self.config.accumulate * self.ranks.size)]
        drawn = drawn[self.ranks.rank :: self.ranks.size]
        batches = [self.data.batch(indices) for indices in drawn]
        return [part for batch in batches for part in self.workers.parted(batch)] if self.workers else batches

    def _backward(self, batches: Sequence[Batch]) -> Backward:
        if self.workers is not None:
            return side_by_side.backward(self.model, batches, self.loss_weights, self.workers, self.state.step)
        moved = [batch.to(self._device) for batch in batches]
        return backward(self.spread.runner, moved, self.loss_weights, self.spread.quiet)

    def _update(self) -> None:
        state, started = self.state, self._elapsed()
        self._checkpoint = None
        batches = self._next_batches()
        state.step += 1
        state.rate = rate = self.schedule.rate(state.step, started)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        found = self._backward(batches)
        norm = gradient_norm(self._parameters, self.config.clip)
        # The only wait for the device in an update.
        told = (found.objective, plain_loss(found), norm, *found.each)
        loss, plain, length, *each = torch.stack([value.float() for value in told]).tolist()
        if may_step(loss, length):
            self.optimizer.step()
            state.skipped_in_a_row = 0
            if self.moving_average is not None:
                self.moving_average.update(self.spread.owner, state.step - state.skipped)
            self._window.losses.add(found.losses)
            self._window.updates += 1
            self._window.norms += length
        else:
            self._skip(suspects(batches, each))
        self.optimizer.zero_grad()
        tokens = self.ranks.settle(token_count(batches))
        state.tokens += tokens
        self._account(tokens, started, plain, loss)

    def _skip(self, indices: Sequence[int]) -> None:
        """A loss or gradient that is no number must not reach the weights; if it stays, training has failed."""
        self.state.skipped += 1
        self.state.skipped_in_a_row += 1
        if self.state.skipped_in_a_row >= SKIPS_ALLOWED:
            indices = [index for part in self.ranks.gather(indices) for index in part]
            more = f" and {len(indices) - 10} more" if len(indices) > 10 else ""
            examples = "; ".join(self.data.where(index) for index in indices[:10]) + more
            raise SightlineError(
                f"step {self.state.step}: loss or gradient not finite {SKIPS_ALLOWED} times in a row, last with "
                f"{examples}: lower training.learning_rate, or look at these lines"
            )

    def _account(self, tokens: int, started: float, loss: float, objective: float) -> None:
        """Counts an update's tokens and time, and tells about it."""
        state, window, elapsed = self.state, self._window, self._elapsed()
        rate = state.rate or 0.0
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
        self.host.progress.update(Report(state.step, state.epoch, elapsed, loss, rate, speed, objective))

    def _write_line(self, kind: str, elapsed: float, values: Mapping[str, Value]) -> None:
        place: dict[str, Value] = {
            "kind": kind,
            "step": self.state.step,
            "epoch": self.state.epoch,
            "seconds": round(elapsed, 3),
        }
        if self._log is not None:
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
        if self._save_due() and not stop.requested:
            self._save()

    def _save_due(self) -> bool:
        state, config = self.state, self.config
        validated = state.validated == state.step
        if config.save_every is None or state.step == 0:
            return validated and state.step > 0
        return state.step % config.save_every == 0 or (validated and kept(config).best > 0)

    def _measured(self, stop: Stop) -> dict[str, float] | None:
        """The validation's metrics; None if a signal came: the resumed run does it again."""
        self.host.progress.validating()

        def run() -> dict[str, float] | None:
            try:
                whole = self.workers.at_work(parts=False) if self.workers else nullcontext()
                with stop.at_once(), evaluating(self.model), whole:
                    return dict(self.validation.run(self.model))
            except Interrupted:
                return None

        metrics = self.ranks.on_first(run)
        stop.requested |= metrics is None
        return metrics

    def _validate(self, stop: Stop) -> bool:
        """Returns whether it came to its end."""
        state = self.state
        self.ranks.collect(self.spread, self.model)
        with replaced(self.model, self.ranks.whole(self._averaged_values() or {})):
            metrics = self._measured(stop)
            if metrics is None:
                return False
            self._checkpoint = None
            best = self.validation.better(metrics, state.best)
            if best:
                self.ranks.on_first(lambda: self.validation.save_best(metrics))
                state.best, state.best_step, state.average_of = metrics, state.step, []
        value = metrics[self.validation.metric]
        state.score = value if math.isfinite(value) else None
        state.waited = 0 if best else state.waited + 1
        state.validated = state.step
        samples = self.host.watch.validated(state.step, best)
        told = {"samples": [sample._asdict() for sample in samples]} if samples else {}
        self._write_line("validation", self._elapsed(), {**metrics, "best": best, **told})
        self.host.progress.validated(state.step, metrics, best, samples)
        return True

    def _try_average(self, stop: Stop) -> bool:
        """The mean of several checkpoints becomes the model if it validates at least as well as the best.

        Returns whether it came to its end. A run that goes on later must do better than the mean.
        """
        state, config = self.state, self.config
        higher = self.validation.higher_is_better
        paths = chosen_checkpoints(self.folder / CHECKPOINTS, config.average, config.average_count, higher)
        if len(paths) < 2 or state.averaged == state.step:
            return True
        with replaced(self.model, average_weights(paths) if self.ranks.first else {}):
            metrics = self._measured(stop)
            if metrics is None:
                return False
            best = self.validation.as_good(metrics, state.best)
            if best:
                self.ranks.on_first(lambda: self.validation.save_best(metrics))
                state.best, state.best_step, state.average_of = metrics, state.step, [step_of(path) for path in paths]
        self._average, self._checkpoint, state.averaged = metrics, None, state.step
        if best:  # else the report is about other weights
            self.host.watch.validated(state.step, best)
        self._write_line("average", self._elapsed(), {**metrics, "best": best, "checkpoints": len(paths)})
        self._save(ended=True)
        return True
