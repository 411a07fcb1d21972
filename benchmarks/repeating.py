"""Dropping and repeating: kinds of coverage on Europarl's long sentences, through the command line.

    python benchmarks/repeating.py --data DIR [--arms NAME,…] [--minutes 20] [--pairs 60000] [--threads 1]

DIR holds `ep.en-de.train.tsv.gz`, `ep.en-de.dev.tsv.gz` and `ep.en-de.test.tsv.gz`, English first. Attention that does
not know what it has looked at says some things twice and leaves others out, the more so the longer a sentence is.
`bahdanau` is the plain model; every other arm has one thing more than its twin, with the configuration of its page in
the atlas, and all have the same text, minutes, sizes and seed. The last arm, GNMT's coverage penalty, trains nothing:
the plain model translates once more, with the beta that gives the best BLEU on the long sentences of the dev part (of
those above 0, which is the plain arm).

Text. No sentence of this Europarl has more than 60 words. Lines follow one another as in the debate, so passages of 61
to 90 words are made of two neighbours: one for every ten pairs is added to the training text, and in the test they are
the last length. `--pairs` are taken evenly from the training part, `--each` of each length from the test part, without
those whose source was trained on. So the figures of all lengths together are those of a test with as many long
sentences as short ones, and not of the test part as it is.

Measured on the test, for all lengths, for the long ones (above 40 words) and for each length:

- BLEU (13a) and chrF; `length`, words of the translations as a percentage of those of the references;
- `repeated`, `beyond`, `reference`: percentages of phrases of one to four words that a translation has again, that it
  has again more often than its reference, and that the references have again; `benchmarks/mechanisms/repetition.py`
  tells exactly what is counted;
- `missed`: percentage of source words that the whole translation gave less than a quarter of weight in all;
- `dropped`, `loops`, `cut`: percentages of translations that `sightline/failures.py` flags, because a quarter of the
  source words or more hardly got any attention, because phrases stand in a row or far too often, or because no end
  came; `reference_loops`: the same of the references.

Where the weights lie is not what was said: arms that teach the weights lower `missed` and `dropped` by it alone, so
these are to be read beside `length` and BLEU. And who writes little repeats little.

Results go to `benchmarks/results/repeating.json` arm by arm, each with the command that makes it again; arms that are
recorded with the same settings are passed over, so that a run that was broken off goes on. `repeating.md` beside it is
written from the record. With the defaults this takes nearly four hours: ten arms of twenty minutes, and one or two for
each test. (After five minutes BLEU is about 3, and what such a model drops and repeats says nothing.) On two processors
two runs side by side, with other `--arms` and another `--runs`, do it in half the time; both fill one record.
`coverage_penalty` belongs where `bahdanau` is.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, reduce
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.failures import flagged
from benchmarks.mechanisms import repetition, running
from benchmarks.mechanisms.entries import Values, read_atlas
from benchmarks.mechanisms.material import read_pairs, spread
from benchmarks.mechanisms.records import Result, fill, write_page
from benchmarks.mechanisms.repeating_page import page
from sightline import metrics
from sightline.config import assignment, merge
from sightline.failures import Expectations
from sightline.readers import Pair
from sightline.translation import Translation
from sightline.translator import Translator, load

RESULTS = Path(__file__).parent / "results"
FILES = {part: f"ep.en-de.{part}.tsv.gz" for part in ("train", "dev", "test")}
EDGES = (10, 20, 30, 40, 50, 60)  # the longest of each length, but for passages
LONG = 40  # words that a long source has more than
MOST = 90  # words of a passage
PASSAGES = 10  # so many pairs for one passage, in training
VALID = 50  # pairs of each length that training is validated on
PLAIN = "bahdanau"
# What of the atlas's arms is otherwise: more text and longer sentences. All of MOST words must be short enough.
COMMON: Values = {
    "text": {"vocabulary": 8000},
    "data": {"batch_tokens": 2048, "max_length": 250},
    "search": {"beam": 5},
}
# Scores are means over tokens, and a penalty is a sum over source tokens: so they are small.
BETAS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2)


@dataclass(frozen=True)
class Arm:
    """What it is called, its `twin`, which lacks one thing, and what it has `beside` the atlas's arm `page`.

    With `betas` it is the model of `page`, and a coverage penalty is chosen for its search.
    """

    title: str
    page: str
    twin: str | None = PLAIN
    beside: Values = field(default_factory=dict)
    betas: tuple[float, ...] = ()


ARMS = {
    PLAIN: Arm("plain", PLAIN, None),
    "coverage_sum": Arm("coverage: the sum of the weights", "coverage_sum"),
    "coverage_fertility": Arm("coverage: over a learned fertility", "coverage_fertility"),
    "coverage_neural": Arm("coverage: by a GRU", "coverage_neural"),
    "coverage_embedded": Arm("coverage embeddings", "coverage_embedded"),
    # As Mi et al. have it: a loss for what the embeddings know.
    "coverage_left": Arm("coverage embeddings, and a loss for what is left", "coverage_left", "coverage_embedded"),
    "one_look_each": Arm("loss: about one look for each word", "one_look_each"),
    "fertility_penalty": Arm("loss: global fertility", "fertility_penalty"),
    "looks_alone": Arm("loss: looking again", PLAIN, beside={"model": {"penalties": {"repeated_looks": 1}}}),
    # As See et al. have it: a loss for what the score knows.
    "repeated_looks": Arm("coverage: the sum, and a loss for looking again", "repeated_looks", "coverage_sum"),
    "coverage_penalty": Arm("plain, coverage penalty in search", PLAIN, betas=BETAS),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Makes the text, trains, measures and records; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the three files")
    parser.add_argument("--arms", default=",".join(ARMS))
    parser.add_argument("--minutes", type=float, default=20.0, help="of training, each arm")
    parser.add_argument("--updates", type=int, help="end after so many updates instead")
    parser.add_argument("--pairs", type=int, default=60_000)
    parser.add_argument("--each", type=int, default=200, help="sentences of each length to test on")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="for every arm; repeatable")
    parser.add_argument("--runs", type=Path, default=Path("runs/repeating"), help="where text and models go")
    parser.add_argument("--results", type=Path, default=RESULTS / "repeating.json")
    options = parser.parse_args(arguments)
    chosen = options.arms.split(",")
    if unknown := sorted({*chosen} - {*ARMS}):
        parser.error(f"--arms: unknown {', '.join(unknown)}; there are {', '.join(ARMS)}")
    minutes = options.minutes if options.updates is None else None
    budget = running.Budget(options.pairs, options.each, minutes, options.updates, options.threads)
    pages = read_atlas().arms
    wanted = {name: settings(name, pages, options.set, budget) for name in ARMS if name in chosen}
    code = run_all(wanted, options, budget)
    write_page(options.results, page)
    return code


def run_all(wanted: dict[str, Result], options: argparse.Namespace, budget: running.Budget) -> int:
    """Trains, measures and records all arms that are not recorded yet; 1 if one failed."""
    import torch

    torch.set_num_threads(budget.threads)
    run = running.commands(budget.threads)

    @cache
    def text() -> Text:
        return make_text(options.data, options.runs, budget)

    return fill(
        options.results,
        wanted,
        [*ARMS],
        lambda name: run_arm(name, wanted[name], text(), budget, run),
        told,
        (options.runs, options.data),
        (budget.minutes or 0) + 1,  # one to measure
    )


def settings(name: str, pages: Mapping[str, Values], given: Iterable[str], budget: running.Budget) -> Result:
    """What decides an arm's result: its configuration, on top of one of the atlas's `pages`, and what all have."""
    arm = ARMS[name]
    config = reduce(merge, [pages[arm.page], arm.beside, COMMON, *map(assignment, given)])
    return {**running.settings(config, budget), **({"betas": [*arm.betas]} if arm.betas else {})}


# Text


@dataclass(frozen=True)
class Text:
    """A folder with `train.tsv` and `valid.tsv`, the long pairs of the dev part to tune on, and those to test on."""

    folder: Path
    tune: list[Pair]
    test: list[Pair]


def length(pair: Pair) -> int:
    """Words of the source."""
    return len(pair.source.split())


def bucket(words: int) -> str:
    """The length that a source of so many words belongs to, such as `11-20`."""
    low = 0
    for high in EDGES:
        if words <= high:
            return f"{low + 1}-{high}"
        low = high
    return f"{low + 1}+"


BUCKETS = tuple(bucket(edge) for edge in (*EDGES, EDGES[-1] + 1))


def passages(pairs: Sequence[Pair]) -> list[Pair]:
    """Two neighbours each that together are longer than any sentence, and not too long; no pair is in two of them."""
    found, place = [], 0
    while place + 1 < len(pairs):
        both = Pair(*map(" ".join, zip(pairs[place], pairs[place + 1], strict=True)))
        fits = EDGES[-1] < length(both) <= MOST
        if fits:
            found.append(both)
        place += 2 if fits else 1
    return found


def by_bucket(pairs: Sequence[Pair], each: int) -> list[Pair]:
    """So many pairs of each length, evenly taken, or all that there are; the short ones first."""
    every: dict[str, list[Pair]] = {label: [] for label in BUCKETS}
    for pair in pairs:
        every[bucket(length(pair))].append(pair)
    return [pair for found in every.values() for pair in (spread(found, each) if found else [])]


def make_text(data: Path, folder: Path, budget: running.Budget) -> Text:
    """Writes what all arms are trained on."""
    if missing := [name for name in FILES.values() if not (data / name).is_file()]:
        sys.exit(f"--data {data}: there is no {missing[0]} in it")
    parts = {part: read_pairs(data / name) for part, name in FILES.items()}
    train = spread(parts["train"], budget.pairs)
    together = passages(parts["train"])
    train += spread(together, min(len(together), budget.pairs // PASSAGES)) if together else []
    known = {pair.source for pair in train}
    dev, test = (
        [pair for pair in [*parts[part], *passages(parts[part])] if pair.source not in known]
        for part in ("dev", "test")
    )
    folder.mkdir(parents=True, exist_ok=True)
    for name, pairs in {"train": train, "valid": by_bucket(dev, VALID)}.items():
        (folder / f"{name}.tsv").write_text("".join(f"{one}\t{other}\n" for one, other in pairs), encoding="utf-8")
    # Every beta translates all of these: half as many as of the test will do.
    tune = [pair for pair in by_bucket(dev, max(1, budget.held_out // 2)) if length(pair) > LONG]
    return Text(folder, tune, by_bucket(test, budget.held_out))


# One arm


def run_arm(name: str, wanted: Result, text: Text, budget: running.Budget, run: running.Run) -> Result:
    """Trains an arm, unless its model is there already, and measures it."""
    arm = ARMS[name]
    model = text.folder / (arm.page if arm.betas else name)
    # A search has the model of the plain arm, if that was trained with the same settings.
    own = {key: value for key, value in wanted.items() if key != "betas"}
    if not is_trained(model, own):
        given = ["--pairs", str(text.folder / "train.tsv"), "--valid-pairs", str(text.folder / "valid.tsv")]
        folder, log = running.fresh(text.folder, model.name)
        running.train(own["config"], [*given, *budget.limit], running.checked(run, log), folder)
        shutil.rmtree(folder / "checkpoints", ignore_errors=True)
        (model / "settings.json").write_text(json.dumps(own), encoding="utf-8")
    result: Result = {"title": arm.title, "twin": arm.twin, **running.trained(model)}
    result["perplexity"] = running.lowest_perplexity(model)
    translator = load(model, engine="pytorch")
    beta = 0.0
    if arm.betas:
        tried = {value: bleu_with(translator, text.tune, value) for value in (0.0, *arm.betas)}
        beta = max(arm.betas, key=lambda value: tried[value])
        result |= {"beta": beta, "tried": [{"beta": value, "bleu": score} for value, score in tried.items()]}
    written = translate(translator, text.test, beta)
    signatures = [score.signature for score in scores(text.test, written)]
    return {**result, **measured(text.test, written), "long_above": LONG, "signatures": signatures}


def is_trained(model: Path, own: Result) -> bool:
    """Whether a model of these settings was trained to its end."""
    path = model / "settings.json"
    return path.is_file() and json.loads(path.read_text(encoding="utf-8")) == own


def translate(translator: Translator, pairs: Sequence[Pair], beta: float, align: bool = True) -> list[Translation]:
    """The sources' translations, with where the model looked."""
    return list(translator.stream([pair.source for pair in pairs], align=align, coverage_penalty=beta))


