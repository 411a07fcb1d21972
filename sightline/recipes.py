"""What each recipe is, where its defaults differ from the configuration's own, and which choices it has.

The functions that build the models are in `sightline.models`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sightline.errors import SightlineError

if TYPE_CHECKING:
    from sightline.architecture import ModelConfig
    from sightline.config import RunConfig

# What a recipe is, and where its defaults differ from the ones above.
RECIPES: dict[str, tuple[str, dict[str, Any]]] = {
    "seq2seq": (
        "LSTM encoder-decoder through one fixed vector (Sutskever et al. 2014)",
        {
            "model": {
                "tie": "none",
                "dropout": 0.2,
                "encoder": {"kind": "lstm", "bidirectional": False, "reverse": True},
                "decoder": {"cell": "lstm", "context": "last"},
            },
        },
    ),
    "bahdanau": (
        "the first attention: a GRU that aligns before it moves on (Bahdanau et al. 2015)",
        {
            "model": {
                "tie": "none",
                "dropout": 0.2,
                "encoder": {"kind": "gru", "bidirectional": True},
                "attention": {"score": "additive"},
                "decoder": {"cell": "gru"},
            },
        },
    ),
    "luong": (
        "an LSTM that attends after it moved on, with input feeding (Luong et al. 2015)",
        {
            "model": {
                "tie": "none",
                "dropout": 0.2,
                "encoder": {"kind": "lstm", "bidirectional": True},
                "attention": {"score": "bilinear"},
                "decoder": {"cell": "lstm", "input_feeding": True},
            },
        },
    ),
    "transformer": (
        "multi-head attention throughout (Vaswani et al. 2017)",
        {"model": {"tie": "all", "encoder": {"kind": "transformer"}}},
    ),
    "lm": (
        "a language model: an LSTM or a Transformer decoder without an encoder, learnt from plain text",
        {
            "data": {"max_length": 1000},
            "model": {"tie": "output", "dropout": 0.2, "decoder": {"kind": "recurrent", "cell": "lstm"}},
            # What counts is how probable text is, which smoothing would blur; and there is nothing to translate.
            "training": {"label_smoothing": 0.0, "validate_bleu": 0},
            "search": {"max_extra": 200},
        },
    ),
}


# Choices that only some recipes have: elsewhere they would go unheard.
ENCODER = ("kind", "width", "layers", "bidirectional", "reverse", "kernel", "heads", "feedforward", "attention")
WITH_SOURCE = ("seq2seq", "bahdanau", "luong", "transformer")
ONLY_IN = {
    **{f"encoder.{key}": WITH_SOURCE for key in ENCODER},
    "sources.encoder": WITH_SOURCE,
    "sources.start": ("seq2seq", "bahdanau", "luong"),
    "sources.context": ("bahdanau", "luong", "transformer"),
    "attention.score": ("bahdanau", "luong"),
    "attention.choice": ("bahdanau", "luong"),
    "attention.span": ("bahdanau", "luong"),
    "attention.position_bias": ("bahdanau", "luong"),
    "attention.markov_bias": ("bahdanau", "luong"),
    "attention.fertility_bias": ("bahdanau", "luong"),
    "attention.coverage": ("bahdanau", "luong"),
    "penalties.repeated_looks": ("bahdanau", "luong"),
    "penalties.one_look_each": ("bahdanau", "luong"),
    "penalties.certainty": ("bahdanau", "luong"),
    "penalties.fertility": ("bahdanau", "luong"),
    "penalties.coverage_left": ("bahdanau", "luong"),
    "guided.weight": ("bahdanau", "luong", "transformer"),
    "guided.layer": ("transformer",),
    "guided.head": ("transformer",),
    "copying.kind": WITH_SOURCE,
    "copying.layer": ("transformer",),
    "copying.head": ("transformer",),
    "lexicon.mode": ("bahdanau", "luong", "transformer"),
    "lexicon.layer": ("transformer",),
    "lexicon.head": ("transformer",),
    "decoder.kind": ("lm",),
    "decoder.cell": ("seq2seq", "bahdanau", "luong", "lm"),
    "decoder.context": ("seq2seq",),
    "decoder.readout_state": ("bahdanau",),
    "decoder.input_feeding": ("luong",),
    "decoder.attention": ("transformer", "lm"),
    "decoder.cross_attention": ("transformer",),
    "pointer.kind": ("lm",),
}


def check_choices(config: RunConfig, where: str) -> None:
    """Refuses choices that the recipe would not hear, or that make no sense together; `where` stands in messages."""
    _check_heard(config.model, where)
    if not config.model.has_source:
        _check_alone(config, where)


def _check_heard(model: ModelConfig, where: str) -> None:
    """Refuses a choice of one's own that the recipe does not have."""
    for name, recipes in ONLY_IN.items():
        section, key = name.split(".")
        part = getattr(model, section)
        if model.recipe not in recipes and getattr(part, key) != type(part).model_fields[key].default:
            value, others = str(getattr(part, key)).lower(), " and ".join(recipes)
            only = f"the recipe {model.recipe} has no such choice, only {others}"
            raise SightlineError(f"{where}: model.{name} = {value}: {only}; leave it out")


def _check_alone(config: RunConfig, where: str) -> None:
    """Refuses what makes no sense without a source."""
    filters, model = config.data.filters, config.model
    senseless = {
        "text.joint = false": not config.text.joint,
        "model.tie = all": model.tie == "all",
        "training.validate_bleu": config.training.validate_bleu > 0,
        "training.metric = bleu": config.training.metric == "bleu",
        "data.filters.ratio": filters.ratio is not None,
        "data.filters.identical": filters.identical,
        "data.filters.source_script": filters.source_script is not None,
    }
    for name, chosen in senseless.items():
        if chosen:
            raise SightlineError(f"{where}: {name}: a language model has text and no source; leave it out")
    if model.decoder.kind == "transformer" and model.decoder.cell != "lstm":
        raise SightlineError(
            f"{where}: model.decoder.cell = {model.decoder.cell}: a transformer has no cells; leave it out, or set "
            "model.decoder.kind=recurrent"
        )
