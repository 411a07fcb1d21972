"""CTranslate2's file of weights, `model.bin`, written from numpy arrays and read again.

`ctranslate2.specs` writes it too, but imports torch wherever it is installed, and a translation must not wait for that.
The layout is that of binary version 6, which later versions read too:

    version, name of the specification, its revision
    count, then for each variable: name, rank, dimensions, type, bytes, the numbers
    count, then for each alias: its name, the name of the variable it stands for
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sightline.errors import SightlineError, nearest

BINARY_VERSION = 6
SPECIFICATION, REVISION = "TransformerSpec", 7
TYPES = ("float32", "int8", "int16", "int32", "float16")
QUANTIZATIONS = ("float32", "float16", "int16", "int8", "int8_float32", "int8_float16")

Variable = NDArray[Any] | np.generic
Variables = Mapping[str, Variable | str]
"""Arrays and scalars by name; a string is the name of another variable that serves here too."""


def serialise(variables: Variables) -> bytes:
    """The content of `model.bin`."""
    values = {name: np.asarray(value) for name, value in sorted(variables.items()) if not isinstance(value, str)}
    aliases = {name: value for name, value in sorted(variables.items()) if isinstance(value, str)}
    parts = [struct.pack("<I", BINARY_VERSION), _string(SPECIFICATION), struct.pack("<II", REVISION, len(values))]
    for name, value in values.items():
        kind = TYPES.index(value.dtype.name)
        parts += [_string(name), struct.pack(f"<B{value.ndim}I", value.ndim, *value.shape)]
        parts += [struct.pack("<BI", kind, value.nbytes), np.ascontiguousarray(value).tobytes()]
    parts.append(struct.pack("<I", len(aliases)))
    parts += [_string(part) for alias in aliases.items() for part in alias]
    return b"".join(parts)


def _string(text: str) -> bytes:
    content = text.encode() + b"\0"
    return struct.pack("<H", len(content)) + content


def parse(content: bytes) -> dict[str, NDArray[Any]]:
    """The variables of a `model.bin` of the version that `serialise` writes, aliases under their own names too.

    Raises ValueError, KeyError, IndexError or struct.error for anything else.
    """
    place = 0

    def take(form: str) -> tuple[Any, ...]:
        nonlocal place
        values = struct.unpack_from(f"<{form}", content, place)
        place += struct.calcsize(f"<{form}")
        return values

    def text() -> str:
        (length,) = take("H")
        (found,) = take(f"{length}s")
        return str(found.decode().removesuffix("\0"))

    version, specification = take("I")[0], text()
    revision, count = take("II")
    if (version, specification, revision) != (BINARY_VERSION, SPECIFICATION, REVISION):
        raise ValueError(f"{specification}, revision {revision}, version {version}")
    found: dict[str, NDArray[Any]] = {}
    for _ in range(count):
        name, (rank,) = text(), take("B")
        shape = take(f"{rank}I")
        kind, size = take("BI")
        numbers = np.frombuffer(content[place : place + size], np.dtype(TYPES[kind]))
        found[name] = numbers.reshape(shape)
        place += size
    (count,) = take("I")
    for _ in range(count):
        name, other = text(), text()
        found[name] = found[other]
        if f"{other}_scale" in found:
            found[f"{name}_scale"] = found[f"{other}_scale"]
    return found


def dequantise(variables: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """What `quantise` made, in float32 again as far as it goes; scales are left out, and what is no matrix stays."""
    result: dict[str, NDArray[Any]] = {}
    for name, value in variables.items():
        scale = variables.get(f"{name}_scale")
        if name.endswith("_scale") and name.removesuffix("_scale") in variables:
            continue
        if scale is not None:
            result[name] = value.astype(np.float32) / (scale[:, None] if scale.ndim else scale)
        else:
            result[name] = value.astype(np.float32) if value.dtype == np.float16 else value
    return result


def quantise(variables: Variables, quantization: str) -> dict[str, Variable | str]:
    """The variables with their matrices in a smaller type, each with its scale; the others in the type after `_`."""
    if quantization not in QUANTIZATIONS:
        raise SightlineError(f"unknown quantization '{quantization}'; {nearest(quantization, QUANTIZATIONS)}")
    small, _, rest = quantization.partition("_")
    rest = rest or (small if small.startswith("float") else "float32")
    result: dict[str, Variable | str] = {}
    for name, value in variables.items():
        if isinstance(value, str) or value.dtype != np.float32 or not value.ndim:
            result[name] = value
        elif not name.endswith("/weight") or small.startswith("float"):
            result[name] = value.astype(rest)
        else:
            result[name], result[f"{name}_scale"] = _rounded(np.asarray(value), small)
    return result


def _rounded(matrix: NDArray[Any], kind: str) -> tuple[Variable, Variable]:
    """Whole numbers and the scale they were multiplied with: one a row for int8, one for all for int16."""
    largest = np.abs(matrix).max(axis=1, keepdims=True) if kind == "int8" else np.abs(matrix).max()
    # int16 keeps 10 bits, so that products of two have room for their sum in 32.
    steps = np.float32(127 if kind == "int8" else 2**10)
    scale = (steps / np.where(largest == 0, steps, largest)).astype(np.float32)
    whole = np.rint(matrix * scale).astype(kind)
    return whole, scale[:, 0] if kind == "int8" else np.float32(scale)
