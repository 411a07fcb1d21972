"""The translations of a line's parts put together: text, tokens, scores, word links of the whole. No torch here.

Shapes: H heads, T target rows, S source columns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from sightline import links
from sightline.folder import Tokenizers
from sightline.forced import Forced
from sightline.later import NO_SIGHT, SCORES, Sight
from sightline.sentences import Part
from sightline.text import EOS
from sightline.translation import Translation


@dataclass
class _Words:
    """The words of one side as they are put together; a part that follows without a space goes on with the last."""

    every: list[str] = field(default_factory=list)

    def add(self, words: Sequence[str], apart: bool) -> int:
        """Takes in more words; the number of the first."""
        if not words:
            return len(self.every)
        first, rest = len(self.every), list(words)
        if self.every and not apart:
            first -= 1
            self.every[-1] += rest.pop(0)
        self.every += rest
        return first


def joined(
    parts: Sequence[Part], made: Sequence[Translation | None], tokenizers: Tokenizers, empty: Translation
) -> Translation:
    """The translation of a line, of those of its parts (None for a part that is copied).

    `empty` is what becomes of the line if it holds nothing, with all fields that were asked for. What the parts leave
    for later, the whole line does too.
    """
    one = _joined_once(parts, made, tokenizers, empty)
    count = max((1 + len(each.others) for each in made if each is not None), default=1)
    ranks = ([_of_rank(each, rank) for each in made] for rank in range(1, count))
    others = [_joined_once(parts, of_rank, tokenizers, empty) for of_rank in ranks]
    first, retry = (_attempt(parts, made, tokenizers, empty, name) for name in ("first", "retry"))
    return one.changed(others=others, first=first, retry=retry)


def _of_rank(one: Translation | None, rank: int) -> Translation | None:
    """The translation of this rank, or the last there is."""
    return None if one is None else [one, *one.others][min(rank, len(one.others))]


def _attempt(
    parts: Sequence[Part], made: Sequence[Translation | None], tokenizers: Tokenizers, empty: Translation, name: str
) -> Translation | None:
    """The line with another attempt at those parts that had one; None if none had."""
    other = [getattr(each, name) or each if each is not None else None for each in made]
    if all(one is each for one, each in zip(other, made, strict=True)):
        return None
    return _joined_once(parts, other, tokenizers, empty)


def _joined_once(
    parts: Sequence[Part], made: Sequence[Translation | None], tokenizers: Tokenizers, empty: Translation
) -> Translation:
    text = ""
    for part, one in zip(parts, made, strict=True):
        written = _text(part, one)
        text += (part.gap if (text and written) or "\t" in part.gap else "") + written
    translated = [one for one in made if one is not None]
    ids: list[int] = []
    for number, one in enumerate(translated):
        # The end of a sentence stands between it and the next: tokens and their log-probabilities go side by side.
        if number and translated[number - 1].finished:
            ids.append(EOS)
        ids += one.ids
    lists = {
        name: [item for one in translated for item in getattr(one, name) or ()]
        for name in ("terms", "required")
        if getattr(empty, name) is not None
    }
    if empty.flags is not None:
        lists["flags"] = [
            replace(flag, sentence=number) for number, one in enumerate(translated, 1) for flag in one.flags or ()
        ]
    whole = empty.changed(
        text=text,
        ids=ids,
        tokens=tokenizers.target.names(ids),
        finished=all(one.finished for one in translated),
        **lists,
    )
    aligned = empty.links is not None
    return whole.with_later(
        {
            SCORES: lambda _: _scores(translated),
            Sight._fields: lambda _: _sight(parts, made, tokenizers, aligned),
        }
    )


def _scores(translated: Sequence[Translation]) -> tuple[float, float, list[float]]:
    """The mean score, the log-probability of all, and those of the tokens and ends."""
    score = math.fsum(one.score for one in translated) / max(len(translated), 1)
    values = [value for one in translated for value in one.token_log_probs]
    return score, math.fsum(one.log_prob for one in translated), values


def _text(part: Part, one: Translation | None) -> str:
    if one is None:
        return part.text
    return one.text.upper() if part.large else one.text


def _sight(parts: Sequence[Part], made: Sequence[Translation | None], tokenizers: Tokenizers, aligned: bool) -> Sight:
    """Words, links and weights of the whole line. The model never looked at what was copied: it has no links."""
    if not aligned or any(one is not None and one.links is None for one in made):
        return NO_SIGHT
    sources, targets = _Words(), _Words()
    found: links.Links = set()
    blocks: list[tuple[int, int, NDArray[np.float64]]] = []
    for part, one in zip(parts, made, strict=True):
        own = tokenizers.source.normalise(part.text).split()
        apart = bool(part.gap)
        if one is None:
            sources.add(own, apart)
            targets.add(part.text.split(), apart)
            continue
        # Small letters make no more words and no fewer; should they one day, the model's own are counted.
        column = sources.add(own if len(own) == len(one.source_words) else one.source_words, apart)
        row = targets.add([word.upper() for word in one.words] if part.large else one.words, apart)
        found |= {(column + source, row + target) for source, target in one.links or ()}
        if one.weights is not None:
            blocks.append((row, column, one.weights))
    weights, looked = np.zeros((len(targets.every), len(sources.every))), np.zeros(len(targets.every))
    for row, column, block in blocks:
        weights[row : row + block.shape[0], column : column + block.shape[1]] += block
        looked[row : row + block.shape[0]] += 1
    weights /= np.maximum(looked, 1)[:, None]  # two parts of one word: their mean, as of a word's pieces
    return Sight(targets.every, sources.every, sorted(found), weights if blocks else None)


def joined_forced(parts: Sequence[tuple[Part, Forced | None]], tokenizers: Tokenizers, like: links.Sentence) -> Forced:
    """What a model saw of a line, of what it saw of its parts (None of what was copied).

    Their weights are blocks along the diagonal. `like`: any sentence of the model, which has as many layers and heads.
    """
    sources, targets = _Words(), _Words()
    rows, columns = [0], [0]
    target_owners: list[int] = []
    source_owners: list[int] = []
    for part, one in parts:
        own, copied = tokenizers.source.normalise(part.text).split(), part.text.split()
        source_words = own if one is None or len(own) == len(one.source_words) else one.source_words
        target_words = copied if one is None else one.target_words
        if one is not None and part.large:
            target_words = [word.upper() for word in target_words]
        owners = (
            (range(len(target_words)), range(len(source_words)))
            if one is None
            else (one.sentence.target_words, one.sentence.source_words)
        )
        row, column = targets.add(target_words, bool(part.gap)), sources.add(source_words, bool(part.gap))
        # Every part brings its end symbol, which belongs to no word.
        target_owners += [*(_shifted(owners[0], row)), -1]
        source_owners += [*(_shifted(owners[1], column)), -1]
        rows.append(len(target_owners))
        columns.append(len(source_owners))
    real = [one for _, one in parts if one is not None]
    maps = []
    for number, each in enumerate(like.maps):
        whole = np.zeros((len(each), max(rows[-1], 1), max(columns[-1], 1)))
        for place, (_, one) in enumerate(parts):
            if one is not None:
                block = one.sentence.maps[number]
                top, left = rows[place], columns[place]
                whole[:, top : top + block.shape[1], left : left + block.shape[2]] = block
        maps.append(whole)
    copies = None if like.copied is None else maps.pop()
    log_probs = [value for one in real for value in one.token_log_probs]
    sentence = links.Sentence(maps, target_owners[:-1], source_owners[:-1], copied=copies)
    return Forced(sources.every, targets.every, sentence, log_probs)


def _shifted(owners: Sequence[int], first: int) -> list[int]:
    return [owner + first if owner >= 0 else -1 for owner in owners]


def spread(watch: Callable[[int], None], lines: int, parts: int) -> Callable[[int], None]:
    """Tells `watch` of lines when it is told of parts, so many of which are in so many lines."""
    done = told = 0
    if not parts:
        watch(lines)

    def advance(count: int) -> None:
        nonlocal done, told
        done += count
        now = lines * done // max(parts, 1)
        watch(now - told)
        told = now

    return advance
