"""Pictures: what they say, that they are well-formed, and that no text in a sentence can break them."""

import base64
import hashlib
import json
import re
import subprocess
import sys
import warnings
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sightline.errors import SightlineError
from sightline.plot import (
    Heatmap,
    ModelView,
    Page,
    SentenceView,
    curve_figure,
    html,
    length_figure,
    line_chart,
    png,
    save,
    svg,
    terminal,
)
from sightline.plot.heatmap import clean, shade
from sightline.plot.widths import clusters, display_width, fit

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = [
    "</script><script>alert(1)</script>",
    "\"quoted\" & 'single'",
    "<!--",
    "]]>",
    "{{data}}",
    "a\u2028b",
    "$x_1$",
]
WORLD = ["私は", "元気", "e\u0301te\u0301", "👩‍🚀", "🇩🇪", "שלום", "مرحبا", "नमस्ते", "\x1b[31mred\x07", "\ud800"]


def heatmap(source, target, title="", links=()):
    weights = np.random.default_rng(len(source)).dirichlet(np.ones(max(len(source), 1)), size=len(target))
    return Heatmap(source, target, weights[:, : len(source)], title, links)


def sixty(prefix="word"):
    return [f"{prefix}{number}" for number in range(60)]


def view(source, target, **options):
    layers = [np.random.default_rng(0).dirichlet(np.ones(max(len(source), 1)), size=(2, len(target)))] * 3
    return ModelView("model", source, target, [layer[:, :, : len(source)] for layer in layers], **options)


def content(page):
    """The JSON inside the page, found as a browser finds it: up to the first end tag."""
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script', html(page), re.DOTALL)[1])


def plain(text):
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


# ---- what all share ----


def test_weights_must_fit_the_words():
    with pytest.raises(ValueError, match=r"weights \(2, 2\) for 1 target and 2 source words"):
        Heatmap(["a", "b"], ["c"], np.zeros((2, 2)))
    with pytest.raises(ValueError, match="link 0-1 for 1 target and 2 source words"):
        Heatmap(["a", "b"], ["c"], np.zeros((1, 2)), links=[(0, 1)])


def test_shades_are_square_roots_within_bounds():
    np.testing.assert_allclose(shade(np.array([0.0, 0.25, 1.0, 1.5, -1.0, np.nan])), [0, 0.5, 1, 1, 0, 0])


def test_clean_takes_out_what_no_picture_can_hold():
    assert clean("a\x1b[0m\x00\n\x9b\ud800\u202e\ufffe\u2028é") == "a\ufffd[0m" + "\ufffd" * 7 + "é"


@pytest.mark.parametrize(
    ("text", "width", "count"),
    [
        ("abc", 3, 3),
        ("日本", 4, 2),
        ("e\u0301", 1, 1),
        ("👩‍🚀", 2, 1),
        ("🇩🇪🇫🇷", 4, 2),
        ("👍🏽", 2, 1),
        ("☀\ufe0f", 2, 1),
        ("", 0, 0),
    ],
)
def test_columns_of_wide_and_combined_characters(text, width, count):
    assert display_width(text) == width
    assert len(clusters(text)) == count


def test_fit_pads_and_cuts():
    assert fit("ab", 4) == "ab  "
    assert fit("ab", 4, "right") == "  ab"
    assert fit("abcdef", 4) == "abc…"
    assert fit("日本語", 4) == "日… "
    assert fit("日本", 0) == ""


