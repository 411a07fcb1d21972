"""Cutting, translating and joining shards, with a translator that needs no model."""

from __future__ import annotations

import gzip
import json
from collections.abc import Collection, Generator
from pathlib import Path
from typing import Any

import pyarrow
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as some
from pyarrow import parquet

from sightline.errors import SightlineError
from sightline.files import read_lines
from sightline.performance import available_processors
from sightline.sharding import inputs
from sightline.sharding.inputs import check_counts, cut, longer_than
from sightline.sharding.job import Failure, Job, Shard, Translated, lost
from sightline.sharding.parts import Parts, Summary
from sightline.sharding.pool import Pool, environment
from sightline.sharding.progress import left, status
from sightline.sharding.run import on_this_machine, translate_file
from sightline.sharding.worker import ShardTranslator
from tests.commands import write_lines
from tests.shards import Shouting, shouting


@pytest.fixture(autouse=True)
def _shouting(monkeypatch: pytest.MonkeyPatch) -> None:
    shouting(monkeypatch)


JOB = Job(Path("some model"))


def in_this_process(job: Job) -> Any:
    """Translates without starting a process."""

    def run(source: Path, shard_lines: int, done: Collection[int]) -> Generator[Translated]:
        translate = ShardTranslator(job)
        yield from (translate(shard) for shard in cut(source, shard_lines, job.beside) if shard.number not in done)

    return run


def failures(output: Path) -> list[dict[str, Any]]:
    path = Parts(output).failed
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


# Cutting


@given(text=some.text(alphabet="ab\n\r\u2028é", max_size=60), size=some.integers(1, 5))
def test_shards_are_the_lines_in_order(text: str, size: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "cut.txt"
    path.write_bytes(text.encode())
    shards = list(cut(path, size))
    assert [line for shard in shards for line in shard.lines] == list(read_lines(path))
    assert [shard.number for shard in shards] == list(range(len(shards)))
    assert all(shard.first == shard.number * size + 1 for shard in shards)
    assert all(len(shard.lines) == size for shard in shards[:-1])
    assert [shard.last for shard in shards] == [False] * (len(shards) - 1) + [True]
    assert bool(text) == bool(shards[-1].lines)
    assert sum(shard.read for shard in shards) == len(text.encode())
    assert longer_than(path, size) == (len(shards) > 1)


def test_packed_files_json_lines_and_tables_give_the_same_shards(tmp_path: Path) -> None:
    lines = [f"line {number} ü" for number in range(10)]
    plain = write_lines(tmp_path / "a.txt", lines)
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(plain.read_bytes()))
    (tmp_path / "a.zst").write_bytes(zstandard.compress(plain.read_bytes()))
    write_lines(tmp_path / "a.jsonl", [json.dumps({"source": line, "id": 7}) for line in lines])
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress((tmp_path / "a.jsonl").read_bytes()))
    parquet.write_table(pyarrow.table({"id": range(10), "source": lines}), tmp_path / "a.parquet")
    expected = [shard.lines for shard in cut(plain, 4)]
    for name in ("a.txt.gz", "a.zst", "a.jsonl", "b.jsonl.gz", "a.parquet"):
        shards = list(cut(tmp_path / name, 4))
        assert [shard.lines for shard in shards] == expected, name
        assert sum(shard.read for shard in shards) == pytest.approx((tmp_path / name).stat().st_size, abs=9), name
    parquet.write_table(pyarrow.table({"text": lines}), tmp_path / "b.parquet")
    with pytest.raises(SightlineError, match="expected the column 'source', found: text"):
        list(cut(tmp_path / "b.parquet", 4))


def test_what_cannot_be_read_is_refused_line_by_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "LONGEST_LINE", 12)
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbfa\r\nb\xff\n" + b"c" * 12 + b"\n" + b"d" * 50 + b"\ne\n" + b"f" * 12)
    (shard,) = cut(tmp_path / "a", 10)
    assert shard.lines == ["a", "", "", "", "e", "f" * 12]
    assert [(one.line, one.reason[:24], one.text) for one in shard.refused] == [
        (2, "not valid UTF-8 (byte 0x", "b\\xff"),
        (3, "longer than 12 bytes", "c" * 12),
        (4, "longer than 12 bytes", "d" * 12),
    ]
    assert shard.read == (tmp_path / "a").stat().st_size


