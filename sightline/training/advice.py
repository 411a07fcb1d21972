"""What to say at the end of a run about a model that hardly translates. No torch here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from sightline import expectations
from sightline.config import TrainingConfig
from sightline.wording import UNSPACED

if TYPE_CHECKING:
    from sightline.training.parts import Result

# Below this BLEU hardly a phrase is right. It must not be all that is known: of words or letters as targets BLEU is
# low whatever the model knows, and a model that hesitates between a few tokens knows something.
WEAK_BLEU, SURE_PERPLEXITY = 5.0, 10.0
# Without a BLEU: as if each token were drawn from so many, which is about what a language model without a source knows.
WEAK_PERPLEXITY = 50.0
# A best validation after this share of the updates is at the end: with a rate of next to none chance decides.
LATE = 0.9
# Tokenizers of BLEU's that look for spaces.
BY_SPACES = ("13a", "intl", "none")


def weakness(result: Result, config: TrainingConfig, folder: Path, again: str) -> str | None:
    """That the model in `folder` is weak, and what to do; None when it is not. `again` is the command that goes on."""
    best = result.best or {}
    tells = "bleu" in best and _bleu_tells(folder, config.bleu_tokenize)
    if not hardly_translates(best, tells):
        return None
    seen = f"BLEU of {best['bleu']:.1f}" if tells else f"perplexity of {best['perplexity']:.0f}"
    return f"the model is weak: with a validation {seen} it hardly translates. {_remedy(result, config, again)}"


def hardly_translates(scores: Mapping[str, float], tells: bool) -> bool:
    """Whether validation scores are those of a model that has learnt next to nothing; `tells`: whether BLEU can say."""
    perplexity = scores.get("perplexity", 0.0)
    return perplexity > SURE_PERPLEXITY and scores["bleu"] < WEAK_BLEU if tells else perplexity > WEAK_PERPLEXITY


def _bleu_tells(folder: Path, tokenize: str) -> bool:
    """Whether BLEU can judge the targets: not by spaces where a script puts none between its words."""
    return tokenize not in BY_SPACES or UNSPACED.isdisjoint(expectations.load(folder).scripts or ())


def _remedy(result: Result, config: TrainingConfig, again: str) -> str:
    if result.reason == "patience" or result.best_step < LATE * result.steps:
        return (
            f"It got no better after update {result.best_step:,}: look whether the lines of both sides belong together,"
            " and train on more text"
        )
    minutes = config.max_minutes or 0.0
    longer = f"--max-minutes {2 * minutes:g}" if result.reason == "max_minutes" else f"--more-steps {result.steps}"
    return f"It was best at its end, so give it longer: {again} {longer}"
