"""What the speed benchmarks share: where they run, in which Pythons, and how they tell of it."""

from __future__ import annotations

import argparse
import os
import platform
import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

Say = Callable[[str], None]


def say(line: str) -> None:
    """Progress, apart from the result."""
    print(line, file=sys.stderr, flush=True)


def pythons(names: Iterable[str], given: Sequence[str], parser: argparse.ArgumentParser) -> dict[str, str]:
    """The Python of each peer by its adaptor's name: from the environment, or as given."""
    known = sorted(names)
    found = {name: os.environ.get(f"SIGHTLINE_PEER_{name.upper()}", sys.executable) for name in known}
    for text in given:
        name, _, path = text.partition("=")
        if name not in found or not path:
            parser.error(f"--peer-python {text}: expected NAME=PATH, NAME one of {', '.join(known)}")
        found[name] = path
    return found


def environment(threads: int) -> dict[str, str]:
    """Of every contender's process: no tuning from outside, nothing from the network."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    root = str(Path(__file__).resolve().parents[2])
    return {**kept, "PYTHONPATH": root, "OMP_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1"}


def without_paths(arguments: Sequence[str]) -> list[str]:
    """The command line as another machine could have it."""
    names = [argument.partition("=") for argument in arguments]
    return [
        f"{name}={'PATH' if '/' in value else value}" if equals else "PATH" if "/" in name else name
        for name, equals, value in names
    ]


def command() -> str:
    """How to make this process's record again."""
    return shlex.join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *without_paths(sys.argv[1:])])


def machine() -> dict[str, Any]:
    """Where it was measured."""
    model = platform.processor() or platform.machine()
    try:
        described = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
        model = described[0].partition(":")[2].strip() if described else model
    except OSError:
        pass
    return {"cpu": model, "cores": os.cpu_count(), "system": platform.system(), "torch": _version("torch")}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"
