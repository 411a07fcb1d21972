"""The parts of the training speed benchmark: its arithmetic, its batches, and contenders that take turns."""

import io
import itertools
import json
import math
import os
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import training_speed
from benchmarks.speed import flops, plan, report
from benchmarks.speed.adaptors import sightline as adaptor
from benchmarks.speed.arena import Arena
from benchmarks.speed.common import without_paths
from benchmarks.speed.contenders import CONTENDERS, YARDSTICK
from benchmarks.speed.job import SIZES, Job, RecurrentSize, TransformerSize
from benchmarks.speed.plan import Plan
from benchmarks.speed.processes import Failed, Turn, Worker
from benchmarks.speed.turns import Over, Turns, peak_memory
from sightline.data import batches, read_pairs

ROOT = Path(__file__).resolve().parent.parent
PLAN = Plan(
    source_ids=np.array([5, 3, 6, 7, 3, 4, 4, 4, 3]),
    source_offsets=np.array([0, 2, 5, 9]),
    target_ids=np.array([8, 9, 3, 5, 3, 6, 6, 6, 3]),
    target_offsets=np.array([0, 3, 5, 9]),
    rows=np.array([2, 0, 1]),
    cuts=np.array([0, 1, 3]),
    vocabulary=10,
)
CURVES = {
    "updates": 30,
    "window": 25,
    "gap": {"largest": 1.5, "share_of_loss": 0.6, "at_update": 30, "updates": 30},
    "losses": {"a": [2.0, 1.0], "b": [3.0, 2.5]},
}


def orders(*counts: int) -> io.StringIO:
    return io.StringIO("".join(json.dumps({"run": count}) + "\n" for count in counts))


def spoken(answers: io.StringIO) -> list[dict]:
    return [json.loads(line) for line in answers.getvalue().splitlines()]


def test_the_transformers_arithmetic_by_hand() -> None:
    size = TransformerSize(layers=2, width=2, feedforward=3, heads=1)
    encoder = 2 * (4 * 4 + 2 * 6) + 2 * 4 * 2  # two tokens' projections and feed-forward, two products of attention
    decoder = 3 * (6 * 4 + 2 * 6) + 2 * 2 * 4  # three tokens' own, and keys and values of the memory
    decoder += 2 * (1 + 2 + 3) * 2 + 2 * 3 * 2 * 2  # what each token sees: itself and before, and all of the source
    assert flops.transformer(size, 2, 3, 5) == 2 * (encoder + decoder) + 3 * 2 * 5
    assert flops.pair(size, 2, 3, 5) == 6 * flops.transformer(size, 2, 3, 5)


@pytest.mark.parametrize(("input_feeding", "expected"), [(False, 126 + 150), (True, 120 + 131)])
def test_the_rnns_arithmetic_by_hand(input_feeding: bool, expected: int) -> None:
    size = RecurrentSize(embedding=2, encoder=4, decoder=3)
    # Source: 2 tokens of 2 directions * 3 gates * 2 * (2 + 2), and keys 4 * 3: 120; first state 2 * 3.
    # Target: cell 9 * 9, or 9 * 8 with feeding; query 9 and 2 * (3 + 4) to look; readout 36 + 2 * 5, or 21 + 3 * 5.
    assert flops.recurrent(size, 2, 1, 5, input_feeding) == expected


def test_a_plan_pads_counts_and_survives_its_file(tmp_path: Path) -> None:
    PLAN.save(tmp_path / "plan.npz")
    loaded = Plan.load(tmp_path / "plan.npz")
    assert (len(loaded), loaded.vocabulary) == (2, 10)
    source, target = loaded.padded(1)
    assert source.tolist() == [[5, 3, 0], [6, 7, 3]]
    assert target.tolist() == [[8, 9, 3], [5, 3, 0]]
    assert [loaded.tokens(number) for number in range(2)] == [4, 5]
    assert loaded.padding(range(1, 2)) == pytest.approx(2 / 12)
    assert list(loaded.pairs(range(2))) == [(4, 4), (2, 3), (3, 2)]


