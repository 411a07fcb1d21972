"""bAbI's questions about stories (Weston et al. 2015), read in one hop and in several, through the command line.

    python benchmarks/babi.py --data babi-en.tar.gz [--tasks 1,2,3] [--arms 1,3] [--minutes 1] [--threads 1]

The archive holds `qa1_…_train.txt` and `…_test.txt` and so on, 1,000 questions each. A source is the story so far, its
sentences and the question divided by `|||`; a target is the answer, as one word. The last tenth of the training
questions validates. Every arm has the same data, minutes and seed. Accuracy is the share of right answers of the test.

With the defaults this takes `tasks * arms * minutes`, 6 minutes. Results go to `benchmarks/results/babi.json`, arm by
arm, each with the command that makes it again.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.inflection import accuracy
from benchmarks.speed.common import command, machine

RESULTS = Path(__file__).parent / "results" / "babi.json"
MARKER = "|||"
COMMON = (
    "text.tokenizer=word",
    "text.lowercase=true",
    f"text.sentence_marker='{MARKER}'",
    "data.max_length=1000",
    "data.batch_tokens=2048",
    "model.encoder.kind=hops",
    "model.documents.max_age=50",
    "model.embedding=64",
    "model.decoder.width=64",
    "model.dropout=0.1",
    "training.label_smoothing=0",
    "training.learning_rate=0.003",
    "training.validate_bleu=0",
    "training.watch=0",
    "training.report=false",
)

Question = tuple[str, str]


def main() -> None:
    """Makes the data, trains, measures and records."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the archive of tasks")
    parser.add_argument("--tasks", default="1,2,3")
    parser.add_argument("--arms", default="1,3", help="numbers of hops")
    parser.add_argument("--recipe", default="seq2seq", help="the decoder: seq2seq has what the hops found, luong looks")
    parser.add_argument("--minutes", type=float, default=1.0, help="of training for each task and arm")
    parser.add_argument("--updates", type=int, help="end after so many updates instead")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="for every arm; repeatable")
    parser.add_argument("--runs", type=Path, default=Path("runs/babi"), help="where data and models go")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    for task in (int(number) for number in options.tasks.split(",")):
        folder = options.runs / f"task-{task}"
        make_data(options.data, task, folder)
        for hops in (int(number) for number in options.arms.split(",")):
            record(options.results, f"task {task}, {options.recipe}, {hops} hops", run(folder, hops, options))


# The data


def questions(lines: Iterable[str]) -> Iterator[Question]:
    """Each question with all that its story has told before it, and its answer; a story begins anew at number 1."""
    story: list[str] = []
    for line in lines:
        number, _, rest = line.strip().partition(" ")
        if number == "1":
            story = []
        said, *answer = rest.split("\t")
        words = " ".join(re.findall(r"\w+|[.?]", said))
        if answer:
            # An answer of several words is one to be chosen, not a text to be written.
            yield f" {MARKER} ".join([*story, words]), answer[0].replace(",", "+")
        else:
            story.append(words)


def make_data(archive: Path, task: int, folder: Path) -> None:
    """Writes `train.tsv`, `valid.tsv` and `test.tsv`."""
    folder.mkdir(parents=True, exist_ok=True)
    found: dict[str, list[Question]] = {}
    with tarfile.open(archive) as files:
        for member in files.getmembers():
            name = re.fullmatch(rf"(?:.*/)?qa{task}_.*_(train|test)\.txt", member.name)
            content = files.extractfile(member) if name else None
            if name and content:
                found[name[1]] = list(questions(content.read().decode().splitlines()))
    if set(found) != {"train", "test"}:
        sys.exit(f"{archive.name}: no files of task {task}: expected qa{task}_…_train.txt and …_test.txt")
    cut = len(found["train"]) * 9 // 10
    parts = {"train": found["train"][:cut], "valid": found["train"][cut:], "test": found["test"]}
    for part, pairs in parts.items():
        text = "".join(f"{source}\t{target}\n" for source, target in pairs)
        (folder / f"{part}.tsv").write_text(text, encoding="utf-8")


# One arm


def run(folder: Path, hops: int, options: argparse.Namespace) -> dict[str, Any]:
    """Trains one model and asks it the test's questions."""
    model = folder / f"{options.recipe}-{hops}"
    settings = [*COMMON, f"model.documents.hops={hops}", *options.set]
    limit = (
        ["--max-minutes", str(options.minutes)] if options.updates is None else ["--max-steps", str(options.updates)]
    )
    arguments = ["train", "--recipe", options.recipe, "--output", str(model), *limit]
    arguments += ["--pairs", str(folder / "train.tsv"), "--valid-pairs", str(folder / "valid.tsv")]
    for setting in settings:
        arguments += ["--set", setting]
    sightline(arguments, options.threads)
    pairs = [line.split("\t") for line in (folder / "test.tsv").read_text(encoding="utf-8").splitlines()]
    asked = folder / "test.source"
    asked.write_text("".join(f"{source}\n" for source, _ in pairs), encoding="utf-8")
    found = sightline(["translate", str(model), str(asked), "--beam", "1"], options.threads)
    lines = [json.loads(line) for line in (model / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return {
        "accuracy": accuracy(found.splitlines(), [target for _, target in pairs]),
        "questions": len(pairs),
        "settings": settings,
        "updates": lines[-1]["step"],
        "seconds": round(lines[-1]["seconds"], 1),
        "threads": options.threads,
    }


def sightline(arguments: list[str], threads: int) -> str:
    """Runs a command as a user would; its progress goes to stderr."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    whole = [sys.executable, "-m", "sightline", *arguments]
    return subprocess.run(whole, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout


def record(path: Path, name: str, result: dict[str, Any]) -> None:
    """Puts one arm's result into the file, the others staying as they are."""
    path.parent.mkdir(parents=True, exist_ok=True)
    everything = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    everything[name] = {**result, "command": command(), "machine": machine()}
    path.write_text(json.dumps(dict(sorted(everything.items())), indent=1) + "\n", encoding="utf-8")
    print(f"{name}: {result['accuracy']}% right, {result['updates']} updates", flush=True)


if __name__ == "__main__":
    main()
