"""The report: what it says, that it is one file that loads nothing, and that no sentence can break it."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sightline.errors import SightlineError
from sightline.plot.charts import Axis, Chart, Series, chart_svg, marks, shown, thin, ticks
from sightline.recordings import Seen, Translated, save_attention, save_facts, save_translations
from sightline.report import gather, read_metrics, write_report
from tests.browser import CHROMIUM, browser
from tests.commands import Command

HOSTILE = ["</script><script>alert(1)</script>", "\"'&<b>", "<!--", "]]>", "{{data}}", "a\u2028b\x1b[1m", "שלום"]


class Elements(HTMLParser):
    """The elements of a page, each closed where it must be, and its text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attributes)))
        if tag not in ("meta", "input"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attributes)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, tag
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("script", "style"):
            self.text.append(data)


def parsed(text: str) -> Elements:
    page = Elements()
    page.feed(text)
    page.close()
    assert not page.open
    return page


def content(text: str) -> Any:
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script', text, re.DOTALL)[1])  # type: ignore[index]


def make_run(folder: Path, words: list[str] | None = None, steps: int = 4) -> Path:
    """A run's folder, written by hand: `steps` validations, and sentences of these words."""
    words = words or ["the", "old", "house"]
    folder.mkdir()
    lines: list[dict[str, Any]] = []
    for number in range(1, steps + 1):
        place = {"step": 100 * number, "epoch": 0, "seconds": 30.0 * number}
        training = {"nll": 6 / number, "learning_rate": 1e-3, "tokens_per_second": 2000.0, "tokens": 5, "skipped": 0}
        scores = {"loss": 5 / number, "perplexity": math.exp(5 / number), "bleu": 7.0 * number, "sharpness": 0.123}
        lines += [{"kind": "training", **place, **training}, {"kind": "validation", **place, **scores, "best": True}]
        first = np.random.default_rng(number).dirichlet(np.ones(len(words)), size=(2, len(words)))
        second = np.tile(np.eye(len(words)), (1, 1, 1))
        sentences = [Seen(words, words[::-1], [first, second]), Seen(words, ["x"], [first[:, :1], second[:, :1]])]
        save_attention(folder, 100 * number, sentences)
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    (folder / "config.yaml").write_text("# comment <b>\nalignment:\n  layer: null\n  head: null\n")
    save_facts(folder, {"recipe": "transformer", "parameters": "1,234", "data": words[0]})
    texts = [f"{words[0]} {'word ' * number}{number}" for number in range(12)]
    outputs = [text if number % 3 else "wrong" for number, text in enumerate(texts)]
    save_translations(folder, Translated(400, "13a", texts, texts, outputs))
    return folder


@pytest.fixture
def page(tmp_path: Path) -> str:
    write_report(make_run(tmp_path / "my run"), tmp_path / "report.html")
    return (tmp_path / "report.html").read_text(encoding="utf-8")


def test_it_tells_what_was_measured(page: str) -> None:
    told = " ".join(" ".join(parsed(page).text).split())
    for text in (
        *("my run", "28.0", "3.49", "0.123", "1,234", "2,000", "transformer"),  # the figures at the top
        *("Loss", "Validation BLEU", "Validation perplexity", "Learning rate", "Target tokens a second"),
        *("BLEU by source length", "Worst", "In the middle", "Best", "12 validation sentences"),
        *("400 in 2.0 minutes, epoch 1", "step 400", "the old house", "# comment <b>"),
    ):
        assert text in told, text
    held = content(page)
    loss = {series["name"]: series["points"] for series in held["charts"][0]}
    assert [(point[0], point[3]) for point in loss["training"]] == [(100, "6"), (200, "3"), (300, "2"), (400, "1.5")]
    assert [point[3] for point in loss["validation"]] == ["5", "2.5", "1.667", "1.25"]


