"""Training processes killed with SIGKILL, wherever they are, and resumed: the run is the one that was never killed."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sightline.training.checkpoint_names import latest
from tests.commands import environment, finish, settings, start

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")

# `sightline`, with two additions. Each batch's examples are noted in the file ORDER with the update they are for. And
# the process kills itself: at its KILL["update"]-th update, or at the first after KILL["waited"] validations without a
# better one, or at its KILL["write"]-th moment of writing anything: before a write, half-way through it, after it, and
# around every renaming and deleting; or half-way through the file KILL["inside"].
DRIVER = """
import json, os, shutil, signal, sys
from sightline.cli import main
from sightline.training import checkpoints, loop, run
import sightline.files

os.fsync = lambda descriptor: None  # a killed process, unlike a power cut, loses nothing it has written
moments = 0

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def moment():
    global moments
    moments += 1
    if moments == KILL.get("write"):
        die()

def around(function, half=None):
    def wrapped(*args, **kwargs):
        moment()
        if half:
            half(*args)
            moment()
        result = function(*args, **kwargs)
        moment()
        return result
    return wrapped

def half_written(path, content):
    with open(path, "wb") as file:
        file.write(content[: len(content) // 2])
    if str(path).endswith(KILL.get("inside", "nothing")):
        die()

def half_a_line(log, values):
    log._file.write(b'{"kind": "trai')
    log._file.flush()
    moment()
    log._file.seek(0, 2)
    log._file.truncate(log._file.tell() - 14)

update, batch = loop.Trainer._update, run.TrainingData.batch
current = updates = 0

def updating(trainer):
    global current, updates
    current, updates = trainer.state.step + 1, updates + 1
    if updates == KILL.get("update") or trainer.state.waited >= KILL.get("waited", 1000):
        die()
    update(trainer)

def noting(data, indices):
    found = batch(data, indices)
    with open(ORDER, "a") as file:
        print(json.dumps([current, list(found.indices)]), file=file)
    return found

def sightline(kill, order, arguments):
    global KILL, ORDER
    KILL, ORDER = kill, order
    loop.Trainer._update, run.TrainingData.batch = updating, noting
    checkpoints._write = around(checkpoints._write, half_written)
    os.replace, shutil.rmtree = around(os.replace), around(shutil.rmtree)
    loop.MetricsLog.write = around(loop.MetricsLog.write, half_a_line)
    sys.argv = ["sightline", *arguments]
    main()
"""
# One leg of a run in a process of its own, and all legs as children of one process, which imports torch only once.
ALONE = DRIVER + "sightline(json.loads(sys.argv[1]), sys.argv[2], sys.argv[3:])"
FORKED = (
    DRIVER
    + """
import sacrebleu, torch, torch._dynamo  # what a first update and a first validation would import in every child
torch.set_num_threads(1)
from pathlib import Path
for name, first, again, kills in json.loads(sys.stdin.read()):
    for kill in [*kills, {}]:
        saved = checkpoints.latest(Path(name) / "checkpoints")
        if (child := os.fork()) == 0:
            os.dup2(os.open(name + ".err", os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
            sightline(kill, name + ".order", first if saved is None else again)
        status = os.waitpid(child, 0)[1]
        killed = os.WIFSIGNALED(status)
        if not killed and os.WEXITSTATUS(status):
            sys.exit(f"{name} {kill}: {status}: " + open(name + ".err").read())
        print(name, int(killed), flush=True)
"""
)
TIMES = ("seconds", "tokens_per_second")
Kills = list[dict[str, Any]]


def all_of(folder: Path, order: Path) -> dict[str, Any]:
    """Everything a run has come to that must not depend on how often it was killed."""
    path = latest(folder / "checkpoints")
    assert path is not None
    trainer = json.loads((path / "trainer.json").read_text())["trainer"]
    for part in ("state", "window"):
        trainer[part] = {name: value for name, value in trainer[part].items() if name not in TIMES}
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    served: dict[int, list[list[int]]] = {}
    for step, indices in map(json.loads, order.read_text().splitlines()):
        served.setdefault(step, []).append(indices)
    files = {file.name: file.read_bytes() for file in path.glob("*.safetensors")}
    assert {"model.safetensors", "optimizer.safetensors", "random.safetensors"} <= files.keys()
    return {
        # A second checkpoint of one update has a number after a dot, which tells only how often it was tried.
        "checkpoints": sorted(entry.name.partition(".")[0] for entry in (folder / "checkpoints").iterdir()),
        "tensors": files,
        "trainer": trainer,
        "lines": [{name: value for name, value in line.items() if name not in TIMES} for line in lines],
        "model": (folder / "model.safetensors").read_bytes(),
        "card": [line for line in (folder / "README.md").read_text().splitlines() if " minutes " not in line],
        "served": served,
    }


def assert_same(whole: dict[str, Any], parts: dict[str, Any], served: int = 1) -> None:
    """A killed run has served some batches, so many an update, more than once, each time the same."""
    assert parts["served"].keys() == whole["served"].keys()
    for step, batches in whole["served"].items():
        again = parts["served"][step]
        # A process that dies within an update may have served a part of its batches only.
        assert len(batches) == served
        place = 0
        for one in again:
            place = 0 if one != batches[place % served] else place
            assert one == batches[place % served], step
            place += 1
    for name in whole.keys() - {"served"}:
        assert parts[name] == whole[name], name


def options(recipe: str = "transformer", **training: Any) -> list[str]:
    """A run with dropout and batches of a few pairs; validations and checkpoints do not fall together."""
    values = {
        "schedule": "inverse_sqrt",
        "learning_rate": 0.02,
        "warmup": 3,
        "log_every": 4,
        "validate_every": 5,
        "save_every": 3,
        "max_steps": 22,
        **training,
    }
    sets = [f"training.{name}={value}" for name, value in values.items()] + ["data.batch_tokens=120"]
    return ["--recipe", recipe, *settings(recipe), *(part for one in sets for part in ("--set", one))]


def commands(folder: Path, pairs: Path, given: list[str]) -> tuple[list[str], list[str]]:
    """What begins a run, and what goes on with it. A language model takes the lines of the pairs as text."""
    data = ["--text", str(pairs.with_suffix(".txt"))] if "lm" in given else ["--pairs", str(pairs)]
    first = ["train", *data, "--output", str(folder), *given]
    return first, ["train", "--output", str(folder), "--resume"]


def run_all(folder: Path, pairs: Path, runs: dict[str, tuple[list[str], Kills]]) -> dict[str, int]:
    """Makes all runs in children of one process; tells how often each was killed.

    The timeout is for a process that hangs; a machine busy with other work may take many times the usual seconds.
    """
    shutil.copy(pairs, pairs.with_suffix(".txt"))
    plan = [
        (str(folder / name), *commands(folder / name, pairs, given), kills) for name, (given, kills) in runs.items()
    ]
    line = [sys.executable, "-W", "ignore", "-c", FORKED]
    done = subprocess.run(
        line, input=json.dumps(plan), capture_output=True, text=True, timeout=1200, check=False, env=environment()
    )
    assert done.returncode == 0, done.stderr
    told = [line.rsplit(" ", 1) for line in done.stdout.splitlines()]
    return {name: sum(int(killed) for where, killed in told if Path(where).name == name) for name in runs}


def seeded_kills(seed: int, count: int) -> Kills:
    """Deaths of one process after another, in turns at a random update and at a random moment of writing."""
    generator = random.Random(seed)
    return [
        {"update": generator.randint(4, 8)} if number % 2 else {"write": generator.randint(15, 60)}
        for number in range(count)
    ]


BARE = {"report": False, "watch": 0}  # one run with pictures will do
RUNS = {
    "plain": options(),
    "patience": options(learning_rate=0.5, validate_every=2, save_every=2, patience=5, max_steps=200, **BARE),
    "averaged": options(accumulate=3, ema=0.8, keep_last=3, keep_best=2, average="last", average_count=3, **BARE),
    "recurrent": options("bahdanau", workers=2, max_steps=16, **BARE),
    "lstm": options("luong", workers=2, max_steps=10, **BARE),
    "lm": options("lm", max_steps=10, **BARE),
}
# Runs that are here for one thing, their model or how they end, are killed less often at random moments.
FEWER = {"patience": 2, "recurrent": 3, "lstm": 2, "lm": 2}
# Batches of an update, where there are several.
SERVED = {"averaged": 3}


@pytest.fixture(scope="module")
def runs(toy_pairs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Each run once as a whole and once killed on its way."""
    folder = tmp_path_factory.mktemp("runs")
    plan: dict[str, tuple[list[str], Kills]] = {}
    for seed, (name, given) in enumerate(RUNS.items()):
        # And twice while it waits for a better validation.
        waiting: Kills = [{"waited": 2}, {"waited": 4}] if name == "patience" else []
        kills = seeded_kills(seed, FEWER.get(name, 5))
        plan |= {name: (given, []), f"{name}-killed": (given, [*kills, *waiting])}
    killed = run_all(folder, shutil.copy(toy_pairs, folder / toy_pairs.name), plan)
    for name in RUNS:
        assert killed[f"{name}-killed"] >= (4 if name == "patience" else FEWER.get(name, 4)), killed
    return folder


@pytest.mark.parametrize("name", RUNS)
def test_a_run_killed_at_random_moments_is_the_run_that_was_never_killed(name: str, runs: Path) -> None:
    whole, parts = (all_of(runs / one, runs / f"{one}.order") for one in (name, f"{name}-killed"))
    assert_same(whole, parts, served=SERVED.get(name, 1))
    kinds = [line["kind"] for line in whole["lines"]]
    if name == "patience":
        state = whole["trainer"]["state"]
        assert state["waited"] == 5
        assert state["step"] < 200
        resumed = re.findall(r"going on after update (\d+)", (runs / f"{name}-killed.err").read_text())
        assert any(state["best_step"] < int(step) < state["step"] for step in resumed), "killed while it waits"
    if name == "averaged":
        assert "ema.safetensors" in whole["tensors"]
        assert kinds[-1] == "average"
        assert whole["checkpoints"] == ["step-0000020", "step-0000021", "step-0000022"]


def test_processes_of_their_own(toy_pairs: Path, runs: Path, tmp_path: Path) -> None:
    """Not children of another; it dies half-way through a file of a checkpoint."""
    folder, order = tmp_path / "run", tmp_path / "order"
    first, again = commands(folder, runs / toy_pairs.name, RUNS["plain"])
    done = finish(start('{"inside": "step-0000009/optimizer.safetensors"}', order, *first, code=ALONE))
    assert done.code == -signal.SIGKILL, done.err
    assert sorted(path.name for path in (folder / "checkpoints").iterdir()) == [".partial-step-0000009", "step-0000006"]
    done = finish(start("{}", order, *again, code=ALONE))
    assert done.code == 0, done.err
    assert_same(all_of(runs / "plain", runs / "plain.order"), all_of(folder, order))
