"""Where a shortlist's numbers come from: the rule, its record, and the page that tells of it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import shortlist
from benchmarks.shortlist import PAGE, RESULTS, WHOLE, Numbers, chosen, run, told, with_record
from tests.commands import letters


def row(value: float, speed: float, share: float) -> dict[str, Any]:
    return {"value": value, "times_as_fast": speed, "share": share, "entries": round(1000 * share)}


def test_the_rule() -> None:
    short, middle, long = row(10, 1.6, 0.984), row(20, 1.5, 0.985), row(40, 1.4, 0.99)
    assert chosen([long, middle, short]) == 20
    assert chosen([short, long]) == 40
    assert chosen([short]) is None


def test_a_run_on_letters(trained: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shortlist, "TRIED", {"size": (1, 50)})
    for seed, (part, count) in enumerate({"train": 200, "val": 30, "test2016": 20}.items()):
        pairs = letters(count, seed)
        for side, name in enumerate(("en", "de")):
            text = "".join(f"{pair[side]}\n" for pair in pairs)
            (tmp_path / f"{part}.tok.{name}.gz").write_bytes(gzip.compress(text.encode()))
    (tmp_path / "exports").mkdir()
    record = json.loads(json.dumps(run(tmp_path, trained("transformer"), 1, None, tmp_path / "exports")))
    assert record["sentences"] == {"train": 200, "val": 30, "test2016": 20}
    assert [one["value"] for one in record["numbers"]["size"]["tried"]] == [1, 50]
    assert record["numbers"]["size"]["default"] == Numbers().size
    assert record["test2016"]["defaults"]["beam 5"]["bleu"] > 80
    assert record["val"][WHOLE]["times_as_fast"] == 1
    assert f"| {WHOLE} | {record['vocabulary']} | " in told(record)
    page = "before\n<!-- from benchmarks/results/shortlist.json -->\nold\n<!-- to here -->\nafter\n"
    new = with_record(page, record)
    assert new == f"before\n{shortlist.MARKS[0]}{told(record)}{shortlist.MARKS[1]}after\n"
    assert with_record(new, record) == new


@pytest.mark.skipif(not RESULTS.is_file(), reason="there is no record yet")
def test_the_defaults_and_the_page_are_those_of_the_record() -> None:
    record = json.loads(RESULTS.read_text(encoding="utf-8"))
    for name, one in record["numbers"].items():
        assert one["rule"] == one["default"] == getattr(Numbers(), name), name
    page = PAGE.read_text(encoding="utf-8")
    assert with_record(page, record) == page
