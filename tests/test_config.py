"""Configurations: what is checked, what an error says, and YAML there and back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from sightline.config import (
    RunConfig,
    Section,
    assignment,
    build_config,
    dump_yaml,
    load_config,
    merge,
    read_yaml,
    without_nulls,
)
from sightline.errors import SightlineError
from sightline.recipes import RECIPES


def keys(section: type[Section], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every key that is not a section, with its field."""
    for name, field in section.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            yield from keys(field.annotation, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", field


@pytest.mark.parametrize("recipe", RECIPES)
def test_there_and_back(recipe: str, tmp_path: Path) -> None:
    config = build_config({"data": {"pairs": "größer: #1.tsv"}, "text": {"symbols": ["<a>", "x: y # z"]}}, recipe)
    path = tmp_path / "run.yaml"
    path.write_text(dump_yaml(config), encoding="utf-8")
    assert load_config(path) == config
    assert read_yaml(path) == config.model_dump(mode="json") | {
        "training": config.model_dump(mode="json")["training"] | {"betas": list(config.training.betas)}
    }


def test_every_key_and_every_section_has_its_comment() -> None:
    lines = dump_yaml(RunConfig()).splitlines()
    found = {line.partition(":")[0].strip(): line for line in lines if not line.lstrip().startswith("#")}
    for name, field in keys(RunConfig):
        assert field.description, name
        last = name.split(".")[-1]
        assert last in found
        assert "  # " in found[last]
    comments = [line.strip() for line in lines if line.lstrip().startswith("#")]
    for name, field in RunConfig.model_fields.items():
        assert f"# {field.description}" in comments, name
    assert all(f"# {field.description}" in "\n".join(lines) for _, field in keys(RunConfig))


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"trainin": {}}, "here: unknown key 'trainin'; did you mean 'training'?"),
        ({"training": {"sed": 1}}, "here: unknown key 'training.sed'; did you mean 'training.seed'?"),
        (
            {"model": {"encoder": {"layer": 1}}},
            "here: unknown key 'model.encoder.layer'; did you mean 'model.encoder.layers'?",
        ),
        ({"training": {"batchsize": 3}}, "here: unknown key 'training.batchsize'; did you mean 'data.batch_tokens' or"),
        ({"search": {"alpha": 250}}, "here: search.alpha = 250: expected 10.0 or less"),
        ({"search": {"max_ratio": 1e308}}, "here: search.max_ratio = 1e+308: expected 1000.0 or less"),
        ({"search": {"zzz": 1}}, "here: unknown key 'search.zzz'; valid in search: beam, length_penalty"),
        ({"model": {"recipe": "gru"}}, "here: unknown recipe 'gru'; valid: seq2seq, bahdanau, luong, transformer, lm"),
        ({"attention": {"score": "dot"}}, "here: unknown key 'attention'; did you mean 'model.attention.score'?"),
        ({"attention": {"scores": "dot"}}, "here: unknown key 'attention'; did you mean 'model.attention.score'?"),
        (
            {"training": {"attention": {"score": "dot"}}},
            "here: unknown key 'training.attention'; did you mean 'model.attention.score'?",
        ),
        ({"attention": "dot"}, "here: unknown key 'attention'; valid in model.attention: score, "),
        ({"attention": {"zzz": 1}}, "here: unknown key 'attention'; valid in model.attention: score, "),
        ({"encoder": {"layers": 2}}, "here: unknown key 'encoder'; did you mean 'model.encoder.layers'?"),
        ({"decoding": {"beam": 2}}, "here: unknown key 'decoding'; did you mean 'search.beam'?"),
        ({"score": "dot"}, "here: unknown key 'score'; did you mean 'model.attention.score'?"),
        (
            {"model": {"attention": {"heads": 2}}},
            "here: unknown key 'model.attention.heads'; did you mean 'model.encoder.heads' or 'model.decoder.heads'?",
        ),
        (
            {"model": {"attention": {"dropout": 0.1}}},
            "here: unknown key 'model.attention.dropout'; did you mean 'model.attention_dropout'?",
        ),
        ({"model": {"recipe": ["a"]}}, "here: unknown recipe"),
        ({"model": 3}, "here: 'model' must be a section"),
        ({"training": 3}, "here: training = 3: expected a section of keys and values"),
        ({"training": {"seed": 1.5}}, "here: training.seed = 1.5: expected a whole number"),
        ({"training": {"clip": float("inf")}}, "here: training.clip = inf: expected a finite number"),
        ({"model": {"dropout": 1}}, "here: model.dropout = 1: expected less than 1"),
        ({"model": {"norm": "batch"}}, "here: model.norm = 'batch': expected 'layer' or 'rms'"),
        ({"alignment": {"layer": -1}}, "here: alignment.layer = -1: expected 0 or more"),
        ({1: 2}, "here: 1 = 1: the name of a key must be text"),
        ({"data": {"pairs": 1}}, "here: data.pairs = 1: expected the name of a file"),
    ],
)
def test_mistakes_in_one_line(values: dict[str, Any], told: str) -> None:
    with pytest.raises(SightlineError) as error:
        build_config(values, where="here")
    assert str(error.value).startswith(told)
    assert "\n" not in str(error.value)


