"""Scores: BLEU and chrF as sacreBLEU has them, ROUGE, perplexity, alignment error rate, scores by source length."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sightline.errors import SightlineError, nearest

if TYPE_CHECKING:
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

Link = tuple[int, int]
"""A source and a target position, from 0."""


@dataclass(frozen=True)
class Score:
    """A score and the sacreBLEU signature without which it cannot be compared."""

    value: float
    signature: str


def bleu(hypotheses: Sequence[str], references: Sequence[str], tokenize: str = "13a") -> Score:
    """Corpus BLEU, 0 to 100. `tokenize` is sacreBLEU's name of a tokenizer; "none" for tokenised text."""
    _check_lengths(hypotheses=hypotheses, references=references)
    metric = bleu_metric(tokenize, effective_order=False)
    value = metric.corpus_score(hypotheses, [references]).score
    return Score(value, str(metric.get_signature()))


def sentence_bleu(hypotheses: Sequence[str], references: Sequence[str], tokenize: str = "13a") -> list[float]:
    """BLEU of each sentence on its own, with n-grams no longer than the sentence (sacreBLEU's effective order)."""
    _check_lengths(hypotheses=hypotheses, references=references)
    metric = bleu_metric(tokenize, effective_order=True)
    return [metric.sentence_score(one, [other]).score for one, other in zip(hypotheses, references, strict=True)]


def chrf(hypotheses: Sequence[str], references: Sequence[str], word_order: int = 0) -> Score:
    """Corpus chrF, 0 to 100; with `word_order` 2 it is chrF++."""
    _check_lengths(hypotheses=hypotheses, references=references)
    metric = chrf_metric(word_order)
    value = metric.corpus_score(hypotheses, [references]).score
    return Score(value, str(metric.get_signature()))


def sentence_chrf(hypotheses: Sequence[str], references: Sequence[str], word_order: int = 0) -> list[float]:
    """chrF of each sentence on its own."""
    _check_lengths(hypotheses=hypotheses, references=references)
    metric = chrf_metric(word_order)
    return [metric.sentence_score(one, [other]).score for one, other in zip(hypotheses, references, strict=True)]


def chrf_metric(word_order: int = 0) -> CHRF:
    """sacreBLEU's chrF."""
    from sacrebleu.metrics.chrf import CHRF

    return CHRF(word_order=word_order)


def bleu_metric(tokenize: str, effective_order: bool = False) -> BLEU:
    """sacreBLEU's BLEU with one of its tokenizers."""
    from sacrebleu.metrics.bleu import BLEU

    if tokenize not in BLEU.TOKENIZERS:
        raise SightlineError(f"unknown BLEU tokenizer '{tokenize}'; {nearest(tokenize, BLEU.TOKENIZERS)}")
    try:
        # force: already tokenised text is a choice of the user's, seen in the signature, not a reason to warn.
        return BLEU(tokenize=tokenize, effective_order=effective_order, force=True)
    except (RuntimeError, OSError) as error:  # a package or a download that a tokenizer needs
        reason = " ".join(str(error).split())
        raise SightlineError(f"BLEU tokenizer '{tokenize}' cannot be used: {reason}") from error


def check_tokenizer(tokenize: str) -> None:
    """Refuses a name that is none of sacreBLEU's tokenizers, or one that cannot be used here."""
    bleu_metric(tokenize, effective_order=False)


@dataclass(frozen=True)
class Rouge:
    """Mean F1 of words, of pairs of words and of the longest common subsequence, 0 to 100, and how they were made."""

    rouge_1: float
    rouge_2: float
    rouge_l: float
    signature: str

    def as_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)


ROUGES = ("rouge1", "rouge2", "rougeL")  # as rouge-score calls them


