"""Copying, English to German: names, numbers and unseen words that must be copied, and whether they are.

    python benchmarks/copying.py --data DIR [--arms NAME,…] [--pairs 20000] [--minutes 5] [--threads 1] [--again]
    python benchmarks/copying.py --tables

DIR holds `tatoeba/train.en-de.tsv.gz`, `tatoeba/test-a.en-de.tsv.gz` and `europarl/ep.en-de.test.tsv.gz`. Every arm is
trained through the command line on the same pairs of Tatoeba, taken evenly, from the same seed, for the same minutes,
with the sizes that the atlas gives its recipe. Words and punctuation are apart, and but for the arms with subwords,
which are there to compare with, the vocabulary is the 4,000 most frequent words of both languages: most names and
numbers are not in it. Then all arms translate two tests with the same beam: Tatoeba's, which shares no sentence with
the training pairs, and Europarl's, of sides of at most 30 words. Nobody trained on Europarl: much of it is unseen.

What is measured, in each test:

words      Runs of letters and digits; marks do not count, and nor does `<unk>`. Upper and lower case differ.
to copy    Words of the source that stand in the reference too, letter by letter, and are of a kind below. What
           stands twice in both is to be copied twice: of each word the smaller of the two counts.
numbers    To copy, and with a digit.
names      To copy, without a digit, with a capital first and not at the beginning of a sentence, which is the start
           of the line or what follows one of . ! ? : or a quotation mark (so the name after "Mr." is no name here).
unseen     To copy, and not in the vocabulary of 4,000 words; most are names or numbers as well. The same words for
           all arms, whatever their own vocabulary.
all        To copy, and of at least one of these kinds.
recall     The percentage of what is to copy that the output has, counted as above. Where in the output does not matter.
precision  Of the words of the output that are not among the 4,000, the percentage that stand in the source: the rest
           was made up, or spelled wrong, or is a rare word of German that a model with subwords knows. A model with
           words that does not copy has no such words.
unknown    The percentage of the output's words that are `<unk>`.

BLEU (`tokenize=none`, on words and marks with spaces between) and chrF stand beside. One seed and five minutes: small
differences may be luck, and there are few numbers in Tatoeba's test.

Results go to `benchmarks/results/copying.json`, arm by arm as soon as each is done, with the command that makes them
again; arms that are recorded with the same settings are left out, so that a run that was broken off goes on, and
`--again` trains them too. An arm that fails is recorded with its reason, the others go on, and the exit code is 1. The
tables beside it, `copying.md`, are written from the record, with `--tables` that alone. With the defaults this takes
`arms * (minutes + 2)`, an hour and a quarter.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cache, reduce
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.mechanisms import running
from benchmarks.mechanisms.entries import Values, sized
from benchmarks.mechanisms.material import divide, read_pairs, spaced, spread
from benchmarks.mechanisms.records import Result, divided, fill, made_otherwise, told_budget, write_page
from benchmarks.readme_tables import paragraph, table
from sightline.config import TextConfig, assignment, merge
from sightline.files import write_text
from sightline.metrics import bleu, chrf
from sightline.readers import Pair
from sightline.text import train_tokenizer
from sightline.tokenizers import SPECIAL_PIECES, UNKNOWN, normalise

RESULTS = Path(__file__).parent / "results" / "copying.json"
CORPUS = Path("tatoeba") / "train.en-de.tsv.gz"
TESTS = {
    "tatoeba": Path("tatoeba") / "test-a.en-de.tsv.gz",
    "europarl": Path("europarl") / "ep.en-de.test.tsv.gz",
}
TITLES = {"tatoeba": "Tatoeba", "europarl": "Europarl, which nobody trained on"}
LONGEST = 30  # words and marks of a side of a test
KINDS = ("all", "names", "numbers", "unseen")
ALIKE = ("pairs", "held_out", "minutes", "max_updates", "threads", "tested", "beam", "machine")
BEFORE_SENTENCES = frozenset(".!?:…\"'„“”‚‘’«»‹›")
MISSING = UNKNOWN.decode()


def arm(recipe: str, copying: Values | None = None, tokenizer: str = "word") -> Values:
    """A whole configuration: what the atlas's arms share, and how this one copies."""
    model = {"recipe": recipe, **({"copying": copying} if copying else {})}
    return sized({"text": {"tokenizer": tokenizer}, "model": model})


