"""One contender's orders, and what it answers, as they travel through the pipe."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

HUGGINGFACE, PIECES = "huggingface", "pieces.spm"
NO_EXPORT = "there is no export to "
SHORTLISTED = "sightline-shortlist"
CTRANSLATE2 = {"float32": "ctranslate2-float32", "int8": "ctranslate2-int8"}


@dataclass(frozen=True)
class Job:
    """What a contender is started with.

    `model`: the Sightline folder. `exports`: the folder of what was made of it, by the names above. `sets`: a JSON file
    of test sets, name to lines. `sizes`: layers, width, feedforward, heads and vocabulary, for a peer that builds its
    own. `first`: the sentence that it translates before it says that it is ready. `shortlist`: whether Sightline should
    take its export with a shortlist.
    """

    adaptor: str
    model: str
    exports: str
    sets: str
    threads: int
    first: str
    sizes: dict[str, int] = field(default_factory=dict)
    engine: str = ""
    compute: str = "float32"
    shortlist: bool = False

    def dumps(self) -> str:
        """As text for a command line."""
        return json.dumps(asdict(self))

    @staticmethod
    def loads(text: str) -> Job:
        """The job that `dumps` wrote."""
        return Job(**json.loads(text))


@dataclass(frozen=True)
class Case:
    """What is measured: a set of lines, a beam, the whole file at once or one sentence at a time."""

    set: str
    beam: int
    one_by_one: bool = False

    def __str__(self) -> str:
        return f"{self.set}, beam {self.beam}, {'one sentence at a time' if self.one_by_one else 'the whole file'}"


@dataclass(frozen=True)
class Written:
    """What a contender wrote: texts, or, where its weights are untrained, only how many tokens."""

    texts: list[str] | None = None
    tokens: int | None = None

    def plus(self, other: Written) -> Written:
        """Both."""
        texts = None if self.texts is None or other.texts is None else self.texts + other.texts
        tokens = None if self.tokens is None or other.tokens is None else self.tokens + other.tokens
        return Written(texts, tokens)


class Decoder(Protocol):
    """A contender. `about` tells its version, and `untrained` if its weights are; `prepare` is not timed."""

    about: dict[str, Any]

    def prepare(self, lines: list[str], beam: int) -> None:
        """Whatever it may do before it is measured on these lines, such as finding its best settings."""
        ...

    def translate(self, lines: list[str], beam: int) -> Written:
        """Text in, text out, in the same order."""
        ...
