"""Makes the bundled models again, from the text to the folders in the package.

    python -m examples.bundled.make --data DATA --work DIR --minutes 60 --direction both
    python -m examples.bundled.make --data DATA --work DIR --minutes 60 --direction en-de
    python -m examples.bundled.make --data DATA --work DIR --minutes 60 --direction de-en

DATA holds `tatoeba/train.en-de.tsv.gz` and `tatoeba/test-a.en-de.tsv.gz`, lines of English, tab, German. One model
learns both directions first, and translates its text anew; those that ship begin with its weights and go on with one
direction each (Ding et al. 2021), with what it wrote as well. With `--begin FOLDER` models that are there go on, and
with `--last` too for a short round of what is short; `README.md` tells the rounds of those that ship. Every stage
leaves its result in DIR and is passed over when that is there: after an interruption the same command goes on.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from pathlib import Path
from typing import Any

import torch

from examples.bundled.card import card, course, named_head, told_course, told_rounds
from examples.bundled.heads import best_head
from examples.bundled.pieces import digits_apart
from examples.bundled.rewriting import rewritten
from examples.bundled.spoken import PHRASES
from examples.bundled.text import augmented, distinct, divide, last_text, plain, short, unseen
from sightline.config import DataConfig, RunConfig, assignment, build_config, merge, read_yaml
from sightline.console import say
from sightline.convert import inherited
from sightline.data import Pair, read_pairs
from sightline.files import make_folder, write_text
from sightline.folder import CARD, load_model, open_files, read_config, save_config, save_model
from sightline.interop.verified import export
from sightline.metrics import bleu, chrf
from sightline.training.checkpoint_names import CHECKPOINTS, latest
from sightline.training.loop import Host
from sightline.training.progress import progress_for
from sightline.training.run import train
from sightline.translator import load

HERE = Path(__file__).resolve().parent
BUNDLED = HERE.parent.parent / "sightline" / "bundled"
DIRECTIONS = ("en-de", "de-en")
BOTH = "both"
# What differs from bundled.yaml. Together: the rate has not fallen to zero when each direction goes on alone, and no
# line is its own translation, since only its language tells a model of both what to do with it.
TOGETHER = {"data": {"filters": {"identical": True}}, "training": {"schedule": "inverse_sqrt"}}
AFTERWARDS = {"training": {"learning_rate": 0.001, "warmup": 200}}
# Only the end is validated, and the model is that of the end: the validation part has nothing short, as this round has.
LAST = {"training": {"learning_rate": 0.0003, "warmup": 50, "ema": 0.99, "validate_every": 100_000}}


@dataclass(frozen=True)
class Job:
    """What was asked for; the names of what the stages leave."""

    data: Path
    work: Path
    direction: str
    minutes: float
    held_out: int
    changes: tuple[str, ...] = ()
    bundled: Path = BUNDLED
    tolerance: float = 0.5
    begin: Path | None = None
    last: bool = False
    keep: float = 0.0
    earlier: tuple[Path, ...] = ()

    @property
    def languages(self) -> dict[str, str]:
        """Of source and target, as a configuration names them; none for a model of both directions."""
        sides = ("source_language", "target_language")
        return {} if self.direction == BOTH else dict(zip(sides, self.direction.split("-"), strict=True))

    @property
    def before(self) -> Path | None:
        """What this one begins with: its model in the named folder, or that of both directions, where it was made."""
        if self.begin:
            return self.begin / self.direction
        model = self.work / BOTH / "model"
        return model if self.direction != BOTH and (model / "done").exists() else None

    def file(self, name: str) -> Path:
        """A result of a stage."""
        return self.work / self.direction / name

    def learnt(self) -> set[Pair]:
        """All pairs that the model learnt from, in this round and, where they are named, in those before."""
        return {pair for path in (self.file("train.tsv"), *self.earlier) for pair in read_pairs(pairs=path)}

    def read(self, name: str) -> list[Pair]:
        """A file of the text stage."""
        return read_pairs(pairs=self.file(name))


def main(arguments: Sequence[str] | None = None) -> None:
    """All stages, one after the other."""
    job = parse(arguments)
    make_folder(job.file("."))
    stages = STAGES if job.direction != BOTH else REWRITING if job.begin else {**TRAINING_BOTH, **REWRITING}
    for result, stage in stages.items():
        if job.file(result).exists():
            say(f"{job.file(result)} is there")
        else:
            stage(job)
    if job.direction != BOTH:
        put_into_package(job)


def write_texts(job: Job) -> None:
    """Training, validation and test pairs in this direction, one file each."""
    training, validation = human(job)
    if job.last:
        training = unseen(last_text(training, job.direction == "de-en"), [*validation, *given(job, "test-a")])
    else:
        training = made_of(job, [*training, *unseen(rewritings(job), validation)], validation)
    _write(job.file("valid.tsv"), validation)
    _write(job.file("test.tsv"), given(job, "test-a"))
    _write(job.file("train.tsv"), training)
    say(f"text: {len(training):,} pairs to learn from, {len(validation):,} held out")


def write_both_texts(job: Job) -> None:
    """Training and validation pairs of both directions, each made as for a model of its own."""
    training: list[Pair] = []
    held_out: list[list[Pair]] = []
    for direction in DIRECTIONS:
        alone = replace(job, direction=direction)
        people, validation = human(alone)
        training += made_of(alone, people, validation)
        held_out.append(validation)
    # Side by side, so that the first ones, which BLEU is reckoned of, are of both directions.
    _write(job.file("valid.tsv"), [pair for pairs in zip(*held_out, strict=True) for pair in pairs])
    _write(job.file("train.tsv"), training)


def rewrite(job: Job, direction: str) -> None:
    """What the model of both directions, or that of this one to begin with, writes for the sources of one."""
    pairs, _ = human(replace(job, direction=direction))
    model = load(job.begin / direction) if job.begin else load(job.file("model"), compute="int8")
    targets: dict[Pair, None] = {}
    sources: dict[Pair, None] = {}
    for pair, found in zip(pairs, rewritten(model, pairs), strict=True):
        targets |= {Pair(pair.source, found.target): None} if found.target else {}
        sources |= {Pair(text, pair.source): None for text in found.sources}
    _write(job.file(f"{direction}.sources.tsv"), list(sources))
    _write(job.file(f"{direction}.tsv"), list(targets))
    say(f"{direction}: {len(targets):,} targets and {len(sources):,} sources made of {len(pairs):,} pairs")


def rewritings(job: Job) -> list[Pair]:
    """What that model wrote, if there is one: for this direction's sources, and as sources, for the other's.

    Not what is short: a wrong greeting is like the right one in most of its letters, and then learnt as well as it.
    """
    found: dict[Pair, None] = {}
    for direction in DIRECTIONS:
        path = job.work / BOTH / f"{direction}{'' if direction == job.direction else '.sources'}.tsv"
        found |= dict.fromkeys(read_pairs(pairs=path) if path.exists() and path.stat().st_size else [])
    return [pair for pair in found if not short(pair)]


def human(job: Job) -> tuple[list[Pair], list[Pair]]:
    """What people wrote, in this direction: for training, and what is held out."""
    training, validation = divide(given(job, "train"), job.held_out)
    return distinct(training), validation


def made_of(job: Job, pairs: Sequence[Pair], validation: Sequence[Pair]) -> list[Pair]:
    """The pairs and what is made of them, without what is a sentence of the validation part or the test by chance."""
    return unseen(augmented(pairs, job.direction == "de-en"), [*validation, *given(job, "test-a")])


def given(job: Job, name: str) -> list[Pair]:
    """Pairs of a given file, in the job's direction."""
    pairs = read_pairs(pairs=job.data / "tatoeba" / f"{name}.en-de.tsv.gz")
    return pairs if job.direction == "en-de" else [Pair(target, source) for source, target in pairs]


