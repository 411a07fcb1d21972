"""SciTLDR: summaries of one sentence from abstracts of papers, copied and not, through the command line.

    python benchmarks/scitldr.py --data DIR [--arms NAME,…] [--minutes 20] [--threads 1] [--again]
    python benchmarks/scitldr.py --tables

DIR holds `train.jsonl.gz`, `dev.jsonl.gz` and `test.jsonl.gz` of SciTLDR-A (Cachola et al. 2020): `source`, an abstract
in sentences, and `target`, one summary in training and one or more to validate and to test. All arms see the same text:
small letters, words and marks apart, the first 400 of an abstract, as in See et al. (2017). The vocabulary is the 5,000
most frequent words. Each arm is trained on the same 1,992 pairs from the same seed for the same minutes, and the state
with the lowest loss on the first summaries of `dev` is kept. That is little to learn from: no arm was pre-trained, and
none is expected to come near models that were. What is asked is what copying is worth beside the twin without it, and
whether either is better than to repeat the first sentence.

lead                            the abstract's first sentence, as it is; nothing is trained
plain                           words, attention as Bahdanau has it; what is not in the vocabulary is lost
pointer-generator               the same, and attention copies; `<unk>` is neither learnt nor written
pointer-generator-unknown       the same, but `<unk>` is, as in the paper and in the twin without copying
pointer-generator-coverage      the second, and attention knows, and is fined for, what it has looked at before

Summaries have 5 to 40 words and repeat no three of them, for all arms. ROUGE-1, -2 and -L are mean F1 of rouge-score,
without stemming; of several references the one with the best ROUGE-1 counts, as in the paper's own script (which runs
ROUGE-1.5.5: the figures are near to its own, not the same). `copied` is the percentage of a summary's words that stand
in the abstract, `unknown` of those that are `<unk>`, which no reference has.

Results go to `benchmarks/results/scitldr.json`, arm by arm as soon as each is done, with the command that makes them
again; arms that are recorded with the same settings are left out, so that a run that was broken off goes on, and
`--again` trains them too. The table beside it, `scitldr.md`, is written from the record, with `--tables` that alone.
With the defaults this takes about `4 * (minutes + 3)`, an hour and a half.
"""

from __future__ import annotations

import argparse
import gzip
import json
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.copying import MISSING, cut, figure, is_word, percentage
from benchmarks.mechanisms import running
from benchmarks.mechanisms.entries import Values, sized
from benchmarks.mechanisms.records import Result, divided, fill, made_otherwise, told_budget, write_page
from benchmarks.readme_tables import paragraph, table
from sightline.config import assignment, merge
from sightline.files import write_text
from sightline.metrics import rouge

RESULTS = Path(__file__).parent / "results" / "scitldr.json"
FILES = {"train": "train.jsonl.gz", "valid": "dev.jsonl.gz", "test": "test.jsonl.gz"}
LONGEST = 400  # words and marks of an abstract
LEAD = "lead"
SEARCH = ["--beam", "4", "--min-length", "5", "--max-length", "40", "--no-repeat", "3", "--engine", "pytorch"]
ALIKE = ("pairs", "held_out", "minutes", "max_updates", "threads", "papers", "search", "machine")
COMMON: Values = {
    "text": {"tokenizer": "word", "vocabulary": 5000},
    # A batch is some 25 abstracts.
    "data": {"max_length": LONGEST + 1, "batch_tokens": 4096},
    "model": {"recipe": "bahdanau", "dropout": 0.3},
    "training": {"validate_every": 50},
}
# Most of a summary's words are the abstract's: there is enough to copy without hiding any.
POINTING: Values = {"model": {"copying": {"kind": "pointer_generator", "practice": 0.0}}}
UNKNOWN: Values = {"model": {"copying": {"unknown": True}}}
COVERING: Values = {"model": {"attention": {"coverage": "sum"}, "penalties": {"repeated_looks": 1.0}}}
ARMS: dict[str, Values] = {
    LEAD: {},
    "plain": sized(COMMON),
    "pointer-generator": sized(merge(COMMON, POINTING)),
    "pointer-generator-unknown": sized(merge(merge(COMMON, POINTING), UNKNOWN)),
    "pointer-generator-coverage": sized(merge(merge(COMMON, POINTING), COVERING)),
}


@dataclass(frozen=True)
class Published:
    """Figures of a paper, what they were measured on, and how they are known."""

    name: str
    data: str
    rouge: tuple[float, float, float]
    status: str


