"""Mistakes that a run would only meet when its turn comes, looked for before the first one is trained."""

from __future__ import annotations

from pathlib import Path

from sightline import sizes
from sightline.comparison.measuring import Yardstick
from sightline.config import RunConfig
from sightline.engines.choice import Engines
from sightline.errors import SightlineError
from sightline.folder import ModelFiles
from sightline.guidance import check_guidance
from sightline.interop.ctranslate2 import unsupported
from sightline.limits import most_tokens
from sightline.models import build_model
from sightline.performance import threads
from sightline.preparing import prepare
from sightline.training.material import check_training
from sightline.translator import Translator


def check_run(name: str, config: RunConfig, yardstick: Yardstick, show: bool = False) -> None:
    """Prepares the text of a run, which it then finds in the cache, builds its model once, and looks at the test part.

    Refuses parts that do not go together or that the engine cannot run, text of which nothing is left, and test
    sentences that are too long.
    """
    try:
        check_training(config)
        check_guidance(config)
        longest = min(config.data.max_length, *most_tokens(config.model))
        prepared = prepare(config, longest, show=show)
        filled = sizes.fill(config, sizes.Corpus(len(prepared.train), prepared.tokens_an_epoch, threads()))
        build_model(filled.model, prepared.tokenizers.sizes)
        reason = unsupported(filled.model) if yardstick.engine == "ctranslate2" else None
        if reason is not None:
            raise SightlineError(f"the ctranslate2 engine cannot run {reason}; the pytorch engine can")
        files = ModelFiles(Path(name), filled, prepared.tokenizers)
        translator = Translator(files, Engines(files, yardstick.engine))
        translator.check_pairs(yardstick.pairs, *yardstick.names)
        translator.check_pairs(yardstick.aligned, "the source of the links", "their target")
    except SightlineError as error:
        raise SightlineError(f"{name}: {error}") from None
