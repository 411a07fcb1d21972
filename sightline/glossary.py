"""Glossaries: a term of the source is translated as the file says, and the result tells whether it was. No torch.

A term file has a term a line: the source term, a tab, its translation, and more of these after further tabs, such as
inflected forms, of which any will do. Lines that begin with # are comments.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from sightline.errors import SightlineError
from sightline.hypothesis import Request
from sightline.tokenizers import BOS, UNK, Tokenizer
from sightline.wording import Word, inner_ids, inside_words, is_unspaced, listed_lines, words

Constraint = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Term:
    """A source term and the translations that it may have."""

    source: str
    translations: tuple[str, ...]


@dataclass(frozen=True)
class TermOutcome:
    """What became of a term that a source sentence has: `text` is how it stands there."""

    term: Term
    text: str
    honoured: bool


class Glossary:
    """Terms, and where sentences have them.

    A term is found as whole words, the longest first. Its case is ignored where it is not found as written: `car` is
    also `Car` and `CAR`. But a term with a capital after the first letter of a word (`US`, `iPhone`) must stand as
    it is, unless the sentence is one in which case tells nothing (`any_case`): one in capitals.
    """

    def __init__(self, terms: Sequence[Term]) -> None:
        self.terms = list(terms)
        if not self.terms:
            raise SightlineError("glossary: no terms in it: give at least one, or no glossary")
        self._by_first: defaultdict[str, list[tuple[list[Word], Term]]] = defaultdict(list)
        for term in terms:
            pattern = words(term.source)
            if not pattern or not term.translations or not all(map(words, term.translations)):
                raise SightlineError(f"glossary: {term.source!r} or a translation of it is empty")
            self._by_first[pattern[0].text.casefold()].append((pattern, term))

    @staticmethod
    def read(path: Path | str) -> Glossary:
        """Reads a term file."""
        path = Path(path)
        terms: dict[str, tuple[int, Term]] = {}
        for number, line in listed_lines(path):
            where = f"{path}, line {number}"
            term, *translations = [" ".join(part.split()) for part in line.rstrip("\t ").split("\t")]
            if not term:
                raise SightlineError(f"{where}: no source term before the tab: write 'term<TAB>translation'")
            if not translations:
                raise SightlineError(f"{where}: no translation of {term!r}: write 'term<TAB>translation'")
            if not all(translations):
                raise SightlineError(f"{where}: an empty translation of {term!r}: take out one of the tabs")
            found = Term(term, tuple(translations))
            first, known = terms.setdefault(term, (number, found))
            if known != found:
                raise SightlineError(
                    f"{where}: {term!r} is on line {first} already: put all of its translations on one line"
                )
        if not terms:
            raise SightlineError(f"{path}: no terms in it: write 'term<TAB>translation', one a line")
        return Glossary([term for _, term in terms.values()])

    def find(self, source: str, any_case: bool = False) -> list[tuple[Term, str]]:
        """The terms of a sentence and how they stand there, in the sentence's order; none overlaps another."""
        sentence = words(source)
        matches = []
        for start, word in enumerate(sentence):
            for order, (pattern, term) in enumerate(self._by_first.get(word.text.casefold(), ())):
                here = sentence[start : start + len(pattern)]
                if _is_here(pattern, here, any_case):
                    exact = [one.text for one in here] == [one.text for one in pattern]
                    matches.append((-len(_joined(here)), not exact, start, order, term, here))
        matches.sort(key=lambda match: match[:4])
        taken: set[int] = set()
        kept = []
        for _, _, start, _, term, here in matches:
            places = range(start, start + len(here))
            if not taken.intersection(places):
                taken.update(places)
                kept.append((start, term, _joined(here)))
        return [(term, text) for _, term, text in sorted(kept, key=lambda match: match[0])]

    def constraints(self, source: str, tokenizer: Tokenizer, any_case: bool = False) -> tuple[Constraint, ...]:
        """What a translation of the sentence must have, for `Request.constraints`, in the target `tokenizer`'s ids.

        A term whose translations its vocabulary cannot spell asks for nothing. Different constraints may be met by the
        same tokens, so what would do for other terms too is asked for once more for each of them.
        """
        found = [spelled(term.translations, tokenizer) for term, _ in self.find(source, any_case)]
        asked = [constraint for constraint in found if constraint]
        different = {frozenset(constraint): constraint for constraint in asked}
        again = (wide for ids, wide in different.items() for constraint in asked if ids > {*constraint})
        return (*asked, *again)

    def request(
        self, source: str, tokenizer: Tokenizer, prefix: tuple[int, ...] = (), seed: int | None = None
    ) -> Request:
        """The request for a sentence: its terms, as whole words of the target `tokenizer`, and whatever else."""
        return Request(prefix, self.constraints(source, tokenizer), seed, inside_words(tokenizer))

    def honoured(
        self, source: str, translation: str, tokenizer: Tokenizer | None = None, any_case: bool = False
    ) -> list[TermOutcome]:
        """For each term of the sentence, in its order, whether the translation has one of the term's translations.

        As whole words and in the case of the file, but a capital may begin the translation; with the target
        `tokenizer`, in the form (such as lower case) that it gives to text. No word of the translation counts for two
        terms: one that the source has twice is to be found twice, and so is a translation that two terms share.
        """
        given, found = words(translation), self.find(source, any_case)
        places: dict[Term, tuple[range, ...]] = {}
        for term in dict.fromkeys(term for term, _ in found):
            forms = [tokenizer.normalise(one) if tokenizer else one for one in term.translations]
            places[term] = _places(given, [words(form) for form in forms])
        having = _with_a_place([places[term] for term, _ in found])
        return [TermOutcome(term, text, number in having) for number, (term, text) in enumerate(found)]