@pytest.mark.parametrize("best", [True, False])
def test_a_mean_that_became_the_model_is_what_it_tells_of(best: bool, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    place = {"kind": "average", "step": 400, "epoch": 0, "seconds": 130.0, "best": best, "checkpoints": 3}
    with open(run / "metrics.jsonl", "a") as lines:
        print(json.dumps({**place, "loss": 1.0, "perplexity": 2.72, "bleu": 31.4, "sharpness": 0.2}), file=lines)
    told = gather(run)
    figures = dict(told.figures)
    assert figures["BLEU, validation"] == ("31.4" if best else "28.0")
    assert figures.get("best is the mean of") == ("3 checkpoints" if best else None)
    rows = told.validations.rows
    assert rows[-1][-1] == "mean of 3 checkpoints" + ", best so far" * best
    assert rows[-2][-1] == "best so far"
    assert dict(told.facts)["best validation"] == "step 400" + ", mean of 3 checkpoints" * best
    assert told.attention is not None
    assert told.attention.notes[400].startswith("BLEU 31.4" if best else "BLEU 28.0")
    assert ("greedily by the mean of 3 checkpoints at step 400" in told.lengths_note) == best
    assert [point[0] for point in told.charts[1].series[0].points] == [100, 200, 300, 400]  # the mean is no curve


def test_the_attention_of_every_step_is_in_it(page: str, tmp_path: Path) -> None:
    movie = content(page)["attention"]
    assert movie["steps"] == [100, 200, 300, 400]
    assert movie["notes"][1] == "BLEU 14.0 · sharpness 0.123 · best so far"
    assert movie["sharpest"] == [1, None]
    sentence = movie["sentences"][0]
    assert (sentence["heads"], sentence["chosen"]) == ([2, 1], [None, None])
    weights = np.frombuffer(base64.b64decode(sentence["frames"][2]), np.uint8) / 255
    expected = np.random.default_rng(3).dirichlet(np.ones(3), size=(2, 3))
    np.testing.assert_allclose(weights[:18].reshape(2, 3, 3), expected, atol=4e-3)
    np.testing.assert_array_equal(weights[18:].reshape(3, 3), np.eye(3))
    cells = [attributes for tag, attributes in parsed(page).seen if attributes.get("class") == "weight"]
    assert len(cells) == 3 * 3 + 3


def test_it_is_one_file_that_loads_nothing(page: str) -> None:
    assert not re.search(r"https?:|\ssrc=|href=|@import|url\(", page)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(", page)
    assert not re.search(r'\sstyle="|\son\w+="', page)  # the policy would forbid them
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    assert policy[1].startswith("default-src 'none'")
    for tag in ("style", "script"):
        inside = re.search(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        assert inside is not None
        digest = base64.b64encode(hashlib.sha256(inside[1].encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy[1]


def test_no_sentence_becomes_markup(tmp_path: Path) -> None:
    write_report(make_run(tmp_path / "<i>run", HOSTILE), tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    found = parsed(text)
    assert [tag for tag, _ in found.seen].count("script") == text.count("</script>") == 2
    assert not {"i", "b"} & {tag for tag, _ in found.seen}
    assert "alert(1)</script>" not in text
    assert "\x1b" not in text
    told = "".join(found.text)
    assert all(word in told for word in HOSTILE[:4])


def test_the_same_folder_gives_the_same_page(tmp_path: Path, page: str) -> None:
    write_report(tmp_path / "my run", tmp_path / "again.html")
    assert (tmp_path / "again.html").read_text(encoding="utf-8") == page


def test_a_run_that_has_just_begun(tmp_path: Path) -> None:
    """No validation yet, no attention, no translations, a line that is being written, and numbers that are none."""
    line = {"kind": "training", "step": 10, "epoch": 0, "seconds": 1.0, "loss": None, "tokens_per_second": 3.0}
    (tmp_path / "metrics.jsonl").write_text(json.dumps(line) + '\n{"kind": "trai')
    report = gather(tmp_path)
    assert report.attention is None
    assert [chart.title for chart in report.charts] == ["Loss", "Target tokens a second"]
    write_report(tmp_path, tmp_path / "report.html")
    told = "".join(parsed((tmp_path / "report.html").read_text()).text)
    assert "No attention is kept" in told
    assert "No translations are kept" in told
    assert "nan" not in told


def test_the_page_needs_no_torch(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    code = f"import sys; from sightline.report import *; write_report(Path({str(run)!r}), Path({str(run / 'r')!r}))"
    code += "; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-W", "error", "-c", code], check=False).returncode == 0


# ---- the command ----


def test_the_command(command: Command, trained: Any, tmp_path: Path) -> None:
    run = trained("luong")
    before = (run / "report.html").read_bytes()
    assert command("report", run, "--output", tmp_path / "page.html").code == 0
    assert (tmp_path / "page.html").read_bytes() == before
    data = content(before.decode())
    assert data["attention"]["steps"] == [150]
    assert "luong" in before.decode()


def test_mistakes(command: Command, tmp_path: Path) -> None:
    assert "none: no such folder; name the folder of a run" in command("report", tmp_path / "none").mistake()
    assert "it has no metrics.jsonl" in command("report", tmp_path).mistake()
    (tmp_path / "metrics.jsonl").write_text("")
    assert "nothing was measured yet" in command("report", tmp_path).mistake()
    (tmp_path / "metrics.jsonl").write_text("[]\n{}\n")
    with pytest.raises(SightlineError, match=r"metrics\.jsonl, line 1: not a line of metrics"):
        read_metrics(tmp_path)
    run = make_run(tmp_path / "run")
    assert "its folder does not exist" in command("report", run, "--output", tmp_path / "no" / "p.html").mistake()


# ---- charts ----


def test_ticks_are_round() -> None:
    assert ticks(Axis(0, 450, 0, 1)) == [0, 100, 200, 300, 400]
    assert ticks(Axis(1.25, 6, 0, 1)) == [2, 3, 4, 5, 6]
    np.testing.assert_allclose(ticks(Axis(0, 1e-3, 0, 1)), [0, 2e-4, 4e-4, 6e-4, 8e-4, 1e-3])
    assert ticks(Axis(3, 2000, 0, 1, logarithmic=True)) == [10, 100, 1000]
    assert ticks(Axis(1, 1e30, 0, 1, logarithmic=True), 5)[0] == 1
    assert ticks(Axis(40, 160, 0, 1, logarithmic=True)) == [50, 100, 150]


def test_places_on_an_axis() -> None:
    assert Axis(0, 10, 100, 0).place(2.5) == 75
    assert Axis(1, 100, 0, 50, logarithmic=True).place(10) == pytest.approx(25)


def test_long_curves_are_thinned_by_means() -> None:
    points = [(float(x), float(x % 2)) for x in range(1, 1001)]
    found = thin(points, 100)
    assert len(found) == 100
    assert found[0] == (10.0, 0.5)
    assert found[-1] == (1000.0, 0.5)
    assert len(thin(points[:-1], 100)) == 100
    assert thin([(1.0, math.nan), (2.0, 4.0), (3.0, math.nan), (4.0, math.nan)], 2)[0] == (2.0, 4.0)


def test_values_as_a_person_reads_them() -> None:
    told = [shown(value, "number") for value in (0.123456, 3.14159, 31.4159, 31415.9, math.nan)]
    assert told == ["0.123", "3.142", "31.42", "31,416", "–"]
    assert [shown(value, "rate") for value in (0, 1e-3, 2.5e-5, 0.02)] == ["0", "1.0e-3", "2.5e-5", "0.02"]


@pytest.mark.parametrize(
    "points",
    [[], [(5, 2.0)], [(5, 0.0), (6, 0.0)], [(1, math.nan)], [(1, 1.0), (2, math.inf), (3, 2.0)]],
)
@pytest.mark.parametrize("logarithmic", [True, False])
def test_charts_of_little(points: list[tuple[float, float]], logarithmic: bool) -> None:
    chart = Chart("t", [Series("<s>", points)], logarithmic=logarithmic, best=5)
    parsed(chart_svg(chart))
    assert "nan" not in chart_svg(chart)
    assert all(0 <= x <= 400 and 0 <= y <= 220 for line in marks(chart) for _, x, y, _ in line["points"])


def test_a_gap_is_no_line() -> None:
    chart = Chart("t", [Series("s", [(1, 1.0), (2, math.nan), (3, 2.0), (4, 3.0)])])
    path = re.search(r'class="line line0" d="([^"]*)"', chart_svg(chart))
    assert path is not None
    assert re.sub(r"[\d. ]", "", path[1]) == "MML"


# ---- in a browser ----


VALUE = "document.querySelector('.value').textContent"
RIGHT_END = "(box => [box.right - 8, box.top + 50])(document.querySelector('.chart').getBoundingClientRect())"
SHADES = """[...document.querySelectorAll('.map')[1].querySelectorAll('.weight')]
    .map(cell => Number(cell.getAttribute('fill-opacity')))"""
PICK = """(select => { select.value = '[1,null]'; select.dispatchEvent(new Event('change')); })
    (document.querySelector('#picker select'))"""


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here")
def test_in_a_browser(tmp_path: Path) -> None:
    """Values under the pointer and by keys, the slider, another head; no complaint, and a phone scrolls down only."""
    make_run(tmp_path / "run", [*HOSTILE, *(f"word{number}" for number in range(20))])
    write_report(tmp_path / "run", tmp_path / "report.html")
    with browser(tmp_path / "profile") as tab:
        tab.media(width=360, height=700, scheme="dark")
        tab.open(tmp_path / "report.html")
        assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(18, 22, 27)"
        tab.media(width=1200, height=900)
        assert tab.evaluate(VALUE) == "at the end: training 1.5, validation 1.25"
        tab.evaluate("document.querySelector('.chart').focus()")
        tab.press("ArrowLeft")
        assert tab.evaluate(VALUE) == "step 300: training 2, validation 1.667"
        tab.press("Home")
        tab.point(*tab.evaluate(RIGHT_END))
        assert tab.evaluate(VALUE).startswith("step 400")
        last = tab.evaluate(SHADES)
        tab.evaluate("byId('moment').focus()")
        tab.press("Home")
        assert tab.evaluate("byId('told').textContent") == "100 · BLEU 7.0 · sharpness 0.123 · best so far"
        assert tab.evaluate(SHADES) != last
        tab.evaluate(PICK)
        assert tab.evaluate("document.querySelector('#picker select').selectedOptions[0].text") == "Layer 1, sharpest"
        assert tab.evaluate(SHADES) == [1, *[0] * (len(last) - 1)]
        tab.evaluate("document.querySelectorAll('.heat-map')[1].focus()")
        tab.press("ArrowRight")
        said = tab.evaluate("document.querySelectorAll('.map .value')[1].textContent")
        assert said == f"“x” looks at “{HOSTILE[1]}”: 0%"
        tab.evaluate("byId('play').click()")
        assert tab.evaluate("byId('play').textContent") == "Stop"
        tab.evaluate("byId('play').click()")
        assert tab.complaints == []
