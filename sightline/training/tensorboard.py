"""TensorBoard's event files, by torch's own writer, which is imported when it is asked for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sightline.errors import SightlineError
from sightline.training.metrics_log import Value

TENSORBOARD = "tensorboard"
# They say where a line belongs, and are no curves.
_PLACES = ("kind", "step", "epoch", "seconds")


def check_tensorboard() -> None:
    """Refuses what would fail later, when the model has been built."""
    _writer_class()


class Board:
    """The lines of the metrics file as curves, `training/loss`, `validation/bleu` and so on, and samples as text."""

    def __init__(self, run: Path) -> None:
        self.folder = run / TENSORBOARD
        self._writer: Any = None

    def start(self, step: int) -> None:
        """Training begins, or goes on after `step`: TensorBoard is told to forget what it has of later ones."""
        try:
            self._writer = _writer_class()(str(self.folder), purge_step=step + 1)
        except OSError as error:
            raise SightlineError(f"{self.folder}: cannot write: {error.strerror or error}") from None

    def line(self, values: Mapping[str, Value]) -> None:
        """One line of the metrics file."""
        kind, step = values["kind"], values["step"]
        for name, value in values.items():
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if number and name not in _PLACES and math.isfinite(value):  # type: ignore[arg-type]
                self._writer.add_scalar(f"{kind}/{name}", value, step)
        samples = values.get("samples")
        if isinstance(samples, list):
            for place, sample in enumerate(samples, 1):
                # Indented, so that no sign in a sentence is read as formatting.
                text = "\n".join(f"    {name:<9}  {' '.join(text.split())}" for name, text in sample.items())
                self._writer.add_text(f"{kind}/sample {place}", text, step)
        if kind != "training":
            self._writer.flush()

    def stop(self) -> None:
        """Training is over."""
        if self._writer is not None:
            self._writer.close()


def _writer_class() -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise SightlineError(
            "training.tensorboard needs TensorBoard: pip install 'sightline[tensorboard]', or set it to false"
        ) from None
    return SummaryWriter
