"""A verified export: model and export decode a held-out set, and the export's card tells how they compare.

The rule: an export that loses more BLEU or chrF than the tolerance is not written. It is the loss seen on the whole set
that counts, whether it is significant or not, because that is what can be promised of a set of any size; the
bootstrap's interval and p-value are in the card for those who want to know how sure it is. A better score is no reason
to fail.

BLEU is 0 of translations of less than four words, and chrF decides there. A model that has hardly a word right has next
to nothing to lose: its scores move by chance, so the share of tokens that are no longer its own is taken for the loss.
A set without text, or without one character that the model gets right, verifies nothing, and is refused.
"""

from __future__ import annotations

import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sightline import __version__
from sightline.engines.base import Watch
from sightline.engines.choice import Engines
from sightline.errors import SightlineError, nearest
from sightline.expectations import FILE as EXPECTATIONS
from sightline.files import failure, write_text
from sightline.folder import CARD, WEIGHTS, ModelFiles, open_files, save_config, save_tokenizers
from sightline.interop import ctranslate2, huggingface
from sightline.interop.kept import for_ctranslate2
from sightline.interop.shortlist import Shortlist
from sightline.interop.weights import number
from sightline.readers import Pair
from sightline.significance import Comparison, compare
from sightline.tokenizers import EOS
from sightline.translator import Translator, load

Decoder = Callable[[Sequence[str], Watch], list[tuple[str, list[int]]]]
"""Lines to texts and token ids; it tells of each line that is done."""

TOLERANCE = 0.5
# A model with less than these has hardly a word right. Unrelated sentences of one language get a chrF of 10 to 20.
LEAST = {"BLEU": 1.0, "chrF": 20.0}
KINDS = ("ctranslate2", "huggingface")
SECOND_PASS = (
    "alignments: by a second pass, with PyTorch, since CTranslate2 tells the weights of one layer and none is chosen "
    "(`sightline align MODEL --pairs FILE --gold LINKS --choose` finds the best head by given links; or set layer and "
    "head under alignment in its config.yaml, and export it again)"
)
USE = {
    "ctranslate2": (
        "`sightline translate FOLDER` works on this folder. With CTranslate2 alone, a source is a list of the model's\n"
        "pieces and the end symbol; `sightline.load(FOLDER).files.tokenizers.source.pieces(text)` cuts them:\n\n"
        "```python\n"
        'ctranslate2.Translator(FOLDER).translate_batch([[*pieces, "</s>"]], beam_size=5)\n'
        "```"
    ),
    "huggingface": (
        "```python\n"
        "from transformers import MarianMTModel, MarianTokenizer\n\n"
        "model, tokenizer = MarianMTModel.from_pretrained(FOLDER), MarianTokenizer.from_pretrained(FOLDER)\n"
        'ids = model.generate(**tokenizer(["a sentence"], return_tensors="pt"))\n'
        "tokenizer.batch_decode(ids, skip_special_tokens=True)\n"
        "```\n\n"
        "`sightline import FOLDER OUT` makes a Sightline model of it again."
    ),
}


@dataclass(frozen=True)
class Decoded:
    """What a system made of the held-out set: texts, token ids, and the seconds it took; and its size in bytes."""

    texts: list[str]
    ids: list[list[int]]
    seconds: float
    size: int


