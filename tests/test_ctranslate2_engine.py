"""The CTranslate2 engine against the PyTorch engine: the same tokens, scores and weights, or a refusal."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sightline
from sightline.config import AlignmentConfig, build_config, merge
from sightline.engines.base import Task
from sightline.engines.batching import in_batches
from sightline.engines.choice import Engines
from sightline.engines.ctranslate2 import CTranslate2Engine
from sightline.engines.pytorch import PyTorchEngine
from sightline.errors import SightlineError
from sightline.folder import ModelFiles, Tokenizers, open_files, save_config, save_model, save_tokenizers
from sightline.hypothesis import Request
from sightline.interop import ctranslate2 as conversion
from sightline.interop import kept
from sightline.interop.kept import KEPT
from sightline.interop.model_bin import quantise
from sightline.models import build_model
from sightline.performance import has_fast_avx512
from sightline.text import EOS, CharacterTokenizer, WordTokenizer
from tests.commands import Command, letters, tiny
from tests.engines import WORDS, both, make_folder, make_task, sentences

ARCHITECTURES: dict[str, dict[str, Any]] = {
    "pre": {"norm_position": "pre"},
    "post": {"norm_position": "post"},
    "rms": {"norm": "rms", "activation": "swiglu"},
    "gelu": {"activation": "gelu", "norm_position": "post"},
    "geglu": {"activation": "geglu", "positions": "learned", "max_positions": 64},
    "gelu_tanh": {"activation": "gelu_tanh", "positions": "none", "tie": "output"},
    "silu": {"activation": "silu", "tie": "none"},
}


@pytest.mark.parametrize("given", [None, "AVX2"])
def test_ctranslate2_is_told_of_avx512_unless_someone_chose(given: str | None) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "CT2_FORCE_CPU_ISA"}
    program = "import os, sightline.engines.ctranslate2; print(os.environ.get('CT2_FORCE_CPU_ISA'))"
    chosen = {} if given is None else {"CT2_FORCE_CPU_ISA": given}
    found = subprocess.check_output([sys.executable, "-c", program], env={**environment, **chosen}, text=True)
    assert found.strip() == (given or ("AVX512" if has_fast_avx512() else "None"))


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Any:
    made: dict[str, Path] = {}
    place = tmp_path_factory.mktemp("random")

    def folder(name: str) -> Path:
        if name not in made:
            made[name] = make_folder(place / name, ARCHITECTURES[name], alignment={"layer": 1, "head": 2})
        return made[name]

    return folder


@pytest.mark.parametrize("name", ARCHITECTURES)
@pytest.mark.parametrize("beam", [1, 5])
def test_every_architecture_gives_the_same(name: str, beam: int, folders: Any) -> None:
    most = 20 if name == "geglu" else None
    both(folders(name), make_task(beam=beam, n_best=min(beam, 3), token_scores=True, max_length=most))


@pytest.mark.parametrize(
    "options",
    [
        {"alpha": 0.6},
        {"length_penalty": "none", "n_best": 3},
        {"patience": 2.0, "n_best": 5},
        {"patience": 0.5},
        {"patience": 0.3, "n_best": 4},
        {"beam": 1, "min_length": 4},
        {"max_ratio": 0.5, "max_extra": 2},
        {"max_ratio": 0.0, "max_extra": 3, "n_best": 2},
        {"beam": 1, "max_ratio": 0.0, "max_extra": 1},
        {"beam": 1, "max_ratio": 0.0, "max_extra": 0},
        {"max_ratio": 0.0, "max_extra": 0},
        {"max_length": 2},
    ],
    ids=str,
)
def test_every_option_gives_the_same(options: dict[str, Any], folders: Any) -> None:
    both(folders("pre"), make_task(**options))


def test_a_trained_model_gives_the_same(trained: Any) -> None:
    files = open_files(trained("transformer"))
    sources = [[*files.tokenizers.source.encode(source), EOS] for source, _ in letters(60, seed=8)]
    for beam in (1, 5):
        both(files.path, make_task(beam=beam, n_best=min(beam, 4), token_scores=True), sources)


def test_separate_vocabularies(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "model", {"tie": "output"}, joint=False)
    both(folder, make_task(n_best=2))
    kept = next((folder / KEPT).iterdir())
    assert {"source_vocabulary.json", "target_vocabulary.json"} <= {path.name for path in kept.iterdir()}


def test_padding_and_start_are_never_emitted(tmp_path: Path) -> None:
    """A model that would like to: greedy choices are the same, and no beam holds what no translation has."""
    folder = make_folder(tmp_path / "model", {"tie": "none"})
    files = open_files(folder)
    weights = conversion.tensors.read(folder / "model.safetensors")
    weights["output.bias"][[0, 2]] += 33
    conversion.tensors.write(weights, files.config.model, folder / "model.safetensors")
    both(folder, make_task(beam=1, token_scores=True))
    found = CTranslate2Engine(files).search(sentences(files), make_task(n_best=5))
    for hypotheses in found:
        assert not {0, 2} & {token for one in hypotheses for token in one.tokens}
        ranks = [(not one.finished, -one.score) for one in hypotheses]
        assert ranks == sorted(ranks)


@pytest.mark.parametrize(("layer", "head"), [(1, 2), (0, 0), (0, 3), (1, None)])
@pytest.mark.parametrize("beam", [1, 4])
def test_weights_are_those_of_a_forced_pass(
    layer: int, head: int | None, beam: int, folders: Any, tmp_path: Path
) -> None:
    """Only the chosen head is read, whichever it is, and every prediction has its row, the end's too."""
    folder = Path(shutil.copytree(folders("pre"), tmp_path / "model"))
    alignment = AlignmentConfig(layer=layer, head=head)
    save_config(folder, open_files(folder).config.model_copy(update={"alignment": alignment}))
    files = open_files(folder)
    sources = sentences(files)
    for options in ({}, {"max_ratio": 0.0, "max_extra": 3}):
        found = CTranslate2Engine(files).search(sources, make_task(alignment, beam=beam, n_best=beam, **options))
        every = [(source, one) for source, each in zip(sources, found, strict=True) for one in each]
        text = files.tokenizers.source.decode
        forced = PyTorchEngine(files, "cpu").force([(text(source), one.tokens) for source, one in every])
        for (source, one), seen in zip(every, forced, strict=True):
            heads = seen.sentence.layers[layer]
            expected = heads.mean(0) if head is None else heads[head]
            assert one.weights is not None
            assert one.weights.shape == (len(one.tokens) + one.finished, len(source))
            np.testing.assert_allclose(one.weights, expected[: len(one.weights)], atol=1e-4)


