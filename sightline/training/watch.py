"""What the loop tells to those who look over its shoulder; `watching.py` is who does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from sightline.training.metrics_log import Value


class Sample(NamedTuple):
    """A validation sentence as it is translated now."""

    source: str
    reference: str
    output: str


class Watch(Protocol):
    """What the loop tells, beside the progress."""

    def start(self, step: int) -> None:
        """Training begins, or goes on after `step`; whatever is there of later steps will be made again."""

    def line(self, values: Mapping[str, Value]) -> None:
        """A line of the metrics file."""

    def validated(self, step: int, best: bool) -> Sequence[Sample]:
        """A validation is done; gives the samples to show."""

    def stop(self) -> None:
        """Training is over."""


class Unwatched:
    """Looks away."""

    def start(self, step: int) -> None: ...

    def line(self, values: Mapping[str, Value]) -> None: ...

    def validated(self, step: int, best: bool) -> Sequence[Sample]:
        return ()

    def stop(self) -> None: ...
