"""The options of `Translator.translate`, `stream` and `live`, with their types. No torch here.

Each is told in full where it is used: those of a search in `sightline.hypothesis.SearchOptions`, the wishes in
`sightline.wishes.Wishes`. One that is left out has the value of the model's configuration (its `search` section).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from sightline.glossary import Glossary


class LiveOptions(TypedDict, total=False):
    """What holds for one translation, and so also for one that is shown while it is made.

    `strategy`: "beam", "greedy", "sample" or "mbr".
    `beam`: hypotheses kept at each step. `length_penalty` ("average", "gnmt", "none") and `alpha`: what a
    log-probability is divided by. `coverage_penalty`: beta of GNMT's. `stopping` ("first", "enough", "hopeless") and
    `patience`: when a beam search ends.
    `temperature`, `top_k`, `top_p`, `min_p`: what is drawn from. `seed`: what random numbers begin from.
    `min_length`, `max_length`, `max_ratio`, `max_extra`: limits of the length, in tokens.
    `no_repeat`: no so many tokens twice. `repetition_penalty`: above 1, tokens written before are avoided.
    `forbidden`: sequences of ids never written; `forbid`: a word or phrase, several, or the `Path` of a file of them.
    `prefix`: what a translation begins with. `glossary`: terms, or a file of them. `require`: a word or phrase, or
    several, that a translation must have.
    """

    strategy: str | None
    beam: int | None
    length_penalty: str | None
    alpha: float | None
    coverage_penalty: float | None
    stopping: str | None
    patience: float | None
    temperature: float | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    seed: int | None
    min_length: int | None
    max_length: int | None
    max_ratio: float | None
    max_extra: int | None
    no_repeat: int | None
    repetition_penalty: float | None
    forbidden: tuple[tuple[int, ...], ...] | None
    forbid: Sequence[str] | str | Path | None
    prefix: str | None
    glossary: Glossary | str | Path | None
    require: Sequence[str] | str | None


class StreamOptions(LiveOptions, total=False):
    """What else there is where translations come out whole.

    `n_best`: translations of each line. `groups`, `diversity`: parts of a beam that avoid one another's tokens.
    `samples`: how many are drawn. `utility` ("chrf", "bleu", or a function of candidate and reference) and `aggregate`:
    how "mbr" chooses among them.
    `prefixes`, `requires`, `seeds`: for each line, in their order, how it begins, what it must have, and what its
    samples begin from; or a file with a line for each.
    `check`: look for signs of bad translations; `retry`: and make those once more.
    """

    n_best: int | None
    groups: int | None
    diversity: float | None
    samples: int | None
    utility: str | Callable[[str, str], float] | None
    aggregate: bool | None
    prefixes: Sequence[str] | str | Path | None
    requires: Sequence[str | Sequence[str]] | str | Path | None
    seeds: Sequence[int] | str | Path | None
    check: bool | None
    retry: bool | None


class Options(StreamOptions, total=False):
    """All options of `translate`.

    `align`: word links and the weights they are read from. `token_scores`: the log-probability of each token, and exact
    scores. True works them out at once, False never; by default they are worked out when they are first looked at.
    """

    align: bool | None
    token_scores: bool | None
