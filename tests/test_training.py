"""The loop with a toy model: what it minimises, when it stops, and that a stopped run goes on as if it never had."""

import io
import json
import math
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from sightline import performance
from sightline.batch import Batch, Tokens, pad
from sightline.config import TrainingConfig
from sightline.errors import SightlineError
from sightline.training.averages import average_losses, evaluating, objective
from sightline.training.checkpoint_names import latest
from sightline.training.loop import Host, Result, Trainer, Validation, build_optimizer
from sightline.training.metrics_log import MetricsLog
from sightline.training.progress import Bar, Limits, Lines, Report, Silent, clock_time, progress_for, seconds_left
from sightline.training.schedules import schedule

VOCABULARY = 11
TIME_FIELDS = ("seconds", "tokens_per_second")


@pytest.fixture(autouse=True)
def _one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Toy(nn.Module):
    """Predicts a target token from the source token at its place; output tied to the embedding."""

    def __init__(self, dropout: float = 0.2) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.embedding = nn.Embedding(VOCABULARY, 8)
        self.hidden = nn.Linear(8, 8)
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(8, VOCABULARY)
        self.output.weight = self.embedding.weight

    def loss(self, batch: Batch) -> dict[str, tuple[Tensor, Tensor | int]]:
        source, targets = batch.sources[0], batch.targets
        assert isinstance(source, Tokens)
        assert targets is not None
        logits = self.output(self.dropout(torch.tanh(self.hidden(self.embedding(source.ids)))))[targets.mask]
        gold, count = targets.ids[targets.mask], targets.mask.sum()
        smoothed = functional.cross_entropy(logits, gold, reduction="sum", label_smoothing=0.1)
        return {
            "cross_entropy": (smoothed, count),
            "nll": (functional.cross_entropy(logits, gold, reduction="sum"), count),
        }


class ToyData:
    """Sentences of random lengths whose targets follow from their sources; `before(number)` runs before each batch."""

    def __init__(self, examples: int = 23, before: Callable[[int], None] = lambda number: None) -> None:
        generator = torch.Generator().manual_seed(5)
        lengths = torch.randint(2, 7, (examples,), generator=generator).tolist()
        self.rows = [torch.randint(1, VOCABULARY, (n,), generator=generator).tolist() for n in lengths]
        self.before = before
        self.served = 0

    def epoch(self, epoch: int) -> list[list[int]]:
        order = torch.randperm(len(self.rows), generator=torch.Generator().manual_seed(100 + epoch)).tolist()
        return [order[start : start + 5] for start in range(0, len(order), 5)]

    def batch(self, indices: list[int]) -> Batch:
        self.served += 1
        self.before(self.served)
        rows = [self.rows[index] for index in indices]
        targets = pad([[VOCABULARY - token for token in row] for row in rows], 0)
        return Batch((pad(rows, 0),), targets, tuple(indices))

    def where(self, index: int) -> str:
        return f"toy, line {index + 1}"


@dataclass
class Clock:
    """Time that passes only when someone looks at it."""

    tick: float = 0.01
    now: float = 1000.0

    def __call__(self) -> float:
        self.now += self.tick
        return self.now


@dataclass
class Run:
    """A run and everything that can be seen of it."""

    folder: Path
    data: ToyData = field(default_factory=ToyData)
    model: nn.Module = field(default_factory=Toy)
    validate: Callable[[nn.Module], Mapping[str, float]] | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    clock: Clock = field(default_factory=Clock)
    higher: bool = False
    bests: list[dict[str, float]] = field(default_factory=list)

    def trainer(self, **changes: Any) -> Trainer:
        values: dict[str, Any] = {
            "max_steps": 20,
            "learning_rate": 0.02,
            "warmup": 4,
            "validate_every": 6,
            "log_every": 4,
        }
        if "max_minutes" in changes:
            del values["max_steps"]
        config = TrainingConfig(**{**values, **changes})
        held_out = ToyData()
        batches = [held_out.batch([0, 1, 2]), held_out.batch([3])]
        run = self.validate or (lambda model: average_losses(model, batches))
        validation = Validation(run, self.bests.append, higher_is_better=self.higher)
        host = Host(Silent(), self.clock)
        return Trainer(self.model, self.data, validation, config, self.folder, settings=self.settings, host=host)

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "metrics.jsonl").read_text().splitlines()]

    def lines_without_time(self) -> list[dict[str, Any]]:
        return [{key: value for key, value in line.items() if key not in TIME_FIELDS} for line in self.lines()]


