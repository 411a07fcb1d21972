"""The options of a search: the model's own, with those that a caller gives on top. No torch here."""

from __future__ import annotations

from typing import Any

from sightline.config import RunConfig
from sightline.errors import SightlineError, nearest
from sightline.hypothesis import SearchOptions
from sightline.limits import most_tokens
from sightline.wishes import NAMES


def search_options(config: RunConfig, options: dict[str, Any]) -> SearchOptions:
    """The search section with the caller's options on top, and no longer than the model's parts can write."""
    fields = SearchOptions.__dataclass_fields__
    for name in options:
        if name not in fields:
            raise SightlineError(
                f"unknown option '{name}' for translating; {nearest(name, ['align', *fields, *NAMES])}"
            )
    chosen = {name: value for name, value in config.search.model_dump().items() if name in fields}
    chosen |= {name: value for name, value in options.items() if value is not None}
    strategy = chosen.get("strategy")
    if strategy == "greedy":
        SearchOptions(**chosen)  # tells what greedy search cannot do by its own name
        # The rest is the same by another name, which every engine knows.
        chosen |= {"strategy": "beam", "beam": 1}
    elif strategy in (None, "beam", "mbr") and 1 <= chosen["beam"] < chosen.get("n_best", 1):
        chosen["beam"] = chosen["n_best"]
    _, most = most_tokens(config.model)
    chosen["max_length"] = min(most, chosen.get("max_length", most))
    return SearchOptions(**chosen)
