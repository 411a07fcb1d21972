"""What a person asks of translations in words; engines are asked for the same in ids. No torch here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sightline.errors import SightlineError, nearest
from sightline.files import read_lines
from sightline.hypothesis import Hypothesis, Request, SearchOptions, check_seed
from sightline.text import BOS, UNK, Tokenizer

if TYPE_CHECKING:
    from sightline.glossary import Glossary

UTILITIES = ("chrf", "bleu")


@dataclass(frozen=True)
class Wishes:
    """What is asked for beside the options of a search.

    `prefix`: what every translation begins with; `prefixes`: the same for each line, in their order.
    `glossary`: terms to be translated as it says. `forbid`: words never to be written.
    `require`: words or phrases that every translation has; `requires`: the same for each line.
    `seeds`: for each line, what its samples begin from.
    `utility` ("chrf", "bleu" or a function of candidate and reference) and `aggregate`: how the strategy "mbr" chooses,
    see `sightline.risk`.
    `check`: look for signs of bad translations; `retry`: and make those once more with safer settings.
    """

    prefix: str = ""
    prefixes: tuple[str, ...] = ()
    glossary: Glossary | None = None
    forbid: tuple[str, ...] = ()
    require: tuple[str, ...] = ()
    requires: tuple[tuple[str, ...], ...] = ()
    seeds: tuple[int, ...] = ()
    utility: str | Callable[[str, str], float] = "chrf"
    aggregate: bool = False
    check: bool = False
    retry: bool = False

    @property
    def of_sentences(self) -> bool:
        """Whether sentences have requests of their own."""
        return bool(self.prefix or self.prefixes or self.constrains or self.seeds)

    @property
    def constrains(self) -> bool:
        """Whether there are words that must occur."""
        return bool(self.glossary or self.require or self.requires)

    @property
    def most(self) -> Request:
        """As much as any sentence may be asked for, to find out whether an engine can do it."""
        begun = (UNK,) if self.prefix or any(self.prefixes) else ()
        return Request(begun, (((UNK,),),) if self.constrains else ())

    @property
    def checks(self) -> bool:
        """Whether signs of bad translations are looked for."""
        return self.check or self.retry

    def check_options(self, options: SearchOptions) -> None:
        """Refuses what cannot be done with such a search, or at all, whatever the lines are."""
        if not callable(self.utility) and self.utility not in UTILITIES:
            raise SightlineError(f"unknown utility '{self.utility}'; {nearest(str(self.utility), UTILITIES)}")
        if self.aggregate and callable(self.utility):
            raise SightlineError("a utility that is a function cannot be aggregated: choose chrf or bleu, or neither")
        if self.constrains and options.sampled:
            what = "a glossary" if self.glossary else "a word that must be there"
            raise SightlineError(f"{what} needs beam search: sampling cannot promise its terms")
        if self.constrains and options.groups > 1:
            what = "a glossary" if self.glossary else "a word that must be there"
            raise SightlineError(f"{what} needs a beam of one group: leave out groups={options.groups}")

    def check_count(self, lines: int, names: Sequence[str]) -> None:
        """Refuses lists of these names that have not one entry for each of so many lines."""
        for name in names:
            count = len(getattr(self, name))
            if count != lines:
                raise SightlineError(
                    f"{name}: {count:,} for {lines:,} line{'s' * (lines != 1)}: give one for each line"
                )

    def check_spelling(self, tokenizer: Tokenizer) -> None:
        """Refuses what no line could have, since the vocabulary cannot spell it."""
        begun_ids(self.prefix, tokenizer)
        if self.require:
            from sightline.required import constraints

            constraints(self.require, tokenizer)

    def whole(self, place: int) -> bool:
        """Whether something is asked of the whole translation of the line at this place, so that its sentences cannot
        be translated one by one: how it begins, or words that must be somewhere in it."""
        return bool(self._of(self.prefixes, place, self.prefix) or self.required(place))

    def request(self, line: str, place: int, tokenizer: Tokenizer, any_case: bool = False) -> Request:
        """What a line is asked for, in the target `tokenizer`'s ids; `place` is its own in the lists, from 0.

        `any_case`: the case of its words tells nothing, see `Glossary`.
        """
        prefix = begun_ids(self._of(self.prefixes, place, self.prefix), tokenizer)
        seed = self._of(self.seeds, place, None)
        if not self.constrains:
            return Request(prefix, seed=seed)
        from sightline.required import constraints
        from sightline.wording import inside_words

        terms = self.glossary.constraints(line, tokenizer, any_case) if self.glossary else ()
        # What a term asks for already is not asked for twice.
        asked = [one for one in constraints(self.required(place), tokenizer) if one not in terms]
        every = (*terms, *asked)
        return Request(prefix, every, seed, inside_words(tokenizer) if every else frozenset())

    def required(self, place: int) -> tuple[str, ...]:
        """The words and phrases that the translation of the line at this place must have."""
        return (*self.require, *self._of(self.requires, place, ()))

    def outcomes(
        self, line: str, place: int, text: str, tokenizer: Tokenizer, any_case: bool = False
    ) -> dict[str, Any]:
        """What a translation's record says of words that had to be there; arguments as for `request`."""
        found: dict[str, Any] = {}
        if self.glossary:
            found["terms"] = self.glossary.honoured(line, text, tokenizer, any_case)
        if self.require or self.requires:
            from sightline.required import outcomes

            found["required"] = outcomes(self.required(place), text, tokenizer)
        return found

    def forbidden(self, tokenizer: Tokenizer, enlarged: bool = False) -> tuple[tuple[int, ...], ...]:
        """What must not be written, in the target `tokenizer`'s ids; `enlarged`: where it will be in capitals."""
        if not self.forbid:
            return ()
        from sightline.forbidden import forbidden_ids

        return forbidden_ids(self.forbid, tokenizer, enlarged)

    def ranked(self, hypotheses: Sequence[Hypothesis], texts: Sequence[str], sampled: bool) -> list[int]:
        """The places of the different candidates by minimum Bayes risk, best first.

        Samples stand for themselves; what a beam search has found counts by its probability.
        """
        from sightline.risk import choose, probabilities

        weights = None if sampled else probabilities([one.log_prob for one in hypotheses]).tolist()
        return choose(texts, weights=weights, utility=self.utility, aggregate=self.aggregate).order

    def _of(self, every: Sequence[Any], place: int, other: Any) -> Any:
        """The entry of a list, or what holds for all lines if there is no list."""
        if not every:
            return other
        if place >= len(every):
            name = next(name for name in PER_LINE if getattr(self, name) is every)
            raise SightlineError(f"no entry for it in {name}: there are {len(every):,}; give one for each line")
        return every[place]


