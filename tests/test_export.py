"""Verified exports: what they write, what they report, and when they fail."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sightline
from sightline.config import AlignmentConfig
from sightline.errors import SightlineError
from sightline.evaluate import evaluate
from sightline.folder import open_files, save_config
from sightline.interop import weights as tensors
from sightline.interop.kept import KEPT, is_export
from sightline.interop.verified import agreement, edit_distance, export
from sightline.readers import Pair
from sightline.recordings import load_translations
from sightline.scoring import score
from sightline.training.held_out import held_out_pairs
from tests.commands import Command, letters, tiny, write_tsv
from tests.engines import WORDS, make_folder

HELD_OUT = [Pair(*pair) for pair in letters(30, seed=7)]


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    return write_tsv(tmp_path / "held-out.tsv", HELD_OUT)


@pytest.fixture(scope="module")
def exported(trained: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An int8 export for CTranslate2 of the toy model, which is so small that rounding may cost it much."""
    folder = tmp_path_factory.mktemp("exports") / "out"
    found = export(trained("transformer"), folder, "ctranslate2", HELD_OUT, "int8", tolerance=100)
    assert len(found.original.texts) == len(found.export.texts) == len(HELD_OUT)
    return folder


def test_what_an_export_holds(exported: Path, trained: Any) -> None:
    names = {path.name for path in exported.iterdir()}
    own = {"config.yaml", "joint.vocab", "README.md", "expectations.json"}
    assert names == {"model.bin", "config.json", "shared_vocabulary.json", *own}
    expected = [(folder / "expectations.json").read_text() for folder in (exported, trained("transformer"))]
    assert expected[0] == expected[1]
    assert is_export(exported)
    assert not is_export(trained("transformer"))
    card = (exported / "README.md").read_text()
    for part in (
        "# A transformer model",  # the model's own card comes first
        "## Export",
        "CTranslate2 (int8)",
        "on 30 held-out sentences",
        "identical translations: ",
        "tokens in common: ",
        "- BLEU ",
        "- chrF ",
        "MB before",
        "sentences a second before",
        "nrefs:1|case:mixed",
    ):
        assert part in card, part


def test_an_export_translates_without_torch(exported: Path) -> None:
    code = (
        "import sys, sightline\n"
        f"model = sightline.load({str(exported)!r})\n"
        "found = model.translate(['a b c', 'h'])\n"
        "assert [one.text for one in found] == ['A B C', 'H'], found\n"
        "assert found[0].links, found\n"
        "from sightline.evaluate import evaluate\n"
        "from sightline.readers import Pair\n"
        "evaluate(model, [Pair('a b', 'A B')], found[:1])\n"
        "sys.exit('torch' in sys.modules)\n"
    )
    root = Path(sightline.__file__).parent.parent
    assert subprocess.run([sys.executable, "-c", code], cwd=root, check=False).returncode == 0


def test_an_export_serves_ctranslate2_alone(exported: Path) -> None:
    import ctranslate2

    translator = ctranslate2.Translator(str(exported))
    assert translator.compute_type.startswith("int8")
    (found,) = translator.translate_batch([["a", "b", "</s>"]], beam_size=5)
    assert found.hypotheses == [["A", "B"]]


@pytest.mark.parametrize(("quantization", "tolerance"), [("float32", 1e-4), ("int8", 0.1)])
def test_an_export_is_scored_as_its_model_is(
    quantization: str, tolerance: float, trained: Any, pairs: Path, tmp_path: Path, command: Command
) -> None:
    """Perplexity and scores are the engine's own; those of the PyTorch model are computed by it."""
    model = sightline.load(trained("transformer"), engine="pytorch")
    export(trained("transformer"), tmp_path / "out", "ctranslate2", HELD_OUT[:2], quantization, tolerance=100)
    exported = sightline.load(tmp_path / "out")
    expected, found = (
        evaluate(one, HELD_OUT, one.stream([pair.source for pair in HELD_OUT])) for one in (model, exported)
    )
    assert found.perplexity == pytest.approx(expected.perplexity, rel=tolerance)
    log_probs = [value for one in score(exported, HELD_OUT) for value in one.token_log_probs]
    assert found.perplexity == pytest.approx(math.exp(-sum(log_probs) / len(log_probs)))
    done = command("evaluate", tmp_path / "out", "--pairs", pairs, "--json")
    assert (done.code, done.err) == (0, "")
    assert json.loads(done.out)["perplexity"] == pytest.approx(found.perplexity)
    done = command("score", tmp_path / "out", "--pairs", pairs)
    scores = [one.score for one in score(exported if quantization == "int8" else model, HELD_OUT)]
    assert [float(line) for line in done.out.splitlines()] == pytest.approx(scores, abs=1e-3)