def assert_same(one: Trainer, other: Trainer) -> None:
    """Equal to the last bit: weights and optimizer."""
    for ours, theirs in zip(one.model.parameters(), other.model.parameters(), strict=True):
        assert torch.equal(ours, theirs)
        for key, value in one.optimizer.state[ours].items():
            assert torch.equal(value, other.optimizer.state[theirs][key])


def test_it_learns_and_tells(tmp_path: Path) -> None:
    run = Run(tmp_path)
    result = run.trainer(max_steps=150, validate_every=50, log_every=10).run()
    assert result.reason == "max_steps"
    assert (result.steps, result.epochs, result.skipped, result.interrupted) == (150, 30.0, 0, False)
    assert result.tokens == 30 * sum(len(row) for row in run.data.rows)
    assert result.best is not None
    assert result.best["nll"] < 0.5 * math.log(VOCABULARY)
    assert run.bests[-1] == result.best
    lines = run.lines()
    assert [line["step"] for line in lines if line["kind"] == "validation"] == [50, 100, 150]
    training = [line for line in lines if line["kind"] == "training"]
    assert [line["step"] for line in training] == list(range(10, 151, 10))
    assert training[-1]["nll"] < training[0]["nll"]
    assert training[0]["perplexity"] == pytest.approx(math.exp(training[0]["nll"]))
    assert training[0]["loss"] == training[0]["cross_entropy"] != training[0]["nll"]
    assert training[0]["learning_rate"] == pytest.approx(schedule(run.trainer(max_steps=150).config).rate(10))


def test_the_loss_that_is_shown_is_the_one_that_validation_tells(tmp_path: Path) -> None:
    """Not what is minimised: a smoothed loss beside a plain one looks like a model that does better on unseen text."""
    seen: list[float] = []

    class Told(Silent):
        def update(self, report: Report) -> None:
            seen.append(report.loss)

    trainer = (run := Run(tmp_path)).trainer(log_every=1)
    trainer.host = replace(trainer.host, progress=Told())
    trainer.run()
    lines = [line for line in run.lines() if line["kind"] == "training"]
    assert seen == pytest.approx([line["nll"] for line in lines])
    assert seen != pytest.approx([line["loss"] for line in lines])


def stopped_at(step: int, how: str) -> Callable[[int], None]:
    def before(number: int) -> None:
        if number == step:
            if how == "crash":
                raise RuntimeError("a crash")
            signal.raise_signal(signal.SIGTERM if how == "term" else signal.SIGINT)

    return before


@pytest.mark.parametrize(
    ("step", "how"), [(1, "int"), (6, "int"), (9, "term"), (12, "int"), (20, "int"), (17, "crash")]
)
@pytest.mark.parametrize("save_every", [None, 5])
def test_a_resumed_run_is_identical(tmp_path: Path, step: int, how: str, save_every: int | None) -> None:
    whole = Run(tmp_path / "whole")
    trainer = whole.trainer(save_every=save_every)
    expected = trainer.run()

    part = Run(tmp_path / "part", ToyData(before=stopped_at(step, how)))
    if how == "crash":
        with pytest.raises(RuntimeError, match="a crash"):
            part.trainer(save_every=save_every).run()
    else:
        first = part.trainer(save_every=save_every).run()
        assert first.interrupted
        assert first.steps == step  # the step under way was finished
        assert first.checkpoint == latest(part.folder / "checkpoints")
    torch.manual_seed(999)
    rest = Run(part.folder, model=Toy(), bests=part.bests)
    resumed = rest.trainer(save_every=save_every)
    result = resumed.run(resume=True)
    assert_same(trainer, resumed)
    assert rest.lines_without_time() == whole.lines_without_time()
    assert (result.steps, result.epochs, result.tokens) == (expected.steps, expected.epochs, expected.tokens)
    assert (result.best, result.best_step, result.reason) == (expected.best, expected.best_step, "max_steps")
    assert rest.bests[-1] == whole.bests[-1]


