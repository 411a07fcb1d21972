"""A mistake in a configuration, told in one line."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import ValidationError

from sightline.sections import Section

# What a value should have been, by the name that pydantic has for the mistake.
EXPECTED = {
    "int_type": "expected a whole number",
    "int_parsing": "expected a whole number",
    "int_from_float": "expected a whole number",
    "float_type": "expected a number",
    "float_parsing": "expected a number",
    "finite_number": "expected a finite number",
    "bool_type": "expected true or false",
    "bool_parsing": "expected true or false",
    "string_type": "expected text",
    "list_type": "expected a list",
    "tuple_type": "expected a list",
    "greater_than": "expected more than {gt}",
    "greater_than_equal": "expected {ge} or more",
    "less_than": "expected less than {lt}",
    "less_than_equal": "expected {le} or less",
    "too_short": "expected {min_length} entry or more",
    "model_type": "expected a section of keys and values",
    "model_attributes_type": "expected a section of keys and values",
    "invalid_key": "the name of a key must be text",
}


def explain(error: ValidationError, whole: type[Section]) -> str:
    """The first mistake in one line, with the nearest valid name for a key that `whole`, the configuration, lacks."""
    first = error.errors()[0]
    path = [str(part) for part in first["loc"]]
    name = ".".join(path)
    if first["type"] == "extra_forbidden":
        return f"unknown key '{name}'; {_nearest_key(path, whole, first['input'])}"
    if first["type"] == "literal_error":
        return f"{name} = {first['input']!r}: expected {first['ctx']['expected']}"
    if first["type"] == "path_type":
        return f"{name} = {first['input']!r}: expected the name of a file"
    told = EXPECTED.get(first["type"])
    return f"{name} = {first['input']!r}: " + (told.format(**first.get("ctx", {})) if told else first["msg"].lower())


def _nearest_key(path: list[str], whole: type[Section], value: object) -> str:
    """The key that was meant: one of the same section, else one of another, else all that the section has.

    `value` is what the unknown key was given: where it is a section that stands elsewhere, its keys tell which.
    """
    *above, wrong = path
    own = _valid_keys(above, whole)
    if close := get_close_matches(wrong, own, n=1, cutoff=0.7):
        return f"did you mean '{'.'.join([*above, close[0]])}'?"
    asked = [wrong, *_keys_below(value)]
    every = list(_every_key(whole))
    section = ".".join(asked[:-1]) or wrong
    inside = [name for name in every if f".{name.rpartition('.')[0]}".endswith(f".{section}")]
    if inside and len(asked) == 1:
        return _valid(inside)
    written_apart = "_".join([*above, *asked][-2:])  # attention.dropout for attention_dropout
    for key, names, cutoff in ((written_apart, every, 1.0), (asked[-1], inside, 0.7), (asked[-1], every, 0.6)):
        if found := _ending_like(key, names, cutoff):
            here = [name for name in found if name.startswith(f"{'.'.join(above)}.")] or found
            return "did you mean '" + "' or '".join(here) + "'?"
    return _valid(inside) if inside else f"valid in {'.'.join(above) or 'a config'}: {', '.join(own)}"


def _keys_below(value: object) -> Iterator[str]:
    """The first key of a section, and of the section that this one holds."""
    while isinstance(value, dict) and value:
        key, value = next(iter(value.items()))
        yield str(key)


def _ending_like(key: str, names: list[str], cutoff: float) -> list[str]:
    """Those of full names whose last part is the nearest to a key, underscores aside."""
    ends: dict[str, list[str]] = {}
    for name in names:
        ends.setdefault(name.rpartition(".")[2].replace("_", ""), []).append(name)
    close = get_close_matches(key.replace("_", ""), ends, n=1, cutoff=cutoff)
    return ends[close[0]] if close else []


def _valid(names: list[str]) -> str:
    """The keys of one section, given in full."""
    sections, _, keys = zip(*(name.rpartition(".") for name in names), strict=True)
    return f"valid in {sections[0]}: {', '.join(keys)}"


def _every_key(section: type[Section], above: str = "") -> Iterator[str]:
    """All keys in full, section by section."""
    for name, field in section.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            yield from _every_key(field.annotation, f"{above}{name}.")
        else:
            yield f"{above}{name}"


def _valid_keys(path: list[str], whole: type[Section]) -> list[str]:
    section: Any = whole
    for part in path:
        section = get_args(section)[0] if part.isdigit() else section.model_fields[part].annotation
    return list(section.model_fields)
