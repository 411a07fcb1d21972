"""What holds of the sources once docs/contributing.md is carried out on them: run by tests/test_contributing.py."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from safetensors.torch import load_file

from tests.commands import Command, letters, settings, write_tsv
from tests.test_mixing import COUNT, drawn
from tests.test_mixing import test_a_mixture_learns_decodes_and_is_kept as check_mixture

ROOT = Path(__file__).resolve().parents[1]
QUICK = ["training.log_every=1", "training.learning_rate=0.03", "training.warmup=2", "model.dropout=0"]


def test_the_commands(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the page, with sizes and updates that a test can afford: it learns, translates and aligns."""
    monkeypatch.chdir(tmp_path)
    write_tsv(tmp_path / "my.tsv", letters(60))
    write_tsv(tmp_path / "test.tsv", letters(6, seed=1))
    lines = (ROOT / "commands.sh").read_text(encoding="utf-8").splitlines()
    assert [line.partition("sightline ")[2].split()[0] for line in lines] == ["train", "translate", "evaluate"]
    for line in lines:
        given, _, rest = line.rpartition(" | ")
        words = shlex.split(rest)[1:]
        if words[0] == "train":
            quick = [word for one in QUICK for word in ("--set", one)]
            words = [*(word if word != "3000" else "30" for word in words), *settings("luong"), *quick]
        done = command(*words, stdin=" ".join(shlex.split(given)[1:]).encode() + b"\n" if given else b"")
        assert done.code == 0, (line, done.err)
        if words[0] == "translate":
            assert done.out.count("\t") == 1
    rows = [json.loads(row) for row in (tmp_path / "runs" / "gaussian" / "metrics.jsonl").read_text().splitlines()]
    losses = [row["nll"] for row in rows if row["kind"] == "training"]
    assert len(losses) == 30
    assert sum(losses[-5:]) < 0.9 * sum(losses[:5])
    (spread,) = (
        value
        for name, value in load_file(tmp_path / "runs" / "gaussian" / "model.safetensors").items()
        if name.endswith("score.log_spread")
    )
    assert spread.item() != pytest.approx(3 / 4 * 0.6931, abs=1e-4)  # of keys 8 wide, before it learnt


def test_its_name_is_known(command: Command, tmp_path: Path) -> None:
    assert "gaussian" in next(line for line in command("config", "luong").out.splitlines() if " score: " in line)
    arguments = ("train", "--recipe", "luong", "--pairs", tmp_path / "no.tsv", "--output", tmp_path / "run", "--set")
    assert "or 'gaussian'" in command(*arguments, "model.attention.score=gausian").mistake()
    # It does not go by where keys stand, so several sources are no matter: all that is missing is the file.
    two = ("--set", "model.sources.count=2")
    assert "no.tsv: no such file" in command(*arguments, "model.attention.score=gaussian", *two).last_word()
    assert (
        "means nothing from one source to the next" in command(*arguments, "model.attention.score=location", *two).err
    )


def test_mixtures_draw_it(tmp_path: Path) -> None:
    seeds = [seed for seed in range(COUNT) if drawn(seed).model.attention.score == "gaussian"]
    assert seeds
    for seed in seeds[:2]:
        (tmp_path / str(seed)).mkdir()
        check_mixture(seed, tmp_path / str(seed))
