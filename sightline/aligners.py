"""Word links made by an aligner that learns them from the training text itself."""

from __future__ import annotations

import gzip
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sightline.corpora import corpora_of
from sightline.errors import SightlineError
from sightline.files import make_folder, read_lines, write_bytes
from sightline.links import Links, symmetrise, to_pharaoh
from sightline.metrics import parse_links

if TYPE_CHECKING:
    from sightline.readers import Pair
    from sightline.sections import DataConfig

ALIGNMENTS = "alignments.gz"
# An aligner should not take "house." and "house" for two words.
_PARTS = re.compile(r"\w+|[^\w\s]+")

# Sentences in parts, source and target, to the links of both directions.
Aligner = Callable[[Sequence[str], Sequence[str]], tuple[Iterable[Links], Iterable[Links]]]


def align_text(data: DataConfig, output: Path, say: Callable[[str], None] = lambda line: None) -> Path:
    """Makes the links of the training text with the aligner that `data` names, and keeps them in the folder `output`.

    They are kept because eflomal draws random numbers of its own: another time it finds other links.
    """
    aligner = eflomal_aligner()
    pairs = [pair for corpus in corpora_of(data) for _, pair in corpus.files.read()]
    say(f"aligning {len(pairs):,} pairs with {data.align_with}")
    lines = "".join(f"{to_pharaoh(found)}\n" for found in aligned(pairs, aligner))
    make_folder(output)
    path = output / ALIGNMENTS
    write_bytes(path, gzip.compress(lines.encode(), mtime=0))
    say(f"the links are in {path}")
    return path


def aligned(pairs: Sequence[Pair], aligner: Aligner) -> Iterator[Links]:
    """The word links of each pair, both directions of the aligner put together by grow-diag."""
    return (symmetrise(forward, backward) for forward, backward in align_both(pairs, aligner))


def align_both(pairs: Sequence[Pair], aligner: Aligner) -> Iterator[tuple[Links, Links]]:
    """The word links of each pair in both directions; none where a side is empty.

    Words are cut at their punctuation for the aligner, and its links told of the words as they are.
    """
    cut = [[_cut(side) for side in pair] for pair in pairs]
    usable = [all(parts for parts, _ in sides) for sides in cut]
    texts = [[" ".join(sides[side][0]) for sides, some in zip(cut, usable, strict=True) if some] for side in (0, 1)]
    found = zip(*aligner(texts[0], texts[1]), strict=True)
    for sides, some in zip(cut, usable, strict=True):
        if not some:
            yield set(), set()
            continue
        source, target = (owners for _, owners in sides)
        forward, backward = ({(source[left], target[right]) for left, right in links} for links in next(found))
        yield forward, backward


def eflomal_aligner() -> Aligner:
    """eflomal (Östling & Tiedemann 2016), with its own settings."""
    try:
        import eflomal
    except ImportError:
        raise SightlineError("data.align_with=eflomal needs eflomal: pip install 'sightline[eflomal]'") from None

    def run(sources: Sequence[str], targets: Sequence[str]) -> tuple[list[Links], list[Links]]:
        with tempfile.TemporaryDirectory() as folder:
            forward, backward = (Path(folder) / name for name in ("forward", "backward"))
            eflomal.Aligner().align(
                [*sources], [*targets], links_filename_fwd=str(forward), links_filename_rev=str(backward)
            )
            both = [[parse_links(line)[0] for line in read_lines(path)] for path in (forward, backward)]
        return both[0], both[1]

    return run


def _cut(sentence: str) -> tuple[list[str], list[int]]:
    """The parts of a sentence's words, and for each the number of its word."""
    parts: list[str] = []
    owners: list[int] = []
    for number, word in enumerate(sentence.split()):
        found = _PARTS.findall(word)
        parts += found
        owners += [number] * len(found)
    return parts, owners
