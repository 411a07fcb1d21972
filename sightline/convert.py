"""From a trained Transformer to one whose decoder is a recurrent network (T2R: Kasai et al. 2021).

The softmax of the decoder's self-attention goes, and features take its place: what the decoder carries from token to
token no longer grows. All other weights stay, and the whole is trained on for a while, since nothing fits at first.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

from sightline.config import RunConfig, assignment, build_config, merge
from sightline.errors import SightlineError
from sightline.folder import ModelFiles, load_model

if TYPE_CHECKING:
    from sightline.training.run import Inherited

# Of what the model was trained with: its rate, and its updates or minutes.
RATE, LENGTH = 1 / 2, 1 / 3
# Keys of the data section that name files.
FILES = ("source", "target", "pairs", "valid_source", "valid_target", "valid_pairs", "alignments", "align_with")


def recurrent_config(
    files: ModelFiles, cross: bool, features: int, given: dict[str, Any], assignments: Sequence[str] = ()
) -> RunConfig:
    """The configuration of the run that makes `files` recurrent, `cross` for its attention to the source as well.

    `features` is how many a head has; `given` are sections with the data and limits of the run, and `assignments`
    are those of the command line. Other settings are the model's own, for a shorter run with a lower rate.
    """
    config = files.config
    _check(files)
    # Links and the other direction were of the old text.
    model: dict[str, Any] = {"decoder": {"attention": "linear"}, "guided": {"weight": None}}
    if cross:
        model["decoder"]["cross_attention"] = "linear"
    if "linear" not in (config.model.encoder.attention, config.model.decoder.cross_attention):
        model["linear"] = {"features": "relu", "feature_count": features}
    none = dict.fromkeys(FILES)
    changes = [{"model": model, "data": {**none, "corpora": []}, "training": _shorter(config)}, given]
    values = reduce(merge, changes, config.model_dump(mode="json"))
    values = reduce(merge, map(assignment, assignments), values)
    return build_config(values, where=f"{files.path}, converted")


def inherited(files: ModelFiles) -> Inherited:
    """What the run takes over: tokenizers, and all weights but those of the features, which there were none of."""
    from sightline.training.checkpoints import fill_weights
    from sightline.training.run import Inherited
    from sightline.writer import Writer

    trained = load_model(files).model.state_dict()

    def fill(model: Writer) -> None:
        new = {name: value for name, value in model.state_dict().items() if ".features." in name}
        fill_weights(model, {**new, **trained}, files.path)

    return Inherited(files.tokenizers, fill)


def _check(files: ModelFiles) -> None:
    model = files.config.model
    if not model.has_source:
        raise SightlineError(f"{files.path}: a language model cannot be converted, only a transformer that translates")
    if model.recipe != "transformer":
        raise SightlineError(
            f"{files.path}: a {model.recipe} decoder is recurrent already: only a transformer's can be converted"
        )
    if model.decoder.attention == "linear":
        raise SightlineError(f"{files.path}: its decoder is recurrent already (model.decoder.attention = linear)")
    if model.decoder.attention == "lsh":
        raise SightlineError(
            f"{files.path}: model.decoder.attention = lsh has one matrix for queries and keys, and cannot be converted"
        )


def _shorter(config: RunConfig) -> dict[str, Any]:
    """Training settings: the model's, in part, and open ones where they were chosen from other data."""
    training = config.training
    steps, minutes, rate = training.max_steps, training.max_minutes, training.learning_rate
    return {
        "max_steps": steps and max(1, round(steps * LENGTH)),
        "max_minutes": minutes and minutes * LENGTH,
        "learning_rate": rate and rate * RATE,
        "warmup": None,
        "validate_every": None,
        "workers": None,
        "agreement": 0.0,
    }
