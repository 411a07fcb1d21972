"""Links of two models, one for each direction, put together by `align --backward`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest

from sightline.config import build_config, merge
from sightline.links import Symmetry, symmetrise, to_pharaoh
from sightline.metrics import alignment_error_rate, parse_links
from sightline.training.run import train
from tests.commands import Command, letters, tiny, write_lines, write_tsv

PAIRS = letters(12, seed=4)
GOLD = [" ".join(f"{place}-{place}" for place in range(len(source.split()))) for source, _ in PAIRS]


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    return write_tsv(tmp_path / "p.tsv", PAIRS)


@pytest.fixture(scope="module")
def backward(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of the other direction, which has hardly learnt anything and so disagrees now and then."""
    folder = tmp_path_factory.mktemp("backward")
    turned = write_tsv(folder / "turned.tsv", [(target, source) for source, target in letters(200)])
    own = {"data": {"pairs": str(turned)}, "training": {"max_steps": 20, "validate_bleu": 0}}
    train(build_config(merge(tiny("luong"), own), "luong"), folder / "model")
    return folder / "model"


@pytest.mark.parametrize("how", [None, *get_args(Symmetry)])
def test_links_of_both_models(
    how: Symmetry | None, command: Command, trained: Any, backward: Path, pairs: Path, tmp_path: Path
) -> None:
    forward = trained("transformer")
    turned = write_tsv(tmp_path / "turned.tsv", [(target, source) for source, target in PAIRS])
    alone = [
        [parse_links(line)[0] for line in command("align", model, "--pairs", given).out.splitlines()]
        for model, given in ((forward, pairs), (backward, turned))
    ]
    back = [{(left, right) for right, left in found} for found in alone[1]]
    wanted = [symmetrise(one, other, how or "intersection") for one, other in zip(alone[0], back, strict=True)]
    assert wanted != alone[0]
    gold = write_lines(tmp_path / "gold", GOLD)
    join = () if how is None else ("--join", how)
    done = command("align", forward, "--pairs", pairs, "--backward", backward, *join, "--gold", gold)
    assert done.code == 0, done.err
    assert done.out.splitlines() == [to_pharaoh(found) for found in wanted]
    rate = alignment_error_rate(wanted, [parse_links(line)[0] for line in GOLD])
    *own, last = done.err.splitlines()
    assert len(own) == 2
    assert last == f"alignment error rate {100 * rate:.2f}% (both models, {how or 'intersection'})"
    without_gold = command("align", forward, "--pairs", pairs, "--backward", backward, *join)
    assert (without_gold.out, without_gold.err) == (done.out, "")


def test_the_reading_is_that_of_both(
    command: Command, trained: Any, backward: Path, pairs: Path, tmp_path: Path
) -> None:
    options = ("align", trained("bahdanau"), "--pairs", pairs, "--backward", backward, "--join", "union")
    found = [command(*options, "--reading", reading).out for reading in ("predicts", "consumes")]
    assert found[0] != found[1]
    assert found[0] == command(*options).out


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--pairs", "P", "--join", "union"], "--join needs --backward"),
        (["--pairs", "P", "--backward", "B", "--join", "unions"], "--join unions: did you mean 'union'?"),
        (["--pairs", "P", "--backward", "B", "--gold", "G", "--choose"], "--choose is for one model"),
        (["--source", "S", "--backward", "B"], "--backward needs target sentences: give --target, or --pairs"),
        (["--pairs", "P", "--backward", "nowhere"], "nowhere"),
        (["--pairs", "P", "--backward", "B", "--show"], "--show draws where one model looked"),
    ],
)
def test_mistakes(
    options: list[str], told: str, command: Command, trained: Any, backward: Path, pairs: Path, tmp_path: Path
) -> None:
    source = write_lines(tmp_path / "source", ["a b"])
    files = {"P": pairs, "B": backward, "G": write_lines(tmp_path / "gold", GOLD), "S": source}
    done = command("align", trained("bahdanau"), *(files.get(word, word) for word in options))
    assert told in done.mistake()
    assert done.out == ""


def test_a_model_without_attention_links_nothing_back(command: Command, trained: Any, pairs: Path) -> None:
    done = command("align", trained("bahdanau"), "--pairs", pairs, "--backward", trained("seq2seq"))
    assert "this model has no attention" in done.mistake()
