"""Word links beside the training text: read line by line, checked against their sentences, and told in tokens.

A link is `(source, target)`, both from 0: of words as a line of text has them between spaces, or of tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sightline.efficient import check_shown
from sightline.errors import SightlineError
from sightline.files import read_lines
from sightline.metrics import parse_links

if TYPE_CHECKING:
    from sightline.config import RunConfig
    from sightline.readers import Pair

Link = tuple[int, int]


class LinkFile:
    """A file of Pharaoh lines, one for each pair of the training text, in the order of its corpora.

    `take` must be called once for each pair read, and `end` after the last.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.taken = path, 0
        self._lines: Iterator[str] = read_lines(path)

    def take(self) -> str:
        """The next line, not yet looked at."""
        line = next(self._lines, None)
        if line is None:
            raise SightlineError(
                f"{self.path} has {self.taken:,} lines, and the training text more pairs: it must have one line for "
                "each pair, an empty one where a pair has no links"
            )
        self.taken += 1
        return line

    def links(self, line: str, pair: Pair) -> list[Link]:
        """The sure links of the line taken last, in the order of their targets; they must lie within the pair."""
        if not line or line.isspace():
            return []
        where = f"{self.path}, line {self.taken}"
        try:
            found = parse_links(line)[0]
        except SightlineError as error:
            raise SightlineError(f"{where}: {error}") from None
        sizes = len(pair.source.split()), len(pair.target.split())
        for source, target in found:
            if source >= sizes[0] or target >= sizes[1]:
                raise SightlineError(
                    f"{where}: link {source}-{target} (from 0), but the sentences have {sizes[0]} and {sizes[1]} words "
                    "between spaces"
                )
        return sorted(found, key=lambda link: (link[1], link[0]))

    def end(self) -> None:
        """Refuses lines that are left over."""
        left = sum(1 for _ in self._lines)
        if left:
            raise SightlineError(
                f"{self.path} has {self.taken + left:,} lines, and the training text {self.taken:,} pairs: it must "
                "have one line for each pair"
            )


def token_links(links: Sequence[Link], source_owners: Sequence[int], target_owners: Sequence[int]) -> list[Link]:
    """Links of words as links of tokens: each token of a word to each token of the other.

    The owners are the numbers of the words that the tokens belong to, in order.
    """
    source, target = _spans(source_owners), _spans(target_owners)
    return [
        (left, right)
        for from_word, to_word in links
        for right in target.get(to_word, ())
        for left in source.get(from_word, ())
    ]


def _spans(owners: Sequence[int]) -> dict[int, list[int]]:
    """The tokens of each word that has any."""
    found: dict[int, list[int]] = {}
    for place, word in enumerate(owners):
        found.setdefault(word, []).append(place)
    return found


def _opens_words(config: RunConfig) -> bool:
    """Whether a source sentence brings words of its own, which the other direction could not read."""
    return config.model.copies and config.text.tokenizer == "word"


def check_guidance(config: RunConfig) -> None:
    """Refuses links without attention to teach, teaching without links, and two sources of links."""
    data, recipe = config.data, config.model.recipe
    linked = data.alignments is not None or data.align_with is not None
    if data.alignments is not None and data.align_with is not None:
        raise SightlineError("data.alignments and data.align_with both give word links: leave out one of them")
    wanted = {
        "data.alignments": data.alignments is not None,
        "data.align_with": data.align_with is not None,
        "training.agreement": config.training.agreement > 0,
    }
    asked = [name for name, given in wanted.items() if given]
    if asked and recipe in ("seq2seq", "lm"):
        raise SightlineError(
            f"{asked[0]}: the recipe {recipe} has no attention to teach: choose another, or leave it out"
        )
    if asked:
        check_shown(config.model, "config", asked[0])
    if config.training.agreement and (config.model.lexicon.mode != "none" or _opens_words(config)):
        name = "a lexicon (model.lexicon.mode)" if config.model.lexicon.mode != "none" else "copying whole words"
        raise SightlineError(f"training.agreement trains both directions, and {name} knows one: leave out one of them")
    guided = config.model.guided
    heard = {"loss": linked, **dict.fromkeys(("reading", "layer", "head"), linked or config.training.agreement > 0)}
    for name, counts in heard.items():
        if not counts and getattr(guided, name) != type(guided).model_fields[name].default:
            raise SightlineError(
                f"model.guided.{name}={getattr(guided, name)} counts where word links teach: give data.alignments "
                "(--alignments FILE) or data.align_with, or leave it out"
            )
    if config.model.guided.weight and not linked:
        raise SightlineError(
            "model.guided.weight needs word links: give data.alignments, a file of them (--alignments FILE), or "
            "data.align_with, the aligner to make them (--align-with eflomal)"
        )
