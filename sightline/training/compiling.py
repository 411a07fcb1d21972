"""torch.compile for the layers of a Transformer: the only part that is compiled, once for all layers of a kind.

Losses and recurrences are written by hand already, and an attention that someone looks at runs uncompiled.
"""

from __future__ import annotations

import os
import shutil

from sightline.attention.multihead import Heads
from sightline.decoders.transformer import TransformerDecoder
from sightline.encoders import TransformerEncoder
from sightline.errors import SightlineError
from sightline.writer import Writer

KINDS = (TransformerEncoder, TransformerDecoder)


def compile_layers(model: Writer) -> None:
    """Makes the layers of `model` compile themselves when they first run; shapes may change from batch to batch."""
    found = [part for part in model.children() if isinstance(part, KINDS)]
    if not found:
        raise SightlineError(
            "training.compile has nothing to compile: neither encoder nor decoder is a transformer; leave it out"
        )
    refused = ["reversible layers (model.reversible)"] if any(stack.reversible for stack in found) else []
    refused += [part.never_compiled for part in model.modules() if isinstance(part, Heads) and part.never_compiled]
    if refused:
        raise SightlineError(f"training.compile cannot compile {refused[0]}: leave one of them out")
    check_compiler(next(model.parameters()).device.type)
    for stack in found:
        for layer in stack.layers:
            layer.compile(dynamic=True)


def check_compiler(device: str) -> None:
    """On a CPU, torch.compile writes C++ and calls a compiler, which must be there."""
    wanted = [os.environ["CXX"]] if os.environ.get("CXX") else ["g++", "clang++", "cl"]
    if device == "cpu" and not any(map(shutil.which, wanted)):
        raise SightlineError(
            f"training.compile needs a C++ compiler ({' or '.join(wanted)}): install one, or leave it out"
        )
