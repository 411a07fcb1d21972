"""Which engine does the work: opened when first needed, so that nothing is imported that is not used."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from sightline.config import AlignmentConfig
from sightline.engines.base import Engine, Ids, Task, Watch
from sightline.errors import SightlineError, nearest
from sightline.folder import ModelFiles
from sightline.hypothesis import Hypothesis
from sightline.interop.ctranslate2 import unsupported
from sightline.interop.kept import is_export

if TYPE_CHECKING:
    from sightline.engines.ctranslate2 import CTranslate2Engine
    from sightline.engines.pytorch import PyTorchEngine

AUTO = "auto"
NAMES = ("ctranslate2", "pytorch")
PYTORCH_TYPES = ("float32", "int8")


@dataclass
class Engines:
    """The engines of one model. `wanted` is the name of one, or "auto": the fastest that can do the task.

    `device` and `compute`, the type to compute in, are what the engines take; `shortlist`, whether to use the one that
    an export may have, is for CTranslate2 alone.
    """

    files: ModelFiles
    wanted: str = AUTO
    device: str | None = None
    compute: str | None = None
    shortlist: bool = True
    opened: dict[str, Engine] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.wanted not in (AUTO, *NAMES):
            raise SightlineError(f"unknown engine '{self.wanted}'; {nearest(self.wanted, [AUTO, *NAMES])}")
        if self.compute is None or self.compute in PYTORCH_TYPES:
            return
        reason = None if is_export(self.files.path) else unsupported(self.files.config.model)
        if self.wanted == "pytorch" or (self.wanted == AUTO and reason is not None):
            why = "" if reason is None else f", and the ctranslate2 engine cannot run {reason}"
            raise SightlineError(f"compute={self.compute}: the pytorch engine has {' and '.join(PYTORCH_TYPES)}{why}")

    def names(self) -> list[str]:
        """The engines to try, in this order; never empty."""
        if self.wanted != AUTO:
            return [self.wanted]
        if is_export(self.files.path):
            return list(NAMES)  # what it was made for comes first
        able = NAMES if unsupported(self.files.config.model) is None else NAMES[1:]
        # On a GPU PyTorch is as fast, and it can do all but compute in other types.
        return list(reversed(able)) if self.compute is None and self._on_gpu() else list(able)

    def for_task(self, task: Task) -> Engine:
        """An engine that can do the task, or an error that tells why the wanted one cannot."""
        for name in self.names():
            engine = self.get(name)
            reason = engine.refuses(task)
            if reason is None:
                return engine
        raise SightlineError(f"the {name} engine cannot {reason}; the pytorch engine can")

    def search(self, sources: Sequence[Ids], task: Task, watch: Watch) -> list[list[Hypothesis]]:
        """Hypotheses of each source: see `Engine.search`.

        Sentences that ask for nothing of their own are searched apart from those that do, since a faster engine may
        do for them. A glossary has terms for few of the lines.
        """
        places = range(len(sources))
        asking = [place for place in places if task.requests and task.requests[place].steers]
        plain = sorted({*places} - {*asking})
        found: dict[int, list[Hypothesis]] = {}
        for part, requests in ((plain, ()), (asking, task.requests)):
            if part:
                own = replace(task, requests=tuple(requests[place] for place in part) if requests else ())
                engine = self.for_task(own)
                found.update(zip(part, engine.search([sources[place] for place in part], own, watch), strict=True))
        return [found[place] for place in places]

    def first(self) -> Engine:
        """The engine that is tried first; what is wrong with a model's weights comes out here."""
        return self.get(self.names()[0])

    def get(self, name: str) -> Engine:
        """The engine of this name."""
        if name not in self.opened:
            self.opened[name] = OPENERS[name](self)
        return self.opened[name]

    def inside(self) -> PyTorchEngine:
        """The engine that can look inside."""
        from sightline.engines.pytorch import PyTorchEngine

        engine = self.get(PyTorchEngine.name)
        assert isinstance(engine, PyTorchEngine)
        return engine

    def check_live(self) -> None:
        """Refuses to show a translation while it is made where that was left no engine that can."""
        if "pytorch" not in self.names():
            raise SightlineError(
                "the ctranslate2 engine cannot show a translation while it is made; the pytorch engine can: choose it, "
                "or auto"
            )

    def looking(self, alignment: AlignmentConfig) -> CTranslate2Engine | None:
        """The engine that can tell the weights of given translations without torch; None when there is none."""
        if "ctranslate2" not in self.names():
            return None
        from sightline.engines.ctranslate2 import CTranslate2Engine

        engine = self.get(CTranslate2Engine.name)
        assert isinstance(engine, CTranslate2Engine)
        return engine if engine.aligns(alignment) else None

    def _on_gpu(self) -> bool:
        if self.device is not None:
            return self.device.startswith("cuda")
        import ctranslate2

        return bool(ctranslate2.get_cuda_device_count())


def _ctranslate2(engines: Engines) -> Engine:
    from sightline.engines.ctranslate2 import CTranslate2Engine

    return CTranslate2Engine(engines.files, engines.device, engines.compute, engines.shortlist)


def _pytorch(engines: Engines) -> Engine:
    from sightline.engines.pytorch import PyTorchEngine

    return PyTorchEngine(engines.files, engines.device, engines.compute)


OPENERS: dict[str, Callable[[Engines], Engine]] = {
    "ctranslate2": _ctranslate2,
    "pytorch": _pytorch,
}
