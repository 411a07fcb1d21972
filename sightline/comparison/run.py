"""A comparison from its beginning to its end: every run is trained or found done, measured, and told in one report."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from sightline.alignments import Gold
from sightline.comparison.checking import check_run
from sightline.comparison.configs import common_data, common_sources, link_files, settings
from sightline.comparison.course import Course
from sightline.comparison.markdown import LENGTHS, MAPS, markdown
from sightline.comparison.measuring import Yardstick, scored
from sightline.comparison.page import length_series, page
from sightline.comparison.parts import RUNS, Parts, prepare_parts
from sightline.comparison.results import Arm, Comparison
from sightline.comparison.scores import Scores
from sightline.config import RunConfig, build_config, merge, without_nulls
from sightline.console import bar
from sightline.corpora import corpora_of
from sightline.errors import SightlineError
from sightline.files import check_folder, make_folder, write_text
from sightline.folder import WEIGHTS, read_config
from sightline.launch import launched
from sightline.metrics import bleu, check_tokenizer, chrf
from sightline.plot.lengths import lengths_svg
from sightline.plot.vector import svg
from sightline.readers import Pair, TextFiles
from sightline.sections import DataConfig
from sightline.training.checkpoint_names import CHECKPOINTS, latest
from sightline.training.checkpoints import read_trainer
from sightline.training.directions import FORWARD
from sightline.training.loop import Host
from sightline.training.progress import progress_for
from sightline.training.run import train

NOTE = "comparison.json"
PAGE, MARKDOWN, JSON = "report.html", "report.md", "report.json"
LEARNING = ("text", "data", "model", "training")  # sections that decide what is learnt
Say = Callable[[str], None]


@dataclass(frozen=True)
class Links:
    """A file of hand-made links; `pairs` are the sentences they belong to, None: the test part."""

    path: Path
    one_based: bool = False
    pairs: TextFiles | None = None


@dataclass(frozen=True)
class Run:
    """One training: a configuration with a seed, in a folder."""

    name: str
    seed: int
    config: RunConfig
    folder: Path

    @property
    def complete(self) -> bool:
        """Whether it came to its end, with a model."""
        note = _read_note(self.folder)
        return note is not None and note["complete"] and (self.model / WEIGHTS).is_file()

    @property
    def model(self) -> Path:
        """The folder of the model that translates: of two directions that are trained together, the first."""
        return self.folder / FORWARD if self.config.training.agreement else self.folder


def compare(
    configs: Mapping[str, RunConfig],
    output: Path,
    seeds: int = 1,
    test: TextFiles | None = None,
    gold: Links | None = None,
    tokenize: str = "13a",
    engine: str = "pytorch",
    say: Say = lambda line: None,
    show: bool = False,
) -> Comparison:
    """Trains each of the named configurations `seeds` times on the same text, measures all, and writes the report.

    Everything lies in `output`: the parts of the text that were held out, the runs' model folders, the report as a
    page, as Markdown and as JSON. What is done is not done again: a run that is complete is only measured, once, and
    one that was begun goes on. Seeds count from the first configuration's. Without `test`, a test part is held out.
    `say` is told what happens, `show` allows bars and lines of progress. A wish to stop ends it with a
    KeyboardInterrupt, when the run has been saved.
    """
    if launched() is not None:
        raise SightlineError(
            "a comparison trains its runs one after the other, in one process: start it without torchrun"
        )
    check_tokenizer(tokenize)
    check_folder(output)
    data, sources = common_data(configs), common_sources(configs)
    _check_links(gold, test, sources)
    parts = prepare_parts(data, test, output, sources, link_files(configs))
    yardstick = _yardstick(parts, gold, engine)
    runs = _runs(configs, parts, seeds, output)
    for run in runs:
        _check_note(run)
    if parts.account:
        say(parts.account)
    for run in runs[: len(configs)]:
        if latest(run.folder / CHECKPOINTS) is None:
            check_run(run.name, run.config, yardstick, show)
    course = _course(runs)
    found: dict[str, dict[int, Scores]] = {name: {} for name in configs}
    for number, run in enumerate(runs, 1):
        label = f"{run.name}, seed {run.seed} (run {number} of {len(runs)})"
        _train(run, label, course, say, show)
        begun = time.monotonic()
        scores, new = scored(run.folder, run.model, run.config, yardstick, partial(_bar, run.name, show))
        if new:
            course.measured(run.name, time.monotonic() - begun)
        say(f"{label}: {_told(scores, yardstick.pairs, tokenize)}")
        found[run.name][run.seed] = scores
    arms = [Arm(name, read_config(_folder(output, name, min(each))), each) for name, each in found.items()]
    names = _names(data, sources)
    about = [f"{names}; {parts.account}" if parts.account else names]
    result = Comparison(arms, yardstick.pairs, yardstick.shown(), tokenize, engine, about)
    write_report(result, output)
    return result


def write_report(comparison: Comparison, output: Path) -> None:
    """Writes the page, the Markdown file with its pictures, and the numbers as JSON."""
    make_folder(output / MAPS)
    write_text(output / LENGTHS, lengths_svg(*length_series(comparison), alone=True))
    for number, (_, maps) in enumerate(comparison.maps(), 1):
        drawn = [heatmap for heatmap in maps.values() if heatmap is not None]
        if drawn:
            write_text(output / MAPS / f"{number}.svg", svg(drawn))
    write_text(output / MARKDOWN, markdown(comparison))
    write_text(output / JSON, json.dumps(comparison.as_dict(), ensure_ascii=False, indent=1) + "\n")
    write_text(output / PAGE, page(comparison))


# The text


def _names(data: DataConfig, sources: int) -> str:
    return "trained on " + ", ".join(path.name for corpus in corpora_of(data, sources) for path in corpus.files.paths)


def _check_links(gold: Links | None, test: TextFiles | None, sources: int) -> None:
    if gold is not None and sources > 1:
        raise SightlineError(
            f"{gold.path}: word links tell of one source only, and the configs read {sources}: leave --gold out"
        )
    if gold is not None and gold.pairs is None and test is None:
        raise SightlineError(
            f"{gold.path}: links of which sentences? give --gold-pairs FILE, or --gold-source and --gold-target, or a "
            "test file that they belong to"
        )


def _yardstick(parts: Parts, gold: Links | None, engine: str) -> Yardstick:
    pairs = parts.pairs()
    names = (str(parts.test.paths[0]), str(parts.test.paths[-1]))
    if gold is None:
        return Yardstick(pairs, names, engine=engine)
    aligned: Sequence[Pair] = pairs if gold.pairs is None else [pair for _, pair in gold.pairs.read()]
    return Yardstick(pairs, names, Gold(gold.path, aligned, gold.one_based), aligned, engine)


# The runs


def _folder(output: Path, name: str, seed: int) -> Path:
    return output / RUNS / name / f"seed-{seed}"


def _runs(configs: Mapping[str, RunConfig], parts: Parts, seeds: int, output: Path) -> list[Run]:
    """All of them, seed by seed: whoever stops half-way has something to compare."""
    first = next(iter(configs.values())).training.seed
    return [
        Run(name, seed, _seeded(config, parts, seed), _folder(output, name, seed))
        for seed in range(first, first + seeds)
        for name, config in configs.items()
    ]


def _seeded(config: RunConfig, parts: Parts, seed: int) -> RunConfig:
    training = config.training.model_copy(update={"seed": seed})
    return config.model_copy(update={"data": parts.fitted(config.data), "training": training})


def _read_note(folder: Path) -> dict[str, Any] | None:
    """What a comparison noted in a run's folder: the settings it began with, and whether it is complete."""
    path = folder / NOTE
    if not path.is_file():
        return None
    try:
        note = json.loads(path.read_bytes())
        return {"settings": dict(note["settings"]), "complete": bool(note["complete"])}
    except (OSError, ValueError, KeyError, TypeError):
        raise SightlineError(f"{path}: damaged; delete the folder to train that run anew") from None


