"""What a start has no use for is not imported; and the benchmarks that watch a start, on something small."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks import big_corpus
from benchmarks.speed.watched import Watched
from sightline.data import EncodedPairs, Side
from tests.commands import finish, letters, settings, start, write_tsv

# What `sightline train` may not bring along unless it is asked to; each costs a part of a second or more.
LEFT_OUT = {"torch._dynamo", "torch._inductor", "torch.distributed.fsdp", "sympy", "matplotlib", "ctranslate2"}
CODE = "import atexit, sys\natexit.register(lambda: print(*sys.modules))\n" + big_corpus.SHORT_EPOCHS.format(updates=1)


def test_a_run_imports_nothing_that_it_does_not_use(tmp_path: Path) -> None:
    """Not a time, which would differ from machine to machine, but what it would be spent on. Epochs are made to end
    after an update, as the benchmark of a large corpus does it."""
    pairs = write_tsv(tmp_path / "pairs.tsv", letters(60))
    options = ["train", "--recipe", "transformer", "--pairs", pairs, "--output", tmp_path / "run", "--max-steps", "2"]
    done = finish(start(*options, *settings(), "--set", "data.cache=null", "--set", "training.log_every=1", code=CODE))
    assert done.code == 0, done
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines if line["kind"] == "training"] == [0, 1]
    imported = set(done.out.split())
    assert {"torch", "sightline.training.adam"} <= imported
    assert not LEFT_OUT & imported


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_a_watched_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for `sightline` that speaks, writes two updates, and waits to be killed."""
    package = tmp_path / "stand_in"
    package.mkdir()
    lines = "".join(json.dumps({"kind": kind}) + "\n" for kind in ("training", "validation", "training"))
    (package / "sightline.py").write_text(
        f"import pathlib, signal, sys\nprint('tokenizer: one', file=sys.stderr, flush=True)\n"
        f"pathlib.Path(sys.argv[1], 'metrics.jsonl').write_text({lines!r})\n"
        "sys.exit(sys.argv[2]) if len(sys.argv) > 2 else signal.pause()\n"
    )
    monkeypatch.chdir(package)  # `python -m` looks here first
    with Watched([tmp_path], tmp_path) as process:
        heard: list[tuple[float, str]] = []
        while not heard or process.updates() < 2:
            assert process.running()
            heard += process.news()
        memory = process.memory()
        assert [text for _, text in heard] == ["tokenizer: one"]
        assert 0 < heard[0][0] <= process.elapsed()
        assert 0 < memory["own"] <= memory["resident"]
        assert memory["own"] == memory["own_with_helpers"]
    assert process._process.returncode is not None
    code = "import sys; sys.exit('code: ' + sys.argv[1])"
    with Watched(["given"], tmp_path, code=code) as process, pytest.raises(SystemExit, match="code: given"):
        run_to_its_end(process)
    with Watched([tmp_path, "a mistake"], tmp_path) as process, pytest.raises(SystemExit, match="a mistake"):
        run_to_its_end(process)


def run_to_its_end(process: Watched) -> None:
    while process.running():
        pass


def test_phases_of_a_run() -> None:
    phases = big_corpus.Phases(steps=20)
    phases.seen({"own": 5.0}, 0)
    phases.heard(2.0, "learning the tokenizer from 3 pairs")
    phases.heard(3.0, "tokenizer: unigram, 9 entries")
    phases.seen({"own": 9.0}, 0)
    phases.seen({"own": 7.0}, 0)
    phases.heard(10.0, "transformer: 5 parameters")
    for updates, own in ((0, 1.0), (1, 2.0), (3, 3.0), (3, 4.0), (20, 5.4)):
        phases.seen({"own": own}, updates)
    assert phases.told(60.0) == {
        "seconds": {"starting and reading": 2.0, "learning the tokenizer": 1.0, "tokenising": 7.0, "training": 50.0},
        "peak_megabytes": {"starting and reading": {"own": 5}, "tokenising": {"own": 9}, "training": {"own": 5}},
        "megabytes_after_updates": {"1": {"own": 2}, "2": {"own": 3}, "20": {"own": 5}},
    }


def test_the_made_up_corpus_is_the_same_again(tmp_path: Path) -> None:
    for name in ("one", "two"):
        big_corpus.write_corpus(tmp_path / name, 40)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    source, target = zip(*(line.split("\t") for line in (tmp_path / "one").read_text().splitlines()), strict=True)
    assert len(source) == len(set(source)) == 40
    assert all(3 <= len(one.split()) == len(other.split()) <= 20 for one, other in zip(source, target, strict=True))


def test_orders_of_epochs() -> None:
    generator = np.random.default_rng(0)
    offsets = np.concatenate(([0], np.cumsum(generator.integers(2, 9, 2_000))))
    side = Side(np.zeros(0, np.uint16), offsets)
    found = big_corpus.described(EncodedPairs(side, side, np.arange(2_000)), 100, 7, 3)
    del found["seconds_to_make_one"]
    distances = found.pop("mean_distance")
    assert distances == pytest.approx([1 / 3] * 3, abs=0.02)
    assert all(found.values())


def test_the_runs_of_the_large_corpus_and_of_a_tenth_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[int, int, int | None]] = []

    def run(corpus: big_corpus.Corpus, output: Path, steps: int, epoch_updates: int | None = None) -> dict[str, int]:
        assert len(corpus.file.read_text().splitlines()) == corpus.pairs
        corpus.cache.mkdir(exist_ok=True)
        made.append((corpus.pairs, steps, epoch_updates))
        return {"updates": steps}

    monkeypatch.setattr(big_corpus, "run", run)
    monkeypatch.setattr(big_corpus, "orders", lambda model, corpus: {"of": corpus.pairs})
    both = [big_corpus.Corpus(pairs, tmp_path / f"{pairs}.tsv", tmp_path / str(pairs), 300, 1) for pairs in (40, 4)]
    found = big_corpus.measured(*both, tmp_path / "model", steps=60, epoch_updates=20)
    assert made == [(40, 20, None), (40, 60, 20), (4, 1, None), (4, 60, 20)]
    assert list(found["runs"]) == ["empty cache", "full cache", "full cache, a tenth of the pairs"]
    assert found["orders"] == {"of": 40}
    assert big_corpus.parse(["--work", "x"]).epoch_updates == 100
