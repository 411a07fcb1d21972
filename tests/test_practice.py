"""Practice in copying: which words are hidden, what they become, and that words never seen are copied for it."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sightline.batch import Batch, Tokens, pad
from sightline.config import build_config
from sightline.copying import Copyable
from sightline.folder import Tokenizers
from sightline.models import build_model
from sightline.practice import Practice
from sightline.text import EOS, PAD, UNK, Sizes, WordTokenizer
from tests.commands import write_tsv
from tests.test_open_words import command

# 10 is a mark. Of the source's entries 4 and 5 are not the target's 4 and 5, and 9 has no entry of its name.
SIZES = Sizes(11, 10, False, (PAD, UNK, 2, EOS, 5, 4, 6, 7, 8, UNK, 9), True, (4, 5, 6, 7, 8, 9))
COPYABLE = Copyable(SIZES)


def hidden(batch: Batch, rate: float) -> Batch:
    ids = torch.cat([source.ids for source in batch.sources if isinstance(source, Tokens)], 1)
    return Practice(SIZES, rate).hidden(batch, COPYABLE.targets(ids))


def ids_of(batch: Batch) -> tuple[list[list[list[int]]], list[list[int]]]:
    assert batch.targets is not None
    return [source.ids.tolist() for source in batch.sources if isinstance(source, Tokens)], batch.targets.ids.tolist()


def test_hidden_words_by_hand() -> None:
    # In the first row 4 (written 5) and 6 are shared; 7 is in the source alone, 8 in the target alone, 10 is a mark.
    # The second has an open word already, which is number 0 there.
    first, second = [4, 6, 7, 4, 10, EOS], [UNK + 11, 8, EOS]
    batch = Batch((pad([first, second], PAD),), pad([[6, 5, 8, 9, 5, EOS], [8, 10, 8, EOS]], PAD))
    (sources,), targets = ids_of(hidden(batch, 0.999999))
    assert sources == [[UNK + 11, UNK + 22, 7, UNK + 11, 10, EOS], [UNK + 11, UNK + 22, EOS, PAD, PAD, PAD]]
    assert targets == [[11, 10, 8, 9, 10, EOS], [11, 10, 11, EOS, PAD, PAD]]


def test_the_sources_of_a_line_number_their_words_together() -> None:
    sources = (pad([[6, UNK + 11, EOS]], PAD), pad([[7, 6, EOS]], PAD))
    found = ids_of(hidden(Batch(sources, pad([[6, 7, EOS]], PAD)), 0.999999))
    assert found == ([[[UNK + 22, UNK + 11, EOS]], [[UNK + 33, UNK + 22, EOS]]], [[11, 12, EOS]])


@given(
    st.lists(st.sampled_from([*range(4, 11), UNK + 11, UNK + 22]), min_size=1, max_size=8),
    st.lists(st.sampled_from([UNK, *range(4, 10), 10, 11]), min_size=1, max_size=8),
    st.floats(0, 1, exclude_max=True),
)
def test_what_can_be_copied_can_be_copied_afterwards(source: list[int], target: list[int], rate: float) -> None:
    target = [id if id < 10 or UNK + 11 * (id - 9) in source else UNK for id in target]  # only what is there is open
    batch = Batch((pad([[*source, EOS]], PAD),), pad([[*target, EOS]], PAD))
    ((before,),), (answers,) = ids_of(batch)
    assert ids_of(hidden(batch, 0)) == ids_of(batch)
    torch.manual_seed(0)
    ((words,),), (targets,) = ids_of(hidden(batch, rate))
    shared = [id for id, word in zip(source, COPYABLE.targets(torch.tensor([source]))[0].tolist(), strict=True)
              if 4 <= id < 9 and word in target]  # fmt: skip
    assert sum(one != other for one, other in zip(before, words, strict=True)) <= len(shared)
    torch.manual_seed(0)
    (everything,) = ids_of(hidden(batch, 0.9999999))[0][0]
    assert sum(one != other for one, other in zip(before, everything, strict=True)) == len(shared)

    def writes(ids: list[int]) -> list[int]:
        return COPYABLE.targets(torch.tensor([ids]))[0].tolist()

    for word, now in zip(writes(before), writes(words), strict=True):
        assert [one == word for one in answers if word != UNK] == [one == now for one in targets if word != UNK]
    for id, now in zip(before, words, strict=True):
        assert now == id or (now % 11 == UNK and 4 <= id < 9)
    opened = {id // 11 for id in words} - {0}
    assert max(opened, default=0) <= len(set(before))


def test_about_the_share_that_is_asked_for_is_hidden() -> None:
    torch.manual_seed(0)
    batch = Batch((pad([[6, 7, 8, EOS]] * 2000, PAD),), pad([[8, 6, 7, EOS]] * 2000, PAD))
    (sources,), _ = ids_of(hidden(batch, 0.25))
    assert 0.22 < sum(id > 10 for row in sources for id in row) / 6000 < 0.28


def test_a_model_practises_while_it_learns_and_then_no_more() -> None:
    part = {"width": 4, "layers": 1}
    values = {"recipe": "luong", "embedding": 4, "dropout": 0.0, "tie": "none", "encoder": part, "decoder": part}
    copying = {"kind": "pointer_generator", "practice": 0.5}
    config = build_config({"model": {**values, "copying": copying}, "text": {"tokenizer": "word"}})
    model = build_model(config.model, SIZES)
    batch = Batch((pad([[6, 7, 8, EOS]] * 8, PAD),), pad([[8, 6, 7, EOS]] * 8, PAD))
    drawn = set()
    for _ in range(3):
        drawn.add(model.train().loss(batch)["nll"][0].item())
    still = {model.eval().loss(batch)["nll"][0].item() for _ in range(3)}
    assert (len(drawn), len(still)) == (3, 1)
    torch.testing.assert_close(still.pop(), -model.token_log_probs(batch).sum().item())


def test_words_have_a_letter_or_a_digit() -> None:
    tokenizer = WordTokenizer(["Rex", "—", "7", ".", "ß", "don't"], "nfc", False)
    assert Tokenizers(tokenizer, tokenizer, copies=True).sizes.words == (4, 6, 8, 9)
    assert Tokenizers(tokenizer, tokenizer).sizes.words == ()
    # What separates sentences must be found.
    assert Tokenizers(tokenizer, tokenizer, copies=True, marker="Rex").sizes.words == (6, 8, 9)


LETTERS, NAMES = "abcd", [f"Name{number}" for number in range(6)]


def task(count: int, seed: int, unseen: bool = False) -> list[tuple[str, str]]:
    """A name after a title is written as it is, a letter large, and any number, most of them unknown, as "many".

    The names of training are few, and all in the vocabulary: what is unknown there is never copied.
    """
    generator, pairs = random.Random(seed), []
    for _ in range(count):
        name = f"Other{generator.randrange(10**6)}" if unseen else generator.choice(NAMES)
        parts = [("Mr " + name, "Herr " + name), (f"{generator.randrange(10**6)}", "many")]
        parts += [(letter, letter.upper()) for letter in generator.choices(LETTERS, k=2)]
        generator.shuffle(parts)
        pairs.append((" ".join(source for source, _ in parts), " ".join(target for _, target in parts)))
    return pairs


@pytest.mark.parametrize(("practice", "least", "most"), [(0.2, 0.9, 1.0), (0.0, 0.0, 0.8)])
def test_with_practice_unseen_names_are_copied(tmp_path: Path, practice: float, least: float, most: float) -> None:
    test = task(60, 2, unseen=True)
    source = tmp_path / "test.source"
    source.write_text("".join(f"{one}\n" for one, _ in test), encoding="utf-8")
    common = (
        "text.tokenizer=word", "text.vocabulary=24", "model.dropout=0", "model.embedding=16", "model.decoder.width=32",
        "training.learning_rate=0.01", "training.validate_bleu=0", "training.validate_every=1000",
        "data.batch_tokens=256", "model.copying.kind=pointer_generator", f"model.copying.practice={practice}",
    )  # fmt: skip
    data = ("--pairs", write_tsv(tmp_path / "train.tsv", task(2000, 0)))
    valid = ("--valid-pairs", write_tsv(tmp_path / "valid.tsv", [*task(20, 1), ("a b", "A unheard")]))
    assign = [word for setting in common for word in ("--set", setting)]
    model = tmp_path / "model"
    command("train", "--recipe", "luong", "--output", model, "--max-steps", 200, *data, *valid, *assign)
    found = command("translate", model, source, "--beam", 1)
    right = sum(line == target for line, (_, target) in zip(found, test, strict=True)) / len(test)
    assert least <= right <= most
    # Neither validation nor `evaluate` counts what is not learnt.
    evaluated = "".join(command("evaluate", model, "--pairs", valid[1], "--json"))
    lines = map(json.loads, (model / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    *_, last = (line["perplexity"] for line in lines if line["kind"] == "validation")
    assert json.loads(evaluated)["perplexity"] == pytest.approx(last, rel=1e-4)