def test_what_is_wrong_with_an_export(exported: Path, command: Command, tmp_path: Path) -> None:
    damaged = Path(shutil.copytree(exported, tmp_path / "damaged"))
    (damaged / "config.json").write_text("{}")
    assert "not the settings of an export by Sightline" in command("translate", damaged).mistake()
    (damaged / "config.json").unlink()
    assert "config.json: no such file" in command("translate", damaged).mistake()


@pytest.mark.parametrize("content", ["[]", '["<pad>"]', "{", '"x"', None])
def test_a_damaged_vocabulary_of_an_export(
    content: str | None, exported: Path, command: Command, tmp_path: Path
) -> None:
    path = Path(shutil.copytree(exported, tmp_path / "damaged")) / "shared_vocabulary.json"
    path.unlink()
    if content is not None:
        path.write_text(content)
    told = command("translate", path.parent, stdin=b"a b\n").mistake()
    what = "not the vocabulary of this model, or damaged: export the model again" if content else "no such file"
    assert f"{path}: {what}" in told


def test_an_export_without_a_head(trained: Any, tmp_path: Path, command: Command) -> None:
    """Its alignments take a pass of PyTorch over the finished translations, as those of its model do."""
    folder = Path(shutil.copytree(trained("transformer"), tmp_path / "model", ignore=shutil.ignore_patterns(KEPT)))
    config = open_files(folder).config
    save_config(folder, config.model_copy(update={"alignment": AlignmentConfig(layer=0, head=1)}))
    export(folder, tmp_path / "out", "ctranslate2", HELD_OUT[:3])
    for alignment in (AlignmentConfig(), AlignmentConfig(layer=0, head=0)):
        for path in (folder, tmp_path / "out"):
            save_config(path, config.model_copy(update={"alignment": alignment}))
        expected, found = (sightline.load(path).translate("a b d") for path in (folder, tmp_path / "out"))
        assert found.text == "A B D"
        assert found.links == expected.links
        assert expected.weights is not None
        np.testing.assert_allclose(found.weights, expected.weights, atol=1e-5)
    assert command("translate", tmp_path / "out", "--align", stdin=b"a b\n").out == "A B\t0-0 1-1\n"


@pytest.mark.parametrize(("layer", "aligns"), [(None, False), (0, True)])
def test_an_export_without_a_head_says_so_when_it_is_made(
    layer: int | None, aligns: bool, trained: Any, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(trained("transformer"), tmp_path / "model", ignore=shutil.ignore_patterns(KEPT)))
    config = open_files(folder).config
    save_config(folder, config.model_copy(update={"alignment": AlignmentConfig(layer=layer, head=1)}))
    found = export(folder, tmp_path / "out", "ctranslate2", HELD_OUT[:3])
    assert any("alignments: by a second pass" in line and "--choose" in line for line in found.lines()) != aligns
    assert ("alignments: by a second pass" in (tmp_path / "out" / "README.md").read_text()) != aligns


def test_the_command(trained: Any, pairs: Path, tmp_path: Path, command: Command) -> None:
    model, out = trained("transformer"), tmp_path / "out"
    done = command("export", model, out, "--to", "ctranslate2", "--pairs", pairs)
    assert done.code == 0, done
    assert done.out.splitlines()[0] == "compared with its model (PyTorch engine) on 30 held-out sentences"
    assert "identical translations: 100.0%; tokens in common: 100.00%" in done.out
    assert "the same in every resample" in done.out
    assert f"written: {out}" in done.err
    assert command("translate", out, stdin=b"d e\n").out == "D E\n"
    assert "is there already" in command("export", model, out, "--to", "ctranslate2", "--pairs", pairs).mistake()


