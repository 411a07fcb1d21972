"""Lexical constraints of one sentence: what a hypothesis has met, is in the middle of, and still needs. No tensors.

A constraint is met where one of its alternatives stands in the translation, token after token, and nothing that goes on
with a word follows. What a hypothesis has met follows from its tokens alone, with no choices: each constraint has an
automaton that reads them (Aho and Corasick 1975, over its alternatives), starts anew after every occurrence, and so
counts as many occurrences that do not overlap as there can be. A phrase that breaks off falls back to the longest
beginning of an alternative that its tokens still are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from sightline.errors import SightlineError
from sightline.hypothesis import Request
from sightline.search.protocol import StepModel

Progress = tuple[tuple[int, int], ...]
"""For each different constraint how often it was met, and its automaton's node."""


class Automaton:
    """Reads tokens and knows, at each node, whether one of the alternatives has just been read.

    `moves[node]`: tokens that lead to another node than 0, where nothing has been read.
    `whole[node]`: whether an alternative ends here. `need[node]`: the fewest tokens until one may.
    """

    def __init__(self, alternatives: Sequence[Sequence[int]], bos: int) -> None:
        children: list[dict[int, int]] = [{}]
        ends: set[int] = set()
        for tokens in alternatives:
            node = 0
            for token in tokens:
                node = children[node].setdefault(token, len(children))
                if node == len(children):
                    children.append({})
            ends.add(node)
        self.moves = children
        self.whole = [node in ends for node in range(len(children))]
        # Nothing but the beginning of a sentence is reached by the start symbol.
        left = [0] * len(children)
        for node in reversed(range(len(children))):  # a child has a higher number than its parent
            ways = [left[child] + 1 for token, child in children[node].items() if token != bos] or [len(children)]
            left[node] = 0 if self.whole[node] else min(ways)
        self.need = left
        self._fall_back()
        self.start = self.moves[0].get(bos, 0)
        self.wanted = [[token for token in moves if token != bos] for moves in self.moves]

    def _fall_back(self) -> None:
        """Gives every node what the longest proper suffix of its tokens that is a node has, its parents first."""
        fallback = [0] * len(self.moves)
        waiting = [0]
        for node in waiting:  # grows
            suffix = fallback[node]
            for token, child in self.moves[node].items():
                waiting.append(child)
                fallback[child] = self.moves[suffix].get(token, 0) if node else 0
            if node:
                self.moves[node] = {**self.moves[suffix], **self.moves[node]}
                self.whole[node] = self.whole[node] or self.whole[suffix]
                self.need[node] = min(self.need[node], self.need[suffix])


class Constraints:
    """The constraints of one sentence, each different one once, with how often it must be met."""

    def __init__(self, request: Request, bos: int) -> None:
        self.inside = request.inside
        given = [frozenset(tuple(one) for one in alternatives) for alternatives in request.constraints]
        times = Counter(given)
        different = list(times)
        self.order = [different.index(constraint) for constraint in given]
        self.times = [times[constraint] for constraint in different]
        self.automata = [Automaton(sorted(constraint), bos) for constraint in different]

    @property
    def start(self) -> Progress:
        """The progress of a hypothesis without tokens."""
        return tuple((0, automaton.start) for automaton in self.automata)

    def advance(self, progress: Progress, token: int) -> Progress:
        """The progress one token later. An alternative just read is met as soon as something else begins."""
        moved = []
        for (met, node), automaton, times in zip(progress, self.automata, self.times, strict=True):
            if met == times:
                moved.append((met, 0))
            elif automaton.whole[node] and token not in self.inside:
                moved.append((met + 1, automaton.moves[0].get(token, 0)))
            else:
                moved.append((met, automaton.moves[node].get(token, 0)))
        return tuple(moved)

    def need(self, progress: Progress) -> int:
        """How many tokens the constraints still need one after the other, each by its shortest way; at 0 all are met.

        Of several that are begun only the furthest counts: its next token mostly breaks the others off. So there is
        always a token that brings the need down.
        """
        rest = begun = 0
        for (met, node), automaton, times in zip(progress, self.automata, self.times, strict=True):
            if met < times:
                rest += (times - met - automaton.whole[node]) * automaton.need[0]
                begun = max(begun, 0 if automaton.whole[node] else automaton.need[0] - automaton.need[node])
        return rest - begun

    def wanted(self, progress: Progress) -> set[int]:
        """The tokens that bring a constraint nearer or begin one anew."""
        return {
            token
            for (met, node), automaton, times in zip(progress, self.automata, self.times, strict=True)
            if met + automaton.whole[node] < times
            for token in automaton.wanted[node]
        }

    def met(self, progress: Progress) -> tuple[bool, ...]:
        """For each constraint, in the order given, whether it is met if the sentence ends now."""
        counts = [
            met + (met < times and automaton.whole[node])
            for (met, node), automaton, times in zip(progress, self.automata, self.times, strict=True)
        ]
        honoured = []
        for which in self.order:  # of one given several times, as many as were met
            honoured.append(counts[which] > 0)
            counts[which] -= 1
        return tuple(honoured)

    def honoured(self, tokens: Sequence[int]) -> tuple[bool, ...]:
        """`met` of a whole translation."""
        progress = self.start
        for token in tokens:
            progress = self.advance(progress, token)
        return self.met(progress)


def check_constraints(model: StepModel, requests: Sequence[Request], limits: Sequence[int]) -> None:
    """Refuses constraints that no translation can meet, with at most so many tokens as each sentence's limit."""
    special = {model.pad, model.bos, model.eos}
    given = [
        (number, limit, place, alternatives)
        for number, (request, limit) in enumerate(zip(requests, limits, strict=True), 1)
        for place, alternatives in enumerate(request.constraints, 1)
    ]
    for number, limit, place, alternatives in given:
        bare = [tokens[tokens[0] == model.bos :] for tokens in alternatives]
        shown = sorted(bare, key=len)[0]
        name = f"constraint {place} of sentence {number} (ids {' '.join(map(str, shown))})"
        if any(special & set(tokens) or not tokens for tokens in bare):
            raise SightlineError(f"{name} holds padding, an end symbol, or a start symbol that is not first")
        if len(shown) > limit:
            raise SightlineError(
                f"{name} needs {len(shown)} tokens, and this translation may have {limit}: "
                "leave it out, or raise max_length, max_ratio or max_extra"
            )
