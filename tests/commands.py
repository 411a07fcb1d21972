"""Running the command line from tests: in this process, which is quick, or in one of its own, which is the real thing.

The toy task that the shared models learn is to write letters large: `a b c` becomes `A B C`.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sightline.config import merge

RECIPES = ("seq2seq", "bahdanau", "luong", "transformer")
LETTERS = "abcdefgh"

# Sizes for runs that only have to happen; learning is not asked of them.
TINY = {
    "text": {"tokenizer": "word"},
    "model": {"embedding": 8, "encoder": {"layers": 1}, "decoder": {"layers": 1}},
    "training": {"validate_bleu": 4},
}
ATTENTION = {"heads": 2, "feedforward": 8}
# Seconds before a process counts as stuck: a busy machine can be many times slower than usual.
WAITS = 600


@dataclass(frozen=True)
class Done:
    """What a command came to."""

    code: int
    out: str
    err: str

    def mistake(self) -> str:
        """The line that tells of a user's mistake, which must be all there is on stderr."""
        assert self.code == 2, self
        lines = self.err.splitlines()
        assert len(lines) == 1, self
        assert self.err.endswith("\n")
        assert lines[0].startswith("sightline: ")
        return lines[0]

    def last_word(self) -> str:
        """The same of a training run, which may have told of its progress before."""
        assert (self.code, self.out) == (2, ""), self
        assert "Traceback" not in self.err
        last = self.err.splitlines()[-1]
        assert last.startswith("sightline: ")
        return last


Command = Callable[..., Done]


def arms_within(command: Command, trained: list[str]) -> Callable[[int], Callable[[list[str], Path], int]]:
    """In the place of `benchmarks.mechanisms.running.commands`: arms run in this process, and `trained` names them."""

    def commands(threads: int) -> Callable[[list[str], Path], int]:
        def run(arguments: list[str], log: Path) -> int:
            trained.extend(Path(arguments[1]).stem for _ in range(arguments[0] == "train"))
            done = command(*arguments)
            log.write_text(done.err, encoding="utf-8")
            return done.code

        return run

    return commands


def tiny(recipe: str) -> dict[str, Any]:
    """A configuration that makes a run of a recipe as small as can be."""
    if recipe == "lm":
        decoder = {"kind": "transformer", "layers": 1, **ATTENTION}
        return {"text": TINY["text"], "model": {"embedding": 8, "decoder": decoder}}
    own = (ATTENTION, ATTENTION) if recipe == "transformer" else ({"width": 4}, {"width": 8})
    return merge(TINY, {"model": {"encoder": own[0], "decoder": own[1]}})


def settings(recipe: str = "transformer") -> list[str]:
    """The same as options of the command line."""
    found: list[str] = []

    def visit(prefix: str, values: dict[str, Any]) -> None:
        for name, value in values.items():
            if isinstance(value, dict):
                visit(f"{prefix}{name}.", value)
            else:
                found.extend(["--set", f"{prefix}{name}={value}"])

    visit("", tiny(recipe))
    return found


def letters(count: int, seed: int = 0) -> list[tuple[str, str]]:
    """Pairs of the toy task."""
    generator = random.Random(seed)
    rows = [[generator.choice(LETTERS) for _ in range(generator.randint(1, 5))] for _ in range(count)]
    return [(" ".join(row), " ".join(row).upper()) for row in rows]


def write_tsv(path: Path, pairs: Sequence[tuple[str, str]]) -> Path:
    """A file of pairs."""
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")
    return path


def write_lines(path: Path, lines: Sequence[str]) -> Path:
    """A text file."""
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def environment() -> dict[str, str]:
    """For a process of its own: one thread, as the other tests of this run have."""
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def start(*arguments: object, code: str | None = None, **options: Any) -> subprocess.Popen[bytes]:
    """A `sightline` process with pipes, warnings being errors; `code` runs in it first, and calls `main` itself."""
    how = ["-m", "sightline"] if code is None else ["-c", code]
    line = [sys.executable, "-W", "error", *how, *map(str, arguments)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(line, env=environment(), **{**pipes, **options})


def finish(process: subprocess.Popen[bytes], stdin: bytes = b"") -> Done:
    """Waits for a process."""
    out, err = process.communicate(stdin, timeout=WAITS)
    return Done(process.returncode, (out or b"").decode(), (err or b"").decode())
