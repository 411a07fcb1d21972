"""What steers a search by the CTranslate2 engine: the results of the PyTorch engine, token by token."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sightline
from sightline.engines.choice import Engines
from sightline.engines.ctranslate2 import CTranslate2Engine
from sightline.engines.pytorch import PyTorchEngine
from sightline.errors import SightlineError
from sightline.folder import open_files, save_config, save_tokenizers
from sightline.hypothesis import Request
from sightline.interop.ctranslate2 import convert
from sightline.interop.kept import is_export
from sightline.text import BOS, EOS
from tests.engines import WORDS, agree, make_folder, make_task, sentences


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("random") / "model", {"norm_position": "pre"})


@pytest.fixture(scope="module")
def exported(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same as an export, without the time to verify it."""
    files, output = open_files(folder), tmp_path_factory.mktemp("exports") / "out"
    convert(files, output)
    save_tokenizers(output, files.tokenizers)
    save_config(output, files.config)
    assert is_export(output)
    return output


class Both:
    """Both engines of a model, its sentences, and what greedy search makes of them."""

    def __init__(self, folder: Path) -> None:
        files = open_files(folder)
        self.ours, self.theirs = PyTorchEngine(files, "cpu"), CTranslate2Engine(files)
        self.sources, self.size = sentences(files), files.tokenizers.target.size
        self.greedy = [best.tokens for (best,) in self.ours.search(self.sources, make_task(beam=1))]

    def agree(self, requests: list[Request] | None = None, **options: Any) -> None:
        agree(self.ours, self.theirs, make_task(requests=requests or (), token_scores=True, **options), self.sources)
        agree(self.ours, self.theirs, make_task(requests=requests or (), **options), self.sources)


@pytest.fixture(scope="module")
def engines(folder: Path) -> Both:
    return Both(folder)


@pytest.mark.parametrize(
    "options",
    [
        {"stopping": "first"},
        {"stopping": "first", "n_best": 3},
        {"stopping": "hopeless"},
        {"stopping": "hopeless", "n_best": 4, "alpha": 0.5},
        {"stopping": "hopeless", "length_penalty": "none", "n_best": 2},
        {"stopping": "hopeless", "max_ratio": 0.5, "max_extra": 2, "n_best": 2},
        {"patience": math.inf, "n_best": 2},
        {"strategy": "greedy", "beam": 6, "groups": 3},
        {"seed": 4, "temperature": 0.5, "top_k": 3, "diversity": 0.1, "samples": 4},  # of no concern to a beam
        {"beam": 1, "length_penalty": "gnmt", "alpha": 0.7},
        {"beam": 1, "no_repeat": 1},
        {"beam": 1, "no_repeat": 2},
        {"beam": 1, "no_repeat": 2, "min_length": 12},
    ],
    ids=str,
)
def test_options(options: dict[str, Any], engines: Both) -> None:
    engines.agree(**options)


def test_repetitions_are_there_to_be_kept_out(engines: Both) -> None:
    bigrams = [[*pairwise(tokens)] for tokens in engines.greedy]
    assert sum(len(each) > len({*each}) for each in bigrams) >= 3


def test_prefixes_of_any_length(engines: Both) -> None:
    generator = np.random.default_rng(8)
    drawn = [tuple(generator.integers(4, engines.size, length).tolist()) for length in (0, 1, 2, 3, 5, 0) * 4]
    for options in ({}, {"no_repeat": 2}, {"min_length": 4}, {"max_ratio": 0.0, "max_extra": 2}, {"max_length": 5}):
        engines.agree([Request(prefix) for prefix in drawn], beam=1, **options)
    engines.agree([Request(prefix=(5,) * 12) for _ in drawn], beam=1, no_repeat=2)  # what was typed stays


def test_forbidden_everywhere_at_the_beginning_and_at_the_end(engines: Both) -> None:
    begun = {(BOS, *tokens[:count]) for tokens in engines.greedy for count in (1, 2, 3) if len(tokens) >= count}
    for phrases in (
        {tokens[:1] for tokens in map(tuple, engines.greedy)},
        {tuple(tokens[place : place + 2]) for tokens in engines.greedy for place in (1, 2)} - {()},
        {(tokens[-1], EOS) for tokens in engines.greedy if tokens},
        {(BOS, *tokens, EOS) for tokens in engines.greedy},
        begun,
        {phrase for phrase in begun if len(phrase) > 2},
        begun | {(BOS, EOS), (5,), (6, 7)},
    ):
        engines.agree(beam=1, forbidden=tuple(sorted(phrases - {()})), max_extra=3)
        typed = [Request(tuple(tokens[:1])) for tokens in engines.greedy]
        engines.agree(typed, beam=1, forbidden=tuple(sorted(phrases - {()})), max_extra=3, no_repeat=3)


