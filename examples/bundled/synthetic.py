"""More pairs out of the same text, for `make --synthetic FILE`: written by own models.

    python -m examples.bundled.synthetic MODEL --pairs DIR/en-de/train.tsv --kind distilled --output FILE
    python -m examples.bundled.synthetic OTHER --pairs DIR/en-de/train.tsv --kind back --output FILE

`distilled`: each source with that of MODEL's translations which is most like its target (Kim and Rush 2016): easier to
learn than what people wrote. `back`: each target with OTHER's translation, of the opposite direction, as its source
(Sennrich et al. 2016). The pairs are in the direction of `--pairs`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

from sightline.console import bar
from sightline.data import Pair, read_pairs
from sightline.files import write_text
from sightline.metrics import sentence_chrf
from sightline.translator import Translator, load

N_BEST = 4


def distilled(translator: Translator, pairs: Sequence[Pair], beam: int) -> Iterator[Pair]:
    """Sources with the model's translation that is nearest to the target."""
    with bar(len(pairs), "distilling") as watch:
        found = translator.stream([pair.source for pair in pairs], beam=beam, n_best=min(N_BEST, beam), watch=watch)
        for pair, one in zip(pairs, found, strict=True):
            every = [each.text for each in (one, *one.others)]
            scores = sentence_chrf(every, [pair.target] * len(every))
            yield Pair(pair.source, every[scores.index(max(scores))])


def back_translated(translator: Translator, pairs: Sequence[Pair], beam: int) -> Iterator[Pair]:
    """Targets with what a model of the opposite direction makes of them as sources."""
    with bar(len(pairs), "translating back") as watch:
        found = translator.stream([pair.target for pair in pairs], beam=beam, watch=watch)
        for pair, one in zip(pairs, found, strict=True):
            yield Pair(one.text, pair.target)


KINDS = {"distilled": distilled, "back": back_translated}


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--pairs", type=Path, required=True)
    parser.add_argument("--kind", choices=KINDS, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--beam", type=int, default=5)
    given = parser.parse_args(arguments)
    pairs = list(dict.fromkeys(read_pairs(pairs=given.pairs)))
    made = dict.fromkeys(KINDS[given.kind](load(given.model), pairs, given.beam))
    rows = [f"{source}\t{target}\n" for source, target in made if source and target]
    write_text(given.output, "".join(rows))


if __name__ == "__main__":
    main()