def test_resuming_a_finished_run_does_nothing_and_a_higher_limit_goes_on(tmp_path: Path) -> None:
    first = Run(tmp_path).trainer(max_steps=10, schedule="constant").run()
    again = Run(tmp_path)
    assert again.trainer(max_steps=10, schedule="constant").run(resume=True) == first
    assert again.data.served == 0
    longer = again.trainer(max_steps=15, schedule="constant").run(resume=True)
    assert (longer.steps, again.data.served) == (15, 5)
    assert [line["step"] for line in again.lines() if line["kind"] == "validation"] == [6, 10, 12, 15]


def test_it_equals_a_plain_loop_of_torch(tmp_path: Path) -> None:
    run = Run(tmp_path, model=Toy(dropout=0))
    config = run.trainer(weight_decay=0.1, clip=0.5).config
    run.trainer(weight_decay=0.1, clip=0.5).run()
    model, data = Toy(dropout=0), ToyData()
    vectors = [p for p in model.parameters() if p.dim() < 2]
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    groups = [{"params": matrices}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.98), eps=1e-9, weight_decay=0.1, fused=False, foreach=False)
    batches = [batch for epoch in range(4) for batch in data.epoch(epoch)]
    for step, indices in enumerate(batches[:20], start=1):
        total, count = model.loss(data.batch(indices))["cross_entropy"]
        optimizer.zero_grad()
        (total / count).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        for group in optimizer.param_groups:
            group["lr"] = schedule(config).rate(step)
        optimizer.step()
    for ours, theirs in zip(run.model.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


def test_gradients_are_clipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = Run(tmp_path).trainer(clip=0.01)
    step, norms = trainer.optimizer.step, []

    def look() -> None:
        gradients = [p.grad for group in trainer.optimizer.param_groups for p in group["params"]]
        norms.append(float(nn.utils.get_total_norm(gradients)))
        step()

    monkeypatch.setattr(trainer.optimizer, "step", look)
    trainer.run()
    assert len(norms) == 20
    assert max(norms) <= 0.01 * (1 + 1e-4)


def test_what_is_minimised() -> None:
    losses: dict[str, tuple[Tensor, Tensor | int]] = {
        "cross_entropy": (torch.tensor(12.0), torch.tensor(4)),
        "coverage": (torch.tensor(5.0), 10),
        "guided": (torch.tensor(0.0), torch.tensor(0)),
        "nll": (torch.tensor(9.0), 4),
    }
    assert float(objective(losses, {"cross_entropy": 1.0})) == 3.0
    assert float(objective(losses, {"cross_entropy": 1.0, "coverage": 0.5, "guided": 2.0})) == 3.25
    with pytest.raises(SightlineError, match="no loss 'agreement' to train on, only cross_entropy, coverage"):
        objective(losses, {"agreement": 1.0})


def test_averages_weigh_tokens_not_batches_and_padding_counts_nothing() -> None:
    model, data = Toy(), ToyData()
    each = [data.batch([index]) for index in range(4)]
    together = average_losses(model, [data.batch([0, 1, 2, 3])])
    assert average_losses(model, each) == pytest.approx(together, rel=1e-5)
    assert together["perplexity"] == pytest.approx(math.exp(together["nll"]))
    assert together["loss"] == together["cross_entropy"]


def test_evaluating_leaves_no_trace() -> None:
    model = Toy().train()
    state = torch.get_rng_state()
    with evaluating(model):
        assert not model.training
        assert not torch.is_grad_enabled()
        torch.rand(3)
    assert model.training
    assert torch.equal(torch.get_rng_state(), state)


def test_updates_are_made_in_training_mode_whatever_came_before(tmp_path: Path) -> None:
    modes = []

    class Watched(Toy):
        def loss(self, batch: Batch) -> dict[str, tuple[Tensor, Tensor | int]]:
            modes.append(self.training)
            return super().loss(batch)

    Run(tmp_path, model=Watched().eval()).trainer(max_steps=7).run()
    assert modes == [True] * 6 + [False] * 2 + [True] + [False] * 2


def test_minutes_end_a_run_with_a_rate_near_zero(tmp_path: Path) -> None:
    run = Run(tmp_path, clock=Clock(tick=0.2))
    result = run.trainer(max_minutes=1.0, validate_every=1000, log_every=1).run()
    assert result.reason == "max_minutes"
    assert result.seconds >= 60.0
    rates = [line["learning_rate"] for line in run.lines() if line["kind"] == "training"]
    assert max(rates) > 0.018
    assert rates[-1] < 0.0001
    assert [line["step"] for line in run.lines() if line["kind"] == "validation"] == [result.steps]
    assert result.checkpoint.name == f"step-{result.steps:07d}"
    again = Run(tmp_path, clock=Clock(tick=0.2)).trainer(max_minutes=1.0, validate_every=1000, log_every=1)
    assert again.run(resume=True).steps == result.steps  # the time is used up


@pytest.mark.parametrize("higher", [False, True])
def test_patience(tmp_path: Path, higher: bool) -> None:
    losses = iter([3.0, 2.0, 2.5, math.nan, 1.5, 2.0, 2.0, 2.0, 2.0])
    values = (-value for value in losses) if higher else losses
    run = Run(tmp_path, validate=lambda model: {"loss": next(values)}, higher=higher)
    result = run.trainer(patience=3, validate_every=2).run()
    assert result.reason == "patience"
    assert (result.steps, result.best_step) == (16, 10)
    assert [abs(best["loss"]) for best in run.bests] == [3.0, 2.0, 1.5]
    assert [line["best"] for line in run.lines() if line["kind"] == "validation"] == [
        True,
        True,
        False,
        False,
        True,
    ] + [False] * 3


def test_a_signal_leaves_a_validation_which_the_resumed_run_repeats(tmp_path: Path) -> None:
    whole = Run(tmp_path / "whole")
    expected = whole.trainer()
    expected.run()

    def interrupted(model: nn.Module) -> dict[str, float]:
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("not reached")

    part = Run(tmp_path / "part", validate=interrupted)
    first = part.trainer().run()
    assert (first.interrupted, first.steps, first.best) == (True, 6, None)
    rest = Run(part.folder)
    resumed = rest.trainer()
    resumed.run(resume=True)
    assert_same(expected, resumed)
    assert rest.lines_without_time() == whole.lines_without_time()


def test_a_signal_during_the_final_validation(tmp_path: Path) -> None:
    def interrupted(model: nn.Module) -> dict[str, float]:
        signal.raise_signal(signal.SIGINT)
        return {}

    assert Run(tmp_path, validate=interrupted).trainer(validate_every=1000).run().interrupted
    result = Run(tmp_path).trainer(validate_every=1000).run(resume=True)
    assert (result.reason, result.steps, result.best_step) == ("max_steps", 20, 20)


def test_a_second_signal_aborts_and_handlers_come_back(tmp_path: Path) -> None:
    def twice(number: int) -> None:
        if number == 7:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)

    handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        Run(tmp_path, ToyData(before=twice)).trainer().run()
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == handlers
    assert latest(tmp_path / "checkpoints") == tmp_path / "checkpoints" / "step-0000006"


