"""Words that no vocabulary has: ids past it, from text through files and models to text again."""

from __future__ import annotations

import json
import pickle
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import sightline
from sightline.cli import app
from sightline.data import Pair, encode, encode_pairs
from sightline.encoding import Chunk, Encoders, ids_type
from sightline.folder import Tokenizers
from sightline.forced import encode_pair
from sightline.open_words import id_limits, opened
from sightline.scoring import score
from sightline.text import EOS, UNK, CharacterTokenizer, WordTokenizer
from tests.commands import settings, write_tsv

SOURCE = WordTokenizer(["der", "Hund", "heißt", "Rex"], "nfc", False)
TARGET = WordTokenizer(["the", "dog", "is", "called", "Rex"], "nfc", False)
BOTH = Tokenizers(SOURCE, TARGET, copies=True)


def test_ids_past_the_vocabulary_by_hand() -> None:
    sides = BOTH.opened("der Hund heißt Wuff Rex Wuff")
    # The target lacks der, Hund, heißt and Wuff: 0 to 3. The source lacks Wuff alone.
    size = SOURCE.size
    assert sides.source.encode("der Hund heißt Wuff Rex Wuff") == [
        4 + size, 5 + 2 * size, 6 + 3 * size, UNK + 4 * size, 7, UNK + 4 * size
    ]  # fmt: skip
    ids = sides.target.encode("the dog is called Wuff , Hund")
    assert ids == [4, 5, 6, 7, TARGET.size + 3, UNK, TARGET.size + 1]
    assert sides.target.decode(ids) == "the dog is called Wuff <unk> Hund"
    assert sides.target.names(ids)[-3:] == ["Wuff", "<unk>", "Hund"]
    assert sides.target.words_of(ids) == (["the", "dog", "is", "called", "Wuff", "<unk>", "Hund"], list(range(7)))
    assert sides.target.surface(TARGET.size + 3) == b" Wuff"
    assert sides.target.size == TARGET.size + 4


def test_a_source_without_words_of_its_own_opens_nothing() -> None:
    joint = Tokenizers(TARGET, TARGET, copies=True)
    assert opened(TARGET, TARGET, "the dog is called Rex") == (TARGET, TARGET)
    assert joint.opened("the dog").target is TARGET


def test_only_copying_models_with_a_vocabulary_of_words_open_it() -> None:
    plain, letters = Tokenizers(SOURCE, TARGET), CharacterTokenizer([" ", "a"], True, "nfc", False)
    assert plain.opened("Wuff") is plain
    assert not Tokenizers(letters, letters, copies=True).open
    assert plain.sizes.same == ()
    assert BOTH.sizes.same == (0, 1, 2, 3, UNK, UNK, UNK, 8)
    assert BOTH.sizes.open_words


@given(st.lists(st.sampled_from(["der", "Rex", "Wuff", "Bello", "the", "ß"]), min_size=1, max_size=8))
def test_source_ids_tell_their_own_entry_and_the_word(words: list[str]) -> None:
    text = " ".join(words)
    sides = BOTH.opened(text)
    for word, id in zip(words, sides.source.encode(text), strict=True):
        assert id % SOURCE.size == SOURCE.encode(word)[0]
        number = id // SOURCE.size - 1
        assert (number < 0) == (TARGET.encode(word) != [UNK])
        if number >= 0:
            assert sides.target.decode([TARGET.size + number]) == word
    assert sides.target.decode(sides.target.encode(text)) == text
    limits = id_limits((SOURCE.size, TARGET.size), len(words))
    assert all(max(side.encode(text)) < limit for side, limit in zip((sides.source, sides.target), limits, strict=True))


def test_files_hold_the_ids() -> None:
    pairs = [Pair("der Hund heißt Wuff", "the dog is called Wuff"), Pair("Rex", "Rex")]
    found = encode(pairs, SOURCE, TARGET, None, True)
    assert found.ids[1].tolist() == [4, 5, 6, 7, TARGET.size + 3, EOS, 8, EOS]
    encoded, _ = encode_pairs(pairs, SOURCE, TARGET, None, True)
    sources = encoded.batch(np.array([0, 1])).sources[0]
    assert sources.ids[0].tolist()[3] == UNK + 4 * SOURCE.size  # type: ignore[union-attr]
    assert ids_type(BOTH.id_limits(100)[0]) is np.uint16
    assert ids_type(Tokenizers(SOURCE, TARGET).id_limits(100)[0]) is np.uint16
    assert ids_type(id_limits((30_000, 30_000), 250)[0]) is np.int32


def test_a_forced_pass_reads_the_same_ids() -> None:
    pair = encode_pair(BOTH, "Wuff", "called Wuff")
    assert (pair.source, pair.target) == ([UNK + SOURCE.size, EOS], [7, TARGET.size, EOS])
    assert encode_pair(BOTH, "Wuff", [7, TARGET.size]).target_words == ["called", "Wuff"]


def test_opened_vocabularies_travel_between_processes() -> None:
    target = BOTH.opened("Wuff").target
    assert pickle.loads(pickle.dumps(target)).decode([TARGET.size]) == "Wuff"
    assert target.content() == TARGET.content()


# A task that needs copying: known letters are written large and backwards, names, all of them unheard of, as they are.
LETTERS = "abcd"


def task(count: int, seed: int) -> list[tuple[str, str]]:
    generator = random.Random(seed)
    rows = []
    for _ in range(count):
        row = [generator.choice(LETTERS) for _ in range(3)]
        row[generator.randrange(3)] = f"Name{generator.randrange(10**6)}"
        rows.append(row)
    return [(" ".join(row), " ".join(word.upper() if word in LETTERS else word for word in row)) for row in rows]


