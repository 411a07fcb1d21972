"""Writes the corpus in `sightline/bundled/` again, byte for byte (with the same zlib), from the full set of pairs.

    python benchmarks/make_bundled_corpus.py --data DIR

DIR holds `tatoeba/train.en-de.tsv.gz`, lines of English, tab, German. What is chosen and why is told in
`sightline/bundled/README.md`.
"""

from __future__ import annotations

import argparse
import gzip
import random
import re
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from sightline.data import Pair, read_pairs
from sightline.files import write_bytes
from sightline.holdout import groups

BUNDLED = Path(__file__).resolve().parent.parent / "sightline" / "bundled"
SEED = 1
PARTS = {"test": 1000, "valid": 500}  # the rest is for training

MOST_WORDS = (8, 10)  # English, German
FEWEST_TIMES = 2  # that each word of a sentence occurs in the corpus
LARGEST_RATIO = 2.5  # of the sides' characters
ALLOWED = (re.compile(r"[A-Za-z0-9 .,!?':%$-]+"), re.compile(r"[A-Za-zÄÖÜäöüß0-9 .,!?':%-]+"))
WORD = re.compile(r"\w+(?:'\w+)*")
# The corpus is full of these two; a pair in which one of them has another name teaches a model to mistrust names.
NAMES = ((re.compile(r"\bTom\b"), re.compile(r"\bToms?\b")), (re.compile(r"\bMary\b"), re.compile(r"\bMar(ia|y)s?\b")))


def words(sentence: str) -> list[str]:
    """The words of a sentence without case and punctuation."""
    return WORD.findall(sentence.casefold())


def suitable(pair: Pair) -> bool:
    """Whether a pair is short, in plain characters, and of two sides that seem to say the same."""
    short = all(0 < len(side.split()) <= most for side, most in zip(pair, MOST_WORDS, strict=True))
    plain = all(allowed.fullmatch(side) for side, allowed in zip(pair, ALLOWED, strict=True))
    if not short or not plain:
        return False
    shorter, longer = sorted(map(len, pair))
    ends = [side[-1] for side in pair]
    same_mood = ends[0] == ends[1] or set(ends) == {".", "!"}
    same_names = all(bool(here.search(pair.source)) == bool(there.search(pair.target)) for here, there in NAMES)
    return longer <= max(LARGEST_RATIO * shorter, 20) and same_mood and same_names


def choose(pairs: Sequence[Pair]) -> list[Pair]:
    """The suitable pairs whose every word is seen often enough to be learnt."""
    pairs = sorted({pair for pair in pairs if suitable(pair)})
    counts = [Counter(word for pair in pairs for word in words(pair[side])) for side in (0, 1)]
    return [
        pair
        for pair in pairs
        if all(counts[side][word] >= FEWEST_TIMES for side in (0, 1) for word in words(pair[side]))
    ]


def split(pairs: Sequence[Pair]) -> dict[str, list[Pair]]:
    """The parts; no sentence is in two of them, not even with other punctuation or case.

    Of pairs that hang together the small parts take one, so that nothing is scored twice; the others are left out.
    """
    together = groups([Pair(*(" ".join(words(side)) for side in pair)) for pair in pairs])
    generator = random.Random(SEED)
    generator.shuffle(together)
    waiting = iter(together)
    parts = {name: [pairs[generator.choice(group)] for group in islice(waiting, size)] for name, size in PARTS.items()}
    return {**parts, "train": [pairs[number] for group in waiting for number in group]}


def main() -> None:
    parser = argparse.ArgumentParser(description="Writes the bundled corpus again.")
    parser.add_argument("--data", type=Path, required=True, help="folder that holds tatoeba/train.en-de.tsv.gz")
    parser.add_argument("--output", type=Path, default=BUNDLED, help="folder to write to")
    arguments = parser.parse_args()
    pairs = read_pairs(pairs=arguments.data / "tatoeba" / "train.en-de.tsv.gz")
    total = 0
    for name, part in split(choose(pairs)).items():
        # Sorted lines are alike and pack better; training shuffles them anyway.
        text = "".join(f"{pair.source}\t{pair.target}\n" for pair in sorted(part))
        data = gzip.compress(text.encode(), compresslevel=9, mtime=0)
        write_bytes(arguments.output / f"tatoeba.en-de.{name}.tsv.gz", data)
        total += len(data)
        print(f"{name}: {len(part):,} pairs, {len(data):,} bytes")
    print(f"together {total:,} bytes")


if __name__ == "__main__":
    main()