def test_the_plan_holds_the_batches_of_sightline(tmp_path: Path) -> None:
    words = [" ".join(chosen) for chosen in itertools.permutations("abcde", 3)]
    for side, name in ((words, "source"), (words[::-1], "target")):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in side))
    made = plan.make(tmp_path / "source", tmp_path / "target", vocabulary=300, batch_tokens=40, updates=9)
    assert len(made) == 9
    pairs = read_pairs(tmp_path / "source", tmp_path / "target")
    assert len(made.source_offsets) - 1 == len(pairs)
    encoded = adaptor.PlannedData(made).pairs
    expected = [*batches(encoded, 40, seed=1, epoch=0), *batches(encoded, 40, seed=1, epoch=1)]
    assert [made.batch(number).tolist() for number in range(9)] == [part.tolist() for part in expected[:9]]
    own = adaptor.PlannedData(made).batch(made.batch(3))
    assert own.sources[0].ids.tolist() == made.padded(3)[0].tolist()


def test_turns_count_what_was_asked_for() -> None:
    answers, ticks = io.StringIO(), itertools.count()
    turns = Turns(orders(2, 1), answers, [10, 20, 30].__getitem__, lambda: float(next(ticks)))
    turns.ready(version="fake")
    turns.done(3.0)
    turns.done(2.0)
    with pytest.raises(Over):
        turns.done(1.0)
    ready, first, second = spoken(answers)
    assert ready == {"ready": {"version": "fake"}}
    assert (first["updates"], first["tokens"], first["seconds"], first["losses"]) == (2, 30, 1.0, [3.0, 2.0])
    assert (second["updates"], second["tokens"], second["losses"]) == (1, 30, [1.0])
    assert 0 < first["memory"] <= peak_memory()


FAKE = """
import sys
from benchmarks.speed.turns import Over, Turns, answers_alone
turns = Turns(sys.stdin, answers_alone(), lambda number: 7)
print("a library's greeting", flush=True)
try:
    turns.ready(version="fake")
    for number in range(4):
        turns.done(float(number))
        print("chatter", flush=True)
except Over:
    print("over", file=sys.stderr)
"""


@pytest.fixture
def start(tmp_path: Path):
    """Starts scripts as contenders, and ends them."""
    started = []

    def begin(script: str) -> Worker:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        started.append(Worker([sys.executable, "-c", script], tmp_path / "log.txt", environment))
        return started[-1]

    yield begin
    for worker in started:
        worker.close()


def test_a_process_takes_turns_whatever_it_prints(start, tmp_path: Path) -> None:
    worker = start(FAKE)
    assert worker.ready() == {"version": "fake"}
    first, second = worker.run(2), worker.run(1)
    assert (first.updates, first.tokens, first.losses) == (2, 14, [0.0, 1.0])
    assert (second.tokens, second.losses) == (7, [2.0])
    assert first.speed == 14 / first.seconds
    worker.close()
    assert worker.process.returncode == 0
    assert (tmp_path / "log.txt").read_text().splitlines() == ["a library's greeting", "chatter", "chatter", "over"]


def test_a_process_that_fails_says_why(start) -> None:
    with pytest.raises(Failed, match="ValueError: no such size"):
        start("raise ValueError('no such size')").ready()
    with pytest.raises(Failed, match="not installed here"):
        start("""print('{"missing": "not installed here"}')""").ready()
    worker = start(FAKE)
    worker.ready()
    worker.run(4)
    with pytest.raises(Failed, match="chatter"):
        worker.run(1)


def test_a_python_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(Failed, match="No such file"):
        Worker([str(tmp_path / "python")], tmp_path / "log.txt", {})


@pytest.mark.parametrize(("size", "input_feeding"), [("tiny", False), ("rnn", False), ("rnn", True)])
def test_sightline_trains_on_the_plan_through_its_trainer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: str, input_feeding: bool
) -> None:
    small: dict = {"tiny": TransformerSize(1, 8, 8, 2), "rnn": RecurrentSize(4, 8, 8)}
    monkeypatch.setattr("benchmarks.speed.job.SIZES", small)
    seen: list[list[int]] = []
    taken = adaptor.PlannedData.batch
    monkeypatch.setattr(
        adaptor.PlannedData, "batch", lambda self, indices: seen.append(indices.tolist()) or taken(self, indices)
    )
    job = Job("sightline", size, "", str(tmp_path), torch.get_num_threads(), input_feeding=input_feeding, warmup=1)
    answers = io.StringIO()
    with pytest.raises(Over):
        adaptor.train(job, PLAN, Turns(orders(1, 1), answers, PLAN.tokens))
    ready, first, second = spoken(answers)
    assert ready["ready"]["parameters"] > 0
    assert seen == [[2], [0, 1]]
    assert (first["tokens"], second["tokens"]) == (4, 5)
    assert all(math.isfinite(loss) for loss in first["losses"] + second["losses"])


