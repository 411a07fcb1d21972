"""Where CTranslate2's search differs from ours: what it must therefore not be asked for. No torch here.

CTranslate2 leaves out what must not be written before the softmax, ours after it. With one hypothesis the most probable
token is the same, and the scores are computed anew. A beam compares hypotheses of which each has lost another
probability, and comes to other ends.
"""

from __future__ import annotations

from collections.abc import Sequence

from sightline.hypothesis import Request, SearchOptions


def refusal(options: SearchOptions, requests: Sequence[Request] = ()) -> str | None:
    """What CTranslate2 cannot do with the results of our search, as in "it cannot …"; None when it can do all of it."""
    if options.sampled:
        return "draw the samples that a seed and a sentence stand for"
    if options.repetition_penalty != 1:
        return "apply a repetition_penalty to probabilities"
    if options.coverage_penalty:
        return "rank by a coverage_penalty"
    if any(request.constraints for request in requests):
        return "keep to a glossary, or to other constraints"
    if options.width == 1:
        return None
    if options.groups > 1:
        return f"divide a beam into groups={options.groups}"
    if options.length_penalty == "gnmt":
        return "rank by length_penalty=gnmt"
    steering = {
        "min_length": options.min_length,
        "no_repeat": options.no_repeat,
        "forbidden words": options.forbidden,
        "a prefix": any(request.prefix for request in requests),
    }
    named = next((name for name, wanted in steering.items() if wanted), None)
    return None if named is None else f"keep to {named} with a beam of more than 1 (with beam 1 it can)"


def steered(options: SearchOptions, requests: Sequence[Request] = ()) -> bool:
    """Whether something steers the choice of tokens, so that CTranslate2's own scores are not the model's."""
    prefixes = any(request.prefix for request in requests)
    return bool(options.min_length or options.no_repeat or options.forbidden or prefixes)