def test_alignments_through_the_translator(trained: Any) -> None:
    """One layer: the mean over all of it is the mean over its heads, which CTranslate2 has."""
    folder = trained("transformer")
    lines = [source for source, _ in letters(20, seed=9)]
    fast, slow = (sightline.load(folder, engine=engine) for engine in ("ctranslate2", "pytorch"))
    for one, other in zip(fast.translate(lines), slow.translate(lines), strict=True):
        assert (one.text, one.links) == (other.text, other.links)
        assert one.weights is not None
        np.testing.assert_allclose(one.weights, other.weights, atol=1e-4)
    assert "pytorch" not in fast.engines.opened


@pytest.mark.parametrize("alignment", [AlignmentConfig(), AlignmentConfig(layer=1, head=1)], ids=str)
def test_weights_that_it_does_not_have_are_read_by_a_forced_pass(alignment: AlignmentConfig, folders: Any) -> None:
    """A mean over layers, or another head than it was converted with: the faster engine searches all the same."""
    fast, slow = (
        sightline.load(folders("pre"), engine=engine).aligning_by(alignment) for engine in ("auto", "pytorch")
    )
    lines = [" ".join(WORDS[number : number + 4]) for number in range(12)]
    for one, other in zip(fast.translate(lines), slow.translate(lines), strict=True):
        assert (one.text, one.links) == (other.text, other.links)
        assert one.weights is not None
        np.testing.assert_allclose(one.weights, other.weights, atol=1e-4)
    assert fast.engines.for_task(make_task(alignment)).name == "ctranslate2"


