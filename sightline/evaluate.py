"""How good a model is on given pairs: BLEU, chrF, perplexity, by sentence and by length; or on given text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sightline import metrics
from sightline.data import Pair
from sightline.engines.base import Watch
from sightline.errors import SightlineError
from sightline.scoring import token_log_probs
from sightline.text import EOS, UNK
from sightline.translation import Translation
from sightline.translator import Translator

PAIRS_AT_ONCE = 500


@dataclass(frozen=True)
class Evaluation:
    """Scores with their sacreBLEU signatures, and the translations they belong to."""

    sentences: int
    bleu: metrics.Score
    chrf: metrics.Score
    perplexity: float
    translations: list[str]
    by_length: list[metrics.LengthBucket] = field(default_factory=list)
    by_sentence: list[dict[str, Any]] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        values: dict[str, Any] = {
            "sentences": self.sentences,
            "bleu": {"value": self.bleu.value, "signature": self.bleu.signature},
            "chrf": {"value": self.chrf.value, "signature": self.chrf.signature},
            "perplexity": self.perplexity if math.isfinite(self.perplexity) else None,
        }
        if self.by_length:
            values["by_length"] = [bucket.as_dict() for bucket in self.by_length]
        if self.by_sentence:
            values["by_sentence"] = self.by_sentence
        return values


def evaluate(
    translator: Translator,
    pairs: Sequence[Pair],
    translations: Iterable[Translation],
    tokenize: str = "13a",
    by_length: bool = False,
    by_sentence: bool = False,
    watch: Watch = lambda count: None,
) -> Evaluation:
    """Scores `translations` of the pairs' sources against their targets; perplexity is that of the targets.

    `watch` is told how many pairs more have been read for the perplexity. Targets must not be longer than the model
    can take: see `Translator.check_pairs`.
    """
    sources = [pair.source for pair in pairs]
    references = [pair.target for pair in pairs]
    found = [translation.text for translation in translations]
    nll, count = _nll(translator, pairs, watch)
    return Evaluation(
        sentences=len(pairs),
        bleu=metrics.bleu(found, references, tokenize),
        chrf=metrics.chrf(found, references),
        perplexity=metrics.perplexity(nll, count),
        translations=found,
        by_length=metrics.by_length(sources, found, references, tokenize=tokenize) if by_length else [],
        by_sentence=_by_sentence(sources, found, references, tokenize) if by_sentence else [],
    )


@dataclass(frozen=True)
class TextEvaluation:
    """How probable a text is to a language model; the end of each line counts as a token, a word and a character.

    `by_line` has each line with the perplexity of its tokens.
    """

    lines: int
    tokens: int
    words: int
    characters: int
    nll: float
    by_line: list[tuple[str, float]]

    @property
    def perplexity(self) -> float:
        """Of a token: it depends on what the tokens are."""
        return metrics.perplexity(self.nll, self.tokens)

    @property
    def word_perplexity(self) -> float:
        """Of a word, whatever the tokens are."""
        return metrics.perplexity(self.nll, self.words)

    @property
    def bits(self) -> float:
        """Of a character, whatever the tokens are."""
        return self.nll / math.log(2) / self.characters

    def as_dict(self, lines: bool = False) -> dict[str, Any]:
        """Plain values for JSON, with `lines` those of each line too."""

        def finite(value: float) -> float | None:
            return value if math.isfinite(value) else None

        values: dict[str, Any] = {
            "lines": self.lines,
            "tokens": self.tokens,
            "words": self.words,
            "characters": self.characters,
            "perplexity": finite(self.perplexity),
            "word_perplexity": finite(self.word_perplexity),
            "bits_per_character": self.bits,
        }
        if lines:
            values["by_line"] = [{"text": line, "perplexity": finite(value)} for line, value in self.by_line]
        return values


def measure_text(translator: Translator, lines: Sequence[str], watch: Watch = lambda count: None) -> TextEvaluation:
    """How probable these lines are to a language model; lines that hold nothing are left out."""
    given = [line for line in lines if line.strip()]
    if not given:
        raise SightlineError("there is nothing to evaluate: every line is empty")
    watch(len(lines) - len(given))
    nll, tokens = 0.0, 0
    by_line: list[tuple[str, float]] = []
    for start in range(0, len(given), PAIRS_AT_ONCE):
        part = given[start : start + PAIRS_AT_ONCE]
        found = token_log_probs(translator, [("", line) for line in part])
        for line, (_, log_probs) in zip(part, found, strict=True):
            nll -= sum(log_probs)
            tokens += len(log_probs)
            by_line.append((line, metrics.perplexity(-sum(log_probs), len(log_probs))))
        watch(len(part))
    return TextEvaluation(
        lines=len(given),
        tokens=tokens,
        words=sum(len(line.split()) + 1 for line in given),
        characters=sum(len(line.strip()) + 1 for line in given),
        nll=nll,
        by_line=by_line,
    )


def _nll(translator: Translator, pairs: Sequence[Pair], watch: Watch) -> tuple[float, int]:
    """The negative log-probability of all targets, and the number of their tokens: of those that the model learns."""
    if not pairs:
        raise SightlineError("there is nothing to evaluate: no pairs")
    left_out = None if translator.files.writes_unknown else UNK
    nll, count = 0.0, 0
    for start in range(0, len(pairs), PAIRS_AT_ONCE):
        part = pairs[start : start + PAIRS_AT_ONCE]
        for ids, log_probs in token_log_probs(translator, part):
            learnt = [one for id, one in zip([*ids, EOS], log_probs, strict=True) if id != left_out]
            nll -= sum(learnt)
            count += len(learnt)
        watch(len(part))
    return nll, count


def _by_sentence(
    sources: list[str], translations: list[str], references: list[str], tokenize: str
) -> list[dict[str, Any]]:
    bleu = metrics.sentence_bleu(translations, references, tokenize)
    chrf = metrics.sentence_chrf(translations, references)
    return [
        {"source": source, "translation": translation, "reference": reference, "bleu": one, "chrf": other}
        for source, translation, reference, one, other in zip(
            sources, translations, references, bleu, chrf, strict=True
        )
    ]