def _write(path: Path, pairs: Sequence[Pair]) -> None:
    write_text(path, "".join(f"{source}\t{target}\n" for source, target in pairs))


def configuration(job: Job) -> RunConfig:
    """`bundled.yaml` with what is different in this job."""
    data = {"pairs": str(job.file("train.tsv")), "valid_pairs": str(job.file("valid.tsv")), **job.languages}
    own: dict[str, Any] = {"data": data, "training": {"max_minutes": job.minutes}}
    kind: dict[str, Any] = TOGETHER if job.direction == BOTH else AFTERWARDS if job.before else {}
    kind = LAST if job.last else kind
    changes = [kind, own, *map(assignment, job.changes)]
    return build_config(reduce(merge, changes, read_yaml(HERE / "bundled.yaml")), where="bundled.yaml")


def train_model(job: Job) -> None:
    """Trains, or goes on with a run that was broken off."""
    model, before = job.file("model"), job.before
    begun = latest(model / CHECKPOINTS) is not None
    config = read_config(model) if begun else configuration(job)
    weights = inherited(open_files(before)) if before and not begun else None
    if weights and config.text.split_digits:
        weights = replace(weights, tokenizers=digits_apart(weights.tokenizers))
    if weights:
        say(f"beginning with {before}")
    host = Host(progress_for(metric=config.training.metric))
    trained = train(config, model, begun, host, say, inherited=weights)
    if trained.result.interrupted:
        raise KeyboardInterrupt
    write_text(model / "done", f"{trained.result.steps}\n")


