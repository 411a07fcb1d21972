"""The figures of our pages, written from the records that they come from, so that nobody copies a number.

    python benchmarks/readme_tables.py [--check]

What stands in a page between `<!-- table: NAME -->` and `<!-- end -->` is written anew from `benchmarks/results/`. With
`--check` nothing is written, and the exit code is 1 if a page has fallen behind its records.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.decoding import goals

ROOT = Path(__file__).resolve().parents[1]
RESULTS = Path("benchmarks") / "results"
PAGES = (Path("README.md"), Path("examples/multi30k/README.md"), Path("docs/decoding/interop.md"))
BLOCK = re.compile(r"(<!-- table: (\w+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
RECIPES = ("seq2seq", "bahdanau", "luong", "transformer")
TRAINED = 30  # letters of the longest string of the copy task's training
PEERS = {"marian": "MarianMT", "opennmt": "OpenNMT-py", "joeynmt": "JoeyNMT", "sockeye": "Sockeye"}
OURS = {
    "sightline": "",
    "sightline-compiled": " (with `--compile`)",
    "sightline-input-feeding": " (with input feeding, as the peers')",
}
SHOWN = 5  # sentences of the training demo

Record = Mapping[str, Any]


# ---- what pages are made of ----


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], numbers: int) -> str:
    """A Markdown table whose last `numbers` columns stand to the right."""
    rule = ["---"] * (len(heads) - numbers) + ["---:"] * numbers
    lines = [f"| {' | '.join(cells)} |" for cells in (heads, *rows)]
    return "\n".join([lines[0], f"|{'|'.join(rule)}|", *lines[1:]])


def paragraph(text: str) -> str:
    """Text in lines as long as the pages' others."""
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)


def span(values: Iterable[float]) -> str:
    """`12`, or `4 to 6`."""
    found = sorted({f"{value:g}": value for value in values}.items(), key=lambda item: item[1])
    return found[0][0] if len(found) == 1 else f"{found[0][0]} to {found[-1][0]}"


def times(count: int) -> str:
    """`once`, or `3 times`."""
    return "once" if count == 1 else f"{count:,} times"


def at_least(values: Iterable[float]) -> str:
    """A share that none falls below."""
    lowest = min(values)
    return "100%" if lowest == 100 else f"at least {lowest:g}%"


# ---- the records ----


def demo(record: str) -> str:
    """What `make demo` printed, from the first translation to the end of the picture."""
    lines = record.splitlines()
    start = next(place for place, line in enumerate(lines) if line.endswith("sightline translate en-de"))
    end = next(place for place in range(start, len(lines)) if lines[place].startswith("░ from"))
    return "\n".join(["```", *lines[start : end + 1], "```"])


def demo_train(record: str) -> str:
    """What a training demo came to: scores and sentences."""
    lines = record.splitlines()
    scores, sentences = (lines.index(head) for head in ("On held-out sentences:", "A few sentences:"))
    shown = [*lines[scores : sentences + 2 + SHOWN], "  …"]
    minutes = re.search(r" for (\d+) minutes on ", record)
    cores = re.search(r"(\d+) cores", lines[0])
    assert minutes is not None
    assert cores is not None
    close = f"That is {minutes[1]} minutes of training from nothing on {cores[1]} CPU cores"
    return "\n".join(["```", *shown, "```", "", f"{close} ([the whole output](benchmarks/results/demo_train.txt))."])


def bundled_models(record: Record) -> str:
    """How good, fast and large the models are that come with the install."""
    about = paragraph(
        f"On {record['sentences']:,} sentences of the Tatoeba Challenge's test; the text that people wrote for the "
        f"models to learn from has none of them (13a, mixed case; `{record['command']}`, "
        "[results](benchmarks/results/bundled_models.json)):"
    )
    rows = []
    for name, model in sorted(record["models"].items(), reverse=True):
        beam, greedy = model["beam"], model["greedy"]
        speeds = f"{beam['sentences_per_second']:,.0f} / {greedy['sentences_per_second']:,.0f}"
        scores = [f"{beam['BLEU']['value']:.1f} / {greedy['BLEU']['value']:.1f}", f"{beam['chrF']['value']:.1f}"]
        first = f"{model['first_translation']['median']:.2f} s"
        rows.append([f"`{name}`", *scores, speeds, first, f"{model['bytes'] / 1e6:.1f} MB"])
    beam_size = next(iter(record["models"].values()))["beam"]["beam"]
    heads = ["model", f"BLEU, beam {beam_size} / greedy", "chrF", "sentences a second", "cold start to a translation"]
    return f"{about}\n\n{table([*heads, 'size'], rows, 5)}"


def export(record: str) -> str:
    """What an export tells of itself."""
    return "\n".join(["```", *record.splitlines()[1:], "```"])


