"""Several modules of one kind as one."""

from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar, cast

from torch import nn

M = TypeVar("M", bound=nn.Module)


class Stack(nn.Module, Generic[M]):
    """Layers of one kind. torch's `ModuleList` forgets their type, so that every use would need a cast."""

    def __init__(self, layers: Iterable[M]) -> None:
        super().__init__()
        for number, layer in enumerate(layers):
            self.add_module(str(number), layer)

    def __getitem__(self, number: int) -> M:
        return cast(M, self._modules[str(number)])

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[M]:
        return (cast(M, layer) for layer in self._modules.values())
