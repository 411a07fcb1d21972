"""The benchmark of copying: what must be copied and was, by hand; its arms; its tables; a run on a few pairs."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import copying
from benchmarks.mechanisms import running
from benchmarks.mechanisms.entries import resolved
from sightline.config import merge
from sightline.folder import load_tokenizers
from tests.commands import Command, arms_within

KNOWN = frozenset(["Tom", "in", "Boston", "the", "2", "He", "said", "und"])


# ---- measures ----


def test_words_marks_and_what_is_missing() -> None:
    assert copying.cut("<unk> ist, 3.") == ["<unk>", "ist", ",", "3", "."]
    assert [piece for piece in copying.cut("<unk> ist, 3.") if copying.is_word(piece)] == ["ist", "3"]


def test_capitals_that_mean_something() -> None:
    pieces = copying.cut('He met Tom. Mary said: "Bob saw Ann."')
    assert copying.within_sentences(pieces) == ["met", "Tom", "said", "saw", "Ann"]


def test_what_must_be_copied_by_hand() -> None:
    source = copying.cut("Anna met Tom and Joaquín in Boston in 2009, at 2.")
    reference = copying.cut("Anna traf Tom und Joaquín 2009 in Boston, um 2.")
    found = copying.to_copy(source, reference, KNOWN)
    assert found["names"] == {"Tom": 1, "Joaquín": 1, "Boston": 1}, "Anna begins the sentence"
    assert found["numbers"] == {"2009": 1, "2": 1}
    assert found["unseen"] == {"Anna": 1, "Joaquín": 1, "2009": 1}
    assert found["all"] == {"Anna": 1, "Tom": 1, "Joaquín": 1, "Boston": 1, "2009": 1, "2": 1}, (
        "not 'in', a word of both"
    )


def test_the_smaller_count_is_needed() -> None:
    found = copying.to_copy(copying.cut("He saw Ann and Ann saw Ann"), copying.cut("Er sah Ann , Ann ihn"), KNOWN)
    assert found["names"] == {"Ann": 2}


def test_shares_by_hand() -> None:
    triples = [
        # To copy: Tom, Joaquín, 2009. Of the output, Joaquín and Jaquin are not known, and one of them is made up.
        ("He said Tom and Joaquín, 2009", "Er , Tom und Joaquín , 2009", "Tom und Joaquín Jaquin <unk>"),
        ("the Tom", "der Mann", "Tom"),
    ]
    found = copying.copies(triples, KNOWN)
    assert found["to_copy"] == {"all": 3, "names": 2, "numbers": 1, "unseen": 2}
    assert found["recall"] == {"all": 66.7, "names": 100.0, "numbers": 0.0, "unseen": 50.0}
    assert (found["outside"], found["precision"]) == (2, 50.0)
    assert found["unknown"] == pytest.approx(16.7)


def test_nothing_to_copy_is_no_share() -> None:
    found = copying.copies([("the", "der", "der")], frozenset({"the", "der"}))
    assert found["recall"] == dict.fromkeys(copying.KINDS)
    assert found["precision"] is None


SENTENCES = st.lists(st.sampled_from(["Tom", "in", "Ann", "2009", "7", "und", ".", ",", "Zoë", "<unk>"]), max_size=8)


@given(SENTENCES, SENTENCES, SENTENCES)
def test_properties(source: list[str], reference: list[str], output: list[str]) -> None:
    """The reference and the source themselves lack nothing; nobody has more than all; only the source's words count."""
    lines = [" ".join(side) for side in (source, reference, output)]
    for perfect in lines[:2]:
        found = copying.copies([(lines[0], lines[1], perfect)], KNOWN)
        assert {share for share in found["recall"].values() if share is not None} <= {100.0}
    assert copying.copies([(lines[0], lines[1], lines[0])], KNOWN)["precision"] in (None, 100.0)
    found = copying.copies([(lines[0], lines[1], lines[2])], KNOWN)
    assert all(share is None or 0 <= share <= 100 for share in found["recall"].values())
    assert max(found["to_copy"].values()) == found["to_copy"]["all"]


@given(st.text(max_size=30))
def test_cutting_twice_is_cutting_once(text: str) -> None:
    once = copying.cut(text)
    assert copying.cut(" ".join(once)) == once


# ---- arms ----


@pytest.mark.parametrize("name", copying.ARMS)
def test_every_arm_is_its_twin_but_for_copying(name: str) -> None:
    recipe, how = name.split("-", 1)
    config = resolved(copying.ARMS[name])
    twin = resolved(copying.ARMS[f"{recipe}-words"])
    assert config.model.recipe == recipe
    kind = how.removesuffix("-no-practice").removesuffix("-unknown")
    assert config.model.copying.kind == {"words": "none", "subwords": "none"}.get(kind, kind.replace("-", "_"))
    assert (config.text.tokenizer == "word") == (how != "subwords")
    without = {"copying": twin.model.copying}
    assert config.model.model_copy(update=without) == twin.model
    assert config.training == twin.training
    assert config.data == twin.data
    assert config.text.vocabulary == twin.text.vocabulary == 4000


# ---- tables ----


def found(recall: float, precision: float | None) -> dict[str, Any]:
    return {
        "sentences": 1200,
        "bleu": {"value": 12.34, "signature": "s"},
        "chrf": {"value": 45.0, "signature": "s"},
        "to_copy": {"all": 1500, "names": 900, "numbers": 0, "unseen": 800},
        "recall": {"all": recall, "names": 50.0, "numbers": None, "unseen": 25.0},
        "outside": 1234,
        "precision": precision,
        "unknown": 3.0,
    }


