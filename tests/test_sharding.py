"""`sightline translate` on files of any size: the output is the same with any number of workers and of kills."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sightline.sharding.manifest import model_digests
from tests.commands import Command, environment, finish, letters, start, write_lines
from tests.shards import told

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")


# Killed anywhere

# Translates without a model, in processes forked for each attempt. An attempt kills itself at a given moment: around
# every file or folder that it makes, syncs, moves or deletes. Prints the number of moments and what came out.
KILLS = """
import json, os, random, signal, sys
from pathlib import Path
from tests.shards import Shouting
from sightline.sharding import manifest, run, worker
from sightline.sharding.inputs import cut
from sightline.sharding.job import Job

worker.load = lambda model, **_: Shouting(model)
manifest.model_digests = lambda folder: {}
folder = Path(sys.argv[1])
source, output, noted = folder / "in", folder / "out", folder / "moments"
job = Job(Path("model"))

def attempt(kill):
    moments = 0
    def around(function):
        def wrapped(*args, **kwargs):
            nonlocal moments
            for before in (True, False):
                moments += 1
                if moments == kill:
                    os.kill(os.getpid(), signal.SIGKILL)
                if before:
                    result = function(*args, **kwargs)
            return result
        return wrapped
    for name in ("replace", "unlink", "mkdir", "rmdir"):
        setattr(os, name, around(getattr(os, name)))
    os.fsync = around(lambda descriptor: None)  # a killed process, unlike a power cut, loses nothing it has written
    def translating(path, size, done):
        shards = [shard for shard in cut(path, size) if shard.number not in done]
        random.Random(kill).shuffle(shards)
        translate = worker.ShardTranslator(job)
        yield from map(translate, shards)
    summary = run.translate_file(job, source, output, translating, 2)
    noted.write_text(json.dumps([moments, summary.lines, summary.failed]))

def forked(kill):
    if (child := os.fork()) == 0:
        attempt(kill)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0

def came_out():
    found = {path.name: path.read_text() for path in folder.iterdir() if path.name.startswith(("out", ".out"))}
    for path in folder.glob("*out*"):
        path.unlink()
    return [found, json.loads(noted.read_text())[1:]]

assert forked(0)
moments = json.loads(noted.read_text())[0]
results = [came_out()]
for kill in range(1, moments + 1):
    assert not forked(kill), kill
    assert forked(0), kill
    results.append(came_out())
generator = random.Random(7)
for _ in range(10):
    while not forked(generator.randint(1, moments)):
        pass
    results.append(came_out())
print(json.dumps([moments, results]))
"""


def test_killed_at_any_moment_it_goes_on_and_the_files_are_the_same(tmp_path: Path) -> None:
    write_lines(tmp_path / "in", ["a", "boom", "c", "d", "e", "boom", "g"])
    line = [sys.executable, "-W", "error", "-c", KILLS, str(tmp_path)]
    done = subprocess.run(line, capture_output=True, text=True, env=environment(), timeout=120)
    assert done.returncode == 0, done.stderr
    moments, results = json.loads(done.stdout)
    assert moments > 60
    assert len(results) == moments + 11
    reason = "RuntimeError: it went off"
    failed = [{"line": number, "reason": reason, "text": "boom"} for number in (2, 6)]
    expected = {"out": "A\n\nC\nD\nE\n\nG\n", "out.failed.jsonl": "".join(f"{json.dumps(one)}\n" for one in failed)}
    assert all(found == [expected, [7, 2]] for found in results)


# The command, with a real model and real processes

SIZE = 7
LINES = [source for source, _ in letters(40, seed=5)]
LINES[11] = "a " * 2000
OPTIONS = ("--shard-lines", SIZE, "--json", "--align", "--n-best", 2)

# `sightline`, killed when it has written so many parts; torch is the workers' affair.
KILLED = """
import os, signal, sys
from sightline.cli import main
from sightline.sharding.parts import Parts

write, count = Parts.write, 0

def counting(parts, translated):
    global count
    write(parts, translated)
    count += 1
    assert "torch" not in sys.modules
    if count == 2:
        os.kill(os.getpid(), signal.SIGKILL)

