"""Word alignment, German to English: attention as it is, taught, agreed upon and covered, and eflomal beside them.

    python benchmarks/alignment.py --data DIR --corpus europarl.en-de.tsv.gz --corpus tatoeba.en-de.tsv.gz
        [--arms NAME,…] [--pairs 120000] [--minutes 20] [--threads 1]

DIR holds `test.de`, `test.en` and `test.de-en.gold`: lower-cased, tokenised sentences with links made by hand (one of
them, `12-16` of line 63, is to a word that is not there, so nobody can find it, and it is left out). A corpus
is a TSV file, English first, and there may be several. Of all their pairs together that are neither empty nor long
`--pairs` are taken evenly, so that each corpus gives as large a share of itself, from its first to its last. All arms,
eflomal too, see the same sentences: these, lower-cased and cut as the test is, and after them the test's, never their
links. Which head of an untaught Transformer to read is chosen on eflomal's links of some training pairs, not on the
test.

Results go to `benchmarks/results/alignment.json`, arm by arm, each with the command that makes it again. Arms that are
recorded with the same settings are left out, so that a run that was broken off goes on, and `--again` runs them too.
An arm that fails is recorded with its reason, the others go on, and the exit code is 1. It takes about `--minutes` for
each arm, those that train two models included, three times as many for the last, which is to align as well as it can,
and eflomal some minutes more: with the defaults nearly six hours. On two processors two runs side by side, with other
`--arms` and another `--runs`, do it in half the time; both fill one record.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial, reduce
from itertools import chain
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import sightline
from benchmarks.mechanisms import running
from benchmarks.mechanisms.entries import Values, sized
from benchmarks.mechanisms.material import spread
from benchmarks.mechanisms.records import Result, fill
from sightline.aligners import align_both, eflomal_aligner
from sightline.alignments import Gold, align_corpus
from sightline.config import AlignmentConfig, assignment, merge
from sightline.data import Pair
from sightline.files import read_lines
from sightline.forced import Forced, read_alignment
from sightline.links import READINGS, Links, best_head, symmetrise, to_pharaoh
from sightline.metrics import alignment_error_rate, read_links

RESULTS = Path(__file__).parent / "results"
LONGEST = 60  # words of a side
SILVER = 500  # training pairs that a head is chosen on
WORD = re.compile(r"\w+(?:[-'’]\w+)*|[^\w\s]")
LINKS = "eflomal.links"
# Beside the sizes that the atlas gives each recipe: those that the program would choose for so much text learn little
# in minutes. And a head that is taught must be the one that is read.
COMMON = ["text.vocabulary=8000", "data.batch_tokens=2048", "data.max_length=120", "alignment.layer=null"]
TAUGHT = ["data.alignments={links}"]
EFLOMAL, UNTAUGHT = "eflomal", "plain-transformer"
# The recipe of each arm, and what is set besides; "plain" is the twin of all others.
ARMS: dict[str, tuple[str, list[str]]] = {
    "plain-bahdanau": ("bahdanau", []),
    "plain-luong": ("luong", []),
    UNTAUGHT: ("transformer", []),
    "coverage-bahdanau": ("bahdanau", ["model.attention.coverage=fertility"]),
    "biases-bahdanau": (
        "bahdanau",
        ["model.attention.position_bias=true", "model.attention.markov_bias=1", "model.attention.fertility_bias=1"],
    ),
    "agreement-bahdanau": ("bahdanau", ["training.agreement=1"]),
    "guided-bahdanau": ("bahdanau", TAUGHT),
    "guided-squared-bahdanau": ("bahdanau", [*TAUGHT, "model.guided.loss=squared_error"]),
    "guided-product-bahdanau": ("bahdanau", [*TAUGHT, "model.guided.loss=product"]),
    "guided-luong": ("luong", TAUGHT),
    "guided-transformer": ("transformer", TAUGHT),
    "guided-next-transformer": ("transformer", [*TAUGHT, "model.guided.reading=consumes"]),
    "guided-both-transformer": (
        "transformer",
        [*TAUGHT, "model.guided.reading=consumes", "training.agreement=0.1"],
    ),
    "guided-both-transformer-longer": (
        "transformer",
        [*TAUGHT, "model.guided.reading=consumes", "model.guided.weight=2", "training.agreement=0.1"],
    ),
}
# The arm that is to align as well as it can has so many times the minutes of the others.
LONGER = {"guided-both-transformer-longer": 3}


def main(arguments: Sequence[str] | None = None) -> int:
    """Prepares the text, runs eflomal, then arm after arm; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of test.de, test.en and test.de-en.gold")
    parser.add_argument("--corpus", type=Path, action="append", required=True, help="TSV, English first; repeatable")
    parser.add_argument("--arms", default=",".join([EFLOMAL, *ARMS]))
    parser.add_argument("--pairs", type=int, default=120_000, help="of all corpora together, evenly taken")
    parser.add_argument("--minutes", type=float, default=20.0, help="of training, each arm")
    parser.add_argument("--updates", type=int, help="end after so many updates instead")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--again", action="store_true", help="run arms that are recorded too")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="for every arm; repeatable")
    parser.add_argument("--runs", type=Path, default=Path("runs/alignment"), help="where text and models go")
    parser.add_argument("--results", type=Path, default=RESULTS / "alignment.json")
    options = parser.parse_args(arguments)
    chosen = options.arms.split(",")
    if unknown := {*chosen} - {EFLOMAL, *ARMS}:
        parser.error(f"unknown arms: {', '.join(sorted(unknown))}")
    if any(map(needs_links, chosen)):
        chosen = [EFLOMAL, *(name for name in chosen if name != EFLOMAL)]
    return run_all(chosen, options)