def test_where_nothing_is_allowed_it_ends(engines: Both) -> None:
    every = tuple((id,) for id in range(1, engines.size))
    engines.agree(beam=1, forbidden=every)
    engines.agree([Request((5, 6)) for _ in engines.sources], beam=1, forbidden=every)


@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_all_together(engines: Both, data: st.DataObject) -> None:
    ids = st.sampled_from(sorted({id for tokens in engines.greedy for id in tokens}))
    phrase = st.tuples(
        st.sampled_from([(), (BOS,)]), st.lists(ids, min_size=1, max_size=3), st.sampled_from([(), (EOS,)])
    )
    phrases = data.draw(st.lists(phrase.map(lambda parts: (*parts[0], *parts[1], *parts[2])), max_size=6))
    prefix = st.lists(ids, max_size=3).map(lambda tokens: Request(tuple(tokens)))
    requests = data.draw(st.lists(prefix, min_size=len(engines.sources), max_size=len(engines.sources)))
    options = {
        "forbidden": tuple(phrases),
        "no_repeat": data.draw(st.integers(0, 3)),
        "min_length": data.draw(st.integers(0, 4)),
        "max_extra": data.draw(st.integers(0, 6)),
    }
    agree(engines.ours, engines.theirs, make_task(requests=requests, beam=1, **options), engines.sources)


# Through the translator


LINES = [" ".join(WORDS[number : number + 3]) for number in range(10)]


def test_an_export_keeps_to_them_greedily(folder: Path, exported: Path) -> None:
    model, export = sightline.load(folder, engine="pytorch"), sightline.load(exported)
    for options in ({"prefix": "w3 w4"}, {"forbid": ["w5", "w12"]}, {"no_repeat": 2}, {"min_length": 3}):
        wanted = [one.text for one in model.translate(LINES, strategy="greedy", align=False, **options)]
        assert [one.text for one in export.translate(LINES, strategy="greedy", **options)] == wanted


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"prefix": "w3"}, "keep to a prefix with a beam of more than 1 .with beam 1 it can."),
        ({"prefixes": ["", "w3", *[""] * 8]}, "keep to a prefix with a beam of more than 1"),
        ({"forbid": ["w3"]}, "keep to forbidden words with a beam of more than 1"),
        ({"strategy": "sample"}, "draw the samples"),
    ],
)
def test_what_the_engine_cannot_do_is_told_before_the_work(options: dict[str, Any], told: str, exported: Path) -> None:
    with pytest.raises(SightlineError, match=f"the ctranslate2 engine cannot {told}.*; the pytorch engine can"):
        next(sightline.load(exported, engine="ctranslate2").stream(iter([""]), **options))
    first = next(sightline.load(exported).stream(iter([""]), **options))  # PyTorch reads it as well
    assert first.text == options.get("prefix", "")


def test_a_glossary_of_an_export(exported: Path, tmp_path: Path) -> None:
    terms = tmp_path / "terms.tsv"
    terms.write_text("w3\tw9\n")
    with pytest.raises(SightlineError, match="cannot keep to a glossary, or to other constraints; the pytorch engine"):
        sightline.load(exported, engine="ctranslate2").translate(LINES, glossary=terms, beam=1)
    found = sightline.load(exported).translate(LINES, glossary=terms, align=False)
    assert all("w9" in one.text.split() for one in found if "w3" in one.source.split())


def test_an_export_tries_again_what_it_can(exported: Path) -> None:
    """A second attempt has a beam, which a prefix does not allow here: the first one stands."""
    export = sightline.load(exported, engine="ctranslate2")
    stuck = "w3 " * 12
    found = export.translate(LINES[:2], strategy="greedy", prefix=stuck, retry=True)
    assert all(one.flags and one.first is None and one.retry is None for one in found)
    again = export.translate("w1 w2 w3", strategy="greedy", retry=True, prefix="", max_length=1)
    assert again.flags is not None


def test_only_lines_that_ask_for_something_go_to_another_engine(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "terms.tsv").write_text("w3\tw9\n")
    asked: list[tuple[str, int]] = []
    for kind in (CTranslate2Engine, PyTorchEngine):

        def search(self: Any, sources: Any, *rest: Any, original: Any = kind.search) -> Any:
            asked.append((self.name, len(sources)))
            return original(self, sources, *rest)

        monkeypatch.setattr(kind, "search", search)
    fast = sightline.load(folder)
    found = fast.translate(LINES, glossary=tmp_path / "terms.tsv", align=False)
    having = sum("w3" in line.split() for line in LINES)
    assert asked == [("ctranslate2", len(LINES) - having), ("pytorch", having)]
    slow = sightline.load(folder, engine="pytorch").translate(LINES, glossary=tmp_path / "terms.tsv", align=False)
    assert [(one.text, one.terms) for one in found] == [(one.text, one.terms) for one in slow]


def test_no_sentences_no_search(folder: Path) -> None:
    assert Engines(open_files(folder)).search([], make_task(), lambda count: None) == []