def command(*arguments: object) -> list[str]:
    result = CliRunner().invoke(app, [str(one) for one in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()


def trained(folder: Path, kind: str) -> Path:
    """A small model of the task, from the command line."""
    common = (
        "text.tokenizer=word",
        "text.vocabulary=12",
        "model.dropout=0",
        "model.embedding=16",
        "model.decoder.width=32",
        "training.learning_rate=0.01",
        "training.validate_bleu=4",
        "training.validate_every=1000",
        "data.batch_tokens=256",
        f"model.copying.kind={kind}",
    )
    data = ("--pairs", write_tsv(folder / "train.tsv", task(2000, 0)))
    valid = ("--valid-pairs", write_tsv(folder / "valid.tsv", task(20, 1)))
    assign = [word for setting in common for word in ("--set", setting)]
    command("train", "--recipe", "luong", "--output", folder / kind, "--max-steps", 150, *data, *valid, *assign)
    return folder / kind


def names_right(found: Sequence[str], wanted: Sequence[str]) -> float:
    """The share of names that came out as they are, in their place."""
    return right(found, wanted, names=True)


def right(found: Sequence[str], wanted: Sequence[str], names: bool) -> float:
    """The share of names, or of other words, that are written in their place."""
    pairs = [
        (one, other)
        for line, target in zip(found, wanted, strict=True)
        for one, other in zip([*line.split(), *[""] * 3], target.split(), strict=False)
    ]
    chosen = [(one, other) for one, other in pairs if other.startswith("Name") == names]
    return sum(one == other for one, other in chosen) / len(chosen)


def test_unseen_names_come_out_as_themselves(tmp_path: Path) -> None:
    test = task(40, 2)
    source = tmp_path / "test.source"
    source.write_text("".join(f"{one}\n" for one, _ in test), encoding="utf-8")
    model = trained(tmp_path, "pointer_generator")
    wanted = [target for _, target in test]
    assert names_right(command("translate", model, source, "--beam", 2), wanted) >= 0.95
    (line,) = [json.loads(one) for one in command("translate", model, write_one(tmp_path, test[0][0]), "--json")]
    assert line["text"].split()[: len(line["tokens"])] == line["tokens"]
    name = next(word for word in test[0][1].split() if word.startswith("Name"))
    assert name in line["tokens"]
    translator = sightline.load(model)
    # Search, forced pass and scores agree, and the links name the word.
    one = translator.translate(test[0][0], beam=1)
    (scored,) = score(translator, [(one.source, one.text)])
    assert scored.tokens == one.tokens
    assert scored.log_prob == pytest.approx(one.log_prob, abs=1e-4)
    assert one.words is not None
    assert name in one.words
    assert name in "".join(translator.live(test[0][0], beam=1))
    assert translator.translate(test[0][0], prefix=name).text.startswith(name)


def test_copynet_writes_unseen_names_and_its_twin_none(tmp_path: Path) -> None:
    """Names that stand in no training pair; the twin differs in one setting, and knows the letters as well."""
    test = task(100, 2)
    source, wanted = tmp_path / "test.source", [target for _, target in test]
    source.write_text("".join(f"{one}\n" for one, _ in test), encoding="utf-8")
    seen = {word for pair in task(2000, 0) for word in pair[0].split()}
    assert not any(word in seen for target in wanted for word in target.split() if word.startswith("Name"))
    copying, plain = (
        command("translate", trained(tmp_path, kind), source, "--beam", 1) for kind in ("copynet", "none")
    )
    assert names_right(copying, wanted) > 0.95
    assert names_right(plain, wanted) == 0
    assert min(right(found, wanted, names=False) for found in (copying, plain)) > 0.95


def write_one(folder: Path, text: str) -> Path:
    path = folder / "one.source"
    path.write_text(f"{text}\n", encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("recipe", "changes"),
    [
        ("transformer", ("text.tokenizer=unigram", "text.vocabulary=300", "model.copying.kind=pointer_generator")),
        ("bahdanau", ("text.joint=false", "text.vocabulary=8", "model.copying.kind=copynet")),
    ],
)
def test_other_vocabularies_go_the_whole_way(tmp_path: Path, recipe: str, changes: Sequence[str]) -> None:
    pairs = write_tsv(tmp_path / "pairs.tsv", task(60, 3))
    assign = [word for setting in changes for word in ("--set", setting)]
    model = tmp_path / "model"
    command(
        "train", "--recipe", recipe, "--pairs", pairs, "--output", model, "--max-steps", 2, *settings(recipe), *assign
    )
    assert len(command("translate", model, write_one(tmp_path, "a b Name7"), "--json", "--align")) == 1
    assert command("score", model, "--pairs", pairs)
    assert command("align", model, "--pairs", pairs)
    result = CliRunner().invoke(
        app, ["export", str(model), str(tmp_path / "out"), "--to", "ctranslate2", "--pairs", str(pairs)]
    )
    assert "cannot run" in str(result.exception or result.output)


def test_other_processes_give_the_same_ids() -> None:
    chunk = Chunk(0, 0, [1], [Pair("der Hund heißt Wuff", "the dog is called Wuff")])
    with Encoders(SOURCE, TARGET, 10, 2, True) as encoders:
        ((_, found),) = encoders.encode([chunk])
    assert found.ids[1].tolist() == [4, 5, 6, 7, TARGET.size + 3, EOS]