def test_it_runs_outside_the_main_thread(tmp_path: Path) -> None:
    results: list[Result] = []
    thread = threading.Thread(target=lambda: results.append(Run(tmp_path).trainer().run()))
    thread.start()
    thread.join()
    assert results[0].steps == 20


class Poisoned(Toy):
    """Gives a loss that is not finite for batches `bad` (counted from 1)."""

    def __init__(self, bad: range, value: float = math.nan) -> None:
        super().__init__()
        self.bad, self.value, self.calls = bad, value, 0

    def loss(self, batch: Batch) -> dict[str, tuple[Tensor, Tensor | int]]:
        losses = super().loss(batch)
        self.calls += self.training
        if self.training and self.calls in self.bad:
            total, count = losses["cross_entropy"]
            losses["cross_entropy"] = (total * self.value, count)
        return losses


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_step_that_is_not_finite_is_skipped(tmp_path: Path, value: float) -> None:
    run = Run(tmp_path, model=Poisoned(range(5, 9), value))
    result = run.trainer().run()
    assert (result.steps, result.skipped) == (20, 4)
    assert all(bool(torch.isfinite(parameter).all()) for parameter in run.model.parameters())
    training = [line for line in run.lines() if line["kind"] == "training"]
    assert [line["skipped"] for line in training] == [0, 4, 4, 4, 4]
    assert [line["loss"] is None for line in training] == [False, True, False, False, False]