@dataclass(frozen=True)
class Verification:
    """How an export compares with its model."""

    original: Decoded
    export: Decoded
    comparisons: list[Comparison]
    notes: list[str]

    @property
    def weak(self) -> bool:
        """Whether the model's own scores are too low for a loss to show in them."""
        return all(one.first < LEAST[one.name] for one in self.comparisons)

    @property
    def agreement(self) -> float:
        """The share of tokens in common."""
        return agreement(self.original.ids, self.export.ids)

    @property
    def loss(self) -> float:
        """Points of BLEU or chrF that the export loses, the more of the two (below zero, it gains both).

        Of a weak model: how many of a hundred tokens are not in common.
        """
        if self.weak:
            return 100 * (1 - self.agreement)
        return -self._worst.difference

    @property
    def _worst(self) -> Comparison:
        return min(self.comparisons, key=lambda one: one.difference)

    def check(self, tolerance: float, shortlisted: bool) -> None:
        """Refuses an export that loses more than `tolerance`, and one of which the set cannot tell."""
        count = f"{len(self.original.ids):,} sentences"
        own = " and ".join(f"{one.name} {one.first:.2f}" for one in self.comparisons)
        if not any(one.first for one in self.comparisons):
            raise SightlineError(
                f"the model's own {own} on {count} cannot tell what the export loses: nothing was written; "
                "give longer or better pairs"
            )
        if self.loss <= tolerance:
            return
        larger = "a larger --shortlist-size " if shortlisted else ""
        what, better = f"loses {self.loss:.2f} {self._worst.name} on {count}", ""
        if self.weak:
            what = f"changes {self.loss:.2f}% of the tokens of {count}, where the model's own {own} tell no loss"
            better = "give better pairs, "
        raise SightlineError(
            f"the export {what}, more than the tolerance of {tolerance:g}: nothing was written; "
            f"{better}choose another --quantize, {larger}or a larger --tolerance"
        )

    def lines(self) -> list[str]:
        """For a person, one fact each."""
        count = len(self.original.ids)
        same = sum(one == other for one, other in zip(self.original.ids, self.export.ids, strict=True))
        sizes = [decoded.size / 1e6 for decoded in (self.original, self.export)]
        speeds = [count / max(decoded.seconds, 1e-9) for decoded in (self.original, self.export)]
        return [
            f"compared with its model (PyTorch engine) on {count:,} held-out sentences",
            f"identical translations: {same / count:.1%}; tokens in common: {self.agreement:.2%}",
            *map(str, self.comparisons),
            *self._what_decides(),
            f"weights: {sizes[0]:.1f} MB before, {sizes[1]:.1f} MB now",
            f"speed where it was made: {speeds[0]:.1f} sentences a second before, {speeds[1]:.1f} now",
            *self.notes,
        ]

    def _what_decides(self) -> list[str]:
        """Said where it is not both scores."""
        if self.weak:
            return ["these scores are too low to tell a loss: tokens in common decide"]
        silent = [one.name for one in self.comparisons if not one.first]
        return [f"{name} tells nothing of this set: the other score decides" for name in silent]


def export(
    model: Path,
    output: Path,
    to: str,
    pairs: Sequence[Pair],
    quantize: str | None = None,
    tolerance: float = TOLERANCE,
    watch: Watch = lambda count: None,
    shortlist: Shortlist | None = None,
) -> Verification:
    """Makes `output` of the model folder `model`, verified on `pairs`; nothing is left of it when it loses too much.

    It may lose `tolerance` points of BLEU and of chrF: see `Verification.loss`.

    `watch` is told of the sentences decoded: twice as many as there are pairs. A `shortlist`, for CTranslate2 alone, is
    what the export will search with, and is verified with it.
    """
    files = open_files(model)
    check_export(files, to, quantize)
    if shortlist is not None and to != "ctranslate2":
        raise SightlineError("a shortlist is for --to ctranslate2; a Hugging Face folder has no place for it")
    if not any(pair.source.strip() and pair.target.strip() for pair in pairs):
        raise SightlineError("the held-out set has no pair with text on both sides: give longer or better pairs")
    with _growing(output) as partial:
        if to == "ctranslate2":
            write_ctranslate2(files, partial, quantize, shortlist)
        else:
            huggingface.export(files, partial)
            _copy_expectations(files, partial)
        found = _verify(files, partial, to, pairs, watch)
        if shortlist is not None:
            found.notes.append(shortlist_note(shortlist, files, pairs, found.original.ids))
        write_text(partial / CARD, _card(files, to, quantize, found))
        found.check(tolerance, shortlist is not None)
    return found


def check_export(files: ModelFiles, to: str, quantize: str | None) -> None:
    """Refuses, before anything is read or decoded, what cannot be exported so."""
    if to not in KINDS:
        raise SightlineError(f"--to {to}: {nearest(to, KINDS)}")
    if quantize is not None and to != "ctranslate2":
        raise SightlineError(f"--quantize {quantize} is for --to ctranslate2; a Hugging Face folder holds float32")
    reason = ctranslate2.unsupported(files.config.model) if to == "ctranslate2" else None
    if reason is not None:
        raise SightlineError(f"{files.path}: CTranslate2 cannot run {reason}")


def write_ctranslate2(
    files: ModelFiles, output: Path, quantize: str | None = None, shortlist: Shortlist | None = None
) -> None:
    """The export alone, without its card: `export` verifies it."""
    check_export(files, "ctranslate2", quantize)
    ctranslate2.convert(files, output, quantize, shortlist)
    save_tokenizers(output, files.tokenizers)
    save_config(output, files.config)
    _copy_expectations(files, output)


def _copy_expectations(files: ModelFiles, output: Path) -> None:
    """What the model's translations should look like holds for the export's too."""
    if (files.path / EXPECTATIONS).is_file():
        shutil.copyfile(files.path / EXPECTATIONS, output / EXPECTATIONS)


