"""The examples of docs/decoding: every command and every snippet is run, page by page and from top to bottom."""

from __future__ import annotations

import ast
import gzip
import re
import shlex
import shutil
import subprocess
from dataclasses import fields
from pathlib import Path
from typing import Any

import pyarrow
import pytest
import torch
from pyarrow import parquet

from sightline.config import build_config
from sightline.data import bundled
from sightline.files import read_lines
from sightline.folder import Tokenizers, save_config, save_model, save_tokenizers
from sightline.hypothesis import SearchOptions
from sightline.models import build_model
from sightline.text import EOS, train_tokenizer
from sightline.wishes import Wishes
from tests.commands import Command, write_lines

PAGES = sorted((Path(__file__).parent.parent / "docs" / "decoding").glob("*.md"))
# What tests do in another way, and why.
ELSEWHERE = {"RAY_ADDRESS=auto": "it needs a cluster; tests/test_ray.py does the same on a Ray of its own"}
FEWER = ("--workers 8", "--workers 1")  # a process takes a second to start
UNTRAINED = " --tolerance 100"  # what random weights write does not survive rounding, nor a shortlist
# Words of the examples that a small corpus may not have.
EXTRA = [
    "Das Auto ist in der Garage. Ein Wagen auf dem Parkplatz in New York.",
    "The car is in the garage, a man in a hat.",
]


def examples(page: Path) -> list[tuple[str, str]]:
    """The blocks of a page with their languages: "sh", "python", or none for what is not to be run."""
    return re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the examples name: a Transformer of random weights, and small files."""
    place = tmp_path_factory.mktemp("place")
    pairs = [line.split("\t") for line in read_lines(bundled("test"))][:200]
    make_model(place / "MODEL", [*(text for pair in pairs for text in pair), *EXTRA * 20])
    shutil.copytree(place / "MODEL", place / "runs" / "mine")
    sources, targets = ([pair[side] for pair in pairs[:4]] for side in (0, 1))
    for name in ("heldout.tsv", "corpus.tsv"):
        write_lines(place / name, [f"{source}\t{target}" for source, target in zip(sources, targets, strict=True)])
    for name in ("text.txt", "test.en", "heldout.en"):
        write_lines(place / name, sources)
    for name in ("test.de", "right.de", "heldout.de"):
        write_lines(place / name, targets)
    write_lines(place / "wrong.de", [f"nicht {target}" for target in targets])
    write_lines(place / "terms.tsv", ["# English\tGerman", "the\tder\tdie\tdas"])
    write_lines(place / "words.txt", ["auto", "New York"])
    write_lines(place / "begun.txt", ["Das", "", "Ein Wagen", ""])
    write_lines(place / "wanted.txt", ["Auto\tGarage", "", "Wagen", ""])
    write_lines(place / "seeds.txt", ["1", "2", "3", "4"])
    (place / "huge.txt.gz").write_bytes(gzip.compress((place / "text.txt").read_bytes()))
    parquet.write_table(pyarrow.table({"source": sources}), place / "corpus.parquet")
    return place


def make_model(path: Path, lines: list[str]) -> None:
    """A model that both engines run and that MarianMT can express."""
    layers = {"layers": 2, "heads": 2, "feedforward": 24}
    model = {"embedding": 16, "norm_position": "post", "encoder": layers, "decoder": layers}
    text = {"tokenizer": "unigram", "vocabulary": 300, "byte_fallback": False}
    config = build_config({"text": text, "model": model}, "transformer")
    tokenizer = train_tokenizer(lines, config.text, 300)
    tokenizers = Tokenizers(tokenizer, tokenizer)
    torch.manual_seed(3)
    network = build_model(config.model, tokenizers.sizes)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
            if name == "output.bias":
                parameter[EOS] += 3  # so that translations end
    path.mkdir()
    save_tokenizers(path, tokenizers)
    save_config(path, config)
    save_model(path, network)


def run(line: str, command: Command) -> None:
    """A command line with its pipes; the program itself runs in this process."""
    data = b""
    for stage in line.split(" | "):
        if stage.startswith("sightline "):
            untrained = UNTRAINED if stage.startswith("sightline export ") else ""
            done = command(*shlex.split(stage + untrained)[1:], stdin=data)
            assert done.code == 0, (line, done)
            data = done.out.encode()
        else:
            data = subprocess.run(stage, shell=True, input=data, check=True, capture_output=True).stdout


def check_remarks(text: str, names: dict[str, Any]) -> None:
    """What a snippet says of its results, after two spaces and a hash."""
    for expression, remark in re.findall(r"^(\S.*?)  # (.+)$", text, re.MULTILINE):
        if remark.startswith("begins with "):
            assert eval(expression, names).startswith(ast.literal_eval(remark.removeprefix("begins with ")))
        elif remark.startswith("("):
            assert eval(expression, names) == ast.literal_eval(remark)


@pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
@pytest.mark.parametrize("page", [page for page in PAGES if examples(page)], ids=lambda page: page.name)
def test_the_examples_run(page: Path, place: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    names: dict[str, Any] = {}
    for language, text in examples(page):
        if language == "python":
            exec(compile(text, page.name, "exec"), names)
            check_remarks(text, names)
            continue
        lines = [line.split("  #")[0].strip().replace(*FEWER) for line in text.splitlines()]
        if language != "sh":
            assert not any(line.startswith("sightline ") for line in lines), "a command must be marked as one"
            continue
        for line in lines:
            if not line.startswith(tuple(ELSEWHERE)):
                run(line, command)


@pytest.mark.parametrize("option", [one.name for kind in (SearchOptions, Wishes) for one in fields(kind)])
def test_every_option_has_an_example(option: str) -> None:
    blocks = [block for page in PAGES for block in examples(page)]
    python = re.compile(rf"\b{option}=")
    shell = re.compile(rf"--{option.replace('_', '-')}\b")
    assert any((python if language == "python" else shell).search(text) for language, text in blocks if language)
