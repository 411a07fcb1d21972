"""Writing while the source is still coming in: online monotonic attention over an encoder that reads one way.

Shapes: S source tokens so far, one sentence and one hypothesis.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import torch
from torch.nn import functional as F

from sightline.attention.hard import OnlineMonotonicAttention
from sightline.attention.soft import MEMORY
from sightline.batch import Batch, pad
from sightline.copying import CopyOutput
from sightline.encoders import RecurrentEncoder
from sightline.errors import SightlineError
from sightline.folder import ModelFolder
from sightline.state import State
from sightline.writer import Writer

STOOD = f"{MEMORY}stood"


class OnlineWriter:
    """Takes source tokens as they come and gives, greedily, the target tokens that they allow.

    A token is written as soon as the attention has stopped at a position for it, and is never taken back: what comes
    out in the end is what greedy search gives for the whole source. `most` is the largest number of target tokens.
    """

    def __init__(self, model: Writer, most: int = 1000) -> None:
        _check(model)
        self.model, self.most = model.eval(), most
        self.device = next(model.parameters()).device
        self.source: list[int] = []
        self.written: list[int] = []
        self.ended = False  # the target, by its end symbol or its length
        self._state: State | None = None
        self._last = model.bos

    def push(self, tokens: Sequence[int]) -> list[int]:
        """More source tokens to more target tokens, none where the model waits for what comes next."""
        self.source += tokens
        return self._write(complete=False)

    def finish(self) -> list[int]:
        """The source has ended: the rest of the target."""
        self.source.append(self.model.eos)
        return self._write(complete=True)

    @torch.no_grad()
    def _write(self, complete: bool) -> list[int]:
        found: list[int] = []
        if not self.source:
            return found
        state = self._seen()
        while not self.ended:
            step = self.model.step(torch.tensor([self._last], device=self.device), state)
            assert step.weights is not None
            if not complete and not bool(step.weights.any()):
                break  # it has come to the end of what there is, and would go on
            self._state = state = step.state
            log_probs = step.log_probs[0].clone()
            log_probs[[self.model.pad, self.model.bos]] = -torch.inf
            self._last = int(log_probs.argmax())
            if self._last != self.model.eos:
                found.append(self._last)
            self.ended = self._last == self.model.eos or len(self.written) + len(found) >= self.most
        self.written += found
        return found

    def _seen(self) -> State:
        """The state with all of the source so far: states of an encoder that reads one way do not change any more."""
        begun = self.model.start(Batch((pad([self.source], self.model.pad),)).to(self.device))
        if self._state is None:
            return begun
        stood = self._state.own[STOOD]
        longer = F.pad(stood, (0, len(self.source) - stood.size(-1)))
        return replace(self._state, shared=begun.shared, own={**self._state.own, STOOD: longer})


def _check(model: Writer) -> None:
    """Refuses a model that has to see its whole source before it can write."""
    attention, encoder = getattr(model.decoder, "attention", None), getattr(model, "encoder", None)
    if not isinstance(attention, OnlineMonotonicAttention):
        raise SightlineError("only a model with model.attention.choice = online_monotonic can write while it reads")
    if not isinstance(encoder, RecurrentEncoder) or encoder.directions != 1 or encoder.backwards:
        raise SightlineError(
            "this model's encoder reads ahead: to write while it reads, train with a recurrent model.encoder.kind, "
            "model.encoder.bidirectional = false and model.encoder.reverse = false"
        )
    if isinstance(model.output, CopyOutput):
        raise SightlineError(
            "this model chooses what to copy from the whole source: to write while it reads, train with "
            "model.copying.kind = none"
        )
    if len(attention.clues) or attention.score.looks_ahead:
        raise SightlineError(
            "this model's score knows what lies ahead, or how long the source is: to write while it reads, train "
            "without biases and coverage, and with another score than convolution"
        )


def write_online(folder: ModelFolder, words: Iterable[str], most: int = 1000) -> Iterator[str]:
    """Text as it is written while `words` come in, piece by piece."""
    writer, tokenizers = OnlineWriter(folder.model, most), folder.tokenizers
    told = ""

    def news() -> Iterator[str]:
        nonlocal told
        text = tokenizers.target.decode(writer.written)
        # A character that is not whole yet looks different when it is.
        if len(text) > len(told) and text.startswith(told):
            yield text[len(told) :]
            told = text

    for word in words:
        writer.push(tokenizers.source.encode(word))
        yield from news()
    writer.finish()
    yield from news()
