"""Writing while the source is still coming in: online monotonic attention over an encoder that reads one way.

Shapes: S source tokens so far, one sentence and one hypothesis.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.nn import functional as F

from sightline.attention.hard import OnlineMonotonicAttention
from sightline.attention.soft import MEMORY
from sightline.batch import Batch, Memory, Tokens
from sightline.copying import CopyOutput
from sightline.encoders import RecurrentEncoder
from sightline.errors import SightlineError
from sightline.folder import ModelFolder
from sightline.hypothesis import SearchOptions
from sightline.plan import search_options
from sightline.state import State
from sightline.writer import Writer

STOOD = f"{MEMORY}stood"


class OnlineWriter:
    """Takes source tokens as they come and gives, greedily, the target tokens that they allow.

    A token is written as soon as the attention has stopped at a position for it, and is never taken back: what comes
    out in the end is what greedy search gives for the whole source. Of the `options` it knows those of the length.
    """

    def __init__(self, model: Writer, options: SearchOptions | None = None) -> None:
        self.model, self.options = check_online(model).eval(), options or SearchOptions()
        self.device = next(model.parameters()).device
        self.source: list[int] = []
        self.written: list[int] = []
        self.ended = False  # the target, by its end symbol, or since the source has ended
        self._state: State | None = None
        self._memory: Memory | None = None
        self._encoder: Any = None  # what it goes on from
        self._last = model.bos

    def push(self, tokens: Sequence[int]) -> list[int]:
        """More source tokens to more target tokens, none where the model waits for what comes next."""
        self.source += tokens
        return self._write(complete=False)

    def finish(self) -> list[int]:
        """The source has ended: the rest of the target."""
        return self._write(complete=True)

    @torch.no_grad()
    def _write(self, complete: bool) -> list[int]:
        found: list[int] = []
        state = self._seen([*self.source, self.model.eos] if complete else self.source)
        if state is None:
            return found
        # What is still to come allows more: whether this is the end is only known when the source has ended.
        most = self.options.limit(len(self.source) + 1)
        while not self.ended and len(self.written) + len(found) < most:
            step = self.model.step(torch.tensor([self._last], device=self.device), state)
            assert step.weights is not None
            if not complete and not bool(step.weights.any()):
                break  # it has come to the end of what there is, and would go on
            self._state = state = step.state
            log_probs = step.log_probs[0].clone()
            log_probs[[self.model.pad, self.model.bos]] = -torch.inf
            if len(self.written) + len(found) < self.options.min_length:
                log_probs[self.model.eos] = -torch.inf
            self._last = int(log_probs.argmax())
            if self._last != self.model.eos:
                found.append(self._last)
            self.ended = self._last == self.model.eos
        self.written += found
        self.ended = self.ended or complete
        return found

    def _seen(self, source: list[int]) -> State | None:
        """The state with all of the source so far: states of an encoder that reads one way do not change any more."""
        ids = torch.tensor([source], device=self.device, dtype=torch.long)
        read = 0 if self._memory is None else self._memory.states.size(1)
        if new := len(source) - read:
            encoder, embedding = self.model.encoder, self.model.source_embedding
            part, self._encoder = encoder.push(embedding(self.model.output.known_source(ids[:, -new:])), self._encoder)
            before = () if self._memory is None else (self._memory.states,)
            states = torch.cat([*before, part.states], 1)
            mask = torch.ones_like(states[..., 0], dtype=torch.bool)
            self._memory = Memory(states, mask, part.final, source=Tokens(ids, mask))
        if self._memory is None:
            return None
        begun = self.model.begin(self._memory, Batch((Tokens(ids, self._memory.mask),)))
        if self._state is None:
            return begun
        stood = self._state.own[STOOD]
        longer = F.pad(stood, (0, len(source) - stood.size(-1)))
        return replace(self._state, shared=begun.shared, own={**self._state.own, STOOD: longer})


def check_online(model: Writer) -> Any:
    """The model, if it need not see its whole source before it can write."""
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
    return model


def write_online(
    folder: ModelFolder, words: Iterable[str], options: SearchOptions | None = None, name: str = "the source"
) -> Iterator[str]:
    """Text as it is written while `words` come in, piece by piece; without words, none.

    Without `options` its length is limited as the model's configuration says. `name` is what errors call the source.
    """
    source, target, most = folder.tokenizers.source, folder.tokenizers.target, folder.config.search.max_source
    writer = OnlineWriter(folder.model, options or search_options(folder.config, {}))
    shown = before = ""

    def news(complete: bool = False) -> Iterator[str]:
        nonlocal shown
        whole = target.decode(writer.written)
        # Bytes of a character that is not yet complete stand as a replacement sign.
        certain = whole if complete else whole.rstrip("\ufffd")
        if len(certain) > len(shown):
            yield certain[len(shown) :]
            shown = certain

    for word in (word for some in words for word in some.split()):
        # Between words there may be a token too.
        tokens = source.encode(f"{before} {word}")[len(source.encode(before)) :]
        if len(writer.source) + len(tokens) > most:
            raise SightlineError(f"{name}: more than the {most:,} tokens that this model takes: end the line earlier")
        before = word if tokens else before
        writer.push(tokens)
        yield from news()
    if writer.source:
        writer.finish()
        yield from news(complete=True)
