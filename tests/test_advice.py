"""What is said at the end of training about a model that hardly translates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sightline import expectations
from sightline.config import TrainingConfig
from sightline.training.advice import hardly_translates, weakness
from sightline.training.parts import Reason, Result
from tests.commands import Command, letters, settings, write_tsv

POOR = {"loss": 4.4, "perplexity": 81.5, "bleu": 0.44}


def ended(best: dict[str, float] | None, best_step: int = 400, reason: Reason = "max_steps") -> Result:
    """A run of 400 updates."""
    return Result(reason, 400, 2.0, 60.0, 1000, 0, best, best_step, Path("checkpoint"))


@pytest.mark.parametrize(
    ("scores", "tells", "weak"),
    [
        (POOR, True, True),
        ({"perplexity": 24.9, "bleu": 11.4}, True, False),
        ({"perplexity": 7.9, "bleu": 27.4}, True, False),
        ({"perplexity": 1.2, "bleu": 0.0}, True, False),  # single words have no 4-grams
        ({"perplexity": 24.9, "bleu": 0.2}, False, False),
        ({"perplexity": 81.5}, False, True),
        ({"perplexity": float("inf"), "bleu": 0.0}, True, True),
        ({}, False, False),
    ],
)
def test_what_is_weak(scores: dict[str, float], tells: bool, weak: bool) -> None:
    assert hardly_translates(scores, tells) == weak


def told(folder: Path, result: Result, **config: Any) -> str | None:
    return weakness(result, TrainingConfig(**config), folder, "sightline train --output x --resume")


def test_what_to_do(tmp_path: Path) -> None:
    begins = "the model is weak: with a validation BLEU of 0.4 it hardly translates. "
    longer = f"{begins}It was best at its end, so give it longer: sightline train --output x --resume "
    assert told(tmp_path, ended(POOR)) == f"{longer}--more-steps 400"
    assert told(tmp_path, ended(POOR, reason="max_minutes"), max_minutes=1.5) == f"{longer}--max-minutes 3"
    assert told(tmp_path, ended(POOR, 380)) == f"{longer}--more-steps 400"
    stuck = told(tmp_path, ended(POOR, 120, "patience"))
    assert stuck is not None
    assert stuck.startswith(f"{begins}It got no better after update 120: ")
    assert "--resume" not in stuck
    assert told(tmp_path, ended(None)) is None


def test_bleu_by_spaces_does_not_judge_a_script_without_them(tmp_path: Path) -> None:
    expectations.save(tmp_path, expectations.learn([("good morning", "おはようございます")] * 100))
    hesitant = {**POOR, "perplexity": 24.9}
    assert told(tmp_path, ended(hesitant)) is None
    assert "BLEU of 0.4" in (told(tmp_path, ended(hesitant), bleu_tokenize="char") or "")
    assert "perplexity of 82" in (told(tmp_path, ended(POOR)) or "")


def test_the_command_says_it(command: Command, tmp_path: Path) -> None:
    pairs = write_tsv(tmp_path / "pairs.tsv", letters(60))
    options = ["--pairs", pairs, "--output", tmp_path / "run", *settings(), "--max-steps", 2]
    said = command("train", *options).err.splitlines()
    (weak,) = [line for line in said if line.startswith("the model is weak: ")]
    assert weak.endswith(f"train --output {tmp_path / 'run'} --resume --more-steps 2")
    assert said.index(weak) == len(said) - 2