def test_twenty_in_a_row_end_the_run(tmp_path: Path) -> None:
    run = Run(tmp_path, ToyData(before=lambda number: None), Poisoned(range(3, 100)))
    lines = "; ".join(f"toy, line {index + 1}" for index in run.data.epoch(4)[1])
    with pytest.raises(SightlineError, match=rf"step 22: .* 20 times in a row, last with {lines}: lower"):
        run.trainer(max_steps=50).run()


def test_mistakes_are_told(tmp_path: Path) -> None:
    with pytest.raises(SightlineError, match="no checkpoint to resume from; start without --resume"):
        Run(tmp_path / "new").trainer().run(resume=True)
    Run(tmp_path / "old", settings={"training.seed": 1}).trainer(max_steps=2).run()
    with pytest.raises(SightlineError, match=r"holds a run already \(step-0000002\); go on with --resume"):
        Run(tmp_path / "old").trainer().run()
    with pytest.raises(SightlineError, match=r"training\.seed was 1 and is now 2"):
        Run(tmp_path / "old", settings={"training.seed": 2}).trainer().run(resume=True)
    with pytest.raises(SightlineError, match="nothing to train on"):
        Run(tmp_path / "empty", ToyData(0)).trainer().run()
    with pytest.raises(SightlineError, match="validation gives no 'loss' to choose by, only bleu"):
        Run(tmp_path / "bleu", validate=lambda model: {"bleu": 1.0}).trainer().run()
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(SightlineError, match="cannot write the metrics"):
        Run(tmp_path / "file").trainer().run()


def test_vectors_do_not_decay_and_frozen_weights_stay(tmp_path: Path) -> None:
    run = Run(tmp_path)
    frozen = run.model.get_parameter("hidden.weight")
    frozen.requires_grad_(False)
    before = frozen.clone()
    decays = {
        id(parameter): group["weight_decay"]
        for group in build_optimizer(run.model, TrainingConfig(weight_decay=0.1)).param_groups
        for parameter in group["params"]
    }
    by_name = {name: decays.get(id(parameter)) for name, parameter in run.model.named_parameters()}
    assert by_name == {"embedding.weight": 0.1, "hidden.weight": None, "hidden.bias": 0.0, "output.bias": 0.0}
    run.trainer().run()
    assert torch.equal(frozen, before)
    assert Run(tmp_path, model=run.model).trainer(max_steps=22).run(resume=True).steps == 22


def test_metrics_file_cuts_what_comes_after(tmp_path: Path) -> None:
    path = tmp_path / "run" / "metrics.jsonl"
    with MetricsLog(path) as log:
        log.write({"step": 1, "loss": math.inf, "perplexity": math.nan})
        log.write({"step": 2})
        assert log.lines == 2
    with path.open("a") as file:
        file.write('{"step": 3, "lo')
    with MetricsLog(path, 5) as log:  # what is not a whole line never counts
        assert log.lines == 2
        log.write({"step": 3})
    with MetricsLog(path, 1) as log:
        log.write({"step": 9})
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines == [{"step": 1, "loss": None, "perplexity": None}, {"step": 9}]


def test_time_left_is_by_the_limit_that_comes_first() -> None:
    assert seconds_left(Limits(100, None), 25, 50.0) == 150.0
    assert seconds_left(Limits(None, 60.0), 25, 50.0) == 10.0
    assert seconds_left(Limits(100, 60.0), 25, 50.0) == 10.0
    assert seconds_left(Limits(30, 60.0), 29, 29.0) == 1.0
    assert seconds_left(Limits(100, None, step=20, elapsed=1000.0), 40, 1010.0) == 30.0  # the pace since resuming
    assert seconds_left(Limits(100, None), 0, 0.0) is None
    assert seconds_left(Limits(100, 60.0), 120, 80.0) == 0.0
    assert [clock_time(value) for value in (None, 5.4, 245, 3845)] == ["-:--", "0:05", "4:05", "1:04:05"]


def report(step: int, elapsed: float) -> Report:
    return Report(step, 0, elapsed, 3.0, 0.0005, 12345.6)


