"""Makes a bundled model again, from the text to the folder in the package.

    python -m examples.bundled.make --data DATA --work DIR --minutes 140 --direction en-de

DATA holds `tatoeba/train.en-de.tsv.gz` and `tatoeba/test-a.en-de.tsv.gz`, lines of English, tab, German. Every stage
leaves its result in DIR and is passed over when that is there: after an interruption the same command goes on.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

from examples.bundled.card import card
from examples.bundled.heads import best_head
from examples.bundled.text import augmented, distinct, divide, unseen
from sightline.config import DataConfig, RunConfig, assignment, build_config, merge, read_yaml
from sightline.console import say
from sightline.data import Pair, read_pairs
from sightline.evaluate import evaluate
from sightline.files import make_folder, write_text
from sightline.folder import CARD, read_config, save_config
from sightline.interop.verified import export
from sightline.training.checkpoint_names import CHECKPOINTS, latest
from sightline.training.loop import Host
from sightline.training.progress import progress_for
from sightline.training.run import train
from sightline.translator import load

HERE = Path(__file__).resolve().parent
BUNDLED = HERE.parent.parent / "sightline" / "bundled"
DIRECTIONS = ("en-de", "de-en")


@dataclass(frozen=True)
class Job:
    """What was asked for; the names of what the stages leave."""

    data: Path
    work: Path
    direction: str
    minutes: float
    held_out: int
    synthetic: tuple[Path, ...] = ()
    changes: tuple[str, ...] = ()
    bundled: Path = BUNDLED
    tolerance: float = 0.5

    @property
    def languages(self) -> tuple[str, str]:
        """Source and target."""
        source, target = self.direction.split("-")
        return source, target

    def file(self, name: str) -> Path:
        """A result of a stage."""
        return self.work / self.direction / name

    def read(self, name: str) -> list[Pair]:
        """A file of the text stage."""
        return read_pairs(pairs=self.file(name))


def main(arguments: Sequence[str] | None = None) -> None:
    """All stages, one after the other."""
    job = parse(arguments)
    make_folder(job.file("."))
    for result, stage in STAGES.items():
        if job.file(result).exists():
            say(f"{job.file(result)} is there")
        else:
            stage(job)
    put_into_package(job)


def write_texts(job: Job) -> None:
    """Training, validation and test pairs in this direction, one file each."""

    def given(name: str) -> list[Pair]:
        pairs = read_pairs(pairs=job.data / "tatoeba" / f"{name}.en-de.tsv.gz")
        return pairs if job.direction == "en-de" else [Pair(target, source) for source, target in pairs]

    training, validation = divide(given("train"), job.held_out)
    made = [pair for path in job.synthetic for pair in unseen(read_pairs(pairs=path), validation)]
    training = augmented([*distinct(training), *dict.fromkeys(made)])
    _write(job.file("valid.tsv"), validation)
    _write(job.file("test.tsv"), given("test-a"))
    _write(job.file("train.tsv"), training)
    say(f"text: {len(training):,} pairs to learn from, {len(made):,} given as synthetic; {len(validation):,} held out")


def _write(path: Path, pairs: Sequence[Pair]) -> None:
    write_text(path, "".join(f"{source}\t{target}\n" for source, target in pairs))


def configuration(job: Job) -> RunConfig:
    """`bundled.yaml` with the files and minutes of this job."""
    source, target = job.languages
    data = {
        "pairs": str(job.file("train.tsv")),
        "valid_pairs": str(job.file("valid.tsv")),
        "source_language": source,
        "target_language": target,
    }
    values: dict[str, Any] = {"data": data, "training": {"max_minutes": job.minutes}}
    values = merge(read_yaml(HERE / "bundled.yaml"), values)
    return build_config(reduce(merge, map(assignment, job.changes), values), where="bundled.yaml")


def train_model(job: Job) -> None:
    """Trains, or goes on with a run that was broken off."""
    model = job.file("model")
    begun = latest(model / CHECKPOINTS) is not None
    config = read_config(model) if begun else configuration(job)
    trained = train(config, model, begun, Host(progress_for(metric=config.training.metric)), say)
    if trained.result.interrupted:
        raise KeyboardInterrupt
    write_text(model / "done", f"{trained.result.steps}\n")


def choose_head(job: Job) -> None:
    """The head whose links agree best with those of lexicons, kept in the model's configuration."""
    translator = load(job.file("model"), engine="pytorch")
    alignment, rate = best_head(translator, job.read("train.tsv"), job.read("valid.tsv"))
    save_config(job.file("model"), translator.aligning_by(alignment).config)
    write_text(job.file("head.json"), json.dumps({**alignment.model_dump(), "error_rate": rate}) + "\n")
    say(f"head: layer {alignment.layer}, head {alignment.head}, {alignment.reading}; {100 * rate:.1f}% of links differ")