@pytest.mark.parametrize(
    "value", ['{"source": 1}', '{"target": "a"}', "[]", "text", '"x"', '{"source": "\\ud800"}', ""]
)
def test_json_lines_without_a_source(value: str, tmp_path: Path) -> None:
    (shard,) = cut(write_lines(tmp_path / "a.jsonl", [value, '{"source": "b"}']), 10)
    assert shard.lines == ["", "b"]
    assert [(one.line, one.text) for one in shard.refused] == [(1, value)]


def test_tables_with_holes_and_packed_files_by_a_wrong_name(tmp_path: Path) -> None:
    parquet.write_table(pyarrow.table({"source": ["a", None, "c"]}), tmp_path / "a.parquet")
    (shard,) = cut(tmp_path / "a.parquet", 10)
    assert (shard.lines, [one.line for one in shard.refused]) == (["a", "", "c"], [2])
    for packed in (gzip.compress(b"a\n"), zstandard.compress(b"a\n")):
        (tmp_path / "a.txt").write_bytes(packed)
        with pytest.raises(SightlineError, match="give the file a name that ends in"):
            list(cut(tmp_path / "a.txt", 10))


# Translating


def shard_of(lines: list[str], first: int = 1) -> Shard:
    return Shard(0, first, lines, [], 0, True)


def test_only_the_line_that_is_the_cause_fails() -> None:
    translate = ShardTranslator(JOB)
    lines = [f"l{number}" for number in range(20)]
    lines[3], lines[11], lines[12], lines[15] = "boom", "boom", "x" * 300, ""
    found = translate(shard_of(lines, first=101))
    expected = ["" if line in ("boom", "x" * 300) else line.upper() for line in lines]
    assert found.output.decode().split("\n")[:-1] == expected
    assert [(one.line, one.reason) for one in found.failures] == [
        (104, "RuntimeError: it went off"),
        (112, "RuntimeError: it went off"),
        (113, "too long"),
    ]
    assert found.failures[2].text == "x" * 200 + "…"
    translator: Any = translate.translator
    assert isinstance(translator, Shouting)
    assert translator.batches[0] == [line for line in lines if line != "x" * 300]


def test_forms() -> None:
    lines, numbers = ["a", "boom"], {"n_best": 2}
    text = ShardTranslator(Job(Path("m"), numbers))(shard_of(lines, first=8)).output.decode()
    assert text == "7 ||| A ||| F0= -8 ||| -8\n8 |||  ||| F0= 0 ||| 0\n"
    rows = ShardTranslator(Job(Path("m"), numbers, form="json"))(shard_of(lines)).output.decode().splitlines()
    assert [(row["source"], row["text"]) for row in map(json.loads, rows)] == [("a", "A"), ("boom", "")]
    assert [json.loads(row).get("error") for row in rows] == [None, "RuntimeError: it went off"]
    asked = {"check": True, "glossary": "terms", "require": ["x"]}
    (lost_row,) = lost(Job(Path("m"), asked, form="json"), shard_of(["a"]), "it died").output.decode().splitlines()
    found = json.loads(lost_row)
    assert (found["flags"], found["terms"], found["error"]) == ([], [], "it died")
    assert found["required"] == [{"text": "x", "honoured": False}]
    rows = ShardTranslator(Job(Path("m"), form="parquet"))(shard_of(lines)).output.decode().splitlines()
    assert [json.loads(row) for row in rows] == [
        {"line": 1, "source": "a", "text": "A", "score": -1.0},
        {"line": 2, "source": "boom", "text": None, "score": None},
    ]