POINTING: Values = {"kind": "pointer_generator"}
# The arms with words that do not copy are the twins of those that do. Those that do also neither learn nor write
# `<unk>`, and hide words for practice: two arms lack these, the second of them differs from its twin in copying alone.
ARMS = {
    "bahdanau-words": arm("bahdanau"),
    "bahdanau-pointer-generator": arm("bahdanau", POINTING),
    "bahdanau-pointer-generator-no-practice": arm("bahdanau", {**POINTING, "practice": 0.0}),
    "bahdanau-pointer-generator-unknown": arm("bahdanau", {**POINTING, "practice": 0.0, "unknown": True}),
    "bahdanau-copynet": arm("bahdanau", {"kind": "copynet"}),
    "bahdanau-subwords": arm("bahdanau", tokenizer="bpe"),
    "transformer-words": arm("transformer"),
    "transformer-pointer-generator": arm("transformer", POINTING),
    "transformer-copynet": arm("transformer", {"kind": "copynet", "selective_read": False}),
    "transformer-copy-head": arm("transformer", {"kind": "copy_head"}),
    "transformer-subwords": arm("transformer", tokenizer="bpe"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Makes the data, trains, measures, records and writes the tables; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of tatoeba/ and europarl/")
    parser.add_argument("--arms", default=",".join(ARMS))
    parser.add_argument("--minutes", type=float, default=5.0, help="of training, each arm")
    parser.add_argument("--updates", type=int, help="end after so many updates instead")
    parser.add_argument("--pairs", type=int, default=20_000, help="of Tatoeba to train on")
    parser.add_argument("--held-out", type=int, default=1_000, help="pairs of Tatoeba to validate on")
    parser.add_argument("--tested", type=int, default=5_000, help="most pairs of each test")
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--again", action="store_true", help="train arms that are recorded too")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="for every arm; repeatable")
    parser.add_argument("--runs", type=Path, default=Path("runs/copying"), help="where text and models go")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--tables", action="store_true", help="only write the tables")
    options = parser.parse_args(arguments)
    chosen = options.arms.split(",")
    if unknown := sorted({*chosen} - {*ARMS}):
        parser.error(f"--arms: unknown {', '.join(unknown)}; there are {', '.join(ARMS)}")
    if not options.tables and options.data is None:
        parser.error("give --data DIR to train, or --tables to write the tables alone")
    try:
        return 0 if options.tables else train(chosen, options)
    finally:  # also when a run is broken off: what is recorded is worth a look
        write_page(options.results, tables)


# Words


def cut(text: str) -> list[str]:
    """Words and marks; `<unk>` stays whole."""
    parts = normalise(text, "nfc", lowercase=False).split()
    return [piece for part in parts for piece in ([part] if part == MISSING else spaced(part).split())]


def is_word(piece: str) -> bool:
    """Whether it is neither a mark nor `<unk>`."""
    return piece != MISSING and any(character.isalnum() for character in piece)


def is_number(word: str) -> bool:
    """Whether there is a digit in it."""
    return any(character.isdigit() for character in word)


def within_sentences(pieces: Sequence[str]) -> list[str]:
    """The words before which another stands in the same sentence: their capitals mean something."""
    found, begun = [], False
    for piece in pieces:
        if is_word(piece):
            found += [piece] * begun
            begun = True
        elif piece in BEFORE_SENTENCES:
            begun = False
    return found


def to_copy(source: Sequence[str], reference: Sequence[str], known: AbstractSet[str]) -> dict[str, Counter[str]]:
    """For each kind, the words of the source that the output has to have, and how many times each."""
    words = [piece for piece in source if is_word(piece)]
    kinds = {
        "names": [word for word in within_sentences(source) if word[0].isupper() and not is_number(word)],
        "numbers": [word for word in words if is_number(word)],
        "unseen": [word for word in words if word not in known],
    }
    both = Counter(words) & Counter(reference)
    found = {kind: Counter(of_kind) & both for kind, of_kind in kinds.items()}
    # A word of several kinds counts once.
    return {"all": found["names"] | found["numbers"] | found["unseen"], **found}


def copies(triples: Iterable[tuple[str, str, str]], known: AbstractSet[str]) -> Result:
    """Recall of each kind, precision and the share of `<unk>`, of sources, references and outputs."""
    needed, hit = Counter[str](), Counter[str]()
    beyond = true = unknown = written = 0
    for source, reference, output in triples:
        given, wanted, made = cut(source), cut(reference), cut(output)
        have = Counter(made)
        for kind, words in to_copy(given, wanted, known).items():
            needed[kind] += words.total()
            hit[kind] += (words & have).total()
        strange = [word for word in made if is_word(word) and word not in known]
        beyond += len(strange)
        true += sum(word in given for word in strange)
        unknown += have[MISSING]
        written += have[MISSING] + sum(map(is_word, made))
    return {
        "to_copy": {kind: needed[kind] for kind in KINDS},
        "recall": {kind: percentage(hit[kind], needed[kind]) for kind in KINDS},
        "outside": beyond,
        "precision": percentage(true, beyond),
        "unknown": percentage(unknown, written),
    }


def percentage(part: int, whole: int) -> float | None:
    """With one digit after the point; None of nothing."""
    return round(100 * part / whole, 1) if whole else None


# The data


@dataclass(frozen=True)
class Text:
    """What all arms are trained and tested on: the options that name their files, the tests, and known words."""

    options: list[str]
    tests: Mapping[str, list[Pair]]
    known: AbstractSet[str]


def make_text(data: Path, folder: Path, pairs: int, held_out: int, tested: int) -> Text:
    """Writes `train.tsv` and `valid.tsv`, and `NAME.source` of each test, all with spaces between words and marks."""
    for name in (CORPUS, *TESTS.values()):
        if not (data / name).is_file():
            sys.exit(f"--data {data}: there is no {name} in it")
    folder.mkdir(parents=True, exist_ok=True)
    parts = divide(read_pairs(data / CORPUS), pairs, held_out)
    options = []
    for part, option in (("train", "--pairs"), ("valid", "--valid-pairs")):
        write_text(folder / f"{part}.tsv", "".join("\t".join(apart(pair)) + "\n" for pair in parts[part]))
        options += [option, str(folder / f"{part}.tsv")]
    tests = {}
    for name, path in TESTS.items():
        every = [apart(pair) for pair in read_pairs(data / path)]
        short = [pair for pair in every if all(1 <= len(side.split()) <= LONGEST for side in pair)]
        tests[name] = spread(short, tested)
        write_text(folder / f"{name}.source", "".join(f"{pair.source}\n" for pair in tests[name]))
    return Text(options, tests, vocabulary([apart(pair) for pair in parts["train"]]))


def apart(pair: Pair) -> Pair:
    """A pair with spaces between words and marks."""
    return Pair(*(" ".join(cut(side)) for side in pair))


def vocabulary(pairs: Iterable[Pair]) -> frozenset[str]:
    """The words that the arms with words know: the program itself chooses the most frequent."""
    config = TextConfig.model_validate(ARMS["bahdanau-words"]["text"])
    assert config.vocabulary is not None
    tokenizer = train_tokenizer((side for pair in pairs for side in pair), config, config.vocabulary)
    return frozenset(tokenizer.names(range(len(SPECIAL_PIECES), tokenizer.size)))


# The arms


def train(chosen: Sequence[str], options: argparse.Namespace) -> int:
    """Trains, measures and records arm after arm; 1 if one failed."""
    minutes = options.minutes if options.updates is None else None
    budget = running.Budget(options.pairs, options.held_out, minutes, options.updates, options.threads)
    changes: Values = reduce(merge, map(assignment, options.set), {})
    configs = {name: merge(ARMS[name], changes) for name in chosen}
    more = {"tested": options.tested, "beam": options.beam}
    run = running.commands(options.threads)

    @cache
    def text() -> Text:
        return make_text(options.data, options.runs, options.pairs, options.held_out, options.tested)

    def measure(name: str) -> Result:
        return run_arm(name, configs[name], text(), budget, options.beam, run, options.runs)

    wanted = {name: {**running.settings(config, budget), **more} for name, config in configs.items()}
    folders = (options.runs, options.data)
    return fill(options.results, wanted, [*ARMS], measure, told, folders, (minutes or 0) + 2, options.again)


def run_arm(
    name: str, config: Values, text: Text, budget: running.Budget, beam: int, run: running.Run, runs: Path
) -> Result:
    """Trains an arm, lets it translate the tests, and measures."""
    folder, log = running.fresh(runs, name)
    sure = running.checked(run, log)
    running.train(config, [*text.options, *budget.limit], sure, folder)
    result = running.trained(folder)
    for test, pairs in text.tests.items():
        output = runs / f"{name}.{test}.txt"
        # One engine for all: the faster one has no copying.
        search = ["--beam", str(beam), "--engine", "pytorch", "--output", str(output)]
        sure(["translate", str(folder), str(runs / f"{test}.source"), *search])
        outputs = output.read_text(encoding="utf-8").splitlines()
        result[test] = measured(pairs, outputs, text.known)
    shutil.rmtree(folder / "checkpoints", ignore_errors=True)
    return result


def measured(pairs: Sequence[Pair], outputs: Sequence[str], known: AbstractSet[str]) -> Result:
    """All figures of one test."""
    made = [" ".join(cut(output)) for output in outputs]
    references = [pair.target for pair in pairs]
    triples = ((pair.source, pair.target, output) for pair, output in zip(pairs, made, strict=True))
    scores = {"bleu": bleu(made, references, "none"), "chrf": chrf(made, references)}
    return {
        "sentences": len(pairs),
        **{score: {"value": found.value, "signature": found.signature} for score, found in scores.items()},
        **copies(triples, known),
    }


def told(result: Result) -> str:
    """The most important figures."""
    found = ", ".join(f"{result[test]['recall']['all']}% of {test}'s words to copy" for test in TESTS)
    return f"{found}, {result['updates']} updates"


# The tables


def tables(record: Mapping[str, Result]) -> str:
    """A table of each test, from the record alone."""
    done, failed = divided(record)
    parts = ["# Copying"]
    if done:
        parts.append(paragraph(about(next(iter(done.values())))))
        parts += map(paragraph, made_otherwise(done, ALIKE))
    for test, title in TITLES.items() if done else ():
        first = next(iter(done.values()))[test]
        heads = ["arm", "BLEU", "chrF", *(f"{kind}, of {first['to_copy'][kind]:,}" for kind in KINDS)]
        heads += ["precision", "words outside", "`<unk>`"]
        rows = [[f"`{name}`", *cells(result[test])] for name, result in done.items()]
        parts += [f"## {title}: {first['sentences']:,} sentences", table(heads, rows, len(heads) - 1)]
    parts += [paragraph(one) for one in failed]
    return "\n\n".join(parts) + "\n"


def about(result: Result) -> str:
    """How the arms were made, and what stands in the columns."""
    return (
        f"{result['pairs']:,} pairs of Tatoeba, English to German, {told_budget(result)} "
        f"({result['machine']['cpu']}), one seed, beam "
        f"{result['beam']}. Percentages: of the words that are to be copied those that the output has, by kinds; of "
        "its words outside the vocabulary those that stand in the source (precision); of all its words `<unk>`. "
        "With one seed a small difference may be luck. `benchmarks/copying.py` says at its top what counts as what; "
        f"[the record](copying.json), made again by `{result['command']}`."
    )


def cells(found: Result) -> list[str]:
    """A row of figures."""
    shares = [found["recall"][kind] for kind in KINDS]
    numbers = [found["bleu"]["value"], found["chrf"]["value"], *shares, found["precision"]]
    return [*map(figure, numbers), f"{found['outside']:,}", figure(found["unknown"])]


def figure(value: float | None) -> str:
    """With one digit after the point, or a dash."""
    return "–" if value is None else f"{value:.1f}"


if __name__ == "__main__":
    sys.exit(main())
