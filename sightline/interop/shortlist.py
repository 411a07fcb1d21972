"""A lexical shortlist: the target tokens that translations of some source tokens may consist of.

The largest product of a small model is its last, with every entry of the target vocabulary. A shortlist leaves most of
them out: each source token brings the tokens that it was seen to become, the most frequent are always there, and a
batch may use what all its sentences bring. What a token becomes is learnt from pairs: see `sightline.lexicon`. The end
symbol, which every source has, serves as the empty word of the model that learns it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sightline.errors import SightlineError
from sightline.folder import Tokenizers
from sightline.lexicon import Ids, Lexicon, learn_lexicon
from sightline.readers import Pair
from sightline.tokenizers import BOS, EOS, PAD, UNK

FILE = "vmap.txt"
"""The name that CTranslate2 gives it."""

SIZE = 20
"""Most target tokens that a source token brings."""

FREQUENT = 512
"""Target tokens that are always there, the most frequent ones."""

LEAST = 0.02
"""A token is brought as long as it has this part of an even share of the probability, 1 / size."""

RARE = 5  # a source token seen less often may also stay as it is: a name, a number, a byte
# Pairs of tokens that are looked at: beyond so many in all sentences are left out, evenly chosen.
MOST_PAIRS = 60_000_000


@dataclass(frozen=True)
class Shortlist:
    """`always`: target ids that every translation may use. `candidates`: those that a source id brings besides."""

    always: tuple[int, ...]
    candidates: Mapping[int, tuple[int, ...]]

    def allowed(self, source: Iterable[int]) -> set[int]:
        """All that a translation of these tokens, of one sentence or of a batch, may use."""
        found = set(self.always)
        for token in source:
            found.update(self.candidates.get(token, ()))
        return found

    def share(self, pairs: Iterable[tuple[Ids, Ids]]) -> float:
        """The share of target tokens that translations of their sources, one by one, may use."""
        held = total = 0
        for source, target in pairs:
            allowed = self.allowed(source)
            held += sum(token in allowed for token in target)
            total += len(target)
        return held / total if total else 1.0

    def text(self, source_names: Sequence[str], target_names: Sequence[str]) -> str:
        """The content of `vmap.txt`: `source<TAB>target target …` in each line, and first what is always there.

        Names that hold what separates names there cannot be told. No text has them: white space ends a word.
        """
        rows = [(source_names[source], targets) for source, targets in sorted(self.candidates.items())]
        lines = []
        for name, targets in [("", self.always), *((name, targets) for name, targets in rows if _plain(name))]:
            told = [target_names[target] for target in targets if _plain(target_names[target])]
            if told:
                lines.append(f"{name}\t{' '.join(told)}\n")
        return "".join(lines)


def _plain(name: str) -> bool:
    return bool(name) and not any(separator in name for separator in " \t\r\n")


def learn(pairs: Iterable[Pair], tokenizers: Tokenizers, size: int = SIZE, frequent: int = FREQUENT) -> Shortlist:
    """A shortlist of `frequent` tokens for every translation and of at most `size` more for each source token.

    The pairs should be those that the model learnt from, or some like them. Of very many, evenly chosen ones are used.
    """
    if size < 1:
        raise SightlineError(f"a shortlist of {size} tokens for a source token: give at least 1")
    encoded = encode(pairs, tokenizers)
    if not encoded:
        raise SightlineError("no pair to learn a shortlist from: a side of each is empty")
    return choose(learn_lexicon(encoded, tokenizers.target.size), encoded, tokenizers, size, frequent)


def choose(
    lexicon: Lexicon,
    encoded: Sequence[tuple[Ids, Ids]],
    tokenizers: Tokenizers,
    size: int = SIZE,
    frequent: int = FREQUENT,
    least: float = LEAST,
) -> Shortlist:
    """The shortlist that a lexicon gives; `encoded` are the pairs that it was learnt from."""
    counts = np.bincount(np.concatenate([target for _, target in encoded]), minlength=tokenizers.target.size)
    most = np.argsort(-counts, kind="stable")[:frequent]
    # CTranslate2 keeps the numbers that the special entries had in the batch before: they never change if all are in.
    always = {PAD, UNK, BOS, EOS, *most[counts[most] > 0].tolist()}
    # The end symbol is in every source, so what it brings is always there.
    always.update(_best(lexicon, always, size, least).get(EOS, ()))
    candidates = _best(lexicon, always, size, least)
    for source, target in _rare(encoded, tokenizers):
        if target not in always and target not in candidates.get(source, ()):
            candidates[source] = (*candidates.get(source, ()), target)
    return Shortlist(tuple(sorted(always)), {source: candidates[source] for source in sorted({*candidates} - {EOS})})


def encode(pairs: Iterable[Pair], tokenizers: Tokenizers) -> list[tuple[list[int], list[int]]]:
    """Ids of source (with its end symbol) and target of each pair; of every second if they are too many, and so on."""
    kept: list[tuple[list[int], list[int]]] = []
    every, held = 1, 0
    for number, pair in enumerate(pairs):
        if number % every:
            continue
        source, target = tokenizers.source.encode(pair.source), tokenizers.target.encode(pair.target)
        if source and target:
            kept.append(([*source, EOS], target))
            held += (len(source) + 1) * len(target)
        if held > MOST_PAIRS and len(kept) > 1:
            kept, every = kept[::2], 2 * every
            held = sum(len(source) * len(target) for source, target in kept)
    return kept


def _best(lexicon: Lexicon, without: set[int], size: int, least: float) -> dict[int, tuple[int, ...]]:
    """The `size` most probable targets of each source, the best first, without some."""
    wanted = ~np.isin(lexicon.targets, list(without)) & (lexicon.probabilities >= least / size)
    sources, targets = lexicon.sources[wanted], lexicon.targets[wanted]
    order = np.lexsort((targets, -lexicon.probabilities[wanted], sources))
    sources, targets = sources[order], targets[order]
    rank = np.arange(len(sources)) - np.searchsorted(sources, sources)
    sources, targets = sources[rank < size], targets[rank < size]
    names, starts = np.unique(sources, return_index=True)
    groups = np.split(targets, starts[1:]) if len(names) else []
    return {int(name): tuple(group.tolist()) for name, group in zip(names, groups, strict=True)}


def _rare(pairs: Sequence[tuple[Ids, Ids]], tokenizers: Tokenizers) -> Iterable[tuple[int, int]]:
    """Source tokens that were hardly seen, each with the target token of the same name."""
    source, target = tokenizers.source, tokenizers.target
    counts = np.bincount(np.concatenate([ids for ids, _ in pairs]), minlength=source.size)
    ids = {target.piece(id): id for id in range(target.size)}
    for token in np.flatnonzero(counts < RARE).tolist():
        same = ids.get(source.piece(token))
        if same is not None:
            yield token, same