def copy_task(record: Record) -> str:
    """Exact copies by length: all lengths of training, the first beyond them, and the last."""
    found = {name: record["copy"][name]["by_length"] for name in RECIPES if name in record["copy"]}
    buckets = next(iter(found.values()))
    inside = [place for place, bucket in enumerate(buckets) if bucket["longest"] <= TRAINED]
    places = [*inside, len(inside), len(buckets) - 1]
    heads = [buckets[place]["label"] for place in places]
    heads[len(inside)] = f"longer: {heads[len(inside)]}"
    rows = [[f"`{name}`", *(f"{lengths[place]['exact']:.1f}" for place in places)] for name, lengths in found.items()]
    return table(["recipe", *heads], rows, len(places))


def reverse_task(record: Record) -> str:
    """How well strings are turned round, and where the weights lie."""
    arms = {name: record["reverse"][name] for name in RECIPES if name in record["reverse"]}
    *others, last = (f"`{name}`" for name in arms)
    exact = at_least(arm["exact"] for arm in arms.values())
    diagonal = at_least(arm["anti_diagonal"]["predicts"] for arm in arms.values())
    lost = record["reverse"]["transformer without positions"]["exact"]
    return paragraph(
        f"Reversing strings of ten distinct letters, {', '.join(others)} and {last} get {exact} of unseen strings "
        f"right, and their strongest weights lie on the anti-diagonal in {diagonal} of places. A Transformer that is "
        f"told no positions gets {lost:g}%."
    )


def multi30k(record: Record) -> str:
    """All recipes, the best last."""
    record = {name: record[name] for name in RECIPES if name in record}
    scores = {name: found["test2016"] for name, found in record.items()}
    order = sorted(record, key=lambda name: scores[name]["bleu"]["value"])
    minutes = span(found["minutes"] for found in record.values())
    about = paragraph(
        f"Multi30k, English to German, 29,000 image captions, {minutes} minutes of training for each recipe on "
        f"{span(found['threads'] for found in record.values())} threads; BLEU and chrF on test2016 with beam 5 "
        f"(`tokenize=none` on the tokenised release; `python benchmarks/multi30k.py --data DIR --minutes {minutes}`, "
        "[results](benchmarks/results/multi30k.json)):"
    )
    rows = []
    for name in order:
        bleu = f"{scores[name]['bleu']['value']:.1f}"
        speed = f"{round(record[name]['tokens_per_second'], -2):,.0f}"
        rows.append(
            [
                f"`{name}`",
                f"**{bleu}**" if name == order[-1] else bleu,
                f"{scores[name]['chrf']['value']:.1f}",
                f"{record[name]['updates']:,}",
                span([record[name]["epochs"]]),
                speed,
            ]
        )
    heads = ["recipe", "BLEU", "chrF", "updates", "times through the data", "target tokens/s"]
    return f"{about}\n\n{table(heads, rows, 5)}"


def multi30k_examples(record: Record) -> str:
    """What the configurations under examples/ come to."""
    rows = [
        [
            f"`{name}.yaml`",
            f"{found['bleu']['value']:.2f}",
            f"{found['chrf']['value']:.2f}",
            f"{found['updates']:,}",
            f"{found['minutes']:.0f}",
        ]
        for name, found in record.items()
        if "bleu" in found
    ]
    return table(["configuration", "BLEU", "chrF", "updates", "minutes"], rows, 4)


