"""Word alignment, German to English: attention as it is, taught, agreed upon and covered, and eflomal beside them.

    python benchmarks/alignment.py --data DIR --corpus europarl.en-de.tsv.gz [--corpus …] [--arms NAME,…] [--minutes 20]

DIR holds `test.de`, `test.en` and `test.de-en.gold`: lower-cased, tokenised sentences with links made by hand. A corpus
is a TSV file, English first. All arms, eflomal too, see the same sentences: the first `--pairs` of the corpora,
lower-cased and cut as the test is, and after them the test's sentences, never their links. Which head of an untaught
Transformer to read is chosen on eflomal's links of some training pairs, not on the test. Results go to
`benchmarks/results/alignment.json`, arm by arm, each with the command that makes it again. It takes about `--minutes`
for each arm, those that train two models included, and eflomal some minutes more: with the defaults about four hours.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import sightline
from benchmarks.speed.common import command, machine
from sightline.aligners import align_both, eflomal_aligner
from sightline.alignments import Gold, align_corpus
from sightline.config import AlignmentConfig
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
COMMON = ["data.max_length=120", "training.validate_bleu=0", "training.watch=0", "training.report=false"]
TAUGHT = ["data.alignments={links}"]
# The recipe of each arm, and what is set besides; "plain" is the twin of all others.
ARMS: dict[str, tuple[str, list[str]]] = {
    "plain-bahdanau": ("bahdanau", []),
    "plain-luong": ("luong", []),
    "plain-transformer": ("transformer", []),
    "coverage-bahdanau": ("bahdanau", ["model.attention.coverage=fertility"]),
    "biases-bahdanau": (
        "bahdanau",
        ["model.attention.position_bias=true", "model.attention.markov_bias=1", "model.attention.fertility_bias=1"],
    ),
    "agreement-bahdanau": ("bahdanau", ["training.agreement=1"]),
    "guided-bahdanau": ("bahdanau", TAUGHT),
    "guided-luong": ("luong", TAUGHT),
    "guided-transformer": ("transformer", TAUGHT),
    "guided-next-transformer": ("transformer", [*TAUGHT, "model.guided.reading=consumes"]),
    "guided-both-transformer": (
        "transformer",
        [*TAUGHT, "model.guided.reading=consumes", "training.agreement=0.1"],
    ),
}


def main() -> None:
    """Prepares the text, runs eflomal, then arm after arm."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of test.de, test.en and test.de-en.gold")
    parser.add_argument("--corpus", type=Path, action="append", required=True, help="TSV, English first; repeatable")
    parser.add_argument("--arms", default=",".join(["eflomal", *ARMS]))
    parser.add_argument("--pairs", type=int, default=120_000)
    parser.add_argument("--minutes", type=float, default=20.0, help="of training, each arm")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=Path, default=Path("runs/alignment"), help="where text and models go")
    options = parser.parse_args()
    chosen = options.arms.split(",")
    if unknown := {*chosen} - {"eflomal", *ARMS}:
        parser.error(f"unknown arms: {', '.join(sorted(unknown))}")
    print(f"about {len(chosen) * options.minutes:.0f} minutes", file=sys.stderr)
    test = read_test(options.data)
    text = prepare(options.corpus, test, options.pairs, options.runs)
    gold = Gold(options.data / "test.de-en.gold", test)
    needed = any("data.alignments" in setting for arm in chosen if arm in ARMS for setting in ARMS[arm][1])
    if "eflomal" in chosen or (needed and not (options.runs / LINKS).is_file()):
        record("eflomal", run_eflomal(text, test, gold, options.runs))
    for arm in chosen:
        if arm in ARMS:
            record(arm, run(arm, text, test, gold, options))


def read_test(folder: Path) -> list[Pair]:
    """The test's pairs."""
    sides = [read_lines(folder / f"test.{language}") for language in ("de", "en")]
    return [Pair(*pair) for pair in zip(*sides, strict=True)]


def prepare(corpora: Sequence[Path], test: Sequence[Pair], count: int, runs: Path) -> list[Pair]:
    """The text of all arms, German first; also written to `runs`, as `text.de` and `text.en`."""
    lines = chain.from_iterable(map(read_lines, corpora))
    text = [*islice(usable(lines), count), *test]
    runs.mkdir(parents=True, exist_ok=True)
    for side, language in enumerate(("de", "en")):
        (runs / f"text.{language}").write_text("".join(f"{pair[side]}\n" for pair in text), encoding="utf-8")
    return text