def needs_links(name: str) -> bool:
    """Whether an arm is taught by eflomal's links, or has its head chosen on them."""
    return name == UNTAUGHT or (name in ARMS and {*TAUGHT} <= {*ARMS[name][1]})


def run_all(chosen: Sequence[str], options: argparse.Namespace) -> int:
    """Runs and records all arms that are not recorded yet; 1 if one failed."""
    minutes = options.minutes if options.updates is None else None
    of_text = {"corpora": [path.name for path in options.corpus], "pairs": options.pairs}
    budget = {"max_updates": options.updates, "threads": options.threads}
    wanted: dict[str, Result] = {
        name: of_text
        if name == EFLOMAL
        else {
            **of_text,
            "minutes": minutes and minutes * LONGER.get(name, 1),
            **budget,
            "recipe": ARMS[name][0],
            "settings": [*ARMS[name][1], *options.set],
        }
        for name in chosen
    }
    run = running.commands(options.threads)

    @cache
    def text() -> Text:
        return prepare(options.corpus, read_test(options.data), options.pairs, options.runs)

    def measure(name: str) -> Result:
        gold = read_gold(options.data / "test.de-en.gold", text())
        if name == EFLOMAL:
            return run_eflomal(text(), gold)
        if needs_links(name) and not text().links.is_file():
            run_eflomal(text(), gold)  # recorded before, and its links are gone
        return run_arm(name, wanted[name], text(), gold, run)

    return fill(
        options.results,
        wanted,
        [EFLOMAL, *ARMS],
        measure,
        told,
        (options.runs, options.data),
        (minutes or 0) + 1,  # one to measure
        options.again,
    )


@dataclass(frozen=True)
class Text:
    """What all arms see: pairs to train on, German first, and the test's; `folder` has their files and their links."""

    train: list[Pair]
    test: list[Pair]
    folder: Path

    @property
    def every(self) -> list[Pair]:
        """The test's sentences come last."""
        return [*self.train, *self.test]

    @property
    def links(self) -> Path:
        """Of every pair, once eflomal has run."""
        return self.folder / LINKS


def read_test(folder: Path) -> list[Pair]:
    """The test's pairs."""
    sides = [read_lines(folder / f"test.{language}") for language in ("de", "en")]
    return [Pair(*pair) for pair in zip(*sides, strict=True)]


def read_gold(path: Path, text: Text) -> Gold:
    """The links made by hand, but for those to words that a sentence does not have, which a `Gold` would refuse."""
    lines = path.read_text(encoding="utf-8").splitlines()
    kept = [" ".join(filter(partial(within, pair), line.split())) for line, pair in zip(lines, text.test, strict=True)]
    clean = text.folder / path.name
    clean.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")
    return Gold(clean, text.test)


def within(pair: Pair, link: str) -> bool:
    """Whether a sentence pair has both words of a link, sure (`0-0`) or possible (`0p0`, `0?0`)."""
    source, target = map(int, re.split(r"\D", link))
    return source < len(pair.source.split()) and target < len(pair.target.split())


def prepare(corpora: Sequence[Path], test: Sequence[Pair], count: int, runs: Path) -> Text:
    """The text of all arms; also written to `runs`, as `text.de` and `text.en`. Links of another text are deleted."""
    text = Text(spread([*usable(chain.from_iterable(map(read_lines, corpora)))], count), [*test], runs)
    runs.mkdir(parents=True, exist_ok=True)
    for side, language in enumerate(("de", "en")):
        path, lines = runs / f"text.{language}", "".join(f"{pair[side]}\n" for pair in text.every)
        if not path.is_file() or path.read_text(encoding="utf-8") != lines:
            text.links.unlink(missing_ok=True)
            path.write_text(lines, encoding="utf-8")
    return text


def usable(lines: Iterable[str]) -> Iterator[Pair]:
    """The pairs of TSV lines, English first, that are neither empty nor long, as the test writes them."""
    for line in lines:
        english, german = (" ".join(WORD.findall(side.lower())) for side in line.split("\t"))
        if english and german and max(len(side.split()) for side in (english, german)) <= LONGEST:
            yield Pair(german, english)


