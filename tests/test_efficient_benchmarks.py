"""The benchmarks of efficient attention, on sizes that take no time: that they run, and count what they say."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import cost, duplication, long_inputs, t2r
from sightline.attention.lsh import LshAttention, Settings
from sightline.language_model import LanguageModel
from sightline.plot import growth_figure
from sightline.products import by_onednn


@pytest.mark.parametrize("kind", cost.KINDS)
@pytest.mark.parametrize(("length", "width", "heads"), [(16, 8, 2), (64, 16, 4)])
def test_multiply_adds_are_those_of_the_formula(kind: str, length: int, width: int, heads: int) -> None:
    """Hashed attention with one chunk and with several; linear attention costs the same at any length a position."""
    hashed = Settings(rounds=2, chunk=16)
    layer = cost.make(kind, width, heads, hashed)
    assert cost.counted(layer, length, width) == cost.expected(kind, length, width, heads, hashed)


@pytest.mark.parametrize("kind", cost.KINDS)
def test_products_of_any_library_are_counted(kind: str) -> None:
    """Sizes from which on oneDNN multiplies, as it does on some processors."""
    layer = cost.make(kind, 256, 4)
    with by_onednn(hasattr(torch.ops.mkldnn, "_linear_pointwise")):
        assert cost.counted(layer, 64, 256) == cost.expected(kind, 64, 256, 4)


def test_what_grows_how() -> None:
    rows = {kind: [{"length": n, "cost": cost.expected(kind, n, 64, 4)} for n in (2**13, 2**14)] for kind in cost.KINDS}
    slopes = {kind: cost.slope(each, "cost") for kind, each in rows.items()}
    assert slopes["full attention"] > 1.95
    assert slopes["hashed attention"] < 1.1
    for kind in ("recurrent", "convolution", "linear attention"):
        assert slopes[kind] == pytest.approx(1)


def test_costs_are_recorded_and_drawn(tmp_path: Path) -> None:
    cost.main(["--lengths", "8,16", "--width", "8", "--heads", "2", "--repeats", "1", "--results", str(tmp_path)])
    found = json.loads((tmp_path / "cost.json").read_text())
    assert set(found["layers"]) == set(found["formulas"]) == set(cost.KINDS)
    assert found["machine"]["cores"]
    assert found["command"][1] == "benchmarks/cost.py"
    assert (tmp_path / "cost.png").stat().st_size > 0


def test_the_page_shows_every_figure_with_its_record_and_its_command() -> None:
    page = Path(__file__).resolve().parents[1] / "docs" / "efficient.md"
    text = page.read_text(encoding="utf-8")
    shown = re.findall(r"\]\((\.\./benchmarks/results/[^)]+)\)", text)
    for name in ("cost", "long_inputs", "t2r"):
        assert {f"../benchmarks/results/{name}.{kind}" for kind in ("png", "json")} <= {*shown}
        assert f"`python benchmarks/{name}.py" in text
    assert all((page.parent / link).is_file() for link in shown)


def test_the_page_tells_what_the_record_has() -> None:
    text = (Path(__file__).resolve().parents[1] / "docs" / "efficient.md").read_text(encoding="utf-8")
    arms = json.loads((t2r.RESULTS / "t2r.json").read_text(encoding="utf-8"))["arms"]
    softmax, recurrent = arms["softmax"]["steps"], arms["recurrent self-attention"]["steps"]
    assert f"from {softmax[0]['tokens_per_second']:,.0f} tokens a second" in text
    assert f"to {softmax[-1]['tokens_per_second']:,.0f} up to 1,024" in text
    assert f"carry {recurrent[-1]['numbers_a_sentence']:,} numbers" in text
    layers = json.loads((long_inputs.RESULTS / "long_inputs.json").read_text(encoding="utf-8"))["growth"]["layers"]
    full, hashed, linear = ({row["length"]: row for row in layers[kind]} for kind in ("full", "lsh", "linear"))
    slower = [length for length in full if hashed[length]["both_seconds"] > full[length]["both_seconds"]]
    assert max(slower) == 4096, "at 8,192 they are alike"
    assert all(hashed[length]["both_bytes"] > full[length]["both_bytes"] for length in full)
    assert int(full[16384]["both_seconds"] / linear[16384]["both_seconds"]) == 17


@pytest.mark.parametrize("kind", long_inputs.KINDS)
def test_a_layer_is_measured(kind: str) -> None:
    found = long_inputs.measure(kind, 8, repeats=1, width=8, heads=2)
    assert set(found) == {"length", "forward_seconds", "forward_bytes", "both_seconds", "both_bytes"}


def test_0w0w() -> None:
    found = duplication.sequences(3, 10, torch.Generator().manual_seed(1))
    assert found.shape == (3, 10)
    assert torch.equal(found[:, :5], found[:, 5:])
    assert not found[:, [0, 5]].any()
    assert found[:, 1:5].all()
    size = duplication.Size(length=64, chunk=8)
    assert duplication.settings("full", size) == Settings(1, 64, 1)
    assert duplication.settings("lsh-4", size) == Settings(4, 8, 16)
    model = duplication.make(duplication.Size(length=10, width=8, heads=2))
    assert isinstance(model, LanguageModel)
    features, wanted = duplication.second_half(model, found)
    assert features.shape == (12, 8)
    assert torch.equal(wanted, (found[:, 6:] + duplication.FIRST).flatten())
    # What is to be told is not read before: another last symbol changes nothing.
    other = found.clone()
    other[:, -1] = 1 + found[:, -1] % (duplication.SYMBOLS - 1)
    torch.testing.assert_close(duplication.second_half(model, other)[0], features)


def test_where_0w0w_is_looked_at() -> None:
    """Weights that are known: all on what has to be written."""
    size = duplication.Size(length=10, width=8, heads=2)
    model = duplication.make(size)
    (attention,) = (module for module in model.modules() if isinstance(module, LshAttention))
    weights = torch.zeros(1, 2, 10, 10)
    for place in range(6, 10):
        weights[0, :, place, place - 4] = 1  # behind what a text begins with

    def known(*given: object, **named: object) -> torch.Tensor:
        assert attention.tap is not None
        attention.tap.record(weights)
        return torch.zeros(1, 10, 8)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention, "forward", known)
        drawn = duplication.looks(model, "full", size)
    assert drawn.target == drawn.source[1:]
    assert len(drawn.target) == 4
    assert [*drawn.links] == [(1, 0), (2, 1), (3, 2), (4, 3)]
    assert all(drawn.weights[row, column] == 1 for column, row in drawn.links)
    assert drawn.weights.sum() == 4


def test_the_table_of_0w0w(tmp_path: Path) -> None:
    arguments = ["--parts", "duplication", "--trained", "lsh-2", "--length", "16", "--chunk", "4", "--steps", "2"]
    arguments += ["--pictures", str(tmp_path)]
    long_inputs.main([*arguments, "--batch", "2", "--results", str(tmp_path)])
    assert (tmp_path / "long_inputs-duplication-trained_with-lsh-2-accuracy.svg").exists()
    first = json.loads((tmp_path / "long_inputs.json").read_text())["duplication"]
    long_inputs.main([*arguments, "--trained", "lsh-2,full", "--batch", "2", "--results", str(tmp_path)])
    found = json.loads((tmp_path / "long_inputs.json").read_text())["duplication"]["trained_with"]
    assert [*found] == ["lsh-2", "full"]
    assert found["lsh-2"] == first["trained_with"]["lsh-2"], "seconds too: it was not trained again"
    for row in found.values():
        assert set(row["accuracy"]) == set(row["paper"]) == set(duplication.WAYS)
        assert all(0 <= value <= 100 for value in row["accuracy"].values())


def test_speed_of_steps(trained: Any) -> None:
    found = t2r.steps(trained("transformer"), [2, 4], threads=1, batch=2)
    assert [row["length"] for row in found] == [2, 4]
    assert found[1]["numbers_a_sentence"] == 2 * found[0]["numbers_a_sentence"]  # a softmax's cache grows


def test_growth_on_axes_of_powers(tmp_path: Path) -> None:
    growth_figure(
        {"a": {"one": [(1, 1.0), (2, 4.0)]}, "b": {"one": [(1, 2.0), (2, 4.0)]}}, tmp_path / "x.png", "n", "title"
    )
    assert (tmp_path / "x.png").stat().st_size > 0
