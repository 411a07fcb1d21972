"""How good, how fast and how large the models are that come with Sightline.

    python benchmarks/bundled_models.py --data DATA [--rounds 5] [--results FILE]

DATA holds `tatoeba/test-a.en-de.tsv.gz`, lines of English, tab, German: every other sentence of the Tatoeba Challenge's
test of 2020-07-28. Each model translates one side of it into the other, greedily and with its own beam, text in, text
out; with the PyTorch engine its beam once. The seconds to a first translation are those of a process from its start to
its end, with the files in the system's memory already. `times` counts how many times of the day come out right, each
quarter of an hour in two sentences: English with am and pm, German of 24 hours. `half_hours` counts those in words,
where half past seven is halb acht. Results go to `benchmarks/results/bundled_models.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.speed.common import command, machine, say
from examples.bundled.spoken import numeral
from sightline import metrics
from sightline.bundled_models import bundled_models
from sightline.data import Pair, read_pairs
from sightline.translator import Translator, load

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "bundled_models.json"
FIRST = {"en-de": "Where is the station?", "de-en": "Wo ist der Bahnhof?"}


TIMED = {
    "en-de": ("The meeting is at {}.", "He came home at {}."),
    "de-en": ("Die Besprechung ist um {} Uhr.", "Er kam um {} Uhr nach Hause."),
}


# Two sentences that the scripts in examples/bundled do not make, and hours from one to twelve.
HALVES = {
    "en-de": ("The concert begins at half past {}.", "We eat at half past {}."),
    "de-en": ("Das Konzert beginnt um halb {}.", "Wir essen um halb {}."),
}


def told_halves(translator: Translator, name: str) -> dict[str, int]:
    """How many half hours in words are asked, and how many are right."""
    into_german = name == "en-de"
    asked = [(hour, line) for hour in range(1, 13) for line in HALVES[name]]
    texts = [line.format(numeral(hour)[0 if into_german else 1]) for hour, line in asked]
    found = [one.text for one in translator.translate(texts, align=False, token_scores=False)]
    wanted = [
        f"halb {numeral(hour % 12 + 1)[1]}" if into_german else f"half past {numeral((hour - 2) % 12 + 1)[0]}"
        for hour, _ in asked
    ]
    right = sum(one in text for one, text in zip(wanted, found, strict=True))
    return {"asked": len(asked), "right": right}


def told_times(translator: Translator, name: str) -> dict[str, int]:
    """How many times of the day are asked, and how many are right."""
    asked = [(hour, minute, line) for hour in range(24) for minute in (0, 15, 30, 45) for line in TIMED[name]]
    into_german = name == "en-de"
    texts = [
        line.format(of_halves(hour, minute) if into_german else f"{hour}:{minute:02}") for hour, minute, line in asked
    ]
    found = [one.text for one in translator.translate(texts, align=False, token_scores=False)]
    right = sum(tells(text, hour, minute) for text, (hour, minute, _) in zip(found, asked, strict=True))
    return {"asked": len(asked), "right": right}


def of_halves(hour: int, minute: int) -> str:
    """A time as English writes it."""
    return f"{hour % 12 or 12}:{minute:02} {'am' if hour < 12 else 'pm'}"


def tells(text: str, hour: int, minute: int) -> bool:
    """Whether a text has that time of the day and no other, of 24 hours or with its half."""
    half = "p" if hour >= 12 else "a"
    times = [rf"0?{hour}[:.]{minute:02}(?! ?[ap]\.?m)", rf"{hour % 12 or 12}[:.]{minute:02} ?{half}\.?m"]
    times += [rf"{hour} Uhr", rf"{hour % 12 or 12} ?{half}\.?m"] if minute == 0 else []
    pattern = rf"(?<![\d:.])(?:{'|'.join(times)})(?!\d)"
    return bool(re.search(pattern, text, re.IGNORECASE)) and len(re.findall(r"\d[\d:.]*\d|\d", text)) == 1


def translated(translator: Translator, pairs: Sequence[Pair], beam: int) -> dict[str, Any]:
    """Scores of one pass over the test, and its sentences a second."""
    sources, references = [pair.source for pair in pairs], [pair.target for pair in pairs]
    translator.translate(sources[:50], beam=beam, align=False, token_scores=False)  # memory and kernels
    began = time.monotonic()
    found = [one.text for one in translator.translate(sources, beam=beam, align=False, token_scores=False)]
    seconds = time.monotonic() - began
    scores = {"BLEU": metrics.bleu(found, references), "chrF": metrics.chrf(found, references)}
    told = {name: {"value": round(one.value, 2), "signature": one.signature} for name, one in scores.items()}
    return {"beam": beam, "sentences_per_second": round(len(pairs) / seconds, 1), **told}


def first_translation(name: str) -> float:
    """Seconds of a process that translates one sentence."""
    line = [sys.executable, "-m", "sightline", "translate", name]
    began = time.monotonic()
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run(line, input=FIRST[name] + "\n", text=True, check=True, stdout=subprocess.DEVNULL, env=environment)
    return time.monotonic() - began


def measured(name: str, folder: Path, pairs: Sequence[Pair], rounds: int) -> dict[str, Any]:
    """All about one model."""
    fast, slow = load(folder), load(folder, engine="pytorch")
    beam = fast.config.search.beam
    passes = {
        "greedy": translated(fast, pairs, 1),
        "beam": translated(fast, pairs, beam),
        "pytorch": translated(slow, pairs, beam),
    }
    passes["times"], passes["half_hours"] = told_times(fast, name), told_halves(fast, name)
    _, *seconds = (round(first_translation(name), 3) for _ in range(rounds + 1))
    size = sum(path.stat().st_size for path in folder.iterdir())
    right = f"{passes['times']['right']} times and {passes['half_hours']['right']} half hours right"
    say(f"{name}: {right}, first translation {statistics.median(seconds)} s")
    say(f"{name}: BLEU {passes['beam']['BLEU']['value']}, chrF {passes['beam']['chrF']['value']}")
    return {"bytes": size, "first_translation": {"median": statistics.median(seconds), "seconds": seconds}, **passes}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures and records."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=5, help="first translations of each model")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    pairs = read_pairs(pairs=options.data / "tatoeba" / "test-a.en-de.tsv.gz")
    turned = {"en-de": pairs, "de-en": [Pair(target, source) for source, target in pairs]}
    models = {
        name: measured(name, folder, turned[name], options.rounds)
        for name, folder in bundled_models().items()
        if name in turned
    }
    about = {"command": command(), "machine": machine(), "sentences": len(pairs)}
    options.results.write_text(json.dumps({**about, "models": models}, indent=1) + "\n")


if __name__ == "__main__":
    main()
