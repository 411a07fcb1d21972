"""A model folder made of the checkpoints of a run, after it has ended or while it goes on."""

from __future__ import annotations

from pathlib import Path

from sightline import expectations
from sightline.errors import SightlineError
from sightline.files import make_folder
from sightline.folder import (
    Card,
    check_free,
    load_tokenizers,
    read_config,
    save_card,
    save_config,
    save_model,
    save_tokenizers,
)
from sightline.models import build_model
from sightline.training.averaging import average_weights, chosen_checkpoints
from sightline.training.checkpoint_names import CHECKPOINTS, step_of
from sightline.training.checkpoints import fill_weights

ALL = 10**9


def average_run(run: Path, output: Path, last: int | None = None, best: int | None = None) -> list[int]:
    """Writes the mean of the `last` or of the `best` checkpoints of `run` to the folder `output`, all if neither.

    Returns the updates after which they were written. Nothing is validated: `sightline evaluate` tells how good it is.
    """
    if last is not None and best is not None:
        raise SightlineError("the last or the best checkpoints: give one number, not two")
    config = read_config(run)
    if config.training.agreement:
        raise SightlineError(
            f"{run}: a run of two models cannot be averaged afterwards: train with training.average=last"
        )
    kind, key = ("last", "training.keep_last") if best is None else ("best", "training.keep_best")
    wanted = best or last or ALL
    paths = chosen_checkpoints(run / CHECKPOINTS, kind, wanted, config.training.metric == "bleu")
    if len(paths) < 2 or (wanted > len(paths) and wanted != ALL):
        found = f"{len(paths)} {'checkpoint' if len(paths) == 1 else 'checkpoints'}"
        asked = "2 or more" if wanted == ALL else str(wanted)
        raise SightlineError(
            f"{run}: has {found} to choose the {kind} from, not {asked}: go on with a larger {key}, or ask for fewer"
        )
    check_free(output)
    tokenizers = load_tokenizers(run, config)
    model = build_model(config.model, tokenizers.sizes)
    fill_weights(model, average_weights(paths), paths[-1])
    make_folder(output)
    save_tokenizers(output, tokenizers)
    expectations.save(output, expectations.load(run))
    save_config(output, config)
    save_model(output, model)
    steps = [step_of(path) for path in paths]
    told = f"the mean of checkpoints, updates {', '.join(f'{step:,}' for step in steps)}"
    save_card(
        output,
        config,
        model,
        tokenizers,
        Card([f"that of the run {run.resolve().name}"], {"none": "not validated yet"}, {"weights": told}),
    )
    return steps