def test_mistakes(trained: Any, pairs: Path, tmp_path: Path, command: Command) -> None:
    model, out = trained("transformer"), tmp_path / "out"

    def refused(*arguments: object, of: Path = model) -> str:
        return command("export", of, out, *arguments).mistake()

    given = ("--pairs", pairs)
    assert "--to onnx: valid: ctranslate2, huggingface" in refused("--to", "onnx", *given)
    assert "unknown quantization 'int9'" in refused("--to", "ctranslate2", "--quantize", "int9", *given)
    assert "--quantize int8 is for --to ctranslate2" in refused("--to", "huggingface", "--quantize", "int8", *given)
    assert "MarianMT cannot express layers that normalise before" in refused("--to", "huggingface", *given)
    assert "CTranslate2 cannot run a recurrent decoder (luong)" in refused(
        "--to", "ctranslate2", *given, of=recurrent(tmp_path)
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["held-out.tsv", "luong", "standard-input"]


def recurrent(place: Path) -> Path:
    """A folder of a model that cannot be exported; it needs no weights to say so."""
    from sightline.config import build_config
    from sightline.folder import Tokenizers, save_tokenizers
    from sightline.text import WordTokenizer

    folder = place / "luong"
    folder.mkdir()
    tokenizer = WordTokenizer(["a"], "nfc", False)
    save_tokenizers(folder, Tokenizers(tokenizer, tokenizer))
    save_config(folder, build_config(tiny("luong"), "luong"))
    return folder


def test_the_models_own_validation_file(trained: Any, pairs: Path, tmp_path: Path, command: Command) -> None:
    folder = with_data(trained("transformer"), tmp_path / "model", valid_pairs=pairs)
    done = command("export", folder, tmp_path / "out", "--to", "ctranslate2")
    assert done.code == 0
    assert "verifying on the 30 pairs of held-out.tsv, its validation text\n" in done.err
    pairs.write_text("")
    empty = command("export", folder, tmp_path / "again", "--to", "ctranslate2").mistake()
    assert f"its validation file {pairs} is empty: give --pairs" in empty
    pairs.unlink()
    told = command("export", folder, tmp_path / "again", "--to", "ctranslate2").mistake()
    assert f"its validation file {pairs} is not there" in told


def test_the_pairs_that_training_held_out(trained: Any, toy_pairs: Path, tmp_path: Path, command: Command) -> None:
    """The very pairs, also where the text lies elsewhere by now; never others, which the model may have learnt."""
    folder = trained("transformer")
    found, which = held_out_pairs(open_files(folder))
    validated = load_translations(folder)
    assert validated is not None
    assert found == [Pair(*pair) for pair in zip(validated.sources, validated.references, strict=True)]
    assert which == f"the {len(found)} pairs that training held out of letters.tsv"
    done = command("export", folder, tmp_path / "out", "--to", "ctranslate2")
    assert done.code == 0, done
    assert done.err.splitlines()[0] == f"verifying on {which}"
    assert f"on {len(found)} held-out sentences" in done.out

    moved = Path(shutil.copy(toy_pairs, tmp_path / "moved.tsv"))
    elsewhere = open_files(with_data(folder, tmp_path / "model", pairs=moved))
    assert held_out_pairs(elsewhere)[0] == found
    with moved.open("a") as stream:
        stream.write("a a a a a\tA A A A A\n")
    with pytest.raises(SightlineError, match="its training text has changed"):
        held_out_pairs(elsewhere)
    moved.unlink()
    told = command("export", elsewhere.path, tmp_path / "again", "--to", "ctranslate2").mistake()
    assert f"held-out set, and its training file {moved} is not there: give --pairs FILE" in told
    shutil.rmtree(elsewhere.path / "checkpoints")
    told = command("export", elsewhere.path, tmp_path / "again", "--to", "ctranslate2").mistake()
    assert "no checkpoint to tell what was held out: give --pairs FILE" in told


def with_data(model: Path, copy: Path, **files: Path) -> Path:
    """A copy of a model folder that names other files of data."""
    shutil.copytree(model, copy)
    config = open_files(copy).config
    save_config(copy, config.model_copy(update={"data": config.data.model_copy(update=files)}))
    return copy


def test_an_export_that_loses_too_much(
    trained: Any, tmp_path: Path, pairs: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Biases broken on the way: the set notices, and nothing is written; a large tolerance lets it pass."""

    def damaged(weights: tensors.Weights) -> tensors.Weights:
        broken = weights["output.bias"].copy()
        broken[-6:] -= np.float32(100)
        return {**weights, "output.bias": broken}

    convert_otherwise(damaged, monkeypatch)
    told = command(
        "export", trained("transformer"), tmp_path / "out", "--to", "ctranslate2", "--pairs", pairs
    ).mistake()
    assert "chrF on 30 sentences, more than the tolerance of 0.5: nothing was written" in told
    assert not list(tmp_path.glob("*out")) + list(tmp_path.glob("*partial*"))
    options = ("--to", "ctranslate2", "--pairs", pairs, "--tolerance", "100")
    assert command("export", trained("transformer"), tmp_path / "out", *options).code == 0


def convert_otherwise(change: Callable[[tensors.Weights], tensors.Weights], monkeypatch: pytest.MonkeyPatch) -> None:
    """Exports get other weights than the model's."""
    complete = tensors.complete
    monkeypatch.setattr(tensors, "complete", lambda *arguments: change(complete(*arguments)))


def without_source(weights: tensors.Weights) -> tensors.Weights:
    """The decoder sees zeros in the place of the source."""
    zeros = {name: np.zeros_like(weights[name]) for name in ("encoder.norm.weight", "encoder.norm.bias")}
    return {**weights, **zeros}


def test_short_terms_are_verified_by_chrf(
    trained: Any, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have no four words running, so that their BLEU is 0 with any weights."""
    terms = write_tsv(tmp_path / "terms.tsv", [("a b", "A B"), ("c d", "C D"), ("e f g", "E F G")])
    given = (trained("transformer"), tmp_path / "out", "--to", "ctranslate2", "--pairs", terms)
    with monkeypatch.context() as broken:
        convert_otherwise(without_source, broken)
        told = command("export", *given).mistake()
    assert re.search(r"loses \d+\.\d\d chrF on 3 sentences, more than the tolerance of 0.5: nothing was written", told)
    assert not (tmp_path / "out").exists()
    done = command("export", *given)
    assert done.code == 0, done
    assert "BLEU 0.00, the same in every resample\nchrF 100.00, the same in every resample\n" in done.out
    for report in (done.out, (tmp_path / "out" / "README.md").read_text()):
        assert "BLEU tells nothing of this set: the other score decides" in report


@pytest.mark.parametrize(
    ("pairs", "told"),
    [
        ([("", "")], "the held-out set has no pair with text on both sides"),
        ([("a b", ""), ("", "A B")], "the held-out set has no pair with text on both sides"),
        ([("a b", "§"), ("c d e f", "§ § § §")], "the model's own BLEU 0.00 and chrF 0.00 on 2 sentences cannot tell"),
    ],
)
def test_sets_that_verify_nothing(
    pairs: list[tuple[str, str]], told: str, trained: Any, tmp_path: Path, command: Command
) -> None:
    given = write_tsv(tmp_path / "pairs.tsv", pairs)
    options = ("--to", "ctranslate2", "--pairs", given, "--tolerance", "100")
    assert told in command("export", trained("transformer"), tmp_path / "out", *options).mistake()
    assert not (tmp_path / "out").exists()


def test_a_weak_model_is_verified_by_its_tokens(tmp_path: Path, command: Command) -> None:
    """Untrained weights: the scores are chance, before rounding and after it, but float32 changes no token."""
    model = make_folder(tmp_path / "model", {})
    sources = [" ".join(WORDS[start : start + 5]) for start in range(0, 35, 2)]
    given = write_tsv(tmp_path / "pairs.tsv", [(source, f"{source[:2]} Übung macht Meister") for source in sources])
    options = ("--to", "ctranslate2", "--pairs", given)
    told = command("export", model, tmp_path / "out", *options, "--quantize", "int8").mistake()
    assert re.search(r"the export changes \d+\.\d\d% of the tokens of 18 sentences, where the model's own BLEU", told)
    assert "more than the tolerance of 0.5: nothing was written; give better pairs" in told
    done = command("export", model, tmp_path / "out", *options, "--tolerance", "0")
    assert done.code == 0, done
    assert "these scores are too low to tell a loss: tokens in common decide\n" in done.out


@given(st.lists(st.integers(0, 3), max_size=6), st.lists(st.integers(0, 3), max_size=6))
@settings(deadline=None)
def test_edit_distance(one: list[int], other: list[int]) -> None:
    """Against its definition, written down recursively."""

    def plainly(i: int, j: int) -> int:
        if not i or not j:
            return i + j
        return min(plainly(i - 1, j) + 1, plainly(i, j - 1) + 1, plainly(i - 1, j - 1) + (one[i - 1] != other[j - 1]))

    assert edit_distance(one, other) == plainly(len(one), len(other)) == edit_distance(other, one)


def test_agreement() -> None:
    assert agreement([[1, 2, 3], [4]], [[1, 2, 3], [4]]) == 1.0
    assert agreement([[1, 2, 3], []], [[1, 3], [5]]) == 1 - 2 / 4
    assert agreement([[]], [[]]) == 1.0


def test_what_is_usual_goes_with_an_export(trained: Any, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(trained("transformer"), tmp_path / "model"))
    (folder / "expectations.json").write_text(
        '{"format": 1, "lengths": [0.9, 1.1], "scripts": null, "source_words": [], "unchecked": []}'
    )
    export(folder, tmp_path / "out", "ctranslate2", HELD_OUT[:2], tolerance=100)
    one, other = (
        sightline.load(path).translate("a b c", max_length=1, check=True) for path in (folder, tmp_path / "out")
    )
    assert [flag.name for flag in one.flags or []] == [flag.name for flag in other.flags or []]
    assert "short" in {flag.name for flag in other.flags or []}
