"""What a person asks of translations in words; engines are asked for the same in ids. No torch here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sightline.errors import SightlineError
from sightline.files import read_lines
from sightline.hypothesis import Hypothesis, Request, SearchOptions
from sightline.text import BOS, UNK, Tokenizer

if TYPE_CHECKING:
    from sightline.glossary import Glossary


@dataclass(frozen=True)
class Wishes:
    """What is asked for beside the options of a search.

    `prefix`: what every translation begins with; `prefixes`: the same for each line, by its number.
    `glossary`: terms to be translated as it says. `forbid`: words never to be written.
    `utility` ("chrf", "bleu" or a function of candidate and reference) and `aggregate`: how the strategy "mbr" chooses,
    see `sightline.risk`.
    `check`: look for signs of bad translations; `retry`: and make those once more with safer settings.
    """

    prefix: str = ""
    prefixes: tuple[str, ...] = ()
    glossary: Glossary | None = None
    forbid: tuple[str, ...] = ()
    utility: str | Callable[[str, str], float] = "chrf"
    aggregate: bool = False
    check: bool = False
    retry: bool = False

    @property
    def of_sentences(self) -> bool:
        """Whether sentences have requests of their own."""
        return bool(self.prefix or self.prefixes or self.glossary)

    @property
    def most(self) -> Request:
        """As much as any sentence may be asked for, to find out whether an engine can do it."""
        begun = (UNK,) if self.prefix or any(self.prefixes) else ()
        return Request(begun, (((UNK,),),) if self.glossary else ())

    @property
    def checks(self) -> bool:
        """Whether signs of bad translations are looked for."""
        return self.check or self.retry

    def begins(self, number: int) -> bool:
        """Whether it is said how the translation of line `number`, counted from 1, begins."""
        return bool(self.prefix or "".join(self.prefixes[number - 1 : number]))

    def request(self, line: str, number: int, tokenizer: Tokenizer) -> Request:
        """What line `number`, counted from 1, is asked for, in the target `tokenizer`'s ids."""
        prefix = tuple(tokenizer.encode(self._prefix(number)))
        return self.glossary.request(line, tokenizer, prefix) if self.glossary else Request(prefix)

    def forbidden(self, tokenizer: Tokenizer) -> tuple[tuple[int, ...], ...]:
        """What must not be written, in the target `tokenizer`'s ids."""
        if not self.forbid:
            return ()
        from sightline.forbidden import forbidden_ids

        return forbidden_ids(self.forbid, tokenizer)

    def ranked(self, hypotheses: Sequence[Hypothesis], texts: Sequence[str], sampled: bool) -> list[int]:
        """The places of the different candidates by minimum Bayes risk, best first.

        Samples stand for themselves; what a beam search has found counts by its probability.
        """
        from sightline.risk import choose, probabilities

        weights = None if sampled else probabilities([one.log_prob for one in hypotheses]).tolist()
        return choose(texts, weights=weights, utility=self.utility, aggregate=self.aggregate).order

    def _prefix(self, number: int) -> str:
        if not self.prefixes:
            return self.prefix
        if number > len(self.prefixes):
            raise SightlineError(f"no prefix for line {number}: there are {len(self.prefixes)}; give one for each line")
        return self.prefixes[number - 1]


def no_room(request: Request, options: SearchOptions, source: int, tokenizer: Tokenizer) -> str | None:
    """What of a request cannot be in the translation of a source of so many tokens, and why; None when all can."""
    begun = len(request.prefix)
    if options.max_length is not None and begun > options.max_length:
        most = options.max_length
        return f"its prefix has {begun} tokens, more than max_length = {most}: shorten it or raise max_length"
    limit = max(options.limit(source), begun)
    for alternatives in request.constraints:
        shortest = min((tokens[tokens[0] == BOS :] for tokens in alternatives), key=len)
        if len(shortest) > limit:
            term = tokenizer.decode(list(shortest))
            return (
                f"the glossary's '{term}' needs {len(shortest)} tokens, and this translation may have {limit}: "
                "leave it out, or raise max_length, max_ratio or max_extra"
            )
    return None


NAMES = tuple(one.name for one in fields(Wishes))


def read_wishes(options: dict[str, Any]) -> tuple[Wishes, dict[str, Any]]:
    """The wishes among options, and the other options. Files may stand for what they hold.

    `glossary` may be a term file, `prefixes` and `forbid` the name of a file with one a line.
    """
    given = {name: value for name, value in options.items() if name in NAMES and value is not None}
    rest = {name: value for name, value in options.items() if name not in NAMES}
    if isinstance(given.get("glossary"), str | Path):
        from sightline.glossary import Glossary

        given["glossary"] = Glossary.read(given["glossary"])
    if isinstance(given.get("prefixes"), str | Path):
        given["prefixes"] = read_lines(Path(given["prefixes"]))
    if isinstance(given.get("forbid"), str | Path):
        from sightline.forbidden import read_words

        given["forbid"] = read_words(Path(given["forbid"]))
    for name in ("prefixes", "forbid"):
        given[name] = tuple(given.get(name, ()))
    if given.get("prefix") and given["prefixes"]:
        raise SightlineError("prefix and prefixes both say how translations begin: give one of them")
    return Wishes(**given), rest
