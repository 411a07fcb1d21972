"""Looking at weights without slowing the fast path.

`with capture(model) as maps:` makes the chosen attention modules also compute their weights on the same tensors.
Outputs stay identical, and a module nobody looks at pays one truth test.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor, nn


class Tap:
    """Collects the weights `(B, H, T, S)` of one module; those of several calls are joined along T."""

    def __init__(self, heads: Collection[int] | None) -> None:
        self.heads = heads
        self.recorded: list[Tensor] = []

    def record(self, weights: Tensor) -> None:
        """Keeps weights `(B, H, T, S)`: after the softmax, before dropout."""
        chosen = weights if self.heads is None else weights[:, sorted(self.heads)]
        self.recorded.append(chosen.detach())


class Tapped(nn.Module):
    """A module whose weights can be looked at. Subclasses do `if self.tap is not None: self.tap.record(…)`."""

    tap: Tap | None = None


class Maps(Mapping[str, Tensor]):
    """Weights by module name, such as `decoder.layers.2.cross`: `(B, H, T, S)`, rows the predicted tokens."""

    def __init__(self, taps: dict[str, Tap]) -> None:
        self._taps = taps

    def __getitem__(self, name: str) -> Tensor:
        recorded = self._taps[name].recorded
        if not recorded:
            raise KeyError(name)
        return recorded[0] if len(recorded) == 1 else torch.cat(recorded, dim=2)

    def __iter__(self) -> Iterator[str]:
        return (name for name, tap in self._taps.items() if tap.recorded)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def layer_number(name: str) -> int:
    """The layer in a module's name: 2 for `decoder.layers.2.cross`, 0 where a name has no number."""
    numbers = re.findall(r"\.(\d+)(?=\.|$)", name)
    return int(numbers[-1]) if numbers else 0


@contextmanager
def capture(
    model: nn.Module,
    layers: Collection[int] | None = None,
    heads: Collection[int] | None = None,
    where: Callable[[str], bool] = lambda name: True,
) -> Iterator[Maps]:
    """Looks at the attention of `model` while the block runs.

    `layers` and `heads` choose by number (None: all), `where` by the module's name, for example
    `lambda name: name.endswith("cross")`. Inside another capture the inner one sees; the outer goes on after it.
    """
    taps: dict[str, Tap] = {}
    before: list[tuple[Tapped, Tap | None]] = []
    for name, module in model.named_modules():
        if isinstance(module, Tapped) and where(name) and (layers is None or layer_number(name) in layers):
            before.append((module, module.tap))
            taps[name] = module.tap = Tap(heads)
    try:
        with _uncompiled():
            yield Maps(taps)
    finally:
        for module, tap in before:
            module.tap = tap


def _uncompiled() -> AbstractContextManager[object]:
    """Compiled layers would not know of the taps. Where nothing was compiled, nothing of the compiler is loaded."""
    return torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()