def _is_here(pattern: list[Word], here: list[Word], any_case: bool) -> bool:
    """Whether a term stands here, as it is written or in another case where that may be."""
    if len(here) < len(pattern):
        return False
    for place, (one, other) in enumerate(zip(pattern, here, strict=True)):
        strict = not any_case and any(character.isupper() for character in one.text[1:])
        same = one.text == other.text if strict else one.text.casefold() == other.text.casefold()
        if not same or (place and one.spaced != other.spaced):
            return False
    return True


def _joined(found: list[Word]) -> str:
    return "".join(f" {word.text}" if word.spaced else word.text for word in found).strip()


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def occurrences(given: list[Word], forms: list[list[Word]]) -> int:
    """How often one of the forms stands in the words given, without overlaps, from left to right."""
    count = start = 0
    for end in range(1, len(given) + 1):
        for form in forms:
            first = end - len(form)
            if first >= start and _is_form(form, given[first:end], beginning=first == 0):
                count, start = count + 1, end
                break
    return count


def _places(given: list[Word], forms: list[list[Word]]) -> tuple[range, ...]:
    """Where one of the forms stands in the words given: those that end first, then the shortest, come first."""
    found = {
        range(end - len(form), end)
        for end in range(1, len(given) + 1)
        for form in forms
        if len(form) <= end and _is_form(form, given[end - len(form) : end], beginning=len(form) == end)
    }
    return tuple(sorted(found, key=lambda place: (place.stop, len(place))))


def _with_a_place(places: Sequence[tuple[range, ...]]) -> set[int]:
    """Those that get one of their places when no word is given to two: as many of them as can be.

    Whoever finds a place taken has its holders move on, if they can (Kuhn's algorithm). Where places overlap without
    being the same, it may find less than there is to be found, never more.
    """
    held: dict[int, range] = {}
    owner: dict[int, int] = {}  # of a word
    numbers: dict[tuple[range, ...], int] = {}
    kinds = [numbers.setdefault(those, len(numbers)) for those in places]

    def settle(number: int, taken: frozenset[int], seen: set[int]) -> bool:
        seen.add(kinds[number])  # who has the same places cannot move on where this one cannot
        for place in places[number]:
            holders = {owner[word] for word in place if word in owner} - {number}
            free = taken.isdisjoint(place) and all(
                kinds[one] not in seen and settle(one, taken.union(place), seen) for one in sorted(holders)
            )
            if free:
                for word in held.get(number, ()):
                    del owner[word]
                held[number] = place
                owner.update(dict.fromkeys(place, number))
                return True
        return False

    return {number for number in range(len(places)) if settle(number, frozenset(), set())}


def _is_form(form: list[Word], here: list[Word], beginning: bool) -> bool:
    head = {form[0].text, _capital(form[0].text)} if beginning else {form[0].text}
    return here[0].text in head and here[1:] == form[1:]


@lru_cache(maxsize=10_000)
def spelled(translations: tuple[str, ...], tokenizer: Tokenizer) -> Constraint:
    """The translations in ids, as they are written within a sentence and at its beginning, where a capital is allowed.

    Where a script has no spaces a term is also looked for without one before it.
    """
    found: dict[tuple[int, ...], None] = {}
    for text in translations:
        within = inner_ids(tokenizer, text)
        spelled = [within] if within else []
        for form in (text, _capital(text)):
            first = tuple(tokenizer.encode(form))
            if first != within:
                spelled.append((BOS, *first))
        if is_unspaced(text[0]):
            joined = inner_ids(tokenizer, text, before="a")
            spelled += [joined] if joined else []
        found.update(dict.fromkeys(ids for ids in spelled if UNK not in ids))
    return tuple(found)
