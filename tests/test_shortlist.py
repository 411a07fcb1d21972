"""Lexical shortlists: what is learnt, how it is written, and what a search with one gives."""

from __future__ import annotations

import random
import shutil
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sightline
from benchmarks.decoding.adaptors import sightline as adaptor
from benchmarks.decoding.job import Job
from benchmarks.speed.turns import Missing
from sightline import lexicon as lexicons
from sightline.config import AlignmentConfig
from sightline.engines.ctranslate2 import CTranslate2Engine
from sightline.engines.pytorch import PyTorchEngine
from sightline.errors import SightlineError
from sightline.folder import ModelFiles, Tokenizers, open_files
from sightline.interop import shortlist as lists
from sightline.interop.ctranslate2 import names
from sightline.interop.shortlist import FILE, Shortlist, learn, learn_lexicon
from sightline.interop.verified import export, write_ctranslate2
from sightline.readers import Pair
from sightline.sharding.manifest import model_digests
from sightline.text import BOS, EOS, PAD, UNK, CharacterTokenizer, WordTokenizer
from tests.commands import LETTERS, Command, letters, write_lines, write_tsv
from tests.test_ctranslate2_engine import make_folder, make_task, sentences

SPECIAL = (PAD, UNK, BOS, EOS)


def table(lexicon: lists.Lexicon) -> dict[tuple[int, int], float]:
    keys = zip(lexicon.sources.tolist(), lexicon.targets.tolist(), strict=True)
    return dict(zip(keys, lexicon.probabilities.tolist(), strict=True))


def plainly(pairs: list[tuple[list[int], list[int]]], iterations: int) -> dict[tuple[int, int], float]:
    """IBM's first model as its equations have it."""
    found: dict[tuple[int, int], float] = defaultdict(lambda: 1.0)
    for _ in range(iterations):
        counts: dict[tuple[int, int], float] = defaultdict(float)
        totals: dict[int, float] = defaultdict(float)
        for source, target in pairs:
            for f in target:
                whole = sum(found[e, f] for e in source)
                for e in source:
                    counts[e, f] += found[e, f] / whole
                    totals[e] += found[e, f] / whole
        found = defaultdict(float, {(e, f): count / totals[e] for (e, f), count in counts.items()})
    return dict(found)


def test_probabilities_by_hand() -> None:
    """Two sentences, "4 5" as "6 7" and "4" as "6": the second tells that 4 gives 6, and so 5 gives 7."""
    pairs = [([4, 5], [6, 7]), ([4], [6])]
    once = {(4, 6): 0.75, (4, 7): 0.25, (5, 6): 0.5, (5, 7): 0.5}
    assert table(learn_lexicon(pairs, 10, 1)) == pytest.approx(once)
    twice = {(4, 6): 1.6 / (1.6 + 1 / 3), (4, 7): (1 / 3) / (1.6 + 1 / 3), (5, 6): 0.375, (5, 7): 0.625}
    assert table(learn_lexicon(pairs, 10, 2)) == pytest.approx(twice)