def test_files_beside_the_input_are_cut_with_it(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in", list("abcde"))
    begun = write_lines(tmp_path / "begun", ["A", "", "C", "D", "E"])
    shards = list(cut(source, 2, {"prefixes": begun}))
    assert [shard.beside for shard in shards] == [{"prefixes": lines} for lines in (["A", ""], ["C", "D"], ["E"])]
    for lines in (["A"], list("ABCDEF")):
        with pytest.raises(SightlineError, match=rf"begun: {len(lines)} prefixes for the 5 lines of .*in: give one"):
            check_counts(source, {"prefixes": write_lines(begun, lines)})
    job = Job(Path("m"), {"prefixes": str(begun), "mark": "!"})
    assert (job.beside, job.shared) == ({"prefixes": begun}, {"mark": "!"})


def test_what_a_shard_is_asked_for_is_read_once(tmp_path: Path, trained: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A glossary is read when a worker starts, and prefixes come with the shard, also where lines fail."""
    monkeypatch.undo()  # a real translator
    terms, begun = write_lines(tmp_path / "terms.tsv", ["b\tH"]), write_lines(tmp_path / "begun", list("ABCD"))
    translate = ShardTranslator(Job(trained("transformer"), {"glossary": str(terms), "prefixes": str(begun)}))
    terms.unlink()
    begun.unlink()
    found = translate(Shard(1, 3, ["a b", "c", "x" * 5], [], 0, True, {"prefixes": ["H G", "F", "nowhere"]}))
    rows = found.output.decode().split("\n")
    assert (rows[0][:3], rows[1][:1], rows[2]) == ("H G", "F", "")
    assert [(one.line, "cannot spell 'nowhere'" in one.reason) for one in found.failures] == [(5, True)]


def test_empty_lines_of_shards_have_what_was_asked_for(trained: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was typed for them is their text and what must be there is missing, whatever becomes of the shard."""
    monkeypatch.undo()  # a real translator
    job = Job(trained("transformer"), {"require": ["G"], "requires": "wanted", "prefixes": "begun"}, form="json")
    beside = {"requires": ["", "H", "A"], "prefixes": ["", "", "F"]}
    shard = Shard(1, 3, ["a b", "", ""], [], 0, True, beside)
    rows = [json.loads(row) for row in ShardTranslator(job)(shard).output.decode().splitlines()]
    expected = [{"text": "G", "honoured": False}, {"text": "H", "honoured": False}]
    assert [row["text"] for row in rows[1:]] == ["", "F"]
    assert rows[1]["required"] == expected
    dead = lost(job, shard, "it died")
    assert [one.line for one in dead.failures] == [3, 5]  # of the line between them nothing is lost
    assert json.loads(dead.output.decode().splitlines()[1])["required"] == expected


def test_a_line_that_could_not_be_read_fails_once(trained: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # a real translator
    refused = [Failure(1, "no text", "")]
    shard = Shard(1, 1, ["", "a"], refused, 0, True, {"prefixes": ["nowhere", "A"]})
    found = ShardTranslator(Job(trained("transformer"), {"prefixes": "begun"}))(shard)
    assert found.failures == refused
    assert found.output.startswith(b"\nA")
    assert [one.line for one in lost(JOB, shard, "it died").failures] == [1, 2]


def test_a_file_that_changes_while_it_is_used_is_told_of(tmp_path: Path) -> None:
    source, output = write_lines(tmp_path / "in", list("abcd")), tmp_path / "out"
    terms = write_lines(tmp_path / "terms", ["a\tA"])
    job = Job(Path("some model"), {"glossary": str(terms)})

    def changing(*given: Any) -> Generator[Translated]:
        for translated in in_this_process(job)(*given):
            write_lines(terms, ["a\tB"])
            yield translated

    with pytest.raises(SightlineError, match=r"terms: has changed while it was used; delete .*parts and start again"):
        translate_file(job, source, output, changing, 2)
    assert not output.exists()


# The folder of parts, and the join


def test_a_file_in_shards(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in", ["a", "b", "boom", "", "c"])
    output, said = tmp_path / "out", list[str]()
    for lines in (1, 2, 5, 9):
        summary = translate_file(JOB, source, output, in_this_process(JOB), lines, said.append)
        assert output.read_text() == "A\nB\n\n\nC\n"
        assert summary == Summary(5, 1, "RuntimeError: it went off", 1)
        assert failures(output) == [{"line": 3, "reason": "RuntimeError: it went off", "text": "boom"}]
    source.write_text("")
    assert translate_file(JOB, source, output, in_this_process(JOB)) == Summary(0)
    assert output.read_bytes() == b""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]  # no failures, no record of them
    assert said == []


def test_tables_out(tmp_path: Path) -> None:
    lines = [f"l{number}" for number in range(7)]
    lines[2] = "boom"
    job, output = Job(Path("m"), form="parquet"), tmp_path / "out.parquet"
    translate_file(job, write_lines(tmp_path / "in", lines), output, in_this_process(job), 3)
    table = parquet.read_table(output)
    assert table.schema.names == ["line", "source", "text", "score"]
    assert table["line"].to_pylist() == list(range(1, 8))
    assert table["source"].to_pylist() == lines
    assert table["text"].to_pylist() == [None if line == "boom" else line.upper() for line in lines]
    assert [one["line"] for one in failures(output)] == [3]


class StoppedError(Exception):
    """Breaks a work off."""


def broken_off(output: Path, source: Path, job: Job = JOB, after: int = 2, shard_lines: int = 1) -> None:
    """A work of which the first parts are done."""

    def run(*given: Any) -> Generator[Translated]:
        for count, one in enumerate(in_this_process(job)(*given)):
            if count == after:
                raise StoppedError
            yield one

    with pytest.raises(StoppedError):
        translate_file(job, source, output, run, shard_lines)


def test_it_goes_on_with_what_is_missing(tmp_path: Path) -> None:
    source, output, said = write_lines(tmp_path / "in", list("abcd")), tmp_path / "out", list[str]()
    broken_off(output, source)
    asked = list[set[int]]()

    def run(path: Path, shard_lines: int, done: Collection[int]) -> Generator[Translated]:
        asked.append({*done})
        yield from in_this_process(JOB)(path, shard_lines, done)

    translate_file(JOB, source, output, run, 1, said.append)
    assert (output.read_text(), asked) == ("A\nB\nC\nD\n", [{0, 1}])
    assert said == [f"{tmp_path}/out.parts: 2 lines are translated already; going on"]
    assert not Parts(output).folder.exists()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"lines": "abcx"}, "begun with another input"),
        ({"job": Job(Path("other"))}, "begun with another model"),
        ({"job": Job(Path("some model"), {"n_best": 2})}, "begun with n-best left open, which is 2 now"),
        ({"job": Job(Path("some model"), form="json")}, 'begun with form "text", which is "json" now'),
        ({"shard_lines": 2}, "begun with shard-lines 1, which is 2 now"),
    ],
)
def test_nothing_is_mixed(change: dict[str, Any], told: str, tmp_path: Path) -> None:
    source, output = write_lines(tmp_path / "in", list("abcd")), tmp_path / "out"
    broken_off(output, source)
    write_lines(source, change.get("lines", list("abcd")))
    job = change.get("job", JOB)
    with pytest.raises(SightlineError, match=told) as refused:
        translate_file(job, source, output, in_this_process(job), change.get("shard_lines", 1))
    assert str(refused.value).startswith(f"{tmp_path}/out.parts: ")
    assert str(refused.value).endswith(": go on as it was begun, or delete the folder to begin anew")
    write_lines(source, list("abcd"))
    translate_file(JOB, source, output, in_this_process(JOB), 1)
    assert output.read_text() == "A\nB\nC\nD\n"