def bleu_with(translator: Translator, pairs: Sequence[Pair], beta: float) -> float:
    """BLEU of the translations with a coverage penalty; 0 where there are no pairs."""
    return scores(pairs, translate(translator, pairs, beta, align=False))[0].value if pairs else 0.0


# Figures


def scores(pairs: Sequence[Pair], written: Sequence[Translation]) -> tuple[metrics.Score, metrics.Score]:
    """BLEU and chrF."""
    texts, references = [one.text for one in written], [pair.target for pair in pairs]
    return metrics.bleu(texts, references), metrics.chrf(texts, references)


def measured(pairs: Sequence[Pair], written: Sequence[Translation]) -> Result:
    """The figures of all lengths, of the long ones, and by length."""
    both = [*zip(pairs, written, strict=True)]
    long = [one for one in both if length(one[0]) > LONG]
    lengths: dict[str, list[tuple[Pair, Translation]]] = {label: [] for label in BUCKETS}
    for one in both:
        lengths[bucket(length(one[0]))].append(one)
    return {
        "all": figures(both),
        "long": figures(long) if long else None,
        "lengths": {label: figures(found) for label, found in lengths.items() if found},
    }


def figures(both: Sequence[tuple[Pair, Translation]]) -> Result:
    """What is measured of some translations; the module's first words tell what each is."""
    pairs, written = [pair for pair, _ in both], [one for _, one in both]
    texts, references = [one.text for one in written], [pair.target for pair in pairs]
    sound = [Translation(*pair, 0.0, 0.0, [], [], [], True) for pair in pairs]
    # Not what a model's own data let expect, so that all arms are held against the same.
    expected = Expectations()
    bleu, chrf = scores(pairs, written)
    return {
        "sentences": len(pairs),
        "bleu": bleu.value,
        "chrf": chrf.value,
        "length": repetition.relative_length(texts, references),
        **repetition.rates(texts, references),
        "missed": running.looks(written)["missed"],
        "dropped": 100 * flagged(written, "dropped", expected),
        "loops": 100 * flagged(written, "loop", expected),
        "cut": 100 * flagged(written, "cut", expected),
        "reference_loops": 100 * flagged(sound, "loop", expected),
    }


def told(result: Result) -> str:
    """The most important figures."""
    part = result["long"] or result["all"]
    return f"BLEU {part['bleu']:.1f}, four words again {part['beyond']['4']:.1f}%, {result['updates']} updates"


if __name__ == "__main__":
    sys.exit(main())
