"""Heat-maps and pages from what models saw."""

from __future__ import annotations

from collections.abc import Sequence

from sightline.config import AlignmentConfig
from sightline.errors import SightlineError
from sightline.forced import Forced, read_alignment
from sightline.plot import Heatmap, ModelView, Page, SentenceView

READINGS = {
    "predicts": "each word's row: as it was about to be written",
    "consumes": "each word's row: as it was read, after it was written",
}
COPYING = "Copying"  # the name of the map of what was copied, which is beside those of attention


def heatmap(forced: Forced, alignment: AlignmentConfig, title: str = "") -> Heatmap:
    """One sentence under the model's chosen layer and head, its links marked."""
    found = read_alignment(forced, alignment)
    weights = forced.word_weights(alignment)
    assert weights is not None
    return Heatmap(forced.source_words, forced.target_words, weights, title, sorted(found))


def heatmaps(forced: Forced, alignment: AlignmentConfig) -> list[Heatmap]:
    """The same, and of a model that copies the map of that."""
    copies = forced.word_copies()
    if copies is None or not forced.sentence.layers:
        return [heatmap(forced, alignment, "" if copies is None else COPYING)]
    return [heatmap(forced, alignment), Heatmap(forced.source_words, forced.target_words, copies, COPYING)]


def model_view(name: str, forced: Forced, alignment: AlignmentConfig, score: float | None = None) -> ModelView:
    """What one model did with one sentence: every layer and head, and what it copied; without any, its words alone."""
    copies = forced.word_copies() if forced.sentence.layers else forced.word_weights(alignment)
    return ModelView(
        name=name,
        source=forced.source_words,
        target=forced.target_words,
        layers=forced.word_layers(alignment.reading),
        chosen=(alignment.layer, alignment.head),
        links=sorted(forced.word_links(alignment) or ()),
        score=score,
        note=READINGS[alignment.reading] if forced.sentence.telling else "this model has no attention to show",
        beside={} if copies is None else {COPYING: copies},
    )


def page(views: Sequence[Sequence[ModelView]], references: Sequence[str], title: str = "") -> Page:
    """Sentences, each with its models side by side."""
    if not views:
        raise SightlineError("there is no sentence to show")
    return Page([SentenceView(models, reference) for models, reference in zip(views, references, strict=True)], title)
