"""What is worked out when it is first looked at: scores and alignments are what they are when asked for at once."""

from __future__ import annotations

import copy
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import sightline
from sightline import later
from sightline.config import AlignmentConfig
from sightline.engines.ctranslate2 import CTranslate2Engine
from sightline.engines.pytorch import PyTorchEngine
from sightline.errors import SightlineError
from sightline.folder import open_files, save_config
from sightline.interop.kept import KEPT
from sightline.interop.verified import write_ctranslate2
from sightline.text import EOS
from sightline.translation import LATER, Translation
from tests.engines import make_folder, sentences

LINES = ["w1 w2 w3", "", "w5 w7 w9 w2", "w4"]
HEAD = {"alignment": {"layer": 1, "head": 2}}


@pytest.fixture(scope="module")
def two_layers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose alignment is a mean over two layers, which CTranslate2 does not tell."""
    return make_folder(tmp_path_factory.mktemp("later") / "model", {})


@pytest.fixture(scope="module")
def chosen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with a chosen head, which it does."""
    return make_folder(tmp_path_factory.mktemp("chosen") / "model", {}, **HEAD)


def left(one: Translation) -> set[str]:
    """What has not been looked at."""
    return {name for name in ("score", "token_log_probs", "links", "weights") if name not in vars(one)}


def same(one: Translation, other: Translation) -> None:
    assert (one.text, one.words, one.source_words, one.links) == (
        other.text,
        other.words,
        other.source_words,
        other.links,
    )
    assert one.score == pytest.approx(other.score, abs=1e-5)
    assert one.log_prob == pytest.approx(other.log_prob, abs=1e-5)
    assert one.token_log_probs == pytest.approx(other.token_log_probs, abs=1e-5)
    assert (one.weights is None) == (other.weights is None)
    if one.weights is not None and other.weights is not None:
        np.testing.assert_allclose(one.weights, other.weights, atol=1e-4)


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("engine", ["auto", "pytorch"])
@pytest.mark.parametrize("kind", ["two_layers", "chosen"])
def test_it_is_the_same_as_at_once(kind: str, engine: str, beam: int, request: pytest.FixtureRequest) -> None:
    translator = sightline.load(request.getfixturevalue(kind), engine=engine)
    lazily = translator.translate(LINES, beam=beam)
    at_once = translator.translate(LINES, beam=beam, align=True, token_scores=True)
    assert not any(left(one) for one in at_once)
    assert "links" in left(lazily[0])
    assert ("score" in left(lazily[0])) == (engine == "auto")
    for one, other in zip(lazily, at_once, strict=True):
        same(one, other)
        assert not left(one)


def test_n_best_are_ranked_by_exact_scores(two_layers: Path) -> None:
    found = sightline.load(two_layers).translate(LINES[0], beam=4, n_best=4)
    assert "score" not in left(found)
    assert all(other.links is not None for other in found.others)


def test_neighbours_are_done_together(two_layers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    translator = sightline.load(two_layers)
    monkeypatch.setattr(later, "BLOCK", 2)
    calls: list[int] = []
    force = translator.force
    monkeypatch.setattr(translator, "force", lambda pairs: calls.append(len(pairs)) or force(pairs))
    found = translator.translate([LINES[0], LINES[2], LINES[3]])
    assert calls == []
    assert found[0].alignment is not None
    assert calls == [2]
    assert found[1].weights is not None
    assert calls == [2]
    assert found[2].links is not None
    assert calls == [2, 1]


def test_copies_and_changes(two_layers: Path) -> None:
    translator = sightline.load(two_layers)
    one = translator.translate(LINES[0])
    changed = one.changed(flags=[])
    assert left(changed) == left(one) != set()
    assert changed.flags == []
    other = pickle.loads(pickle.dumps(one))
    assert not left(other)
    assert LATER not in vars(other)
    assert other.as_dict() == one.as_dict() == copy.copy(one).as_dict()
    with pytest.raises(AttributeError, match="no attribute 'aligment'"):
        one.aligment  # type: ignore[attr-defined]  # noqa: B018
    assert translator.translate(LINES[0], align=False).links is None


def test_an_export_tells_its_alignment_later_too(chosen: Path, two_layers: Path, tmp_path: Path) -> None:
    write_ctranslate2(open_files(chosen), tmp_path / "export")
    one, other = (sightline.load(folder).translate(LINES) for folder in (tmp_path / "export", chosen))
    for here, there in zip(one, other, strict=True):
        same(here, there)
    assert one[0].links
    write_ctranslate2(open_files(two_layers), tmp_path / "without")
    # Without a head CTranslate2 has none to tell: a pass of PyTorch does, as it does for the model.
    found, expected = (sightline.load(folder).translate(LINES[0]) for folder in (tmp_path / "without", two_layers))
    assert found.alignment == expected.alignment
    assert "".join(sightline.load(tmp_path / "without").live(LINES[0])) == expected.text
    for folder in (tmp_path / "without", two_layers):
        with pytest.raises(SightlineError, match="the ctranslate2 engine cannot show a translation while it is made"):
            sightline.load(folder, engine="ctranslate2").live(LINES[0])


def test_weights_of_given_targets(chosen: Path) -> None:
    """CTranslate2 reads what is given as a forced pass of PyTorch does."""
    files = open_files(chosen)
    generator = np.random.default_rng(4)
    sources = sentences(files)
    targets = [generator.integers(4, files.tokenizers.target.size, len(source)).tolist() for source in sources]
    found = CTranslate2Engine(files).weights(list(zip(sources, targets, strict=True)))
    texts = [files.tokenizers.source.decode(source[:-1]) for source in sources]
    seen = PyTorchEngine(files, "cpu").force(list(zip(texts, targets, strict=True)))
    for rows, forced, source, target in zip(found, seen, sources, targets, strict=True):
        assert rows.shape == (len(target) + 1, len(source))
        np.testing.assert_allclose(rows, forced.sentence.layers[1][2], atol=1e-4)
    assert source[-1] == EOS


def test_text_alone_needs_no_torch(two_layers: Path, tmp_path: Path) -> None:
    """Of a model without a chosen head, in the default call; what is looked at later is there all the same."""
    folder = Path(shutil.copytree(two_layers, tmp_path / "model", ignore=shutil.ignore_patterns(KEPT)))
    code = (
        "import sys, sightline\n"
        f"one = sightline.load({str(folder)!r}).translate('w1 w2 w3')\n"
        "assert one.text and one.tokens and one.score < 0 and one.token_log_probs\n"
        "assert 'torch' not in sys.modules\n"
        "assert one.alignment\n"
        "assert 'torch' in sys.modules\n"
    )
    root = Path(sightline.__file__).parent.parent
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(root)}
    subprocess.run([sys.executable, "-W", "error", "-c", code], env=environment, check=True)


def test_another_head_is_another_alignment(two_layers: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(two_layers, tmp_path / "model"))
    files = open_files(folder)
    save_config(folder, files.config.model_copy(update={"alignment": AlignmentConfig(layer=0, head=1)}))
    one, other = (sightline.load(path).translate(LINES[0]) for path in (folder, two_layers))
    assert one.text == other.text
    assert one.weights is not None
    assert other.weights is not None
    assert not np.allclose(one.weights, other.weights)
