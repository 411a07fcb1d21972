"""How much a lexical shortlist should hold: chosen on validation text.

    python benchmarks/shortlist.py --data DIR --model MODEL

DIR holds the `.tok` files of Multi30k, MODEL is a Transformer of them (`benchmarks/multi30k_examples.py` trains one).
Shortlists are learnt from the training part, one of their numbers varied at a time. With each, and with the whole
vocabulary, the validation part is translated greedily and with a beam of 5, in turns. Time is that of the processors,
of all threads together, the least of the rounds, so that other work on the machine counts for little.

The rule for a number looks at the validation part alone. Of its values those will do whose lists have at least `SHARE`
of the tokens that the model writes without one; of these the one with the shortest lists. Neither BLEU nor time has a
say: what a shortlist does to them on a thousand sentences is within what any change does. The defaults in
`sightline.interop.shortlist` are what the rule gives. With them, test2016 is translated too. It is no held-out test of
them: `SHARE` was set when several bounds had been tried, and after shorter lists (98.3%) had lost 0.3 BLEU there with a
beam of 5.

Results go to `benchmarks/results/shortlist.json`, and from there into `docs/decoding/shortlist.md`.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import sightline
from benchmarks.speed.common import machine, say
from sightline import metrics
from sightline.data import Pair, read_pairs
from sightline.folder import ModelFiles, open_files
from sightline.interop import shortlist
from sightline.interop.shortlist import Shortlist
from sightline.interop.verified import shortlist_note, write_ctranslate2
from sightline.text import EOS
from sightline.translator import Translator

RESULTS = Path(__file__).parent / "results" / "shortlist.json"
PAGE = Path(__file__).parents[1] / "docs" / "decoding" / "shortlist.md"
MARKS = ("<!-- from benchmarks/results/shortlist.json -->\n", "<!-- to here -->\n")
SHARE = 0.985
BEAMS = (1, 5)
WHOLE = "whole vocabulary"


@dataclass(frozen=True)
class Numbers:
    """Those of a shortlist, as `sightline.interop.shortlist` describes them."""

    size: int = shortlist.SIZE
    frequent: int = shortlist.FREQUENT
    least: float = shortlist.LEAST

    def __str__(self) -> str:
        return ", ".join(f"{name} {value:g}" for name, value in asdict(self).items())


TRIED: dict[str, tuple[Any, ...]] = {
    "size": (10, 20, 50, 100),
    "frequent": (128, 256, 512, 1024),
    "least": (0.005, 0.02, 0.1, 0.5),
}


def tried() -> dict[str, list[Numbers]]:
    """The values of each number, all others being the defaults."""
    return {name: [replace(Numbers(), **{name: value}) for value in values] for name, values in TRIED.items()}


@dataclass(frozen=True)
class Arm:
    """A translator with a shortlist or without, and what it has come to: outputs and seconds of each round, by beam."""

    translator: Translator
    shortlist: Shortlist | None
    texts: dict[int, list[str]]
    ids: dict[int, list[list[int]]]
    seconds: dict[int, list[float]]

    def translate(self, sources: Sequence[str], beam: int) -> None:
        """One round."""
        began = time.process_time()
        found = self.translator.translate(sources, beam=beam, align=False, token_scores=False)
        self.seconds.setdefault(beam, []).append(time.process_time() - began)
        self.texts[beam], self.ids[beam] = [one.text for one in found], [one.ids for one in found]


def arms_of(files: ModelFiles, train: Sequence[Pair], wanted: Sequence[Numbers], folder: Path) -> dict[str, Arm]:
    """The whole vocabulary and a shortlist for each of the numbers, by name."""
    encoded = shortlist.encode(train, files.tokenizers)
    learnt = shortlist.learn_lexicon(encoded, files.tokenizers.target.size)
    arms = {}
    for place, one in enumerate(wanted):
        chosen = shortlist.choose(learnt, encoded, files.tokenizers, one.size, one.frequent, one.least)
        write_ctranslate2(files, folder / str(place), shortlist=chosen)
        arms[str(one)] = Arm(sightline.load(folder / str(place)), chosen, {}, {}, {})
        say(f"made: {one}")
    return {WHOLE: Arm(sightline.load(folder / "0", shortlist=False), None, {}, {}, {}), **arms}


def measure(arms: Mapping[str, Arm], pairs: Sequence[Pair], rounds: int) -> None:
    """All arms in turns; each round begins with another."""
    sources = [pair.source for pair in pairs]
    names = list(arms)
    for arm in arms.values():
        arm.translate(sources[:50], 1)  # what is done once should not count
        arm.seconds.clear()
    for number in range(rounds):
        first = number * len(names) // rounds
        for name in names[first:] + names[:first]:
            for beam in BEAMS:
                arms[name].translate(sources, beam)
            told = ", ".join(f"beam {beam} {arms[name].seconds[beam][-1]:.2f} s" for beam in BEAMS)
            say(f"round {number + 1}/{rounds}: {name}: {told}")


def figures(arm: Arm, whole: Arm, pairs: Sequence[Pair], files: ModelFiles) -> dict[str, Any]:
    """What is recorded of an arm: BLEU, speed, entries a sentence, and the share of the model's own tokens in them."""
    references = [pair.target for pair in pairs]
    result: dict[str, Any] = {}
    for beam in BEAMS:
        own, other = min(arm.seconds[beam]), min(whole.seconds[beam])
        result[f"beam {beam}"] = {
            "bleu": round(metrics.bleu(arm.texts[beam], references, "none").value, 2),
            "milliseconds": round(1000 * own / len(pairs), 3),
            "times_as_fast": round(other / own, 3),
        }
    result["times_as_fast"] = round(math.prod(result[f"beam {beam}"]["times_as_fast"] for beam in BEAMS) ** 0.5, 3)
    if arm.shortlist is not None:
        sources = [[*files.tokenizers.source.encode(pair.source), EOS] for pair in pairs]
        result["entries"] = round(sum(len(arm.shortlist.allowed(source)) for source in sources) / len(sources))
        result["share"] = round(arm.shortlist.share(zip(sources, whole.ids[max(BEAMS)], strict=True)), 4)
    return result