def rouge(hypotheses: Sequence[str], references: Sequence[Sequence[str]], stem: bool = False) -> Rouge:
    """ROUGE-1, -2 and -L as rouge-score has them, each text on its own, then the mean. Needs the extra `rouge`.

    `references` has one or several for each hypothesis. Of several the one with the highest ROUGE-1 counts, and all
    three figures are of that one, as Cachola et al. (2020) do it for SciTLDR. Letters are taken as small ones, and what
    is neither a letter a to z nor a digit stands between words. `stem` takes words without their English endings.
    """
    _check_lengths(hypotheses=hypotheses, references=references)
    if empty := [place for place, some in enumerate(references, start=1) if not some]:
        raise SightlineError(f"text {empty[0]} has no reference: ROUGE needs one or more of each")
    try:
        from rouge_score.rouge_scorer import RougeScorer
    except ImportError:
        raise SightlineError("ROUGE needs rouge-score: pip install 'sightline[rouge]'") from None
    scorer = RougeScorer([*ROUGES], use_stemmer=stem)
    totals = dict.fromkeys(ROUGES, 0.0)
    for hypothesis, some in zip(hypotheses, references, strict=True):
        found = [scorer.score(reference, hypothesis) for reference in some]
        best = max(found, key=lambda scores: float(scores["rouge1"].fmeasure))
        for name in ROUGES:
            totals[name] += best[name].fmeasure
    words, pairs, longest = (100 * totals[name] / len(hypotheses) for name in ROUGES)
    stemmed = "yes" if stem else "no"
    return Rouge(words, pairs, longest, f"f1|refs:best rouge1|stem:{stemmed}|version:{version('rouge-score')}")


def _check_lengths(**parts: Sequence[object]) -> None:
    """All parts have one length, and are not empty."""
    (first, one), *others = parts.items()
    for name, other in others:
        if len(one) != len(other):
            raise SightlineError(
                f"{len(one)} {first} but {len(other)} {name}: give as many lines of one as of the other"
            )
    if not one:
        raise SightlineError(f"no {first} to score: the input is empty")


def perplexity(nll_sum: float, count: float) -> float:
    """exp(mean negative log-likelihood), from an unsmoothed sum over `count` tokens; inf when out of range."""
    if count <= 0:
        raise SightlineError("perplexity of no tokens: the input is empty")
    try:
        return math.exp(nll_sum / count)
    except OverflowError:
        return math.inf


_LINK = re.compile(r"(\d+)([-p?])(\d+)")


def parse_links(line: str, one_based: bool = False) -> tuple[set[Link], set[Link]]:
    """A line of Pharaoh links: the sure ones (`1-2`), and the sure and the possible (`1p2` or `1?2`) together."""
    first = 1 if one_based else 0
    sure: set[Link] = set()
    possible: set[Link] = set()
    for word in line.split():
        match = _LINK.fullmatch(word)
        if match is None:
            raise SightlineError(f"'{word}' is not a link: expected source-target, as in 0-1 (sure) or 0p1 (possible)")
        link = (int(match[1]) - first, int(match[3]) - first)
        if min(link) < 0:
            raise SightlineError(f"link '{word}' has position 0, but positions are said to count from 1")
        possible.add(link)
        if match[2] == "-":
            sure.add(link)
    return sure, possible


def read_links(path: str | Path, one_based: bool = False) -> tuple[list[set[Link]], list[set[Link]]]:
    """A file of Pharaoh lines: for each, the sure links, and the sure and possible ones together.

    A predicted alignment is read the same way; its links are the second list.
    """
    try:
        lines = Path(path).read_bytes().splitlines()
    except OSError as error:
        raise SightlineError(f"cannot read alignments from {path}: {error.strerror}") from error
    sure: list[set[Link]] = []
    possible: list[set[Link]] = []
    for number, line in enumerate(lines, start=1):
        try:
            certain, allowed = parse_links(line.decode("utf-8-sig"), one_based)
        except UnicodeDecodeError as error:
            raise SightlineError(f"{path}, line {number}: not UTF-8 text") from error
        except SightlineError as error:
            raise SightlineError(f"{path}, line {number}: {error}") from None
        sure.append(certain)
        possible.append(allowed)
    return sure, possible