def run_eflomal(text: Text, gold: Gold) -> Result:
    """eflomal on the same sentences: its error rates, and its links, in a file, for the arms that are taught."""
    began = time.monotonic()
    both = list(align_both(text.every, eflomal_aligner()))
    seconds = time.monotonic() - began
    text.links.write_text("".join(f"{to_pharaoh(symmetrise(*found))}\n" for found in both))
    of_test = together(*zip(*both[-len(text.test) :], strict=True))
    rates = {name: 100 * gold.error_rate(found) for name, found in of_test.items()}
    return {"sentences": len(both), "seconds": round(seconds, 1), "error_rates": rates}


def config(recipe: str, settings: Iterable[str], links: Path) -> Values:
    """The whole configuration of an arm."""
    every = (setting.format(links=links) for setting in (*COMMON, *settings))
    return reduce(merge, map(assignment, every), sized({"model": {"recipe": recipe}}))


def run_arm(name: str, wanted: Result, text: Text, gold: Gold, run: running.Run) -> Result:
    """One arm: train through the command line, then measure."""
    folder, log = running.fresh(text.folder, name)
    options = ["--source", str(text.folder / "text.de"), "--target", str(text.folder / "text.en")]
    options += running.limit(wanted["minutes"], wanted["max_updates"])
    values = config(wanted["recipe"], wanted["settings"], text.links)
    running.train(values, options, running.checked(run, log), folder)
    result = {"sentences": len(text.every), **running.trained(folder), "perplexity": running.lowest_perplexity(folder)}
    shutil.rmtree(folder / "checkpoints", ignore_errors=True)
    if (folder / "forward").is_dir():
        return {**result, **measure_both(folder, text.test, gold)}
    silver = (text.train[:SILVER], read_links(text.links)[0][:SILVER]) if name == UNTAUGHT else None
    return {**result, "error_rates": measure(folder, text.test, gold, silver)}


def measure(
    folder: Path, test: Sequence[Pair], gold: Gold, silver: tuple[list[Pair], list[Links]] | None = None
) -> dict[str, float]:
    """Error rates in percent: of the model's own head under both readings, and of the head that `silver` prefers."""
    translator = sightline.load(folder)
    seen = list(align_corpus(translator, test))
    own = translator.config.alignment
    rates = {reading: rate(seen, own.model_copy(update={"reading": reading}), gold) for reading in READINGS}
    if silver is not None:
        pairs, links = silver
        sentences = [forced.sentence for forced in align_corpus(translator, pairs)]
        choice, _ = best_head(sentences, lambda found: alignment_error_rate(found, links))
        rates["chosen on eflomal's links"] = rate(seen, AlignmentConfig(**choice._asdict()), gold)
    return rates


def measure_both(folder: Path, test: Sequence[Pair], gold: Gold) -> Result:
    """Error rates in percent of two directions under both readings: the first alone, as of any arm, and both."""
    translators = [sightline.load(folder / name) for name in ("forward", "backward")]
    there = list(align_corpus(translators[0], test))
    back = list(align_corpus(translators[1], [Pair(pair.target, pair.source) for pair in test]))
    rates: dict[str, dict[str, float]] = {}
    for reading in READINGS:
        chosen = [one.config.alignment.model_copy(update={"reading": reading}) for one in translators]
        forward = [read_alignment(forced, chosen[0]) for forced in there]
        backward = [{(left, right) for right, left in read_alignment(forced, chosen[1])} for forced in back]
        rates[reading] = {name: 100 * gold.error_rate(found) for name, found in together(forward, backward).items()}
    return {"error_rates": {reading: found["forward"] for reading, found in rates.items()}, "together": rates}


def together(forward: Sequence[Links], backward: Sequence[Links]) -> dict[str, list[Links]]:
    """The links of two directions, alone and put together."""
    pairs = list(zip(forward, backward, strict=True))
    return {
        "forward": [*forward],
        "backward": [*backward],
        "intersection": [one & other for one, other in pairs],
        "grow-diag": [symmetrise(one, other) for one, other in pairs],
    }


def rate(seen: Sequence[Forced], alignment: AlignmentConfig, gold: Gold) -> float:
    """The error rate in percent of one reading."""
    return 100 * gold.error_rate([read_alignment(forced, alignment) for forced in seen])


def told(result: Result) -> str:
    """The most important figures."""
    both = result.get("together", {})
    rates = {**result["error_rates"], **{f"{reading}, both ways": both[reading]["intersection"] for reading in both}}
    return "alignment error rate " + ", ".join(f"{name} {value:.1f}" for name, value in rates.items())


if __name__ == "__main__":
    sys.exit(main())
