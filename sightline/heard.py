"""Settings that only count beside another one: where nothing would hear them, a run is refused. No torch here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sightline.errors import SightlineError
from sightline.score_choices import SCORES

if TYPE_CHECKING:
    from sightline.architecture import ModelConfig

Beside = dict[str, tuple[str, ...]]


def _scores(argument: str) -> Beside:
    return {"attention.score": tuple(name for name, score in SCORES.items() if argument in score.given)}


HASHED: Beside = {"encoder.attention": ("lsh",), "decoder.attention": ("lsh",)}
LINEAR: Beside = dict.fromkeys(("encoder.attention", "decoder.attention", "decoder.cross_attention"), ("linear",))
STOPPING: Beside = {"attention.choice": ("segments", "online_monotonic")}
SAMPLED: Beside = {"attention.choice": ("sampled",)}
POINTING: Beside = {"copying.kind": ("pointer_generator",)}
OWN_HEAD: Beside = {"copying.kind": ("copy_head",)}
# A setting of the model, and what it counts beside: any of these keys with any of these values.
COUNTS_BESIDE: dict[str, Beside] = {
    "attention.max_jump": {"attention.choice": ("exact_jumps",)},
    "attention.stop_bias": STOPPING,
    "attention.sample_soft": SAMPLED,
    "attention.sample_reward": SAMPLED,
    "attention.window": {"attention.span": ("local-m", "local-p")},
    "attention.max_source": _scores("max_source"),
    "attention.kernel": _scores("kernel"),
    "attention.max_fertility": {"attention.coverage": ("fertility",)},
    "attention.coverage_width": {"attention.coverage": ("neural", "embedded")},
    "attention.coverage_update": {"attention.coverage": ("embedded",)},
    "copying.channels": OWN_HEAD,
    "copying.kernel": OWN_HEAD,
    "copying.layer": POINTING,
    "copying.head": POINTING,
    "lexicon.file": {"lexicon.mode": ("bias", "linear")},
    "lexicon.epsilon": {"lexicon.mode": ("bias",)},
    "pointer.window": {"pointer.kind": ("sentinel",)},
    **{f"lsh.{name}": HASHED for name in ("rounds", "chunk", "buckets", "same_bucket")},
    "linear.features": LINEAR,
    "linear.feature_count": {"linear.features": ("relu",)},
}


def check_heard(model: ModelConfig) -> None:
    """Refuses what was set and would go unheard."""
    for name, beside in COUNTS_BESIDE.items():
        if not _is_default(model, name) and not any(_value(model, key) in values for key, values in beside.items()):
            wanted = " or ".join(f"model.{key}={value}" for key, values in beside.items() for value in values)
            raise SightlineError(
                f"model.{name}={str(_value(model, name)).lower()} counts with {wanted}: set that, or leave it out"
            )
    for name in ("encoder", "start", "context"):
        if model.source_count == 1 and not _is_default(model, f"sources.{name}"):
            raise SightlineError(
                f"model.sources.{name} = {_value(model, f'sources.{name}')} is for several sources, and there is one: "
                "give --source once for each, or set model.sources.count"
            )


def _value(model: ModelConfig, name: str) -> Any:
    section, key = name.split(".")
    return getattr(getattr(model, section), key)


def _is_default(model: ModelConfig, name: str) -> bool:
    section, key = name.split(".")
    return bool(_value(model, name) == type(getattr(model, section)).model_fields[key].default)