def alignment_error_rate(
    predicted: Sequence[AbstractSet[Link]],
    sure: Sequence[AbstractSet[Link]],
    possible: Sequence[AbstractSet[Link]] | None = None,
) -> float:
    """AER = 1 - (|A∩S| + |A∩P|) / (|A| + |S|) over all sentences together (Och & Ney 2003); 0 is best.

    Sure links count as possible whether `possible` repeats them or not; without it they are the only ones.
    With no link predicted and none sure there was nothing to do and nothing was done: 0.
    """
    if possible is None:
        possible = sure
    for name, other in (("sure", sure), ("possible", possible)):
        if len(other) != len(predicted):
            raise SightlineError(
                f"{len(predicted)} predicted alignments but {len(other)} of {name} links: both need a line a sentence"
            )
    hits = total = 0
    for links, certain, allowed in zip(predicted, sure, possible, strict=True):
        hits += len(links & certain) + len(links & (allowed | certain))
        total += len(links) + len(certain)
    return 1 - hits / total if total else 0.0


@dataclass(frozen=True)
class LengthBucket:
    """Scores of the sentences whose source has `low` to `high` words; `high` is None in the last, open bucket."""

    low: int
    high: int | None
    sentences: int
    bleu: float
    chrf: float

    @property
    def label(self) -> str:
        """`6-10`, or `6` for a bucket of one length, or `41+`."""
        if self.high is None:
            return f"{self.low}+"
        return str(self.low) if self.low == self.high else f"{self.low}-{self.high}"

    def as_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {"label": self.label, **asdict(self)}


def by_length(
    sources: Sequence[str],
    hypotheses: Sequence[str],
    references: Sequence[str],
    edges: Sequence[int] | None = None,
    tokenize: str = "13a",
) -> list[LengthBucket]:
    """Corpus BLEU and chrF by the number of words of the source. Buckets without sentences are left out.

    `edges` are the longest lengths of all buckets but the last, which is open; by default they are chosen from the
    data. An empty source belongs to the first bucket.
    """
    _check_lengths(sources=sources, hypotheses=hypotheses, references=references)
    lengths = [len(source.split()) for source in sources]
    edges = default_edges(lengths) if edges is None else list(edges)
    if any(high <= low for low, high in zip([0, *edges], edges, strict=False)):
        raise SightlineError(f"length edges {', '.join(map(str, edges))}: give rising numbers from 1")
    buckets = []
    for low, high in zip([0, *edges], [*edges, None], strict=True):
        chosen = [
            place
            for place, length in enumerate(lengths)
            if (length > low or low == 0) and (high is None or length <= high)
        ]
        if chosen:
            outputs, wanted = [hypotheses[place] for place in chosen], [references[place] for place in chosen]
            scores = bleu(outputs, wanted, tokenize).value, chrf(outputs, wanted).value
            buckets.append(LengthBucket(low + 1, high, len(chosen), *scores))
    return buckets


def default_edges(lengths: Sequence[int], most: int = 8) -> list[int]:
    """Round edges, at most `most`, up to the length that 95 of 100 sentences do not exceed."""
    common = sorted(lengths)[math.ceil(0.95 * len(lengths)) - 1]
    width = next(
        step * scale
        for scale in (10**power for power in range(20))
        for step in (1, 2, 5)
        if step * scale * most >= common
    )
    return list(range(width, max(common, 1) + width, width))


def length_table(buckets: Sequence[LengthBucket]) -> str:
    """The buckets as a plain-text table."""
    rows = [("words", "sentences", "BLEU", "chrF")]
    rows += [(one.label, str(one.sentences), f"{one.bleu:.1f}", f"{one.chrf:.1f}") for one in buckets]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