def test_a_recipes_defaults_lie_under_the_values() -> None:
    assert build_config({}, "seq2seq").model.encoder.reverse
    assert build_config({"model": {"recipe": "bahdanau"}}).model.encoder.kind == "gru"
    changed = build_config({"model": {"recipe": "bahdanau", "encoder": {"kind": "lstm"}}}, "luong")
    assert (changed.model.recipe, changed.model.encoder.kind) == ("luong", "lstm")
    assert changed.model.decoder.cell == "lstm"


def test_sections_without_keys_are_empty() -> None:
    values = yaml.safe_load("text:\ndata:\nmodel:\ntraining:\nsearch:\nalignment:\n")
    assert build_config(values) == build_config({})
    assert build_config({"model": {"encoder": None}}, "luong").model.recipe == "luong"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("training.seed=2", {"training": {"seed": 2}}),
        ("model.encoder.kind=gru", {"model": {"encoder": {"kind": "gru"}}}),
        ("text.symbols=[<a>, b]", {"text": {"symbols": ["<a>", "b"]}}),
        ("training.max_steps=null", {"training": {"max_steps": None}}),
        ("data.pairs=a=b.tsv", {"data": {"pairs": "a=b.tsv"}}),
        (" training.seed =2", {"training": {"seed": 2}}),
    ],
)
def test_assignments(text: str, expected: dict[str, Any]) -> None:
    assert assignment(text) == expected


@pytest.mark.parametrize(
    "text", ["", "=", "a", "a.=1", ".a=1", "training.seed", "a=[1", "a=2026-02-30", "a=" + "[" * 1500]
)
def test_assignments_that_are_none(text: str) -> None:
    with pytest.raises(SightlineError, match="--set"):
        assignment(text)


def test_numbers_as_people_write_them() -> None:
    """To YAML 1.1 `1e-3` is a string; to us it is a number."""
    config = build_config(merge(assignment("training.learning_rate=1e-3"), assignment("training.max_minutes=2")))
    assert (config.training.learning_rate, config.training.max_minutes) == (1e-3, 2.0)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"a: b: c\n", "run.yaml, line 1: not valid YAML: mapping values are not allowed here"),
        (b"training:\n  seed: !!python/object:os.system x\n", "run.yaml, line 2: not valid YAML: could not determine"),
        (b"a: 2026-02-30\n", "run.yaml: not valid YAML: day is out of range"),
        (b"\x00", "run.yaml: not valid YAML: unacceptable character"),
        (b"[" * 1500, "run.yaml: not valid YAML: maximum recursion depth exceeded"),
        (b"a: \xff\n", "run.yaml: the configuration is not UTF-8 text"),
        (b"- a\n", "run.yaml: expected sections with keys"),
    ],
)
def test_files_that_are_no_configuration(content: bytes, told: str, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_bytes(content)
    with pytest.raises(SightlineError) as error:
        read_yaml(tmp_path / "run.yaml")
    assert told in str(error.value)
    assert "\n" not in str(error.value)


def test_files_that_are_one(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_bytes(b"\xef\xbb\xbftraining: {seed: 3}\n")
    assert load_config(tmp_path / "run.yaml").training.seed == 3
    (tmp_path / "run.yaml").write_text("# nothing but a comment\n")
    assert read_yaml(tmp_path / "run.yaml") == {}


def test_nulls_give_way() -> None:
    assert without_nulls({"a": None, "b": {"c": None, "d": 0}, "e": False}) == {"b": {"d": 0}, "e": False}
