"""The benchmark of slow oracles: that its arms are what their names say, without training any of them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import multi30k, slow_oracles, toy_tasks
from benchmarks.slow_oracles import TASKS, blocks, copying, enlarge, narrow, norm, record

LAYERS = 3


def test_the_arm_of_xaviers_weights_has_them() -> None:
    """Drawn from one seed, a pre-norm model, which never starts small, has the same matrices."""
    plain, small, post = (narrow(LAYERS, {"norm_position": position}) for position in ("pre", "post", "post"))
    enlarge(post)
    expected = dict(plain.named_parameters())
    for name, parameter in post.named_parameters():
        torch.testing.assert_close(parameter, expected[name])
    differing = [name for name, one in small.named_parameters() if not torch.allclose(one, expected[name])]
    assert len(differing) == LAYERS * (2 + 3)  # the last matrix of every sublayer
    matrix = post.decoder.layers[0].cross.output.weight
    assert matrix.var().item() == pytest.approx(2 / (64 + 64), rel=0.1)  # Glorot and Bengio's 2 / (fan in + fan out)


def test_arms_train_what_they_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which weights, which warm-up: the model of each arm, as it is handed over to be trained."""
    given: list[tuple[Any, int]] = []
    monkeypatch.setattr(slow_oracles, "copying", lambda model, warmup, updates: given.append((model, warmup)) or {})
    for arm in TASKS["norm"].values():
        arm()
    assert [warmup for _, warmup in given] == [0, 0, 400, 0, 400]
    pre, *post = (model for model, _ in given)
    assert [model.encoder.layers[0].around_attention.before for model, _ in given] == [True] + [False] * 4
    ratios = [model.decoder.layers[0].cross.output.weight / pre.decoder.layers[0].cross.output.weight for model in post]
    for ratio, expected in zip(ratios, [1 / 6, 1 / 6, 1, 1], strict=True):  # of 36 sublayers
        torch.testing.assert_close(ratio, torch.full_like(ratio, expected))


@pytest.mark.parametrize("seen", [1, 2, 3, 4])
def test_heads_see_as_many_blocks_as_their_arm_says(seen: int, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []
    monkeypatch.setattr(slow_oracles, "copying", lambda model, warmup, updates: given.append(model) or {})
    TASKS["blocks"][f"{seen} of 4 blocks"]()
    mask = given[0].encoder.layers[0].self_attention.sees[:64]
    assert mask.sum(1).tolist() == [16 * seen] * 64
    assert mask.sum(0).tolist() == [16 * seen] * 64  # and each block by as many heads


def test_an_arm_reports_its_loss_and_what_knowing_nothing_gives() -> None:
    for found in (norm("post", 0, xavier=True, updates=1), blocks(1, updates=1), copying(narrow(1, {}), 2, 1)):
        assert found["knowing_nothing"] == round(math.log(20), 3)
        assert 1.0 < found["loss"] < 6.0
        assert found["updates"] == 1


def test_arms_are_recorded_one_by_one_in_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slow_oracles, "RESULTS", tmp_path / "slow.json")
    record("adding", "lstm", {"error": 1})
    record("adding", "rnn", {"error": 2})
    record("norm", "pre, no warm-up", {"loss": 3})
    found = json.loads((tmp_path / "slow.json").read_text())
    assert list(found["adding"]) == ["rnn", "lstm"]
    assert found["norm"] == {"pre, no warm-up": {"loss": 3}}


def record_slow_oracles(folder: Path, patch: pytest.MonkeyPatch) -> Any:
    patch.setattr(slow_oracles, "RESULTS", folder / "slow.json")
    patch.setattr(slow_oracles, "TASKS", {"norm": {"pre, no warm-up": lambda: {"loss": 1}, "other": dict}})
    patch.setattr("sys.argv", ["slow_oracles.py", "--only", "norm", "--arm", "pre, no warm-up"])
    slow_oracles.main()
    found = json.loads((folder / "slow.json").read_text())["norm"]
    assert list(found) == ["pre, no warm-up"]
    return found["pre, no warm-up"]


def record_toy_tasks(folder: Path, patch: pytest.MonkeyPatch) -> Any:
    patch.setattr(toy_tasks, "RESULTS", folder)
    patch.setattr("sys.argv", ["toy_tasks.py", "--runs", "/a/b"])
    toy_tasks.record("copy", "luong", {"exact": 1.0, "seconds": 2, "goal": {"text": "all of them", "reached": True}})
    return json.loads((folder / "toy_tasks.json").read_text())["copy"]["luong"]


def record_multi30k(folder: Path, patch: pytest.MonkeyPatch) -> Any:
    patch.setattr(multi30k, "RESULTS", folder)
    patch.setattr("sys.argv", ["multi30k.py", "--data", "/a/b", "--minutes", "12"])
    multi30k.record("luong", {"test2016": {"bleu": {"value": 1.0}, "chrf": {"value": 2.0}}, "updates": 3})
    return json.loads((folder / "multi30k.json").read_text())["luong"]


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (record_slow_oracles, "python benchmarks/slow_oracles.py --only norm --arm 'pre, no warm-up'"),
        (record_toy_tasks, "python benchmarks/toy_tasks.py --runs PATH"),
        (record_multi30k, "python benchmarks/multi30k.py --data PATH --minutes 12"),
    ],
)
def test_records_tell_how_to_make_them_again(
    make: Callable[[Path, pytest.MonkeyPatch], Any], told: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = make(tmp_path, monkeypatch)
    assert found["command"] == told
    assert {"cpu", "cores", "torch"} <= found["machine"].keys()
