"""Writing while the source comes in: the same as greedy search over the whole of it, and never too early."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file

from sightline.batch import Tokens
from sightline.config import build_config, merge
from sightline.errors import SightlineError
from sightline.folder import WEIGHTS, load_folder
from sightline.hypothesis import SearchOptions
from sightline.models import EncoderDecoder
from sightline.online import OnlineWriter, write_online
from sightline.search import greedy_search
from sightline.streams import arriving_words
from sightline.training.run import train
from tests.commands import Command, tiny, write_lines, write_tsv
from tests.conftest import random_batch, small_model

ONLINE: dict[str, Any] = {
    "attention": {"choice": "online_monotonic", "stop_bias": 0.0},
    "encoder": {"bidirectional": False},
}
MOST = 8


def made(recipe: str) -> EncoderDecoder:
    """Weights larger than they come, so that it stops here and goes on there."""
    model = small_model(recipe, ONLINE)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3 if parameter.dim() > 1 else 1).add_(0.2 * torch.randn_like(parameter))
    return model


# The last limit ends many before their end symbol, and is not known before the source has ended.
LIMITS = {
    "most": SearchOptions(max_length=MOST),
    "default": SearchOptions(),
    "least": SearchOptions(min_length=7),
    "by length": SearchOptions(max_ratio=0.7, max_extra=1),
}


@pytest.mark.parametrize("options", LIMITS.values(), ids=LIMITS)
@pytest.mark.parametrize("recipe", ["bahdanau", "luong"])
def test_the_same_as_greedy_search(recipe: str, options: SearchOptions) -> None:
    model, batch, early = made(recipe), random_batch([6, 9, 3, 7]), 0
    source = batch.sources[0]
    assert isinstance(source, Tokens)
    with torch.no_grad():
        expected = greedy_search(model, batch, options)
    for row, hypothesis in enumerate(expected):
        tokens = source.ids[row, : int(source.mask[row].sum()) - 1].tolist()
        writer = OnlineWriter(model, options)
        for token in tokens:
            early += len(writer.push([token]))
        writer.finish()
        assert writer.written == hypothesis.tokens
        assert writer.finish() == []
    assert early > 0


def test_what_is_written_does_not_depend_on_what_comes_later() -> None:
    model = made("luong")
    for last in (5, 6, 7):
        writer = OnlineWriter(model, LIMITS["most"])
        first = writer.push([4, 8]) + writer.push([])
        writer.push([last])
        assert writer.written[: len(first)] == first
        assert OnlineWriter(model, LIMITS["most"]).push([4, 8]) == first


@pytest.mark.parametrize(
    ("recipe", "changes", "told"),
    [
        ("luong", {}, "online_monotonic"),
        ("seq2seq", {}, "online_monotonic"),
        ("luong", {"attention": {"choice": "online_monotonic"}}, "reads ahead"),
        ("luong", {**ONLINE, "attention": {**ONLINE["attention"], "position_bias": True}}, "lies ahead"),
        ("luong", {**ONLINE, "copying": {"kind": "copynet", "selective_read": False}}, "what to copy"),
        ("luong", {**ONLINE, "copying": {"kind": "copy_head"}}, "what to copy"),
    ],
)
def test_models_that_need_it_all_are_refused(recipe: str, changes: dict[str, Any], told: str) -> None:
    with pytest.raises(SightlineError, match=told):
        OnlineWriter(small_model(recipe, changes))


def test_nothing_comes_of_nothing() -> None:
    assert OnlineWriter(made("luong")).push([]) == []


TEXT = ["der hund sieht", "ein łódź hund", "hund", "", "sieht der ein hund der sieht"]


@pytest.fixture(scope="module", params=["word", "char", "unigram"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that has learnt next to nothing, with weights large enough to stop here and go on there."""
    place = tmp_path_factory.mktemp("online")
    pairs = write_tsv(place / "pairs.tsv", [(line, line.upper()) for line in TEXT if line] * 8)
    own = {
        "text": {"tokenizer": request.param, "vocabulary": 40 if request.param == "word" else 300},
        "data": {"pairs": str(pairs), "valid_pairs": str(pairs)},
        "model": {**ONLINE, "recipe": "luong"},
        "training": {"max_steps": 3, "validate_bleu": 0},
    }
    train(build_config(merge(tiny("luong"), own)), place / "model")
    model = load_folder(place / "model").model
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3 if parameter.dim() > 1 else 1).add_(0.5 * torch.randn_like(parameter))
    save_file({name: value.contiguous() for name, value in model.state_dict().items()}, place / "model" / WEIGHTS)
    return place / "model"


