"""More pairs out of the same text, written by an own model, for `make --synthetic FILE` and `make --turned FILE`.

    python -m examples.bundled.synthetic MODEL --pairs DIR/en-de/train.tsv --output FILE

Each source with that of MODEL's translations which is most like its target. In this direction they are easier to learn
than what people wrote (Kim and Rush 2016); turned round they are sources for targets that people wrote (Sennrich et
al. 2016). Together with the given pairs they say the same in other words (Nguyen et al. 2020). What is less like the
given target than `--least` is left out as wrong; where a translation is the same, there is nothing to add.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

from sightline.console import bar, say
from sightline.data import Pair, read_pairs
from sightline.files import write_text
from sightline.metrics import sentence_chrf
from sightline.translator import Translator, load


def written(translator: Translator, pairs: Sequence[Pair], beam: int, least: float) -> Iterator[Pair]:
    """Sources with the model's own translation, where there is one that is good and new."""
    with bar(len(pairs), "translating") as watch:
        found = translator.stream([pair.source for pair in pairs], beam=beam, n_best=beam, watch=watch)
        for pair, one in zip(pairs, found, strict=True):
            text = nearest([each.text for each in (one, *one.others)], pair.target, least)
            if text is not None:
                yield Pair(pair.source, text)


def nearest(every: Sequence[str], given: str, least: float) -> str | None:
    """That of some translations which is most like the given one; None if it is that one, or not like it."""
    if given in every:
        return None
    scores = sentence_chrf(every, [given] * len(every))
    best = every[scores.index(max(scores))]
    return best if best and max(scores) >= least else None


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--pairs", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument("--least", type=float, default=50.0, help="chrF to the given target")
    given = parser.parse_args(arguments)
    pairs = list(dict.fromkeys(read_pairs(pairs=given.pairs)))
    made = dict.fromkeys(written(load(given.model, compute="int8"), pairs, given.beam, given.least))
    write_text(given.output, "".join(f"{source}\t{target}\n" for source, target in made))
    say(f"{given.output}: {len(made):,} pairs made of {len(pairs):,}")


if __name__ == "__main__":
    main()
