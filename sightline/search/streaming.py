"""Translations as they are made, for one sentence: tokens that are certain, as soon as they are.

Shapes: K hypotheses, t tokens written so far.

Greedy search and sampling are certain of every token they choose. A beam is certain of what all agree on that may still
win: the live hypotheses that can still beat the best finished one, and that one. Whatever the search gives in the end
descends from these, so certain tokens never change, and all of them together are the result of `search`, to the token.
"""

from __future__ import annotations

from collections.abc import Iterator

from sightline.batch import Batch
from sightline.errors import SightlineError
from sightline.hypothesis import Request, SearchOptions, Streamed
from sightline.search.beam import Beam
from sightline.search.constrained import constrained_beam, widened, with_honoured
from sightline.search.greedy import Choose, Walk, most_probable
from sightline.search.protocol import StepModel
from sightline.search.sampling import Sampler


def stream(
    model: StepModel, batch: Batch, options: SearchOptions | None = None, request: Request | None = None
) -> Iterator[Streamed]:
    """What `search` finds for the one sentence of `batch`, its best hypothesis only, as it becomes certain."""
    options, request = options or SearchOptions(), request or Request()
    if options.sampled:
        return stream_sample(model, batch, options, request)
    if options.width == 1 and not request.constraints:
        return stream_greedy(model, batch, options, request)
    return stream_beam(model, batch, options, request)


def stream_greedy(
    model: StepModel,
    batch: Batch,
    options: SearchOptions | None = None,
    request: Request | None = None,
    choose: Choose = most_probable,
) -> Iterator[Streamed]:
    """Token by token, each taken by `choose`: by default the most probable, as in greedy search."""
    _check_single(batch)
    walk = Walk(model, batch, options or SearchOptions(), [request or Request()], choose)
    for tokens in walk.steps():
        if len(tokens):
            yield Streamed(tokens.tolist())
    yield Streamed([], walk.results()[0])


def stream_sample(
    model: StepModel, batch: Batch, options: SearchOptions, request: Request | None = None
) -> Iterator[Streamed]:
    """The one sample that is drawn, token by token."""
    _check_single(batch)
    if options.strategy != "sample" or options.samples > 1:
        raise SightlineError("a stream has one translation: ask for one sample, or for greedy or beam search")
    sampler = Sampler(model, batch, options, [request or Request()])
    for tokens in sampler.steps():
        if len(tokens):
            yield Streamed(tokens.tolist())
    yield Streamed([], sampler.results()[0][0])


def stream_beam(
    model: StepModel, batch: Batch, options: SearchOptions | None = None, request: Request | None = None
) -> Iterator[Streamed]:
    """The best hypothesis of beam search (with constraints, of the constrained one), as its beginning gets certain."""
    _check_single(batch)
    options, request = options or SearchOptions(), request or Request()
    if request.constraints:
        beam = constrained_beam(model, batch, widened(options, request, model.bos), [request], remember=True)
    else:
        beam = Beam(model, batch, options, [request], remember=True)
    given = 0
    for _ in beam.steps():
        certain = _agreed(beam) if len(beam.sentences) else []
        if len(certain) > given:
            yield Streamed(certain[given:])
            given = len(certain)
    best = beam.results()[0][0]
    best = with_honoured(best, request, model.bos) if request.constraints else best
    yield Streamed(best.tokens[given:], best)


def _agreed(beam: Beam) -> list[int]:
    """The tokens that all hypotheses of the only sentence begin with, of those that may still be the best."""
    assert beam.steering.written is not None
    totals = beam.totals[0]  # (K,)
    finished = [ending for ending in beam.endings[0] if ending.end_log_prob is not None]
    leading = max(finished, key=lambda ending: ending.score, default=None)
    # The best that a live hypothesis can still reach, against the score to beat.
    hopeful = totals > -float("inf") if leading is None else totals / beam.ceilings[0] > leading.score
    rows = beam.steering.written.tokens[hopeful].tolist()  # K of t tokens, or fewer
    if leading is not None:
        rows.append(beam.trace.hypotheses([leading], beam.mask)[0].tokens)
    agreed = []
    for column in zip(*rows, strict=False):
        if len(set(column)) > 1:
            break
        agreed.append(column[0])
    return agreed


def _check_single(batch: Batch) -> None:
    if batch.size != 1:
        raise SightlineError(f"a stream is of one sentence, and this batch has {batch.size}: stream them one by one")