def usable(lines: Iterator[str]) -> Iterator[Pair]:
    """The pairs of TSV lines, English first, that are neither empty nor long, as the test writes them."""
    for line in lines:
        english, german = (" ".join(WORD.findall(side.lower())) for side in line.split("\t"))
        if english and german and max(len(side.split()) for side in (english, german)) <= LONGEST:
            yield Pair(german, english)


def run_eflomal(text: Sequence[Pair], test: Sequence[Pair], gold: Gold, runs: Path) -> dict[str, Any]:
    """eflomal on the same sentences: its error rates, and its links, in `runs`, for the arms that are taught."""
    began = time.monotonic()
    both = list(align_both(text, eflomal_aligner()))
    seconds = time.monotonic() - began
    (runs / LINKS).write_text("".join(f"{to_pharaoh(symmetrise(*found))}\n" for found in both))
    of_test = together(*zip(*both[-len(test) :], strict=True))
    rates = {name: 100 * gold.error_rate(found) for name, found in of_test.items()}
    return {"pairs": len(text), "seconds": round(seconds, 1), "error_rates": rates}


def run(
    arm: str, text: Sequence[Pair], test: Sequence[Pair], gold: Gold, options: argparse.Namespace
) -> dict[str, Any]:
    """One arm: train through the command line, then measure."""
    recipe, settings = ARMS[arm]
    folder = options.runs / arm
    settings = [*COMMON, *(setting.format(links=options.runs / LINKS) for setting in settings)]
    train = ["train", "--recipe", recipe, "--output", str(folder), "--max-minutes", str(options.minutes)]
    train += ["--source", str(options.runs / "text.de"), "--target", str(options.runs / "text.en")]
    for setting in settings:
        train += ["--set", setting]
    environment = {**os.environ, "OMP_NUM_THREADS": str(options.threads)}
    subprocess.run([sys.executable, "-m", "sightline", *train], check=True, env=environment)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    best = min((line for line in lines if line["kind"] == "validation"), key=lambda line: float(line["loss"]))
    result = {"pairs": len(text), "minutes": options.minutes, "threads": options.threads, "settings": ARMS[arm][1]}
    result |= {"updates": lines[-1]["step"], "perplexity": best["perplexity"]}
    silver = silver_links(options.runs / LINKS, text) if arm == "plain-transformer" else None
    if (folder / "forward").is_dir():
        return {**result, "error_rates": measure_both(folder, test, gold)}
    return {**result, "error_rates": measure(folder, test, gold, silver)}


def silver_links(path: Path, text: Sequence[Pair]) -> tuple[list[Pair], list[Links]] | None:
    """The first training pairs and eflomal's links of them, if it has run."""
    if not path.is_file():
        return None
    return [*text[:SILVER]], read_links(path)[0][:SILVER]


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


def measure_both(folder: Path, test: Sequence[Pair], gold: Gold) -> dict[str, float]:
    """Error rates in percent of two directions, alone and together, under both readings."""
    translators = [sightline.load(folder / name) for name in ("forward", "backward")]
    there = list(align_corpus(translators[0], test))
    back = list(align_corpus(translators[1], [Pair(pair.target, pair.source) for pair in test]))
    rates: dict[str, float] = {}
    for reading in READINGS:
        chosen = [one.config.alignment.model_copy(update={"reading": reading}) for one in translators]
        forward = [read_alignment(forced, chosen[0]) for forced in there]
        backward = [{(left, right) for right, left in read_alignment(forced, chosen[1])} for forced in back]
        for name, found in together(forward, backward).items():
            rates[f"{reading}, {name}"] = 100 * gold.error_rate(found)
    return rates


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


def record(arm: str, result: dict[str, Any]) -> None:
    """Puts one arm's result into the file, the others staying as they are."""
    path = RESULTS / "alignment.json"
    everything = json.loads(path.read_text()) if path.exists() else {}
    everything[arm] = {**result, "command": command(), "machine": machine()}
    path.write_text(json.dumps(everything, indent=1) + "\n")
    rates = ", ".join(f"{name} {value:.1f}" for name, value in result["error_rates"].items())
    print(f"{arm}: alignment error rate {rates}")


if __name__ == "__main__":
    main()
