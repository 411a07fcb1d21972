"""What is left out of the training text, and the account of it: how much by each rule, with examples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from sightline.readers import Pair
from sightline.scripts import script_words, share_of_script
from sightline.source_texts import split_sources

MOST_CHARACTERS = 32  # to a token
MOST_EXAMPLES = 3
SHOWN_CHARACTERS = 60


class Verdict(IntEnum):
    """What becomes of a pair: it is trained on, validated with, or dropped for a reason."""

    TRAIN = 0
    VALID = 1
    EMPTY = 2
    TOO_LONG = 3
    RATIO = 4
    IDENTICAL = 5
    SCRIPT = 6
    DUPLICATE = 7


REASONS = {
    Verdict.EMPTY: "with an empty side",
    Verdict.TOO_LONG: "too long",
    Verdict.RATIO: "of too unequal lengths",
    Verdict.IDENTICAL: "with identical sides",
    Verdict.SCRIPT: "in another script",
    Verdict.DUPLICATE: "seen before",
}


@dataclass(frozen=True)
class Filters:
    """The rules. Empty and hopelessly long pairs always go; the other rules are off until they are asked for.

    `ratio` bounds the characters of the longer side over those of the shorter; `identical` drops pairs whose sides are
    the same, `duplicates` pairs that came before; of a side with a script, `script_share` of the letters must be its.
    `alone`: there is text without a source, so no empty source makes a pair go. Of several `sources` some may be empty,
    and what is asked of the source side is asked of each of the others.
    """

    longest: int
    ratio: float | None = None
    identical: bool = False
    duplicates: bool = False
    source_script: str | None = None
    target_script: str | None = None
    script_share: float = 0.5
    alone: bool = False
    sources: int = 1

    def judge(self) -> Callable[[Pair], Verdict]:
        """A function that looks at one pair; only duplicates, which take all pairs to see, are not its business."""
        scripts = [
            (side, script_words(name))
            for side, name in enumerate((self.source_script, self.target_script))
            if name is not None
        ]
        longest, most_characters = self.longest, MOST_CHARACTERS * self.longest
        ratio, identical, alone = self.ratio, self.identical, self.alone

        def verdict(pair: Pair) -> Verdict:
            # Plain and lean: a corpus has millions of pairs, and nearly all of them pass.
            source, target = pair[0].strip(), pair[1].strip()
            if not target or not (source or alone):
                return Verdict.EMPTY
            characters = max(len(source), len(target))
            if characters > most_characters:
                return Verdict.TOO_LONG
            # A word takes a character and the space before the next.
            if characters >= 2 * longest and max(len(source.split()), len(target.split())) > longest:
                return Verdict.TOO_LONG
            if ratio is not None and characters > ratio * min(len(source), len(target)):
                return Verdict.RATIO
            if identical and source == target:
                return Verdict.IDENTICAL
            if scripts and any(share_of_script(pair[side], words) < self.script_share for side, words in scripts):
                return Verdict.SCRIPT
            return Verdict.TRAIN

        if self.sources == 1:
            return verdict

        def of_several(pair: Pair) -> Verdict:
            texts = [text for text in split_sources(pair.source, self.sources) if text.strip()]
            return max((verdict(Pair(text, pair.target)) for text in texts), default=Verdict.EMPTY)

        return of_several


@dataclass(frozen=True)
class Example:
    """A dropped pair: where it stands, and how it begins."""

    where: str
    source: str
    target: str

    def __str__(self) -> str:
        return f"{self.where}: {self.source} | {self.target}" if self.source else f"{self.where}: {self.target}"


@dataclass(frozen=True)
class Account:
    """How many pairs were kept, and how many were dropped and why. Written out, it is one line.

    `unit` is what they are called: text without a source has lines.
    """

    kept: int
    dropped: Mapping[Verdict, int] = field(default_factory=dict)
    examples: Mapping[Verdict, Sequence[Example]] = field(default_factory=dict)
    unit: str = "pair"

    def __str__(self) -> str:
        dropped = ", ".join(f"{count:,} {self._reason(why)}" for why, count in sorted(self.dropped.items()) if count)
        kept = f"{self.kept:,} {self.unit}{'s' * (self.kept != 1)}"
        return f"{kept}; dropped {dropped}" if dropped else kept

    def lines(self) -> list[str]:
        """The examples, one a line."""
        return [
            f"  {self._reason(why)}: {example}"
            for why in sorted(self.examples)
            for example in self.examples[why]
            if example
        ]

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        dropped = {
            why.name.lower(): {
                "count": count,
                "meaning": self._reason(why),
                "examples": [vars(example) for example in self.examples.get(why, ())],
            }
            for why, count in sorted(self.dropped.items())
            if count
        }
        return {"kept": self.kept, "dropped": dropped}

    def _reason(self, why: Verdict) -> str:
        return "empty" if why == Verdict.EMPTY and self.unit == "line" else REASONS[why]


def shortened(text: str) -> str:
    """The beginning of a sentence, for an example."""
    text = " ".join(text[: 4 * SHOWN_CHARACTERS].split())
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[: SHOWN_CHARACTERS - 1]}…"