NAMES = tuple(one.name for one in fields(Wishes))
PER_LINE = ("prefixes", "requires", "seeds")
"""Wishes that have an entry for each line."""


def begun_ids(prefix: str, tokenizer: Tokenizer) -> tuple[int, ...]:
    """What somebody typed, in ids; refused where the vocabulary cannot spell it, since it would not stay as it is."""
    ids = tuple(tokenizer.encode(prefix))
    if UNK in ids:
        unknown = [word for word in prefix.split() if UNK in tokenizer.encode(word)] or [prefix]
        raise SightlineError(
            f"this model's vocabulary cannot spell '{unknown[0]}' of the prefix '{prefix}': begin without it"
        )
    return ids


def empty_fields(options: Mapping[str, Any], requires: str = "") -> dict[str, Any]:
    """What the record of a line without a translation has all the same, so that all records have the same fields.

    `requires` is what the line's own entry of that list says, as a file has it.
    """
    fields: dict[str, Any] = {"flags": []} if options.get("check") or options.get("retry") else {}
    fields |= {"terms": []} if options.get("glossary") else {}
    if options.get("require") or options.get("requires"):
        from sightline.required import missing, split

        fields["required"] = missing([*(options.get("require") or ()), *split(requires)])
    return fields


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
                f"'{term}', which must be there, needs {len(shortest)} tokens, and this translation may have {limit}: "
                "leave it out, or raise max_length, max_ratio or max_extra"
            )
    return None


