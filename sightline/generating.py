"""Text from a language model, with the strategies that translations are searched with. No torch here.

To the engines a text is the translation of an empty source, and what it begins with is a prefix.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sightline.engines.base import Task
from sightline.errors import SightlineError, nearest
from sightline.hypothesis import Request, check_kinds
from sightline.plan import search_options
from sightline.streams import text_parts
from sightline.text import EOS
from sightline.translator import Translator
from sightline.wishes import Wishes, begun_ids, read_words

NOTHING = (EOS,)
"""The source of what has none."""

STRATEGIES = ("sample", "beam", "greedy")


@dataclass(frozen=True)
class Generated:
    """A text that a model wrote, its beginning included.

    `score` ranks texts (penalties included), `log_prob` is the sum over tokens, those of the prefix among them.
    `finished` is False when the length limit cut it before its end.
    """

    text: str
    score: float
    log_prob: float
    tokens: list[str]
    token_log_probs: list[float]
    finished: bool

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return dict(vars(self))


def generate(translator: Translator, prefix: str = "", count: int = 1, **options: Any) -> list[Generated]:
    """`count` texts that begin with `prefix`: samples in the order drawn, or the best of a beam, best first.

    Options are those of `SearchOptions`, and `forbid`. The `strategy` is "sample" by default; `max_length` counts the
    tokens after the prefix (default: the configuration's `search.max_extra`).
    """
    task = _task(translator, prefix, count, options)
    (found,) = translator.engines.search([NOTHING], task, lambda done: None)
    tokenizer = translator.files.tokenizers.target
    return [
        Generated(
            text=tokenizer.decode(one.tokens),
            score=one.score,
            log_prob=one.log_prob,
            tokens=tokenizer.names(one.tokens),
            token_log_probs=one.token_log_probs,
            finished=one.finished,
        )
        for one in found
    ]


def live(translator: Translator, prefix: str = "", **options: Any) -> Iterator[str]:
    """One text as it is made: parts of it, the prefix first, each as soon as it is certain."""
    task = _task(translator, prefix, 1, options)
    translator.engines.check_live()
    return text_parts(translator.files.tokenizers.target, translator.engines.inside().live(NOTHING, task))


def check_generates(translator: Translator) -> None:
    """Refuses a model that is no language model."""
    if translator.config.model.has_source:
        raise SightlineError(
            f"{translator.files.path}: this model writes about a source: use `sightline translate`, or train a "
            "language model (--recipe lm)"
        )


def _task(translator: Translator, prefix: str, count: int, options: dict[str, Any]) -> Task:
    """What an engine is asked for."""
    check_generates(translator)
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    check_kinds(given)
    strategy = given.setdefault("strategy", "sample")
    if strategy not in STRATEGIES:
        raise SightlineError(f"unknown strategy '{strategy}' for generating; {nearest(strategy, STRATEGIES)}")
    if count < 1:
        raise SightlineError(f"count is {count}: give at least 1")
    given["samples" if strategy == "sample" else "n_best"] = count
    tokenizer = translator.files.tokenizers.target
    begun = begun_ids(prefix, tokenizer)
    # The length of an empty source sets no limit, so the rest of the rule does: see `search.max_extra`.
    given["max_extra"] = len(begun) + given.pop("max_length", translator.config.search.max_extra)
    wishes = Wishes(forbid=read_words("forbid", given.pop("forbid", ())))
    given["forbidden"] = (*given.get("forbidden", ()), *wishes.forbidden(tokenizer))
    chosen = search_options(translator.config, given)
    return Task(chosen, translator.config.alignment, (Request(begun),), token_scores=True)
