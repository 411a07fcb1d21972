"""The PyTorch engine: runs every recipe, and is the one that can look inside."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from sightline.align import force, log_probs
from sightline.batch import Batch, pad
from sightline.config import AlignmentConfig
from sightline.data import ordered_batches
from sightline.decoders import TransformerDecoder
from sightline.engines.base import Ids, Task, Watch
from sightline.errors import SightlineError
from sightline.folder import ModelFiles, load_model
from sightline.forced import Forced
from sightline.hypothesis import Hypothesis, Streamed
from sightline.performance import threads
from sightline.search import search, stream
from sightline.text import PAD

# The beam that `search.batch_tokens` is meant for: wider ones get smaller batches.
BUDGETED_BEAM = 5


class PyTorchEngine:
    """A model folder's weights as a module on a device."""

    name = "pytorch"

    def __init__(self, files: ModelFiles, device: str | None = None) -> None:
        """`device` is torch's name for one (default: a GPU if there is one)."""
        if device is None:
            device = "cuda" if torch.cuda.is_available() else "cpu"
        try:
            self.device = torch.device(device)
        except RuntimeError:
            raise SightlineError(f"unknown device '{device}': try cpu or cuda") from None
        threads()
        self.folder = load_model(files, self.device)
        self.model = self.folder.model

    def refuses(self, task: Task) -> str | None:
        """Nothing."""
        return None

    def search(self, sources: Sequence[Ids], task: Task, watch: Watch = lambda count: None) -> list[list[Hypothesis]]:
        """See `Engine`. Weights are left to a forced pass, which sees all layers and heads at once."""
        options = task.options
        lengths = np.array([len(source) for source in sources], dtype=np.int64)
        # A wide beam fills the memory as more sentences would.
        budget = max(1, self.folder.config.search.batch_tokens * BUDGETED_BEAM // max(options.width, BUDGETED_BEAM))
        done: dict[int, list[Hypothesis]] = {}
        self._report_weights(task)
        for part in ordered_batches(lengths, budget):
            indices = [int(index) for index in part]
            batch = Batch((pad([list(sources[index]) for index in indices], PAD),)).to(self.device)
            with torch.inference_mode():
                requests = [task.requests[index] for index in indices] if task.requests else None
                done.update(zip(indices, search(self.model, batch, options, requests), strict=True))
            watch(len(indices))
        return [done[index] for index in range(len(sources))]

    def live(self, source: Ids, task: Task) -> Iterator[Streamed]:
        """The best translation of one source (ids with their end symbol), part by part as it becomes certain."""
        self._report_weights(task)
        batch = Batch((pad([list(source)], PAD),)).to(self.device)
        request = task.requests[0] if task.requests else None
        parts = stream(self.model, batch, task.options, request)
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

    def _report_weights(self, task: Task) -> None:
        """Only the coverage penalty needs a Transformer's weights at every step."""
        decoder = self.model.decoder
        if isinstance(decoder, TransformerDecoder):
            decoder.alignment = self._head(decoder, task.alignment) if task.options.coverage_penalty else None

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