def chosen(rows: Sequence[Mapping[str, Any]]) -> float | None:
    """The value of one number by the rule above; None when none will do."""
    enough = [row for row in rows if row["share"] >= SHARE]
    return float(min(enough, key=lambda row: row["entries"])["value"]) if enough else None


def told(record: Mapping[str, Any]) -> str:
    """What the page says of a record."""
    lines = [
        "| tokens a source token brings (`--shortlist-size`) | entries a sentence | BLEU, greedy | times as fast "
        "| BLEU, beam 5 | times as fast |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    whole = record["val"][WHOLE]
    rows = [(WHOLE, {**whole, "entries": record["vocabulary"]})]
    rows += [(f"{row['value']:g}", row) for row in record["numbers"]["size"]["tried"]]
    for name, row in rows:
        cells = [f"{row[f'beam {beam}']['bleu']:.2f} | {row[f'beam {beam}']['times_as_fast']:.2f}" for beam in BEAMS]
        lines.append(f"| {name} | {row['entries']:,} | {' | '.join(cells)} |")
    test, before = (record["test2016"][name] for name in ("defaults", WHOLE))
    found = [
        f"{test[key]['times_as_fast']:.2f} times as fast {how}, {test[key]['bleu']:.2f} BLEU instead of "
        f"{before[key]['bleu']:.2f}"
        for key, how in (("beam 1", "greedily"), ("beam 5", "with a beam of 5"))
    ]
    after = f"On test2016, which was looked at when the 98.5% were set, the defaults were {found[0]}; {found[1]}."
    return "\n".join([*lines, "", after, "", "```", record["report"], "```", ""])


def with_record(page: str, record: Mapping[str, Any]) -> str:
    """The page with what a record says between its marks."""
    before, _, rest = page.partition(MARKS[0])
    _, _, after = rest.partition(MARKS[1])
    return f"{before}{MARKS[0]}{told(record)}{MARKS[1]}{after}"


def run(data: Path, model: Path, rounds: int, limit: int | None, folder: Path) -> dict[str, Any]:
    """Everything that is recorded."""
    parts = {
        part: read_pairs(*(data / f"{part}.tok.{side}.gz" for side in ("en", "de")))
        for part in ("train", "val", "test2016")
    }
    val, test = parts["val"][:limit], parts["test2016"][:limit]
    files, defaults, wanted = open_files(model), Numbers(), tried()
    different = list(dict.fromkeys([defaults, *(one for each in wanted.values() for one in each)]))
    arms = arms_of(files, parts["train"], different, folder)
    measure(arms, val, rounds)
    every = {name: figures(arm, arms[WHOLE], val, files) for name, arm in arms.items()}
    numbers: dict[str, Any] = {}
    for name, each in wanted.items():
        rows = [{"value": getattr(one, name), **every[str(one)]} for one in each]
        rule = chosen(rows)
        numbers[name] = {"default": getattr(defaults, name), "rule": rule, "tried": rows}
    own = arms[str(defaults)]
    assert own.shortlist is not None
    report = shortlist_note(own.shortlist, files, val, arms[WHOLE].ids[max(BEAMS)])
    ends = {WHOLE: replace(arms[WHOLE], seconds={}), "defaults": replace(own, seconds={})}
    measure(ends, test, rounds)
    return {
        "command": f"python benchmarks/shortlist.py --data DIR --model MODEL --rounds {rounds}",
        "machine": machine(),
        "rule": {"share": SHARE},
        "sentences": {"train": len(parts["train"]), "val": len(val), "test2016": len(test)},
        "vocabulary": files.tokenizers.target.size,
        "numbers": numbers,
        "val": {WHOLE: every[WHOLE], "defaults": every[str(defaults)]},
        "test2016": {name: figures(arm, ends[WHOLE], test, files) for name, arm in ends.items()},
        "report": report,
    }


def main() -> None:
    """Learns, translates in turns, chooses, records."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the .tok files")
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--limit", type=int, help="only so many sentences to translate, for a quick look; no record")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="shortlist-") as folder:
        record = run(options.data, options.model, options.rounds, options.limit, Path(folder))
    if options.limit is None:
        RESULTS.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        PAGE.write_text(with_record(PAGE.read_text(encoding="utf-8"), record), encoding="utf-8")
    print(told(record))
    for name, one in record["numbers"].items():
        print(f"{name:<12} default {one['default']}, by the rule {one['rule']}")


if __name__ == "__main__":
    main()