@pytest.mark.parametrize("block", [1, 40, 10_000])
def test_probabilities_are_those_of_the_equations(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever part of the text is looked at at a time; tokens may come twice in a sentence."""
    monkeypatch.setattr(lexicons, "BLOCK", block)
    generator = random.Random(2)
    pairs = [
        ([generator.randrange(8) for _ in range(generator.randint(1, 5))], [generator.randrange(6) for _ in range(4)])
        for _ in range(30)
    ]
    lexicon = learn_lexicon(pairs, 6, 3)
    assert table(lexicon) == pytest.approx(plainly(pairs, 3))
    np.testing.assert_allclose(np.bincount(lexicon.sources, lexicon.probabilities)[np.unique(lexicon.sources)], 1.0)


def words(entries: str) -> WordTokenizer:
    return WordTokenizer(entries.split(), "nfc", False)


def tokenizers() -> Tokenizers:
    return Tokenizers(words("cats dogs sleep run . Anna"), words("Katzen Hunde schlafen rennen . Anna"))


# Each word comes with others, and often enough to be told apart.
TEXT = [
    Pair("cats sleep .", "Katzen schlafen ."),
    Pair("dogs sleep .", "Hunde schlafen ."),
    Pair("cats run .", "Katzen rennen ."),
    Pair("dogs run .", "Hunde rennen ."),
    Pair("", "nichts"),
] * 5


def test_candidates_by_hand() -> None:
    found = learn(TEXT, tokenizers(), size=1, frequent=0)
    source, target = tokenizers().source, tokenizers().target
    told = {source.piece(token): [target.piece(one) for one in each] for token, each in found.candidates.items()}
    assert {name: told[name] for name in ("cats", "dogs", "sleep", "run")} == {
        "cats": ["Katzen"],
        "dogs": ["Hunde"],
        "sleep": ["schlafen"],
        "run": ["rennen"],
    }
    assert told["Anna"] == ["Anna"]  # never seen, so it may stay as it is
    # The four special entries, and what the end symbol of every source, the empty word, gives most.
    assert found.always == (*SPECIAL, *target.encode("."))
    assert EOS not in found.candidates


def test_what_is_frequent_is_always_there() -> None:
    found = learn(TEXT, tokenizers(), size=1, frequent=3)
    target = tokenizers().target
    # The full stop comes 20 times, each of the words 10 times: of equals the first entries.
    assert {*target.encode(". Katzen Hunde")} < {*found.always}
    assert len(found.always) == len(SPECIAL) + 3 + 1
    assert not {*found.always} & {token for each in found.candidates.values() for token in each}
    with pytest.raises(SightlineError, match="a shortlist of 0 tokens for a source token: give at least 1"):
        learn(TEXT, tokenizers(), size=0)
    with pytest.raises(SightlineError, match="no pair to learn a shortlist from"):
        learn([Pair("a", ""), Pair("", "b")], tokenizers())


def test_of_too_many_pairs_some_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every second, every fourth and so on, from the beginning of the file to its end."""
    monkeypatch.setattr(lists, "MOST_PAIRS", 60)
    pairs = [Pair(" ".join(["cats"] * (number % 3 + 1)), "Katzen") for number in range(1000)]
    kept = lists.encode(pairs, tokenizers())
    assert 10 < len(kept) < 40
    assert sum(len(source) * len(target) for source, target in kept) <= 60


def test_what_may_be_used_and_how_much_that_is() -> None:
    found = Shortlist((3, 9), {5: (10, 11), 6: (11, 12)})
    assert found.allowed([5, 7]) == {3, 9, 10, 11}
    assert found.allowed([5, 6]) == {3, 9, 10, 11, 12}
    assert found.share([([5], [10, 12]), ([6], [12, 9])]) == 0.75
    assert found.share([]) == 1.0


def test_the_file() -> None:
    """A line for each source token, and first one without: it is read back as CTranslate2 reads it."""
    source = names(CharacterTokenizer([" ", "a", "b", "\u2028"], False, "nfc", False))
    target = [*"0123456", "x y", "\t", "\r", ""]
    found = Shortlist((0, 3, 8), {5: (1, 2, 7), 6: (4, 9, 10), 4: (5,), 7: (6,)}).text(source, target)
    assert found == "\t0 3\n▁\t5\na\t1 2\nb\t4\n\u2028\t6\n"
    read = dict(line.split("\t") for line in found.split("\n")[:-1])
    assert {name: each.split(" ") for name, each in read.items()} == {
        "": ["0", "3"],
        "▁": ["5"],
        "a": ["1", "2"],
        "b": ["4"],
        "\u2028": ["6"],
    }
    unwritable = Shortlist((0,), {0: (1,)}).text(["x y"], ["0", "1"])
    assert unwritable == "\t0\n"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ModelFiles:
    """Random weights: a search with them would write anything, were it not for the shortlist."""
    place = tmp_path_factory.mktemp("shortlist")
    return open_files(make_folder(place / "model", {}, alignment={"layer": 1, "head": 2}))


def exported(model: ModelFiles, folder: Path, shortlist: Shortlist | None) -> ModelFiles:
    write_ctranslate2(model, folder, shortlist=shortlist)
    return open_files(folder)


@pytest.mark.parametrize("beam", [1, 4])
def test_a_complete_shortlist_changes_nothing(beam: int, model: ModelFiles, tmp_path: Path) -> None:
    every = range(model.tokenizers.target.size)
    files = exported(model, tmp_path / "out", Shortlist(tuple(every), {5: tuple(every)}))
    task = make_task(model.config.alignment, token_scores=True, beam=beam, n_best=beam)
    given = sentences(model)
    with_it, without = (CTranslate2Engine(files, shortlist=use).search(given, task) for use in (True, False))
    for one, other in zip(with_it, without, strict=True):
        assert [each.tokens for each in one] == [each.tokens for each in other]
        assert [each.score for each in one] == pytest.approx([each.score for each in other], abs=1e-5)
        for each, same in zip(one, other, strict=True):
            assert each.weights is not None
            assert same.weights is not None
            np.testing.assert_allclose(each.weights, same.weights, atol=1e-5)


def test_a_search_uses_what_its_sources_bring(model: ModelFiles, tmp_path: Path) -> None:
    """A sentence alone has its own tokens, a batch those of all; another search has no memory of them."""
    size = model.tokenizers.target.size
    brought = {token: (4 + (token * 3) % (size - 4), 4 + (token * 7) % (size - 4)) for token in range(4, size)}
    shortlist = Shortlist((*SPECIAL, 4, 5, 6), brought)
    engine = CTranslate2Engine(exported(model, tmp_path / "out", shortlist))
    given = sentences(model)
    task = make_task(beam=3, n_best=3)
    for source in given:
        (found,) = engine.search([source], task)
        assert {token for one in found for token in one.tokens} <= shortlist.allowed(source)
    together = shortlist.allowed(token for source in given for token in source)
    for found in engine.search(given, task):
        assert {token for one in found for token in one.tokens} <= together
    free = CTranslate2Engine(model).search(given, task)
    written = [{token for one in found for token in one.tokens} for found in free]
    assert not all(tokens <= shortlist.allowed(source) for tokens, source in zip(written, given, strict=True))


def test_scores_and_alignments_are_those_of_the_whole_vocabulary(model: ModelFiles, tmp_path: Path) -> None:
    """Even right after a search that saw a part of it; where several are ranked, without being asked."""
    files = exported(model, tmp_path / "out", Shortlist((*SPECIAL, *range(10, 20)), {}))
    engine, reference = CTranslate2Engine(files), PyTorchEngine(model, "cpu")
    given = sentences(model)
    alignment = AlignmentConfig(layer=1, head=2)
    for task in (make_task(alignment, token_scores=True), make_task(alignment, n_best=3)):
        found = engine.search(given, task)
        every = [(source, one) for source, each in zip(given, found, strict=True) for one in each]
        text = model.tokenizers.source.decode
        forced = reference.force([(text(source), one.tokens) for source, one in every])
        for (_, one), seen in zip(every, forced, strict=True):
            assert one.token_log_probs == pytest.approx(seen.token_log_probs[: len(one.token_log_probs)], abs=1e-3)
            assert one.score == pytest.approx(np.mean(one.token_log_probs), abs=1e-4)
            assert one.weights is not None
            np.testing.assert_allclose(one.weights, seen.sentence.layers[1][2][: len(one.weights)], atol=1e-4)
    pairs = [(source, [7, 30, EOS]) for source in given]
    for one, other in zip(engine.token_log_probs(pairs), reference.token_log_probs(pairs), strict=True):
        assert one == pytest.approx(other, abs=1e-3)


@pytest.fixture(scope="module")
def kept(trained: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export of the toy model without the letter H."""
    folder = tmp_path_factory.mktemp("exports") / "out"
    files = open_files(trained("transformer"))
    pairs = [Pair(*pair) for pair in letters(200, seed=4) if "h" not in pair[0]]
    learnt = learn(pairs, files.tokenizers, size=1, frequent=0)
    assert not {*files.tokenizers.target.encode("H")} & learnt.allowed(
        files.tokenizers.source.encode(" ".join(LETTERS))
    )
    write_ctranslate2(files, folder, shortlist=learnt)
    return folder


def test_it_is_used_unless_one_says_no(kept: Path, command: Command) -> None:
    line, full = "f g h", "F G H"
    assert sightline.load(kept, shortlist=False).translate(line, align=False).text == full
    assert "H" not in sightline.load(kept).translate(line, align=False).text
    assert command("translate", kept, "--no-shortlist", stdin=f"{line}\n".encode()).out == f"{full}\n"
    assert "H" not in command("translate", kept, stdin=f"{line}\n".encode()).out


def test_a_shortlist_that_is_not_the_exports_own(kept: Path, tmp_path: Path, command: Command) -> None:
    folder = Path(shutil.copytree(kept, tmp_path / "out"))
    assert FILE in model_digests(folder)
    (folder / FILE).write_text("")
    assert (
        f"{folder / FILE}: not the shortlist that this export was made with" in command("translate", folder).mistake()
    )
    (folder / FILE).unlink()
    told = command("translate", folder).mistake()
    assert f"{folder / FILE}: this export's shortlist is missing: export the model again" in told


def test_a_verified_export(trained: Any, tmp_path: Path, command: Command) -> None:
    model, out = trained("transformer"), tmp_path / "out"
    held_out = write_tsv(tmp_path / "held-out.tsv", letters(30, seed=7))
    training = letters(300, seed=4)
    given = ("--to", "ctranslate2", "--pairs", held_out)
    sides = [write_lines(tmp_path / name, [pair[side] for pair in training]) for side, name in enumerate(("s", "t"))]
    options = ("--shortlist-source", sides[0], "--shortlist-target", sides[1], "--shortlist-size", "2")
    done = command("export", model, out, *given, *options)
    assert done.code == 0, done
    assert "identical translations: 100.0%" in done.out
    assert "it has 100.00% of the tokens that the model writes without it, 100.00% of the references'" in done.out
    assert "shortlist: " in (out / "README.md").read_text()
    assert (out / FILE).read_text().startswith("\t<pad> <unk> <s> </s>")

    def refused(*arguments: object, to: str = "ctranslate2") -> str:
        return command("export", model, tmp_path / "no", "--to", to, "--pairs", held_out, *arguments).mistake()

    pairs = write_tsv(tmp_path / "train.tsv", training)
    assert "a shortlist is for --to ctranslate2" in refused("--shortlist", pairs, to="huggingface")
    assert "--shortlist-size needs pairs to learn from" in refused("--shortlist-size", 3)
    assert "is one side only" in refused("--shortlist-source", sides[0])
    assert "no such file" in refused("--shortlist", tmp_path / "nowhere.tsv")


def test_an_export_that_loses_by_its_shortlist(trained: Any, tmp_path: Path) -> None:
    """The export is verified with it."""
    pairs = [Pair(*pair) for pair in letters(30, seed=7)]
    only = Shortlist(SPECIAL, {})
    with pytest.raises(
        SightlineError, match=r"loses .* (BLEU|chrF) .* a larger --shortlist-size or a larger --tolerance"
    ):
        export(trained("transformer"), tmp_path / "out", "ctranslate2", pairs, shortlist=only)
    assert not (tmp_path / "out").exists()


def test_the_benchmark_takes_the_export(kept: Path, tmp_path: Path) -> None:
    job = Job("sightline", "nowhere", str(tmp_path), "", 1, "a", engine="ctranslate2", shortlist=True)
    with pytest.raises(Missing, match="there is no export to sightline-shortlist"):
        adaptor.build(job)
    shutil.copytree(kept, tmp_path / "sightline-shortlist")
    assert adaptor.build(job).translate(["a b c", "d"], 1).texts == ["A B C", "D"]