@pytest.mark.parametrize(
    ("task", "told"),
    [
        (make_task(length_penalty="gnmt"), "rank by length_penalty=gnmt"),
        (make_task(coverage_penalty=0.2), "rank by a coverage_penalty"),
        (make_task(groups=5), "divide a beam into groups=5"),
        (make_task(strategy="sample"), "draw the samples that a seed and a sentence stand for"),
        (make_task(strategy="mbr", samples=3), "draw the samples"),
        (make_task(beam=1, repetition_penalty=1.2), "apply a repetition_penalty to probabilities"),
        (make_task(min_length=3), "keep to min_length with a beam of more than 1 (with beam 1 it can)"),
        (make_task(no_repeat=3), "keep to no_repeat with a beam"),
        (make_task(forbidden=((5,),)), "keep to forbidden words with a beam"),
        (make_task(requests=[Request(prefix=(5,))]), "keep to a prefix with a beam"),
        (make_task(beam=1, requests=[Request(constraints=(((5,),),))]), "keep to a glossary, or to other constraints"),
        (make_task(max_extra=5000), "tokens with 2,013 positions"),
        (make_task(beam=1, requests=[Request(prefix=(5,) * 2013)]), "tokens with 2,013 positions"),
    ],
)
def test_what_it_refuses_goes_to_pytorch(task: Task, told: str, folders: Any) -> None:
    files = open_files(folders("pre"))
    assert told in (CTranslate2Engine(files).refuses(task) or "")
    assert Engines(files).for_task(task).name == "pytorch"
    with pytest.raises(SightlineError, match=r"the ctranslate2 engine cannot .*; the pytorch engine can"):
        Engines(files, "ctranslate2").for_task(task)


@pytest.mark.parametrize("recipe", ["seq2seq", "bahdanau", "luong"])
def test_models_that_it_cannot_run(recipe: str, tmp_path: Path) -> None:
    config = build_config(merge(tiny(recipe), {"text": {"tokenizer": "word"}}), recipe)
    tokenizer = WordTokenizer(WORDS, "nfc", False)
    save_tokenizers(tmp_path, Tokenizers(tokenizer, tokenizer))
    save_config(tmp_path, config)
    save_model(tmp_path, build_model(config.model, Tokenizers(tokenizer, tokenizer).sizes))
    assert sightline.load(tmp_path).engines.names() == ["pytorch"]
    with pytest.raises(SightlineError, match=rf"cannot run a .*\({recipe}\); the pytorch engine can"):
        sightline.load(tmp_path, engine="ctranslate2")
    assert sightline.load(tmp_path, compute="int8").engines.names() == ["pytorch"]
    with pytest.raises(SightlineError, match=rf"compute=int16: the pytorch engine has .* cannot run a .*\({recipe}\)"):
        sightline.load(tmp_path, compute="int16")
    mixed = build_config({"model": {"encoder": {"kind": "lstm"}}}, "transformer")
    assert conversion.unsupported(mixed.model) == "an encoder that is no transformer (lstm)"


