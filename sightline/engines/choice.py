"""Which engine does the work: opened when first needed, so that nothing is imported that is not used."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sightline.engines.base import Engine, Task
from sightline.errors import SightlineError, nearest
from sightline.folder import ModelFiles

if TYPE_CHECKING:
    from sightline.engines.pytorch import PyTorchEngine

AUTO = "auto"
NAMES = ("pytorch",)


@dataclass
class Engines:
    """The engines of one model. `wanted` is the name of one, or "auto": the first of NAMES that can do the task."""

    files: ModelFiles
    wanted: str = AUTO
    device: str | None = None
    opened: dict[str, Engine] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.wanted not in (AUTO, *NAMES):
            raise SightlineError(f"unknown engine '{self.wanted}'; {nearest(self.wanted, [AUTO, *NAMES])}")

    def for_task(self, task: Task) -> Engine:
        """An engine that can do the task, or an error that tells why the wanted one cannot."""
        for name in NAMES if self.wanted == AUTO else (self.wanted,):
            engine = self.get(name)
            reason = engine.refuses(task)
            if reason is None:
                return engine
        raise SightlineError(f"the {self.wanted} engine cannot {reason}; the pytorch engine can")

    def first(self) -> Engine:
        """The engine that is tried first; what is wrong with a model's weights comes out here."""
        return self.get(NAMES[0] if self.wanted == AUTO else self.wanted)

    def get(self, name: str) -> Engine:
        """The engine of this name."""
        if name not in self.opened:
            self.opened[name] = OPENERS[name](self.files, self.device)
        return self.opened[name]

    def inside(self) -> PyTorchEngine:
        """The engine that can look inside."""
        from sightline.engines.pytorch import PyTorchEngine

        engine = self.get(PyTorchEngine.name)
        assert isinstance(engine, PyTorchEngine)
        return engine


def _pytorch(files: ModelFiles, device: str | None) -> Engine:
    from sightline.engines.pytorch import PyTorchEngine

    return PyTorchEngine(files, device)


OPENERS: dict[str, Callable[[ModelFiles, str | None], Engine]] = {"pytorch": _pytorch}