def test_lines_are_few() -> None:
    stream = io.StringIO()
    lines = progress_for(stream)
    assert isinstance(lines, Lines)
    lines.start(Limits(200, None))
    for step in range(1, 101):
        lines.update(report(step, step * 0.5))
    lines.validating()
    lines.validated(100, {"loss": 2.5, "bleu": 31.237}, True)
    lines.stop()
    assert stream.getvalue().splitlines() == [
        "step 60/200  loss 3.000  12,346 tokens/s  rate 5.0e-04  1:10 left",
        "validation at step 100: loss 2.500  bleu 31.2  (best loss so far)",
    ]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    bar = progress_for(stream)
    assert isinstance(bar, Bar)
    bar.start(Limits(None, 60.0, step=5, elapsed=6.0))
    for step in range(6, 100):
        bar.update(report(step, 6.0 + step / 10))
    bar.validating()
    bar.validated(99, {"loss": 2.5}, False)
    bar.update(report(100, 60.0))
    bar.stop()
    shown = stream.getvalue()
    for text in ("step 5", "10%", "loss 3.000", "12,346 tokens/s", "rate 5.0e-04", "validating", "100%", "0:00 left"):
        assert text in shown
    assert "validation at step 99: loss 2.5" in shown


def test_a_bar_that_stops_early_and_a_loss_that_is_not_a_number() -> None:
    bar = Bar(Terminal())
    bar.stop()
    lines = Lines(stream := io.StringIO())
    lines.start(Limits(10, None))
    lines.update(Report(1, 0, 40.0, math.nan, 0.1, 1.0))
    assert "loss -" in stream.getvalue()


def test_processors_and_threads(tmp_path: Path) -> None:
    quota = tmp_path / "cpu.max"
    everything = performance.available_processors(quota)
    assert everything >= 1
    for text, expected in (
        ("max 100000", everything),
        ("100000 100000", 1),
        ("10000 100000", 1),
        ("nonsense", everything),
    ):
        quota.write_text(text)
        assert performance.available_processors(quota) == expected
    assert performance.threads(1) == 1 == torch.get_num_threads()
    assert performance.threads() == 1


def test_processors_that_are_fast_with_avx512(tmp_path: Path) -> None:
    """Ice Lake's and Zen 4's have all of it; Skylake's slow down for it, and some machines do not tell."""
    skylake = "fpu avx avx2 avx512f avx512dq avx512cd avx512bw avx512vl"
    for flags, expected in (("fpu avx avx2", False), (skylake, False), (f"{skylake} avx512_vbmi2 rdpid", True)):
        told = tmp_path / "cpuinfo"
        told.write_text(f"processor\t: 0\nflags\t\t: {flags}\nbugs\t\t: avx512_vbmi2\n\nprocessor\t: 1\nflags : none\n")
        assert performance.has_fast_avx512(told) is expected
    (tmp_path / "other").write_text("processor\t: 0\nFeatures\t: fp asimd\n")
    assert not performance.has_fast_avx512(tmp_path / "other")
    assert not performance.has_fast_avx512(tmp_path / "missing")


def test_the_allocator_is_tuned_or_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(performance.tune_allocator(), bool)
    calls = []

    class Library:
        def mallopt(self, name: int, value: int) -> int:
            calls.append((name, value))
            return int(value != 2**30)  # a glibc that takes no threshold over 32 MiB

    monkeypatch.setattr(performance.ctypes, "CDLL", lambda name: Library())
    assert performance.tune_allocator()
    assert calls == [(-3, 2**30), (-3, 32 * 2**20), (-1, 2**31 - 1)]
    monkeypatch.setattr(performance.ctypes, "CDLL", lambda name: object())
    assert not performance.tune_allocator()
    assert not performance.advise_huge_pages()


def test_tensors_lie_in_huge_pages() -> None:
    """In a process of its own, since the heap keeps what it is told. Its flags are `hg` where the kernel agreed."""
    program = """
import re, torch
from sightline.performance import advise_huge_pages, tune_allocator
tune_allocator()
agreed = advise_huge_pages()
tensor = torch.ones(2**22)  # its beginning may lie before the first huge page
place = tensor.data_ptr() + tensor.nbytes - 1
for area in re.split(r"(?m)^(?=[0-9a-f]+-[0-9a-f]+ )", open("/proc/self/smaps").read())[1:]:
    start, end = (int(part, 16) for part in area.split(" ", 1)[0].split("-"))
    if start <= place < end:
        print(agreed == (" hg" in area))
"""
    if not Path("/proc/self/smaps").exists():
        assert not performance.advise_huge_pages()
        return
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"