def test_a_stream_of_words_comes_out_as_greedy_search_gives_the_whole(folder: Path, command: Command) -> None:
    loaded = load_folder(folder)
    text = "".join(f"{line}\n" for line in TEXT).encode()
    greedy = command("translate", folder, "--beam", 1, "--engine", "pytorch", stdin=text).out
    assert ["".join(write_online(loaded, line.split())) for line in TEXT] == greedy.split("\n")[:-1]
    assert ["".join(write_online(loaded, [line])) for line in TEXT] == greedy.split("\n")[:-1]
    assert any(greedy.split())
    done = command("translate", folder, "--online", stdin=text)
    assert (done.code, done.out, done.err) == (0, greedy, "")
    short = command("translate", folder, "--beam", 1, "--max-length", 2, "--engine", "pytorch", stdin=text).out
    assert command("translate", folder, "--online", "--max-length", 2, stdin=text).out == short != greedy
    assert command("translate", folder, "--online", stdin=b"hund").out == greedy.split("\n")[2] + "\n"
    assert command("translate", folder, "--online", stdin=b"").out == ""


class Slow(io.BytesIO):
    """A stream that gives what is there, a byte at a time."""

    def read1(self, size: int | None = -1) -> bytes:
        return super().read1(1)


@given(st.lists(st.lists(st.sampled_from(["a", "bc", "łódź", "—"]), max_size=4), max_size=4), st.booleans())
def test_words_that_arrive(lines: list[list[str]], ended: bool) -> None:
    text = "\n".join(" ".join(words) for words in lines) + ("\n" if ended else "")
    expected: list[str | None] = []
    given_lines = text.split("\n")
    for words in given_lines if given_lines[-1] else given_lines[:-1]:
        expected += [*words.split(), None]
    for stream in (Slow(text.encode()), io.BytesIO(text.replace("\n", " \r\n").encode())):
        assert [*arriving_words(io.BufferedReader(stream) if type(stream) is io.BytesIO else stream, "x")] == expected  # type: ignore[arg-type]


def test_characters_that_come_in_pieces_are_told_when_they_are_whole(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A byte at a time: what is written is the source itself, one token for each that comes."""
    loaded = load_folder(folder)
    ids = loaded.tokenizers.target.encode("DER ŁÓDŹ")

    def one_more(writer: OnlineWriter, tokens: Sequence[int]) -> list[int]:
        writer.source += tokens
        writer.written = ids[: len(writer.source)]
        return []

    monkeypatch.setattr(OnlineWriter, "push", one_more)
    monkeypatch.setattr(OnlineWriter, "finish", lambda writer: one_more(writer, ids))
    parts = [*write_online(loaded, ["d", "e", "r", "e", "i", "n", "d"])]
    assert "".join(parts) == "DER ŁÓDŹ"
    assert not any("\ufffd" in part for part in parts)


@pytest.mark.parametrize(
    ("options", "stdin", "told"),
    [
        (["--beam", "3"], b"hund\n", "--online writes the most probable token at once: leave out --beam"),
        (["--json"], b"hund\n", "--online writes plain text"),
        (["FILE"], b"", "leave out files"),
        (["--compute", "int8"], b"hund\n", "--online has the PyTorch engine"),
        (["--engine", "ctranslate2"], b"hund\n", "--online has the PyTorch engine"),
        ([], b"hund\n\xff hund\n", "standard input, line 2: not valid UTF-8"),
        ([], b"hund " * 2000, "standard input, line 1: more than the 1,000 tokens that this model takes"),
    ],
)
def test_mistakes(options: list[str], stdin: bytes, told: str, folder: Path, command: Command, tmp_path: Path) -> None:
    file = write_lines(tmp_path / "file", ["hund"])
    done = command(
        "translate", folder, "--online", *(file if word == "FILE" else word for word in options), stdin=stdin
    )
    assert told in done.mistake()


def test_a_model_that_reads_ahead_does_not_stream(command: Command, trained: Any) -> None:
    done = command("translate", trained("luong"), "--online", stdin=b"a b\n")
    assert "only a model with model.attention.choice = online_monotonic" in done.mistake()
