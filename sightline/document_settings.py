"""Sources that are documents: what a configuration may ask of encoders that know sentences. No torch here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from sightline.errors import SightlineError
from sightline.sections import Section

if TYPE_CHECKING:
    from sightline.config import RunConfig

# Encoders whose source is a document.
DOCUMENT_KINDS = ("hierarchical", "hops")
# Recipes whose decoder can look at their words.
READ_WORDS = ("bahdanau", "luong")


class DocumentsConfig(Section):
    """How encoders read documents, sources whose sentences text.sentence_marker separates."""

    pooling: Literal["attention", "mean"] = Field(
        "attention", description="hierarchical: a sentence's vector from its words, by a learned query or their mean"
    )
    memory: Literal["sentences", "words"] = Field(
        "sentences",
        description="hierarchical: the decoder looks at sentences, or (bahdanau, luong) at words, each weighed by its "
        "sentence",
    )
    hops: int = Field(3, ge=1, description="hops: how often the question is asked of the story")
    word_order: bool = Field(True, description="hops: a word counts by its place in the sentence; else they are a bag")
    max_age: int = Field(100, ge=1, description="hops: sentences further back than this are all of the same age")


# Whose keys they are; elsewhere they would go unheard.
OF_KIND = {
    "pooling": "hierarchical",
    "memory": "hierarchical",
    "hops": "hops",
    "word_order": "hops",
    "max_age": "hops",
}


def check_documents(config: RunConfig, where: str) -> None:
    """Refuses what makes no sense together with an encoder of documents, or without one."""
    model = config.model
    kind, documents = model.encoder.kind, model.documents
    for name, owner in OF_KIND.items():
        if kind != owner and getattr(documents, name) != DocumentsConfig.model_fields[name].default:
            raise SightlineError(
                f"{where}: model.documents.{name} is for model.encoder.kind={owner}, and the kind is {kind}: leave it "
                "out"
            )
    if kind not in DOCUMENT_KINDS or not model.has_source:
        return
    here = f"{where}: model.encoder.kind={kind}"
    if config.text.sentence_marker is None:
        raise SightlineError(
            f"{here} reads documents: name the word that stands between their sentences in text.sentence_marker, such "
            "as '|||'"
        )
    if config.training.agreement:
        raise SightlineError(f"{here}: training.agreement reads the target as a source, which is no document here")
    if kind == "hierarchical" and documents.memory == "words":
        _check_words(config, f"{where}: model.documents.memory=words")
    else:
        _check_sentences(config, here)


def _check_words(config: RunConfig, here: str) -> None:
    model = config.model
    if model.recipe not in READ_WORDS:
        raise SightlineError(
            f"{here} weighs words by their sentences at each step, as only bahdanau and luong can: choose one of them, "
            "or model.documents.memory=sentences"
        )
    for name, usual in (("choice", "soft"), ("span", "global")):
        if getattr(model.attention, name) != usual:
            raise SightlineError(f"{here} is a way to look of its own: leave model.attention.{name} out")


def _check_sentences(config: RunConfig, here: str) -> None:
    """The memory is of sentences: refuses what needs one of words."""
    model = config.model
    looked = f"{here} lets the decoder look at sentences"
    if model.copies:
        words = "set model.encoder.kind=hierarchical and model.documents.memory=words, or "
        can = words if model.recipe in READ_WORDS else ""
        raise SightlineError(f"{looked}, and model.copying needs a state for each word: {can}leave copying out")
    if model.attention.coverage == "embedded" or model.penalties.fertility:
        name = "penalties.fertility" if model.penalties.fertility else "attention.coverage=embedded"
        raise SightlineError(f"{looked}, and model.{name} is about words: leave it out")
    if model.attention.choice not in ("soft", "sampled", "online_monotonic"):
        raise SightlineError(
            f"{looked}, and model.attention.choice={model.attention.choice} sums over words: choose soft or sampled"
        )