def _write_note(run: Run, complete: bool) -> None:
    note = {"settings": settings(run.config, LEARNING), "complete": complete}
    write_text(run.folder / NOTE, json.dumps(note, indent=1) + "\n")


def _check_note(run: Run) -> None:
    """Refuses a run that was begun with other settings: arms must have the same budget from their beginning."""
    note = _read_note(run.folder)
    if note is None:
        return
    now = settings(run.config, LEARNING)
    for name, before in note["settings"].items():
        if name in now and now[name] != before:
            raise SightlineError(
                f"{run.folder}: was begun with {name} = {json.dumps(before)}, and it is now {json.dumps(now[name])}: "
                "set it back, delete that folder, or choose another --output"
            )


def _train(run: Run, label: str, course: Course, say: Say, show: bool) -> None:
    """Trains a run, goes on with it, or finds it done."""
    if run.complete:
        say(f"{label}: is trained already")
        return
    begun = latest(run.folder / CHECKPOINTS) is not None
    config = run.config
    if begun:
        # What was open has been chosen when the run began.
        values = merge(read_config(run.folder).model_dump(mode="json"), without_nulls(config.model_dump(mode="json")))
        config = build_config(values, where=str(run.folder))
    left = course.told()
    say(f"{label}: {'going on' if begun else 'training'}{left and f', {left}'}")
    make_folder(run.folder)
    _write_note(run, complete=False)
    host = Host(progress_for(metric=config.training.metric, beyond=course.beyond)) if show else None
    result = train(config, run.folder, begun, host, say).result
    if result.interrupted:
        raise KeyboardInterrupt
    if result.best is None:
        raise SightlineError(
            f"{run.folder}: no validation gave a number, so there is no model: allow more time or a lower learning rate"
        )
    _write_note(run, complete=True)
    course.trained(run.name, result.seconds)


def _course(runs: Sequence[Run]) -> Course:
    """The runs that are still to be trained, and how long those took that are done."""
    course = Course([run.name for run in runs if not run.complete])
    for run in runs:
        checkpoint = latest(run.folder / CHECKPOINTS) if run.complete else None
        if checkpoint is not None:
            course.known(run.name, float(read_trainer(checkpoint)["state"]["seconds"]))
    return course


def _bar(name: str, show: bool, total: int, what: str) -> Any:
    return bar(total, f"{name}: {what}", show)


def _told(scores: Scores, pairs: Sequence[Pair], tokenize: str) -> str:
    references = [pair.target for pair in pairs]
    found = scores.translations
    return f"BLEU {bleu(found, references, tokenize).value:.2f}, chrF {chrf(found, references).value:.2f}"
