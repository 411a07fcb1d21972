"""An export in the PyTorch engine: its weights read back from `model.bin`, and everything that looks inside."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sightline
from sightline.config import AlignmentConfig
from sightline.engines.ctranslate2 import CTranslate2Engine
from sightline.engines.pytorch import PyTorchEngine
from sightline.errors import SightlineError
from sightline.folder import open_files, weights_file
from sightline.interop import weights as tensors
from sightline.interop.exported import exported_weights
from sightline.interop.model_bin import QUANTIZATIONS, dequantise, parse, quantise, serialise
from sightline.interop.verified import write_ctranslate2
from tests.commands import Command, letters, write_tsv
from tests.engines import agree, make_folder, make_task, sentences

KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "post": {"norm_position": "post", "tie": "output"},
    "gated": {"activation": "swiglu", "norm": "rms"},
    "learned": {"positions": "learned", "max_positions": 40, "tie": "none"},
    "none": {"positions": "none", "activation": "gelu"},
}


def exported(place: Path, quantize: str | None, model: dict[str, Any], **sections: Any) -> Path:
    """An export of a Transformer of random weights, without its card."""
    folder = make_folder(place / "model", model, **sections)
    (place / "out").mkdir()
    write_ctranslate2(open_files(folder), place / "out", quantize)
    return place / "out"


@pytest.mark.parametrize("kind", KINDS)
def test_float_weights_come_back_as_they_were(kind: str, tmp_path: Path) -> None:
    """Every tensor, in its own place again: also those of the layer whose chosen head was put first."""
    joint = KINDS[kind].get("tie") is None
    alignment = {"layer": 1, "head": 1}
    out = exported(tmp_path, "float32", KINDS[kind], joint=joint, alignment=alignment)
    files = open_files(tmp_path / "model")
    path = weights_file(files.path)
    expected = tensors.complete(tensors.read(path), files.config.model, files.tokenizers.sizes, path)
    found = exported_weights(open_files(out))
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


@pytest.mark.parametrize("quantize", [name for name in QUANTIZATIONS if not name.endswith("float16")])
def test_both_engines_make_the_same_of_an_export(quantize: str, tmp_path: Path) -> None:
    """CTranslate2 in float32, which rounds nothing more: what is compared are the rounded weights."""
    files = open_files(exported(tmp_path, quantize, {}, alignment={"layer": 1, "head": 1}))
    ours, theirs = PyTorchEngine(files, "cpu"), CTranslate2Engine(files, compute="float32")
    for options in ({"beam": 1}, {"beam": 4, "n_best": 2}):
        agree(ours, theirs, make_task(token_scores=True, **options), sentences(files))
    head = AlignmentConfig(layer=1, head=1)
    found = theirs.search(sentences(files)[:4], make_task(head, beam=1))
    forced = ours.force([(" ".join(f"w{id - 4}" for id in ids[:-1]), []) for ids in sentences(files)[:4]])
    for (one,), seen in zip(found, forced, strict=True):
        assert one.weights is not None
        np.testing.assert_allclose(one.weights[0], seen.sentence.layers[1][1][0], atol=1e-4)


@pytest.mark.parametrize("quantize", ["float16", "int8_float16"])
def test_half_precision_rounds_the_sinusoids_too(quantize: str, tmp_path: Path) -> None:
    """An export has them as a table, PyTorch computes them: there the two part, by a little."""
    files = open_files(exported(tmp_path, quantize, {}))
    given = [(ids, ids) for ids in sentences(files)]
    engines = (PyTorchEngine(files, "cpu"), CTranslate2Engine(files, compute="float32"))
    ours, theirs = ([value for row in one.token_log_probs(given) for value in row] for one in engines)
    assert ours == pytest.approx(theirs, abs=0.02)


def test_an_int8_export_as_it_is_run(trained: Any, tmp_path: Path) -> None:
    """CTranslate2 rounds what goes into its products too; the toy task survives that."""
    out = tmp_path / "out"
    out.mkdir()
    write_ctranslate2(open_files(trained("transformer")), out, "int8")
    lines = [source for source, _ in letters(40, seed=5)]
    found = [[one.text for one in sightline.load(out, engine=name).translate(lines)] for name in ("auto", "pytorch")]
    assert found[0] == found[1]


def test_what_looks_inside_works_on_an_export(trained: Any, tmp_path: Path, command: Command) -> None:
    out, pairs = tmp_path / "out", write_tsv(tmp_path / "pairs.tsv", letters(6, seed=3))
    out.mkdir()
    write_ctranslate2(open_files(trained("transformer")), out, "int8")
    page = tmp_path / "page.html"
    done = command("align", out, "--pairs", pairs, "--html", page)
    assert (done.code, done.err) == (0, "")
    expected = command("align", trained("transformer"), "--pairs", pairs)
    assert done.out == expected.out
    assert "Content-Security-Policy" in page.read_text()
    sampled = command("translate", out, "--strategy", "sample", "--temperature", "0.1", stdin=b"a b\n")
    assert sampled.out == "A B\n"
    assert command("translate", out, "--coverage-penalty", "0.2", "--live", stdin=b"c d\n").out == "C D\n"
    refused = command("translate", out, "--engine", "pytorch", "--compute", "int16").mistake()
    assert "compute=int16: the pytorch engine has float32 and int8" in refused
    told = command("export", out, tmp_path / "again", "--to", "ctranslate2", "--pairs", pairs).mistake()
    assert "an export for CTranslate2 has its weights rounded in model.bin: use the model itself" in told


@pytest.mark.parametrize("what", ["nothing", "another version", "another specification", "cut", "another name"])
def test_a_file_of_others_is_refused(what: str, tmp_path: Path, command: Command) -> None:
    out = exported(tmp_path, "int8", {})
    path = out / "model.bin"
    content = path.read_bytes()
    changed = {
        "nothing": b"",
        "another version": struct.pack("<I", 5) + content[4:],
        "another specification": content.replace(b"TransformerSpec", b"TransformerBase", 1),
        "cut": content[: len(content) // 2],
        "another name": content.replace(b"decoder/layer_1/attention/linear_0", b"decoder/layer_1/attention/linear_9"),
    }
    path.write_bytes(changed[what])
    told = command("translate", out, "--engine", "pytorch", stdin=b"w1\n").mistake()
    assert f"{path}: not a file of weights that Sightline wrote" in told


def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    out = exported(tmp_path, "int8", {})
    (tmp_path / "other").mkdir()
    larger = exported(tmp_path / "other", "int8", {"embedding": 24})
    shutil.copy(larger / "model.bin", out / "model.bin")
    with pytest.raises(SightlineError, match="the weights belong to another config"):
        sightline.load(out, engine="pytorch")


@pytest.mark.parametrize("quantize", QUANTIZATIONS)
def test_variables_are_read_as_they_were_written(quantize: str) -> None:
    generator = np.random.default_rng(0)
    matrix = generator.normal(size=(5, 4)).astype(np.float32)
    matrix[2] = 0
    given = {"a/weight": matrix, "a/bias": matrix[0], "b/weight": "a/weight", "heads": np.int16(3)}
    rounded = quantise(given, quantize)
    read = parse(serialise(rounded))
    for name, value in rounded.items():
        np.testing.assert_array_equal(read[name], rounded[value] if isinstance(value, str) else value)
    found = dequantise(read)
    assert found.keys() == given.keys()
    assert found["heads"] == 3
    step = {"int8": 0.5 / 127, "int16": 0.5 / 2**10, "float16": 2**-11, "float32": 0.0}[quantize.partition("_")[0]]
    for name in ("a/weight", "b/weight"):
        assert found[name].dtype == np.float32
        assert np.abs(found[name] - matrix).max() <= step * np.abs(matrix).max() + 1e-6
