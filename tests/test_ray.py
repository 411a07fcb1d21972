"""The same shards on a local Ray: the output is that of one process, to the byte."""

from __future__ import annotations

import builtins
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from sightline.sharding import cluster
from tests.commands import Command, finish, letters, start, write_lines
from tests.shards import told

LINES = [source for source, _ in letters(30, seed=9)]
LINES[4] = "a " * 2000

# Two commands on one Ray, which takes long to start: their arguments have a word between them.
TWICE = """
import sys
from sightline.cli import main
from sightline.sharding import cluster

first, second = " ".join(sys.argv[1:]).split(" THEN ")
codes = []
with cluster._connected(2):
    for arguments in (first, second):
        sys.argv = ["sightline", *arguments.split()]
        try:
            main()
        except SystemExit as ended:
            codes.append(ended.code)
sys.exit(10 * codes[0] + codes[1])
"""


def test_ray_gives_what_one_process_gives(
    command: Command, trained: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, table = trained("luong"), tmp_path / "in.parquet"
    parquet.write_table(pyarrow.table({"source": LINES}), table)
    begun, text = write_lines(tmp_path / "begun", ["A"] * 30), write_lines(tmp_path / "in.txt", LINES)
    line = ["translate", model, table, "--shard-lines", 8, "--json", "--output"]
    other = ["translate", model, text, "--shard-lines", 8, "--align", "--prefixes", begun, "--output"]
    expected = command(*line, tmp_path / "expected", "--workers", 1)
    assert expected.code == 1, expected.err  # since a line failed
    assert command(*other, tmp_path / "expected.parquet", "--workers", 1).code == 1
    with tempfile.TemporaryDirectory(prefix="ray") as folder:  # its sockets want a short name
        monkeypatch.setenv("RAY_TMPDIR", folder)
        ray = ["--engine-cluster", "ray", "--workers"]  # each worker is a process that imports torch
        found = [*line, tmp_path / "found", *ray, 2, "THEN", *other, tmp_path / "found.parquet", *ray, 1]
        process = start(*found, code=TWICE)
        try:
            done = finish(process)
        finally:
            process.terminate()  # if it still runs: Ray's processes then end with it
            process.wait()
    assert (done.code, done.out) == (11, ""), done.err
    wanted = [line.replace("expected", "found") for line in told(expected)]
    assert [line for line in told(done) if line in wanted] == wanted  # its core may log a line of its own
    for name in ("", ".failed.jsonl"):
        assert (tmp_path / f"found{name}").read_bytes() == (tmp_path / f"expected{name}").read_bytes()
    assert len((tmp_path / "found").read_text().splitlines()) == 30
    assert not (tmp_path / "found.parts").exists()
    tables = [parquet.read_table(tmp_path / f"{name}.parquet") for name in ("found", "expected")]
    assert tables[0].equals(tables[1])
    assert all(row.startswith("A") for row in tables[0]["text"].to_pylist() if row is not None)


def test_a_node_that_is_slow_to_start_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray itself gives up after half a minute; the clock of this test is made to run."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: now.__setitem__(0, now[0] + 20 * seconds))
    asked: list[str] = []

    def get_node(address: str, node: str) -> str:
        asked.append(node)
        if now[0] < 200:
            raise RuntimeError("This node has no information")
        return "there"

    services = SimpleNamespace(get_node=get_node)
    with cluster._patient(services):
        assert services.get_node("address", "node") == "there"
    assert len(asked) > 30
    assert services.get_node is get_node
    now[0] = -10_000.0
    with cluster._patient(services), pytest.raises(RuntimeError, match="no information"):
        services.get_node("address", "node")
    assert -10_000 + cluster.PATIENCE < now[0] < 200


def test_a_ray_of_our_own_has_time_to_start() -> None:
    own = cluster._settings({"RAY_USAGE_STATS_ENABLED": "1"})
    assert set(own) == {*cluster.WAITING, *cluster.SETTINGS} - {"RAY_USAGE_STATS_ENABLED"}
    assert (own["RAY_gcs_server_port_wait_time_s"], own["RAY_agent_register_timeout_ms"]) == ("600", "600000")
    assert cluster._settings({"RAY_ADDRESS": "elsewhere:1"}) == cluster.SETTINGS


def test_without_ray(command: Command, trained: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    imported = builtins.__import__

    def no_ray(name: str, *rest: Any) -> Any:
        if name == "ray" or name.startswith("ray."):
            raise ImportError(name)
        return imported(name, *rest)

    source = write_lines(tmp_path / "in", ["a"])
    monkeypatch.setattr(builtins, "__import__", no_ray)
    done = command("translate", trained("luong"), source, "--output", tmp_path / "out", "--engine-cluster", "ray")
    assert done.mistake() == "sightline: --engine-cluster ray needs Ray: pip install 'sightline[ray]'"
    assert [path.name for path in tmp_path.glob("out*")] == []
