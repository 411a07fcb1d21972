"""How long a text may be, by the parts of a model."""

from __future__ import annotations

from sightline.architecture import KNOW_ORDER, ModelConfig
from sightline.score_choices import SCORES

UNLIMITED = 10**9


def most_tokens(config: ModelConfig) -> tuple[int, int]:
    """The longest source and target that the parts can take, their end symbols not counted."""
    source, target = [UNLIMITED], [UNLIMITED]
    if config.positions == "learned":
        source += [config.max_positions] if config.encoder.kind not in KNOW_ORDER else []
        target += [config.max_positions] if config.has_transformer_decoder else []
    if not config.has_source:
        source = [UNLIMITED]
    if config.recipe == "seq2seq" and config.decoder.context == "concatenation":
        source.append(config.decoder.max_source)
    if config.recipe in ("bahdanau", "luong") and "max_source" in SCORES[config.attention.score].given:
        source.append(config.attention.max_source)
    return min(source) - 1, min(target) - 1