def read_wishes(options: Mapping[str, Any]) -> tuple[Wishes, dict[str, Any]]:
    """The wishes among options, and the other options. Files may stand for what they hold.

    `glossary` may be a term file, `forbid` the `Path` of a file with a word a line; of what each line is asked for
    (`prefixes`, `requires`, `seeds`) a file has a line for each. `require` and `forbid` may be one text.
    """
    given = {name: value for name, value in options.items() if name in NAMES and value is not None}
    rest = {name: value for name, value in options.items() if name not in NAMES}
    if "glossary" in given:
        given["glossary"] = read_glossary(given["glossary"])
    if not isinstance(given.get("prefix", ""), str):
        raise SightlineError(f"prefix is {given['prefix']!r}: give text; a list of them is prefixes")
    for name in ("forbid", "require"):
        given[name] = read_words(name, given.get(name, ()))
    for name in PER_LINE:
        given[name] = read_list(name, given.get(name, ()))
    if given.get("prefix") and given["prefixes"]:
        raise SightlineError("prefix and prefixes both say how translations begin: give one of them")
    return Wishes(**given), rest


def read_glossary(value: Any) -> Glossary:
    """A glossary, or that of a term file."""
    from sightline.glossary import Glossary

    if isinstance(value, str | Path):
        return Glossary.read(value)
    if not isinstance(value, Glossary):
        raise SightlineError(f"glossary is {value!r}: give a sightline.glossary.Glossary, or the name of a term file")
    return value


def read_words(name: str, value: Any) -> tuple[str, ...]:
    """Words or phrases, given as one text or as several; those to `forbid` also as the path of a file."""
    if name == "forbid" and isinstance(value, Path):
        from sightline import forbidden

        return tuple(forbidden.read_words(value))
    found = several(name, [value] if isinstance(value, str) else value, "a word or phrase, or a list of them")
    if name == "forbid" or not found:
        return found
    from sightline.required import checked

    return checked(found)


def read_list(name: str, value: Any) -> tuple[Any, ...]:
    """What each line is asked for, given as a list or as the name of a file with a line for each."""
    if isinstance(value, str | Path):
        return parse_list(name, list(read_lines(Path(value))), str(value))
    if name == "prefixes":
        return several(name, value, 'a text for each line, "" for none')
    if not isinstance(value, Iterable):
        raise SightlineError(f"{name} is {value!r}: give a list with an entry for each line")
    entries = tuple(value)
    if name == "requires":
        return tuple(read_words(name, one) for one in entries)
    for seed in entries:
        check_seed(seed)
    return entries


def several(name: str, value: Any, wanted: str) -> tuple[str, ...]:
    """The texts of a list; what is none, or holds something else, is an error that tells what is `wanted`."""
    found = tuple(value) if isinstance(value, Iterable) else (value,)
    for one in found:
        if not isinstance(one, str):
            raise SightlineError(f"{name} has {one!r}: give {wanted}")
    return found


def parse_list(name: str, lines: Sequence[str], file: str, first: int = 1) -> tuple[Any, ...]:
    """The same from the lines of a file, of which these begin with number `first`."""
    if name == "prefixes":
        return tuple(lines)
    found: list[Any] = []
    for number, line in enumerate(lines, first):
        if name == "requires":
            from sightline.required import split

            found.append(split(line))
            continue
        try:
            found.append(int(line))
            check_seed(found[-1])
        except (ValueError, SightlineError):
            raise SightlineError(f"{file}, line {number}: '{line}': give a number from 0 to 2**64 - 1") from None
    return tuple(found)
