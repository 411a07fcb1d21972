"""The figures of our pages are those of the records, and every record tells how it was made."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmarks import readme_tables, startup
from benchmarks.readme_tables import BLOCKS, PAGES, main, rewritten, span, table
from benchmarks.speed import common

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
RECORDS = sorted(RESULTS.glob("*.json"))
ABOUT = {"command", "machine"}


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """The pages and the records somewhere else."""
    for path in [ROOT / page for page in PAGES] + [*RECORDS, *RESULTS.glob("*.txt")]:
        target = tmp_path / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    return tmp_path


def described(found: Mapping[str, Any], known: frozenset[str] = frozenset()) -> bool:
    """Whether each part of a record has a command and a machine, of its own or of what it is part of."""
    known = known | (ABOUT & found.keys())
    parts = [value for name, value in found.items() if name not in ABOUT]
    if known >= ABOUT:
        return True
    if runs := found.get("runs"):  # what else there is are means of them
        return all(described(run, known) for run in runs)
    return bool(parts) and all(isinstance(part, dict) and described(part, known) for part in parts)


# ---- the pages and the records that are there ----


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_a_page_says_what_its_records_say(page: Path) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert rewritten(text, RESULTS) == text, "run: python benchmarks/readme_tables.py"


def test_every_record_that_the_readme_names_is_behind_a_block() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    behind = {BLOCKS[name].record for name in re.findall(r"<!-- table: (\w+) -->", text)}
    assert set(re.findall(r"\(benchmarks/results/(\w+\.(?:json|txt))\)", text)) <= behind
    used = {name for page in PAGES for name in re.findall(r"table: (\w+)", (ROOT / page).read_text(encoding="utf-8"))}
    assert used == set(BLOCKS)


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_a_record_tells_its_command_and_its_machine(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert described(json.loads(text))
    for line in re.findall(r'"command": "([^"]*)"', text):
        script = re.fullmatch(r"python (benchmarks/\w+\.py)( .*)?", line)
        assert script, line
        assert (ROOT / script[1]).exists()
        for option in re.findall(r"--[\w-]+", line):
            assert f'"{option}"' in (ROOT / script[1]).read_text(encoding="utf-8"), (line, option)
    assert not re.search(r"/(home|root|work|tmp)/", text)


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.txt")), ids=lambda path: path.stem)
def test_a_record_of_text_begins_with_its_command(path: Path) -> None:
    first = path.read_text(encoding="utf-8").splitlines()[0]
    assert re.fullmatch(r"\$ (make|sightline) .*  # .*\d+ cores, .*torch \d.*", first), first


def test_what_the_readme_says_of_attention_is_in_the_records() -> None:
    found = json.loads((RESULTS / "multi30k.json").read_text())
    fixed = found["seq2seq"]["test2016"]["by_length"]
    for recipe in ("bahdanau", "luong", "transformer"):
        for own, other in zip(found[recipe]["test2016"]["by_length"], fixed, strict=True):
            assert own["bleu"] > other["bleu"] or own["sentences"] < 10, (recipe, own["label"])


# ---- how they are written ----


def test_a_number_that_has_fallen_behind_is_found_and_mended(copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check"], copied) == 0
    record = copied / "benchmarks" / "results" / "multi30k.json"
    found = json.loads(record.read_text())
    found["luong"]["test2016"]["bleu"]["value"] = 61.23
    record.write_text(json.dumps(found))
    before = (copied / "README.md").read_text(encoding="utf-8")
    assert main(["--check"], copied) == 1
    assert capsys.readouterr().out == "README.md: has fallen behind its records\n"
    assert (copied / "README.md").read_text(encoding="utf-8") == before
    assert main([], copied) == 0
    after = (copied / "README.md").read_text(encoding="utf-8").splitlines()
    assert any(line.startswith("| `luong` | **61.2** |") for line in after)
    assert len(set(after) ^ set(before.splitlines())) == 4  # its row, and the one that was the best, before and after
    assert main(["--check"], copied) == 0


def test_a_record_that_is_missing_is_said_to_be(tmp_path: Path) -> None:
    page = "a\n<!-- table: startup -->\nold\n<!-- end -->\nb\n"
    told = "Not recorded yet: `benchmarks/startup.py` makes the record."
    assert rewritten(page, tmp_path) == f"a\n<!-- table: startup -->\n{told}\n<!-- end -->\nb\n"


def test_mistakes_in_a_page(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="there is no table 'speeds': tables are demo, "):
        rewritten("<!-- table: speeds -->\n<!-- end -->", tmp_path)
    with pytest.raises(SystemExit, match="a table is not closed"):
        rewritten("<!-- table: demo -->\n", tmp_path)


def test_parts_of_a_page() -> None:
    assert table(["a", "b"], [["x", "1"]], 1) == "| a | b |\n|---|---:|\n| x | 1 |"
    assert [span([12.0, 12]), span([6, 4, 10.5])] == ["12", "4 to 10.5"]
    assert [readme_tables.at_least(values) for values in ([100, 100.0], [100, 99.99])] == ["100%", "at least 99.99%"]


def test_the_speed_table_by_hand() -> None:
    def one(speed: float, times: float | None = None, tuned: float | None = None) -> dict[str, Any]:
        figures = {"times_fastest_peer": times, "times_tuned_loop": tuned, "megaflop_per_token": speed / 100}
        return {"tokens_per_second": speed, **figures}

    tiny = {"sightline": one(5000.4, 2.5, 1.6), "marian": one(1900), "marian-tuned": one(3000), "sockeye": one(2000)}
    tiny["sightline-compiled"] = one(5500, 2.75, 1.8)
    rnn = {"sightline": one(2600, 1.9), "sightline-input-feeding": one(2500, 1.8), "joeynmt": one(1400)}
    settings = {"rounds": 9, "batch_tokens": 4096, "threads": 2}
    sizes = {"tiny": {"what": "Transformer", "contenders": tiny}, "rnn": {"what": "GRUs", "contenders": rnn}}
    told = readme_tables.training_speed({"command": "python x", "settings": settings, "sizes": sizes})
    assert told.splitlines()[-4:] == [
        "| Transformer | 5,000 | Sockeye: 2,000 | **2.50** | 1.60 | 50.0 / 20.0 |",
        "| Transformer (with `--compile`) | 5,500 | Sockeye: 2,000 | **2.75** | 1.80 | 55.0 / 20.0 |",
        "| GRUs | 2,600 | JoeyNMT: 1,400 | **1.90** | - | 26.0 / 14.0 |",
        "| GRUs (with input feeding, as the peers') | 2,500 | JoeyNMT: 1,400 | **1.80** | - | 25.0 / 14.0 |",
    ]
    assert "medians of 9 alternating rounds on the same batches of 4,096 tokens, 2 threads" in told.replace("\n", " ")


def test_the_bundled_models_by_hand() -> None:
    def one(bleu: float, speed: float) -> dict[str, Any]:
        return {"beam": 5, "sentences_per_second": speed, "BLEU": {"value": bleu}, "chrF": {"value": bleu + 20}}

    model = {"bytes": 9_440_000, "first_translation": {"median": 0.305}, "beam": one(38.04, 1234.5)}
    models = {"de-en": {**model, "greedy": one(37, 4000)}, "en-de": {**model, "greedy": one(36, 4100)}}
    told = readme_tables.bundled_models({"command": "python x", "sentences": 5000, "models": models})
    assert told.splitlines()[-2:] == [
        "| `en-de` | 38.0 / 36.0 | 58.0 | 1,234 / 4,100 | 0.30 s | 9.4 MB |",
        "| `de-en` | 38.0 / 37.0 | 58.0 | 1,234 / 4,000 | 0.30 s | 9.4 MB |",
    ]
    assert "On 5,000 sentences" in told


def test_the_memory_of_a_large_corpus_by_hand() -> None:
    def run(updates: int, ended: int, most: int) -> dict[str, Any]:
        memory = {number: {"own": 600 + number} for number in (1, 150, updates)}
        before = {"own": 90, "own_with_helpers": 95, "resident": 200}
        training = {"own": most, "own_with_helpers": most, "resident": most + 400}
        told = {"peak_megabytes": {"tokenising": before, "training": training}, "megabytes_after_updates": memory}
        return {"updates": updates, "epochs_ended": ended, **told}

    files = {"train.lines": 30, "train.source.ids": 100, "train.source.offsets": 40, "train.target.ids": 120}
    runs = {"empty cache": run(20, 0, 900), "full cache": run(300, 2, 1000)}
    record = {"pairs": 5_000_000, "steps": 300, "command": "python x", "corpus_megabytes": 688}
    told = readme_tables.big_corpus({**record, "cache_megabytes": files, "runs": runs})
    about = told.replace("\n", " ")
    assert "Token ids, 220 MB, and their offsets and line numbers, 70 MB, stay on disk" in about
    assert "the order of all pairs was made anew 2 times on the way" in about
    last = "| full cache | 300 | 95 MB | 601 MB | 750 MB | 900 MB | 1,000 MB | 1,400 MB |"
    assert told.splitlines()[-1] == last
    assert readme_tables.times(1) == "once"


def test_the_start_up_sentence_by_hand() -> None:
    kinds = {kind: {"median": {"the first update": seconds}} for kind, seconds in (("cold", 9.04), ("warm", 3.0))}
    told = readme_tables.startup({"command": "python x", "help": {"median": 0.234}, **kinds}).replace("\n", " ")
    assert "`sightline --help` answers in 0.23 s" in told
    assert "takes 9.0 s with an empty cache and 3.0 s with a full one" in told


# ---- what the scripts write ----


def test_help_is_asked_and_timed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert startup.helped() > 0
    seconds = iter([9.0, 0.2, 0.4, 0.3])
    monkeypatch.setattr(startup, "helped", lambda: next(seconds))
    assert startup.asked(3) == {"median": 0.3, "seconds": [0.2, 0.4, 0.3]}
    assert capsys.readouterr().out == "--help: [0.2, 0.4, 0.3]\n"


def test_a_command_as_another_machine_could_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "sys.argv", ["/some/where/benchmarks/big_corpus.py", "--work", "/mnt/x", "--steps", "60", "a b"]
    )
    assert common.command() == "python benchmarks/big_corpus.py --work PATH --steps 60 'a b'"
