"""How quiet and how awake the detector of bad translations is, and where its thresholds come from.

    python benchmarks/failures.py --data DIR --model MODEL

DIR holds the `.tok` files of Multi30k, MODEL is a model of them (`benchmarks/multi30k_examples.py` trains one). The
model translates the validation part. Of every translation four bad ones are made: looped (a phrase of it again and
again), truncated (its first third), copied (the source, a word in six translated), gapped (the third in its middle is
missing); the model reads them, so that they have its attention and its log-probabilities. Gapped ones set no threshold.

The rule for a threshold looks at the validation part alone. A value is quiet if its checks flag at most `QUIET` of what
is sound: of the references for checks that read text; for checks that read attention or probabilities of the
translations, with the attention of all layers and with that of each. Of the values tried, those count that are quiet
with the next one, so that there is room; of these the one that finds most of the damage it is there for; of values that
find as much, to a hundredth, the quietest. One threshold is varied at a time. The defaults of
`sightline.failures.Thresholds` that are tried here are what the rule gives, but for `repeated_characters`: captions do
not laugh, and "ha ha" is no loop, so it stays at 6. (`shortest` and `longest` are for data of which nothing was learnt,
and no one language pair can set them.) The shares of all checks at the defaults are then taken on both parts; test2016
had no say in them.

Results go to `benchmarks/results/failures.json`.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import sightline
from benchmarks.speed.common import machine
from sightline.config import AlignmentConfig
from sightline.data import Pair, read_pairs
from sightline.expectations import learn
from sightline.failures import CHECKS, Expectations, Thresholds, detect
from sightline.translation import Translation
from sightline.translator import Translator

RESULTS = Path(__file__).parent / "results" / "failures.json"
QUIET = 0.002
DAMAGES = ("looped", "truncated", "copied")
GAPPED = "gapped"
LEAST_WORDS = 6  # of a translation that is worth damaging


@dataclass(frozen=True)
class Tried:
    """Values of a threshold from the quietest on, its check, the damage that it is for, and what must stay quiet."""

    values: tuple[float, ...]
    check: str
    damages: tuple[str, ...]
    sound: str = "references"


TRIED = {
    "repeats": Tried((6, 5, 4, 3, 2), "loop", ("looped",)),
    "repeated_characters": Tried((12, 9, 6, 4, 2), "loop", ("looped",)),
    "dropped": Tried((0.6, 0.5, 0.4, 0.35, 0.3, 0.25, 0.2), "dropped", ("truncated",), "translations"),
    "copied": Tried((0.95, 0.85, 0.75, 0.65, 0.5, 0.4), "copied", ("copied",)),
    "foreign": Tried((0.8, 0.65, 0.5, 0.4, 0.3, 0.2), "language", ("copied",)),
    "log_prob": Tried((-3.0, -2.6, -2.3, -2.0, -1.7, -1.4, -1.1), "unsure", DAMAGES, "translations"),
    "scattered": Tried((0.95, 0.9, 0.85, 0.8, 0.75, 0.7), "scattered", DAMAGES, "translations"),
}
Sets = dict[str, list[Translation]]


def damaged(one: Translation, kind: str, generator: random.Random) -> str:
    """The text of a translation made bad."""
    words = one.text.split()
    if kind == "copied":
        ours = dict(enumerate(words))
        own = enumerate(one.source.split())
        return " ".join(ours.get(place, word) if generator.random() < 1 / 6 else word for place, word in own)
    if kind == "truncated":
        return " ".join(words[: len(words) // 3])
    if kind == GAPPED:
        third = len(words) // 3
        return " ".join([*words[:third], *words[2 * third :]])
    size = generator.randint(1, 4)
    start = generator.randint(0, len(words) - size)
    return " ".join([*words[:start], *words[start : start + size] * generator.randint(3, 6)])


def read(
    translator: Translator, pairs: Sequence[tuple[str, str | list[int]]], alignments: Sequence[AlignmentConfig]
) -> list[Translation]:
    """Given translations, as text or ids, as the model sees them: once with the attention of each of `alignments`."""
    result = []
    for (source, target), seen in zip(pairs, translator.force(pairs), strict=True):
        text = target if isinstance(target, str) else translator.files.tokenizers.target.decode(target)
        tokens = [str(place) for place in range(len(seen.token_log_probs) - 1)]
        plain = Translation(source, text, 0.0, sum(seen.token_log_probs), [], tokens, seen.token_log_probs, True)
        plain = replace(plain, words=seen.target_words, source_words=seen.source_words)
        result += [replace(plain, weights=seen.word_weights(alignment)) for alignment in alignments]
    return result


def sets(translator: Translator, pairs: Sequence[Pair]) -> Sets:
    """References, translations of the pairs' sources (also with the attention of each layer), and what damage makes."""
    own, layers = translator.config.alignment, translator.config.model.decoder.layers or 0
    sound = translator.translate([pair.source for pair in pairs])
    generator = random.Random(1)
    worth = [one for one in sound if len(one.text.split()) >= LEAST_WORDS]
    bad = {kind: [(one.source, damaged(one, kind, generator)) for one in worth] for kind in (*DAMAGES, GAPPED)}
    each = [AlignmentConfig(layer=layer) for layer in range(layers)]
    seen = read(translator, [(one.source, one.ids) for one in sound], each)
    views = {f"layer {layer}": seen[layer::layers] for layer in range(layers)}
    references = [Translation(*pair, 0.0, 0.0, [], [], [], True) for pair in pairs]
    damage = {kind: read(translator, made, [own]) for kind, made in bad.items()}
    return {"references": references, "translations": sound, **damage, **views}


