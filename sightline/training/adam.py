"""AdamW (Loshchilov & Hutter 2019): torch's own arithmetic, with only as much around it as training needs.

`torch.optim.AdamW` is the same function inside a class whose constructor and `step` import torch's compiler. That takes
seconds at every start, also of runs that compile nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim.adamw import adamw

FUSED = ("cpu", "cuda")  # where one kernel does all of an update


class AdamW:
    """Moves parameters along their gradients; laid out as torch's optimizers are.

    `param_groups` are dicts with `params` (a list of parameters), `weight_decay` and `lr`, the learning rate, which may
    change from step to step. `state[parameter]` has, from its first gradient on, `step` (a float32 without a
    dimension, the updates it has had), and `exp_avg` and `exp_avg_sq`, the two moments in the parameter's shape.
    """

    def __init__(self, groups: Sequence[dict[str, Any]], betas: tuple[float, float], epsilon: float) -> None:
        self.param_groups = [{"lr": 0.0, **group} for group in groups]
        self.state: dict[Tensor, dict[str, Tensor]] = {}
        self._betas, self._epsilon = betas, epsilon
        self._fused = all(parameter.device.type in FUSED for group in groups for parameter in group["params"])

    def step(self) -> None:
        """One update of every parameter that has a gradient."""
        for group in self.param_groups:
            moved = [parameter for parameter in group["params"] if parameter.grad is not None]
            if not moved:
                continue
            states = [self.state.get(parameter) or self._begin(parameter) for parameter in moved]
            with torch.no_grad():
                adamw(
                    moved,
                    [parameter.grad for parameter in moved],
                    [state["exp_avg"] for state in states],
                    [state["exp_avg_sq"] for state in states],
                    [],
                    [state["step"] for state in states],
                    fused=self._fused,
                    amsgrad=False,
                    beta1=self._betas[0],
                    beta2=self._betas[1],
                    lr=group["lr"],
                    weight_decay=group["weight_decay"],
                    eps=self._epsilon,
                    maximize=False,
                )

    def zero_grad(self) -> None:
        """Forgets the gradients."""
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad = None

    def _begin(self, parameter: Tensor) -> dict[str, Tensor]:
        """The state of a parameter that has not moved yet."""
        state = self.state[parameter] = {
            "step": torch.zeros((), dtype=torch.float32, device=parameter.device),
            "exp_avg": torch.zeros_like(parameter),
            "exp_avg_sq": torch.zeros_like(parameter),
        }
        return state