def export_model(job: Job) -> None:
    """In int8, compared with its model on the validation part."""
    found = export(job.file("model"), job.file("export"), "ctranslate2", job.read("valid.tsv"), "int8", job.tolerance)
    say("\n".join(found.lines()))


def measure(job: Job) -> None:
    """BLEU and chrF of the export on test-a, as users get them: sentences split, with the model's own beam."""
    translator, pairs = load(job.file("export")), job.read("test.tsv")
    result = evaluate(translator, pairs, list(translator.stream([pair.source for pair in pairs])))
    values = {
        name: {"value": score.value, "signature": score.signature}
        for name, score in (("BLEU", result.bleu), ("chrF", result.chrf))
    }
    write_text(job.file("scores.json"), json.dumps({"sentences": len(pairs), "scores": values}, indent=1) + "\n")
    say(f"test-a: BLEU {result.bleu.value:.2f} ({result.bleu.signature}), chrF {result.chrf.value:.2f}")


def put_into_package(job: Job) -> None:
    """The export with its card, without the names of files of this machine, in the place of what was there."""
    folder, partial = job.bundled / job.direction, job.bundled / f"{job.direction}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    shutil.copytree(job.file("export"), partial)
    config = read_config(partial)
    source, target = job.languages
    data = DataConfig(source_language=source, target_language=target, max_length=config.data.max_length)
    save_config(partial, config.model_copy(update={"data": data}))
    facts = {
        "pairs": len(job.read("train.tsv")),
        "updates": int(job.file("model/done").read_text()),
        "minutes": job.minutes,
        "head": json.loads(job.file("head.json").read_text()),
        "export": (partial / CARD).read_text(encoding="utf-8"),
        **json.loads(job.file("scores.json").read_text()),
    }
    write_text(partial / CARD, card(job.direction, config, facts))
    shutil.rmtree(folder, ignore_errors=True)
    os.replace(partial, folder)
    size = sum(path.stat().st_size for path in folder.iterdir())
    say(f"{folder}: {size / 1e6:.1f} MB")


STAGES: dict[str, Callable[[Job], None]] = {
    "train.tsv": write_texts,
    "model/done": train_model,
    "head.json": choose_head,
    "export": export_model,
    "scores.json": measure,
}
"""By what each leaves when it is done."""


def parse(arguments: Sequence[str] | None) -> Job:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--direction", choices=DIRECTIONS, required=True)
    parser.add_argument("--minutes", type=float, default=140.0)
    parser.add_argument("--held-out", type=int, default=1500, help="validation pairs")
    parser.add_argument("--synthetic", type=Path, action="append", default=[], help="more pairs, see synthetic.py")
    parser.add_argument("--set", action="append", default=[], dest="changes", metavar="SECTION.KEY=VALUE")
    parser.add_argument("--bundled", type=Path, default=BUNDLED, help="where the folder goes")
    parser.add_argument("--tolerance", type=float, default=0.5, help="most BLEU, and most chrF, that int8 may cost")
    given = vars(parser.parse_args(arguments))
    return Job(**{**given, "synthetic": tuple(given["synthetic"]), "changes": tuple(given["changes"])})


if __name__ == "__main__":
    main()
