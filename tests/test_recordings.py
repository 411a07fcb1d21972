"""What a run keeps for its report: nothing lost, nothing that grows without end, nothing that breaks the report."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sightline import links, recordings
from sightline.errors import SightlineError
from sightline.recordings import (
    Seen,
    Translated,
    forget_attention,
    load_attention,
    load_facts,
    load_translations,
    save_attention,
    save_facts,
    save_translations,
    thinned_out,
)


def seen(source: str = "a b", target: str = "x", layers: int = 2, value: float = 0.25) -> Seen:
    words = source.split(), target.split()
    weights = np.full((3, len(words[1]), len(words[0])), value)
    return Seen(*words, [weights] * layers)


# ---- sharpness ----


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ([0, 1, 0, 0], 1.0),
        ([0.25, 0.25, 0.25, 0.25], 0.0),
        ([0.5, 0.5, 0, 0], 0.5),  # 1 - log 2 / log 4
        ([0.2, 0.2, 0, 0], 0.5),  # what a window took away does not count
        ([0.5, 0.25, 0.25, 0], 0.25),  # 1 - 1.5 bits / 2 bits
        ([0.9, 0.1], 1 - 0.4689956),
    ],
)
def test_sharpness_by_hand(row: list[float], expected: float) -> None:
    np.testing.assert_allclose(links.sharpness(np.array([row])), [expected], atol=1e-7)


def test_sharpness_has_one_number_for_each_row_that_decides() -> None:
    rows = np.array([[[1.0, 0.0], [0.0, 0.0]], [[0.5, 0.5], [0.0, 1.0]]])
    np.testing.assert_allclose(links.sharpness(rows), [1, 0, 1], atol=1e-12)
    assert links.sharpness(np.ones((3, 1))).size == 0
    assert links.sharpness(np.zeros((2, 4))).size == 0
    half = links.sharpness(np.full((1, 4), 0.25, np.float16))
    assert half.dtype == np.float64


# ---- attention ----


def test_attention_comes_back_in_half_precision(tmp_path: Path) -> None:
    for step, value in ((100, 0.1), (20, 0.7)):
        save_attention(tmp_path, step, [seen(value=value), seen("日本 <b>", "ü 'q'", 1, value)])
    found = load_attention(tmp_path)
    assert list(found) == [20, 100]
    assert (found[20][1].source, found[20][1].target) == (["日本", "<b>"], ["ü", "'q'"])
    assert [weights.shape for weights in found[100][0].layers] == [(3, 1, 2)] * 2
    assert found[100][0].layers[0].dtype == np.float16
    np.testing.assert_allclose(found[100][0].layers[0], 0.1, atol=1e-3)


def test_only_recordings_of_the_newest_ones_sentences_are_shown(tmp_path: Path) -> None:
    save_attention(tmp_path, 1, [seen("other words")])
    save_attention(tmp_path, 2, [seen(layers=1)])
    save_attention(tmp_path, 3, [seen()])
    save_attention(tmp_path, 4, [seen()])
    assert list(load_attention(tmp_path)) == [3, 4]
    assert load_attention(tmp_path / "none") == {}


def test_a_run_that_goes_on_forgets_what_it_will_do_again(tmp_path: Path) -> None:
    for step in (10, 20, 30):
        save_attention(tmp_path, step, [seen()])
    forget_attention(tmp_path, after=20)
    assert list(load_attention(tmp_path)) == [10, 20]
    forget_attention(tmp_path / "none", after=0)


def test_recordings_do_not_grow_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recordings, "MOST_RECORDINGS", 5)
    for step in range(1, 41):
        save_attention(tmp_path, step, [seen()])
    kept = list(load_attention(tmp_path))
    assert len(kept) == 5
    assert (kept[0], kept[-1]) == (1, 40)
    assert max(np.diff(kept)) <= 20


def test_what_is_given_up_leaves_an_even_spread() -> None:
    assert thinned_out([1, 2, 3], 3) == []
    assert thinned_out([1, 2, 3, 4], 3) == [2]
    assert thinned_out([10, 20, 21, 30], 3) == [21]
    assert thinned_out([0, 10, 20, 30, 40, 45, 50], 5) == [10, 45]
    assert thinned_out([1, 2, 3], 1) == [2]  # the first and the last stay


# ---- facts and translations ----


def test_facts_and_translations_come_back(tmp_path: Path) -> None:
    assert (load_facts(tmp_path), load_translations(tmp_path)) == ({}, None)
    save_facts(tmp_path, {"recipe": "luong", "data": "ü"})
    kept = Translated(7, "13a", ["a"], ["b"], ["c"])
    save_translations(tmp_path, kept)
    assert load_facts(tmp_path) == {"recipe": "luong", "data": "ü"}
    assert load_translations(tmp_path) == kept


@pytest.mark.parametrize(
    ("load", "name", "content"),
    [
        (load_facts, "facts.json", b"{"),
        (load_translations, "translations.json", b"[]]"),
        (load_translations, "translations.json", b'{"step": 1}'),
        (
            load_translations,
            "translations.json",
            b'{"step":1,"tokenize":"13a","sources":["a"],"references":[],"translations":[]}',
        ),
        (load_attention, "attention/step-0000003.safetensors", b"cut short"),
    ],
)
def test_damaged_files_are_named(load: Callable[[Path], Any], name: str, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "watch" / name
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    with pytest.raises(SightlineError, match=rf"{path.name}: damaged.*remove it"):
        load(tmp_path)
