"""The atlas of attention: every mechanism trained beside its twin without it, and the pages that tell of them.

    python benchmarks/atlas.py --data DIR [--only NAME,…] [--minutes 5] [--pairs 20000] [--threads 1] [--again]
    python benchmarks/atlas.py --pages [--check]
    python benchmarks/atlas.py --inflection RUNS

DIR holds Tatoeba's `train.en-de.tsv.gz`. Of it `--pairs` are taken evenly to train on, and `--held-out` each to
validate and to test, which share no sentence with them. Each distinct arm is trained once through the command line, for
the same minutes, on the same text, from the same seed; pages share arms. `--only` names pages or arms. An arm's figures
go to `benchmarks/results/atlas.json` as soon as it is done, with the command that makes them again, and its heat-map to
`docs/attention/heat-maps`. Arms that are recorded with the same settings are left out, so that a run that was broken
off goes on; `--again` trains them too. An arm that fails is recorded with its reason, the others go on, and the exit
code is 1. At the end, and with `--pages` alone, `docs/attention` is written anew; `--check` only compares.

`--list` names the arms, and what is left to do. With the defaults an arm takes about six minutes, five to train. On
two processors two runs side by side, with other `--only` and another `--runs`, do it in half the time; both fill one
record. `--inflection` draws the heat-maps of the models that `benchmarks/inflection.py` left in RUNS.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.mechanisms.entries import Atlas, Page, read_atlas
from benchmarks.mechanisms.records import ROOT, Result, fill, read_record, told_time
from benchmarks.mechanisms.rendering import MAPS, RECORD, picture_of, read_records, render
from benchmarks.speed.common import say

RESULTS = ROOT / "benchmarks" / "results"
DOCS = ROOT / "docs" / "attention"
FORMS = 2  # of inflection's test that are drawn


def main(arguments: Sequence[str] | None = None) -> int:
    """Trains what is to be trained, then writes the pages; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of train.en-de.tsv.gz")
    parser.add_argument("--only", help="pages or arms, with commas between")
    parser.add_argument("--minutes", type=float, default=5.0, help="of training, each arm")
    parser.add_argument("--updates", type=int, help="end after so many updates instead")
    parser.add_argument("--pairs", type=int, default=20_000)
    parser.add_argument("--held-out", type=int, default=1_000, help="pairs to validate on, and as many to test on")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--again", action="store_true", help="train arms that are recorded too")
    parser.add_argument("--runs", type=Path, default=Path("runs/atlas"), help="where text and models go")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--docs", type=Path, default=DOCS)
    parser.add_argument("--inflection", type=Path, help="draw the models of benchmarks/inflection.py in this folder")
    parser.add_argument("--pages", action="store_true", help="only write the pages")
    parser.add_argument("--check", action="store_true", help="write no page; 1 if one has fallen behind")
    parser.add_argument("--list", action="store_true", help="only tell the arms, and what is left to do")
    options = parser.parse_args(arguments)
    atlas = read_atlas()
    code = 0
    if options.inflection:
        draw_inflection(atlas, options.inflection, options.docs / MAPS)
    elif options.list or options.data:
        chosen = choose(atlas, options.only, parser)
        if options.list:
            return tell(chosen, options)
        code = train(atlas, chosen, options)
    elif not (options.pages or options.check):
        parser.error("give --data DIR to train, or --pages to write the pages alone")
    return max(code, write_pages(atlas, options.results, options.docs, options.check))


def choose(atlas: Atlas, only: str | None, parser: argparse.ArgumentParser) -> list[str]:
    """The arms that are asked for, in the atlas's order: of a page all that it shows."""
    wanted: set[str] = set()
    for name in only.split(",") if only else [*atlas.pages]:
        page = atlas.pages.get(name)
        if page is None and name not in atlas.arms:
            parser.error(f"--only {name}: no such page or arm; there are {', '.join([*atlas.pages, *atlas.arms])}")
        wanted |= {name} if page is None else shown(page)
    return [name for name in atlas.arms if name in wanted]


def shown(page: Page) -> set[str]:
    """The arms of a page, its twin's, and those beside them."""
    beside = {path[0] for one in page.measured if one.record == RECORD for path in one.rows.values()}
    return {one for one in (page.arm, page.twin) if one} | beside


def tell(chosen: Iterable[str], options: argparse.Namespace) -> int:
    """Prints the arms, and which of them have no result."""
    found = read_record(options.results / RECORD)
    left = [name for name in chosen if name not in found or "failed" in found[name]]
    for name in chosen:
        print(f"{name}{'' if name not in left else ': failed' if name in found else ': not measured yet'}")
    print(f"{len(left)} arms to train, about {told_time(60 * len(left) * (options.minutes + 1))}")
    return 0


# Training


def train(atlas: Atlas, chosen: Sequence[str], options: argparse.Namespace) -> int:
    """Trains, measures and records arm after arm; 1 if one failed."""
    import torch

    from benchmarks.mechanisms import running
    from benchmarks.mechanisms.material import CORPUS, Material

    if not (options.data / CORPUS).is_file():
        sys.exit(f"--data {options.data}: there is no {CORPUS} in it")
    torch.set_num_threads(options.threads)
    minutes = options.minutes if options.updates is None else None
    budget = running.Budget(options.pairs, options.held_out, minutes, options.updates, options.threads)
    run = running.commands(options.threads)

    @cache
    def material() -> Material:
        return Material(options.data / CORPUS, options.runs, options.pairs, options.held_out)

    def measure(name: str) -> Result:
        return running.run_arm(name, atlas.arms[name], material(), budget, run, options.docs / MAPS)

    return fill(
        options.results / RECORD,
        {name: running.settings(atlas.arms[name], budget) for name in chosen},
        [*atlas.arms],
        measure,
        told_result,
        (options.runs, options.data),
        (minutes or 0) + 1,  # one to measure
        options.again,
    )


def told_result(result: Result) -> str:
    """The most important figure."""
    if isinstance(bleu := result.get("bleu"), dict):
        return f"BLEU {bleu['value']:.1f}, {result['updates']} updates"
    return f"perplexity of a word {result['word_perplexity']:.1f}, {result['updates']} updates"


# Pictures and pages


def draw_inflection(atlas: Atlas, runs: Path, maps: Path) -> None:
    """Draws the first forms of the test as the models of another benchmark see them, those that are there."""
    from benchmarks.mechanisms.material import read_pairs
    from benchmarks.mechanisms.running import draw
    from sightline.translator import load

    forms = read_pairs(runs / "test.tsv")[:FORMS]
    every = [one for page in atlas.pages.values() for one in page.measured if one.record == "inflection.json"]
    for measured in every:
        for path in measured.rows.values():
            models = sorted(runs.glob(f"{path[0].replace(' ', '-')}-[0-9]*"))
            if models:
                draw(load(models[0], engine="pytorch"), forms, maps / f"{picture_of(measured, path)}.svg")
                say(f"drawn: {path[0]}")


def write_pages(atlas: Atlas, results: Path, docs: Path, check: bool) -> int:
    """Writes all pages that have changed; with `check` only tells of them, and gives 1 if there are some."""
    pictures = {path.stem for path in (docs / MAPS).glob("*.svg")}
    changed = False
    for name, text in render(atlas, read_records(results, atlas), pictures).items():
        path = docs / name
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        changed = True
        print(f"{path.name}: {'has fallen behind' if check else 'written'}")
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return int(check and changed)


if __name__ == "__main__":
    sys.exit(main())
