"""A model is a folder: what is in it, and what is checked when it is opened."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
import yaml

import sightline
from sightline.config import build_config, merge
from sightline.errors import SightlineError
from sightline.folder import FORMAT, check_free, load_folder, read_config, save_config
from sightline.training.run import train
from tests.commands import tiny


@pytest.fixture
def own(trained: Any, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained("transformer"), tmp_path / "own"))


def change(folder: Path, edit: Callable[[dict[str, Any]], Any]) -> None:
    """Edits `config.yaml` as someone with a text editor might."""
    values = yaml.safe_load((folder / "config.yaml").read_text())
    edit(values)
    (folder / "config.yaml").write_text(yaml.safe_dump(values))


def refused(folder: Path) -> str:
    with pytest.raises(SightlineError) as error:
        load_folder(folder)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_what_is_in_it(trained: Any) -> None:
    folder = trained("transformer")
    head = yaml.safe_load((folder / "config.yaml").read_text())["sightline"]
    assert head["format"] == FORMAT
    assert head["version"] == sightline.__version__
    assert list(head["tokenizers"]) == ["joint.vocab"]
    config = read_config(folder)
    assert config.model.recipe == "transformer"
    assert config.training.max_steps == 300
    loaded = load_folder(folder)
    assert not loaded.model.training
    assert loaded.tokenizers.source is loaded.tokenizers.target


def test_the_card_tells_data_scores_and_use(trained: Any) -> None:
    card = (trained("bahdanau") / "README.md").read_text()
    for part in (
        "# A bahdanau model",
        "380 training pairs, 20 validation pairs",
        "file letters.tsv",
        "validation BLEU",
        "nrefs:1|case:mixed",
        "validation perplexity",
        "## Licence",
        "sightline translate",
    ):
        assert part in card
    assert str(trained("bahdanau")) not in card  # it is to travel


def test_opening_and_saving_change_nothing(own: Path) -> None:
    before = (own / "config.yaml").read_bytes()
    save_config(own, read_config(own))
    assert (own / "config.yaml").read_bytes() == before


def test_no_pickle_lies_in_it(trained: Any) -> None:
    kinds = {path.suffix for path in trained("luong").rglob("*") if path.is_file()}
    assert kinds == {".yaml", ".safetensors", ".vocab", ".md", ".json", ".jsonl", ".html"}


@pytest.mark.parametrize(
    ("edit", "told"),
    [
        (lambda values: values.pop("sightline"), "its 'sightline' section is missing"),
        (lambda values: values.update(sightline=3), "its 'sightline' section is missing"),
        (lambda values: values["sightline"].update(format=2), "format 2, but this Sightline"),
        (lambda values: values["sightline"].update(format="x"), "format x, but this Sightline"),
        (lambda values: values["sightline"].update(tokenizers=[1]), "not the tokenizer this model was trained with"),
        (lambda values: values["sightline"].pop("tokenizers"), "not the tokenizer this model was trained with"),
        (lambda values: values["text"].update(joint=False), "the tokenizer source.vocab is missing"),
        (lambda values: values["text"].update(tokenizer="bpe"), "the tokenizer joint.spm is missing"),
        (lambda values: values["text"].update(tokenizer="char"), "a 'word' vocabulary, but text.tokenizer is 'char'"),
        (lambda values: values["model"].update(recipe="luog"), "unknown recipe 'luog'; did you mean 'luong'?"),
        (lambda values: values["model"].update(embedding=None), "leaves a size of the model open"),
        (
            lambda values: values["model"].update(embedding=64),
            "expected (20, 64): the weights belong to another config",
        ),
        (
            lambda values: values["model"]["decoder"].update(layers=2),
            "is missing: the weights belong to another config",
        ),
        (lambda values: values.update(modell={}), "unknown key 'modell'; did you mean 'model'?"),
    ],
)
def test_a_configuration_that_was_changed(edit: Callable[[dict[str, Any]], Any], told: str, own: Path) -> None:
    change(own, edit)
    assert told in refused(own)


def test_weights_of_another_model(own: Path, trained: Any) -> None:
    shutil.copy(trained("luong") / "model.safetensors", own)
    assert "the weights belong to another config" in refused(own)
    tensors = {"x": torch.zeros(2)}
    (own / "model.safetensors").write_bytes(safetensors.torch.save(tensors))
    assert "x is not part of the model" in refused(own)
    (own / "model.safetensors").write_bytes(b"")
    assert "not a safetensors file, or cut short" in refused(own)


def test_one_vocabulary_for_each_side(toy_pairs: Path, tmp_path: Path) -> None:
    values = {"text": {"joint": False}, "data": {"pairs": str(toy_pairs)}, "training": {"max_steps": 1}}
    train(build_config(merge(tiny("luong"), values), "luong"), tmp_path / "model")
    loaded = load_folder(tmp_path / "model")
    assert loaded.tokenizers.source.pieces("a A") == ["a", "<unk>"]
    assert loaded.tokenizers.target.pieces("a A") == ["<unk>", "A"]
    shutil.copy(tmp_path / "model" / "source.vocab", tmp_path / "model" / "target.vocab")
    assert "target.vocab: not the tokenizer this model was trained with" in refused(tmp_path / "model")


def test_a_place_for_a_new_run(tmp_path: Path, own: Path) -> None:
    check_free(tmp_path / "new")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "pairs.tsv").touch()
    check_free(tmp_path / "mine")
    with pytest.raises(SightlineError, match="holds a run already"):
        check_free(own)
    shutil.rmtree(own / "checkpoints")
    with pytest.raises(SightlineError, match="holds a run already"):
        check_free(own)
    (own / "model.safetensors").unlink()
    check_free(own)  # what was broken off before its first checkpoint
    (own / "config.yaml").unlink()
    with pytest.raises(SightlineError, match=r"README\.md: training would write over it"):
        check_free(own)
