"""What torchrun starts for tests of several ranks: `ranked.py SCENARIO FOLDER`, a scenario being a function below.

Several trainings share one start of the processes, which takes longer than the trainings.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from sightline.cli import main
from sightline.config import RunConfig, build_config, merge
from sightline.errors import SightlineError
from sightline.training import run
from tests.commands import letters, write_lines, write_tsv

# Small and exact: no dropout, a constant rate that no limit changes, and an epsilon that does not amplify rounding.
EXACT: dict[str, Any] = {
    "text": {"tokenizer": "word"},
    "data": {"batch_tokens": 64, "held_out": 4},
    "model": {
        "embedding": 16,
        "dropout": 0.0,
        "encoder": {"layers": 2, "heads": 2, "feedforward": 32},
        "decoder": {"layers": 2, "heads": 2, "feedforward": 32},
    },
    "training": {
        "max_steps": 7,
        "learning_rate": 0.003,
        "warmup": 2,
        "schedule": "constant",
        "epsilon": 1e-5,
        "validate_every": 4,
        "validate_bleu": 2,
        "log_every": 1,
    },
}
Values = dict[str, Any]
RECURRENT = {
    "model": {
        "encoder": {"layers": 1, "width": 4, "heads": None, "feedforward": None},
        "decoder": {"layers": 1, "width": 8, "heads": None, "feedforward": None},
    }
}
# Three losses, of which each has a divisor of its own.
PENALTIES: Values = {"penalties": {"repeated_looks": 0.3, "one_look_each": 0.2}}
SAMPLED: Values = {"attention": {"choice": "sampled"}}
PAIRS, TEXT = "letters.tsv", "letters.txt"


def write_pairs(folder: Path) -> Path:
    """The toy task: seven batches an epoch, which two ranks cannot share evenly; and its targets alone, as text."""
    write_lines(folder / TEXT, [target for _, target in letters(90)])
    return write_tsv(folder / PAIRS, letters(90))


def exact(folder: Path, recipe: str = "transformer", model: Values | None = None, **training: Any) -> RunConfig:
    """A run of the toy task in `folder`; `model` and `training` change these sections."""
    file = {"text": str(folder / TEXT)} if recipe == "lm" else {"pairs": str(folder / PAIRS)}
    values = merge(EXACT, {"data": file, "training": training})
    if recipe == "lm":
        alone = {name: value for name, value in values["model"].items() if name != "encoder"}
        values = merge(
            {**values, "model": alone},
            {"model": {"decoder": {"kind": "transformer"}}, "training": {"validate_bleu": 0}},
        )
    elif recipe != "transformer":
        values = merge(values, RECURRENT)
    return build_config(merge(values, {"model": model or {}}), recipe)


def with_dropout(config: RunConfig, **training: Any) -> RunConfig:
    """The same with dropout, of which each rank has its own."""
    changes = {"model": {"dropout": 0.1}, "training": training}
    return build_config(merge(config.model_dump(mode="json"), changes))


def several(folder: Path) -> None:
    """Trainings that the test compares with others, one after the other."""
    seen: list[list[int]] = []
    batch = run.TrainingData.batch

    def watched(self: run.TrainingData, indices: Any) -> Any:
        seen.append(indices.tolist())
        return batch(self, indices)

    run.TrainingData.batch = watched  # type: ignore[method-assign]
    run.train(exact(folder, parallel="fsdp"), folder / "fsdp")
    (folder / f"seen-{os.environ['RANK']}.json").write_text(json.dumps(seen))
    run.train(exact(folder, "bahdanau", parallel="fsdp"), folder / "bahdanau")
    for recipe in ("seq2seq", "luong"):
        run.train(exact(folder, recipe), folder / recipe)
    for kind in ("ddp", "fsdp"):  # two batches an update on each rank, and the moving average; in two parts
        for steps in (3, 5):
            config = exact(folder, parallel=kind, accumulate=2, ema=0.9, max_steps=steps)
            run.train(config, folder / f"accumulated-{kind}", resume=steps == 5)
    run.train(exact(folder, "lm"), folder / "lm")
    run.train(exact(folder, "bahdanau", PENALTIES, accumulate=2, max_steps=3), folder / "losses")
    run.train(exact(folder, "bahdanau", SAMPLED, max_steps=4), folder / "sampled-whole")
    for steps in (2, 4):
        run.train(exact(folder, "bahdanau", SAMPLED, max_steps=steps), folder / "sampled-parts", resume=steps == 4)
    run.train(with_dropout(exact(folder), max_steps=9), folder / "whole")
    run.train(with_dropout(exact(folder), max_steps=5), folder / "parts")
    run.train(with_dropout(exact(folder), max_steps=9), folder / "parts", resume=True)
    with suppress(SystemExit):
        command(folder, "nothing", options=["--estimate"])
    sightline("--output", str(folder / "grown"), "--resume", "--max-steps", "8", "--set", "training.parallel=fsdp")
    try:
        run.train(exact(folder), folder / "parts")
    except SightlineError as error:
        (folder / f"refused-{os.environ['RANK']}").write_text(str(error))


def dying(folder: Path) -> None:
    """The second rank is killed in its seventh update."""
    at_update(7, kill)
    command(folder, "died", "training.max_steps=1000")


def dying_first(folder: Path) -> None:
    """The first rank is killed in its seventh update, when each has a part of the model."""
    at_update(7, kill, rank=0)
    command(folder, "died-first", "training.max_steps=1000", "training.parallel=fsdp")


def hanging(folder: Path) -> None:
    """The second rank never comes to its fifth update."""
    at_update(5, signal.pause)
    command(folder, "hung", "training.max_steps=1000", "training.timeout_minutes=0.15")


def kill() -> None:
    """Ends this process without a word."""
    os.kill(os.getpid(), signal.SIGKILL)


def interrupted(folder: Path) -> None:
    """Ctrl-C reaches torchrun, which passes it on to the ranks; the second one has had it already."""

    def press() -> None:
        signal.raise_signal(signal.SIGINT)
        os.kill(os.getppid(), signal.SIGINT)

    at_update(7, press)
    command(folder, "interrupted", "training.max_steps=1000")


def at_update(number: int, act: Callable[[], object], rank: int = 1) -> None:
    """Has a rank do something before a batch."""
    batch, calls = run.TrainingData.batch, []

    def acting(self: run.TrainingData, indices: Any) -> Any:
        calls.append(indices)
        if os.environ["RANK"] == str(rank) and len(calls) == number:
            act()
        return batch(self, indices)

    run.TrainingData.batch = acting  # type: ignore[method-assign]


def command(folder: Path, output: str, *settings: str, options: Sequence[str] = ()) -> None:
    """`sightline train` on the toy task."""
    # JSON is YAML. Each rank has a file of its own: they would read what another is writing.
    config = folder / f"run-{os.environ['RANK']}.json"
    config.write_text(exact(folder).model_dump_json())
    given = [*options, *(part for setting in settings for part in ("--set", setting))]
    sys.argv = ["sightline", "train", str(config), "--output", str(folder / output), *given]
    main()


def sightline(*options: str) -> None:
    """`sightline train`, which must come to a good end."""
    sys.argv = ["sightline", "train", *options]
    try:
        main()
    except SystemExit as ended:
        if ended.code:
            raise


if __name__ == "__main__":
    scenarios = (several, dying, dying_first, hanging, interrupted)
    {each.__name__: each for each in scenarios}[sys.argv[1]](Path(sys.argv[2]))