def test_devices_and_types(trained: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = trained("transformer")
    assert sightline.load(folder, compute="int8").translate("a b", align=False).text == "A B"
    with pytest.raises(SightlineError, match="compute type 'int9' cannot be used on this cpu; did you mean 'int8"):
        sightline.load(folder, compute="int9")
    assert sightline.load(folder, engine="pytorch", compute="int8").translate("a b", align=False).text == "A B"
    with pytest.raises(SightlineError, match=r"compute=int16: the pytorch engine has float32 and int8$"):
        sightline.load(folder, engine="pytorch", compute="int16")
    with pytest.raises(SightlineError, match="unknown engine 'torch'; did you mean 'pytorch'"):
        sightline.load(folder, engine="torch")
    assert Engines(open_files(folder), device="cuda:1").names() == ["pytorch", "ctranslate2"]
    assert Engines(open_files(folder), device="cuda:1", compute="int8").names() == ["ctranslate2", "pytorch"]
    import ctranslate2

    monkeypatch.setattr(ctranslate2, "get_cuda_device_count", lambda: 2)
    assert Engines(open_files(folder)).names() == ["pytorch", "ctranslate2"]
    assert Engines(open_files(folder), device="cpu").names() == ["ctranslate2", "pytorch"]


def test_the_conversion_is_kept_and_made_anew(trained: Any, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(trained("transformer"), tmp_path / "model", ignore=shutil.ignore_patterns(KEPT)))
    CTranslate2Engine(open_files(folder))
    (first,) = (folder / KEPT).iterdir()
    written = (first / "model.bin").stat().st_mtime_ns
    CTranslate2Engine(open_files(folder))
    assert (first / "model.bin").stat().st_mtime_ns == written
    files = open_files(folder)
    save_config(folder, files.config.model_copy(update={"alignment": AlignmentConfig(layer=0, head=1)}))
    CTranslate2Engine(open_files(folder))
    (second,) = (folder / KEPT).iterdir()
    assert second != first


def test_a_folder_that_cannot_be_written_to(trained: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(shutil.copytree(trained("transformer"), tmp_path / "model", ignore=shutil.ignore_patterns(KEPT)))

    def refuse(*arguments: object, **more: object) -> None:
        raise PermissionError

    monkeypatch.setattr("sightline.interop.kept.tempfile.mkdtemp", refuse)
    translator = sightline.load(folder, engine="ctranslate2")
    assert translator.translate("a b c").text == "A B C"
    assert not list((folder / KEPT).iterdir())


def test_batches_are_sorted_and_the_last_are_small() -> None:
    lengths = np.array([3, 1, 2] * 40, dtype=np.int64)
    found = in_batches(lengths, 60)
    assert sorted(index for part in found for index in part) == [*range(120)]
    # Of 40, 30, 20, 20 and 10 rows the first two, which come last, are cut into parts of 10.
    sizes = [(len(part), lengths[part].max()) for part in found]
    assert sizes == [(10, 3), (20, 3), (20, 3), *[(10, 2)] * 3, *[(10, 1)] * 4]
    assert in_batches(lengths[:3], 60) == [[1, 2, 0]]
    assert in_batches(lengths[:0], 60) == []


def test_entries_that_look_alike() -> None:
    tokenizer = CharacterTokenizer([" ", "▁", "▁#2", "a"], False, "nfc", False)
    names = conversion.names(tokenizer)
    assert names == ["<pad>", "<unk>", "<s>", "</s>", "▁", "▁#2", "▁#2#2", "a"]


def test_variables_are_those_of_the_specification(folders: Any) -> None:
    """The names that CTranslate2's own class has, but for flags that are off."""
    from ctranslate2.specs import TransformerSpec
    from ctranslate2.specs.common_spec import Activation

    for name, glu in (("pre", False), ("post", False), ("geglu", True), ("rms", True)):
        files = open_files(folders(name))
        model = files.config.model
        path = files.path / "model.safetensors"
        weights = conversion.tensors.complete(conversion.tensors.read(path), model, files.tokenizers.sizes, path)
        found = conversion.make_variables(model, weights, conversion.describe(files.config))
        spec = TransformerSpec.from_config(
            2, 2, pre_norm=name != "post", activation=Activation.RELU, ffn_glu=glu, rms_norm=name == "rms"
        )
        wanted = spec.variables()
        off = {key for key, value in wanted.items() if value is False}
        optional = {"encoder/position_encodings/encodings", "decoder/position_encodings/encodings"}
        biases = {key for key in found if key.endswith("/bias")}
        assert set(wanted) - off - set(found) <= {"decoder/pre_norm", "encoder/pre_norm"}
        assert set(found) - set(wanted) <= optional | biases


def test_quantising_rounds_each_row_by_its_own_scale() -> None:
    matrix = np.array([[1.0, -0.5, 0.0], [0.0, 0.0, 0.0], [0.02, 0.01, -0.04]], np.float32)
    found = quantise({"a/weight": matrix, "a/bias": matrix[0], "b/weight": "a/weight"}, "int8")
    whole, scale = np.asarray(found["a/weight"]), np.asarray(found["a/weight_scale"])
    assert whole.tolist() == [[127, -64, 0], [0, 0, 0], [64, 32, -127]]
    np.testing.assert_allclose(scale, [127, 1, 127 / 0.04], rtol=1e-6)
    assert np.asarray(found["a/bias"]).dtype == np.float32
    assert found["b/weight"] == "a/weight"
    halves = quantise({"a/weight": matrix, "n/gamma": matrix[0]}, "int8_float16")
    assert [np.asarray(halves[name]).dtype for name in ("a/weight", "n/gamma")] == [np.int8, np.float16]
    with pytest.raises(SightlineError, match="unknown quantization 'int7'"):
        quantise({}, "int7")


def test_no_torch_is_imported(trained: Any) -> None:
    """From a cold process to a translation, its conversion included."""
    folder = trained("transformer")
    shutil.rmtree(folder / KEPT, ignore_errors=True)
    code = (
        "import sys, sightline\n"
        f"found = sightline.load({str(folder)!r}).translate('a b c')\n"
        "assert found.text == 'A B C' and found.links, found\n"
        "sys.exit('torch' in sys.modules)\n"
    )
    root = Path(sightline.__file__).parent.parent
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(root)}
    assert subprocess.run([sys.executable, "-W", "error", "-c", code], env=environment, check=False).returncode == 0


def test_what_is_wrong_with_weights_is_told_in_the_same_words(trained: Any, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(trained("transformer"), tmp_path / "model", ignore=shutil.ignore_patterns(KEPT)))
    files = open_files(folder)
    weights = conversion.tensors.read(folder / "model.safetensors")
    name = "decoder.layers.0.cross.bias"

    def told(changed: dict[str, Any]) -> list[str]:
        conversion.tensors.write(changed, files.config.model, folder / "model.safetensors")
        messages = []
        for engine in ("ctranslate2", "pytorch"):
            with pytest.raises(SightlineError) as error:
                sightline.load(folder, engine=engine)
            messages.append(str(error.value))
        return messages

    for changed in ({**weights, "x": weights[name]}, {**weights, name: weights[name][:5]}):
        one, other = told(changed)
        assert one == other
    one, other = told({key: value for key, value in weights.items() if key != name})
    assert one == other
    assert f"{name} is missing" in one


def test_settings_say_what_the_model_can_do(folders: Any) -> None:
    files = open_files(folders("pre"))
    CTranslate2Engine(files)
    (kept,) = (files.path / KEPT).iterdir()
    settings = (kept / "config.json").read_bytes()
    assert conversion.read_about(settings) == conversion.About(2013, 1, 2)
    assert conversion.read_about(b"{}") is None
    assert json.loads(settings)["decoder_start_token"] == "<s>"
    assert stat.S_IMODE(kept.stat().st_mode) == stat.S_IMODE(kept.parent.stat().st_mode)


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:1000])


