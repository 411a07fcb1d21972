"""The PyTorch engine: runs every recipe, and is the one that can look inside."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy

import numpy as np
import torch
from numpy.typing import NDArray

from sightline.align import force, log_probs, source_tokens
from sightline.batch import Batch
from sightline.config import AlignmentConfig
from sightline.data import ordered_batches
from sightline.decoders import TransformerDecoder
from sightline.engines.base import Ids, Task, Watch
from sightline.errors import SightlineError
from sightline.folder import ModelFiles, load_model
from sightline.forced import Forced
from sightline.hypothesis import Hypothesis, Streamed
from sightline.performance import in_threads, threads
from sightline.search import search, stream
from sightline.writer import Writer

# The beam that `search.batch_tokens` is meant for: wider ones get smaller batches.
BUDGETED_BEAM = 5
# The most log-probabilities of one step on a CPU: 16 MiB. Larger tensors leave the cache, and with them the allocator
# asks the system for new pages at every step.
LARGEST_STEP = 2**22
# The most batches at work at once. Between its operations a search runs Python, which has one thread at a time.
MOST_AT_ONCE = 4
# The most numbers that are worked out beforehand, to be looked up: 64 MiB, in a tenth of a second or so.
LARGEST_TABLE = 2**24


class PyTorchEngine:
    """A model folder's weights as a module on a device."""

    name = "pytorch"

    def __init__(self, files: ModelFiles, device: str | None = None, compute: str | None = None) -> None:
        """`device` is torch's name for one (default: a GPU if there is one).

        `compute` is float32 or int8: then the output layer, the largest product of a step, multiplies in 8 bits.
        """
        if device is None:
            device = "cuda" if torch.cuda.is_available() else "cpu"
        try:
            self.device = torch.device(device)
        except RuntimeError:
            raise SightlineError(f"unknown device '{device}': try cpu or cuda") from None
        available = threads()
        self.threads = available if self.device.type == "cpu" else 1  # of batches side by side
        self.folder = load_model(files, self.device)
        self.model = self.folder.model
        self.model.tabulate(LARGEST_TABLE)
        if compute == "int8":
            self.model.output.quantise()

    def refuses(self, task: Task) -> str | None:
        """Nothing."""
        return None

    def search(self, sources: Sequence[Ids], task: Task, watch: Watch = lambda count: None) -> list[list[Hypothesis]]:
        """See `Engine`. Weights are left to a forced pass, which sees all layers and heads at once."""
        options = task.options
        lengths = np.array([len(source) for source in sources], dtype=np.int64)
        model = self._reporting(task)

        def found(indices: list[int]) -> list[list[Hypothesis]]:
            batch = self._batch([sources[index] for index in indices])
            requests = [task.requests[index] for index in indices] if task.requests else None
            with torch.inference_mode():  # of this thread alone
                return search(model, batch, options, requests)

        batches = self._batches(lengths, options.width)
        done: dict[int, list[Hypothesis]] = {}
        for indices, results in zip(batches, in_threads(found, batches, min(self.threads, MOST_AT_ONCE)), strict=True):
            done.update(zip(indices, results, strict=True))
            watch(len(indices))
        return [done[index] for index in range(len(sources))]

    def _batch(self, sources: Sequence[Ids]) -> Batch:
        """Ids with their end symbols as a batch."""
        return Batch(source_tokens(self.folder, sources)).to(self.device)

    def _batches(self, lengths: NDArray[np.int64], width: int) -> list[list[int]]:
        """Sources of these lengths in batches, for so many hypotheses each; they depend on nothing else.

        The longest come first, so that no thread is left with much to do when the others have ended.
        """
        # A wide beam fills the memory as more sentences would.
        budget = max(1, self.folder.config.search.batch_tokens * BUDGETED_BEAM // max(width, BUDGETED_BEAM))
        parts = ordered_batches(lengths, budget)
        if self.device.type == "cpu":
            most = max(1, LARGEST_STEP // (width * self.folder.tokenizers.target.size))
            parts = [piece for part in parts for piece in np.array_split(part, -(-len(part) // most))]
        return [part.tolist() for part in reversed(parts)]

    def live(self, source: Ids, task: Task) -> Iterator[Streamed]:
        """The best translation of one source (ids with their end symbol), part by part as it becomes certain."""
        batch = self._batch([source])
        request = task.requests[0] if task.requests else None
        parts = stream(self._reporting(task), batch, task.options, request)
        while True:
            # A caller may do other things between two parts, which must not run in inference mode.
            with torch.inference_mode():
                part = next(parts, None)
            if part is None:
                return
            yield part

    def token_log_probs(self, pairs: Sequence[tuple[Ids, Ids]]) -> list[list[float]]:
        """See `Engine`."""
        return log_probs(self.folder, pairs, self.device)

    def force(self, pairs: Sequence[tuple[str, str | list[int]]]) -> list[Forced]:
        """What the model sees of pairs whose targets are given: see `sightline.align.force`."""
        return force(self.folder, pairs, self.device)

    def _reporting(self, task: Task) -> Writer:
        """The model whose steps report what the task needs: only the coverage penalty needs a Transformer's weights.

        Another search may be under way, so that is a model of its own, made of the same parts.
        """
        decoder = self.model.decoder
        if not isinstance(decoder, TransformerDecoder) or not task.options.coverage_penalty:
            return self.model
        model, reporting = copy(self.model), copy(decoder)
        reporting.alignment = self._head(decoder, task.alignment)
        model._modules = {**self.model._modules, "decoder": reporting}
        return model

    def _head(self, decoder: TransformerDecoder, alignment: AlignmentConfig) -> tuple[int | None, int | None]:
        """The layer and head that the alignment is read from, as the decoder wants them."""
        layer, head, heads = alignment.layer, alignment.head, decoder.layers[0].self_attention.heads
        if (head is not None and (layer is None or not 0 <= head < heads)) or (
            layer is not None and not 0 <= layer < len(decoder.layers)
        ):
            raise SightlineError(
                f"{self.folder.path}: alignment.layer={layer} and alignment.head={head} name no head of this model: "
                f"it has {len(decoder.layers)} layers of {heads} heads, counted from 0"
            )
        return layer, head