def big_corpus(record: Record) -> str:
    """Memory, which does not follow the corpus. Its seconds are told in the record, with the machine's load."""
    rows = []
    for name, run in record["runs"].items():
        own = [memory["own"] for memory in run["megabytes_after_updates"].values()]
        peaks = run["peak_megabytes"]
        before = max(peak["own_with_helpers"] for phase, peak in peaks.items() if phase != "training")
        after = [own[0], own[len(own) // 2], own[-1], *(peaks["training"][kind] for kind in ("own", "resident"))]
        updates = run.get("updates", record["steps"])
        rows.append([name, f"{updates:,}", *(f"{value:,} MB" for value in (before, *after))])
    files = record["cache_megabytes"]
    ids = sum(size for name, size in files.items() if name.endswith(".ids"))
    ended = max(run.get("epochs_ended", 0) for run in record["runs"].values())
    about = (
        f"{record['pairs']:,} made-up pairs, {record['corpus_megabytes']:,} MB of text: the program's own memory, "
        f"until it trains its helpers' with it (`{record['command']}`, [results](benchmarks/results/big_corpus.json)). "
        f"Token ids, {ids:,} MB, and their offsets and line numbers, {sum(files.values()) - ids:,} MB, stay on disk "
        "and are mapped; what has been read of them counts as resident, as do the libraries."
    )
    if ended:
        about += f" Epochs were made to end early: the order of all pairs was made anew {times(ended)} on the way."
    heads = ["run", "updates", "until it trains, highest", "after the first", "half-way", "after the last"]
    return f"{paragraph(about)}\n\n{table([*heads, 'in training, highest', 'all that is resident'], rows, 7)}"


def training_speed(record: Record) -> str:
    """Sightline beside the fastest peer of each size."""
    settings = record["settings"]
    about = paragraph(
        f"Target tokens a second in training, medians of {settings['rounds']} alternating rounds on the same batches "
        f"of {settings['batch_tokens']:,} tokens, {settings['threads']} threads, fp32 (`{record['command']}`, "
        "[all contenders](benchmarks/results/training_speed.md)):"
    )
    rows = []
    for size in record["sizes"].values():
        contenders = size["contenders"]
        speeds = {name: found["tokens_per_second"] for name, found in contenders.items()}
        fastest = max((name for name in speeds if name in PEERS), key=speeds.__getitem__)
        for name in (name for name in speeds if name in OURS):
            tuned = contenders[name]["times_tuned_loop"]
            rows.append(
                [
                    size["what"] + OURS[name],
                    f"{speeds[name]:,.0f}",
                    f"{PEERS[fastest]}: {speeds[fastest]:,.0f}",
                    f"**{contenders[name]['times_fastest_peer']:.2f}**",
                    "-" if tuned is None else f"{tuned:.2f}",
                    " / ".join(f"{contenders[one]['megaflop_per_token']:.1f}" for one in (name, fastest)),
                ]
            )
    heads = ["model", "Sightline", "fastest peer", "times the peer", "times a loop tuned by hand"]
    return f"{about}\n\n{table([*heads, 'MFLOP a token, ours / theirs'], rows, 5)}"


def decoding_speed(record: Record) -> str:
    """What was wanted of decoding, and what was found."""
    settings, model = record["settings"], str(record["model"])
    about = paragraph(
        f"Decoding with {model[0].lower()}{model[1:]}, {settings['threads']} threads, the least over all sets of "
        f"sentences, medians of {settings['rounds']} alternating rounds, with at most {goals.EQUAL} BLEU less "
        f"(`{record['command']}`, [all contenders and cases](benchmarks/results/decoding_speed.md)):"
    )
    rows = [[row[0], row[1], row[2], row[4]] for row in map(goals.told, record["goals"])]
    return f"{about}\n\n{table(['times as fast', 'wanted', 'found', 'met'], rows, 3)}"


def startup(record: Record) -> str:
    """How soon the program answers."""
    first = {kind: record[kind]["median"]["the first update"] for kind in ("cold", "warm")}
    return paragraph(
        f"`sightline --help` answers in {record['help']['median']:.2f} s; from the command to the first update on the "
        f"bundled corpus it takes {first['cold']:.1f} s with an empty cache and {first['warm']:.1f} s with a full one "
        f"(medians, `{record['command']}`, [results](benchmarks/results/startup.json))."
    )


@dataclass(frozen=True)
class Block:
    """Where a block's figures lie, and how they are told."""

    record: str
    told: Callable[[Any], str]


BLOCKS = {
    "demo": Block("demo.txt", demo),
    "demo_train": Block("demo_train.txt", demo_train),
    "bundled_models": Block("bundled_models.json", bundled_models),
    "export": Block("export_int8.txt", export),
    "copy": Block("toy_tasks.json", copy_task),
    "reverse": Block("toy_tasks.json", reverse_task),
    "multi30k": Block("multi30k.json", multi30k),
    "multi30k_examples": Block("multi30k_examples.json", multi30k_examples),
    "big_corpus": Block("big_corpus.json", big_corpus),
    "training_speed": Block("training_speed.json", training_speed),
    "decoding_speed": Block("decoding_speed.json", decoding_speed),
    "startup": Block("startup.json", startup),
}


# ---- pages ----


def told(name: str, results: Path) -> str:
    """One block as its record has it; a record that is not there yet is said to be missing."""
    if name not in BLOCKS:
        raise SystemExit(f"there is no table '{name}': tables are {', '.join(BLOCKS)}")
    path = results / BLOCKS[name].record
    if not path.exists():
        return f"Not recorded yet: `benchmarks/{path.stem}.py` makes the record."
    text = path.read_text(encoding="utf-8")
    return BLOCKS[name].told(json.loads(text) if path.suffix == ".json" else text)


def rewritten(page: str, results: Path) -> str:
    """A page with all of its blocks as the records have them."""
    if page.count("<!-- table: ") != len(BLOCK.findall(page)):
        raise SystemExit("a table is not closed: it goes from `<!-- table: NAME -->` to `<!-- end -->`")
    return BLOCK.sub(lambda block: f"{block[1]}{told(block[2], results)}\n{block[4]}", page)


def main(arguments: Sequence[str], root: Path = ROOT) -> int:
    """Writes or checks the pages; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; 1 if a page has fallen behind")
    check = parser.parse_args(arguments).check
    behind = False
    for page in PAGES:
        old = (root / page).read_text(encoding="utf-8")
        new = rewritten(old, root / RESULTS)
        if new != old:
            behind = True
            print(f"{page}: {'has fallen behind its records' if check else 'written anew'}")
            if not check:
                (root / page).write_text(new, encoding="utf-8")
    return int(check and behind)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
