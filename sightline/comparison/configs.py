"""The configurations that are compared: their names, that their data are the same, and where they differ. No torch."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sightline.config import RunConfig
from sightline.errors import SightlineError, nearest
from sightline.recipes import RECIPES
from sightline.run_settings import assembled
from sightline.sections import DataConfig

# What says which text is read, not how.
FILES = (
    *("source", "target", "pairs", "corpora", "valid_source", "valid_target", "valid_pairs"),
    *("source_language", "target_language"),
)
# What differs between two runs without being a difference between their configurations.
NO_DIFFERENCE = ("data.cache", "training.seed", *(f"data.{name}" for name in FILES))


def read_configs(names: Sequence[str], given: dict[str, Any], assignments: Sequence[str] = ()) -> dict[str, RunConfig]:
    """The configurations by their names: each a file, called by its stem, or a recipe.

    `given` are values for all of them, section by section, and `assignments` as `section.key=value`.
    """
    found: dict[str, RunConfig] = {}
    for name in names:
        path = Path(name)
        recipe = name if name in RECIPES and not path.is_file() else None
        if recipe is None and not path.suffix and not path.exists():
            raise SightlineError(f"{name}: neither a configuration file nor a recipe; {nearest(name, RECIPES)}")
        label = recipe or path.stem
        if label in found:
            raise SightlineError(f"{name}: a second config of the name '{label}'; rename one of the files")
        found[label] = assembled(None if recipe else path, recipe, given, list(assignments), None)
    return found


def common_data(configs: Mapping[str, RunConfig]) -> DataConfig:
    """The first one's data section; the files must be the same in all."""
    if not configs:
        raise SightlineError("no config to compare: name configuration files or recipes")
    for name, config in configs.items():
        if not config.model.has_source:
            raise SightlineError(
                f"{name}: a comparison is of translations, and a language model makes none: train each with "
                "`sightline train`, and compare the perplexities that `sightline evaluate MODEL --text FILE` tells"
            )
    (first, one), *others = configs.items()
    for name, other in others:
        for key in FILES:
            if _files(one.data, key) != _files(other.data, key):
                raise SightlineError(
                    f"{first} and {name} differ in data.{key}: a comparison needs the same text; name it on the "
                    "command line, for all of them"
                )
    data = one.data
    if not (data.source or data.target or data.pairs or data.corpora):
        raise SightlineError("no training data: give --pairs FILE, or --source FILE and --target FILE")
    return data


def common_sources(configs: Mapping[str, RunConfig]) -> int:
    """How many sources a line has, which must be the same in all: they read the same text."""
    (first, one), *others = configs.items()
    count = one.model.source_count
    for name, other in others:
        if other.model.source_count != count:
            raise SightlineError(
                f"{first} and {name} differ in model.sources.count ({count} and {other.model.source_count}): a "
                "comparison needs the same text for all of them"
            )
    return count


def link_files(configs: Mapping[str, RunConfig]) -> list[Path]:
    """The files of word links that some of them have, each once."""
    return [*dict.fromkeys(one.data.alignments for one in configs.values() if one.data.alignments is not None)]


def _files(data: DataConfig, key: str) -> Any:
    """What a key of the data section names; corpora may be weighted in different ways."""
    if key == "corpora":
        return [(corpus.source, corpus.target, corpus.pairs) for corpus in data.corpora]
    return getattr(data, key)


def settings(config: RunConfig, sections: Sequence[str] = tuple(RunConfig.model_fields)) -> dict[str, Any]:
    """Every key of these sections, as `section.key` to a plain value, but for what does not make a difference."""
    found: dict[str, Any] = json.loads(json.dumps(config.model_dump(mode="json", include={*sections})))
    return {name: value for name, value in _flat(found, "") if name not in NO_DIFFERENCE}


def _flat(values: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def differences(configs: Sequence[RunConfig]) -> dict[str, list[Any]]:
    """The keys whose values are not the same in all, with the value of each."""
    every = [settings(config) for config in configs]
    columns = {name: [values.get(name) for values in every] for name in every[0]}
    return {name: values for name, values in columns.items() if any(value != values[0] for value in values)}
