"""A corpus and its alignments: links, error rate, the best head, and pictures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from sightline import links, metrics
from sightline.bundled_models import check_own
from sightline.config import AlignmentConfig
from sightline.data import Pair
from sightline.errors import SightlineError
from sightline.folder import save_config
from sightline.forced import Forced, read_alignment
from sightline.gallery import heatmaps, model_view, page
from sightline.plot import html as html_text
from sightline.plot import png as write_png
from sightline.plot import save
from sightline.plot import svg as svg_text
from sightline.translator import Translator
from sightline.whole_lines import joined_forced

# Sentences that are read together; the weights of a whole corpus would not fit in memory.
SENTENCES_AT_ONCE = 200


def align_corpus(
    translator: Translator,
    given: Sequence[Pair] | Sequence[str],
    source_name: str = "source",
    target_name: str = "target",
) -> Iterator[Forced]:
    """What the model saw of each sentence, one by one in the given order; sources alone are translated first.

    The names are those of the files, for errors: lines that are too long are refused before the first comes out.
    """
    pairs = [one for one in given if isinstance(one, Pair)]
    lines = [one for one in given if isinstance(one, str)]
    translator.check_pairs(pairs, source_name, target_name)
    translator.check_lines(lines, source_name)
    for start in range(0, len(pairs), SENTENCES_AT_ONCE):
        yield from translator.force(pairs[start : start + SENTENCES_AT_ONCE])
    for start in range(0, len(lines), SENTENCES_AT_ONCE):
        yield from look(translator, lines[start : start + SENTENCES_AT_ONCE])


def look(translator: Translator, lines: Sequence[str]) -> list[Forced]:
    """What the model sees of lines and its own translations of them, of a line in parts part by part."""
    plan = translator.plan(align=False, token_scores=False)
    asked = [plan.read(line, number) for number, line in enumerate(lines, 1)]
    every = translator.translated([part for one in asked for part in one.every], plan)
    seen = translator.force([(one.source, one.ids) for one in every])
    if not any(one.parts for one in asked):
        return seen
    # A line of which all is copied has as many layers and heads as others, all blank.
    like = (seen or translator.force([("", "")]))[0].sentence
    rest = iter(seen)
    result = []
    for one in asked:
        of_parts = [(part, None if own is None else next(rest)) for part, own in one.parts]
        result.append(joined_forced(of_parts, translator.files.tokenizers, like) if of_parts else next(rest))
    return result


class Gold:
    """Hand-made links, one set a sentence, to measure alignments by."""

    def __init__(self, path: Path, pairs: Sequence[Pair], one_based: bool = False) -> None:
        """Reads the links of `pairs`, and refuses those to words that a sentence does not have."""
        self.sure, self.possible = metrics.read_links(path, one_based)
        if len(self.sure) != len(pairs):
            raise SightlineError(f"{path}: {len(self.sure)} lines of links for {len(pairs)} sentence pairs")
        for number, (found, pair) in enumerate(zip(self.possible, pairs, strict=True), 1):
            words = [len(side.split()) for side in pair]
            for source, target in sorted(found):
                if source >= words[0] or target >= words[1]:
                    raise SightlineError(
                        f"{path}, line {number}: link {source}-{target} (from 0), but the sentences have {words[0]} "
                        f"and {words[1]} words; if its positions count from 1, say --gold-from-one"
                    )

    def error_rate(self, found: list[links.Links]) -> float:
        """The alignment error rate of one set of links a sentence."""
        return metrics.alignment_error_rate(found, self.sure, self.possible)


def told_rate(rate: float, alignment: AlignmentConfig) -> str:
    """The error rate and what it belongs to, for a person."""
    return f"alignment error rate {100 * rate:.2f}% ({_told(alignment)})"


def measure(translator: Translator, seen: list[Forced], gold: Gold) -> Iterator[str]:
    """Lines that tell the alignment error rate of the model's layer and head under both readings, its own first."""
    own = translator.config.alignment
    for reading in sorted(links.READINGS, key=lambda name: name != own.reading):
        alignment = AlignmentConfig(layer=own.layer, head=own.head, reading=reading)
        yield told_rate(gold.error_rate([read_alignment(forced, alignment) for forced in seen]), alignment)


def choose_head(translator: Translator, seen: list[Forced], gold: Gold) -> tuple[Translator, str]:
    """Finds the layer, head and reading that align best, and keeps them in the model's folder.

    Returns the translator with its new choice, and a line to print.
    """
    check_own(translator.files.path)
    choice, rate = links.best_head([forced.sentence for forced in seen], gold.error_rate)
    kept = translator.aligning_by(AlignmentConfig(layer=choice.layer, head=choice.head, reading=choice.reading))
    save_config(translator.files.path, kept.config)
    told = told_rate(rate, kept.config.alignment)
    return kept, f"the best on these sentences, kept in the model's config.yaml: {told}"


def draw(
    translators: Sequence[Translator],
    aligned: Sequence[Sequence[Forced]],
    given: Sequence[Pair] | Sequence[str],
    html: Path | None,
    svg: Path | None,
    png: Path | None,
) -> None:
    """Writes the pictures that were asked for, of all the sentences; the page shows all models."""
    if html is not None:
        short = [translator.name for translator in translators]
        # Models of the same name are told apart by where they lie.
        names = short if len({*short}) == len(short) else [str(one.files.path) for one in translators]
        views = [
            [
                model_view(
                    name,
                    forced[index],
                    translator.config.alignment,
                    sum(forced[index].token_log_probs) / max(len(forced[index].token_log_probs), 1),
                )
                for name, translator, forced in zip(names, translators, aligned, strict=True)
            ]
            for index in range(len(given))
        ]
        references = ["" if isinstance(one, str) else one[1] for one in given]
        save(html_text(page(views, references)), html)
    if svg is None and png is None:
        return
    maps = [one for forced in aligned[0] for one in heatmaps(forced, translators[0].config.alignment)]
    if svg is not None:
        save(svg_text(maps), svg)
    if png is not None:
        write_png(maps, png)


def _told(alignment: AlignmentConfig) -> str:
    layer = "all layers" if alignment.layer is None else f"layer {alignment.layer}"
    head = "all heads" if alignment.head is None else f"head {alignment.head}"
    return f"{layer}, {head}, the row that {alignment.reading} the token"
