"""The configuration of a run, put together from a file, a run to be resumed, and the command line."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from pathlib import Path
from typing import Any

from sightline.config import RunConfig, assignment, build_config, merge, read_yaml, without_nulls
from sightline.errors import SightlineError

HERE = "command line"  # where a mistake is, as errors say


def given_only(values: dict[str, Any]) -> dict[str, Any]:
    """Without the options that were left out."""
    return {name: value for name, value in values.items() if value is not None}


def data_files(
    part: str, source: Sequence[Path] | None, target: Path | None, pairs: Path | None, text: Path | None = None
) -> dict[str, Any]:
    """Keys of the data section; one kind of file on the command line takes the place of the others in a config."""
    sources = [str(path) for path in source or ()]
    values: dict[str, Any] = given_only({"target": target, "pairs": pairs, "text": text})
    values = {name: str(path) for name, path in values.items()}
    if sources:
        values["source"] = sources if len(sources) > 1 else sources[0]
    names = {f"{part}{name}": value for name, value in values.items()}
    for kind in (("source", "target"), ("pairs",), ("text",)):
        if values and not any(name in values for name in kind):
            names |= {f"{part}{name}": None for name in kind}
    return names


def limits(
    output: Path, resume: bool, max_steps: int | None, more_steps: int | None, max_minutes: float | None
) -> dict[str, Any]:
    """Keys of the training section that end a run; `more_steps` counts from where the run in `output` stands.

    Steps more are what was asked for: a limit of time that the run had is lifted, unless another is given.
    """
    if more_steps is None:
        return given_only({"max_steps": max_steps, "max_minutes": max_minutes})
    if not resume:
        raise SightlineError("--more-steps adds to a run that was begun: give --resume too, or else --max-steps")
    if max_steps is not None:
        raise SightlineError("--max-steps and --more-steps both say when to stop: give one of them")
    from sightline.training.resume import steps_done

    return {"max_steps": steps_done(output) + more_steps, "max_minutes": max_minutes}


def training_files(
    sources: list[Path], targets: list[Path], pairs: list[Path], texts: Sequence[Path] = ()
) -> dict[str, Any]:
    """The same for the training text, of which there may be several corpora; several sources of one target are one."""
    if max(len(targets), len(pairs), len(texts)) <= 1 and (len(sources) <= 1 or targets):
        names = data_files("", sources, *(one[0] if one else None for one in (targets, pairs, texts)))
        return {**names, "corpora": []} if names else {}
    if texts and (sources or targets or pairs):
        raise SightlineError("give either --text, for a language model, or pairs, not both")
    if pairs and (sources or targets):
        raise SightlineError(
            "give either --source and --target or --pairs, not both; a config's data.corpora may mix them"
        )
    if len(sources) != len(targets):
        raise SightlineError(
            f"{len(sources)} --source and {len(targets)} --target: give as many of each, or several sources of one "
            "target; several corpora of several sources go into a config's data.corpora"
        )
    corpora = [{"pairs": str(path)} for path in pairs] + [{"text": str(path)} for path in texts]
    corpora += [{"source": str(one), "target": str(other)} for one, other in zip(sources, targets, strict=True)]
    return {"source": None, "target": None, "pairs": None, "text": None, "corpora": corpora}


def assembled(
    file: Path | None, recipe: str | None, given: dict[str, Any], assignments: list[str], resumed: Path | None
) -> RunConfig:
    """The configuration: that of the run to be resumed, the file's on top, then the command line's."""
    values: dict[str, Any] = {}
    if file is not None:
        values = read_yaml(file)
        values.pop("sightline", None)  # a model folder's own config.yaml is as good as any other
        build_config(values, recipe, str(file))  # so that a mistake of the file's is told as such
    if resumed is not None:
        # Not at the top: it needs torch, and a run that begins anew should tell of a wrong key at once.
        from sightline.folder import read_config

        began = read_config(resumed)
        if recipe not in (None, began.model.recipe):
            raise SightlineError(f"{resumed}: cannot resume: the recipe was {began.model.recipe} and is now {recipe}")
        # What is open in the file has been chosen when the run began.
        values = merge(began.model_dump(mode="json"), without_nulls(values))
    values = merge(values, given)
    whole = reduce(merge, map(assignment, assignments), values)
    try:
        return build_config(whole, recipe, HERE)
    except SightlineError as error:
        raise _blamed(error, values, recipe, assignments) or error from None


def _blamed(
    error: SightlineError, values: dict[str, Any], recipe: str | None, assignments: list[str]
) -> SightlineError | None:
    """The same error, told of the `--set` that brings it when it is put onto `values` after those before; else None.

    Others that come on the way are no mistakes: some settings make sense only with others after them.
    """
    told = str(error).removeprefix(HERE)
    for text in (None, *assignments):
        if text is not None:
            values = merge(values, assignment(text))
        where = HERE if text is None else f"--set {text}"
        try:
            build_config(values, recipe, where)
        except SightlineError as found:
            if str(found).removeprefix(where) == told:
                return found
    return None
