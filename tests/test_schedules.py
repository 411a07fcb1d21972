"""Learning rates against their closed forms, and torch's own schedulers."""

import math

import pytest
import torch

from sightline.config import TrainingConfig
from sightline.errors import SightlineError
from sightline.training import schedules
from sightline.training.schedules import Schedule, schedule

PEAK, WARMUP, STEPS = 0.002, 40, 400


@pytest.mark.parametrize(("width", "warmup", "factor"), [(512, 4000, 1.0), (64, 100, 2.0)])
def test_noam_closed_form(width: int, warmup: int, factor: float) -> None:
    peak = factor * (width * warmup) ** -0.5
    assert schedules.noam(1, width, warmup, factor) == pytest.approx(factor * width**-0.5 * warmup**-1.5, rel=1e-12)
    assert schedules.noam(warmup, width, warmup, factor) == pytest.approx(peak, rel=1e-12)
    assert schedules.noam(4 * warmup, width, warmup, factor) == pytest.approx(peak / 2, rel=1e-12)
    assert schedules.noam_peak(width, warmup, factor) == pytest.approx(peak, rel=1e-12)


def test_noam_is_inverse_sqrt_from_its_own_peak() -> None:
    chosen = Schedule("noam", schedules.noam_peak(256, 50), 50)
    for step in (1, 2, 49, 50, 51, 1000):
        assert chosen.rate(step) == pytest.approx(schedules.noam(step, 256, 50), rel=1e-12)


def test_inverse_sqrt_warms_up_to_the_stated_peak() -> None:
    chosen = Schedule("inverse_sqrt", PEAK, WARMUP)
    assert chosen.rate(1) == pytest.approx(PEAK / WARMUP)
    assert chosen.rate(WARMUP) == pytest.approx(PEAK)
    assert chosen.rate(4 * WARMUP) == pytest.approx(PEAK / 2)
    assert max(chosen.rate(step) for step in range(1, STEPS)) == pytest.approx(PEAK)


def test_constant() -> None:
    chosen = Schedule("constant", PEAK, WARMUP)
    assert [chosen.rate(step) / PEAK for step in (10, 40, 41, 10**6)] == pytest.approx([0.25, 1, 1, 1])


@pytest.mark.parametrize("kind", ["cosine", "linear"])
def test_decay_equals_torch(kind: str) -> None:
    chosen = Schedule(kind, PEAK, WARMUP, STEPS)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=PEAK)
    after = STEPS - WARMUP
    theirs: torch.optim.lr_scheduler.LRScheduler
    if kind == "cosine":
        theirs = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, after)
    else:
        theirs = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, after)
    for step in range(WARMUP, STEPS + 1):
        assert chosen.rate(step) == pytest.approx(theirs.get_last_lr()[0], abs=1e-12)
        optimizer.step()
        theirs.step()


@pytest.mark.parametrize("kind", ["cosine", "linear"])
def test_decay_starts_low_peaks_and_ends_at_zero(kind: str) -> None:
    chosen = Schedule(kind, PEAK, WARMUP, STEPS)
    rates = [chosen.rate(step) for step in range(1, STEPS + 1)]
    assert rates[WARMUP - 1] == pytest.approx(PEAK)
    assert rates == sorted(rates[:WARMUP]) + sorted(rates[WARMUP:], reverse=True)
    assert rates[-1] == pytest.approx(0, abs=1e-15)
    assert chosen.rate(STEPS + 5) == pytest.approx(0, abs=1e-15)


@pytest.mark.parametrize("kind", ["cosine", "linear"])
def test_a_time_budget_takes_the_rate_to_zero(kind: str) -> None:
    chosen = Schedule(kind, PEAK, WARMUP, None, 100.0)
    assert chosen.rate(1000, 0.0) == pytest.approx(PEAK)
    assert chosen.rate(1000, 50.0) == pytest.approx(PEAK / 2)
    assert chosen.rate(1000, 100.0) == pytest.approx(0, abs=1e-15)
    assert chosen.rate(1000, 130.0) == pytest.approx(0, abs=1e-15)
    rates = [chosen.rate(1000, seconds) for seconds in range(101)]
    assert rates == sorted(rates, reverse=True)


def test_whichever_budget_is_spent_first_decides() -> None:
    both = Schedule("linear", 1.0, 0, 100, 100.0)
    assert both.rate(80, 10.0) == pytest.approx(0.2)
    assert both.rate(10, 80.0) == pytest.approx(0.2)


@pytest.mark.parametrize("kind", ["inverse_sqrt", "noam", "constant", "cosine", "linear"])
def test_no_warm_up_and_warm_up_longer_than_the_run_stay_finite(kind: str) -> None:
    for warmup in (0, 1000):
        chosen = Schedule(kind, PEAK, warmup, 100, 60.0)
        rates = [chosen.rate(step, step / 10) for step in range(1, 101)]
        assert all(math.isfinite(rate) and 0 <= rate <= PEAK for rate in rates)
    with pytest.raises(ValueError, match="from 1"):
        Schedule(kind, PEAK, 10, 100).rate(0)


def test_schedule_of_a_configuration() -> None:
    config = TrainingConfig(learning_rate=PEAK, warmup=7, max_minutes=2.0, schedule="linear")
    assert schedule(config) == Schedule("linear", PEAK, 7, None, 120.0)
    with pytest.raises(SightlineError, match="no end"):
        schedule(TrainingConfig(learning_rate=PEAK, warmup=7))


@pytest.mark.parametrize("kind", ["cosine", "linear", "constant", "inverse_sqrt"])
def test_warm_up_ends_with_a_fifth_of_the_time(kind: str) -> None:
    """A machine that makes an update in ten seconds would else never leave the warm-up of its 400 seconds."""
    chosen = Schedule(kind, PEAK, WARMUP, max_seconds=400.0)
    assert chosen.rate(1, 0.0) == pytest.approx(PEAK / WARMUP)
    slow, unlimited = chosen.rate(5, 40.0), Schedule(kind, PEAK, WARMUP).rate(20)
    falling = {"cosine": (1 + math.cos(0.1 * math.pi)) / 2, "linear": 0.9}.get(kind, 1.0)
    assert slow == pytest.approx(unlimited * falling)  # half of the time for warm-up is over, so it stands at half
    assert chosen.rate(9, 80.0) / falling > 0.85 * PEAK
    # An update in a second: the updates end the warm-up first, and nothing changes.
    assert chosen.rate(39, 39.0) / chosen.rate(40, 39.0) == pytest.approx(39 / 40)