def test_pictures_need_neither_torch_nor_matplotlib_to_be_imported():
    code = (
        "import sys, sightline.plot, sightline.links; print([m for m in ('torch', 'matplotlib') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


# ---- terminal ----


def test_a_small_heatmap_by_hand():
    picture = Heatmap(["ab", "c"], ["X", "Yz"], np.array([[0.7, 0.3], [0.01, 0.4]]), "title")
    assert terminal(picture, 80, color=False).split("\n") == [
        "title",
        "   a",
        "   b c",
        " X ██▒▒",
        "Yz · ▓▓",
        "░ from 0.03  ▒ from 0.16  ▓ from 0.36  █ from 0.64",
    ]


def test_color_changes_nothing_but_the_color():
    picture = heatmap(["the", "house"], ["das", "Haus"])
    painted = terminal(picture, 80, color=True)
    assert "\x1b[38;5;208m" in painted
    assert plain(painted) == terminal(picture, 80, color=False)
    assert "\x1b" not in terminal(picture, 80, color=False)


def test_color_is_for_terminals_that_want_it(monkeypatch):
    picture = heatmap(["a"], ["b"])
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert "\x1b" not in terminal(picture, 80)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert "\x1b" in terminal(picture, 80)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in terminal(picture, 80)


@pytest.mark.parametrize("width", [1, 5, 12, 30, 79, 80, 120, 200])
@pytest.mark.parametrize("words", [["a"], ["the", "house"], WORLD, HOSTILE, sixty(), ["long" * 30]])
@pytest.mark.parametrize("color", [True, False])
def test_no_line_is_wider_than_asked(words, width, color):
    lines = plain(terminal(heatmap(words, words[::-1], "a title of some length"), width, color)).split("\n")
    assert max(display_width(line) for line in lines) <= width
    assert not any(ord(character) < 32 for line in lines for character in line)


def test_a_sentence_that_does_not_fit_becomes_a_list():
    picture = Heatmap(["house", "the", "old"], ["Haus"], np.array([[0.9, 0.005, 0.095]]))
    assert terminal(picture, 6, color=False) == "Haus …"
    wide = Heatmap(sixty(), ["Haus"], np.eye(60)[:1])
    assert terminal(wide, 40, color=False) == "Haus ← word0 1.00"
    assert terminal(Heatmap(sixty(), ["Haus"], np.zeros((1, 60))), 40, color=False) == "Haus ← nothing"


def test_rows_line_up_under_their_labels():
    lines = terminal(heatmap(["私", "ab"], ["日本", "x"]), 80, color=False).split("\n")
    assert [display_width(line) for line in lines[-3:-1]] == [9, 9]


def test_the_terminal_says_when_there_is_nothing():
    assert terminal(heatmap(["a"], []), 80, color=False) == "(no target words)"
    assert terminal(heatmap([], ["a"]), 80, color=False) == "(no source words)"


def test_width_is_the_terminals_by_default(monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    assert max(map(display_width, terminal(heatmap(sixty(), ["Haus"]), color=False).split("\n"))) <= 20


# ---- SVG ----


def test_svg_has_every_word_and_a_tooltip_for_every_weight():
    picture = Heatmap(["a", "b"], ["c"], np.array([[0.25, 0.75]]), "A title", {(1, 0)})
    root = ElementTree.fromstring(svg(picture))
    assert [text.text for text in root.iter(f"{SVG}text")] == ["A title", "a", "b", "c"]
    cells = [cell for cell in root.iter(f"{SVG}rect") if cell.get("class") == "weight"]
    assert [cell.find(f"{SVG}title").text for cell in cells] == ["c ← a: 0.25", "c ← b: 0.75"]
    assert [cell.get("fill-opacity") for cell in cells] == ["0.500", "0.866"]
    assert len([cell for cell in root.iter(f"{SVG}rect") if cell.get("class") == "link"]) == 1


@pytest.mark.parametrize("words", [HOSTILE, WORLD, sixty(), ["w" * 500]])
def test_svg_is_well_formed_whatever_the_words(words):
    root = ElementTree.fromstring(svg(heatmap(words, words, words[0])))
    assert {element.tag for element in root.iter()} <= {
        SVG + name for name in ("svg", "title", "style", "rect", "g", "text", "path")
    }
    width, height = float(root.get("width")), float(root.get("height"))
    assert all(0 <= float(rect.get("x", 0)) <= width for rect in root.iter(f"{SVG}rect"))
    assert height > len(words) * 20


def test_svg_of_nothing_and_of_several():
    assert ElementTree.fromstring(svg([])).tag == f"{SVG}svg"
    ElementTree.fromstring(svg(heatmap(["a"], [])))
    ElementTree.fromstring(svg(heatmap([], [])))
    one, two = (ElementTree.fromstring(svg([heatmap(["a"], ["b"])] * count)) for count in (1, 2))
    assert float(two.get("height")) == 2 * float(one.get("height"))


def test_svg_loads_nothing():
    text = svg(heatmap(HOSTILE, HOSTILE))
    assert re.findall(r"https?://[^\"' ]+", text) == ["http://www.w3.org/2000/svg"]
    assert "<script" not in text


@settings(max_examples=40, deadline=None)
@given(st.lists(st.text(max_size=8), min_size=1, max_size=3))
def test_any_text_survives(words):
    picture = Heatmap(words, words, np.full((len(words), len(words)), 1 / len(words)), words[0])
    ElementTree.fromstring(svg(picture))
    lines = terminal(picture, 40, color=False).split("\n")
    assert max(map(display_width, lines)) <= 40
    model = ModelView(words[0], words, words, [picture.weights[None]])
    assert content(Page([SentenceView([model])]))["sentences"][0]["models"][0]["source"] == [clean(w) for w in words]


# ---- PNG ----


def assert_png(path):
    assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert path.stat().st_size > 500


@pytest.mark.parametrize("words", [["a", "b"], HOSTILE, WORLD, sixty()])
def test_png_is_written_without_a_warning(tmp_path, words):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        png(heatmap(words, words, "$title_", {(0, 0)}), tmp_path / "picture.png")
    assert_png(tmp_path / "picture.png")


def test_png_of_several_and_of_an_empty_translation(tmp_path):
    png([heatmap(["a"], ["b"], "one"), heatmap(["a"], [], "nothing")], tmp_path / "picture.png")
    assert_png(tmp_path / "picture.png")


def test_png_errors_say_how_to_mend_them(tmp_path, monkeypatch):
    picture = heatmap(["a"], ["b"])
    with pytest.raises(SightlineError, match="no sentence to draw"):
        png([], tmp_path / "picture.png")
    with pytest.raises(SightlineError, match=r"too many for one PNG"):
        png([picture] * 2000, tmp_path / "picture.png")
    with pytest.raises(SightlineError, match=r"picture.png: cannot write: its folder does not exist"):
        png(picture, tmp_path / "missing" / "picture.png")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(SightlineError, match=r"pip install 'sightline\[png\]'"):
        png(picture, tmp_path / "picture.png")


def test_charts(tmp_path):
    by_length = {"seq2seq": [("1-10", 20.0), ("11-20", 12.0)], "_luong $a$": [("11-20", 25.0), (">20", 24.0)]}
    length_figure(by_length, tmp_path / "length.png", "BLEU by length")
    curve_figure({"bahdanau": [(1, 3.0), (5.5, 20.0)]}, tmp_path / "curve.png")
    line_chart({}, tmp_path / "empty.png", "steps", "loss")
    for name in ("length", "curve", "empty"):
        assert_png(tmp_path / f"{name}.png")


# ---- page ----


def test_page_holds_words_links_and_weights():
    weights = [np.array([[[0.25, 0.75]], [[1.0, 0.0]]]), np.array([[[0.5, 0.5]]])]
    model = ModelView("m", ["a", "b"], ["c"], weights, (0, 1), {(1, 0)}, score=-0.12345, note="a note")
    found = content(Page([SentenceView([model], "ref")], "my run"))
    assert (found["title"], found["sentences"][0]["reference"]) == ("my run", "ref")
    held = found["sentences"][0]["models"][0]
    assert (held["source"], held["target"], held["links"], held["chosen"]) == (["a", "b"], ["c"], [[1, 0]], [0, 1])
    assert (held["heads"], held["score"], held["note"]) == ([2, 1], -0.123, "a note")
    quantised = np.frombuffer(base64.b64decode(held["weights"]), np.uint8) / 255
    np.testing.assert_allclose(quantised, [0.25, 0.75, 1, 0, 0.5, 0.5], atol=1 / 510)


@pytest.mark.parametrize("words", [HOSTILE, WORLD])
def test_page_text_cannot_become_markup(words):
    page = Page([SentenceView([view(words, words, note=words[0])], words[0])], words[0])
    text = html(page)
    assert "alert(1)</script>" not in text
    assert text.count("<script") == text.count("</script>") == 2
    assert content(page)["sentences"][0]["models"][0]["target"] == [clean(word) for word in words]
    assert text.encode("utf-8")


def test_page_loads_nothing_and_its_policy_names_its_own_script_and_style():
    text = html(Page([SentenceView([view(["a"], ["b"])])]))
    assert not re.search(r"https?:|src=|href=|@import|url\(", text)
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)[1]
    assert policy.startswith("default-src 'none'")
    for tag in ("style", "script"):
        inside = re.search(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)[1]
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    # The policy forbids them too; without them text has no way to turn into elements.
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(", text)
    assert not re.search(r'\sstyle="|\son\w+="', text)


def test_page_of_long_sentences_stays_small():
    sentences = [SentenceView([view(sixty(), sixty("wort"))])] * 5
    assert len(html(Page(sentences))) < 5 * (6 * 3600 * 4 / 3 + 2000) + 50_000


def test_page_of_nothing_of_an_empty_translation_and_of_a_model_without_attention():
    assert content(Page([]))["sentences"] == []
    assert content(Page([SentenceView([view(["a"], [])])]))["sentences"][0]["models"][0]["target"] == []
    held = content(Page([SentenceView([ModelView("seq2seq", ["a"], ["b"], score=float("nan"))])]))
    assert held["sentences"][0]["models"][0]["heads"] == []
    assert held["sentences"][0]["models"][0]["score"] is None


def test_page_weights_must_fit_the_words():
    with pytest.raises(ValueError, match=r"m, layer 0: weights \(1, 2, 2\) for 1 target"):
        html(Page([SentenceView([ModelView("m", ["a", "b"], ["c"], [np.zeros((1, 2, 2))])])]))


def test_page_refuses_links_and_heads_that_are_not_there():
    with pytest.raises(ValueError, match="link 1-0 for 1 target and 1 source words"):
        html(Page([SentenceView([view(["a"], ["b"], links={(1, 0)})])]))
    with pytest.raises(SightlineError, match="this model has layers 0 to 2"):
        html(Page([SentenceView([view(["a"], ["b"], chosen=(3, None))])]))


def test_save_writes_utf8_or_says_why_not(tmp_path):
    save("über\n", tmp_path / "page.html")
    assert (tmp_path / "page.html").read_bytes() == "über\n".encode()
    with pytest.raises(SightlineError, match=r"page.html: cannot write: its folder does not exist"):
        save("", tmp_path / "missing" / "page.html")