def keep_some(job: Job) -> None:
    """A mean of the weights before a last round and after it: what is short is learnt, and less of the rest forgotten.

    Wortsman et al. 2022, "Robust fine-tuning of zero-shot models".
    """
    if job.keep and job.before:
        model, before = (load_model(open_files(path)).model for path in (job.file("model"), job.before))
        old = before.state_dict()
        mixed = {
            name: torch.lerp(new, old[name], job.keep) if new.is_floating_point() else new
            for name, new in model.state_dict().items()
        }
        model.load_state_dict(mixed)
        save_model(job.file("model"), model)
        say(f"{job.keep:.0%} of the weights are those before")
    write_text(job.file("kept"), f"{job.keep}\n")


def choose_head(job: Job) -> None:
    """The head whose links agree best with those of lexicons, kept in the model's configuration."""
    translator = load(job.file("model"), engine="pytorch")
    alignment, rate = best_head(translator, job.read("train.tsv"), job.read("valid.tsv"))
    save_config(job.file("model"), translator.aligning_by(alignment).config)
    write_text(job.file("head.json"), json.dumps({**alignment.model_dump(), "error_rate": rate}) + "\n")
    say(f"{named_head(alignment)}; {100 * rate:.1f}% of links differ")


def export_model(job: Job) -> None:
    """In int8, compared with its model on the validation part."""
    found = export(job.file("model"), job.file("export"), "ctranslate2", job.read("valid.tsv"), "int8", job.tolerance)
    say("\n".join(found.lines()))


def measure(job: Job) -> None:
    """BLEU and chrF of the export on test-a, as users get them: sentences split, with the model's own beam."""
    translator, pairs = load(job.file("export")), job.read("test.tsv")
    texts = [one.text for one in translator.stream([pair.source for pair in pairs])]
    learnt = job.learnt()
    known = {plain(side) for side in {side for pair in learnt for side in pair}}
    fresh = [place for place, pair in enumerate(pairs) if known.isdisjoint(map(plain, pair))]
    scores, of_fresh = (_scores(pairs, texts, places) for places in (range(len(pairs)), fresh))
    counts = {"pairs": len(learnt), "sentences": len(pairs), "met": len(pairs) - len(fresh)}
    found = {**counts, "scores": scores, "scores_without_met": of_fresh}
    write_text(job.file("scores.json"), json.dumps(found, indent=1) + "\n")
    told = ", ".join(f"{name} {score['value']:.2f} ({score['signature']})" for name, score in scores.items())
    say(f"test-a: {told}")


def _scores(pairs: Sequence[Pair], texts: Sequence[str], places: Iterable[int]) -> dict[str, dict[str, Any]]:
    """BLEU and chrF of the translations of some pairs."""
    chosen = [(texts[place], pairs[place].target) for place in places]
    given = [list(side) for side in zip(*chosen, strict=True)] or [[], []]
    return {
        name: {"value": score.value, "signature": score.signature}
        for name, score in (("BLEU", bleu(*given)), ("chrF", chrf(*given)))
    }


