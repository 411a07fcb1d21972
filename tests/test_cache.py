"""The cache: made whole or not at all, found by all it was made from, and never the reason that a run fails."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from sightline import cache as cache_module
from sightline.cache import Cache
from sightline.errors import SightlineError


def test_a_disk_that_fills_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(folder: Path) -> dict[str, Any]:
        raise OSError(28, "No space left on device")

    said: list[str] = []
    monkeypatch.setattr(cache_module.tempfile, "tempdir", str(tmp_path))
    with pytest.raises(SightlineError, match=r"cannot write: the disk is full \(TMPDIR names another"):
        Cache(tmp_path / "c", said.append).entry("x", {}, fails)
    assert said == [f"{tmp_path / 'c'}: cannot write: the disk is full; the tokens go to a temporary folder instead"]
    assert not list((tmp_path / "c").iterdir())


def test_the_first_of_two_that_make_the_same_wins(tmp_path: Path) -> None:
    store = Cache(tmp_path)

    def slow(folder: Path) -> dict[str, Any]:
        store.entry("x", {"n": 1}, lambda other: {"who": "quick"})
        return {"who": "slow"}

    assert store.entry("x", {"n": 1}, slow).facts == {"who": "quick"}
    assert len(list(tmp_path.iterdir())) == 1


def test_what_was_not_used_for_longest_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fill(folder: Path) -> dict[str, Any]:
        (folder / "data").write_bytes(bytes(1000))
        return {}

    monkeypatch.setattr(cache_module, "MOST_BYTES", 3000)
    store = Cache(tmp_path)
    for number in range(3):
        os.utime(store.entry("x", {"n": number}, fill).folder, (number, number))
    abandoned = tmp_path / ".making-x"
    abandoned.mkdir()
    os.utime(abandoned, (3, 3))
    theirs = tmp_path / ".making-y"  # by another run: begun long ago, but written to just now, and large
    theirs.mkdir()
    (theirs / "data").write_bytes(bytes(5000))
    os.utime(theirs, (3, 3))
    store.entry("x", {"n": 0}, fill)  # used again
    store.entry("x", {"n": 3}, fill)
    shutil.rmtree(theirs)  # it is there
    left = [json.loads((path / "manifest.json").read_text())["key"]["n"] for path in tmp_path.iterdir()]
    assert sorted(left) == [0, 3]


def test_where_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert Cache.chosen("auto").folder == tmp_path / "sightline" / "tokens"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Cache.chosen("auto").folder == tmp_path / ".cache" / "sightline" / "tokens"
    assert Cache.chosen("~/mine").folder == tmp_path / "mine"
    assert Cache.chosen(None).folder is None
