"""Records of benchmarks that two processes fill side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from threading import Thread

from benchmarks.mechanisms import records
from benchmarks.mechanisms.records import Result, read_record


def test_two_that_fill_one_record_wait_for_each_other(tmp_path: Path) -> None:
    path = tmp_path / "results" / "record.json"

    def filled(name: str, write: object = records.record) -> None:
        given = (path, {name: {"seed": 1}}, ["one", "other"], lambda name: {"score": name}, lambda result: "", ())
        assert records.fill(*given, 1.0, write=write) == 0  # type: ignore[arg-type]

    def writing(path: Path, name: str, result: Result, order: Sequence[str]) -> None:
        before = read_record(path)
        other.start()
        other.join(0.5)
        assert other.is_alive(), "it must wait until this one has written"
        assert read_record(path) == before
        records.record(path, name, result, order)

    other = Thread(target=filled, args=("other",))
    filled("one", writing)
    other.join()
    found = read_record(path)
    assert [*found] == ["one", "other"]
    assert found["other"]["score"] == "other"
