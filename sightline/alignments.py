"""A corpus and its alignments: links, error rate, the best head, and pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from sightline import links, metrics
from sightline.align import Forced, force, read_alignment
from sightline.config import AlignmentConfig
from sightline.data import Pair
from sightline.errors import SightlineError
from sightline.folder import save_config
from sightline.gallery import heatmap, model_view, page
from sightline.plot import html as html_text
from sightline.plot import png as write_png
from sightline.plot import save
from sightline.plot import svg as svg_text
from sightline.translator import Translator


def align_corpus(
    translators: Sequence[Translator], given: Sequence[Pair] | Sequence[str], source_name: str, target_name: str = ""
) -> list[list[Forced]]:
    """What each model saw of each sentence, in the given order; sources alone are translated first.

    The names are those of the files, for errors.
    """
    pairs = [Pair(one, "") if isinstance(one, str) else one for one in given]
    alone = bool(given) and isinstance(given[0], str)
    for translator in translators:
        translator.check_pairs(pairs, source_name, target_name)
    result = []
    for translator in translators:
        seen: list[tuple[str, str | list[int]]] = [*pairs]
        if alone:
            seen = [(one.source, one.ids) for one in translator.stream([pair.source for pair in pairs])]
        result.append(force(translator.folder, seen, translator.device))
    return result


def measure(translator: Translator, aligned: list[Forced], gold: Path, choose: bool) -> tuple[Translator, str]:
    """The alignment error rate against hand-made links; with `choose` the best layer, head and reading are kept.

    Returns the translator, with its new choice if it made one, and a line to print.
    """
    sure, possible = metrics.read_links(gold)
    if len(sure) != len(aligned):
        raise SightlineError(f"{gold}: {len(sure)} lines of links for {len(aligned)} sentence pairs")
    for number, (allowed, forced) in enumerate(zip(possible, aligned, strict=True), 1):
        _check_links(allowed, forced, f"{gold}, line {number}")
    if not choose:
        found = [read_alignment(forced, translator.config.alignment) for forced in aligned]
        rate = metrics.alignment_error_rate(found, sure, possible)
        return translator, f"alignment error rate {100 * rate:.2f}% ({_told(translator.config.alignment)})"
    for forced in aligned:
        read_alignment(forced, translator.config.alignment)
    choice, rate = links.best_head(
        [forced.sentence for forced in aligned], lambda found: metrics.alignment_error_rate(found, sure, possible)
    )
    chosen = AlignmentConfig(layer=choice.layer, head=choice.head, reading=choice.reading)
    kept = aligning_by(translator, chosen)
    save_config(translator.folder.path, kept.config)
    return kept, f"alignment error rate {100 * rate:.2f}%, the best: {_told(chosen)}, kept in the model's config.yaml"


def aligning_by(translator: Translator, alignment: AlignmentConfig) -> Translator:
    """The same model with another choice of the weights that tell its alignment."""
    config = translator.config.model_copy(update={"alignment": alignment})
    return Translator(replace(translator.folder, config=config), translator.device)


def _check_links(found: links.Links, forced: Forced, where: str) -> None:
    """Refuses links to words that are not there: often their positions count from 1."""
    words = (len(forced.source_words), len(forced.target_words))
    for source, target in sorted(found):
        if source >= words[0] or target >= words[1]:
            raise SightlineError(
                f"{where}: link {source}-{target}, but the sentences have {words[0]} and {words[1]} words "
                "(positions count from 0)"
            )


def draw(
    translators: Sequence[Translator],
    aligned: Sequence[Sequence[Forced]],
    given: Sequence[Pair] | Sequence[str],
    limit: int,
    html: Path | None,
    svg: Path | None,
    png: Path | None,
) -> None:
    """Writes the pictures that were asked for, of the first `limit` sentences; the page shows all models."""
    count = min(limit, len(given))
    if html is not None:
        views = [
            [
                model_view(
                    translator.name,
                    forced[index],
                    translator.config.alignment,
                    sum(forced[index].token_log_probs) / max(len(forced[index].token_log_probs), 1),
                )
                for translator, forced in zip(translators, aligned, strict=True)
            ]
            for index in range(count)
        ]
        references = ["" if isinstance(one, str) else one[1] for one in given[:count]]
        save(html_text(page(views, references)), html)
    if svg is None and png is None:
        return
    maps = [heatmap(forced, translators[0].config.alignment) for forced in aligned[0][:count]]
    if svg is not None:
        save(svg_text(maps), svg)
    if png is not None:
        write_png(maps, png)


def _told(alignment: AlignmentConfig) -> str:
    layer = "all layers" if alignment.layer is None else f"layer {alignment.layer}"
    head = "all heads" if alignment.head is None else f"head {alignment.head}"
    return f"{layer}, {head}, the row that {alignment.reading} the token"