def test_tables_from_a_record() -> None:
    about = {
        "pairs": 20000,
        "held_out": 1000,
        "tested": 5000,
        "minutes": 5.0,
        "max_updates": None,
        "threads": 2,
        "beam": 5,
        "machine": {"cpu": "abacus"},
        "command": "python benchmarks/copying.py --data PATH",
    }
    record = {
        "bahdanau-words": {**about, "tatoeba": found(0.0, None), "europarl": found(1.0, None)},
        "bahdanau-copynet": {**about, "tatoeba": found(80.5, 99.0), "europarl": found(60.0, 98.0)},
        "transformer-copynet": {**about, "failed": "no electricity"},
    }
    text = copying.tables(record)
    assert "| arm | BLEU | chrF | all, of 1,500 | names, of 900 | numbers, of 0 | unseen, of 800 |" in text
    assert "| `bahdanau-words` | 12.3 | 45.0 | 0.0 | 50.0 | – | 25.0 | – | 1,234 | 3.0 |" in text
    assert "| `bahdanau-copynet` | 12.3 | 45.0 | 60.0 | 50.0 | – | 25.0 | 98.0 | 1,234 | 3.0 |" in text
    assert text.count("1,200 sentences") == 2
    assert "5 minutes of training for each arm on 2 threads (abacus)" in text.replace("\n", " ")
    assert text.endswith("`transformer-copynet` failed: no electricity.\n")
    assert "other settings" not in text
    changed = {**record, "bahdanau-copynet": {**record["bahdanau-copynet"], "threads": 1}}
    assert "as the record tells: `bahdanau-copynet`." in copying.tables(changed)
    assert copying.tables({"a": {"failed": "x"}}) == "# Copying\n\n`a` failed: x.\n"


# ---- a run ----


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Pairs with a name that is to be copied, each of its own."""
    chance = random.Random(3)

    def pairs(first: int, count: int) -> list[str]:
        names = [f"N{chance.choice('aeiou')}{number}x" for number in range(first, first + count)]
        return [f"I saw {name} on day {place}.\tIch sah {name} an Tag {place}." for place, name in enumerate(names)]

    for path, lines in ((copying.CORPUS, pairs(0, 80)), *((path, pairs(100, 6)) for path in copying.TESTS.values())):
        (tmp_path / "data" / path).parent.mkdir(parents=True, exist_ok=True)
        with gzip.open(tmp_path / "data" / path, "wt", encoding="utf-8") as file:
            file.write("".join(f"{line}\n" for line in lines))
    return tmp_path / "data"


def test_an_arm_from_end_to_end(data: Path, command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    trained: list[str] = []
    monkeypatch.setattr(running, "commands", arms_within(command, trained))
    few = {"text": {"vocabulary": 12}}
    monkeypatch.setattr(copying, "ARMS", {name: merge(values, few) for name, values in copying.ARMS.items()})
    small = ["model.embedding=8", "model.encoder.width=4", "model.decoder.width=8", "training.warmup=1"]
    arguments = [f"--{name}={tmp_path / name}" for name in ("data", "runs")]
    arguments += ["--results", str(tmp_path / "copying.json"), "--arms", "bahdanau-pointer-generator"]
    arguments += ["--updates", "2", "--pairs", "40", "--held-out", "6", "--tested", "5", "--beam", "2"]
    for setting in small:
        arguments += ["--set", setting]
    assert copying.main(arguments) == 0
    record = json.loads((tmp_path / "copying.json").read_text(encoding="utf-8"))
    one = record["bahdanau-pointer-generator"]
    assert (one["updates"], one["pairs"], one["tested"]) == (2, 40, 5)
    for test in copying.TESTS:
        assert one[test]["sentences"] == 5
        assert one[test]["to_copy"]["names"] == 0, "they have digits"
        assert one[test]["to_copy"]["numbers"] == 10
        assert one[test]["to_copy"]["unseen"] >= 5
    assert str(tmp_path) not in json.dumps(one)
    assert "`bahdanau-pointer-generator`" in (tmp_path / "copying.md").read_text(encoding="utf-8")
    # The words that are counted as known are those that the model knows.
    folder = tmp_path / "runs" / "bahdanau-pointer-generator"
    lines = (tmp_path / "runs" / "train.tsv").read_text(encoding="utf-8").splitlines()
    known = copying.vocabulary([copying.Pair(*line.split("\t")) for line in lines])
    target = load_tokenizers(folder, running.sightline.load(folder).config).target
    assert known == {target.piece(id) for id in range(4, target.size)}
    assert len(known) == 8
    # What is recorded is not trained again.
    assert copying.main(arguments) == 0
    assert trained == ["bahdanau-pointer-generator"]
    (tmp_path / "copying.md").unlink()
    assert copying.main(["--tables", "--results", str(tmp_path / "copying.json")]) == 0
    assert (tmp_path / "copying.md").is_file()


def test_mistakes_are_told(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = ["--results", str(tmp_path / "none.json")]
    with pytest.raises(SystemExit):
        copying.main(["--data", str(data), "--arms", "telepathy", *results])
    assert "unknown telepathy" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        copying.main(results)
    assert "--data DIR" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="there is no"):
        copying.main(["--data", str(tmp_path), "--runs", str(tmp_path / "r"), *results])