Parts.write = counting
main()
"""


@pytest.fixture(scope="module")
def model(trained: Any) -> Path:
    folder: Path = trained("luong")
    return folder


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "in.txt.gz"
    text = "".join(f"{line}\n" for line in LINES).encode().replace(LINES[20].encode() + b"\n", b"\xff\n", 1)
    path.write_bytes(gzip.compress(text))
    return path


def test_one_worker_two_workers_and_a_kill(command: Command, model: Path, source: Path, tmp_path: Path) -> None:
    one, two = tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    done = command("translate", model, source, "--output", one, "--workers", 1, *OPTIONS)
    assert (done.code, done.out) == (1, ""), done.err  # since some lines failed
    summary, failures = told(done)
    assert summary == f"{one}: 40 lines"
    assert failures.startswith(f"2 of them failed and are empty, see {one}.failed.jsonl; the first: 2,000 tokens")
    killed = finish(start("translate", model, source, "--output", two, "--workers", 2, *OPTIONS, code=KILLED))
    assert (killed.code, two.exists()) == (-signal.SIGKILL, False)
    wider = command("translate", model, source, "--output", two, "--beam", 3, *OPTIONS).mistake()
    assert "begun with beam left open, which is 3 now" in wider
    done = command("translate", model, source, "--output", two, "--workers", 1, *OPTIONS)
    assert done.code == 1, done.err
    assert told(done)[0] == f"{two}.parts: 14 lines are translated already; going on"
    assert two.read_bytes() == one.read_bytes()
    assert Path(f"{two}.failed.jsonl").read_bytes() == Path(f"{one}.failed.jsonl").read_bytes()
    assert sorted(path.name for path in tmp_path.glob("*.parts")) == []
    rows = [json.loads(line) for line in one.read_text().splitlines()]
    failed = [json.loads(line) for line in Path(f"{one}.failed.jsonl").read_text().splitlines()]
    bad = LINES.index(LINES[20])
    assert [failure["line"] for failure in failed] == [12, bad + 1]
    assert failed[0]["reason"].startswith("2,000 tokens, more than the 1,000 that this model takes at once")
    right = [row["text"] == line.upper() and len(row["others"]) == 1 for row, line in zip(rows, LINES, strict=True)]
    assert sum(right) >= 30  # it has not learnt the task to the end
    assert (rows[11]["text"], rows[bad]["text"], rows[11]["alignment"]) == ("", "", "")
    assert [number for number, row in enumerate(rows) if "error" in row] == [11, bad]
    assert rows[11]["error"] == failed[0]["reason"]


def test_ctrl_c_keeps_what_is_done(model: Path, tmp_path: Path) -> None:
    source, output = write_lines(tmp_path / "in", LINES), tmp_path / "out"
    code = KILLED.replace("count == 2", "count == 1").replace("SIGKILL", "SIGINT")
    done = finish(start("translate", model, source, "--output", output, "--workers", 1, *OPTIONS, code=code))
    assert (done.code, done.out) == (130, "")
    assert told(done) == [f"interrupted; what is done is kept in {output}.parts, and the same command goes on"]
    assert (tmp_path / "out.parts" / "00000").exists()


# When a file is cut, and what cannot be


def test_long_files_are_cut_without_being_asked(
    command: Command, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, output = write_lines(tmp_path / "in", ["a b", "c", "d"]), tmp_path / "out"
    monkeypatch.setattr("sightline.sharding.run.SHARD_LINES", 2)
    monkeypatch.setattr("sightline.cli_shards.MOST_WORKERS", 1)
    done = command("translate", model, source, "--output", output)
    assert (done.code, told(done), output.read_text()) == (0, [f"{output}: 3 lines"], "A B\nC\nD\n")
    for options in ([], ["--output", "/dev/null"]):
        done = command("translate", model, source, *options)
        assert (done.code, done.err) == (0, "")
    monkeypatch.setattr("sightline.sharding.run.SHARD_LINES", 3)
    done = command("translate", model, source, "--output", output)
    assert (done.code, done.err, output.read_text()) == (0, "", "A B\nC\nD\n")


@pytest.mark.parametrize(
    ("line", "mistake"),
    [
        (["--workers", 2], "--workers needs a FILE to translate"),
        (["IN", "--workers", 2], "--workers needs --output FILE"),
        (["IN", "--shard-lines", 5, "--output", "/dev/null"], "--shard-lines needs --output FILE"),
        (["/dev/stdin", "--workers", 2, "--output", "OUT"], "--workers needs a FILE"),
        (["IN.jsonl"], "IN.jsonl: this format needs --output FILE"),
        (["IN", "--output", "OUT.parquet", "--json"], "OUT.parquet: a table has no JSON in it"),
        (["IN", "--workers", 0], "Invalid value for '--workers'"),
        (["IN", "--engine-cluster", "rey", "--output", "OUT"], "--engine-cluster rey: did you mean 'ray'?"),
        (["IN.txt", "--workers", 1, "--output", "OUT"], "IN.txt: no such file"),
    ],
)
def test_what_does_not_go_together(
    line: list[Any], mistake: str, command: Command, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_lines(tmp_path / "IN", ["a"])
    write_lines(tmp_path / "IN.jsonl", ['{"source": "a"}'])
    assert mistake in command("translate", model, *line).mistake()
    assert not list(tmp_path.glob("*.parts"))


def test_a_model_that_cannot_do_it(command: Command, model: Path, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in", ["a"])
    line = ("--workers", 1, "--output", tmp_path / "out")
    assert "not a model folder" in command("translate", tmp_path, source, *line).mistake()
    assert not (tmp_path / "out.parts").exists()
    bad = write_lines(tmp_path / "bad", ["a " * 2000])
    done = command("translate", model, bad, *line)
    (mistake,) = told(done)
    assert (done.code, done.out) == (2, "")
    assert "no line could be translated, see " in mistake
    assert "of the first: 2,000 tokens, more than the 1,000" in mistake


def test_what_is_usual_is_part_of_the_model(model: Path, tmp_path: Path) -> None:
    """`--check` and `--retry` depend on it, so parts that were made with another are not gone on with."""
    folder = Path(shutil.copytree(model, tmp_path / "model"))
    (folder / "expectations.json").write_text("{}")
    before = model_digests(folder)
    (folder / "expectations.json").write_text("[]")
    assert before != model_digests(folder)
    (folder / "expectations.json").unlink()
    assert before.keys() - model_digests(folder).keys() == {"expectations.json"}