def test_a_file_that_an_option_names_counts_by_its_content(tmp_path: Path) -> None:
    source, output = write_lines(tmp_path / "in", list("abcd")), tmp_path / "out"
    terms = write_lines(tmp_path / "terms", ["a\tA"])
    job = Job(Path("some model"), {"glossary": str(terms)})
    broken_off(output, source, job)
    write_lines(terms, ["a\tB"])
    with pytest.raises(
        SightlineError,
        match="begun with another glossary, or other prefixes, requirements or seeds: go on as it was begun",
    ):
        translate_file(job, source, output, in_this_process(job), 1)


def test_damaged_parts(tmp_path: Path) -> None:
    source, output = write_lines(tmp_path / "in", list("abcd")), tmp_path / "out"
    broken_off(output, source, after=3)
    parts = Parts(output)
    parts.path(0).write_bytes(b"nonsense")  # told by its record, and done again
    parts.path(1).write_bytes(parts.path(1).read_bytes()[:-1])  # by its size
    parts.path(2).write_bytes(parts.path(2).read_bytes().replace(b"\nC", b"\nX"))  # by its digest, at the end
    with pytest.raises(SightlineError, match="00002: was damaged and is deleted; start again"):
        translate_file(JOB, source, output, in_this_process(JOB), 1)
    assert not output.exists()
    translate_file(JOB, source, output, in_this_process(JOB), 1)
    assert output.read_text() == "A\nB\nC\nD\n"
    broken_off(output, source)
    (parts.folder / "manifest.json").unlink()
    with pytest.raises(SightlineError, match=r"holds parts, but no manifest\.json: delete the folder"):
        translate_file(JOB, source, output, in_this_process(JOB), 1)


