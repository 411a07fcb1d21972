"""What a run has before it has a model: settings that got a first look, and its text, prepared. All without torch.

So the command line can be here while torch is still being imported, which takes seconds: learning a tokenizer needs a
processor, but not Python.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from threading import Thread

from sightline import expectations, metrics
from sightline.aligners import align_text
from sightline.config import RunConfig
from sightline.errors import SightlineError
from sightline.files import make_folder, write_text
from sightline.folder import Tokenizers, check_free, load_tokenizers, save_tokenizers
from sightline.guidance import check_guidance
from sightline.heard import check_heard
from sightline.launch import launched
from sightline.limits import most_tokens
from sightline.preparing import Prepared, prepare
from sightline.splitting import check_splitting
from sightline.training.tensorboard import check_tensorboard

Say = Callable[[str], None]
DROPPED = "dropped.json"
# The sentences that are watched over training time are chosen from so many of the first validation pairs.
WATCHED_AMONG = 500


def begin(
    config: RunConfig, output: Path, show: bool, say: Say, known: Tokenizers | None = None
) -> tuple[RunConfig, Prepared]:
    """The data of a new run in `output`, a folder that must be free; torch is imported at the same time.

    With the configuration, in which links that were made on the way have their file; `known` are tokenizers to take.
    """
    # Not a daemon: Python must not end in the middle of an import, so after a mistake the process waits for it.
    Thread(target=_import_quietly, args=["torch"]).start()
    check_free(output)
    check_training(config)
    check_guidance(config)
    if config.data.align_with is not None:
        config = with_links(config, align_text(config.data, output, say))
    return config, gather(config, output, False, show, say, known)


def with_links(config: RunConfig, links: Path) -> RunConfig:
    """The configuration with a file of links in the place of its aligner."""
    data = config.data.model_copy(update={"alignments": links, "align_with": None})
    return config.model_copy(update={"data": data})


def _import_quietly(module: str) -> None:
    with suppress(Exception):  # whoever needs the module will be told
        import_module(module)


def gather(
    config: RunConfig, output: Path, begun: bool, show: bool, say: Say, known: Tokenizers | None = None
) -> Prepared:
    """The data of the run in `output`; `say` is told what happens, and `show` allows progress bars.

    Unless the run has `begun`, tokenizers, expectations and the account of what was dropped go there. The tokenizers
    are those of the run, else those `known`, else new ones.
    """
    longest = min(config.data.max_length, *most_tokens(config.model))
    tokenizers = load_tokenizers(output, config) if begun else known
    texts = max(config.training.validate_bleu, WATCHED_AMONG)
    prepared = prepare(config, longest, tokenizers, texts, say, show)
    if not begun:
        make_folder(output)
        save_tokenizers(output, prepared.tokenizers)
        expectations.save(output, expectations.learn(prepared.texts))
        dropped = {**prepared.account.as_dict(), "validation": prepared.validation.as_dict()}
        account = json.dumps(dropped, ensure_ascii=False, indent=1)
        write_text(output / DROPPED, account + "\n")
    return prepared


def check_training(config: RunConfig) -> None:
    """What a run would stumble over later, told before anything is read."""
    training = config.training
    check_heard(config.model)
    check_splitting(config)
    if training.compile and (training.workers or 1) > 1:
        # Compiled dropout knows one stream of random numbers, not one for each part.
        raise SightlineError("training.compile takes a batch in one part: set training.workers to 1 or leave it out")
    if training.compile and training.parallel == "fsdp" and launched() is not None:
        # The hooks that put a layer together are compiled with it, anew for every layer and shape: it never gets going.
        raise SightlineError(
            "training.compile does not go with training.parallel = fsdp, which parts layers: use ddp, or leave it out"
        )
    metrics.check_tokenizer(training.bleu_tokenize)
    if training.tensorboard:
        check_tensorboard()
    if training.metric == "bleu" and not training.validate_bleu:
        raise SightlineError("training.metric = bleu needs training.validate_bleu: how many sentences to translate")
