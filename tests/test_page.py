"""The alignment page as its reader meets it: in a real browser where there is one, and by its sources everywhere."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from html.parser import HTMLParser
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from sightline.plot import ModelView, Page, SentenceView, html, save
from tests.browser import CHROMIUM, Tab, browser

PROBE = (Path(__file__).parent / "probe.js").read_text(encoding="utf-8")
VIEWS = ("lines", "text", "grid")
LONGEST = "Donaudampfschifffahrtsgesellschaftskapitän"
SOURCE = ["The", "representatives", "of", "the", "Danube", "steamship", "company's", "captain", "said,", "again,"] * 6
TARGET = ["Die", "Vertreter", "des", f"{LONGEST}s", "sagten", "noch", "einmal,", "daß", "es", "Verspätungen"] * 6
HOSTILE = [
    "</script><script>window.hit=1</script>",
    "<img/onerror=window.hit=1>",
    "\"quoted\" & 'single'",
    "<b>bold</b>",
    "<!--",
    "{{data}}",
]
AT_REST = "Point at a word, or move to it with Tab and the arrow keys; Escape lets go."


def attention(targets: int, sources: int, seed: int = 0) -> NDArray[np.float64]:
    """`(2, T, S)`: two heads that look along the diagonal, and a little everywhere."""
    spread = np.random.default_rng(seed).dirichlet(np.full(sources, 0.1), size=(2, targets))
    weights: NDArray[np.float64] = 0.7 * np.eye(targets, sources) + 0.3 * spread
    return weights


def long_view(name: str, seed: int = 0) -> ModelView:
    layers = [attention(len(TARGET), len(SOURCE), seed + number) for number in range(2)]
    links = {(place, place) for place in range(0, 60, 3)}
    return ModelView(name, SOURCE, TARGET, layers, (0, 1), links, -0.5, "a note of some length about these rows")


def small_view(name: str = "small") -> ModelView:
    """Weights that one can follow by hand."""
    layer = np.array([[[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]], [[0.8, 0.2, 0.0], [0.0, 0.25, 0.75]]])
    return ModelView(name, ["the", "old", "house"], ["das", "Haus"], [layer], (0, 1), {(0, 0), (2, 1)})


# ---- by its sources ----


def source(name: str) -> str:
    return files("sightline.plot").joinpath(name).read_text(encoding="utf-8")


def palette(dark: bool) -> dict[str, NDArray[np.float64]]:
    """The colours of a scheme by name, red, green and blue from 0 to 1."""
    blocks = re.findall(r":root \{(.*?)\}", source("page.css"), re.DOTALL)
    found = dict(re.findall(r"--([\w-]+): ([^;]+);", blocks[dark]))
    triples = {name: [int(part) for part in text.split()] for name, text in found.items() if name == "blue"}
    for name, text in found.items():
        if re.fullmatch("#[0-9a-f]{6}", text):
            triples[name] = [int(text[place : place + 2], 16) for place in (1, 3, 5)]
    return {name: np.array(triple) / 255 for name, triple in triples.items()}


def contrast(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """As WCAG 2 counts it."""
    linear = [np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4) for part in (one, other)]
    low, high = sorted(float(part @ [0.2126, 0.7152, 0.0722]) for part in linear)
    return (high + 0.05) / (low + 0.05)


def test_contrast_of_black_and_white_by_hand() -> None:
    assert contrast(np.zeros(3), np.ones(3)) == pytest.approx(21)
    assert contrast(np.full(3, 119 / 255), np.ones(3)) == pytest.approx(4.48, abs=0.01)  # #777 on white


@pytest.mark.parametrize("dark", [False, True])
def test_the_palettes_letters_stand_out_on_every_shade(dark: bool) -> None:
    colours = palette(dark)
    for ground in ("paper", "card"):
        for letters in ("ink", "muted"):
            assert contrast(colours[letters], colours[ground]) >= 4.5
        assert contrast(colours["focus"], colours[ground]) >= 3
        turn = float(re.search(r"const STRONG = ([\d.]+);", source("page.js"))[1])  # type: ignore[index]
        for weight in np.linspace(0, 1, 201):
            behind = np.sqrt(weight) * colours["blue"] + (1 - np.sqrt(weight)) * colours[ground]
            assert contrast(colours["on-blue" if weight >= turn else "on-light"], behind) >= 4.5, (ground, weight)


def test_every_control_has_a_name_and_every_focus_a_mark() -> None:
    seen: list[tuple[str, dict[str, str | None]]] = []

    class Elements(HTMLParser):
        def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
            seen.append((tag, dict(attributes)))

    Elements().feed(source("page.html"))
    labelled = {attributes.get("for") for tag, attributes in seen if tag == "label"}
    controls = [attributes for tag, attributes in seen if tag in ("input", "select", "button")]
    assert len(controls) >= 6
    assert all(one.get("aria-label") or one["id"] in labelled for one in controls)
    assert re.search(r":focus-visible[^{]*\{ outline: 3px solid", source("page.css"))
    assert not re.search(r"outline: (none|0)", source("page.css"))
    places = re.findall(r"tabindex: ([^,]+)", source("page.js"))
    assert len(places) == 4
    assert set(places) <= {"-1", "index === 0 ? 0 : -1", "row === 0 ? 0 : -1"}


# ---- in a browser ----

Show = Callable[..., Tab]


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    if CHROMIUM is None:
        pytest.skip("there is no Chromium here")
    with browser(tmp_path_factory.mktemp("profile")) as tab:
        yield tab


@pytest.fixture
def show(chromium: Tab, tmp_path: Path) -> Iterator[Show]:
    """`show(model, ..., width=360)`: one sentence of these models in the browser. No complaint may come of it."""
    chromium.complaints.clear()

    def opened(*models: ModelView, sentences: int = 1, **desk: Any) -> Tab:
        save(html(Page([SentenceView(models, "A reference.")] * sentences, "a title")), tmp_path / "alignment.html")
        chromium.media(**desk)
        chromium.point(1, 1)
        chromium.open(tmp_path / "alignment.html")
        chromium.evaluate(PROBE)
        chromium.settle()
        return chromium

    yield opened
    assert chromium.complaints == []


def word(side: str, index: int, panel: int = 0) -> str:
    return (
        f"document.querySelectorAll('.panel')[{panel}].querySelectorAll('.{side}[data-side], .{side} .word')[{index}]"
    )


def point_at(tab: Tab, element: str) -> None:
    tab.evaluate(f"{element}.scrollIntoView({{block: 'center'}})")
    tab.point(*tab.evaluate(f"probe.middle({element})"))
    tab.settle()


def numbers(tab: Tab, side: str, panel: int = 0) -> list[str]:
    found = f"document.querySelectorAll('.panel')[{panel}].querySelectorAll('.{side} .number')"
    result: list[str] = tab.evaluate(f"[...{found}].map(one => one.textContent)")
    return result


def told(tab: Tab, panel: int = 0) -> str:
    return str(tab.evaluate(f"document.querySelectorAll('.readout')[{panel}].textContent"))


def choose_view(tab: Tab, view: str) -> None:
    tab.evaluate(f"byId('view-{view}').click()")
    tab.settle()


def focus(tab: Tab) -> str:
    """What has the keyboard: a control by its name, a word by its letters."""
    here = "document.activeElement"
    return str(tab.evaluate(f"{here}.title || {here}.id || {here}.ariaLabel || {here}.tagName"))


def test_pointing_at_a_word_shows_its_weights(show: Show) -> None:
    tab = show(small_view())
    point_at(tab, word("target", 1))
    assert numbers(tab, "source") == ["", "25%", "75%"]
    assert told(tab) == "“Haus” looked at house 75%, old 25%"
    assert tab.evaluate(f"{word('source', 2)}.className") == "word shaded strong linked"
    assert tab.evaluate(f"{word('target', 1)}.className") == "word active"
    assert tab.evaluate("[...document.querySelectorAll('.stage path')].map(one => one.className.baseVal)") == [
        *("link", "", "")
    ]
    point_at(tab, word("source", 1))
    assert numbers(tab, "target") == ["20%", "25%"]
    assert told(tab) == "“old” was looked at by Haus 25%, das 20%"
    tab.press("Escape")
    assert told(tab) == AT_REST
    point_at(tab, word("source", 0))
    tab.point(1, 1)
    tab.settle()
    assert told(tab) == AT_REST
    assert [*numbers(tab, "source"), *numbers(tab, "target")] == [""] * 5
    assert tab.evaluate("document.title") == "a title · Sightline"


def test_the_keyboard_alone_reaches_everything(show: Show) -> None:
    tab = show(small_view("one"), small_view("two"), sentences=2)
    stops = []
    for _ in range(10):
        tab.press("Tab")
        stops.append(focus(tab))
        assert tab.evaluate("probe.ring()") >= 3, stops
    panel = ["the", "das"]
    assert stops == [
        *("sentence", "next", "view-lines", "links"),
        *("Layer and head of one", *panel, "Layer and head of two", *panel),
    ]
    assert told(tab, 1) == "“das” looked at the 80%, old 20%"
    tab.press("Tab", 6, shift=True)  # to the switch for links
    assert focus(tab) == "links"
    tab.press(" ")
    assert tab.evaluate("document.querySelectorAll('path.link').length") == 0
    tab.press("Tab", shift=True)
    for view in ("text", "grid"):
        tab.press("ArrowRight")
        assert tab.evaluate("document.body.className") == f"{view}-view"
    tab.press("Tab", shift=True)
    tab.press("Enter")  # the next sentence is the last: the button is switched off, and the focus stays near
    assert (tab.evaluate("state.sentence"), focus(tab)) == (1, "sentence")


def test_words_by_arrow_keys_and_escape(show: Show) -> None:
    tab = show(small_view())
    tab.press("Tab", 5)  # a single sentence has no next one
    assert focus(tab) == "the"
    assert told(tab) == "“the” was looked at by das 80%"
    for key, expected in (
        *(("ArrowRight", "old"), ("ArrowDown", "Haus"), ("ArrowUp", "house"), ("Home", "the"), ("ArrowLeft", "the")),
        *(("End", "house"), ("ArrowDown", "Haus"), ("ArrowLeft", "das")),
    ):
        tab.press(key)
        assert focus(tab) == expected, key
    assert numbers(tab, "source") == ["80%", "20%", ""]
    tab.press("Escape")
    assert (focus(tab), told(tab), numbers(tab, "source")) == ("BODY", AT_REST, [""] * 3)
    tab.press("Tab", shift=True)  # on from where one was, to the word one was at
    assert focus(tab) == "house"


def test_a_layer_and_a_head_are_chosen_by_keyboard(show: Show) -> None:
    tab = show(small_view("one"), small_view("two"))
    picker = "document.querySelector('.panel-head select')"
    assert tab.evaluate(f"[...{picker}.options].map(one => one.text)") == [
        *("All layers, average", "Layer 0, average", "Layer 0, head 0", "Layer 0, head 1, used to align")
    ]
    tab.evaluate(f"{picker}.focus()")
    tab.press("ArrowUp")
    assert focus(tab) == "Layer and head of one"
    for panel, expected in ((0, ["", "", "100%"]), (1, ["", "25%", "75%"])):
        point_at(tab, word("target", 1, panel))
        assert numbers(tab, "source", panel) == expected
    tab.evaluate(f"{picker}.focus()")
    tab.press("ArrowUp", 2)
    point_at(tab, word("target", 0))
    assert numbers(tab, "source") == ["90%", "10%", ""]


def copying_view(layers: Sequence[NDArray[np.float64]]) -> ModelView:
    """A model that copies its second word from the second, with or without attention."""
    copied = {"Copying": np.array([[0.1, 0.0, 0.0], [0.0, 0.6, 0.2]])}
    return ModelView("copies", ["the", "old", "house"], ["das", "Haus"], layers, beside=copied)


def test_what_was_copied_is_chosen_like_a_layer(show: Show) -> None:
    tab = show(copying_view([np.array([[[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]])] * 2), copying_view([]))
    options = "[...document.querySelectorAll('.panel-head select')[{}].options].map(one => one.text)"
    layers = ["All layers, average, used to align", "Layer 0", "Layer 1"]
    assert tab.evaluate(options.format(0)) == [*layers, "Copying"]
    assert tab.evaluate(options.format(1)) == ["Copying, used to align"]
    for panel, expected in ((0, ["", "", "100%"]), (1, ["", "60%", "20%"])):  # it is in no average
        point_at(tab, word("target", 1, panel))
        assert numbers(tab, "source", panel) == expected
    tab.evaluate("document.querySelector('.panel-head select').focus()")
    tab.press("ArrowDown", 3)
    point_at(tab, word("target", 1))
    assert numbers(tab, "source") == ["", "60%", "20%"]


def test_models_stand_side_by_side(show: Show) -> None:
    without = ModelView("seq2seq", ["the", "old", "house"], ["ein", "Haus"], note="it has none")
    tab = show(small_view("one"), small_view("two"), without, width=1440)
    boxes = tab.evaluate("probe.all('.panel').map(one => one.getBoundingClientRect().toJSON())")
    assert len({box["top"] for box in boxes}) == len({box["height"] for box in boxes}) == 1
    assert all(one["right"] < other["left"] for one, other in pairwise(boxes))
    assert len(set(tab.evaluate("probe.all('.stage').map(one => one.getBoundingClientRect().top)"))) == 1
    point_at(tab, word("source", 1))  # the same word of the same sentence answers in every model that can
    assert [numbers(tab, "target", panel) for panel in range(3)] == [["20%", "25%"], ["20%", "25%"], ["", ""]]
    assert told(tab, 1) == "“old” was looked at by Haus 25%, das 20%"
    assert told(tab, 2).startswith("This model has no attention")
    tab.media(width=360, height=700)
    tab.settle()
    lefts = tab.evaluate("probe.all('.panel').map(one => one.getBoundingClientRect().left)")
    assert len(set(lefts)) == 1  # one under the other where there is no room


@pytest.mark.parametrize("width", [360, 820, 1440])
@pytest.mark.parametrize("view", VIEWS)
def test_sixty_words_are_readable(show: Show, width: int, view: str) -> None:
    tab = show(long_view("one"), long_view("two", 5), width=width, height=800)
    choose_view(tab, view)
    words = ".head" if view == "grid" else ".word"
    assert tab.evaluate(f"document.querySelectorAll('{words}').length") == 240
    assert tab.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    assert tab.evaluate("document.documentElement.scrollHeight > innerHeight")
    assert tab.evaluate(f"probe.smallest('{words}')") >= 12
    assert tab.evaluate("probe.cut()") == []
    assert tab.evaluate(f"probe.overlapping('{words}')") == []
    point_at(tab, word("target", 57))
    assert told(tab).startswith("“daß” looked at captain ")
    assert tab.evaluate("probe.inSight(document.querySelector('.readout'))")
    assert tab.evaluate("probe.cut()") == []


def test_sixty_words_by_keyboard_with_the_pointer_in_the_way(show: Show) -> None:
    """Each word can be seen when the keyboard reaches it, and the pointer that rests among them does not interfere."""
    tab = show(long_view("one"), height=500)
    point_at(tab, word("source", 20))
    # Where Tab begins after that scrolling is each browser's own affair.
    tab.evaluate("document.getElementById('sentence').focus({preventScroll: true})")
    tab.press("Tab", 4)
    for place in range(60):
        here = tab.evaluate("[document.activeElement.dataset.index, probe.inSight(document.activeElement)]")
        assert here == [str(place), True]
        if place % 20 == 19:
            tab.settle()
            assert told(tab).startswith(f"“{SOURCE[place]}” was looked at by {TARGET[place]} ")
        tab.press("ArrowDown")
    tab.press("ArrowRight")
    assert tab.evaluate("document.activeElement.dataset.index") == "59"
    assert tab.evaluate("document.activeElement.dataset.side") == "target"


def test_a_long_page_keeps_its_place(show: Show) -> None:
    """When another head is chosen, and when the window changes its size."""
    tab = show(long_view("one"), long_view("two"), height=800)
    tab.evaluate("scrollTo(0, 600)")
    tab.evaluate(
        "(picker => { picker.selectedIndex = 0; picker.dispatchEvent(new Event('change')); })"
        "(document.querySelector('.panel-head select'))"
    )
    tab.settle()
    assert tab.evaluate("scrollY") == 600
    tab.media(width=1240, height=700)
    tab.settle()
    assert tab.evaluate("scrollY") > 400


def test_sixty_words_in_the_grid_by_keyboard(show: Show) -> None:
    tab = show(long_view("one"), width=820, height=700)
    choose_view(tab, "grid")
    tab.evaluate("document.querySelector('.grid [tabindex=\"0\"]').focus()")
    for key, times in (("ArrowRight", 8), ("End", 1), ("ArrowDown", 30), ("ArrowLeft", 30), ("ArrowUp", 25)):
        for _ in range(times):
            tab.press(key)
            assert tab.evaluate("probe.inSight(document.activeElement)"), focus(tab)
    assert tab.evaluate("[document.activeElement.dataset.row, document.activeElement.dataset.column]") == ["5", "29"]
    assert told(tab).startswith("“noch” looked at “again,”: ")
    tab.press("Home")
    assert focus(tab) == "noch"


@pytest.mark.parametrize("view", VIEWS)
def test_letters_stand_out_by_day_and_by_night(show: Show, view: str) -> None:
    grounds = set()
    for scheme in ("light", "dark"):
        tab = show(small_view("one"), long_view("two"), scheme=scheme)
        choose_view(tab, view)
        grounds.add(tab.evaluate("getComputedStyle(document.querySelector('.panel')).backgroundColor"))
        for place in (None, word("target", 1), word("source", 2)):
            if place:
                point_at(tab, place)
            found = tab.evaluate("probe.texts()")
            assert len(found) > 100
            assert [one for one in found if one["contrast"] < 4.5] == []
    assert grounds == {"rgb(255, 255, 255)", "rgb(23, 27, 33)"}


@pytest.mark.parametrize("view", VIEWS)
def test_markup_in_a_sentence_stays_text(show: Show, view: str) -> None:
    hostile = ModelView(HOSTILE[1], HOSTILE, HOSTILE[::-1], [attention(6, 6)], note=HOSTILE[0])
    tab = show(hostile)
    choose_view(tab, view)
    point_at(tab, word("target", 4))
    words = "probe.all('.word > :first-child, .head').map(one => one.textContent)"
    assert tab.evaluate(words) == [*HOSTILE, *HOSTILE[::-1]]
    assert tab.evaluate("document.querySelectorAll('main :is(script, img, b)').length") == 0
    assert tab.evaluate("window.hit === undefined")
    assert HOSTILE[1] in told(tab)
    assert tab.evaluate("document.querySelector('.note').textContent") == HOSTILE[0]