def _verify(files: ModelFiles, output: Path, to: str, pairs: Sequence[Pair], watch: Watch) -> Verification:
    sources, references = [pair.source for pair in pairs], [pair.target for pair in pairs]
    original = Translator(files, Engines(files, "pytorch"))
    original.check_lines(sources, "the held-out set")
    notes: list[str] = []
    expected = _decode(_translations(original), sources, files.path / WEIGHTS, watch)
    if to == "ctranslate2":
        exported = load(output, engine="ctranslate2")
        _, about = for_ctranslate2(exported.files)
        if not about.aligns(exported.config.alignment, number(files.config.model.decoder.layers)):
            notes.append(SECOND_PASS)
        found = _decode(_translations(exported), sources, output / ctranslate2.MODEL, watch)
    else:
        from sightline.interop.transformers import Generator

        generator = Generator(output, files)
        notes = generator.compare(pairs)
        found = _decode(generator.translate, sources, output / WEIGHTS, watch)
    comparisons = compare(expected.texts, found.texts, references, files.config.training.bleu_tokenize)
    return Verification(expected, found, comparisons, notes)


def shortlist_note(shortlist: Shortlist, files: ModelFiles, pairs: Sequence[Pair], own: Sequence[list[int]]) -> str:
    """How much of the vocabulary a shortlist leaves to a sentence, and how much of what is written is in it."""
    sources = [[*files.tokenizers.source.encode(pair.source), EOS] for pair in pairs]
    references = [files.tokenizers.target.encode(pair.target) for pair in pairs]
    left = sum(len(shortlist.allowed(source)) for source in sources) / max(len(sources), 1)
    shares = [shortlist.share(zip(sources, written, strict=True)) for written in (own, references)]
    return (
        f"shortlist: {left:,.0f} of {files.tokenizers.target.size:,} entries a sentence; it has {shares[0]:.2%} of the "
        f"tokens that the model writes without it, {shares[1]:.2%} of the references'"
    )


def _translations(translator: Translator) -> Decoder:
    def decode(lines: Sequence[str], watch: Watch) -> list[tuple[str, list[int]]]:
        return [(one.text, one.ids) for one in translator.stream(lines, watch=watch)]

    return decode


def _decode(decode: Decoder, sources: Sequence[str], weights: Path, watch: Watch) -> Decoded:
    decode(sources[:1], lambda count: None)  # what is done once should not count
    begun = time.perf_counter()
    found = decode(sources, watch)
    seconds = time.perf_counter() - begun
    return Decoded([text for text, _ in found], [ids for _, ids in found], seconds, weights.stat().st_size)


def agreement(first: Sequence[Sequence[int]], second: Sequence[Sequence[int]]) -> float:
    """The share of tokens in common: 1 - edits / tokens of the longer, over all sentences."""
    edits = longest = 0
    for one, other in zip(first, second, strict=True):
        edits += edit_distance(one, other)
        longest += max(len(one), len(other))
    return 1 - edits / longest if longest else 1.0


def edit_distance(one: Sequence[int], other: Sequence[int]) -> int:
    """Fewest insertions, deletions and replacements that make one of the other (Levenshtein 1966)."""
    if one == other:
        return 0
    row = list(range(len(other) + 1))
    for place, token in enumerate(one, 1):
        diagonal, row[0] = row[0], place
        for column, wanted in enumerate(other, 1):
            diagonal, row[column] = row[column], min(row[column] + 1, row[column - 1] + 1, diagonal + (token != wanted))
    return row[-1]


def _card(files: ModelFiles, to: str, quantize: str | None, found: Verification) -> str:
    """The model's own card, and a section on the export."""
    card = files.path / CARD
    own = card.read_text(encoding="utf-8") if card.is_file() else "# An exported model\n"
    kind = {"ctranslate2": f"CTranslate2 ({quantize or 'float32'})", "huggingface": "Hugging Face's MarianMT"}[to]
    lines = [f"Made for {kind} by Sightline {__version__}.", "", *(f"- {line}" for line in found.lines())]
    signatures = [f"- {one.name}: {one.signature}" for one in found.comparisons]
    return "\n".join([own.rstrip(), "", "## Export", "", *lines, *signatures, "", USE[to], ""])


@contextmanager
def _growing(output: Path) -> Iterator[Path]:
    """A folder beside `output` that becomes it when the block ends well, and else goes."""
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise SightlineError(f"{output}: is there already; choose another folder")
    partial = output.with_name(f".{output.name}.partial-{secrets.token_hex(4)}")
    try:
        try:
            output.parent.mkdir(parents=True, exist_ok=True)
            partial.mkdir()
        except OSError as error:
            raise SightlineError(f"{output}: {failure(error, 'write')}") from None
        yield partial
        os.replace(partial, output)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
