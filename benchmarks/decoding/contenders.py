"""Who takes part."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Contender:
    """`adaptor` is its module and, of a peer, the name of its environment.

    `engine`, `compute` and `shortlist` are its settings; `rival` is the contender that does the same work without
    Sightline. One that no goal is measured against and that takes as long as all others together runs `once`: in the
    first round only.
    """

    name: str
    adaptor: str
    about: str
    engine: str = ""
    compute: str = "float32"
    shortlist: bool = False
    rival: str | None = None
    peer: bool = True
    once: bool = False


CONTENDERS = (
    Contender(
        "sightline-pytorch", "sightline", "Sightline's PyTorch engine", "pytorch", rival="transformers", peer=False
    ),
    Contender(
        "sightline-pytorch-int8",
        "sightline",
        "the same with its output layer in int8",
        "pytorch",
        "int8",
        rival="transformers",
        peer=False,
    ),
    Contender(
        "sightline-ctranslate2",
        "sightline",
        "Sightline's CTranslate2 engine, float32",
        "ctranslate2",
        rival="ctranslate2",
        peer=False,
    ),
    Contender(
        "sightline-ctranslate2-int8",
        "sightline",
        "Sightline's CTranslate2 engine, int8",
        "ctranslate2",
        "int8",
        rival="ctranslate2-int8",
        peer=False,
    ),
    Contender(
        "sightline-shortlist",
        "sightline",
        "the same with a lexical shortlist, float32",
        "ctranslate2",
        shortlist=True,
        rival="ctranslate2",
        peer=False,
    ),
    Contender(
        "sightline-shortlist-int8",
        "sightline",
        "the same with a lexical shortlist, int8",
        "ctranslate2",
        "int8",
        shortlist=True,
        rival="ctranslate2-int8",
        peer=False,
    ),
    Contender("ctranslate2", "ctranslate2", "CTranslate2 called directly, float32"),
    Contender("ctranslate2-int8", "ctranslate2", "CTranslate2 called directly, int8", compute="int8"),
    Contender("transformers", "transformers", "`generate` of transformers' MarianMT, batches of 32, sorted by length"),
    Contender(
        "opennmt",
        "opennmt",
        "OpenNMT-py's search, batches of 32, sorted by length, untrained weights, one round",
        once=True,
    ),
    Contender(
        "joeynmt",
        "joeynmt",
        "JoeyNMT's search, batches of 32, sorted by length, untrained weights, one round",
        once=True,
    ),
)