def flagged(translations: Sequence[Translation], check: str, expected: Expectations) -> float:
    """The share that a check flags."""
    return sum(CHECKS[check](one, expected) is not None for one in translations) / len(translations)


def sweep(name: str, given: Sets, expected: Expectations) -> list[dict[str, float]]:
    """What every value of a threshold flags of what is sound, at worst, and of what is damaged."""
    tried, rows = TRIED[name], []
    views = [given[tried.sound]]
    if tried.sound == "translations":
        views += [each for kind, each in given.items() if kind.startswith("layer ")]
    bad = [one for kind in tried.damages for one in given[kind]]
    for value in tried.values:
        kind = type(getattr(Thresholds(), name))
        own = replace(expected, thresholds=replace(Thresholds(), **{name: kind(value)}))
        quiet = max(flagged(each, tried.check, own) for each in views)
        rows.append(
            {"value": kind(value), "sound": round(quiet, 4), "damaged": round(flagged(bad, tried.check, own), 4)}
        )
    return rows


def chosen(rows: Sequence[dict[str, float]]) -> float | None:
    """By the rule above; None when no value is quiet enough."""
    quiet = [row for row, after in pairwise(rows) if after["sound"] <= QUIET]
    most = max((row["damaged"] for row in quiet), default=0.0)
    return next((row["value"] for row in quiet if row["damaged"] >= most - 0.01), None)


def shares(translations: Sequence[Translation], expected: Expectations) -> dict[str, float]:
    """The share that each check flags, and that any does."""
    found = [{flag.name for flag in detect(one, expected)} for one in translations]
    counts = Counter(name for names in found for name in names)
    every = {name: counts[name] / len(found) for name in CHECKS}
    return {name: round(share, 4) for name, share in {**every, "any": sum(map(bool, found)) / len(found)}.items()}


def main() -> None:
    """Translates, damages, tries and records."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the .tok files")
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--limit", type=int, help="only so many sentences of each part, for a quick look")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    translator = sightline.load(options.model)
    parts = {
        part: read_pairs(*(options.data / f"{part}.tok.{side}.gz" for side in ("en", "de")))[: options.limit]
        for part in ("val", "test2016")
    }
    expected = learn(parts["val"])
    given = sets(translator, parts["val"])
    sweeps = {name: sweep(name, given, expected) for name in TRIED}
    defaults = {one.name: one.default for one in fields(Thresholds)}
    result: dict[str, Any] = {
        "command": "python benchmarks/failures.py --data DIR --model MODEL",
        "machine": machine(),
        "sentences": {part: len(pairs) for part, pairs in parts.items()},
        "quiet": QUIET,
        "thresholds": {
            name: {"default": defaults[name], "rule": chosen(rows), "tried": rows} for name, rows in sweeps.items()
        },
        "shares": {},
    }
    for part, pairs in parts.items():
        every = given if part == "val" else sets(translator, pairs)
        shown = ("references", "translations", *DAMAGES, GAPPED)
        result["shares"][part] = {name: shares(every[name], expected) for name in shown}
        print(json.dumps({part: result["shares"][part]}), flush=True)
    for name, one in result["thresholds"].items():
        print(f"{name:<20} default {one['default']}, by the rule {one['rule']}")
    options.results.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