def test_sightline_from_marians_weights_learns_what_marian_learns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without dropout, update by update: each loss follows from the updates before."""
    from benchmarks.speed.adaptors import marian

    monkeypatch.setattr("benchmarks.speed.job.SIZES", {"tiny": TransformerSize(2, 8, 12, 2)})
    again = replace(PLAN, rows=np.array([2, 0, 1] * 3), cuts=np.array([0, 1, 3, 4, 6, 7, 9]))
    changes = {"start": str(tmp_path / "start"), "norm_position": "post", "dropout": 0.0, "warmup": 2, "peak": 0.02}
    losses = []
    for name, trained in (("marian", marian.train), ("sightline", adaptor.train)):
        answers, job = io.StringIO(), Job(name, "tiny", "", str(tmp_path / name), torch.get_num_threads(), **changes)
        with pytest.raises(Over):
            trained(job, again, Turns(orders(6), answers, again.tokens))
        losses.append(spoken(answers)[1]["losses"])
    assert losses[0][-1] < losses[0][0]
    assert losses[0] == pytest.approx(losses[1], abs=1e-4)


def test_a_job_travels_as_text() -> None:
    job = Job("marian", "tiny", "plan.npz", "folder", 2, tuned=True, norm_position="post")
    assert Job.loads(job.dumps()) == job
    assert [replace(job, warmup=4, peak=1.0).rate(step) for step in (1, 4, 16)] == [0.25, 1.0, 0.5]


def test_the_figures_compare_within_a_round() -> None:
    contenders = [one for one in CONTENDERS if one.name in ("sightline", "marian", "marian-tuned", "opennmt")]

    def turns(*seconds: float) -> list[Turn]:
        return [Turn(1, PLAN.tokens(number), second, [2.0], 100 + number) for number, second in enumerate(seconds)]

    taken = {
        "sightline": turns(1.0, 10.0),
        "marian": turns(2.0, 30.0),
        "marian-tuned": turns(1.5, 15.0),
        "opennmt": turns(4.0, 40.0),
        YARDSTICK.name: [Turn(2, 0, 1.0, [], 0), Turn(2, 0, 10.0, [], 0)],
    }
    found = report.summarise("tiny", contenders, taken, PLAN, [range(1), range(1, 2)])
    ours = found["sightline"]
    assert ours["tokens_per_second"] == round((4.0 + 0.5) / 2, 1)
    assert (ours["times_fastest_peer"], ours["times_tuned_loop"]) == (2.5, 1.5)
    assert found["marian"]["times_fastest_peer"] == 1.0
    tiny = SIZES["tiny"]
    work = [flops.pair(tiny, 4, 4, 10), flops.pair(tiny, 2, 3, 10) + flops.pair(tiny, 3, 2, 10)]
    assert ours["matmul_share"] == round(sum(work) / 2 / (2 * flops.PRODUCT), 4)
    assert ours["megaflop_per_token"] == round(sum(work) / 9 / 1e6, 2)
    assert (ours["peak_memory"], ours["padding"]) == (101, round(1 - 18 / 20, 4))


def test_the_arena_goes_on_without_one_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def command(job: str, python: str) -> list[str]:
        name = Job.loads(job).adaptor
        scripts = {"opennmt": "raise ImportError('no onmt')", "sockeye": FAKE.replace("range(4)", "range(1)")}
        return [sys.executable, "-c", scripts.get(name, FAKE)]

    monkeypatch.setattr("benchmarks.speed.arena.worker_command", command)
    monkeypatch.setattr("benchmarks.speed.arena.PRODUCTS", 1)
    said: list[str] = []
    wanted = [one for one in CONTENDERS if one.name in ("sightline", "marian", "opennmt", "sockeye")]
    three = replace(PLAN, cuts=np.arange(4))  # batches: to warm up, to lead in, to count
    found = Arena(three, tmp_path, 1, {}, said.append).measure("tiny", wanted, rounds=1, updates=1, warmup=1)
    assert list(found["contenders"]) == ["sightline", "marian"]
    assert found["contenders"]["sightline"]["losses"] == [2.0]
    assert found["skipped"] == {"opennmt": "ImportError: no onmt", "sockeye": "chatter"}
    assert any(line.startswith("tiny: round 1/1 sightline") for line in said)
    for values in found["contenders"].values():
        values["parameters"] = 10**6
    page = report.markdown(
        {
            "command": "c",
            "machine": {"cpu": "x", "torch": "2"},
            "settings": {"threads": 1, "rounds": 1, "batches": 1, "batch_tokens": 9, "dropout": 0, "smoothing": 0},
            "sizes": {"tiny": {"what": "small", **found}},
            "curves": {"tiny": CURVES},
            "notes": ["so it is"],
        }
    )
    assert "- opennmt did not take part: ImportError: no onmt" in page
    assert "| 25 | 2.000 | 3.000 |\n| 30 | 1.000 | 2.500 |" in page
    assert "widest gap is 1.5 (60.00% of the loss), at update 30. Each begins with initial weights of its own" in page


def test_loss_curves_begin_with_marians_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs: list[Job] = []

    def command(text: str, python: str) -> list[str]:
        jobs.append(Job.loads(text))
        missing, there = "raise ImportError('no onmt')", FAKE.replace("float(number)", "1.0 + number")
        return [sys.executable, "-c", missing if jobs[-1].adaptor == "opennmt" else there]

    monkeypatch.setattr("benchmarks.speed.arena.worker_command", command)
    arena = Arena(replace(PLAN, cuts=np.arange(4)), tmp_path, 1, {}, lambda line: None)
    found = arena.curves("tiny", 3)
    assert [(job.adaptor, job.dropout) for job in jobs] == [
        ("marian", 0.0), ("sightline", 0.0), ("marian", 0.1), ("sightline", 0.1)
    ]  # fmt: skip
    assert {(job.start, job.norm_position) for job in jobs} == {(str(tmp_path / "tiny-start"), "post")}
    assert found["losses"] == {"marian": [1.7778], "sightline": [1.7778]}
    assert found["gap"] == {"largest": 0.0, "share_of_loss": 0.0, "at_update": 3, "updates": 3}
    assert found["without_dropout"]["updates"] == 3
    assert "without dropout, the losses of 3 updates differ by 0 at most" in "\n".join(report._curves({"tiny": found}))
    assert arena.curves("rnn", 3) == {}


def test_the_arena_needs_its_yardstick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.speed.arena.worker_command", lambda job, python: [sys.executable, "-c", "1 / 0"])
    with pytest.raises(Failed, match="matmul: ZeroDivisionError"):
        Arena(PLAN, tmp_path, 1, {}, lambda line: None).measure("tiny", CONTENDERS, 1, 1, 1)


def test_curves_alone_go_into_the_record_that_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "training_speed.json").write_text(json.dumps({"sizes": {"tiny": 1}, "curves": {}}))
    options = training_speed.parse(["--data", "x", "--rounds", "0", "--curves", "3", "--output", str(tmp_path)])
    monkeypatch.setattr(training_speed, "make_arena", lambda options, folder: None)
    monkeypatch.setattr(training_speed, "curves", lambda arena, options: {"tiny": {"updates": options.curves}})
    found = training_speed.run_curves(options, tmp_path)
    assert found["sizes"] == {"tiny": 1}
    assert found["curves"] == {"tiny": {"updates": 3}}


def test_a_loss_curve_is_a_mean_over_tokens() -> None:
    assert report.windows([1.0, 4.0, 5.0], [1, 2, 7], 2) == [3.0, 5.0]


def test_the_widest_gap_between_two_curves() -> None:
    found = report.widest({"one": [4.0, 2.0, 1.0], "other": [4.1, 1.5, 1.2]}, window=25, updates=60)
    assert found == {"largest": 0.5, "share_of_loss": 0.25, "at_update": 50, "updates": 60}
    assert report.widest({"one": [1.0], "other": [1.0]}, 25, 8)["at_update"] == 8


def test_the_command_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIGHTLINE_PEER_SOCKEYE", "/there/python")
    options = training_speed.parse(["--data", "x", "--sizes", "rnn", "--peer-python", "opennmt=/here/python"])
    assert options.sizes == ["rnn"]
    assert options.pythons == {
        "marian": sys.executable,
        "joeynmt": sys.executable,
        "sockeye": "/there/python",
        "opennmt": "/here/python",
    }
    for wrong in (["--sizes", "huge"], ["--peer-python", "fairseq=/x"], ["--rounds", "0"]):
        with pytest.raises(SystemExit):
            training_speed.parse(["--data", "x", *wrong])
    assert "unknown name 'huge'" in capsys.readouterr().err
    told = without_paths(["--data", "/a/b", "--peer-python", "opennmt=/c/d", "--rounds", "3"])
    assert told == ["--data", "PATH", "--peer-python", "opennmt=PATH", "--rounds", "3"]