def test_an_input_that_changes_meanwhile(tmp_path: Path) -> None:
    source, output = write_lines(tmp_path / "in", list("abcd")), tmp_path / "out"

    def run(*given: Any) -> Generator[Translated]:
        yield from in_this_process(JOB)(*given)
        write_lines(source, list("abcde"))

    with pytest.raises(SightlineError, match=r"in: has changed while it was translated; delete .*out\.parts"):
        translate_file(JOB, source, output, run, 1)
    assert not output.exists()


def test_two_at_once(tmp_path: Path) -> None:
    source, output = write_lines(tmp_path / "in", list("ab")), tmp_path / "out"
    with Parts(output).held(), pytest.raises(SightlineError, match="another process is at work here"):
        translate_file(JOB, source, output, in_this_process(JOB))
    translate_file(JOB, source, output, in_this_process(JOB))
    assert output.read_text() == "A\nB\n"


def test_a_work_that_could_not_begin_leaves_no_folder(tmp_path: Path) -> None:
    source, job = write_lines(tmp_path / "in", list("ab")), Job(Path("no such"))
    for runner in (in_this_process(job), on_this_machine(job, 2)):
        with pytest.raises(SightlineError, match=r"^no such: no such folder$"):
            translate_file(job, source, tmp_path / "out", runner, 1)
    with pytest.raises(SightlineError, match="nowhere: no such file"):
        translate_file(JOB, tmp_path / "nowhere", tmp_path / "out", in_this_process(JOB), 1)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


# Processes


def test_a_worker_that_dies_is_replaced_and_a_deadly_line_costs_its_shard(tmp_path: Path) -> None:
    lines = list("abcdef")
    lines[1], lines[4] = f"die once {tmp_path / 'died'}", "die"
    source, output = write_lines(tmp_path / "in", lines), tmp_path / "out"
    summary = translate_file(JOB, source, output, on_this_machine(JOB, 2), 2)
    assert output.read_text() == f"A\n{lines[1].upper()}\nC\nD\n\n\n"
    reason = "2 workers died over lines 5 to 6; the last was killed by SIGKILL"
    assert failures(output) == [
        {"line": 5, "reason": reason, "text": "die"},
        {"line": 6, "reason": reason, "text": "f"},
    ]
    assert summary == Summary(6, 2, reason)


def test_few_shards_are_in_memory() -> None:
    drawn = 0

    def shards() -> Generator[Shard]:
        nonlocal drawn
        for number in range(12):
            drawn += 1
            yield Shard(number, number + 1, [f"l{number}"], [], 1, number == 11)

    done = set[int]()
    with Pool(JOB, 1) as pool:
        for one in pool.translate(shards()):
            assert drawn - len(done) <= 4
            done.add(one.number)
    assert done == set(range(12))


def test_the_machine_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sightline.sharding.pool.available_processors", lambda: 8)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,5")
    found = [environment(place, 3) for place in range(3)]
    assert [one["CUDA_VISIBLE_DEVICES"] for one in found] == ["2", "5", "2"]
    # More threads in a product would round otherwise.
    assert {(one["SIGHTLINE_PROCESSORS"], one["OMP_NUM_THREADS"]) for one in found} == {("2", "1")}
    monkeypatch.setenv("SIGHTLINE_PROCESSORS", "1")
    assert available_processors() == 1


def test_progress_in_words() -> None:
    assert status(12_345, 99.6, 0.1234) == "12,345 sentences (12.3%), 100 a second"
    assert left(3600, 100, 250) == "2:30 hours left"
    assert left(1, 0, 0) == "0:00 hours left"