def put_into_package(job: Job) -> None:
    """The export with its card, without the names of files of this machine, in the place of what was there."""
    folder, partial = job.bundled / job.direction, job.bundled / f"{job.direction}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    shutil.copytree(job.file("export"), partial)
    config = read_config(partial)
    data = DataConfig(**job.languages, max_length=config.data.max_length)
    save_config(partial, config.model_copy(update={"data": data}))
    facts = {
        "course": _course(job),
        # The text of the round before is among what was counted, where it is named.
        "rounds": told_rounds(_card_before(job), job.earlier != ()) if job.begin else "",
        "written": "" if job.last else ", what a model before it wrote",
        "phrases": len(read_pairs(pairs=PHRASES)),
        "head": named_head(config.alignment),
        "links": json.loads(job.file("head.json").read_text(encoding="utf-8"))["error_rate"],
        "export": (partial / CARD).read_text(encoding="utf-8"),
        **json.loads(job.file("scores.json").read_text()),
    }
    write_text(partial / CARD, card(job.direction, config, facts))
    shutil.rmtree(folder, ignore_errors=True)
    os.replace(partial, folder)
    size = sum(path.stat().st_size for path in folder.iterdir())
    say(f"{folder}: {size / 1e6:.1f} MB")


def _course(job: Job) -> str:
    """How long the model was trained, and what it began with."""
    alone = _length(job.file("model"))
    if job.begin:
        return f"{told_course(_card_before(job))}, then {alone} more"
    return f"{_length(job.before)}, in both directions at once, then {alone} in this one" if job.before else alone


def _card_before(job: Job) -> str:
    """The card of the model that this one begins with."""
    return (job.begin / job.direction / CARD).read_text(encoding="utf-8") if job.begin else ""


def _length(model: Path) -> str:
    """Updates and minutes of a run that is done."""
    minutes = read_config(model).training.max_minutes
    assert minutes is not None, "every job has its minutes"
    return course(int((model / "done").read_text()), minutes)


STAGES: dict[str, Callable[[Job], None]] = {
    "train.tsv": write_texts,
    "model/done": train_model,
    "kept": keep_some,
    "head.json": choose_head,
    "export": export_model,
    "scores.json": measure,
}
"""By what each leaves when it is done."""
TRAINING_BOTH: dict[str, Callable[[Job], None]] = {"train.tsv": write_both_texts, "model/done": train_model}
REWRITING: dict[str, Callable[[Job], None]] = {
    f"{direction}.tsv": partial(rewrite, direction=direction) for direction in DIRECTIONS
}


def parse(arguments: Sequence[str] | None) -> Job:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--direction", choices=(BOTH, *DIRECTIONS), required=True)
    parser.add_argument("--minutes", type=float, required=True, help="of training")
    parser.add_argument("--begin", type=Path, help="a folder with an `en-de` and a `de-en` to go on with")
    parser.add_argument("--last", action="store_true", help="with --begin: a short round, mostly of short lines")
    parser.add_argument("--keep", type=float, default=0.0, help="with --last: how much of the weights before to keep")
    parser.add_argument("--earlier", type=Path, action="append", default=[], help="train.tsv of a round before")
    parser.add_argument("--held-out", type=int, default=1500, help="validation pairs")
    parser.add_argument("--set", action="append", default=[], dest="changes", metavar="SECTION.KEY=VALUE")
    parser.add_argument("--bundled", type=Path, default=BUNDLED, help="where the folder goes")
    parser.add_argument("--tolerance", type=float, default=0.5, help="most BLEU, and most chrF, that int8 may cost")
    given = vars(options := parser.parse_args(arguments))
    if options.last and not options.begin:
        parser.error("--last goes on with models that are there: name their folder with --begin")
    if not 0 <= options.keep < 1 or (options.keep and not options.last):
        parser.error("--keep is for --last, and a share from 0 to below 1")
    return Job(**{name: tuple(value) if isinstance(value, list) else value for name, value in given.items()})


if __name__ == "__main__":
    main()
