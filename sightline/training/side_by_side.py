"""Parts of an update computed side by side, each by one thread of its own.

Many threads inside one operation wait for one another at its end, thousands of times in an update; small models on a
CPU lose time there, and most of it when another program needs a processor. Threads with a part of the
batch each meet once. What comes out depends on the number of parts, not on how many threads there are or who is first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from sightline.batch import Batch
from sightline.performance import available_processors
from sightline.randomness import drawing_from
from sightline.training.averages import Losses, losses_of, objective
from sightline.training.update import Backward, added, detached

# The work of a target token, in source tokens: it goes through the output layer too.
TARGET = 2

T = TypeVar("T")
Gradients = tuple[Tensor | None, ...]


class Workers:
    """Threads for `parts` parts of a batch, no more than there are processors, which they share."""

    def __init__(self, parts: int, seed: int) -> None:
        self.parts, self.seed = parts, seed
        count = min(parts, available_processors())
        self.threads = torch.get_num_threads()
        share = max(1, self.threads // count)
        self._pool = ThreadPoolExecutor(count, "part", torch.set_num_threads, (share,))

    def parted(self, batch: Batch) -> list[Batch]:
        """A batch in parts of equal work: neighbours, who are of a length, stay together and need less padding."""
        work = sum((source.mask.sum(1) for source in batch.sources), torch.zeros(batch.size, dtype=torch.long))
        if batch.targets is not None:
            work = work + TARGET * batch.targets.mask.sum(1)
        done = work.cumsum(0)
        count = min(self.parts, batch.size)
        cuts = [0]
        for part in range(1, count):
            fair = int((done - done[-1] * part / count).abs().argmin()) + 1
            # Nobody goes empty-handed: one for each part before, and for each one after.
            cuts.append(min(max(fair, cuts[-1] + 1), batch.size - count + part))
        return [batch.between(start, end) for start, end in pairwise([*cuts, batch.size])]

    def run(self, jobs: Sequence[Callable[[], T]]) -> list[T]:
        """The results of all jobs, in their order, or the first one's mistake."""
        futures = [self._pool.submit(job) for job in jobs]
        try:
            return [future.result() for future in futures]
        finally:
            for future in futures:
                future.cancel()

    def generator(self, step: int, part: int) -> torch.Generator:
        """The random numbers of a part of update `step`: always the same ones, so there is no state to keep."""
        seed = np.random.SeedSequence([self.seed, step, part]).generate_state(1, np.uint64)
        return torch.Generator().manual_seed(int(seed[0]) % 2**63)

    @contextmanager
    def at_work(self, parts: bool = True) -> Iterator[None]:
        """Within the block this thread computes alone, or with `parts` off with all of torch's threads again.

        Between the parts there is little to do. Threads that wait for one another over it would cost more than they
        save, and on a busy machine most of the time.
        """
        before = torch.get_num_threads()
        torch.set_num_threads(1 if parts else self.threads)
        try:
            yield
        finally:
            torch.set_num_threads(before)

    def close(self) -> None:
        """Ends the threads."""
        self._pool.shutdown(cancel_futures=True)


def backward(
    model: nn.Module, batches: Sequence[Batch], weights: Mapping[str, float], workers: Workers, step: int
) -> Backward:
    """What `update.backward` does, on a CPU, with a worker to each batch.

    Every batch has gradients of its own, which are added in the order of the batches.
    """
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]

    def forward(part: int) -> Losses:
        with drawing_from(workers.generator(step, part)):
            losses = losses_of(model, batches[part])
        objective(losses, weights)  # names a loss that is not there
        return losses

    def gradients(losses: Losses, counts: Losses | None = None) -> Gradients:
        """Of the sums, or with the counts of all batches of the means."""
        given = {name: (losses[name][0], counts[name][1] if counts else 1) for name in weights}
        return torch.autograd.grad(objective(given, weights), parameters, allow_unused=True)

    def both(part: int) -> tuple[Losses, Gradients]:
        losses = forward(part)
        return detached(losses), gradients(losses)

    if len(weights) == 1:  # one divisor: nobody has to wait for the counts
        done = workers.run([partial(both, part) for part in range(len(batches))])
        all_losses, found = [losses for losses, _ in done], [parts for _, parts in done]
        losses = added(all_losses)
        (divisor,) = (losses[name][1] for name in weights)
    else:
        kept = workers.run([partial(forward, part) for part in range(len(batches))])
        all_losses = [detached(losses) for losses in kept]
        losses, divisor = added(all_losses), 1
        found = workers.run([partial(gradients, one, losses) for one in kept])
    _put(parameters, found, divisor)
    each = [objective(one, weights) for one in all_losses]
    return Backward(losses, objective(losses, weights), each)


def _put(parameters: Sequence[nn.Parameter], found: Sequence[Gradients], divisor: Tensor | int) -> None:
    """The sum of all gradients, divided, into the parameters.

    Every parameter gets a tensor of its own: where two are added up before they are used, as an LSTM's biases are,
    autograd hands out one tensor as the gradient of both.
    """
    divisor = max(int(divisor), 1)
    for parameter, *parts in zip(parameters, *found, strict=True):
        given = [part for part in parts if part is not None]
        if len(given) == 1:
            parameter.grad = given[0] / divisor
        elif given:
            total = given[0] + given[1]
            for part in given[2:]:
                total += part
            parameter.grad = total.div_(divisor) if divisor != 1 else total