NEWS = "CNN/Daily Mail"
LISTED = "read in NLP-progress's list"
ONE_COPY, FIVE_COPIES = (f"second-hand, {count} of the paper's table" for count in ("a copy", "five copies"))
# None of them is of SciTLDR, of which no figure was read: they tell the direction, from far more data of another kind.
PUBLISHED = (
    Published("attention, no copying (See et al. 2017)", NEWS, (31.33, 11.81, 28.83), ONE_COPY),
    Published("pointer-generator (See et al. 2017)", NEWS, (36.44, 15.66, 33.42), FIVE_COPIES),
    Published("pointer-generator with coverage (See et al. 2017)", NEWS, (39.53, 17.28, 36.38), LISTED),
    Published("the first three sentences", NEWS, (40.34, 17.70, 36.57), LISTED),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Makes the data, trains, measures, records and writes the table; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of the three files")
    parser.add_argument("--arms", default=",".join(ARMS))
    parser.add_argument("--minutes", type=float, default=20.0, help="of training, each arm")
    parser.add_argument("--updates", type=int, help="end after so many updates instead")
    parser.add_argument("--tested", type=int, help="only the first papers of the test")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--again", action="store_true", help="train arms that are recorded too")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="for every arm; repeatable")
    parser.add_argument("--runs", type=Path, default=Path("runs/scitldr"), help="where text and models go")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--tables", action="store_true", help="only write the table")
    options = parser.parse_args(arguments)
    chosen = options.arms.split(",")
    if unknown := sorted({*chosen} - {*ARMS}):
        parser.error(f"--arms: unknown {', '.join(unknown)}; there are {', '.join(ARMS)}")
    if not options.tables and options.data is None:
        parser.error("give --data DIR to train, or --tables to write the table alone")
    try:
        return 0 if options.tables else train(chosen, options)
    finally:  # also when a run is broken off: what is recorded is worth a look
        write_page(options.results, tables)


# The data


@dataclass(frozen=True)
class Paper:
    """An abstract in sentences, and what it was summarised as."""

    sentences: list[str]
    summaries: list[str]

    @property
    def source(self) -> str:
        """The abstract as models see it."""
        return " ".join(cut(" ".join(self.sentences).lower())[:LONGEST])


def read(path: Path) -> list[Paper]:
    """The papers of one file."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        found = [json.loads(line) for line in lines]
    return [Paper([one.strip() for one in row["source"]], [one.strip() for one in row["target"]]) for row in found]


def pairs(papers: Iterable[Paper]) -> str:
    """Lines of abstracts and their first summaries."""
    return "".join(f"{paper.source}\t{' '.join(cut(paper.summaries[0].lower()))}\n" for paper in papers)


def make_text(papers: Mapping[str, Sequence[Paper]], folder: Path) -> list[str]:
    """Writes `train.tsv`, `valid.tsv` and `test.source`; the options that name the first two."""
    folder.mkdir(parents=True, exist_ok=True)
    options = []
    for part, option in (("train", "--pairs"), ("valid", "--valid-pairs")):
        write_text(folder / f"{part}.tsv", pairs(papers[part]))
        options += [option, str(folder / f"{part}.tsv")]
    write_text(folder / "test.source", "".join(f"{paper.source}\n" for paper in papers["test"]))
    return options


# The arms


def train(chosen: Sequence[str], options: argparse.Namespace) -> int:
    """Trains, measures and records arm after arm; 1 if one failed."""
    for name in FILES.values():
        if not (options.data / name).is_file():
            sys.exit(f"--data {options.data}: there is no {name} in it")
    papers = {part: read(options.data / name) for part, name in FILES.items()}
    papers["test"] = papers["test"][: options.tested]
    text = make_text(papers, options.runs)
    changes: Values = reduce(merge, map(assignment, options.set), {})
    configs = {name: merge(ARMS[name], changes) if ARMS[name] else {} for name in chosen}
    minutes = options.minutes if options.updates is None else None
    counts = (len(papers["train"]), len(papers["valid"]))
    budget = running.Budget(*counts, minutes, options.updates, options.threads)
    run = running.commands(options.threads)

    def measure(name: str) -> Result:
        if name == LEAD:
            return measured(papers["test"], [paper.sentences[0] for paper in papers["test"]])
        return run_arm(name, configs[name], text, papers["test"], budget, run, options.runs)

    more = {"papers": len(papers["test"]), "search": SEARCH}
    wanted = {name: {**running.settings(config, budget), **more} for name, config in configs.items()}
    folders = (options.runs, options.data)
    return fill(options.results, wanted, [*ARMS], measure, told, folders, (minutes or 0) + 3, options.again)


def run_arm(
    name: str,
    config: Values,
    text: list[str],
    test: Sequence[Paper],
    budget: running.Budget,
    run: running.Run,
    runs: Path,
) -> Result:
    """Trains an arm, lets it summarise the test, and measures."""
    folder, log = running.fresh(runs, name)
    sure = running.checked(run, log)
    running.train(config, [*text, *budget.limit], sure, folder)
    output = runs / f"{name}.txt"
    sure(["translate", str(folder), str(runs / "test.source"), *SEARCH, "--output", str(output)])
    outputs = output.read_text(encoding="utf-8").splitlines()
    result = {**running.trained(folder), **best_validation(folder), **measured(test, outputs)}
    shutil.rmtree(folder / "checkpoints", ignore_errors=True)
    return result


def best_validation(folder: Path) -> Result:
    """When the loss on `dev` was lowest: what came after it was learnt by heart."""
    best = min(
        (line for line in running.metrics_of(folder) if line["kind"] == "validation"),
        key=lambda line: float(line["loss"]),
    )
    return {"best_update": best["step"], "perplexity": best["perplexity"]}


def measured(papers: Sequence[Paper], outputs: Sequence[str]) -> Result:
    """ROUGE, and what the summaries are made of."""
    found = rouge(outputs, [paper.summaries for paper in papers])
    count = copied = unknown = 0
    for paper, output in zip(papers, outputs, strict=True):
        pieces = cut(output.lower())
        words = [piece for piece in pieces if is_word(piece)]
        given = {*paper.source.split()}
        count += len(words) + pieces.count(MISSING)
        copied += sum(word in given for word in words)
        unknown += pieces.count(MISSING)
    return {
        "rouge": {name: round(value, 2) if name != "signature" else value for name, value in found.as_dict().items()},
        "words": round(count / len(papers), 1),
        "copied": percentage(copied, count),
        "unknown": percentage(unknown, count),
    }


def told(result: Result) -> str:
    """The most important figures."""
    found = result["rouge"]
    return f"ROUGE-1 {found['rouge_1']}, -2 {found['rouge_2']}, -L {found['rouge_l']}"


# The table


def tables(record: Mapping[str, Result]) -> str:
    """What was measured, and what others published of other data, apart from it."""
    done, failed = divided(record)
    parts = ["# SciTLDR, abstracts only"]
    if done:
        heads = ["arm", "ROUGE-1", "ROUGE-2", "ROUGE-L", "words", "copied, %", "`<unk>`, %", "updates", "best at"]
        rows = [[f"`{name}`", *cells(result)] for name, result in done.items()]
        parts += [paragraph(about(next(iter(done.values())))), table(heads, rows, len(heads) - 1)]
        parts += map(paragraph, made_otherwise(done, ALIKE))
    parts += [paragraph(one) for one in failed]
    other = (
        "Published figures of the same mechanisms are of other data, far more of it, and of longer summaries; only "
        "their order may be compared with the one above. No published figure of SciTLDR was read, so none stands here."
    )
    rows = [[one.name, one.data, one.status, *(f"{value:.2f}" for value in one.rouge)] for one in PUBLISHED]
    heads = ["published", "data", "how it is known", "ROUGE-1", "ROUGE-2", "ROUGE-L"]
    parts += ["## On other data", paragraph(other), table(heads, rows, 3)]
    return "\n\n".join(parts) + "\n"


def about(result: Result) -> str:
    """How the arms were made."""
    return (
        f"{result['pairs']:,} papers to train on, {told_budget(result)} "
        f"({result['machine']['cpu']}), one seed, nothing pre-trained; "
        f"{result['papers']:,} papers of the test (`{result['rouge']['signature']}`). So few pairs are soon known by "
        "heart: the state with the lowest loss on validation is kept, which was reached after the updates of the last "
        "column. `lead` is the abstract's first sentence. With one seed a small difference may be luck. "
        f"[The record](scitldr.json), made again by `{result['command']}`."
    )


def cells(result: Result) -> list[str]:
    """A row of figures."""
    scores = [f"{result['rouge'][name]:.2f}" for name in ("rouge_1", "rouge_2", "rouge_l")]
    counts = [f"{result[name]:,}" if name in result else "–" for name in ("updates", "best_update")]
    return [*scores, *(figure(result[name]) for name in ("words", "copied", "unknown")), *counts]


if __name__ == "__main__":
    sys.exit(main())