@pytest.fixture
def with_conversion(trained: Any, tmp_path: Path) -> Path:
    """A model folder with its conversion."""
    folder = Path(shutil.copytree(trained("transformer"), tmp_path / "model", ignore=shutil.ignore_patterns(KEPT)))
    kept.for_ctranslate2(open_files(folder))
    return folder


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("model.bin", cut_short),
        ("model.bin", lambda path: path.write_bytes(b"")),
        ("shared_vocabulary.json", lambda path: path.write_text("[]")),
        ("shared_vocabulary.json", Path.unlink),
    ],
)
def test_a_damaged_conversion_is_made_again(
    name: str, damage: Callable[[Path], object], with_conversion: Path, command: Command
) -> None:
    (place,) = (with_conversion / KEPT).iterdir()
    whole = (place / name).read_bytes()
    damage(place / name)
    done = command("translate", with_conversion, "--engine", "ctranslate2", stdin=b"a b\n")
    assert (done.code, done.out, done.err) == (0, "A B\n", "")
    assert (place / name).read_bytes() == whole


def test_a_damaged_conversion_in_a_folder_of_others(with_conversion: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Made again in memory, whether or not what is damaged can go."""
    (place,) = (with_conversion / KEPT).iterdir()
    cut_short(place / "model.bin")
    monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)
    engine = CTranslate2Engine(open_files(with_conversion))
    assert engine.translator.compute_type == "float32"
    assert isinstance(engine.source, dict)


def test_what_cannot_be_loaded_is_made_again_once(with_conversion: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the error is told: the conversion was not the cause."""
    made: list[Path] = []
    again = kept.made_again

    def count(files: ModelFiles, damaged: Path) -> kept.Source:
        made.append(damaged)
        return again(files, damaged)

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("no room")

    monkeypatch.setattr("sightline.engines.ctranslate2.made_again", count)
    monkeypatch.setattr("ctranslate2.Translator", fail)
    with pytest.raises(SightlineError, match="CTranslate2 cannot load the model: no room"):
        sightline.load(with_conversion, engine="ctranslate2").translate("a b")
    assert len(made) == 1


def test_weights_are_not_read_through_again(trained: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(shutil.copytree(trained("transformer"), tmp_path / "model", ignore=shutil.ignore_patterns(KEPT)))
    weights = folder / "model.safetensors"
    os.utime(weights, (10**9, 10**9))
    read: list[Path] = []
    digest = kept.sha256
    monkeypatch.setattr(kept, "sha256", lambda path: read.append(path) or digest(path))
    sources = [kept.for_ctranslate2(open_files(folder))[0] for _ in range(3)]
    read.clear()
    assert kept.for_ctranslate2(open_files(folder))[0] == sources[0]
    assert read == []
    os.utime(weights, (10**9 + 1, 10**9 + 1))
    assert kept.for_ctranslate2(open_files(folder))[0] == sources[0]
    assert read != []
    read.clear()
    kept.for_ctranslate2(open_files(folder))
    assert read == []
    # One that was just written is not trusted: it may change within a tick of the clock.
    os.utime(weights)
    for _ in range(2):
        read.clear()
        kept.for_ctranslate2(open_files(folder))
        assert read != []
    (next((folder / KEPT).iterdir()) / kept.STAMP).write_text("[]")
    assert kept.for_ctranslate2(open_files(folder))[0] == sources[0]
