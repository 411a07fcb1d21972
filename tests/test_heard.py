"""Settings that only count beside another one are refused where nothing would hear them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks import alignment, copying, inflection, repeating, scitldr
from benchmarks.mechanisms.entries import read_atlas, resolved
from sightline.config import build_config, merge
from sightline.errors import SightlineError
from sightline.heard import COUNTS_BESIDE, check_heard
from tests.commands import Command, settings

OTHER = {"lexicon.file": "lexicon.tsv", "linear.features": "relu", "attention.coverage_update": "subtract"}
RECIPES = {"copying.layer": "transformer", "copying.head": "transformer", "pointer.window": "lm"}


def set_to(name: str, value: Any) -> dict[str, Any]:
    section, key = name.split(".")
    return {section: {key: value}}


def other(name: str) -> Any:
    """A value that is not the default."""
    section, key = name.split(".")
    default = getattr(getattr(build_config({}, "luong").model, section), key)
    if name in OTHER:
        return OTHER[name]
    return (not default) if isinstance(default, bool) else 0.25 if isinstance(default, float) else (default or 1) * 2


@pytest.mark.parametrize("name", COUNTS_BESIDE)
def test_what_nothing_would_hear(name: str) -> None:
    recipe = RECIPES.get(name, "transformer" if name.split(".")[0] in ("lsh", "linear") else "luong")
    alone = build_config({"model": set_to(name, other(name))}, recipe)
    with pytest.raises(
        SightlineError, match=rf"^model\.{name}=.* counts with model\.[^;]*: set that, or leave it out$"
    ):
        check_heard(alone.model)
    check_heard(build_config({}, recipe).model)


@pytest.mark.parametrize(
    ("name", "beside"),
    [
        ("attention.stop_bias", {"attention": {"choice": "online_monotonic"}}),
        ("attention.window", {"attention": {"span": "local-m"}}),
        ("attention.coverage_width", {"attention": {"coverage": "neural"}}),
        ("attention.kernel", {"attention": {"score": "convolution"}}),
        ("copying.kernel", {"copying": {"kind": "copy_head"}}),
        ("lexicon.epsilon", {"lexicon": {"mode": "bias", "file": "f"}}),
    ],
)
def test_what_is_heard(name: str, beside: dict[str, Any]) -> None:
    check_heard(build_config({"model": merge(set_to(name, other(name)), beside)}, "luong").model)


def test_no_arm_of_a_benchmark_goes_unheard() -> None:
    every = [*read_atlas().arms.values(), *copying.ARMS.values(), *filter(None, scitldr.ARMS.values())]
    every += [alignment.config(*alignment.ARMS[name], Path("links")) for name in alignment.ARMS]
    every += [inflection.config(name, 1, []) for name in inflection.ARMS]
    budget = repeating.running.Budget(1, 1, 1, None, 1)
    every += [repeating.settings(name, read_atlas().arms, [], budget)["config"] for name in repeating.ARMS]
    for values in every:
        check_heard(resolved(values).model)


def test_the_command_says_so(command: Command, toy_pairs: Path, tmp_path: Path) -> None:
    given = ("train", "--pairs", toy_pairs, "--output", tmp_path / "m", *settings("luong"), "--recipe", "luong")
    done = command(*given, "--set", "model.lexicon.file=lex.tsv")
    assert (
        "model.lexicon.file=lex.tsv counts with model.lexicon.mode=bias or model.lexicon.mode=linear" in done.mistake()
    )
    done = command(*given, "--set", "model.guided.loss=product")
    assert "model.guided.loss=product counts where word links teach" in done.mistake()
    assert not (tmp_path / "m").exists()
