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


def heatmap(forced: Forced, alignment: AlignmentConfig, title: str = "") -> Heatmap:
    """One sentence under the model's chosen layer and head, its links marked."""
    found = read_alignment(forced, alignment)
    weights = forced.word_weights(alignment)
    assert weights is not None
    return Heatmap(forced.source_words, forced.target_words, weights, title, sorted(found))


def model_view(name: str, forced: Forced, alignment: AlignmentConfig, score: float | None = None) -> ModelView:
    """What one model did with one sentence, every layer and head; a model without attention shows its words alone."""
    return ModelView(
        name=name,
        source=forced.source_words,
        target=forced.target_words,
        layers=forced.word_layers(alignment.reading),
        chosen=(alignment.layer, alignment.head),
        links=sorted(forced.word_links(alignment) or ()),
        score=score,
        note=READINGS[alignment.reading] if forced.sentence.layers else "this model has no attention to show",
    )


def page(views: Sequence[Sequence[ModelView]], references: Sequence[str], title: str = "") -> Page:
    """Sentences, each with its models side by side."""
    if not views:
        raise SightlineError("there is no sentence to show")
    return Page([SentenceView(models, reference) for models, reference in zip(views, references, strict=True)], title)
